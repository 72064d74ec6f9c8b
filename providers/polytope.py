"""The polytope of kept relations: its analytic centre, and directions in which it is round.

A relation does not change when x becomes a x + b. So the points x of a segment are a product: a shape z,
z_0 = 0 <= z_1 <= ... <= z_(n-1) = 1, that keeps the rows, and the two ends. Shapes of one span r have a
volume that grows as r^(n-2); within a range R the span's density is therefore proportional to
r^(n-2) (R - r), a Beta(n - 1, 2), which U1^(1/(n-1)) U2^(1/n) has.

The rows are those of `providers.localities.choose_relations`, with slack s = (x_k - x_j) - (x_j - x_i) for
`>=` and -s for `<=`, followed by the order, x_(l+1) - x_l. Equal ties leave a subspace: `basis` holds the
shapes' directions in it, one a row; without ties to keep it is empty and stands for one direction for each
inner variable.

Every sum runs in a stated order, row by row or column by column, so that no result depends on the threads.
What is vectorised is elementwise. There is no BLAS, whose order of summation is its own.

References
----------
Boyd and Vandenberghe 2004, Convex Optimization, sections 8.5.3 (analytic centre) and 9.6 (damped Newton for
self-concordant functions: a step of 1/(1 + decrement) stays inside and goes down).
"""

import numpy as np
from numba import njit

from providers.localities import EQUAL, borrowing, within

_TINY = 2.0**-40
"""Slack below this, in shapes of span 1, is too little to start Newton's method from."""
_NEWTON_STEPS = 400
_STAGES = 60
_DECREMENT = 1e-4
"""Square of the Newton decrement at which the centre is taken as found."""


@borrowing
def rates(x, rows, written, out):
    """The slack of every row at x; also, the slack being linear, its rate along the direction x."""
    for at in range(written):
        i, j, k, sense = rows[0, at], rows[1, at], rows[2, at], rows[3, at]
        out[at] = sense * ((x[k] - x[j]) - (x[j] - x[i]))
    for at in range(len(x) - 1):
        out[written + at] = x[at + 1] - x[at]


@within
def equalities_last(rows, written):
    """Put the `=` rows behind the others, keeping their order; returns how many others there are."""
    kept = moved = 0
    equal = np.empty((4, written), np.int32)
    for at in range(written):
        is_equal = rows[3, at] == EQUAL
        for part in range(4):
            if is_equal:
                equal[part, moved] = rows[part, at]
            else:
                rows[part, kept] = rows[part, at]
        moved += is_equal
        kept += not is_equal
    for at in range(moved):
        for part in range(4):
            rows[part, kept + at] = equal[part, at]
    return kept


@borrowing
def _derivatives(slack, rows, written, gradient, hessian):
    """Gradient and upper half of the Hessian of -sum(log(slack)) over the variables."""
    n = len(gradient)
    gradient[:] = 0.0
    hessian[:, :] = 0.0
    for at in range(written):
        i, j, k = rows[0, at], rows[1, at], rows[2, at]
        inverse = 1.0 / slack[at]
        pull = rows[3, at] * inverse
        gradient[i] -= pull
        gradient[j] += 2.0 * pull
        gradient[k] -= pull
        weight = inverse * inverse
        hessian[i, i] += weight
        hessian[j, j] += 4.0 * weight
        hessian[k, k] += weight
        hessian[i, j] -= 2.0 * weight
        hessian[j, k] -= 2.0 * weight
        hessian[i, k] += weight
    for at in range(n - 1):
        inverse = 1.0 / slack[written + at]
        gradient[at] += inverse
        gradient[at + 1] -= inverse
        weight = inverse * inverse
        hessian[at, at] += weight
        hessian[at + 1, at + 1] += weight
        hessian[at, at + 1] -= weight


@within
def _along(gradient, hessian, basis):
    """Gradient and upper half of the Hessian over the coefficients of the basis' directions."""
    n = len(gradient)
    if len(basis) == 0:
        return gradient[1 : n - 1].copy(), hessian[1 : n - 1, 1 : n - 1].copy()
    count = len(basis)
    along = np.zeros(count)
    applied = np.zeros((count, n))
    for one in range(count):
        for row in range(n):
            along[one] += basis[one, row] * gradient[row]
            for column in range(n):
                entry = hessian[row, column] if column >= row else hessian[column, row]
                applied[one, column] += basis[one, row] * entry
    squared = np.zeros((count, count))
    for one in range(count):
        for other in range(one, count):
            for row in range(n):
                squared[one, other] += applied[one, row] * basis[other, row]
    return along, squared


_PANEL = 4
"""Pivots whose rows are subtracted together; `_subtract_panel` names each of them."""


@borrowing
def factorise(matrix):
    """Cholesky in place, matrix = U' U with U in the upper half; False where a pivot is not positive.

    Row by row, each taken from the rows below it, four at a time: what an entry loses it loses pivot by
    pivot in their order, and the inner loop is elementwise.
    """
    n = len(matrix)
    for start in range(0, n, _PANEL):
        stop = min(start + _PANEL, n)
        for pivot in range(start, stop):
            for before in range(start, pivot):
                factor = matrix[before, pivot]
                for column in range(pivot, n):
                    matrix[pivot, column] -= factor * matrix[before, column]
            if not matrix[pivot, pivot] > 0.0:
                return False
            root = np.sqrt(matrix[pivot, pivot])
            for column in range(pivot, n):
                matrix[pivot, column] /= root
        if stop < n:
            _subtract_panel(matrix, start)
    return True


@borrowing
def _subtract_panel(matrix, start):
    """Take four finished rows from all rows below them."""
    one, two, three, four = matrix[start], matrix[start + 1], matrix[start + 2], matrix[start + 3]
    for row in range(start + _PANEL, len(matrix)):
        by_one, by_two, by_three, by_four = one[row], two[row], three[row], four[row]
        mine = matrix[row]
        for column in range(row, len(matrix)):
            left = mine[column] - by_one * one[column]
            left -= by_two * two[column]
            left -= by_three * three[column]
            mine[column] = left - by_four * four[column]


@borrowing
def _solve(upper, right):
    """Solve U' U y = right in place."""
    n = len(right)
    for row in range(n):
        right[row] /= upper[row, row]
        for later in range(row + 1, n):
            right[later] -= upper[row, later] * right[row]
    for row in range(n - 1, -1, -1):
        total = right[row]
        for later in range(row + 1, n):
            total -= upper[row, later] * right[later]
        right[row] = total / upper[row, row]


@borrowing
def spread_out(coefficients, basis, out):
    """The direction over the variables that these coefficients of the basis' directions are."""
    n = len(out)
    out[:] = 0.0
    if len(basis) == 0:
        for at in range(len(coefficients)):
            out[1 + at] = coefficients[at]
        return
    for one in range(len(basis)):
        for at in range(n):
            out[at] += coefficients[one] * basis[one, at]


@borrowing
def _step_length(slack, rate, decrement):
    """How far to go along a Newton direction: the whole, or near the least of the barrier, inside."""
    if decrement <= 0.25:
        return 1.0
    steepest = 0.0
    for at in range(len(slack)):
        steepest = max(steepest, -rate[at] / slack[at])
    low, high = 0.0, 1.0 if steepest <= 0.0 else 0.99 / steepest
    for _ in range(8):
        middle = 0.5 * (low + high)
        slope = 0.0
        for at in range(len(slack)):
            slope -= rate[at] / (slack[at] + middle * rate[at])
        if slope < 0.0:
            low = middle
        else:
            high = middle
    return max(low, 1.0 / (1.0 + decrement))


@borrowing
def least(values):
    """The least of the values."""
    found = values[0]
    for value in values:
        found = min(found, value)
    return found


@njit(cache=True, nogil=True)
def advance_centre(z, rows, written, basis, state, steps):
    """Take up to `steps` of Newton's method towards the analytic centre of the shapes.

    Parameters
    ----------
    z : float64, shape (n,)
        The shape, moved in place. It may lie outside: then the rows are first relaxed by a shift that is
        lowered, stage by stage, to what the centre so far leaves.
    state : float64, shape (3,)
        All 0 to begin with: the shift (-1 once it is gone), steps and stages so far. It takes the steps up
        where they were left.

    Returns
    -------
    int
        1 found, 0 not yet, -1 no interior that float64 can tell from nothing.
    """
    n = len(z)
    slack, rate = np.empty(written + n - 1), np.empty(written + n - 1)
    gradient, hessian, direction = np.empty(n), np.empty((n, n)), np.empty(n)
    rates(z, rows, written, slack)
    if state[0] == 0.0:
        smallest = least(slack)
        state[0] = -1.0 if smallest > _TINY else max(1.0 / (n * n), -2.0 * smallest)
    for _ in range(steps):
        if state[1] == _NEWTON_STEPS or state[2] == _STAGES:
            return -1
        state[1] += 1
        if state[0] > 0.0:
            slack += state[0]
        _derivatives(slack, rows, written, gradient, hessian)
        along, upper = _along(gradient, hessian, basis)
        if not factorise(upper):
            return -1
        step = -along
        _solve(upper, step)
        squared = 0.0
        for at in range(len(step)):
            squared -= step[at] * along[at]
        if not squared >= 0.0:
            return -1
        spread_out(step, basis, direction)
        rates(direction, rows, written, rate)
        length = _step_length(slack, rate, np.sqrt(squared))
        for at in range(n):
            z[at] += length * direction[at]
        rates(z, rows, written, slack)
        if state[0] < 0.0:
            if squared <= _DECREMENT:
                return 1 if least(slack) > 0.0 else -1
        elif squared <= 0.25:
            smallest = least(slack)
            state[2] += 1
            state[0] = -1.0 if smallest > _TINY else state[0] - 0.95 * (smallest + state[0])
            if state[0] == 0.0:
                state[0] = _TINY
    return 0


@njit(cache=True, nogil=True)
def round_directions(z, rows, written, basis, directions):
    """The directions in which the polytope is round about its centre z; False where there are none.

    They are the rows of the inverse Cholesky factor: with the Hessian at the centre H = L L', the shapes
    z + L'^-1 y have the identity for Hessian, and column c of L'^-1 is row c of L^-1.

    Parameters
    ----------
    directions : float64, shape (dimensions, n)
        Written: a direction over the variables in each row.
    """
    n, count = len(z), len(directions)
    slack, gradient, hessian = np.empty(written + n - 1), np.empty(n), np.empty((n, n))
    rates(z, rows, written, slack)
    _derivatives(slack, rows, written, gradient, hessian)
    _, upper = _along(gradient, hessian, basis)
    if not factorise(upper):
        return False
    inverse = np.zeros((count, count))
    for row in range(count):
        for before in range(row):
            factor = upper[before, row]
            for column in range(before + 1):
                inverse[row, column] -= factor * inverse[before, column]
        inverse[row, row] = 1.0
        for column in range(row + 1):
            inverse[row, column] /= upper[row, row]
        spread_out(inverse[row], basis, directions[row])
    return True
