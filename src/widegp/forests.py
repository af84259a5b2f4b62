"""Sums over many trees at many rows, by comparing all rows with a node at a time.

    sum over trees t of value(leaf of t that x falls into)

A row does not walk. The leaves of a tree are numbered from left to right, and every row starts with a bit for
each of them. A node x_j <= s whose answer is no clears the bits of its left side; when all nodes have been
asked, in any order, the lowest bit that is left is the row's leaf (QuickScorer: Lucchese and others, 2015).
Nodes are compared with hundreds of rows by a few vector instructions each, where a walk waits for memory at
every step. A few rows at a time do walk, each down many trees at once, so that it waits for all of them
together.

Inputs are replaced by their ranks among the thresholds of the forest: x <= s where rank(x) <= rank(s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from widegp.jit import COMPILED, get_num_threads, njit
from widegp.threads import in_threads

# Leaves of a word of bits; words and ranks of one width are compared without being widened.
BITS = 16
FULL = np.uint16(2**BITS - 1)
# Rows that one thread takes at a time, and below how many of them each row walks.
PART_ROWS = 512
FEW_ROWS = 16
# Trees that a row walks down at once.
TOGETHER = 16


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as vector instructions want them.

    Fields
    ------
    thresholds : of one input after the other, sorted in each.    begins : (I + 1,) where those of each start.
    nodes : (T, 4) input, rank of the threshold, and how far on the left and the right child are; leaves have
        input ``FULL``. Eight bytes each, so that a walk reads one line of memory a step.
    value : (T,) of the leaves.    roots : (t,) where each tree starts.
    tests : (e, 4) input, rank, word and mask of what a node clears, a line for each word of bits.
    ends : (t + 1,) where the tests of each tree start.
    leaves : the values of the leaves, from left to right.    firsts : (t + 1,) where those of each start.
    """

    thresholds: np.ndarray
    begins: np.ndarray
    nodes: np.ndarray
    value: np.ndarray
    roots: np.ndarray
    tests: np.ndarray
    ends: np.ndarray
    leaves: np.ndarray
    firsts: np.ndarray

    @classmethod
    def of(
        cls, feature: np.ndarray, threshold: np.ndarray, left: np.ndarray, right: np.ndarray,
        value: np.ndarray, roots: np.ndarray, n_inputs: int,
    ) -> Self:  # fmt: skip
        """From the nodes (T,) of all trees, one tree after the other, each from its root on."""
        inner = np.flatnonzero(feature >= 0)
        by_input = inner[np.argsort(feature[inner], kind="stable")]
        cuts = np.searchsorted(feature[by_input], np.arange(1, n_inputs))
        thresholds, rank = [], np.zeros(len(feature), np.int64)
        for own in np.split(by_input, cuts):
            values, rank[own] = np.unique(threshold[own], return_inverse=True)
            thresholds.append(values)
        own = np.arange(len(feature))
        parts = [np.where(feature < 0, FULL, feature), rank, left - own, right - own]
        nodes = np.stack(parts, axis=1).astype(np.uint16)
        size, first = _numbered_leaves(feature, left, right, roots)
        node, word, mask = _cleared(inner, first[inner], size[left[inner]])
        tests = np.stack([feature[node], rank[node], word, mask], axis=1).astype(np.uint16)
        leaf = np.flatnonzero(feature < 0)
        firsts = np.append(0, np.cumsum(size[roots]))
        leaves = np.empty(len(leaf))
        leaves[firsts[np.searchsorted(roots, leaf, side="right") - 1] + first[leaf]] = value[leaf]
        ends = np.append(np.searchsorted(node, roots), len(node))
        begins = np.cumsum([0, *(len(values) for values in thresholds)])
        return cls(np.concatenate(thresholds), begins, nodes, value, roots, tests, ends, leaves, firsts)

    def sums(self, X: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Of rows X (n, I), over the trees starts_k to starts_k+1 for each k: (n, K)."""
        parts = [slice(start, start + PART_ROWS) for start in range(0, len(X), PART_ROWS)]
        made = in_threads(lambda part: self._of_few(X[part], starts), parts)
        return np.concatenate([np.empty((0, len(starts) - 1)), *made])

    def _of_few(self, X: np.ndarray, starts: np.ndarray) -> np.ndarray:
        ranks, out = self._ranks(X), np.empty((len(starts) - 1, len(X)))
        if not COMPILED:
            return self._plainly(ranks, starts).T
        if len(X) < FEW_ROWS:
            runs = [run for run in np.array_split(np.arange(len(out)), get_num_threads()) if len(run)]

            def walk(run: np.ndarray) -> None:
                own = starts[run[0] : run[-1] + 2]
                _walk(ranks, self.nodes, self.value, self.roots, own, out[run[0] : run[-1] + 1])

            in_threads(walk, runs)
        else:
            _compare(ranks, self.tests, self.ends, self.leaves, self.firsts, starts, out)
        return out.T

    def _ranks(self, X: np.ndarray) -> np.ndarray:
        """How many thresholds of its input lie below each entry of X (n, I): (I, n)."""
        out = np.empty((len(self.begins) - 1, len(X)), np.uint16)
        if COMPILED:
            _rank(X, self.thresholds, self.begins, out)
            return out
        for j, own in enumerate(out):
            own[:] = np.searchsorted(self.thresholds[self.begins[j] : self.begins[j + 1]], X[:, j])
        return out

    def _plainly(self, ranks: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """`_walk` by NumPy, all trees at once, for machines without Numba: (K, n)."""
        columns = np.arange(ranks.shape[1])
        node = np.repeat(self.roots[starts[0] : starts[-1], None], len(columns), axis=1)
        while (inner := (feature := self.nodes[node, 0]) != FULL).any():
            lower = ranks[np.where(inner, feature, 0), columns] <= self.nodes[node, 1]
            node = node + np.where(inner, self.nodes[node, np.where(lower, 2, 3)], 0)
        return np.add.reduceat(self.value[node], starts[:-1] - starts[0], axis=0)


def _numbered_leaves(
    feature: np.ndarray, left: np.ndarray, right: np.ndarray, roots: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many leaves lie below each node, and the number of the first of them in its tree, (T,) each."""
    levels, level = [], np.asarray(roots)
    while len(level):
        levels.append(level[feature[level] >= 0])
        level = np.concatenate([left[levels[-1]], right[levels[-1]]])
    size, first = np.ones(len(feature), np.int64), np.zeros(len(feature), np.int64)
    for level in reversed(levels):
        size[level] = size[left[level]] + size[right[level]]
    for level in levels:
        first[left[level]] = first[level]
        first[right[level]] = first[level] + size[left[level]]
    return size, first


def _cleared(
    node: np.ndarray, first: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes (p,) that clear ``count`` bits from ``first`` on, as node, word and mask of what stays: (e,)."""
    word, last = first // BITS, (first + count - 1) // BITS
    repeats = last - word + 1
    source = np.repeat(np.arange(len(node)), repeats)
    word = word[source] + np.arange(len(source)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    low = np.maximum(first[source] - BITS * word, 0)
    high = np.minimum(first[source] + count[source] - BITS * word, BITS)
    return node[source], word, int(FULL) & ~((1 << high) - (1 << low))


@njit(cache=True, nogil=True, error_model="numpy")
def _rank(X, thresholds, begins, out):  # type: ignore[no-untyped-def]
    """out (I, n): how many thresholds of its input lie below each entry of X (n, I), by halving."""
    for j in range(out.shape[0]):
        for i in range(X.shape[0]):
            low, high = begins[j], begins[j + 1]
            while low < high:
                middle = (low + high) >> 1
                if thresholds[middle] < X[i, j]:
                    low = middle + 1
                else:
                    high = middle
            out[j, i] = low - begins[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _walk(ranks, nodes, value, roots, starts, out):  # type: ignore[no-untyped-def]
    """out (K, n): every row of ranks (I, n) goes from the root of each tree to its leaf.

    A tree that has come to its leaf makes way for the next. Leaves are added up in the order of the trees.
    """
    first, last = starts[0], starts[-1]
    leaf = np.empty(last - first, np.int64)
    node, tree = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.int64)
    out[:] = 0.0
    for i in range(ranks.shape[1]):
        busy = min(TOGETHER, last - first)
        ahead = first + busy
        for j in range(busy):
            node[j], tree[j] = roots[first + j], first + j
        while busy > 0:
            j = 0
            while j < busy:
                at = node[j]
                feature = nodes[at, 0]
                if feature != FULL:
                    node[j] = at + nodes[at, 2 if ranks[feature, i] <= nodes[at, 1] else 3]
                    j += 1
                    continue
                leaf[tree[j] - first] = at
                if ahead < last:
                    node[j], tree[j] = roots[ahead], ahead
                    ahead += 1
                else:
                    busy -= 1
                    node[j], tree[j] = node[busy], tree[busy]
        for k in range(starts.size - 1):
            for t in range(starts[k], starts[k + 1]):
                out[k, i] += value[leaf[t - first]]


@njit(cache=True, nogil=True, error_model="numpy")
def _compare(ranks, tests, ends, leaves, firsts, starts, out):  # type: ignore[no-untyped-def]
    """out (K, n): every node of each tree is compared with all rows of ranks (I, n), words of bits (w, n)."""
    n = ranks.shape[1]
    most = 1
    for tree in range(starts[0], starts[-1]):
        most = max(most, (firsts[tree + 1] - firsts[tree] + BITS - 1) // BITS)
    bits, place = np.empty((most, n), np.uint16), np.empty(n, np.uint16)
    out[:] = 0.0
    for k in range(starts.size - 1):
        for tree in range(starts[k], starts[k + 1]):
            words = (firsts[tree + 1] - firsts[tree] + BITS - 1) // BITS
            for word in range(words):
                for i in range(n):
                    bits[word, i] = FULL
            for test in range(ends[tree], ends[tree + 1]):
                feature, rank, word, mask = tests[test, 0], tests[test, 1], tests[test, 2], tests[test, 3]
                for i in range(n):
                    bits[word, i] &= mask if ranks[feature, i] > rank else FULL
            for word in range(words - 1, -1, -1):
                _lowest_bits(bits[word], np.uint16(BITS * word), place)
            for i in range(n):
                out[k, i] += leaves[firsts[tree] + place[i]]


@njit(cache=True, nogil=True, error_model="numpy")
def _lowest_bits(word, first, place):  # type: ignore[no-untyped-def]
    """place_i = first + the number of the lowest bit of word_i, where one is set; (n,) both.

    By halves, for Numba knows no instruction that counts zeros.
    """
    zero = np.uint16(0)
    for i in range(word.size):
        low = np.uint16(word[i] & np.uint16(np.uint16(~word[i]) + np.uint16(1)))
        at = first
        at += np.uint16(8) if low & np.uint16(0xFF00) else zero
        at += np.uint16(4) if low & np.uint16(0xF0F0) else zero
        at += np.uint16(2) if low & np.uint16(0xCCCC) else zero
        at += np.uint16(1) if low & np.uint16(0xAAAA) else zero
        place[i] = at if word[i] else place[i]
