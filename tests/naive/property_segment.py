"""One segment with properties of interest in plain loops: definition 1, and the walk through the values."""

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.naive.localities import Matrix, Vector, all_hold, localities, of_copies, pruned, select
from tests.naive.polytope import Polytope, analytic_centre, derivatives, rates, round_directions
from tests.naive.redrawn_segment import Segment, ldexp, range_of

LEAST_SIZE = 2.0**-800


@dataclass
class Property:
    """The sum of m c x over the terms (variable, c, m) is at most `multiple` times `at_most`."""

    number: int
    terms: list[tuple[int, float, int]]
    at_most: float
    multiple: int

    def slack(self, x: Vector) -> float | None:
        """The limit less the exact left side rounded once, times 2**-64; None if a value is too small."""
        if any(x[v] and abs(x[v]) < LEAST_SIZE for v, _, _ in self.terms):
            return None
        total = sum((m * Fraction(c) * Fraction(x[v]) for v, c, m in self.terms), Fraction(0))
        return self.at_most * 2.0**-64 - float(total / self.multiple / 2**64)

    def holds(self, x: Vector) -> bool:
        slack = self.slack(x)
        return slack is not None and slack >= 0

    def scaled_slack(self, x: Vector, size: float) -> float:
        """The slack of the property divided by a size, times 2**-64."""
        slack = self.slack(x)
        assert slack is not None
        return slack * self.multiple / size


def properties_of(params: Any, name: str, segment: Segment, members: list[int], values: list[Any]) -> Any:
    """The properties of a segment whose records are `members`, of these exact values."""
    found = []
    ordered = sorted(values)
    size = len(ordered)
    by_record = segment.runs if params.duplicates == "spread" else None

    def variable(place: int) -> int:
        return place if by_record else segment.exact.index(ordered[place])

    for number, relation in enumerate(params.relations):
        if (relation.field or params.fields[0]) != name:
            continue
        terms: list[tuple[int, float, int]] = []
        multiple = size if "mean" in relation.coefficients else 1
        for statistic, c in relation.coefficients.items():
            if statistic == "mean":
                places = [variable(place) for place in range(size)]
                terms += [(v, c, places.count(v)) for v in sorted(set(places))]
            elif statistic == "median":
                terms += [(variable(place), c * 0.5, multiple) for place in ((size - 1) // 2, size // 2)]
            else:
                share = {"min": "0", "max": "1"}.get(statistic, statistic[2:])
                place = max(1, math.ceil(Fraction(share) * size)) - 1
                terms.append((variable(place), c, multiple))
        for record, c in relation.rows.items():
            if int(record) in members:
                run = segment.runs[segment.exact.index(values[members.index(int(record))])]
                terms.append((run[-1] if c > 0 else run[0], c, 1))
        if terms:
            found.append(Property(number, terms, relation.at_most, multiple))
    return found


@dataclass
class PropertySegment(Segment):
    """One segment of a field that has properties."""

    properties: list[Property] = field(default_factory=list)
    base: int = 0
    """The field's least unit, where the type is kept."""
    published_values: Vector = field(default_factory=list)
    """The float64 numbers that are published, by variable."""

    @property
    def keep(self) -> bool:
        return self.params.bounds == "keep"

    def source(self) -> Vector:
        return [value for value, run in zip(self.values, self.runs, strict=True) for _ in run]

    def redrawn(self) -> Vector:
        """Return the values of the destination by variable, ascending."""
        n, place = self.n, self.place
        self.extract()
        self.inequalities = list(self.constraints)
        self.low, self.high = (1, max(1, n - 1)) if self.keep else (0, n)
        self.width = place.high - place.low
        self.is_fixed = self.high <= self.low or not self.width > 0.0
        self.centre: Vector | None = None
        point: Vector = []
        if not self.is_fixed:
            point = [(place.span * part - place.low) / self.width for part in self.data_shape()]
            if self.keep:
                point[0], point[-1] = 0.0, 1.0
            self.set_inequalities(point)
            point = self.walk(point)
        x = self.publish(point)
        self.published_values = x
        return x if self.params.decimals == "off" else self.round_values(x)

    def extract(self) -> None:
        self.relations = localities(self.exact, self.params.ties)
        self.chosen = select(
            self.relations, self.exact, self.params.sigma, self.params.selection, self.draws(0)
        )
        self.constraints = [of_copies(one, self.runs) for one in pruned(self.chosen)]

    # -------------------------------------------------------------------------------- inequalities

    def set_inequalities(self, point: Vector) -> None:
        self.weights: Matrix = []
        self.limits: Vector = []
        self.sizes: Vector = []
        for one in self.properties:
            weights = [0.0] * self.n
            for v, c, m in one.terms:
                weights[v] += c * m
            size = max(abs(weights[v]) for v in range(self.low, self.high))
            self.sizes.append(size)
            if size == 0.0:
                self.weights.append([0.0] * self.n)
                self.limits.append(1.0)
                continue
            weights = [weight / size for weight in weights]
            total = 0.0
            for weight, y in zip(weights, point, strict=True):
                total += weight * y
            known = one.slack(self.source()) is not None
            scaled = one.scaled_slack(self.source(), size) if known else math.nan
            self.weights.append(weights)
            self.limits.append(ldexp(scaled, 64 - self.place.exponent) / self.width + total)

    def rates_of(self, direction: Vector) -> Vector:
        out = rates(direction, self.inequalities)
        if not self.keep:
            out += [direction[0], -direction[-1]]
        for weights in self.weights:
            total = 0.0
            for weight, part in zip(weights, direction, strict=True):
                total += weight * part
            out.append(-total)
        return out

    def slacks_of(self, y: Vector) -> Vector:
        out = self.rates_of(y)
        first = len(out) - len(self.limits)
        if not self.keep:
            out[first - 1] += 1.0
        return out[:first] + [a + b for a, b in zip(out[first:], self.limits, strict=True)]

    def derivatives_at(self, slack: Vector) -> tuple[Vector, Matrix]:
        """Gradient and Hessian of the barrier over the free variables."""
        n = self.n
        gradient, hessian = derivatives(slack, self.inequalities, n)
        first = len(slack) - len(self.weights)
        if not self.keep:
            below, above = 1.0 / slack[first - 2], 1.0 / slack[first - 1]
            gradient[0] -= below
            hessian[0][0] += below * below
            gradient[-1] += above
            hessian[-1][-1] += above * above
        for p, weights in enumerate(self.weights):
            inverse = 1.0 / slack[first + p]
            for one in range(n):
                pull = weights[one] * inverse
                gradient[one] += pull
                for other in range(one, n):
                    hessian[one][other] += pull * (weights[other] * inverse)
        free = slice(self.low, self.high)
        return gradient[free], [row[free] for row in hessian[free]]

    # -------------------------------------------------------------------------------- centre and walk

    def expand(self, coefficients: Vector) -> Vector:
        """Direction over all variables with these entries of the free ones."""
        return [0.0] * self.low + list(coefficients) + [0.0] * (self.n - self.high)

    def walk(self, point: Vector) -> Vector:
        """Find the centre, and walk; without a centre, return the point."""
        polytope = Polytope(self.slacks_of, self.rates_of, self.derivatives_at, self.expand)
        if all(one.slack(self.source()) is not None for one in self.properties):
            self.centre = analytic_centre(polytope, point)
        if self.centre is None:
            return point
        is_rounded = self.params.walk == "rounded"
        directions = round_directions(polytope, self.centre) if is_rounded else []
        if directions is None:
            self.centre = None
            return point
        return self.hit_and_run(polytope, point, self.centre, directions, self.high - self.low)

    # -------------------------------------------------------------------------------- published values

    def keeps_properties(self, x: Vector) -> bool:
        return all(one.holds(x) for one in self.properties)

    def publish(self, point: Vector) -> Vector:
        self.shape = point
        for pull in range(31 if self.centre is not None else 0):
            assert self.centre is not None
            pulled = point
            if pull:
                weight = 2.0**-pull if pull < 30 else 0.0
                pulled = [c + weight * (p - c) for c, p in zip(self.centre, point, strict=True)]
            x = self.put(pulled, self.place.low, self.width, self.keep)
            if all_hold(x, self.constraints) and self.keeps_properties(x):
                self.marks |= {"repaired"} if pull else set()
                self.shape = pulled
                return x
        if not self.is_fixed:
            x = self.put([0.5] * self.n, self.place.low, self.width, False)
            if self.keeps_properties(x):
                self.marks.add("collapsed")
                return x
        x = self.source()
        if not all_hold(x, self.constraints):
            self.marks.add("impossible")
        elif not self.is_fixed:
            self.marks.add("unchanged")
        return x

    def from_steps(self, points: list[int]) -> Vector:
        base = self.base if self.keeps_type else 0
        origin = self.exact[0] * self.factor - base if self.factor else 0
        return [float(base + origin + point) / 10.0**self.decimals for point in points]

    def round_values(self, x: Vector) -> Vector:
        source, (low, high) = self.source_steps(), self.bounds_in_steps()
        walkable = self.centre is not None
        lost = {"collapsed", "unchanged", "impossible"} & self.marks
        for attempt in range((1 if lost else 0) if walkable else 2, 4):
            points = list(source)
            if attempt < 2:
                assert self.centre is not None
                shape = self.centre if attempt else self.shape
                points = self.nearest_steps(shape, self.place.low, self.width)
                if self.keep:
                    points[0], points[-1] = source[0], source[-1]
            inside = points[0] >= low and points[-1] <= high
            if not (inside and all_hold(points, self.constraints)):
                continue
            if not self.keeps_properties(self.from_steps(points)):
                continue
            if 0 < attempt < 3 and not self.is_fixed:
                self.walk_points(points, low, high)
            out = [float(point) for point in points] if self.keeps_type else self.from_steps(points)
            if all_hold(out, self.constraints):
                stayed = not self.is_fixed and attempt > 1 and points == source
                self.marks = {"unchanged"} if stayed else self.marks & {"repaired"}
                self.published_values = self.from_steps(points)
                return out
        self.marks.add("not_rounded")
        return x

    def walk_points(self, x: list[int], low: int, high: int) -> None:
        sweeps = self.params.iterations if isinstance(self.params.iterations, int) else 40
        draws = self.draws(5)
        steps = 10.0**self.decimals
        margin = 0 if self.keeps_type or steps == 1.0 else 1
        for _, one in itertools.product(range(sweeps), range(self.low, self.high)):
            least, most = range_of(x, one, self.constraints, low, high, margin)
            for prop, size, weights in zip(self.properties, self.sizes, self.weights, strict=True):
                if weights[one] == 0.0:
                    continue
                room = ldexp(prop.scaled_slack(self.from_steps(x), size), 64) * steps / weights[one]
                if weights[one] > 0.0 and room < most - x[one]:
                    most = x[one] + math.floor(room) + 1
                elif weights[one] < 0.0 and room > least - x[one]:
                    least = x[one] + math.ceil(room) - 1
            if most <= least:
                continue
            before = x[one]
            x[one] = least + self.step_below(draws, most - least + 1)
            if not self.keeps_properties(self.from_steps(x)):
                x[one] = before
