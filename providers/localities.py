"""Localities: which of two neighbours is the nearer, as linear relations among sorted values.

Let d_0 < d_1 < ... < d_(n-1) be the distinct values of a segment, and i < j. What lies beyond d_j is
nearer to d_j than d_i is, up to mu = 2 d_j - d_i, and farther from there on. With k- the last l > j with
d_l < mu and k+ the first l > j with d_l > mu, the segment has the relations

    x_i + x_(k-) - 2 x_j <= 0    and    x_i + x_(k+) - 2 x_j >= 0,

and under the order x_0 <= x_1 <= ... they imply every other triple's: x_k <= x_(k-) for j < k <= k-, and
x_k >= x_(k+) for k >= k+. A tie, d_l = mu, has no relation (`free`), takes the place of k+ (`one_sided`),
or is a relation of its own, x_i + x_l - 2 x_j = 0, in place of both, which it implies (`equal`).

As i rises, mu falls, and so do k- and k+: for each j the relations are two staircases, walked by one
pointer, O(n^2) in all. Of the relations kept, x_i + x_k - 2 x_j <= 0 follows from one with a later i and a
later k, its opposite from one with an earlier i and an earlier k: only the corners of the staircases count.

A relation of distinct values stands for all their duplicates. Where those are variables of their own, in
their order, the last copies of i and k against the first of j are what binds a `<=`, and the first against
the last a `>=`.
"""

import numpy as np
from numba import njit

from providers.draws import uniform
from providers.rng import LANES, stream_words

within = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For what only kernels call: without wrappers for Python, which take longer to compile than the rest."""

borrowing = njit(cache=True, nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""The same, counting no references to arrays, and so allocating none: see `providers.uncounted`."""

LESS, EQUAL, MORE = -1, 0, 1
"""The sense of a relation x_i + x_k - 2 x_j <= 0, = 0, >= 0."""
FREE, ONE_SIDED, BOTH_SIDED = 0, 1, 2
"""What becomes of ties."""

CHOICE_LEVEL, ENDS_LEVEL, WALK_LEVEL, DIRECTION_LEVEL, COPIES_LEVEL, GRID_LEVEL = range(6)
"""What a segment's streams are for: relations, ends, walk, its directions, duplicates, walk on the grid."""


# ------------------------------------------------------------------------------------ addressed draws


_IDENTITY, _LEVEL, _POSITION, _BLOCK, _WORDS = 8, 10, 11, 12, 16
_ADDRESS = _WORDS + 256
_SCRATCH = _ADDRESS + 4 * LANES
_END = _SCRATCH + LANES * LANES
"""Places in the array that a stream of words is read through, after the key; the last are the generator's
address and its scratch."""


@within
def opened(key, identity, level, drawn):
    """A stream of words from word `drawn` on: what `next_word` and its kin take."""
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
def drawn_so_far(draws):
    """Words drawn of the stream."""
    return np.int64(draws[_BLOCK]) * 16 + np.int64(draws[_POSITION]) - 256


@borrowing
def _refill(draws):
    address = draws[_ADDRESS:_SCRATCH].reshape((4, LANES))
    block = draws[_SCRATCH:_END].reshape((LANES, LANES))
    identity = np.uint64(draws[_IDENTITY]) | np.uint64(draws[_IDENTITY + 1]) << np.uint64(32)
    stream_words(draws[:8], identity, draws[_LEVEL], draws[_BLOCK], address, block, draws[_WORDS:_ADDRESS])
    draws[_BLOCK] += np.uint32(16)


@borrowing
def next_word(draws):
    """The next 32-bit word."""
    position = draws[_POSITION]
    if position == 256:
        _refill(draws)
        position = np.uint32(0)
    draws[_POSITION] = position + np.uint32(1)
    return draws[_WORDS + np.int64(position)]


@borrowing
def bounded(draws, bound):
    """A uniform integer from 0 below `bound` (1 to 2**32), by Lemire's multiplication with rejection."""
    size = np.uint64(bound)
    while True:
        product = np.uint64(next_word(draws)) * size
        low = product & np.uint64(0xFFFFFFFF)
        if low < size:  # noqa: SIM102 - only now, and hardly ever, is a division needed
            if low < np.uint64(0x100000000) % size:
                continue
        return np.int64(product >> np.uint64(32))


@borrowing
def uniform_of(draws):
    """A uniform float64 in [0, 1), of the next two words."""
    high = next_word(draws)
    return uniform(high, next_word(draws))


# ------------------------------------------------------------------------------------ exact comparison


@njit(cache=True, nogil=True)
def difference(a, b):
    """A - b as the nearest float64 and the exact rest (Knuth's TwoSum); no rest where it overflows."""
    near = a - b
    part = near - a
    return near, (a - (near - part)) - (b + part)


@njit(cache=True, nogil=True)
def sense_of(low, middle, high):
    """The sign of (high - middle) - (middle - low), exactly, for finite float64 low <= middle <= high.

    Rounding is monotone: where the rounded differences differ, so do the true ones, in the same sense;
    where they are equal, the exact rests decide. Both cannot overflow: their sum is at most twice the
    largest float64.
    """
    above, above_rest = difference(high, middle)
    below, below_rest = difference(middle, low)
    if above != below:
        return MORE if above > below else LESS
    if above_rest == below_rest:
        return EQUAL
    return MORE if above_rest > below_rest else LESS


@borrowing
def sense_at(exact, units, values, i, j, k):
    """`sense_of` the source's values i < j < k: of whole units where `exact`, else of floats."""
    if exact:
        above, below = units[k] - units[j], units[j] - units[i]
        return (above > below) - (above < below)
    return sense_of(values[i], values[j], values[k])


# ------------------------------------------------------------------------------------ extraction


@borrowing
def corner(exact, units, values, i, j, k):
    """The last l > j with d_l < mu (j for none), and whether the next one is a tie; from `k` downwards."""
    while k > j and sense_at(exact, units, values, i, j, k) != LESS:
        k -= 1
    following = k + 1
    tie = following < len(values) and sense_at(exact, units, values, i, j, following) == EQUAL
    return k, tie


@within
def relations_at(n, j, k, tie, ties):
    """The relations of (i, j) as up to two (sense, k), k < 0 for none: `<=` or `=` first, then `>=`."""
    if tie and ties == BOTH_SIDED:
        return EQUAL, k + 1, -1
    after = k + 2 if tie and ties == FREE else k + 1
    return LESS, k if k > j else -1, after if after < n else -1


@borrowing
def count_relations(exact, units, values, ties):
    """How many relations the segment has."""
    n = len(values)
    found = 0
    for j in range(1, n - 1):
        k = n - 1
        for i in range(j):
            k, tie = corner(exact, units, values, i, j, k)
            _, first, second = relations_at(n, j, k, tie, ties)
            found += (first >= 0) + (second >= 0)
    return found


@njit(cache=True, nogil=True)
def wanted_relations(found, sigma):
    """ceil(sigma found); a product less than 1e-9 above a whole number counts as that number."""
    return min(found, np.int64(np.ceil(sigma * found - 1e-9)))


@borrowing
def is_chosen(draws, left, wanted):
    """Whether the next of `left` relations is among the `wanted` (Knuth, TAOCP 2, 3.4.2, algorithm S)."""
    return wanted == left or (wanted > 0 and bounded(draws, left) < wanted)


@njit(cache=True, nogil=True)
def most_rows(n, ties):
    """A bound on the rows that `choose_relations` writes for n distinct values."""
    corners = (n - 1) * (n - 1) // 4  # the sum over j of min(j, n - 1 - j)
    return 2 * corners + (n * n // 2 if ties == BOTH_SIDED else 0)


@njit(cache=True, nogil=True)
def choose_relations(exact, units, values, ties, sigma, first, last, key, identity, rows):
    """Draw the relations that are kept, without replacement, and write those that no other implies.

    Parameters
    ----------
    exact, units, values
        The sorted distinct values: as whole units (uint64) where `exact`, else as float64.
    first, last : int64, shape (n,)
        The first and last variable of each distinct value.
    rows : int32, shape (4, `most_rows`)
        Written: the variables i, j, k and the sense of each row, by j.

    Returns
    -------
    written, found, wanted : int
    """
    n = len(values)
    found = count_relations(exact, units, values, ties)
    wanted = wanted_relations(found, sigma)
    draws = opened(key, identity, CHOICE_LEVEL, 0)
    least, most = np.empty(n, np.int64), np.empty((2, n), np.int64)
    written = _choose(exact, units, values, ties, found, wanted, first, last, draws, least, most, rows)
    return written, found, wanted


@borrowing
def _choose(exact, units, values, ties, found, wanted, first, last, draws, least, most, rows):
    """Draw and write as `choose_relations`; returns how many are written. `least` and `most` are scratch."""
    n = len(values)
    written, left, missing = 0, found, wanted
    for j in range(1, n - 1):
        k = n - 1
        lower = upper = 0
        for i in range(j):
            k, tie = corner(exact, units, values, i, j, k)
            sense, one, other = relations_at(n, j, k, tie, ties)
            if one >= 0:
                if is_chosen(draws, left, missing):
                    missing -= 1
                    if sense == EQUAL:
                        written = write_row(rows, written, first[i], first[j], first[one], EQUAL)
                    else:  # implied by a later i with the same k; k only falls
                        if lower and most[1, lower - 1] == one:
                            lower -= 1
                        most[0, lower] = i
                        most[1, lower] = one
                        lower += 1
                left -= 1
            if other >= 0:
                if is_chosen(draws, left, missing):
                    missing -= 1
                    if upper == 0 or least[upper - 1] > other:  # implies later i with the same k
                        least[upper] = other
                        upper += 1
                        written = write_row(rows, written, first[i], last[j], first[other], MORE)
                left -= 1
        for at in range(lower):
            written = write_row(rows, written, last[most[0, at]], first[j], last[most[1, at]], LESS)
    return written


@borrowing
def write_row(rows, at, i, j, k, sense):
    """Write one row; returns how many there are."""
    rows[0, at], rows[1, at], rows[2, at], rows[3, at] = i, j, k, sense
    return at + 1


# ------------------------------------------------------------------------------------ the checker


@borrowing
def holds(x, i, j, k, sense):
    """Whether x_i + x_k - 2 x_j has the sense, exactly: no tolerance."""
    difference = sense_of(x[i], x[j], x[k])
    return difference in (np.int64(EQUAL), np.int64(sense))


@borrowing
def rows_hold(x, rows, written):
    """Whether x is in ascending order and every row holds."""
    for at in range(len(x) - 1):
        if x[at + 1] < x[at]:
            return False
    for at in range(written):  # noqa: SIM110 - a kernel
        if not holds(x, rows[0, at], rows[1, at], rows[2, at], rows[3, at]):
            return False
    return True


@njit(cache=True, nogil=True)
def judge(exact, units, values, ties, found, wanted, first, last, key, identity, x):
    """How many relations the destination keeps, of all that were found and of those that were chosen.

    Drawn and looked at once more, one by one, without the pruning: it checks that, too. How many were
    `found` and `wanted` `choose_relations` has said.

    Returns
    -------
    holding, broken : int
        Relations found that hold in x; relations chosen, or neighbours' orders, that do not.
    """
    draws = opened(key, identity, CHOICE_LEVEL, 0)
    return _judge(exact, units, values, ties, found, wanted, first, last, draws, x)


@borrowing
def _judge(exact, units, values, ties, found, wanted, first, last, draws, x):
    n = len(values)
    left, missing = found, wanted
    holding = broken = 0
    for at in range(len(x) - 1):
        broken += x[at + 1] < x[at]
    for j in range(1, n - 1):
        k = n - 1
        for i in range(j):
            k, tie = corner(exact, units, values, i, j, k)
            sense, one, other = relations_at(n, j, k, tie, ties)
            if one >= 0:
                kept = holds(x, last[i], first[j], last[one], sense)
                holding += kept
                if is_chosen(draws, left, missing):
                    missing -= 1
                    broken += not kept
                left -= 1
            if other >= 0:
                kept = holds(x, first[i], last[j], first[other], MORE)
                holding += kept
                if is_chosen(draws, left, missing):
                    missing -= 1
                    broken += not kept
                left -= 1
    return holding, broken
