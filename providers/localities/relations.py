"""Locality relations of a segment, extracted and sampled.

Let d_0 < d_1 < ... < d_(n-1) be the distinct values of a segment, and i < j. Every d_l > d_j up to
mu = 2 d_j - d_i is nearer to d_j than d_i is, and every larger one is farther (algorithm 1). With k- the last
l > j with d_l < mu and k+ the first l > j with d_l > mu, the segment has the relations

    x_i + x_(k-) - 2 x_j <= 0    and    x_i + x_(k+) - 2 x_j >= 0.

With the order x_0 <= x_1 <= ... they imply the relation of every other triple: x_k <= x_(k-) for j < k <= k-,
and x_k >= x_(k+) for k >= k+. A tie, d_l = mu, has no relation (`free`), takes the place of k+ (`one_sided`),
or has the relation x_i + x_l - 2 x_j = 0, which implies the other two and replaces them (`equal`).

As i rises, mu falls, and so do k- and k+. For each j the relations therefore form two staircases, which one
pointer follows in O(n^2) for all j. Pruning (rules 1 and 2): x_i + x_k - 2 x_j <= 0 follows from a kept
relation with a later i and a later k, and its opposite from one with an earlier i and an earlier k. Only the
corners of the staircases remain as constraints.

A relation of distinct values holds for all their duplicates. If these are variables of their own, in
ascending order, a `<=` binds the last copies of i and k and the first of j; a `>=` binds the first copies of
i and k and the last of j.

Arguments of kernels
--------------------
exact, units, values, ties, first, last
    As for `choose_relations`, for the n distinct values of one segment.
i, j, k : int
    Indices of distinct values; those of variables in `write_constraint` and `holds`.
tie : bool
    Whether the value after k- is a tie, as returned by `corner`.
found, wanted : int
    Number of relations of the segment, and of those that are kept.
draws : uint32
    Open random stream of the selection (`open_stream`); advanced.
marks : bool, shape (found,) or (0,)
    As returned by `marks_by_reach`.
sense : int
    LESS, EQUAL or MORE.
constraints : int32, shape (4, ...)
    Variables i, j, k and sense of each constraint.
x : float64, shape (variables,)
    Values to check.

References
----------
Xue, Karras, Raissi and Pung 2011, CIKM: definition 2, section 3.1, algorithm 1.
"""

import numpy as np

from providers.kernels.decorators import borrowing, within
from providers.numba import njit
from providers.randomness.word_stream import bounded, open_stream

LESS, EQUAL, MORE = -1, 0, 1
"""The sense of a relation x_i + x_k - 2 x_j <= 0, = 0, >= 0."""

FREE, ONE_SIDED, BOTH_SIDED = 0, 1, 2
"""Treatment of ties: see the module's docstring."""

UNIFORM, NEAREST, WIDEST = 0, 1, 2
"""Selection of the kept relations: random, of the least reach d_k - d_i, or of the greatest reach."""

CHOICE_LEVEL, ENDS_LEVEL, WALK_LEVEL, DIRECTION_LEVEL, COPIES_LEVEL, GRID_LEVEL = range(6)
"""Level of each random stream of a segment: selection, ends, walk, directions, duplicates, grid walk."""

# ------------------------------------------------------------------------------------ exact comparison


@njit(cache=True, nogil=True)
def difference(a, b):
    """Return a - b as the nearest float64 and the exact rest (Knuth's TwoSum); no rest if it overflows.

    Both are float64.
    """
    near = a - b
    virtual = near - a
    return near, (a - (near - virtual)) - (b + virtual)


@njit(cache=True, nogil=True)
def sense_of(low, middle, high):
    """Exact sign of (high - middle) - (middle - low) for finite float64 low <= middle <= high.

    Rounding is monotone. If the rounded differences differ, the true ones differ in the same sense; if they
    are equal, the exact rests decide. Not both can overflow: their sum is at most twice the largest float64.
    """
    # the paper compares |d_i - d_j| with |d_j - d_k|; for sorted values these are two differences
    above, above_rest = difference(high, middle)
    below, below_rest = difference(middle, low)
    if above != below:
        return MORE if above > below else LESS
    if above_rest == below_rest:
        return EQUAL
    return MORE if above_rest > below_rest else LESS


@borrowing
def sense_at(exact, units, values, i, j, k):
    """Sense (`sense_of`) of the source's values i < j < k, as whole units if `exact`, else as floats."""
    if exact:
        above, below = units[k] - units[j], units[j] - units[i]
        return (above > below) - (above < below)
    return sense_of(values[i], values[j], values[k])


# ------------------------------------------------------------------------------------ extraction


@borrowing
def corner(exact, units, values, i, j, k):
    """Find k-, the last l > j with d_l < mu (j for none), from `k` downwards; and whether l + 1 is a tie."""
    while k > j and sense_at(exact, units, values, i, j, k) != LESS:
        k -= 1
    following = k + 1
    tie = following < len(values) and sense_at(exact, units, values, i, j, following) == EQUAL
    return k, tie


@within
def relations_at(n, j, k, tie, ties):
    """Return the relations of (i, j) in n values: sense and k of the `<=` or `=`, and the k of the `>=`.

    A k below 0 means no relation. `k` and `tie` are as for `corner`.
    """
    if tie and ties == BOTH_SIDED:
        return EQUAL, k + 1, -1
    after = k + 2 if tie and ties == FREE else k + 1
    return LESS, k if k > j else -1, after if after < n else -1


@borrowing
def count_relations(exact, units, values, ties):
    """Count the relations of the segment with these sorted distinct values."""
    n = len(values)
    found = 0
    for j in range(1, n - 1):
        k = n - 1
        for i in range(j):
            k, tie = corner(exact, units, values, i, j, k)
            _, first, second = relations_at(n, j, k, tie, ties)
            found += (first >= 0) + (second >= 0)
    return found


@within
def wanted_relations(found, sigma):
    """Return ceil(sigma found); a product less than 1e-9 above a whole number counts as that number.

    `found` is an int, and `sigma` a float: the share of the relations that is kept.
    """
    return min(found, np.int64(np.ceil(sigma * found - 1e-9)))


@borrowing
def is_chosen(draws, left, wanted, marks):
    """Whether the next of `left` relations is among the `wanted` (Knuth, TAOCP 2, 3.4.2, algorithm S).

    `left` and `wanted` are ints: the relations that are not decided yet, and those still to be chosen. If
    relations are selected by reach, `marks` has the answer for each relation, and nothing is drawn.
    """
    if len(marks):
        return marks[len(marks) - left]
    return wanted == left or (wanted > 0 and bounded(draws, left) < wanted)


@borrowing
def _reach(exact, units, values, i, k, order, keys, index):
    """Write d_k - d_i, times `order` (1 or -1), to ``keys[:, index]``, in lexicographic order of the reach.

    A difference of floats is exact as the nearest float64 and the rest. If it overflows, the difference of
    the halves takes its place, which is exact for values of that size.

    `keys` is float64 (3, found), `order` a float, and `index` an int.
    """
    if exact:
        reach = units[k] - units[i]
        keys[0, index] = order * np.float64(reach >> np.uint64(32))
        keys[1, index] = order * np.float64(reach & np.uint64(0xFFFFFFFF))
        keys[2, index] = 0.0
        return
    near, rest = difference(values[k], values[i])
    last = 0.0
    if np.isinf(near):
        rest, last = difference(0.5 * values[k], 0.5 * values[i])
    keys[0, index], keys[1, index], keys[2, index] = order * near, order * rest, order * last


@within
def marks_by_reach(exact, units, values, ties, found, wanted, selection):
    """Mark the `wanted` relations of the least reach d_k - d_i (NEAREST) or of the greatest (WIDEST).

    Among equal reaches, the relation that is extracted earlier comes first.

    Parameters
    ----------
    exact, units, values, ties
        As for `choose_relations`.
    found, wanted : int
        Number of relations of the segment, and of those that are kept.
    selection : int
        UNIFORM, NEAREST or WIDEST.

    Returns
    -------
    bool, shape (found,)
        Whether each relation, in the order of extraction, is kept; empty for UNIFORM.
    """
    if selection == UNIFORM:
        return np.zeros(0, np.bool_)
    n, index = len(values), 0
    order = 1.0 if selection == NEAREST else -1.0
    keys = np.empty((3, found))
    for j in range(1, n - 1):
        k = n - 1
        for i in range(j):
            k, tie = corner(exact, units, values, i, j, k)
            _, first, second = relations_at(n, j, k, tie, ties)
            for outer in (first, second):
                if outer >= 0:
                    _reach(exact, units, values, i, outer, order, keys, index)
                    index += 1
    # stable sorts by the last key, then the one before, then the first: lexicographic order
    places = np.argsort(keys[2], kind="mergesort")
    places = places[np.argsort(keys[1][places], kind="mergesort")]
    places = places[np.argsort(keys[0][places], kind="mergesort")]
    marks = np.zeros(found, np.bool_)
    for rank in range(wanted):
        marks[places[rank]] = True
    return marks


@njit(cache=True, nogil=True)
def max_constraints(n, ties):
    """Upper bound on the number of constraints that `choose_relations` writes for n distinct values.

    n is an int, and `ties` is FREE, ONE_SIDED or BOTH_SIDED.
    """
    corners = (n - 1) * (n - 1) // 4  # the sum over j of min(j, n - 1 - j)
    return 2 * corners + (n * n // 2 if ties == BOTH_SIDED else 0)


@within
def choose_relations(exact, units, values, ties, sigma, selection, first, last, key, identity, constraints):
    """Select the relations that are kept, and write those that no other one implies as constraints.

    Parameters
    ----------
    exact : bool
        Whether the values are compared as whole units.
    units : uint64, shape (n,)
        Sorted distinct values in whole units; not read unless `exact`.
    values : float64, shape (n,)
        Sorted distinct values.
    ties : int
        FREE, ONE_SIDED or BOTH_SIDED.
    sigma : float
        Share of the relations that is kept.
    selection : int
        UNIFORM: drawn without replacement; NEAREST or WIDEST: see `marks_by_reach`.
    first, last : int64, shape (n,)
        First and last variable of each distinct value.
    key : uint32, shape (8,)
        Random key of the field.
    identity : uint64
        Number of the segment.
    constraints : int32, shape (4, `max_constraints`)
        Written: the variables i, j, k and the sense of each constraint, in ascending order of j.

    Returns
    -------
    count, found, wanted : int
        Number of constraints written, of relations of the segment, and of relations kept.
    """
    n = len(values)
    found = count_relations(exact, units, values, ties)
    wanted = wanted_relations(found, sigma)
    draws = open_stream(key, identity, CHOICE_LEVEL, 0)
    marks = marks_by_reach(exact, units, values, ties, found, wanted, selection)
    least, most = np.empty(n, np.int64), np.empty((2, n), np.int64)
    count = _choose(
        exact, units, values, ties, found, wanted, first, last, draws, marks, least, most, constraints
    )
    return count, found, wanted


@borrowing
def _choose(exact, units, values, ties, found, wanted, first, last, draws, marks, least, most, constraints):
    """Draw and write `constraints` as `choose_relations`; return the number of constraints written.

    `least`, int64 (n,), and `most`, int64 (2, n), are scratch: the corners of the staircases of one j.
    """
    n = len(values)
    count, left, missing = 0, found, wanted
    for j in range(1, n - 1):  # algorithm 1: every pair i < j; the pointer k only falls as i rises
        k = n - 1
        lower = upper = 0
        for i in range(j):
            k, tie = corner(exact, units, values, i, j, k)
            sense, one, other = relations_at(n, j, k, tie, ties)
            # {i, j, k-, <=} or the equation of a tie
            if one >= 0:
                if is_chosen(draws, left, missing, marks):
                    missing -= 1
                    if sense == EQUAL:
                        count = write_constraint(constraints, count, first[i], first[j], first[one], EQUAL)
                    else:  # rule 1: a later i with the same k implies the earlier one, and k only falls
                        if lower and most[1, lower - 1] == one:
                            lower -= 1
                        most[0, lower] = i
                        most[1, lower] = one
                        lower += 1
                left -= 1
            # {i, j, k+, >=}
            if other >= 0:
                if is_chosen(draws, left, missing, marks):
                    missing -= 1
                    if upper == 0 or least[upper - 1] > other:  # rule 2: else implied by an earlier i
                        least[upper] = other
                        upper += 1
                        count = write_constraint(constraints, count, first[i], last[j], first[other], MORE)
                left -= 1
        for corner_index in range(lower):
            i, k = most[0, corner_index], most[1, corner_index]
            count = write_constraint(constraints, count, last[i], first[j], last[k], LESS)
    return count


@borrowing
def write_constraint(constraints, count, i, j, k, sense):
    """Write constraint number `count` (int) to `constraints`; return the number of constraints so far."""
    constraints[0, count], constraints[1, count] = i, j
    constraints[2, count], constraints[3, count] = k, sense
    return count + 1


# ------------------------------------------------------------------------------------ verification


@borrowing
def holds(x, i, j, k, sense):
    """Whether x_i + x_k - 2 x_j has the sense, exactly and without a tolerance; x is float64 (n,)."""
    difference = sense_of(x[i], x[j], x[k])
    return difference in (np.int64(EQUAL), np.int64(sense))


@borrowing
def constraints_hold(x, constraints, count):
    """Whether x, float64 (n,), is ascending and satisfies the first `count` (int) constraints exactly."""
    for v in range(len(x) - 1):
        if x[v + 1] < x[v]:
            return False
    for c in range(count):
        if not holds(x, constraints[0, c], constraints[1, c], constraints[2, c], constraints[3, c]):
            return False
    return True


@within
def judge(exact, units, values, ties, found, wanted, selection, first, last, key, identity, x):
    """Count the relations that hold for the published values, among all found and among those chosen.

    The relations are drawn again and checked one by one without pruning, so that pruning is checked too.

    Parameters
    ----------
    exact, units, values, ties, selection, first, last, key, identity
        As for `choose_relations`.
    found, wanted : int
        As returned by `choose_relations`.
    x : float64, shape (variables,)
        Published values.

    Returns
    -------
    holding, broken : int
        Found relations that hold in x; chosen relations, and orders of neighbours, that do not.
    """
    draws = open_stream(key, identity, CHOICE_LEVEL, 0)
    marks = marks_by_reach(exact, units, values, ties, found, wanted, selection)
    return _judge(exact, units, values, ties, found, wanted, first, last, draws, marks, x)


@borrowing
def _judge(exact, units, values, ties, found, wanted, first, last, draws, marks, x):
    """Count as `judge`, with its random stream and its marks by reach."""
    n = len(values)
    left, missing = found, wanted
    holding = broken = 0
    for v in range(len(x) - 1):
        broken += x[v + 1] < x[v]
    for j in range(1, n - 1):
        k = n - 1
        for i in range(j):
            k, tie = corner(exact, units, values, i, j, k)
            sense, one, other = relations_at(n, j, k, tie, ties)
            if one >= 0:
                kept = holds(x, last[i], first[j], last[one], sense)
                holding += kept
                if is_chosen(draws, left, missing, marks):
                    missing -= 1
                    broken += not kept
                left -= 1
            if other >= 0:
                kept = holds(x, first[i], last[j], first[other], MORE)
                holding += kept
                if is_chosen(draws, left, missing, marks):
                    missing -= 1
                    broken += not kept
                left -= 1
    return holding, broken
