"""Turn walk results into published values and verify every relation.

The published numbers themselves are checked, without a tolerance. If rounding to float64 breaks a
constraint, the shape is pulled towards the centre by halves. If even the centre fails, because float64 cannot
distinguish the values, all values of the segment become one value, which satisfies every constraint.

`property_publish` publishes segments with properties of interest. Both use the helpers of this module. Their
loops stay apart, since the attempts differ: lattice and drawn ends here, fall-back to the source there.

Arguments of kernels
--------------------
segments : Segments
    Batch of segments. `publish` and `_publish_and_judge` write `x` and `point`, `_publish` writes `point`.
t : int
    Index of a segment in `segments`.
n : int
    Number of variables of segment t.
ties, selection, bounds, walks_ends, spread
    As for `publish`.
grid : Grid
    Grid of the published values; read only.
place : float64, shape (8,)
    Row of segment t in `Segments.place`.
first, first_value, span : float
    First value relative to the source's first, and span, in units of 2**exponent.
x : float64, shape (n,)
    Published values of segment t. Written.
marks, judged : int64, shapes (segments,) and (segments, 2)
    As for `publish`. Written at t.
"""

import math

import numpy as np

from providers.kernels.decorators import borrowing, within
from providers.localities.lattice import LATTICE_BITS, grid_constraints_hold, on_lattice, walk_on_grid
from providers.localities.relations import COPIES_LEVEL, ENDS_LEVEL, constraints_hold, judge
from providers.localities.segment_arrays import (
    CENTRED,
    CHOSEN,
    CONSTRAINTS,
    DIMENSIONS,
    DOMAIN_HIGH,
    DOMAIN_LOW,
    EXPONENT,
    FIRST,
    FOUND,
    HIGH,
    KEEP,
    LOW,
    PROPERTIES_TO_CENTRE,
    RANGE,
    STATUS,
)
from providers.numba import njit
from providers.randomness.word_stream import bounded, open_stream, uniform_of

REPAIRED, COLLAPSED, NOT_ROUNDED, UNCHANGED, IMPOSSIBLE = 1, 2, 4, 8, 16
"""Marks of a segment: pulled towards the centre, made one value, left off the grid; only with properties of
interest: published with the source's values, or not publishable."""

PULLS = 30
"""Number of pulls towards the centre; the last one puts the point there."""


@within
def _ends(segments, t, shape, bounds, walks_ends):
    """Draw the first value, relative to the source's first, and the span; make `shape` run from 0 to 1.

    `shape`, float64 (n,), is the point of the walk. It is rescaled in place if its ends are variables of the
    walk (`walks_ends`) and n > 1.
    """
    place, n = segments.place[t], len(shape)
    width = place[HIGH] - place[LOW]
    draws = open_stream(segments.keys[t], segments.identities[t], ENDS_LEVEL, 0)
    if bounds == KEEP and n > 1:
        return 0.0, place[RANGE]
    if n == 1:
        return 0.0 if bounds == KEEP else place[LOW] + uniform_of(draws) * width, 0.0
    if walks_ends:
        start, span = shape[0], shape[n - 1] - shape[0]
        for v in range(n):
            shape[v] = (shape[v] - start) / span if span > 0.0 else 0.0
        return place[LOW] + width * start, width * span
    one, two, three = uniform_of(draws), uniform_of(draws), uniform_of(draws)
    # Beta(d + 1, 2) for shapes of d dimensions, see providers.localities.polytope
    dimensions = segments.counts[t, DIMENSIONS]
    if dimensions < 0:  # no lattice of equal ties: the values will be made one value
        dimensions = n - 2
    span = width * (one ** (1.0 / (dimensions + 1)) * two ** (1.0 / (dimensions + 2)))
    return place[LOW] + three * (width - span), span


@borrowing
def pull_towards(centre, point, pull, pulled):
    """Write `point` to `pulled` after `pull` (int) halvings of its distance to the centre.

    `centre`, `point` and `pulled` are float64 (n,).
    """
    weight = 2.0**-pull if pull < PULLS else 0.0
    for v in range(len(pulled)):
        pulled[v] = centre[v] + weight * (point[v] - centre[v])


@borrowing
def put_values(place, ends, shape, first, span, x):
    """Write the float64 values of a shape, clipped to the domain.

    Parameters
    ----------
    place : float64, shape (8,)
        Row of `Segments.place`.
    ends : float64, shape (3,)
        First and last value, used if the third entry is not 0.
    shape : float64, shape (n,)
        Shape, 0 to 1.
    first, span : float
        First value relative to the source's first, and span, in units of 2**exponent.
    x : float64, shape (n,)
        Written.
    """
    n = len(x)
    for v in range(n):
        value = place[FIRST] + (first + span * shape[v])
        value = min(max(value, place[DOMAIN_LOW]), place[DOMAIN_HIGH])
        x[v] = math.ldexp(value, int(place[EXPONENT]))
    if ends[2] != 0.0:
        x[0], x[n - 1] = ends[0], ends[1]


@within
def _put_on_lattice(place, lattice, count, shape, first, span, x):
    """Write the values of a shape whose ties are equal to the last bit to `x`; return False if impossible.

    `lattice` and `count` are as for `lattice.on_lattice`; `place`, `shape`, `first`, `span` and `x` are as
    for `put_values`.
    """
    points = np.empty(len(x), np.int64)
    if not on_lattice(shape, place[FIRST] + first, span, lattice, count, points):
        return False
    for v in range(len(x)):
        value = np.float64(points[v]) * 2.0**-LATTICE_BITS
        if not place[DOMAIN_LOW] <= value <= place[DOMAIN_HIGH] or abs(points[v]) > 2**53:
            return False
        x[v] = math.ldexp(value, int(place[EXPONENT]))
    return True


@within
def _publish(segments, t, bounds, walks_ends, x):
    """Write ascending values that satisfy every constraint to `x`; return mark, first value and span.

    `Segments.point` is left at the shape that is published.
    """
    its_variables = slice(segments.variable_starts[t], segments.variable_starts[t + 1])
    shape, centre = segments.point[its_variables].copy(), segments.centre[its_variables]
    constraints = segments.constraints[:, segments.constraint_starts[t] : segments.constraint_starts[t + 1]]
    values = segments.values[segments.value_starts[t] : segments.value_starts[t + 1]]
    place, n, count = segments.place[t], len(x), segments.counts[t, CONSTRAINTS]
    first, span = _ends(segments, t, shape, bounds, walks_ends)
    ends = np.array([values[0], values[-1], 1.0 if bounds == KEEP else 0.0])
    start, stop = segments.basis_starts[t], segments.basis_starts[t + 1]
    pulled = shape.copy()
    for pull in range(PULLS + 1 if segments.counts[t, STATUS] == CENTRED else 0):
        if pull:
            pull_towards(centre, shape, pull, pulled)
        if start < stop and n > 1:
            lattice = segments.lattice[start:stop].reshape((n, n))
            inside = span * 2.0**-20 if pull else 0.0  # the ends of the domain may not be on the lattice
            is_put = _put_on_lattice(
                place, lattice, segments.counts[t, DIMENSIONS], pulled, first + 0.5 * inside, span - inside, x
            )
        else:
            put_values(place, ends, pulled, first, span, x)
            is_put = True
        if is_put and constraints_hold(x, constraints, count):
            segments.point[its_variables] = pulled
            return (REPAIRED if pull else 0), first, span
    # collapse: one value satisfies the order and every relation
    pulled[:] = 0.5
    ends[2] = 0.0
    put_values(place, ends, pulled, first, span, x)
    segments.point[its_variables] = pulled
    return COLLAPSED, first, span


# ------------------------------------------------------------------------------------ rounding


@within
def source_on_grid(segments, t, grid, n):
    """Values of the source on the grid, in steps: int64, shape (n,), by variable."""
    its_values = slice(segments.value_starts[t], segments.value_starts[t + 1])
    units, values = segments.units[its_values], segments.values[its_values]
    first, last = segments.first[its_values], segments.last[its_values]
    source = np.empty(n, np.int64)
    for index in range(len(values)):
        if grid.factor[t] > 0:
            step = np.int64(units[index] - units[0]) * grid.factor[t]
        else:
            step = np.int64(np.rint(values[index] * grid.steps))
        source[first[index] : last[index] + 1] = step
    return source


@borrowing
def put_on_grid(place, grid, t, shape, first, span, points):
    """Write the nearest grid point within the bounds of each value of a shape to `points`, int64 (n,).

    `place`, `shape`, `first` and `span` are as for `put_values`; `grid` is the Grid of the batch, and t the
    segment.
    """
    low, high = grid.bounds[t, 0], grid.bounds[t, 1]
    for v in range(len(points)):
        value = first + span * shape[v]
        if not grid.factor[t] > 0:  # steps count from 0, not from the segment's first value
            value += place[FIRST]
        points[v] = np.int64(np.rint(math.ldexp(value, int(place[EXPONENT])) * grid.steps))
        points[v] = min(max(points[v], low), high)


@borrowing
def grid_margin(grid, t):
    """Steps by which a constraint must hold on the grid: float64 does not hold every decimal exactly."""
    return 0 if grid.keeps_type[t] or grid.steps == 1.0 else 1


@within
def _round(segments, t, bounds, grid, collapsed, first_value, span, x):
    """Put the values x on the grid so that every constraint holds; return whether that was possible.

    The values are rounded. If that breaks a constraint, a walk on the grid starts at the rounded centre or,
    if that breaks one too, at the source's values. `collapsed` (bool) says that the values were made one
    value, so that rounding them is not tried. If nothing is possible, `x` is left as it was.
    """
    its_variables = slice(segments.variable_starts[t], segments.variable_starts[t + 1])
    constraints = segments.constraints[:, segments.constraint_starts[t] : segments.constraint_starts[t + 1]]
    shape, centre = segments.point[its_variables], segments.centre[its_variables]
    place, n, count = segments.place[t], len(x), segments.counts[t, CONSTRAINTS]
    low, high = grid.bounds[t]
    source, points, off_grid = source_on_grid(segments, t, grid, n), np.empty(n, np.int64), x.copy()
    for attempt in range(1 if collapsed else 0, 3):
        if attempt == 2:
            points[:] = source
        else:
            put_on_grid(place, grid, t, shape if attempt == 0 else centre, first_value, span, points)
            if bounds == KEEP:
                points[0], points[n - 1] = source[0], source[n - 1]
        if grid_constraints_hold(points, constraints, count, low, high):
            if attempt:
                key, identity, margin = segments.keys[t], segments.identities[t], grid_margin(grid, t)
                walk_on_grid(
                    points, constraints, count, low, high, margin, bounds == KEEP, grid.sweeps, key, identity
                )
            for v in range(n):
                x[v] = points[v] if grid.keeps_type[t] else (grid.origin[t] + points[v]) / grid.steps
            if constraints_hold(x, constraints, count):
                return True
    x[:] = off_grid
    return False


@njit(cache=True, nogil=True)
def publish(start, stop, segments, ties, selection, bounds, walks_ends, spread, grid, marks, judged):
    """Publish segments `start` to `stop`, and count which of their relations hold.

    Segments with properties of interest are left out: see `property_publish`.

    Parameters
    ----------
    start, stop : int
        First segment, and the one after the last.
    segments : Segments
        Written: `x`, and `point`, which is left at the published shape.
    ties, selection : int
        As for `relations.choose_relations`.
    bounds : int
        SEGMENT, COLUMN or KEEP.
    walks_ends : bool
        Whether the ends are variables of the walk; else they are drawn here.
    spread : bool
        Whether duplicates are variables of their own: then each run of them is put in a random order.
    grid : Grid
        Grid of the published values.
    marks : int64, shape (segments,)
        Written: marks of the segment, REPAIRED to IMPOSSIBLE.
    judged : int64, shape (segments, 2)
        Written: found relations that hold, and chosen ones that do not.
    """
    for t in range(start, stop):
        if segments.counts[t, STATUS] < PROPERTIES_TO_CENTRE:
            _publish_and_judge(segments, t, ties, selection, bounds, walks_ends, spread, grid, marks, judged)


@within
def _publish_and_judge(segments, t, ties, selection, bounds, walks_ends, spread, grid, marks, judged):
    """Run `publish` for segment t."""
    x = segments.x[segments.variable_starts[t] : segments.variable_starts[t + 1]]
    marks[t], first_value, span = _publish(segments, t, bounds, walks_ends, x)
    if grid.steps > 0.0:
        if not _round(segments, t, bounds, grid, marks[t] == COLLAPSED, first_value, span, x):
            marks[t] |= NOT_ROUNDED
        elif marks[t] == COLLAPSED:
            marks[t] = 0
    judge_and_shuffle(segments, t, ties, selection, spread, x, judged)


@within
def judge_and_shuffle(segments, t, ties, selection, spread, x, judged):
    """Count the relations of segment t that hold in x; then put spread duplicates in a random order.

    The parameters are those of `publish`; `x` is float64 (variables,), the published values of the segment.
    """
    its_values = slice(segments.value_starts[t], segments.value_starts[t + 1])
    first, last = segments.first[its_values], segments.last[its_values]
    key, identity = segments.keys[t], segments.identities[t]
    judged[t, 0], judged[t, 1] = judge(
        segments.exact[t], segments.units[its_values], segments.values[its_values], ties,
        segments.counts[t, FOUND], segments.counts[t, CHOSEN], selection, first, last, key, identity, x,
    )  # fmt: skip
    if spread:
        draws = open_stream(key, identity, COPIES_LEVEL, 0)
        for run in range(len(first)):
            for remaining in range(last[run] - first[run], 0, -1):  # Fisher-Yates
                one, two = first[run] + remaining, first[run] + bounded(draws, remaining + 1)
                x[one], x[two] = x[two], x[one]
