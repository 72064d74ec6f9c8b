"""Exponential numbers of households: the same for a household whatever else the table holds.

Draw d of a household at a level is made of words 2d and 2d + 1 of the stream (identity, level).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import Float64Array
from providers.numba import njit
from providers.randomness.chacha20 import LANES, Key, chacha20_blocks

_SQRT_HALF = math.sqrt(0.5)
_LN2 = math.log(2)


@njit(cache=True, nogil=True)
def _household_words(key, identity, level, words):
    """Write the first four words of each household's stream.

    Parameters
    ----------
    key : uint32, shape (8,)
    identity : uint64, shape (households,)
    level : uint32
    words : uint32, shape (households, 4)
        Receives the words.
    """
    address = np.zeros((4, LANES), np.uint32)
    block = np.empty((16, LANES), np.uint32)
    for start in range(0, len(identity), LANES):
        count = min(LANES, len(identity) - start)
        for lane in range(count):
            address[1, lane] = np.uint32(identity[start + lane] & np.uint64(0xFFFFFFFF))
            address[2, lane] = np.uint32(identity[start + lane] >> np.uint64(32))
            address[3, lane] = np.uint32(level)
        chacha20_blocks(key, address, block)
        for lane in range(count):
            for word in range(4):
                words[start + lane, word] = block[word, lane]


def exponentials(key: Key, identity: npt.NDArray[np.uint64], level: int) -> tuple[Float64Array, Float64Array]:
    """Return two standard exponential numbers of each household at a level, each finite and above 0.

    The first selects households, the second donors. A number is -log(u) for u = (k + 1/2) / 2**52 and the
    upper 52 bits k of two words.
    """
    words = np.empty((len(identity), 4), np.uint32)
    _household_words(key, np.ascontiguousarray(identity), np.uint32(level), words)
    return _exponential(words[:, 0], words[:, 1]), _exponential(words[:, 2], words[:, 3])


def uniform_words(key: Key) -> float:
    """Return the uniform number in (0, 1) of identity 0 at level 0."""
    words = np.empty((1, 4), np.uint32)
    _household_words(key, np.zeros(1, np.uint64), np.uint32(0), words)
    return float(_open_uniform(words[:, 0], words[:, 1])[0])


def _open_uniform(high: npt.NDArray[Any], low: npt.NDArray[Any]) -> Float64Array:
    bits = high.astype(np.uint64) << np.uint64(20) | low.astype(np.uint64) >> np.uint64(12)
    return (bits.astype(np.float64) + 0.5) * 2.0**-52


def _exponential(high: npt.NDArray[Any], low: npt.NDArray[Any]) -> Float64Array:
    """Return -log of an open uniform number, by operations that every platform rounds alike.

    log m 2**e = e log 2 + 2 (s + s**3 / 3 + ... + s**19 / 19) with s = (m - 1) / (m + 1) and
    sqrt(1/2) <= m < sqrt(2); the relative truncation error of log m is below 2**-55.
    """
    m, e = np.frexp(_open_uniform(high, low))
    small = m < _SQRT_HALF
    m[small] *= 2
    exponent = e.astype(np.float64)
    exponent[small] -= 1
    s = (m - 1) / (m + 1)
    w = s * s
    series = np.full(len(w), 1 / 19)
    for power in range(17, 0, -2):
        series *= w
        series += 1 / power
    result: Float64Array = -(exponent * _LN2 + 2 * s * series)
    return result
