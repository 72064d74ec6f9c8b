"""One segment redrawn in plain loops: relations, walk, ends, repair, rounding."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from providers.locality import LocalityParams
from tests.naive.localities import (
    Draws,
    Matrix,
    Row,
    Vector,
    all_hold,
    choose,
    gaussian,
    localities,
    of_copies,
    pruned,
)
from tests.naive.polytope import (
    Lattice,
    analytic_centre,
    lattice_of,
    on_lattice,
    rates,
    round_directions,
    spread_out,
)


@dataclass
class Place:
    """Where a segment's values may lie, by 2**exponent; low, high and span from the first value on."""

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
    relations: list[Row] = field(default_factory=list)
    chosen: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
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
        """The destination's values by variable, ascending."""
        params, n = self.params, self.n
        self.relations = localities(self.exact, params.ties)
        self.chosen = choose(self.relations, params.sigma, self.draws(0))
        self.rows = [of_copies(row, self.runs) for row in pruned(self.chosen)]
        loose = [row for row in self.rows if row[3]]
        point = centre = self.data_shape()
        lattice = None
        walkable = True
        if params.ties == "equal" and n > 1:
            lattice = lattice_of([row for row in self.rows if not row[3]], n)
            walkable = lattice is not None
        basis = None if lattice is None else lattice.directions
        free = max(0, n - 2) if basis is None else len(basis)
        if walkable and n > 1 and free:
            found = analytic_centre(centre, loose, basis)
            walkable = found is not None
            centre = centre if found is None else found
        if walkable and n > 1:
            directions = round_directions(centre, loose, basis) if params.walk == "rounded" and free else []
            walkable = directions is not None
            if directions is not None:
                point = self.walked(point, centre, loose, lattice, directions)
        return self.published(point, centre, lattice, walkable)

    def whole(self) -> bool:
        return self.params.walk == "paper" and self.params.bounds != "keep"

    def walked(
        self, point: Vector, centre: Vector, rows: list[Row], lattice: Lattice | None, directions: Matrix
    ) -> Vector:
        """Hit-and-run from the centre or the data."""
        params, n, whole = self.params, self.n, self.whole()

        def slacks(at: Vector) -> Vector:
            return rates(at, rows) + ([at[0], 1.0 - at[-1]] if whole else [])

        if whole:
            width = self.place.high - self.place.low
            centre = [1.0 / (n + 1) + (n - 1.0) / (n + 1) * c for c in centre]
            across = [(self.place.span * p - self.place.low) for p in point]
            point = [part / width for part in across] if width > 0.0 else centre
        if params.start == "centre":
            point = list(centre)
        elif min(slacks(point)) <= 0.0:
            point = [p + 2.0**-10 * (c - p) for p, c in zip(point, centre, strict=True)]
        basis: Matrix | None = None if lattice is None else lattice.directions
        if whole and lattice is not None:
            basis = [*lattice.directions, [float(value) for value in lattice.ends], [1.0] * n]
        count = n - 2 if basis is None else len(basis)
        count = n if whole and basis is None else count
        if count < 1:
            return point
        total = params.iterations * n if isinstance(params.iterations, int) else params.iterations.total
        draws = self.draws(2)
        slack: Vector = []
        for step in range(total):
            if step % 1024 == 0:
                slack = [max(s, 1e-290) for s in slacks(point)]
            if params.walk == "rounded":
                direction = directions[draws.below(count)]
            else:
                coefficients = gaussian(self.key, self.number, step, count)
                direction = coefficients if whole and basis is None else spread_out(coefficients, basis, n)
            rate = rates(direction, rows) + ([direction[0], -direction[-1]] if whole else [])
            quotients = [r / s for r, s in zip(rate, slack, strict=True)]
            ahead, behind = -1.0 / min(0.0, *quotients), -1.0 / max(0.0, *quotients)
            u = draws.uniform()
            length = u * ahead if params.walk == "paper" else behind + u * (ahead - behind)
            point = [p + length * d for p, d in zip(point, direction, strict=True)]
            slack = [max(s + length * r, 1e-290) for s, r in zip(slack, rate, strict=True)]
        return point

    def ends(self, shape: Vector) -> tuple[Vector, float, float]:
        """The shape, the first value and the span."""
        place, n = self.place, self.n
        width = place.high - place.low
        draws = self.draws(1)
        if n == 1:
            return shape, 0.0 if self.params.bounds == "keep" else place.low + draws.uniform() * width, 0.0
        if self.params.bounds == "keep":
            return shape, 0.0, place.span
        if self.whole():
            start, span = shape[0], shape[-1] - shape[0]
            even = [(value - start) / span if span > 0.0 else 0.0 for value in shape]
            return even, place.low + width * start, width * span
        one, two, three = draws.uniform(), draws.uniform(), draws.uniform()
        span = width * (one ** (1.0 / (n - 1)) * two ** (1.0 / n))
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
        shape, first, span = self.ends(shape)
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
            if x is not None and all_hold(x, self.rows):
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

    def rounded(self, x: Vector, shape: Vector, centre: Vector, first: float, span: float) -> Vector:
        if self.params.decimals == "off":
            return x
        place, steps = self.place, 10.0**self.decimals
        base = 0.0 if self.factor else place.first
        low = round(ldexp(base + place.low, place.exponent) * steps)
        high = round(ldexp(base + place.high, place.exponent) * steps)
        if self.factor:
            source = [(value - self.exact[0]) * self.factor for value in self.exact]
        else:
            source = [round(value * steps) for value in self.values]
        source = [step for step, run in zip(source, self.runs, strict=True) for _ in run]
        margin = 0 if self.keeps_type or steps == 1.0 else 1
        for attempt in range(1 if "collapsed" in self.marks else 0, 3):
            parts = centre if attempt else shape
            points = [round(ldexp(base + (first + span * part), place.exponent) * steps) for part in parts]
            points = [min(max(point, low), high) for point in points]
            if attempt == 2:
                points = list(source)
            elif self.params.bounds == "keep":
                points[0], points[-1] = source[0], source[-1]
            inside = points[0] >= low and points[-1] <= high
            if inside and all_hold(points, self.rows):
                if attempt:
                    self.walk_on_grid(points, low, high, margin)
                out = [float(p) if self.keeps_type else (self.origin + p) / steps for p in points]
                if all_hold(out, self.rows):
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
                least = x[one - 1] if one else low
                most = x[one + 1] if one < n - 1 else high
                for i, j, k, sense in self.rows:
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


def ldexp(value: float, exponent: int) -> float:
    """C's: infinite where Python's raises."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)
