"""Read the words of one stream in order; unbiased bounded integers.

A stream is an array of uint32, because a kernel without reference counting can pass it on: key, identity,
level, position in the buffer, next block, buffer of 256 words, and scratch space for ChaCha20.

Arguments of kernels
--------------------
draws : uint32 array (_END,)
    Stream, as `open_stream` returns it. Written, except by `words_used`.

References
----------
Lemire 2019, doi:10.1145/3230636: a uniform integer below a bound, without modulo bias.
"""

import numpy as np

from providers.kernels.decorators import borrowing, within
from providers.randomness.chacha20 import LANES, stream_words
from providers.randomness.distributions import uniform

_IDENTITY, _LEVEL, _POSITION, _BLOCK, _WORDS = 8, 10, 11, 12, 16

_ADDRESS = _WORDS + 256

_SCRATCH = _ADDRESS + 4 * LANES

_END = _SCRATCH + LANES * LANES
"""Offsets in the array of a stream, after the 8 words of the key; `_END` is its length."""


@within
def open_stream(key, identity, level, drawn):
    """Open a stream at a word, and return its array (uint32, shape (_END,)).

    Parameters
    ----------
    key : uint32, shape (8,)
    identity : uint64
    level : uint32
    drawn : int64
        Number of words already drawn from the stream.
    """
    draws = np.empty(_END, np.uint32)
    for at in range(8):
        draws[at] = key[at]
    draws[_IDENTITY] = np.uint32(identity & np.uint64(0xFFFFFFFF))
    draws[_IDENTITY + 1] = np.uint32(identity >> np.uint64(32))
    draws[_LEVEL] = level
    draws[_BLOCK] = drawn // 256 * 16
    draws[_POSITION] = 256
    if drawn % 256:
        _refill(draws)
        draws[_POSITION] = drawn % 256
    return draws


@borrowing
def words_used(draws):
    """Return the number of words drawn from a stream (see `open_stream`) since its beginning."""
    return np.int64(draws[_BLOCK]) * 16 + np.int64(draws[_POSITION]) - 256


@borrowing
def _refill(draws):
    """Fill the buffer of a stream with its next 256 words."""
    address = draws[_ADDRESS:_SCRATCH].reshape((4, LANES))
    block = draws[_SCRATCH:_END].reshape((LANES, LANES))
    identity = np.uint64(draws[_IDENTITY]) | np.uint64(draws[_IDENTITY + 1]) << np.uint64(32)
    stream_words(draws[:8], identity, draws[_LEVEL], draws[_BLOCK], address, block, draws[_WORDS:_ADDRESS])
    draws[_BLOCK] += np.uint32(16)


@borrowing
def next_word(draws):
    """Return the next word of a stream, and advance it."""
    position = draws[_POSITION]
    if position == 256:
        _refill(draws)
        position = np.uint32(0)
    draws[_POSITION] = position + np.uint32(1)
    return draws[_WORDS + np.int64(position)]


@borrowing
def bounded(draws, bound):
    """Return a uniform integer below `bound` (an integer, 1 to 2**32) from a stream, by Lemire's method."""
    size = np.uint64(bound)
    while True:
        product = np.uint64(next_word(draws)) * size
        low = product & np.uint64(0xFFFFFFFF)
        if low < size:  # noqa: SIM102 - the division is only needed here, and rarely
            if low < np.uint64(0x100000000) % size:
                continue
        return np.int64(product >> np.uint64(32))


@borrowing
def uniform_of(draws):
    """Return a uniform float64 in [0, 1) from the next two words of a stream."""
    high = next_word(draws)
    return uniform(high, next_word(draws))
