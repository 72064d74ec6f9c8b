"""Loss of models that predict medians: sklearn's absolute error, with a faster median of each leaf."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt


@cache
def median_loss() -> Any:
    """Return sklearn's absolute error whose leaves get the medians of `np.median`, in a tenth of the time.

    A model of 100 trees takes 3,000 medians, and `np.median` took a third of its training.
    """
    from sklearn._loss.loss import AbsoluteError  # slow to import

    class MedianLoss(AbsoluteError):  # type: ignore[misc]  # sklearn has no types
        def fit_intercept_only(
            self, y_true: npt.NDArray[np.float64], sample_weight: npt.NDArray[np.float64] | None = None
        ) -> Any:
            if sample_weight is not None:
                return super().fit_intercept_only(y_true, sample_weight)
            middle = len(y_true) // 2
            if len(y_true) % 2:
                return np.partition(y_true, middle)[middle]
            return np.partition(y_true, (middle - 1, middle))[middle - 1 : middle + 1].sum() / 2

    return MedianLoss()
