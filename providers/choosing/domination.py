"""Which of several points are dominated: another one is as good in both figures, and better in one."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from providers.choosing.ranking import Goal


def dominated(
    points: Sequence[tuple[float, float]], goals: tuple[Goal, Goal] = ("low", "low")
) -> npt.NDArray[np.bool_]:
    """For each point whether another one dominates it; equal points do not dominate one another.

    Parameters
    ----------
    points : sequence of (float, float)
        Finite figures of each point.
    goals : tuple
        For each figure which values are the better ones.

    Notes
    -----
    In the order of the first figure, a point is dominated if an earlier one, better in the first, is
    as good in the second, or if one equal in the first is better in the second. O(n log n).
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
