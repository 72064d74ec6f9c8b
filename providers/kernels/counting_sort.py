"""Sort rows by small numbers: one pass counts the rows of each number, a second one places them.

References
----------
Knuth 1998, The Art of Computer Programming 3, section 5.2, algorithm D: distribution counting.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import IndexArray, Int64Array, row_index_type
from providers.kernels.decorators import uncounted


def rows_by_part(parts: npt.NDArray[np.integer[Any]], count: int) -> tuple[IndexArray, Int64Array]:
    """Return the rows by their parts, ascending within a part, and the start of each part.

    Parameters
    ----------
    parts : ndarray of int, shape (rows,)
        Part of each row, from 0 to ``count - 1``.
    count : int

    Returns
    -------
    order : ndarray of int32 or int64, shape (rows,)
    starts : ndarray of int64, shape (count + 1,)
        Start of each part in `order`; the last entry is the number of rows.

    Notes
    -----
    O(rows + count), by one thread: batches have so few rows that waking more would take longer.
    """
    parts = parts.astype(np.int64, copy=False)
    starts = np.concatenate(([0], np.cumsum(np.bincount(parts, minlength=count)))).astype(np.int64)
    order = np.empty(len(parts), row_index_type(len(parts)))
    _place_rows(parts, starts[:-1].copy(), order)
    return order, starts


@uncounted
def _place_rows(parts, next_places, order):
    """Write each row to the next place of its part.

    Parameters
    ----------
    parts : ndarray of int64, shape (rows,)
    next_places : ndarray of int64, shape (parts,)
        First place of each part; ends as the place after its last row.
    order : ndarray of int32 or int64, shape (rows,)
        Written.
    """
    for row in range(len(parts)):
        part = parts[row]
        order[next_places[part]] = row
        next_places[part] += 1
