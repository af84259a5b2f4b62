"""``model.save(path)``, which the regressor and the classifier share."""

from __future__ import annotations

import os

from sklearn.utils.validation import check_is_fitted


class SaveMixin:
    """An estimator that can be written to a file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file for `widegp.load`: arrays and JSON, no pickle, checksummed."""
        # JAX and Numba, which this loads, take seconds.
        from widegp.persist import save_model

        check_is_fitted(self, "fitted_")
        save_model(self, path)
