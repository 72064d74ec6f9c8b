"""Dominated points, ranks and mean ranks."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from providers.measures.shared.measure import Goal


def dominated(
    points: Sequence[tuple[float, float]], goals: tuple[Goal, Goal] = ("low", "low")
) -> npt.NDArray[np.bool_]:
    """Mask of the points that another point dominates; equal points do not dominate one another.

    Parameters
    ----------
    points : sequence of (float, float)
        Two finite figures of each point.
    goals : tuple
        Better values of each figure.

    Notes
    -----
    Points are sorted by the first figure. A point is dominated if an earlier one, better in the first
    figure, is as good in the second, or if one equal in the first is better in the second. O(n log n).
    """
    signs = np.array([1.0 if goal == "low" else -1.0 for goal in goals])
    table = np.array(points, np.float64).reshape(-1, 2) * signs
    found = np.zeros(len(table), np.bool_)
    if not len(table):
        return found
    order = np.lexsort((table[:, 1], table[:, 0]))
    first, second = table[order].T
    starts = np.flatnonzero(np.r_[True, first[1:] != first[:-1]])
    group = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(table)]))
    least = second[starts]
    before = np.r_[np.inf, np.minimum.accumulate(least)[:-1]]
    found[order] = (before[group] <= second) | (second > least[group])
    return found


def ranks(values: Sequence[float | None], goal: Goal) -> npt.NDArray[np.float64]:
    """Rank the values from 1, the best; equal values share the mean of their ranks.

    Parameters
    ----------
    values : sequence of float or None
        None or NaN if the figure is undefined; these rank last, whatever the goal.
    goal : {"low", "high"}
        Better values.

    Returns
    -------
    ndarray of float64, shape (candidates,)
        Multiples of one half.
    """
    sign = 1.0 if goal == "low" else -1.0
    keys = np.array([_key(value, sign) for value in values])
    _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[places], np.float64)


def mean_ranks(columns: Sequence[tuple[Sequence[float | None], Goal]]) -> list[float]:
    """Mean rank of each candidate over the figures.

    Parameters
    ----------
    columns : sequence of (values, goal)
        For each figure, at least one: the values of all candidates, and the better values.
    """
    # Sums of halves are exact, so that candidates with the same ranks in another order have equal means.
    total = np.sum([ranks(values, goal) for values, goal in columns], axis=0)
    return [float(rank) for rank in total / len(columns)]


def best(ranking: Sequence[float], behind: Sequence[tuple[bool, ...]] = ()) -> int:
    """Return the candidate with the least mean rank, the first one of equals.

    Parameters
    ----------
    ranking : sequence of float
        Mean rank of each candidate.
    behind : sequence of tuple of bool, optional
        Faults of each candidate, the gravest first; it comes after all candidates without the fault.
    """
    faults = behind or [()] * len(ranking)
    return min(range(len(ranking)), key=lambda index: (faults[index], ranking[index], index))


def _key(value: float | None, sign: float) -> float:
    return math.inf if value is None or math.isnan(value) else sign * value
