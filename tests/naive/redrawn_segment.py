"""One segment redrawn in plain loops: relations, walk, ends, repair, rounding."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from providers.services.locality import LocalityParams
from tests.naive.localities import (
    Constraint,
    Draws,
    Matrix,
    Vector,
    all_hold,
    gaussian,
    localities,
    of_copies,
    pruned,
    select,
)
from tests.naive.polytope import (
    Lattice,
    Polytope,
    analytic_centre,
    expand,
    lattice_of,
    on_lattice,
    polytope_of_shapes,
    rates,
    round_directions,
)


@dataclass
class Place:
    """Bounds of a segment's values in units of 2**exponent; low, high and span from the first value on."""

    first: float
    low: float
    high: float
    span: float
    ends: tuple[float, float]
    exponent: int


@dataclass
class Segment:
    """One segment of a field."""

    params: LocalityParams
    key: list[int]
    number: int
    exact: list[Any]
    """Sorted distinct values as exact numbers: whole units, or floats as fractions."""
    values: Vector
    """The same as float64."""
    is_whole: bool
    runs: list[list[int]]
    """The variables of each distinct value."""
    place: Place
    relations: list[Constraint] = field(default_factory=list)
    chosen: list[Constraint] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)

    def draws(self, level: int) -> Draws:
        return Draws(self.key, self.number, level)

    @property
    def n(self) -> int:
        return self.runs[-1][-1] + 1

    def data_shape(self) -> Vector:
        if len(self.values) == 1:
            return [0.0] * (self.n - 1) + [1.0]
        if self.is_whole:
            parts = [float(v - self.exact[0]) / float(self.exact[-1] - self.exact[0]) for v in self.exact]
        elif math.isinf(self.values[-1] - self.values[0]):
            half = [0.5 * value for value in self.values]
            parts = [(value - half[0]) / (half[-1] - half[0]) for value in half]
        else:
            span = self.values[-1] - self.values[0]
            parts = [(value - self.values[0]) / span for value in self.values]
        shape = [part for part, run in zip(parts, self.runs, strict=True) for _ in run]
        shape[-1] = 1.0
        return shape

    def redrawn(self) -> Vector:
        """Return the values of the destination by variable, ascending."""
        params, n = self.params, self.n
        self.relations = localities(self.exact, params.ties)
        self.chosen = select(self.relations, self.exact, params.sigma, params.selection, self.draws(0))
        self.constraints = [of_copies(one, self.runs) for one in pruned(self.chosen)]
        inequalities = [one for one in self.constraints if one[3]]
        point = centre = self.data_shape()
        lattice = None
        walkable = True
        if params.ties == "equal" and n > 1:
            lattice = lattice_of([one for one in self.constraints if not one[3]], n)
            walkable = lattice is not None
        basis = None if lattice is None else lattice.directions
        free = max(0, n - 2) if basis is None else len(basis)
        polytope = polytope_of_shapes(inequalities, basis, n)
        if walkable and n > 1 and free:
            found = analytic_centre(polytope, centre)
            walkable = found is not None
            centre = centre if found is None else found
        if walkable and n > 1:
            directions = round_directions(polytope, centre) if params.walk == "rounded" and free else []
            walkable = directions is not None
            if directions is not None:
                point = self.walked(point, centre, inequalities, lattice, directions)
        return self.published(point, centre, lattice, walkable)

    def walks_ends(self) -> bool:
        """Whether the ends are variables of the walk."""
        return self.params.walk == "paper" and self.params.bounds != "keep"

    def walked(
        self,
        point: Vector,
        centre: Vector,
        constraints: list[Constraint],
        lattice: Lattice | None,
        directions: Matrix,
    ) -> Vector:
        """Walk through the shapes, or through the values if the ends are variables."""
        n, walks_ends = self.n, self.walks_ends()
        basis: Matrix | None = None if lattice is None else lattice.directions
        polytope, count = polytope_of_shapes(constraints, basis, n), n - 2 if basis is None else len(basis)
        if walks_ends:
            width = self.place.high - self.place.low
            centre = [1.0 / (n + 1) + (n - 1.0) / (n + 1) * c for c in centre]
            across = [(self.place.span * p - self.place.low) for p in point]
            point = [distance / width for distance in across] if width > 0.0 else centre
            ends = basis
            if lattice is not None:
                ends = [*lattice.directions, [float(value) for value in lattice.ends], [1.0] * n]
            count = n if ends is None else len(ends)
            polytope.slacks = lambda x: [*rates(x, constraints), x[0], 1.0 - x[-1]]
            polytope.rates = lambda v: [*rates(v, constraints), v[0], -v[-1]]
            polytope.expand = lambda part: part if ends is None else expand(part, ends, n)
        return self.hit_and_run(polytope, point, centre, directions, count)

    def hit_and_run(
        self, polytope: Polytope, point: Vector, centre: Vector, directions: Matrix, count: int
    ) -> Vector:
        """Walk from the centre or the data, in `count` dimensions."""
        params = self.params
        if params.start == "centre":
            point = list(centre)
        elif min(polytope.slacks(point)) <= 0.0:
            point = [p + 2.0**-10 * (c - p) for p, c in zip(point, centre, strict=True)]
        if count < 1:
            return point
        total = params.iterations * self.n if isinstance(params.iterations, int) else params.iterations.total
        draws = self.draws(2)
        slack: Vector = []
        for step in range(total):
            if step % 1024 == 0:
                slack = [max(s, 1e-290) for s in polytope.slacks(point)]
            if params.walk == "rounded":
                direction = directions[draws.below(count)]
            else:
                direction = polytope.expand(gaussian(self.key, self.number, step, count))
            rate = polytope.rates(direction)
            quotients = [r / s for r, s in zip(rate, slack, strict=True)]
            ahead, behind = -1.0 / min(0.0, *quotients), -1.0 / max(0.0, *quotients)
            u = draws.uniform()
            length = u * ahead if params.walk == "paper" else behind + u * (ahead - behind)
            point = [p + length * d for p, d in zip(point, direction, strict=True)]
            slack = [max(s + length * r, 1e-290) for s, r in zip(slack, rate, strict=True)]
        return point

    def ends(self, shape: Vector, dimensions: int) -> tuple[Vector, float, float]:
        """The shape, the first value and the span, which shapes of many dimensions make larger."""
        place, n = self.place, self.n
        width = place.high - place.low
        draws = self.draws(1)
        if n == 1:
            return shape, 0.0 if self.params.bounds == "keep" else place.low + draws.uniform() * width, 0.0
        if self.params.bounds == "keep":
            return shape, 0.0, place.span
        if self.walks_ends():
            start, span = shape[0], shape[-1] - shape[0]
            even = [(value - start) / span if span > 0.0 else 0.0 for value in shape]
            return even, place.low + width * start, width * span
        one, two, three = draws.uniform(), draws.uniform(), draws.uniform()
        span = width * (one ** (1.0 / (dimensions + 1)) * two ** (1.0 / (dimensions + 2)))
        return shape, place.low + three * (width - span), span

    def put(self, shape: Vector, first: float, span: float, keep: bool) -> Vector:
        place = self.place
        x = []
        for part in shape:
            value = min(max(place.first + (first + span * part), place.ends[0]), place.ends[1])
            x.append(ldexp(value, place.exponent))
        if keep:
            x[0], x[-1] = self.values[0], self.values[-1]
        return x

    def published(self, shape: Vector, centre: Vector, lattice: Lattice | None, walkable: bool) -> Vector:
        shape, first, span = self.ends(shape, self.n - 2 if lattice is None else len(lattice.directions))
        keep = self.params.bounds == "keep"
        for pull in range(31 if walkable else 0):
            pulled = shape
            if pull:
                weight = 2.0**-pull if pull < 30 else 0.0
                pulled = [c + weight * (s - c) for c, s in zip(centre, shape, strict=True)]
            if lattice is not None:
                inside = span * 2.0**-20 if pull else 0.0
                x = self.put_on_lattice(pulled, first + 0.5 * inside, span - inside, lattice)
            else:
                x = self.put(pulled, first, span, keep)
            if x is not None and all_hold(x, self.constraints):
                self.marks |= {"repaired"} if pull else set()
                return self.rounded(x, pulled, centre, first, span)
        self.marks.add("collapsed")
        pulled = [0.5] * self.n
        return self.rounded(self.put(pulled, first, span, False), pulled, centre, first, span)

    def put_on_lattice(self, shape: Vector, first: float, span: float, lattice: Lattice) -> Vector | None:
        points = on_lattice(shape, self.place.first + first, span, lattice)
        if points is None or any(abs(point) > 2**53 for point in points):
            return None
        values = [float(point) * 2.0**-50 for point in points]
        if not all(self.place.ends[0] <= value <= self.place.ends[1] for value in values):
            return None
        return [ldexp(value, self.place.exponent) for value in values]

    # -------------------------------------------------------------------------------- rounding

    decimals: int = 0
    factor: int = 0
    """Steps of the grid in a unit; 0 where values are no whole units, or finer than the grid."""
    keeps_type: bool = False
    origin: int = 0

    def bounds_in_steps(self) -> tuple[int, int]:
        """Return the bounds in steps, from the first value on if that is a whole step, else from 0."""
        start, place = 0.0 if self.factor else self.place.first, self.place
        low, high = (ldexp(start + end, place.exponent) for end in (place.low, place.high))
        return round(low * 10.0**self.decimals), round(high * 10.0**self.decimals)

    def source_steps(self) -> list[int]:
        """Return the source's values in steps, by variable."""
        if self.factor:
            distinct = [(value - self.exact[0]) * self.factor for value in self.exact]
        else:
            distinct = [round(value * 10.0**self.decimals) for value in self.values]
        return [step for step, run in zip(distinct, self.runs, strict=True) for _ in run]

    def nearest_steps(self, shape: Vector, first: float, span: float) -> list[int]:
        """Return the nearest step within the bounds of each value of a shape."""
        start, (low, high) = 0.0 if self.factor else self.place.first, self.bounds_in_steps()
        values = [ldexp(start + (first + span * part), self.place.exponent) for part in shape]
        return [min(max(round(value * 10.0**self.decimals), low), high) for value in values]

    def rounded(self, x: Vector, shape: Vector, centre: Vector, first: float, span: float) -> Vector:
        if self.params.decimals == "off":
            return x
        steps, source, (low, high) = 10.0**self.decimals, self.source_steps(), self.bounds_in_steps()
        margin = 0 if self.keeps_type or steps == 1.0 else 1
        for attempt in range(1 if "collapsed" in self.marks else 0, 3):
            points = self.nearest_steps(centre if attempt else shape, first, span)
            if attempt == 2:
                points = list(source)
            elif self.params.bounds == "keep":
                points[0], points[-1] = source[0], source[-1]
            inside = points[0] >= low and points[-1] <= high
            if inside and all_hold(points, self.constraints):
                if attempt:
                    self.walk_on_grid(points, low, high, margin)
                out = [float(p) if self.keeps_type else (self.origin + p) / steps for p in points]
                if all_hold(out, self.constraints):
                    self.marks.discard("collapsed")
                    return out
        self.marks.add("not_rounded")
        return x

    def walk_on_grid(self, x: list[int], low: int, high: int, margin: int) -> None:
        sweeps = self.params.iterations if isinstance(self.params.iterations, int) else 40
        draws = self.draws(5)
        n = len(x)
        moving = range(1, n - 1) if self.params.bounds == "keep" else range(n)
        for _ in range(sweeps):
            for one in moving:
                least, most = range_of(x, one, self.constraints, low, high, margin)
                if most > least:
                    x[one] = least + self.step_below(draws, most - least + 1)

    @staticmethod
    def step_below(draws: Draws, bound: int) -> int:
        if bound <= 2**32:
            return draws.below(bound)
        size = 1 << (bound - 1).bit_length()
        while True:
            high = draws.word() << 32
            drawn = (high | draws.word()) % size
            if drawn < bound:
                return drawn


def range_of(
    x: list[int], one: int, constraints: list[Constraint], low: int, high: int, margin: int
) -> tuple[int, int]:
    """Range on the grid that order, bounds and localities allow a variable."""
    least = x[one - 1] if one else low
    most = x[one + 1] if one < len(x) - 1 else high
    for i, j, k, sense in constraints:
        if one == j and sense < 0:
            least = max(least, math.ceil(Fraction(x[i] + x[k] + margin, 2)))
        elif one == j:
            most = min(most, math.floor(Fraction(x[i] + x[k] - margin, 2)))
        elif one in (i, k):
            bound = 2 * x[j] - (x[k] if one == i else x[i])
            if sense > 0:
                least = max(least, bound + margin)
            else:
                most = min(most, bound - margin)
    return least, most


def ldexp(value: float, exponent: int) -> float:
    """Return C's ldexp, which is infinite if Python's raises."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)
