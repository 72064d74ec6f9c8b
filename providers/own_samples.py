"""A uniformly random neighbour of every row among a random sample that is drawn for that row alone.

Row i's candidates are m of the other rows, each m of them equally likely. Who of these is a neighbour is as
in `providers.donors`, and so is the donor that a field draws: the one at a uniform place in the order of
rows. All m distances are computed, and no tree is needed.

A sample is drawn member by member, at uniform places among the other rows, until m are distinct; where m is
more than half of them, those that it leaves out are drawn instead. The draws' addresses are in
`docs/decisions/0001-randomness.md`.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit, prange

from providers.donors import (
    SHORT,
    Donors,
    Rule,
    draw_from_list,
    drawn_below,
    first_words,
    in_order,
    in_slices,
    key_array,
    next_word,
    nth,
    reach_of,
)
from providers.provider import Progress
from providers.rng import LANES, Key
from providers.space import Points
from providers.uncounted import inlined, uncounted

SAMPLE_BYTES = 40
"""Of a sample's row at most, while one thread draws it and looks for neighbours in it."""

_TOGETHER = 64  # rows that one thread takes at a time
_NOBODY = np.int32(-1)


# --------------------------------------------------------------------------------------- the sample


@inlined
def _slot_of(row, slots):
    """Where a row is in a hash table, or would be: linear probing. It has 2**b places, never all taken."""
    last = len(slots) - 1
    at = (np.int64(row) * 2654435769 >> 8) & last
    while slots[at] != _NOBODY and slots[at] != row:
        at = (at + 1) & last
    return at


@uncounted
def _sample_for(row, rows, sample, slots, order, used, words, address, block):
    """Fill `sample` with rows other than `row`, as many as it holds: fewer than there are, each once."""
    others, size = rows - 1, len(sample)
    is_taken = 2 * size <= others  # or left out
    for at in range(len(slots)):
        slots[at] = _NOBODY
    used[0] = 0
    have = 0
    while have < min(size, others - size):
        place = drawn_below(next_word(order, 0, row, used, words, address, block), others)
        if place < 0:
            continue
        other = np.int32(place + (place >= row))
        at = _slot_of(other, slots)
        if slots[at] == _NOBODY:
            slots[at] = other
            if is_taken:
                sample[have] = other
            have += 1
    if not is_taken:
        have = 0
        for left in range(rows):
            if left != row and slots[_slot_of(left, slots)] == _NOBODY:
                sample[have] = left
                have += 1


# ------------------------------------------------------------------------------------ its neighbours


@inlined
def _apart(numbers, codes, flags, weight, row, other):
    """The squared distance of two rows: `providers.lanes`, one at a time."""
    total = 0.0
    for field in range(numbers.shape[1]):
        apart = numbers[row, field] - numbers[other, field]
        total += apart * apart
    if codes.shape[1]:
        mismatches, missing = 0, 0
        for field in range(codes.shape[1]):
            if field < flags:
                mismatches += codes[row, field] != codes[other, field]
            else:
                missing += codes[row, field] != codes[other, field]
        total += weight * mismatches + 2.0 * missing
    return total


@uncounted
def _last_of_ties(kth, k, sample, apart, tied):
    """The last row, in the order of rows, of those at the k-th distance that are among the k nearest."""
    nearer, ties = 0, 0
    for at in range(len(sample)):
        if apart[at] < kth:
            nearer += 1
        elif apart[at] == kth:
            tied[ties] = sample[at]
            ties += 1
    if ties <= SHORT:
        in_order(tied, ties)
    return nth(tied, ties, k - nearer - 1)


@uncounted
def _neighbours(rule, sample, apart, spare, found):
    """Put a row's neighbours among its sample into `found`; their number."""
    size = len(sample)
    kth, reach, last = np.inf, np.inf, np.int32(-1)
    if size > rule.k:
        for at in range(size):
            spare[at] = apart[at]
        if size <= SHORT:
            in_order(spare, size)
        kth = nth(spare, size, rule.k - 1)
        reach = reach_of(rule, kth)
        if not rule.include:
            last = _last_of_ties(kth, rule.k, sample, apart, found)
    have = 0
    for at in range(size):
        is_among_k = apart[at] < kth or (apart[at] == kth and sample[at] <= last)
        if apart[at] <= reach or is_among_k:
            found[have] = sample[at]
            have += 1
    return have


@njit(cache=True, nogil=True, parallel=True)
def _draw(numbers, codes, flags, weight, size, rule, order, keys, first, last, donors, sizes):
    """For these rows a donor in each field, in the place of the row's first word."""
    rows = len(numbers)
    room = 16
    while room < 2 * min(size, rows - 1 - size):
        room *= 2
    for chunk in prange((last - first + _TOGETHER - 1) // _TOGETHER):
        slots = np.empty(room, np.int32)
        sample = np.empty(size, np.int32)
        found = np.empty(size, np.int32)
        apart = np.empty(size)
        spare = np.empty(size)
        words = np.empty(256, np.uint32)
        address = np.zeros((4, LANES), np.uint32)
        block = np.empty((LANES, LANES), np.uint32)
        used = np.zeros(1, np.int64)
        low = first + chunk * _TOGETHER
        for row in range(low, min(low + _TOGETHER, last)):
            _sample_for(row, rows, sample, slots, order, used, words, address, block)
            for at in range(size):
                apart[at] = _apart(numbers, codes, flags, weight, row, sample[at])
            sizes[row] = _neighbours(rule, sample, apart, spare, found)
            draw_from_list(found, sizes[row], row, keys, donors, used, words, address, block)


def draw_from_own_samples(
    points: Points, size: int, rule: Rule, order: Key, keys: Sequence[Key], progress: Progress
) -> Donors:
    """For every row and key a uniform row of its neighbourhood among a sample of its own.

    Parameters
    ----------
    points : Points
    size : int
        Rows of a sample; at least one, and fewer than the others of a row.
    rule : Rule
    order : Key
        Of the samples.
    keys : sequence of Key
        One a field: fields draw on their own.
    progress : Progress
        Told 0 to 1.

    Notes
    -----
    O(n m) time, in any number of dimensions.
    """
    rows = len(points.numbers)
    all_keys, words = first_words(keys, rows)
    order_keys = key_array([order])
    sizes = np.empty(rows, np.int32)

    def work(first: int, last: int) -> None:
        _draw(
            points.numbers, points.codes, points.flags, points.weight, size, rule, order_keys, all_keys,
            first, last, words, sizes,
        )  # fmt: skip

    in_slices(rows, work, lambda done: progress(done, "drawing donors"))
    return Donors(words.view(np.int32), sizes)
