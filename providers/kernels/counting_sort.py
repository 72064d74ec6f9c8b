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


def places_by_part(parts: npt.NDArray[np.integer[Any]], count: int) -> tuple[IndexArray, Int64Array]:
    """Return the place of each row in the order of the parts, and the start of each part in that order.

    Parameters
    ----------
    parts : ndarray of int, shape (rows,)
        Part of each row, from 0 to ``count - 1``.
    count : int

    Returns
    -------
    places : ndarray of int32 or int64, shape (rows,)
        Ascending within a part.
    starts : ndarray of int64, shape (count + 1,)
        The last entry is the number of rows.

    Notes
    -----
    O(rows + count), by one thread: batches have so few rows that waking more would take longer.
    """
    parts = parts.astype(np.int64, copy=False)
    starts = np.concatenate(([0], np.cumsum(np.bincount(parts, minlength=count)))).astype(np.int64)
    places = np.empty(len(parts), row_index_type(len(parts)))
    _place_rows(parts, starts[:-1].copy(), places)
    return places, starts


@uncounted
def _place_rows(parts, next_places, places):
    """Give each row the next place of its part.

    Parameters
    ----------
    parts : ndarray of int64, shape (rows,)
    next_places : ndarray of int64, shape (parts,)
        First place of each part; ends as the place after its last row.
    places : ndarray of int32 or int64, shape (rows,)
        Written.
    """
    for row in range(len(parts)):
        part = parts[row]
        places[row] = next_places[part]
        next_places[part] += 1
