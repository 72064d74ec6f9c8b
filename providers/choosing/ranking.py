"""Which of several candidates is the best one, by the mean of its ranks over several figures."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Goal = Literal["low", "high"]


def ranks(values: Sequence[float | None], goal: Goal) -> npt.NDArray[np.float64]:
    """Each value's rank, the best being 1; equal values share the mean of their ranks.

    Parameters
    ----------
    values : sequence of float or None
        None, and NaN, where the figure is not defined: last, whatever the goal.
    goal : {"low", "high"}
        Which values are the better ones.

    Returns
    -------
    ndarray of float64, shape (candidates,)
        Whole or half numbers.
    """
    sign = 1.0 if goal == "low" else -1.0
    keys = np.array([_key(value, sign) for value in values])
    _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[places], np.float64)


def mean_ranks(columns: Sequence[tuple[Sequence[float | None], Goal]]) -> list[float]:
    """For each candidate the mean of its ranks over the figures.

    Parameters
    ----------
    columns : sequence of (values, goal)
        One for each figure, at least one: the values of all candidates, and the figure's goal.
    """
    # A mean of exact halves: two candidates with the same ranks in another order come out equal.
    total = np.sum([ranks(values, goal) for values, goal in columns], axis=0)
    return [float(rank) for rank in total / len(columns)]


def best(ranking: Sequence[float]) -> int:
    """The candidate of the least mean rank; of equal ones, the first."""
    return int(np.argmin(ranking))


def _key(value: float | None, sign: float) -> float:
    return math.inf if value is None or math.isnan(value) else sign * value
