"""Addressed randomness for the measures: which rows are looked at, and seeds for learners.

A sample of rows, and every number drawn here, depends on the seed and on what it is for, never on
which other measures are taken. Only scikit-learn's learners draw by a generator of their own.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from providers.draws import uniform
from providers.kernels import shuffle_rows
from providers.radix import Int64Array
from providers.rng import LANES, Stream, stream_words

_AT_ONCE = 128  # uniforms made of 256 words


def sample_rows(rows: int, size: int, stream: Stream, purpose: str) -> Int64Array:
    """`size` rows of `rows`, ascending, every set as likely as another; all of them where they are fewer."""
    if size >= rows:
        return np.arange(rows, dtype=np.int64)
    order = shuffle_rows(rows, stream.key(f"sample/{purpose}")).order
    return np.sort(order[:size]).astype(np.int64)


@njit(cache=True, nogil=True)
def _fill(key, out):
    address, block = np.zeros((4, LANES), np.uint32), np.empty((LANES, LANES), np.uint32)
    words = np.empty(2 * _AT_ONCE, np.uint32)
    for start in range(0, len(out), _AT_ONCE):
        stream_words(key, np.uint64(0), np.uint32(0), np.uint32(start // 8), address, block, words)
        for at in range(min(_AT_ONCE, len(out) - start)):
            out[start + at] = uniform(words[2 * at], words[2 * at + 1])


def uniforms(count: int, stream: Stream, purpose: str) -> npt.NDArray[np.float64]:
    """So many uniform numbers in [0, 1)."""
    out = np.empty(count)
    _fill(stream.key(purpose), out)
    return out


def random_state(stream: Stream, purpose: str) -> int:
    """A seed for scikit-learn, below 2**32."""
    return int(stream.key(purpose)[0])
