"""Polytope of relations in plain loops: its centre, round directions, and the lattice of equal ties.

Floating-point sums are taken in the order that `providers.localities.polytope` states.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.naive.localities import Constraint, Matrix, Vector

# ------------------------------------------------------------------------------------ linear algebra


def rates(x: Vector, constraints: list[Constraint]) -> Vector:
    """Slacks of the localities, sense times (x_k - x_j) - (x_j - x_i), and then of the order."""
    out = [sense * ((x[k] - x[j]) - (x[j] - x[i])) for i, j, k, sense in constraints]
    return out + [b - a for a, b in itertools.pairwise(x)]


def derivatives(slack: Vector, constraints: list[Constraint], n: int) -> tuple[Vector, Matrix]:
    """Gradient and upper half of the Hessian of -sum(log(slack)) over all variables."""
    gradient = [0.0] * n
    hessian = [[0.0] * n for _ in range(n)]
    for c, (i, j, k, sense) in enumerate(constraints):
        inverse = 1.0 / slack[c]
        pull = sense * inverse
        weight = inverse * inverse
        for one, factor in ((i, 1.0), (j, -2.0), (k, 1.0)):
            gradient[one] -= factor * pull
        for one, two, factor in ((i, i, 1), (j, j, 4), (k, k, 1), (i, j, -2), (j, k, -2), (i, k, 1)):
            hessian[one][two] += factor * weight
    for v in range(n - 1):
        inverse = 1.0 / slack[len(constraints) + v]
        weight = inverse * inverse
        gradient[v] += inverse
        gradient[v + 1] -= inverse
        hessian[v][v] += weight
        hessian[v + 1][v + 1] += weight
        hessian[v][v + 1] -= weight
    return gradient, hessian


def along(gradient: Vector, hessian: Matrix, basis: Matrix | None) -> tuple[Vector, Matrix]:
    """Derivatives over the coefficients of the basis, or over the inner variables."""
    n = len(gradient)
    if basis is None:
        return gradient[1:-1], [row[1:-1] for row in hessian[1:-1]]
    first, applied = [], []
    for direction in basis:
        total = 0.0
        for at in range(n):
            total += direction[at] * gradient[at]
        first.append(total)
        row = [0.0] * n
        for at in range(n):
            for column in range(n):
                row[column] += direction[at] * hessian[min(at, column)][max(at, column)]
        applied.append(row)
    second = [[0.0] * len(basis) for _ in basis]
    for one in range(len(basis)):
        for two in range(one, len(basis)):
            for at in range(n):
                second[one][two] += applied[one][at] * basis[two][at]
    return first, second


def cholesky(matrix: Matrix) -> Matrix | None:
    """Return U with matrix = U' U, from the upper half; None if a pivot is not positive."""
    n = len(matrix)
    upper = [[0.0] * n for _ in range(n)]
    for row in range(n):
        for column in range(row, n):
            total = matrix[row][column]
            for before in range(row):
                total -= upper[before][row] * upper[before][column]
            upper[row][column] = total
        if not upper[row][row] > 0.0:
            return None
        root = math.sqrt(upper[row][row])
        for column in range(row, n):
            upper[row][column] /= root
    return upper


def solve(upper: Matrix, right: Vector) -> Vector:
    """Return y with U' U y = right."""
    n = len(right)
    y = list(right)
    for row in range(n):
        for before in range(row):
            y[row] -= upper[before][row] * y[before]
        y[row] /= upper[row][row]
    for row in range(n - 1, -1, -1):
        for later in range(row + 1, n):
            y[row] -= upper[row][later] * y[later]
        y[row] /= upper[row][row]
    return y


def expand(coefficients: Vector, basis: Matrix | None, n: int) -> Vector:
    """Direction with these coefficients of the basis, or of the inner variables."""
    if basis is None:
        return [0.0, *coefficients, 0.0]
    out = [0.0] * n
    for coefficient, direction in zip(coefficients, basis, strict=True):
        for at in range(n):
            out[at] += coefficient * direction[at]
    return out


# ------------------------------------------------------------------------------------ the centre


def step_length(slack: Vector, rate: Vector, decrement: float) -> float:
    """Length of a Newton step: 1, or near the minimum of the barrier, inside."""
    if decrement <= 0.25:
        return 1.0
    steepest = max(0.0, *(-r / s for r, s in zip(rate, slack, strict=True)))
    low, high = 0.0, 1.0 if steepest <= 0.0 else 0.99 / steepest
    for _ in range(8):
        middle = 0.5 * (low + high)
        slope = 0.0
        for s, r in zip(slack, rate, strict=True):
            slope -= r / (s + middle * r)
        low, high = (middle, high) if slope < 0.0 else (low, middle)
    return max(low, 1.0 / (1.0 + decrement))


@dataclass
class Polytope:
    """The inequalities of a segment, as Newton's method and the walk need them."""

    slacks: Callable[[Vector], Vector]
    """Slack of every inequality at a point."""
    rates: Callable[[Vector], Vector]
    """Rate of every slack along a direction."""
    derivatives: Callable[[Vector], tuple[Vector, Matrix]]
    """Gradient and Hessian of the barrier at these slacks, over the free directions."""
    expand: Callable[[Vector], Vector]
    """Direction over all variables with these coefficients of the free directions."""


def polytope_of_shapes(constraints: list[Constraint], basis: Matrix | None, n: int) -> Polytope:
    """The polytope of the shapes, whose free directions are the basis, or the inner variables."""
    return Polytope(
        slacks=lambda x: rates(x, constraints),
        rates=lambda direction: rates(direction, constraints),
        derivatives=lambda slack: along(*derivatives(slack, constraints, n), basis),
        expand=lambda coefficients: expand(coefficients, basis, n),
    )


def analytic_centre(polytope: Polytope, start: Vector) -> Vector | None:
    """Find the centre by damped Newton, relaxed by a shift as long as the point lies outside."""
    z, n = list(start), len(start)
    slack = polytope.slacks(z)
    smallest = min(slack)
    shift = -1.0 if smallest > 2.0**-40 else max(1.0 / (n * n), -2.0 * smallest)
    stages = 0
    for _ in range(400):
        if stages == 60:
            return None
        if shift > 0.0:
            slack = [s + shift for s in slack]
        first, second = polytope.derivatives(slack)
        upper = cholesky(second)
        if upper is None:
            return None
        step = solve(upper, [-g for g in first])
        squared = 0.0
        for s, g in zip(step, first, strict=True):
            squared -= s * g
        if not squared >= 0.0:
            return None
        direction = polytope.expand(step)
        length = step_length(slack, polytope.rates(direction), math.sqrt(squared))
        z = [value + length * by for value, by in zip(z, direction, strict=True)]
        slack = polytope.slacks(z)
        smallest = min(slack)
        if shift < 0.0:
            if squared <= 1e-4:
                return z if smallest > 0.0 else None
        elif squared <= 0.25:
            stages += 1
            shift = -1.0 if smallest > 2.0**-40 else shift - 0.95 * (smallest + shift)
            shift = 2.0**-40 if shift == 0.0 else shift
    return None


def round_directions(polytope: Polytope, centre: Vector) -> Matrix | None:
    """The rows of the inverse Cholesky factor of the Hessian at the centre, as directions."""
    upper = cholesky(polytope.derivatives(polytope.slacks(centre))[1])
    if upper is None:
        return None
    inverse: Matrix = []
    for row in range(len(upper)):
        entries = [0.0] * len(upper)
        for before in range(row):
            for column in range(before + 1):
                entries[column] -= upper[before][row] * inverse[before][column]
        entries[row] = 1.0
        inverse.append([x / upper[row][row] if column <= row else 0.0 for column, x in enumerate(entries)])
    return [polytope.expand(row) for row in inverse]


# ------------------------------------------------------------------------------------ equal ties


@dataclass
class Lattice:
    """Basis of the integer points with equal ties: vectors that leave both ends at 0, and one that moves
    the last end.
    """

    inner: list[list[int]]
    ends: list[int]

    @property
    def directions(self) -> Matrix:
        return [[float(value) for value in row] for row in self.inner]


def lattice_of(equalities: list[Constraint], n: int) -> Lattice | None:
    """Reduce the unit vectors by Euclid's algorithm, one equation after the other; None if entries grow."""

    def reduced(values: list[int]) -> int | None:
        while True:
            some = [at for at, value in enumerate(values) if value]
            if len(some) < 2:
                return some[0] if some else -1
            pivot = min(some, key=lambda at: (abs(values[at]), at))
            for one in some:
                if one != pivot:
                    quotient = values[one] // values[pivot]
                    values[one] -= quotient * values[pivot]
                    basis[one] = [a - quotient * b for a, b in zip(basis[one], basis[pivot], strict=True)]
                    if abs(quotient) >= 2**31 or max(map(abs, basis[one])) >= 2**31:
                        return None

    basis = [[int(row == column) for column in range(n)] for row in range(n)]
    equations: list[Any] = [lambda v: v[0]]
    equations += [lambda v, i=i, j=j, k=k: v[i] + v[k] - 2 * v[j] for i, j, k, _ in equalities]
    for equation in equations:
        pivot = reduced([equation(vector) for vector in basis])
        if pivot is None:
            return None
        if pivot >= 0:
            del basis[pivot]
    pivot = reduced([vector[-1] for vector in basis])
    if pivot is None or pivot < 0:
        return None
    ends = basis.pop(pivot)
    return Lattice(basis, ends if ends[-1] > 0 else [-value for value in ends])


def on_lattice(shape: Vector, first: float, span: float, lattice: Lattice) -> list[int] | None:
    """The lattice's point nearest to first + span * shape in its coefficients, in steps of 2**-50."""
    n, inner = len(shape), lattice.directions
    right = []
    for direction in inner:
        total = 0.0
        for at in range(n):
            total += direction[at] * (shape[at] - float(lattice.ends[at]) / float(lattice.ends[-1]))
        right.append(total)
    gram = [[0.0] * len(inner) for _ in inner]
    for one in range(len(inner)):
        for two in range(one, len(inner)):
            for at in range(n):
                gram[one][two] += inner[one][at] * inner[two][at]
    upper = cholesky(gram)
    if upper is None:
        return None
    coefficients = solve(upper, right)
    if not all(abs(value) < 4096.0 for value in coefficients):
        return None
    steps = 2.0**50
    start, long = round(first * steps), round(span / float(lattice.ends[-1]) * steps)
    multiples = [round(value * span * steps) for value in coefficients]
    return [
        start
        + long * lattice.ends[at]
        + sum(multiple * row[at] for multiple, row in zip(multiples, lattice.inner, strict=True))
        for at in range(n)
    ]
