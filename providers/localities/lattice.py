"""Integer lattices: exact ties and rounded values.

**Equal ties.** The integer solutions of x_i - 2 x_j + x_k = 0 form a lattice. Its basis starts as the unit
vectors. Equation by equation, Euclid's algorithm among them makes all but one of the equation's values 0, and
the remaining vector is dropped. The others span all integer solutions so far, because every step is
invertible over the integers. Integer multiples of the basis, times a power of two, are float64 numbers that
satisfy the equations exactly.

**Rounded values.** A Gibbs sampler visits the grid points that satisfy every constraint. It replaces one
coordinate at a time by a uniform one of the grid points that its constraints allow, given all others. It
never leaves the polytope and needs no tolerance.

References
----------
Cohen 1993, A Course in Computational Algebraic Number Theory, section 2.4 (kernels over the integers).
Geman and Geman 1984, IEEE PAMI 6, doi:10.1109/TPAMI.1984.4767596 (one coordinate at a time).
"""

import numpy as np

from providers.kernels.decorators import borrowing, within
from providers.localities.polytope import factorise, solve
from providers.localities.relations import GRID_LEVEL, LESS, MORE
from providers.randomness.word_stream import bounded, next_word, open_stream

MAX_ENTRY = 2**31
"""Limit on the size of the entries of a basis; beyond it there is none."""

LATTICE_BITS = 50
"""Values with equal ties are multiples of 2**-50 of the field's largest power of two."""

# ------------------------------------------------------------------------------------ equal ties


@borrowing
def _reduce(basis, values, count):
    """Make all but one of the first `count` values 0 by Euclid's algorithm on the basis; return that one.

    The pivot is the first of the values that are least in size. Return -1 if all are 0, and -2 if entries
    grow too large. `basis` is int64 (n, n), `values` int64 (n,); both are changed in place; `count` is an
    int.
    """
    while True:
        pivot, others = -1, 0
        for one in range(count):
            if values[one] != 0:
                others += 1
                if pivot < 0 or abs(values[one]) < abs(values[pivot]):
                    pivot = one
        if others < 2:
            return pivot
        for one in range(count):
            if one != pivot and values[one] != 0:
                quotient = values[one] // values[pivot]
                if abs(quotient) >= MAX_ENTRY:
                    return -2
                values[one] -= quotient * values[pivot]
                for v in range(basis.shape[1]):
                    basis[one, v] -= quotient * basis[pivot, v]
                    if abs(basis[one, v]) >= MAX_ENTRY:
                        return -2


@within
def lattice_of(constraints, start, stop, basis):
    """Find a basis of the integer points with x_0 = 0 that satisfy the `=` constraints `start` to `stop`.

    Parameters
    ----------
    constraints : int32, shape (4, ...)
        Constraints of the segment, the `=` ones last.
    start, stop : int
        First `=` constraint, and the one after the last.
    basis : int64, shape (n, n)
        Written: `count` rows that leave both ends at 0, a row whose last entry is positive, a row of ones.

    Returns
    -------
    int
        `count`, or -1 if the entries grow too large.
    """
    n = len(basis)
    basis[:, :] = 0
    for v in range(n):
        basis[v, v] = 1
    values = np.empty(n, np.int64)
    count = n
    for equation in range(start - 1, stop):
        if equation < start:  # x_0 = 0
            values[:count] = basis[:count, 0]
        else:
            i, j, k = constraints[0, equation], constraints[1, equation], constraints[2, equation]
            for one in range(count):
                values[one] = basis[one, i] + basis[one, k] - 2 * basis[one, j]
        pivot = _reduce(basis, values, count)
        if pivot == -2:
            return -1
        if pivot >= 0:
            count -= 1
            for one in range(pivot, count):
                basis[one] = basis[one + 1]
    # one vector is to move the last end, and all others to leave it
    values[:count] = basis[:count, n - 1]
    pivot = _reduce(basis, values, count)
    if pivot < 0:
        return -1
    ends = basis[pivot].copy()
    for one in range(pivot, count - 1):
        basis[one] = basis[one + 1]
    basis[count - 1] = ends if ends[n - 1] > 0 else -ends
    basis[count] = 1
    return count - 1


@within
def on_lattice(shape, first, span, lattice, count, x):
    """Write the lattice point nearest to ``first + span * shape``; return False if there is none.

    It is nearest in the coefficients of the basis, which are found by least squares.

    Parameters
    ----------
    shape : float64, shape (n,)
        Shape, 0 to 1.
    first, span : float
        First value and span, in units of the field's power of two.
    lattice : int64, shape (n, n)
        Basis as written by `lattice_of`.
    count : int
        Number of rows that leave both ends at 0.
    x : int64, shape (n,)
        Written: the point in steps of 2**-LATTICE_BITS.
    """
    n = len(shape)
    ends = lattice[count]
    gram, right = np.zeros((count, count)), np.zeros(count)
    for one in range(count):
        for v in range(n):
            left = shape[v] - np.float64(ends[v]) / np.float64(ends[n - 1])
            right[one] += np.float64(lattice[one, v]) * left
        for other in range(one, count):
            for v in range(n):
                gram[one, other] += np.float64(lattice[one, v]) * np.float64(lattice[other, v])
    if count and not factorise(gram):
        return False
    solve(gram, right)
    # round to the lattice: first value, multiple of the ends vector, multiples of the inner vectors
    steps = 2.0**LATTICE_BITS
    multiple_of_ends = np.int64(np.rint(span / np.float64(ends[n - 1]) * steps))
    for v in range(n):
        x[v] = np.int64(np.rint(first * steps)) + multiple_of_ends * ends[v]
    for one in range(count):
        if not abs(right[one]) < 4096.0:
            return False
        multiple = np.int64(np.rint(right[one] * span * steps))
        for v in range(n):
            x[v] += multiple * lattice[one, v]
    return True


# ------------------------------------------------------------------------------------ rounded values


@borrowing
def grid_constraints_hold(x, constraints, count, low, high):
    """Whether grid points x, int64 (n,), are ascending from `low` to `high` and satisfy all constraints.

    The constraints are the first `count` of `constraints`, int32 (4, ...). `low`, `high` and `count` are
    ints.
    """
    n = len(x)
    if x[0] < low or x[n - 1] > high:
        return False
    for v in range(n - 1):
        if x[v + 1] < x[v]:
            return False
    for c in range(count):
        i, j, k, sense = constraints[0, c], constraints[1, c], constraints[2, c], constraints[3, c]
        if sense * ((x[k] - x[j]) - (x[j] - x[i])) < 0:
            return False
    return True


@within
def constraints_of_variables(n, constraints, count):
    """Group the constraints by variable: starts, int64 (n + 1,), and constraints, int64 (3 count,).

    The constraints are the first `count` of `constraints`, int32 (4, ...); n is the number of variables.
    """
    starts = np.zeros(n + 1, np.int64)
    for c in range(count):
        for entry in range(3):
            starts[constraints[entry, c] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    following, listed = starts.copy(), np.empty(3 * count, np.int64)
    for c in range(count):
        for entry in range(3):
            listed[following[constraints[entry, c]]] = c
            following[constraints[entry, c]] += 1
    return starts, listed


@within
def walk_on_grid(x, constraints, count, low, high, margin, fixed, sweeps, key, identity):
    """Move every variable `sweeps` times to a uniform one of the grid points that its constraints allow.

    Parameters
    ----------
    x : int64, shape (n,)
        Grid points that satisfy every constraint; moved in place.
    constraints : int32, shape (4, ...)
        Constraints of the segment.
    count : int
        Number of constraints.
    low, high : int
        Bounds in steps of the grid.
    margin : int
        Steps by which a constraint must hold; the order has no margin. A variable stays if its constraints
        leave no grid point.
    fixed : bool
        Whether the two ends stay.
    sweeps : int
        Number of passes over the variables.
    key : uint32, shape (8,)
        Random key of the field.
    identity : uint64
        Number of the segment.
    """
    starts, listed = constraints_of_variables(len(x), constraints, count)
    draws = open_stream(key, identity, GRID_LEVEL, 0)
    _sweep(x, constraints, starts, listed, low, high, margin, fixed, sweeps, draws)


@borrowing
def range_on_grid(x, one, constraints, its_constraints, low, high, margin):
    """Least and greatest grid point that order, bounds and its constraints allow variable `one`.

    Parameters
    ----------
    x : int64, shape (n,)
        Grid points of all variables.
    one : int
        The variable.
    constraints : int32, shape (4, ...)
        Constraints of the segment.
    its_constraints : int64, shape (constraints of the variable,)
        Indices of the constraints that contain the variable.
    low, high, margin : int
        As for `walk_on_grid`.
    """
    least, most = x[one - 1] if one else low, x[one + 1] if one < len(x) - 1 else high
    for c in its_constraints:
        i, j, k, sense = constraints[0, c], constraints[1, c], constraints[2, c], constraints[3, c]
        if one == j:  # 2 x_j is compared with x_i + x_k, and must differ by the margin
            if sense == LESS:
                least = max(least, -((-(x[i] + x[k] + margin)) // 2))
            else:
                most = min(most, (x[i] + x[k] - margin) // 2)
        else:
            bound = 2 * x[j] - (x[k] if one == i else x[i])
            if sense == MORE:
                least = max(least, bound + margin)
            else:
                most = min(most, bound - margin)
    return least, most


@borrowing
def _sweep(x, constraints, starts, listed, low, high, margin, fixed, sweeps, draws):
    """Move the variables as `walk_on_grid`.

    Parameters
    ----------
    x, constraints, low, high, margin, fixed, sweeps
        As for `walk_on_grid`; `x` is moved in place.
    starts, listed : int64, shapes (n + 1,) and (3 count,)
        Constraints by variable, from `constraints_of_variables`.
    draws : uint32
        Open random stream; advanced.
    """
    n = len(x)
    for _ in range(sweeps):
        for one in range(1 if fixed else 0, n - 1 if fixed else n):
            its_constraints = listed[starts[one] : starts[one + 1]]
            least, most = range_on_grid(x, one, constraints, its_constraints, low, high, margin)
            if most > least:
                x[one] = least + integer_below(draws, most - least + 1)


@borrowing
def integer_below(draws, bound):
    """Uniform integer from 0 below `bound`; above 2**32 it is drawn by rejection on up to 62 bits.

    `draws` is an open random stream (uint32, see `open_stream`), and advanced; `bound` is an int.
    """
    if bound <= 2**32:
        return bounded(draws, bound)
    mask = np.int64(1)
    while mask < bound:
        mask *= 2
    while True:
        high = np.int64(next_word(draws)) << 32
        drawn = (high | np.int64(next_word(draws))) & (mask - 1)
        if drawn < bound:
            return drawn
