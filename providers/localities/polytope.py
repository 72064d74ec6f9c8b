"""Analytic centre and rounding of the polytope of kept relations.

A locality still holds if every x becomes a x + b. So a point x of a segment without properties of interest
is the product of a shape z, 0 = z_0 <= z_1 <= ... <= z_(n-1) = 1, that satisfies the constraints, and the two
ends. If the shapes have d dimensions, those of span r have a volume that grows as r^d. In a range R the
density of the span is therefore proportional to r^d (R - r), a Beta(d + 1, 2), which is the distribution of
U1^(1/(d+1)) U2^(1/(d+2)).

Without equal ties d is n - 2, one for each free variable. Equal ties restrict the shapes to a subspace of
fewer dimensions: if all ties of evenly spaced values are kept, d is 0. `basis` holds the directions in this
subspace, one per row. Without equal ties it is empty and stands for one direction per free variable.

Every sum is taken in a stated order, row by row or column by column, so that no result depends on the
number of threads. Only elementwise operations are vectorised. BLAS is not used, because it sums in an order
of its own.

Arguments of kernels
--------------------
polytope : Polytope
    Inequalities of the segment.
n : int
    Number of variables of the segment.
with_bounds : bool
    As in `Polytope`.
basis : float64, shape (directions, n)
    Directions that keep equal ties; without rows for the free variables.
x, direction : float64, shape (n,)
    Point, and direction of a step.
slack, rate : float64, shape (slacks,)
    Slacks at a point, and their rates along a direction, in the order of `Polytope`.
gradient, hessian : float64, shapes (n,) and (n, n)
    Gradient, and upper half of the Hessian, of the barrier. Written.
matrix, upper : float64, shape (size, size)
    Symmetric matrix, and its Cholesky factor. Entries below the diagonal are not used.

References
----------
Boyd and Vandenberghe 2004, Convex Optimization, sections 8.5.3 (analytic centre) and 9.6 (damped Newton for
self-concordant functions: a step of 1/(1 + decrement) stays inside and decreases the function).
"""

from typing import Any, NamedTuple

import numpy as np

from providers.kernels.decorators import borrowing, borrowing_optimised, within
from providers.localities.relations import EQUAL
from providers.localities.segment_arrays import CENTRED, NO_INTERIOR, TO_CENTRE

TINY = 2.0**-40
"""Smallest slack, for shapes of span 1, from which Newton's method may start."""

NEWTON_STEPS = 400
"""Maximum number of Newton steps; after them the segment has no centre."""

STAGES = 60
"""Maximum number of times that the shift is lowered; after them the segment has no centre."""

DECREMENT = 1e-4
"""Square of the Newton decrement at which the centre is accepted."""


class Polytope(NamedTuple):
    """Inequalities in the n variables x of one segment.

    Slacks are arrays in this order: localities, order x_(l+1) - x_l, bounds x_0 and 1 - x_(n-1) (only if
    `with_bounds`), properties of interest. The slack of a locality is (x_k - x_j) - (x_j - x_i) for `>=` and
    its opposite for `<=`.
    """

    constraints: Any
    """int32, shape (4, at least n_constraints): variables i, j, k and sense of each locality."""
    n_constraints: Any
    """int: number of localities."""
    with_bounds: Any
    """bool: whether the ends are variables, bounded by 0 and 1; else they are fixed at 0 and 1."""
    weights: Any
    """float64, shape (properties, n): coefficients of the properties of interest."""
    limits: Any
    """float64, shape (properties,): upper limits of weights . x."""


@borrowing
def slack_count(polytope, n):
    """Number of slacks of the polytope in n variables."""
    return polytope.n_constraints + n - 1 + 2 * polytope.with_bounds + len(polytope.limits)


@borrowing
def free_variables(n, with_bounds):
    """First free variable, and the one after the last: all with bounds, else all but the two ends."""
    return (0, n) if with_bounds else (1, max(1, n - 1))


@borrowing
def rates(direction, polytope, out):
    """Write the rate of every slack along a direction (equation 4) to `out`, in the order of `Polytope`.

    `direction` is float64 (n,), `out` float64 (slacks,).
    """
    n, count = len(direction), polytope.n_constraints
    constraints, weights = polytope.constraints, polytope.weights
    for c in range(count):
        i, j, k, sense = constraints[0, c], constraints[1, c], constraints[2, c], constraints[3, c]
        out[c] = sense * ((direction[k] - direction[j]) - (direction[j] - direction[i]))
    for v in range(n - 1):
        out[count + v] = direction[v + 1] - direction[v]
    first = count + n - 1
    if polytope.with_bounds:
        out[first], out[first + 1] = direction[0], -direction[n - 1]
        first += 2
    for p in range(len(weights)):
        total = 0.0
        for v in range(n):
            total += weights[p, v] * direction[v]
        out[first + p] = -total


@borrowing
def slacks(x, polytope, out):
    """Write the slack of every inequality at x (equation 1) to `out`, in the order of `Polytope`.

    `x` is float64 (n,), `out` float64 (slacks,).
    """
    rates(x, polytope, out)  # a slack is linear in x, up to the constants that are added below
    first = len(out) - len(polytope.limits)
    if polytope.with_bounds:
        out[first - 1] += 1.0
    for p in range(len(polytope.limits)):
        out[first + p] += polytope.limits[p]


@within
def move_equalities_last(constraints, n_constraints):
    """Move the `=` constraints behind the others, each in their order; return the number of the others.

    `constraints`, int32 (4, at least `n_constraints`), is changed in place; `n_constraints` is an int.
    """
    kept = moved = 0
    equal = np.empty((4, n_constraints), np.int32)
    for c in range(n_constraints):
        is_equal = constraints[3, c] == EQUAL
        for entry in range(4):
            if is_equal:
                equal[entry, moved] = constraints[entry, c]
            else:
                constraints[entry, kept] = constraints[entry, c]
        moved += is_equal
        kept += not is_equal
    for c in range(moved):
        for entry in range(4):
            constraints[entry, kept + c] = equal[entry, c]
    return kept


@borrowing_optimised
def _derivatives(slack, polytope, gradient, hessian):
    """Write gradient and upper half of the Hessian of -sum(log(slack)) over all n variables."""
    n, count = len(gradient), polytope.n_constraints
    constraints, weights = polytope.constraints, polytope.weights
    gradient[:] = 0.0
    hessian[:, :] = 0.0
    # localities: the gradient of a slack is sense * (1, -2, 1) at i, j, k
    for c in range(count):
        i, j, k = constraints[0, c], constraints[1, c], constraints[2, c]
        inverse = 1.0 / slack[c]
        pull = constraints[3, c] * inverse  # sense / slack
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
    # order: (-1, 1) at neighbours
    for v in range(n - 1):
        inverse = 1.0 / slack[count + v]
        gradient[v] += inverse
        gradient[v + 1] -= inverse
        weight = inverse * inverse
        hessian[v, v] += weight
        hessian[v + 1, v + 1] += weight
        hessian[v, v + 1] -= weight
    # bounds and properties of interest
    first = len(slack) - len(weights)
    if polytope.with_bounds:
        below, above = 1.0 / slack[first - 2], 1.0 / slack[first - 1]
        gradient[0] -= below
        hessian[0, 0] += below * below
        gradient[n - 1] += above
        hessian[n - 1, n - 1] += above * above
    for p in range(len(weights)):
        inverse = 1.0 / slack[first + p]
        for one in range(n):
            pull = weights[p, one] * inverse
            gradient[one] += pull
            for other in range(one, n):
                hessian[one, other] += pull * (weights[p, other] * inverse)


@within
def _reduced_derivatives(slack, polytope, basis, gradient, hessian):
    """Gradient and upper half of the Hessian over the free variables, or over the basis' coefficients.

    `gradient` (n,) and `hessian` (n, n) are scratch; new arrays are returned.
    """
    _derivatives(slack, polytope, gradient, hessian)
    n, count = len(gradient), len(basis)
    if count == 0:
        low, high = free_variables(n, polytope.with_bounds)
        return gradient[low:high].copy(), hessian[low:high, low:high].copy()
    reduced = np.zeros(count)
    applied = np.zeros((count, n))
    for one in range(count):
        for row in range(n):
            reduced[one] += basis[one, row] * gradient[row]
            for column in range(n):
                entry = hessian[row, column] if column >= row else hessian[column, row]
                applied[one, column] += basis[one, row] * entry
    squared = np.zeros((count, count))
    for one in range(count):
        for other in range(one, count):
            for row in range(n):
                squared[one, other] += applied[one, row] * basis[other, row]
    return reduced, squared


_PANEL = 4
"""Number of pivots whose rows are subtracted together; `_subtract_panel` names each of them."""


@borrowing
def factorise(matrix):
    """Replace the upper half of a matrix, float64 (size, size), by its Cholesky factor U, matrix = U' U.

    Return False if a pivot is not positive. Rows are subtracted four at a time. Every entry is reduced by one
    pivot after the other in their order, and the inner loop is elementwise.
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


@borrowing_optimised
def _subtract_panel(matrix, start):
    """Subtract the four finished rows from `start` on, times their factors, from all rows below them.

    `matrix`, float64 (size, size), is changed in place; `start` is an int.
    """
    one, two, three, four = matrix[start], matrix[start + 1], matrix[start + 2], matrix[start + 3]
    for row in range(start + _PANEL, len(matrix)):
        by_one, by_two, by_three, by_four = one[row], two[row], three[row], four[row]
        target = matrix[row]
        for column in range(row, len(matrix)):
            left = target[column] - by_one * one[column]
            left -= by_two * two[column]
            left -= by_three * three[column]
            target[column] = left - by_four * four[column]


@borrowing
def solve(upper, right):
    """Solve U' U y = right, where U is `upper`, float64 (size, size).

    `right`, float64 (size,), is replaced by y.
    """
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
def expand(coefficients, with_bounds, basis, out):
    """Write the direction over the n variables with these coefficients of the basis' directions to `out`.

    `coefficients` is float64 (directions,), `out` float64 (n,). An empty basis stands for the free variables.
    """
    out[:] = 0.0
    if len(basis) == 0:
        low, _ = free_variables(len(out), with_bounds)
        for index in range(len(coefficients)):
            out[low + index] = coefficients[index]
        return
    for one in range(len(basis)):
        for v in range(len(out)):
            out[v] += coefficients[one] * basis[one, v]


@borrowing
def _step_length(slack, rate, decrement):
    """Length of a Newton step: 1, or near the minimum of the barrier along the direction, inside.

    `slack` and `rate` are float64 (slacks,); `decrement` is the Newton decrement, a float.
    """
    if decrement <= 0.25:
        return 1.0
    steepest = 0.0
    for index in range(len(slack)):
        steepest = max(steepest, -rate[index] / slack[index])
    low, high = 0.0, 1.0 if steepest <= 0.0 else 0.99 / steepest
    for _ in range(8):  # bisection on the slope of the barrier
        middle = 0.5 * (low + high)
        slope = 0.0
        for index in range(len(slack)):
            slope -= rate[index] / (slack[index] + middle * rate[index])
        if slope < 0.0:
            low = middle
        else:
            high = middle
    return max(low, 1.0 / (1.0 + decrement))


@borrowing
def least(values):
    """Least of the values, float64, of which there is one at least."""
    smallest = values[0]
    for value in values:
        smallest = min(smallest, value)
    return smallest


@within
def advance_centre(z, polytope, basis, state, steps):
    """Take up to `steps` steps of Newton's method towards the analytic centre.

    Parameters
    ----------
    z : float64, shape (n,)
        Point, moved in place. It may lie outside the polytope. The inequalities are then relaxed by a shift,
        which is lowered stage by stage as far as the current point allows.
    polytope : Polytope
        Inequalities of the segment.
    basis : float64, shape (directions, n)
        Directions that keep equal ties; empty for the free variables.
    state : float64, shape (3,)
        Shift (-1 once it is zero), steps and stages so far; all 0 at the first call. Updated in place, so
        that the next call continues.
    steps : int
        Maximum number of steps of this call.

    Returns
    -------
    int
        CENTRED, TO_CENTRE (call again), or NO_INTERIOR: none that float64 can distinguish from nothing.
    """
    n = len(z)
    total = slack_count(polytope, n)
    slack, rate = np.empty(total), np.empty(total)
    gradient, hessian, direction = np.empty(n), np.empty((n, n)), np.empty(n)
    slacks(z, polytope, slack)
    # a point outside, or too close to the boundary, starts in a polytope relaxed by a shift
    if state[0] == 0.0:
        smallest = least(slack)
        state[0] = -1.0 if smallest > TINY else max(1.0 / (n * n), -2.0 * smallest)
    for _ in range(steps):
        if state[1] == NEWTON_STEPS or state[2] == STAGES:
            return NO_INTERIOR
        state[1] += 1
        if state[0] > 0.0:
            slack += state[0]
        # Newton direction: solve Hessian . step = -gradient
        reduced, upper = _reduced_derivatives(slack, polytope, basis, gradient, hessian)
        if not factorise(upper):
            return NO_INTERIOR
        step = -reduced
        solve(upper, step)
        squared = 0.0  # square of the Newton decrement
        for index in range(len(step)):
            squared -= step[index] * reduced[index]
        if not squared >= 0.0:
            return NO_INTERIOR
        expand(step, polytope.with_bounds, basis, direction)
        rates(direction, polytope, rate)
        length = _step_length(slack, rate, np.sqrt(squared))
        for v in range(n):
            z[v] += length * direction[v]
        slacks(z, polytope, slack)
        if state[0] < 0.0:
            if squared <= DECREMENT:
                return CENTRED if least(slack) > 0.0 else NO_INTERIOR
        elif squared <= 0.25:
            # near the centre of the relaxed polytope: lower the shift by 95 % of what the slacks allow
            smallest = least(slack)
            state[2] += 1
            state[0] = -1.0 if smallest > TINY else state[0] - 0.95 * (smallest + state[0])
            if state[0] == 0.0:
                state[0] = TINY
    return TO_CENTRE


@within
def round_directions(centre, polytope, basis, directions):
    """Write the directions that make the polytope round about its centre; return False if there are none.

    With the Hessian H = L L' at the centre, the points centre + L'^-1 y have the identity as Hessian. Column
    c of L'^-1 is row c of L^-1, so the directions are the rows of the inverse Cholesky factor.

    Parameters
    ----------
    centre : float64, shape (n,)
        Analytic centre.
    polytope : Polytope
        Inequalities of the segment.
    basis : float64, shape (directions, n)
        Directions that keep equal ties; empty for the free variables.
    directions : float64, shape (dimensions, n)
        Written: a direction over the n variables in each row.
    """
    n, count = len(centre), len(directions)
    slack, gradient, hessian = np.empty(slack_count(polytope, n)), np.empty(n), np.empty((n, n))
    slacks(centre, polytope, slack)
    _, upper = _reduced_derivatives(slack, polytope, basis, gradient, hessian)
    if not factorise(upper):
        return False
    # forward substitution: row by row, the inverse of the lower factor L = U'
    inverse = np.zeros((count, count))
    for row in range(count):
        for before in range(row):
            factor = upper[before, row]
            for column in range(before + 1):
                inverse[row, column] -= factor * inverse[before, column]
        inverse[row, row] = 1.0
        for column in range(row + 1):
            inverse[row, column] /= upper[row, row]
        expand(inverse[row], polytope.with_bounds, basis, directions[row])
    return True
