"""Addressed randomness of the measures: samples of rows, uniform numbers, and seeds for learners.

Every draw depends on the seed and on its purpose alone, never on which other measures are taken. Only the
learners of scikit-learn have their own generator.
"""

import numpy as np
import numpy.typing as npt

from providers.arrays import Int64Array
from providers.grouping.shuffle import shuffle_rows
from providers.numba import njit
from providers.randomness.chacha20 import LANES, Stream, stream_words
from providers.randomness.distributions import uniform

_BATCH = 128  # uniform numbers, made from 256 words


def sample_rows(rows: int, size: int, stream: Stream, purpose: str) -> Int64Array:
    """Sample `size` of `rows` row indices, ascending; all sets are equally likely. Fewer rows: all."""
    if size >= rows:
        return np.arange(rows, dtype=np.int64)
    order = shuffle_rows(rows, stream.key(f"sample/{purpose}")).order
    return np.sort(order[:size]).astype(np.int64)


@njit(cache=True, nogil=True)
def _fill(key, out):
    """Fill `out` with uniform numbers.

    Parameters
    ----------
    key : ndarray of uint32, shape (8,)
        ChaCha20 key of the draw.
    out : ndarray of float64, shape (n,)
        Written: number i is made from words 2 i and 2 i + 1 of the key's stream.
    """
    address, block = np.empty((4, LANES), np.uint32), np.empty((LANES, LANES), np.uint32)
    words = np.empty(2 * _BATCH, np.uint32)
    for start in range(0, len(out), _BATCH):
        stream_words(key, np.uint64(0), np.uint32(0), np.uint32(start // 8), address, block, words)
        for i in range(min(_BATCH, len(out) - start)):
            out[start + i] = uniform(words[2 * i], words[2 * i + 1])


def uniforms(count: int, stream: Stream, purpose: str) -> npt.NDArray[np.float64]:
    """Draw `count` uniform numbers in [0, 1)."""
    out = np.empty(count)
    _fill(stream.key(purpose), out)
    return out


def random_state(stream: Stream, purpose: str) -> int:
    """Seed for scikit-learn, below 2**32."""
    return int(stream.key(purpose)[0])
