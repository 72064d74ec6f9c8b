"""Parallel gather and scatter of values by row index."""

import numpy as np

from providers.kernels.parallel import ROWS_OF_A_THREAD, parallel
from providers.kernels.prefetch import prefetch_for_reading, prefetch_for_writing
from providers.numba import prange

_LINE = 64  # bytes of a cache line; the next line of each stream is prefetched


@parallel(least=ROWS_OF_A_THREAD)
def scatter(values, places, laid):
    """Write ``values[row]`` to ``laid[places[row]]``; rows with a negative place are skipped.

    Parameters
    ----------
    values : any dtype, shape (rows,)
    places : int32 or int64, shape (rows,)
    laid : as `values`
        Receives the values.
    """
    ahead = _LINE // values.itemsize
    for row in prange(len(values)):
        if places[row] >= 0:
            place = np.uint64(places[row])
            prefetch_for_writing(laid, place + np.uint64(ahead))
            laid[place] = values[row]


@parallel(least=ROWS_OF_A_THREAD)
def unscatter(laid, places, values, out):
    """Write ``laid[places[row]]`` to ``out[row]``, or ``values[row]`` if the place is negative.

    Parameters
    ----------
    laid : any dtype
    places : int32 or int64, shape (rows,)
    values : as `laid`, shape (rows,)
    out : as `laid`, shape (rows,)
        Receives the values.
    """
    ahead = _LINE // values.itemsize
    for row in prange(len(values)):
        if places[row] >= 0:
            place = np.uint64(places[row])
            prefetch_for_reading(laid, place + np.uint64(ahead))
            out[row] = laid[place]
        else:
            out[row] = values[row]


@parallel(least=ROWS_OF_A_THREAD)
def gather(values, rows, out):
    """Write ``values[rows[i]]`` to ``out[i]``, with all threads.

    Parameters
    ----------
    values : any dtype
    rows : int32 or int64, shape (n,)
    out : as `values`, shape (n,)
        Receives the values.
    """
    for at in prange(len(rows)):
        out[at] = values[rows[at]]
