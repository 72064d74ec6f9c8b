"""Differences of figures beyond their uncertainty, beaten points, ranks and mean ranks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from providers.arrays import Float64Array
from providers.measures.shared.measure import Goal
from providers.measures.shared.repeats import Interval, student_quantile

LEVEL = 0.05
"""Probability that any of several alike points is called different from another one."""


class Estimate(NamedTuple):
    """A figure with its uncertainty."""

    value: float
    interval: Interval | None = None
    """95 % interval; None: the figure is exact, or its uncertainty unknown."""
    freedom: float = math.inf
    """Degrees of freedom of the interval's standard error; inf: known."""


@dataclass(frozen=True, slots=True)
class Beaten:
    """Comparison of one point with all others."""

    clearly: bool
    """Whether another point is as good in both figures and better in one by more than the uncertainty."""
    within: tuple[int, ...]
    """Points that are as good in both figures and better in one, but by no more than the uncertainty."""


def beaten_points(
    points: Sequence[tuple[Estimate, Estimate]],
    goals: tuple[Goal, Goal] = ("low", "low"),
    level: float = LEVEL,
) -> list[Beaten]:
    """Find for each point the points that beat it; equal points do not beat one another.

    Parameters
    ----------
    points : sequence of (Estimate, Estimate)
        Two finite figures of each point.
    goals : tuple
        Better values of each figure.
    level : float
        Greatest probability of a difference that is beyond the uncertainty (`level_of_all`).

    Notes
    -----
    The point that no other one beats by its values alone is never beaten clearly, so that one is left.
    O(n^2).
    """
    as_good = np.ones((len(points), len(points)), np.bool_)
    better, clearly = ~as_good, ~as_good
    for axis, goal in enumerate(goals):
        figures = [point[axis] for point in points]
        values = np.array([figure.value for figure in figures], np.float64)
        values = values if goal == "low" else -values
        as_good &= values <= values[:, None]  # [one, other]: the other is as good as the one
        ahead = values < values[:, None]
        better |= ahead
        clearly |= ahead & (p_values(figures) <= level)
    beaten = as_good & clearly
    within = as_good & better & ~clearly
    return [
        Beaten(bool(mine.any()), tuple(np.flatnonzero(close).tolist()))
        for mine, close in zip(beaten, within, strict=True)
    ]


def p_values(figures: Sequence[Estimate]) -> Float64Array:
    """Return for each pair the probability that equal figures differ as much or more.

    Returns
    -------
    ndarray of float64, shape (figures, figures)
        Symmetric; 1 for equal values, 0 for other exact ones.

    Notes
    -----
    Two-sided test of Student's ratio. The standard error of each figure is the part of its interval towards
    the other figure, divided by its quantile, as in the method of variance estimates recovery; the degrees of
    freedom are Satterthwaite's. If both figures have errors of the same rows, the probability is too large
    rather than too small.

    References
    ----------
    Zou and Donner 2008, Construction of confidence limits about effect measures, Statistics in Medicine
    27(10), 1693-1702, doi:10.1002/sim.3095.
    Welch 1947, The generalization of Student's problem, Biometrika 34, 28-35, doi:10.1093/biomet/34.1-2.28.
    """
    from scipy.special import stdtr  # slow to import and rarely needed

    values = np.array([figure.value for figure in figures], np.float64)
    freedom = np.array([figure.freedom for figure in figures], np.float64)
    below, above = np.array([_errors(figure) for figure in figures], np.float64).reshape(-1, 2).T
    with np.errstate(all="ignore"):
        gap = values[:, None] - values
        one = np.where(gap > 0, below[:, None], above[:, None])
        other = np.where(gap > 0, above, below)
        error = np.hypot(one, other)
        joint = 1 / ((one / error) ** 4 / freedom[:, None] + (other / error) ** 4 / freedom)
        found = 2 * stdtr(joint, -np.abs(gap) / error)
    return np.where(gap == 0, 1.0, np.where(error == 0, 0.0, found))


def _errors(figure: Estimate) -> tuple[float, float]:
    """Return the standard error towards lower and towards higher values."""
    value, interval, freedom = figure
    if interval is None:
        return 0.0, 0.0
    quantile = student_quantile(freedom)
    return (value - interval["low"]) / quantile, (interval["high"] - value) / quantile


def level_of_all(p_values: Float64Array, tests: int) -> float:
    """Return the greatest of the probabilities that shows a difference when many are looked at.

    Parameters
    ----------
    p_values : ndarray of float64, shape (pairs,)
        Probabilities of differences, each between figures that may be equal.
    tests : int
        Number of differences among which these were looked at, `pairs` or more.

    Returns
    -------
    float
        A difference is beyond the uncertainty if its probability is at most this. Of figures that are all
        equal any is, with a probability of `LEVEL` or less, however the tests depend on one another. 0 if
        none is: exact figures still differ.

    References
    ----------
    Holm 1979, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics
    6(2), 65-70.
    """
    ordered = np.sort(p_values)
    shown = ordered <= LEVEL / (tests - np.arange(len(ordered)))
    count = int(np.logical_and.accumulate(shown).sum())
    return float(ordered[count - 1]) if count else 0.0


def number_of_differences(points: int, figures: int) -> int:
    """Return the number of differences between pairs of points in these figures."""
    return points * (points - 1) // 2 * figures


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
