"""Beaten points, ranks and mean ranks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.measures.shared.measure import Goal
from providers.measures.shared.repeats import Interval


@dataclass(frozen=True, slots=True)
class Beaten:
    """Comparison of one point with all others."""

    clearly: bool
    """Whether another point is as good in both figures and better in one by more than the uncertainty."""
    within: tuple[int, ...]
    """Points that are as good in both figures and better in one, but by no more than the uncertainty."""


def beaten_points(
    points: Sequence[tuple[float, float]],
    intervals: Sequence[tuple[Interval, Interval] | None],
    goals: tuple[Goal, Goal] = ("low", "low"),
) -> list[Beaten]:
    """Find for each point the points that beat it; equal points do not beat one another.

    Parameters
    ----------
    points : sequence of (float, float)
        Two finite figures of each point.
    intervals : sequence of (Interval, Interval) or None
        95 % intervals of both figures; None: the figures are exact.
    goals : tuple
        Better values of each figure.

    Notes
    -----
    The point that no other one beats by its values alone is never beaten clearly, so that one is left.
    O(n^2).
    """
    signs = [1.0 if goal == "low" else -1.0 for goal in goals]
    results = []
    for mine, of_mine in zip(points, intervals, strict=True):
        clearly, within = False, []
        for place, (other, of_other) in enumerate(zip(points, intervals, strict=True)):
            losses = [sign * (one - two) for sign, one, two in zip(signs, mine, other, strict=True)]
            if min(losses) < 0 or max(losses) <= 0:
                continue
            if any(
                loss > 0 and _differ(axis, mine, other, of_mine, of_other) for axis, loss in enumerate(losses)
            ):
                clearly = True
            else:
                within.append(place)
        results.append(Beaten(clearly, tuple(within)))
    return results


def differ(one: float, other: float, one_interval: Interval, other_interval: Interval) -> bool:
    """Whether two figures differ by more than their uncertainty.

    Notes
    -----
    The interval of the difference of two independent figures does not contain 0, by the method of variance
    estimates recovery. If both have errors of the same rows, it is wider than need be.

    References
    ----------
    Zou and Donner 2008, Construction of confidence limits about effect measures, Statistics in Medicine
    27(10), 1693-1702, doi:10.1002/sim.3095.
    """
    if one > other:
        one, other, one_interval, other_interval = other, one, other_interval, one_interval
    return other - one > math.hypot(one_interval["high"] - one, other - other_interval["low"])


def _differ(
    axis: int,
    one: tuple[float, float],
    other: tuple[float, float],
    one_intervals: tuple[Interval, Interval] | None,
    other_intervals: tuple[Interval, Interval] | None,
) -> bool:
    """Whether two points differ on an axis by more than their uncertainty."""
    first, second = (
        exact(point[axis]) if known is None else known[axis]
        for point, known in ((one, one_intervals), (other, other_intervals))
    )
    return differ(one[axis], other[axis], first, second)


def exact(value: float) -> Interval:
    """Return the interval of an exact value."""
    return {"low": value, "high": value}


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
