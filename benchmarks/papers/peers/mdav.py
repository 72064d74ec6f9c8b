"""Microaggregation with MDAV clusters of fixed size.

References
----------
Domingo-Ferrer and Torra 2005, doi:10.1007/s10618-005-0007-5, section 3.
"""

import numpy as np
import numpy.typing as npt

from benchmarks.papers.runs import Matrix


def clusters(points: Matrix, size: int) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each cluster: `size` rows, the last one up to 2 size - 1.

    Parameters
    ----------
    points : ndarray, shape (rows, fields)
        Standardised fields.
    size : int
        At least 1.
    """
    left, found = np.arange(len(points)), []

    def take(row: int) -> None:
        nonlocal left
        distances = ((points[left] - points[row]) ** 2).sum(axis=1)
        chosen = np.argsort(distances, kind="stable")[:size]
        found.append(left[chosen])
        left = np.delete(left, chosen)

    def farthest(centre: Matrix) -> int:
        return int(left[((points[left] - centre) ** 2).sum(axis=1).argmax()])

    while len(left) >= 3 * size:
        first = farthest(points[left].mean(axis=0))
        second_from = points[first]
        take(first)
        take(farthest(second_from))
    if len(left) >= 2 * size:
        take(farthest(points[left].mean(axis=0)))
    return [*found, left] if len(left) else found


def microaggregate(source: Matrix, size: int) -> Matrix:
    """Replace the values of each cluster by their means, shape (rows, fields)."""
    deviations = source.std(axis=0, ddof=1)
    points = (source - source.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    released = source.copy()
    for rows in clusters(points, size):
        released[rows] = source[rows].mean(axis=0)
    return released
