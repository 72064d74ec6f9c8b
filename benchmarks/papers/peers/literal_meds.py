"""Algorithm 1 of Li and Shen 2010 as it stands: all pairs of the remaining rows in every round."""

import numpy as np
from scipy.spatial.distance import pdist

from benchmarks.papers.runs import Matrix


def literal_meds(points: Matrix, k: int) -> list[list[int]]:
    """Return the rows of each bin.

    Parameters
    ----------
    points : ndarray, shape (rows, fields)
    k : int
        Rows of a bin. The bins of a round are formed one after the other; what remains is the last bin.
    """
    left = list(range(len(points)))
    bins = []
    while len(left) >= 2 * k:
        distances = pdist(points[left])
        first, second = _pair(int(distances.argmax()), len(left))
        seeds = (left[first], left[second])
        for seed in seeds:
            others = [row for row in left if row not in seeds]
            nearest = np.argsort(((points[others] - points[seed]) ** 2).sum(axis=1), kind="stable")[: k - 1]
            taken = {seed, *(others[place] for place in nearest)}
            bins.append(sorted(taken))
            left = [row for row in left if row not in taken]
    return [*bins, left] if left else bins


def _pair(index: int, rows: int) -> tuple[int, int]:
    """Return the two rows of an index into the condensed matrix of distances."""
    first = 0
    while index >= rows - 1 - first:
        index -= rows - 1 - first
        first += 1
    return first, first + 1 + index
