"""Points on a grid: where ties stay equal to the last bit, and where values are rounded.

**Equal ties.** Integer solutions of x_i - 2 x_j + x_k = 0 form a lattice. A basis of it is found by taking
the unit vectors and, equation by equation, Euclid's algorithm among them on the equation's values: all but
one become 0, and the one that does not is left out. What is left spans all integer solutions so far, since
every step is invertible over the integers. Whole multiples of the basis, times a power of two, are float64
numbers that satisfy the equations exactly.

**Rounded values.** On a grid of whole steps the points that keep every row are walked through by one
coordinate at a time: a value is put to a uniform one of the grid points that its rows leave, the others
being given (Gibbs' sampler). It never leaves the polytope, and needs no tolerance.

References
----------
Cohen 1993, A Course in Computational Algebraic Number Theory, section 2.4 (kernels over the integers).
Geman and Geman 1984, IEEE PAMI 6, doi:10.1109/TPAMI.1984.4767596 (one coordinate at a time).
"""

import numpy as np

from providers.localities import GRID_LEVEL, LESS, MORE, borrowing, bounded, next_word, opened, within
from providers.polytope import factorise

MOST = 2**31
"""A basis with an entry of this size or more is given up."""
FINE = 50
"""Equal ties lie on the grid of 2**-50 of the field's largest power of two."""


# ------------------------------------------------------------------------------------ equal ties


@borrowing
def _reduce(basis, values, count):
    """Make all but one of the values 0 by Euclid's algorithm on the basis; returns that one, or -1.

    The pivot is the least value in size, the first of those. Entries that grow too large: -2.
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
                if abs(quotient) >= MOST:
                    return -2
                values[one] -= quotient * values[pivot]
                for at in range(basis.shape[1]):
                    basis[one, at] -= quotient * basis[pivot, at]
                    if abs(basis[one, at]) >= MOST:
                        return -2


@within
def lattice_of(rows, start, stop, basis):
    """A basis of the integer points with x_0 = 0 that keep the `=` rows from `start` up to `stop`.

    Parameters
    ----------
    basis : int64, shape (n, n)
        Written: `count` rows that leave both ends at 0; then one whose last entry is positive; then ones.

    Returns
    -------
    int
        `count`, or -1 where the entries grow too large.
    """
    n = len(basis)
    basis[:, :] = 0
    for at in range(n):
        basis[at, at] = 1
    values = np.empty(n, np.int64)
    count = n
    for equation in range(start - 1, stop):
        if equation < start:
            values[:count] = basis[:count, 0]
        else:
            i, j, k = rows[0, equation], rows[1, equation], rows[2, equation]
            for one in range(count):
                values[one] = basis[one, i] + basis[one, k] - 2 * basis[one, j]
        pivot = _reduce(basis, values, count)
        if pivot == -2:
            return -1
        if pivot >= 0:
            count -= 1
            for one in range(pivot, count):
                basis[one] = basis[one + 1]
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
    """The lattice's point nearest to ``first + span * shape``, in steps of the grid; False if there is none.

    Nearest in the coefficients of the basis, which least squares gives.
    """
    n = len(shape)
    ends = lattice[count]
    gram, right = np.zeros((count, count)), np.zeros(count)
    for one in range(count):
        for at in range(n):
            left = shape[at] - np.float64(ends[at]) / np.float64(ends[n - 1])
            right[one] += np.float64(lattice[one, at]) * left
        for other in range(one, count):
            for at in range(n):
                gram[one, other] += np.float64(lattice[one, at]) * np.float64(lattice[other, at])
    if count and not factorise(gram):
        return False
    for row in range(count):
        right[row] /= gram[row, row]
        for later in range(row + 1, count):
            right[later] -= gram[row, later] * right[row]
    for row in range(count - 1, -1, -1):
        total = right[row]
        for later in range(row + 1, count):
            total -= gram[row, later] * right[later]
        right[row] = total / gram[row, row]
    steps = 2.0**FINE
    long = np.int64(np.rint(span / np.float64(ends[n - 1]) * steps))
    for at in range(n):
        x[at] = np.int64(np.rint(first * steps)) + long * ends[at]
    for one in range(count):
        if not abs(right[one]) < 4096.0:
            return False
        multiple = np.int64(np.rint(right[one] * span * steps))
        for at in range(n):
            x[at] += multiple * lattice[one, at]
    return True


# ------------------------------------------------------------------------------------ rounded values


@borrowing
def grid_rows_hold(x, rows, written, low, high):
    """Whether grid points are in order, within the bounds, and keep every row."""
    n = len(x)
    if x[0] < low or x[n - 1] > high:
        return False
    for at in range(n - 1):
        if x[at + 1] < x[at]:
            return False
    for at in range(written):
        i, j, k, sense = rows[0, at], rows[1, at], rows[2, at], rows[3, at]
        if sense * ((x[k] - x[j]) - (x[j] - x[i])) < 0:
            return False
    return True


@within
def _variables_rows(n, rows, written):
    """For each variable the rows that it is in: where they start, and which they are."""
    starts = np.zeros(n + 1, np.int64)
    for at in range(written):
        for place in range(3):
            starts[rows[place, at] + 1] += 1
    for at in range(n):
        starts[at + 1] += starts[at]
    following, listed = starts.copy(), np.empty(3 * written, np.int64)
    for at in range(written):
        for place in range(3):
            listed[following[rows[place, at]]] = at
            following[rows[place, at]] += 1
    return starts, listed


@within
def walk_on_grid(x, rows, written, low, high, margin, fixed, sweeps, key, identity):
    """Go `sweeps` times through the variables, each to a uniform grid point of those its rows leave.

    Parameters
    ----------
    x : int64, shape (n,)
        Grid points that keep every row; moved in place.
    low, high : int
        The bounds, in steps of the grid.
    margin : int
        Steps by which a row is to be kept; the order has none. Where a row leaves a variable no room for
        it, the variable stays.
    fixed : bool
        Whether the two ends stay.
    """
    starts, listed = _variables_rows(len(x), rows, written)
    draws = opened(key, identity, GRID_LEVEL, 0)
    _sweep(x, rows, starts, listed, low, high, margin, fixed, sweeps, draws)


@borrowing
def _sweep(x, rows, starts, listed, low, high, margin, fixed, sweeps, draws):
    n = len(x)
    for _ in range(sweeps):
        for one in range(1 if fixed else 0, n - 1 if fixed else n):
            least, most = x[one - 1] if one else low, x[one + 1] if one < n - 1 else high
            for at in listed[starts[one] : starts[one + 1]]:
                i, j, k, sense = rows[0, at], rows[1, at], rows[2, at], rows[3, at]
                if one == j:  # 2 x_j against x_i + x_k, a margin further
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
            if most > least:
                x[one] = least + _below(draws, most - least + 1)


@borrowing
def _below(draws, bound):
    """A uniform integer from 0 below `bound`, which may pass 2**32: then by rejection on 62 bits."""
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
