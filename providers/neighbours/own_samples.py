"""Draw a random neighbour from a sample private to each row (paper, section 10.3.1, the variant).

The candidates of row i are m of the other rows; all sets of m are equally likely. Neighbours and donors
among the candidates are those of `donors`. All m distances are computed (`brute_force`), without a tree.

A sample is drawn at uniform places among the other rows until m of them are distinct. If m is more than half
of the other rows, the rows to leave out are drawn instead. `docs/decisions/0001-randomness.md` lists the
addresses of the draws.

References
----------
Perry, Matloff and Tendick 2024, arXiv:2210.06687, section 10.3.1.
"""

from collections.abc import Callable

import numpy as np

from providers.arrays import Int32Array
from providers.kernels.decorators import borrowing, inlined
from providers.kernels.parallel import parallel
from providers.neighbours.brute_force import ROWS_PER_TASK, draw_for_row, new_scratch
from providers.neighbours.donors import NeighbourRule, PartRows, bounded_once, key_array, next_word, restart
from providers.numba import prange
from providers.progress import in_slices
from providers.randomness.chacha20 import Key

SAMPLE_BYTES = 40
"""Maximum memory in bytes of one row of a sample, in each thread."""

_EMPTY = np.int32(-1)  # free slot of the hash table


@inlined
def _find_slot(row, slots):
    """Return the slot of a row, or a free slot for it, in a hash table (linear probing).

    `row` (int32 or int64) is an index in the part, and `slots` (int32, shape (2**b,)) the hash table: row
    indices, or `_EMPTY`.
    """
    last = len(slots) - 1
    slot = (np.int64(row) * 2654435769 >> 8) & last  # Fibonacci hashing: 2**32 / golden ratio
    while slots[slot] != _EMPTY and slots[slot] != row:
        slot = (slot + 1) & last
    return slot


@borrowing
def _sample_for(row, identity, rows, sample, slots, order, buffer):
    """Draw the private sample of a row.

    Parameters
    ----------
    row : int64
        Index of the row in the part.
    identity : int64
        Number of the row in the table, which addresses the draws.
    rows : int64
        Rows of the part.
    sample : int32, shape (m,)
        Receives m distinct rows other than `row`; m is at most `rows` - 1.
    slots : int32, shape (2**b,)
        Scratch space: hash table of at least twice the rows that are drawn.
    order : uint32, shape (8,)
        Key of the samples.
    buffer : WordBuffer
        Words of the row's stream; written.
    """
    others, size = rows - 1, len(sample)
    draws_members = 2 * size <= others  # else the rows to leave out are drawn
    for slot in range(len(slots)):
        slots[slot] = _EMPTY
    restart(buffer)
    count = 0
    while count < min(size, others - size):
        place = bounded_once(next_word(order, identity, buffer), others)
        if place < 0:
            continue
        other = np.int32(place + (place >= row))  # skips the row itself
        slot = _find_slot(other, slots)
        if slots[slot] == _EMPTY:
            slots[slot] = other
            if draws_members:
                sample[count] = other
            count += 1
    if not draws_members:
        count = 0
        for candidate in range(rows):
            if candidate != row and slots[_find_slot(candidate, slots)] == _EMPTY:
                sample[count] = candidate
                count += 1


@parallel
def _draw(points, queried, identities, size, rule, order, keys, first, last, donors, sizes):
    """Draw a donor in each field for the rows ``queried[first:last]``.

    Parameters
    ----------
    points, rule, keys, donors, sizes
        As for `brute_force.draw_for_row`; `donors` and `sizes` are written.
    queried : int32, shape (queries,)
        Indices in the part.
    identities : int32, shape (n,)
        Row numbers in the table.
    size : int64
        Rows of a sample, m.
    order : uint32, shape (8,)
        Key of the samples.
    first, last : int64
        Range of `queried`, the last one excluded.
    """
    rows = len(points.numbers)
    slot_count = 16
    while slot_count < 2 * min(size, rows - 1 - size):
        slot_count *= 2
    for chunk in prange((last - first + ROWS_PER_TASK - 1) // ROWS_PER_TASK):
        slots = np.empty(slot_count, np.int32)
        sample = np.empty(size, np.int32)
        scratch = new_scratch(size)
        low = first + chunk * ROWS_PER_TASK
        for query in range(low, min(low + ROWS_PER_TASK, last)):
            row = np.int64(queried[query])
            identity = np.int64(identities[row])
            _sample_for(row, identity, rows, sample, slots, order, scratch.buffer)
            draw_for_row(points, row, identity, sample, rule, keys, donors, sizes, scratch)


def draw_from_own_samples(
    part: PartRows,
    size: int,
    rule: NeighbourRule,
    order: Key,
    queried: Int32Array,
    progress: Callable[[float], None],
) -> None:
    """Draw donors for some rows of a part from their neighbourhoods among private samples of the part.

    Parameters
    ----------
    part : PartRows
        Its words are replaced by donors, and its sizes are filled.
    size : int
        Rows of a sample, from 1 to the number of other rows in the part.
    rule : NeighbourRule
    order : Key
        Key of the samples. Row i of the table draws its sample from the stream (i, 2).
    queried : ndarray of int32
        Indices in the part.
    progress : callable
        Called with the completed fraction, 0 to 1.

    Notes
    -----
    O(n m) time, in any number of dimensions.
    """
    points = part.points
    (order_key,) = key_array([order])

    def work(first: int, last: int) -> None:
        _draw(
            points, queried, part.rows, size, rule, order_key, part.keys, first, last, part.words, part.sizes
        )  # fmt: skip

    in_slices(len(queried), work, progress)
