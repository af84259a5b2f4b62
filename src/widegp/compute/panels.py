"""A triangular matrix in little more than half of its memory, for products with it."""

from __future__ import annotations

from typing import Any

import numpy as np

ROWS = 64  # of a panel: enough for a product of matrices to run at full speed


class LowerPanels:
    """V (m, m), lower triangular, as its rows a to b without their zeros, (b - a, b), for a = 0, 64, 128, ...

    ``V @ right`` is the product, ``np.asarray(V)`` the whole matrix.
    """

    def __init__(self, V: np.ndarray) -> None:
        ends = range(ROWS, len(V) + ROWS, ROWS)
        # Copies: a view would hold the whole of V.
        self._panels = [np.array(V[end - ROWS : end, : min(end, len(V))], order="C") for end in ends]
        self.shape = V.shape

    @property
    def nbytes(self) -> int:
        return sum(panel.nbytes for panel in self._panels)

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        out = np.empty((self.shape[0], *right.shape[1:]))
        for k, panel in enumerate(self._panels):
            np.matmul(panel, right[: panel.shape[1]], out=out[k * ROWS : k * ROWS + len(panel)])
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        out = np.zeros(self.shape, dtype)
        for k, panel in enumerate(self._panels):
            out[k * ROWS : k * ROWS + len(panel), : panel.shape[1]] = panel
        return out
