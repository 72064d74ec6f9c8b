"""MEDS on real tables: the pairs that it begins with, whole assignments, and what it does to correlations."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from providers.diametral import partition
from tests.data.test_real_tables import read

pytestmark = pytest.mark.realdata

Matrix = npt.NDArray[np.float64]


def numbers(path: Path, fields: int) -> Matrix:
    """The first float fields of a table, shape (fields, rows)."""
    table = read(path)
    names = [name for name in table.column_names if str(table.schema.field(name).type) == "double"][:fields]
    return np.ascontiguousarray([table[name].to_numpy() for name in names])


def squared_distances(points: Matrix, rows: npt.NDArray[np.int64]) -> Matrix:
    """From these rows to all, the fields in order."""
    total = np.zeros((len(rows), points.shape[1]))
    for values in points:
        total += (values[rows, None] - values) * (values[rows, None] - values)
    return total


def most_distant(points: Matrix, left: npt.NDArray[np.int64]) -> tuple[int, int]:
    """The pair of rows left with the largest distance, the smallest pair of several."""
    best, pair = -1.0, (0, 0)
    for start in range(0, len(left), 500):
        found = squared_distances(points[:, left], np.arange(start, min(start + 500, len(left))))
        if found.max() > best:  # the first of equal ones: chunks and argmax go through pairs in order
            best = float(found.max())
            r, s = divmod(int(found.argmax()), len(left))
            pair = int(left[start + r]), int(left[s])
    return pair


def plain_bins(points: Matrix, k: int) -> npt.NDArray[np.int64]:
    """The paper's algorithm, every distance of every round looked at."""
    bin_of = np.full(points.shape[1], -1)
    number = 0
    while np.count_nonzero(bin_of < 0) >= 2 * k:
        r, s = most_distant(points, np.flatnonzero(bin_of < 0))
        bin_of[r], bin_of[s] = number, number + 1
        for centre, mine in ((r, number), (s, number + 1)):
            left = np.flatnonzero(bin_of < 0)
            near = np.argsort(squared_distances(points[:, left], np.zeros(0, int)), kind="stable")
            distances = np.zeros(len(left))
            for values in points:
                distances += (values[left] - values[centre]) * (values[left] - values[centre])
            near = left[np.argsort(distances, kind="stable")[: k - 1]]
            bin_of[near] = mine
        number += 2
    left = np.flatnonzero(bin_of < 0)
    assert len(left) != 1
    bin_of[left] = number
    return bin_of
