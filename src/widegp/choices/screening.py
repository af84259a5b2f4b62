"""Which inputs matter, by a forest: a first metric where the first fit sees nothing.

Where few of many inputs act, the kernel that weighs all of them alike may find no function at all among few
rows, and then its gradients say nothing either. Trees choose inputs one by one and find them.
"""

from __future__ import annotations

import numpy as np

TREES, LEAF_ROWS = 100, 3


def importance_moment(X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """diag(importances) (I, I) of the inputs X (n, I) for y (n,): in the place of the gradients' moment M.

    The importance of an input is the share of the variance of y that splits on it explain; like the diagonal
    of M it is a mean of squares.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF_ROWS, random_state=seed % 2**31)
    return np.diag(forest.fit(X, y).feature_importances_)
