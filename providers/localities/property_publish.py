"""Publish segments with properties of interest: repair, rounding, and the check of every constraint.

A point is pulled towards the centre by halves, until order, localities and properties hold for the very
numbers that are published. If even the centre fails, or there is none, the segment's values become one value
if that keeps the properties. Otherwise they are published as in the source. If float64 has lost one of the
source's own localities, nothing can be published, and the segment is marked `IMPOSSIBLE`.

Arguments of kernels
--------------------
segments : Segments
    Batch of segments. `publish_with_properties` writes `x` and `point`, `_publish` writes `point`.
t : int
    Index of a segment in `segments`.
polytopes : PropertyPolytopes
    Properties of interest of the batch; read only.
bounds : int
    SEGMENT, COLUMN or KEEP.
grid : Grid
    Grid of the published values; read only.
base : int
    Entry of segment t in `PropertyConstraints.base`.
"""

import math

import numpy as np

from providers.kernels.decorators import borrowing, within
from providers.localities.lattice import (
    constraints_of_variables,
    grid_constraints_hold,
    integer_below,
    range_on_grid,
)
from providers.localities.polytope import free_variables
from providers.localities.property_constraints import (
    SCALE_BITS,
    exact_slack,
    properties_hold,
    values_by_variable,
)
from providers.localities.property_walk import weights_of
from providers.localities.publish import (
    COLLAPSED,
    IMPOSSIBLE,
    NOT_ROUNDED,
    PULLS,
    REPAIRED,
    UNCHANGED,
    grid_margin,
    judge_and_shuffle,
    pull_towards,
    put_on_grid,
    put_values,
    source_on_grid,
)
from providers.localities.relations import GRID_LEVEL, constraints_hold
from providers.localities.segment_arrays import (
    CONSTRAINTS,
    HIGH,
    KEEP,
    LOW,
    PROPERTIES_CENTRED,
    PROPERTIES_FIXED,
    STATUS,
)
from providers.numba import njit
from providers.randomness.word_stream import open_stream


@njit(cache=True, nogil=True)
def publish_with_properties(
    start, stop, segments, tasks, polytopes, ties, selection, bounds, spread, grid, marks, judged, broken
):
    """Publish the segments of tasks `start` to `stop`, and count which of their relations hold.

    Parameters
    ----------
    start, stop : int
        First task, and the one after the last.
    segments, ties, selection, bounds, spread, grid, marks, judged
        As for `publish.publish`.
    tasks : int64, shape (tasks,)
        Segment of each task.
    polytopes : PropertyPolytopes
        Properties of interest of the batch.
    broken : bool, shape (property constraints,)
        Written: whether a property does not hold for the published numbers.
    """
    for task in range(start, stop):
        t = tasks[task]
        x = segments.x[segments.variable_starts[t] : segments.variable_starts[t + 1]]
        source, published = np.empty(len(x)), np.empty(len(x))
        its_values = slice(segments.value_starts[t], segments.value_starts[t + 1])
        values_by_variable(
            segments.values[its_values], segments.first[its_values], segments.last[its_values], source
        )
        marks[t] = _publish(segments, t, polytopes, bounds, source, x)
        published[:] = x
        if grid.steps > 0.0:
            marks[t] = _round(segments, t, polytopes, bounds, grid, marks[t], x, published)
        properties = polytopes.constraints
        for constraint in range(properties.starts[t], properties.starts[t + 1]):
            # the source's own values satisfy every constraint: that is checked before any segment is redrawn
            unchanged = np.array_equal(published, source)
            broken[constraint] = not (unchanged or exact_slack(published, properties, constraint) >= 0.0)
        judge_and_shuffle(segments, t, ties, selection, spread, x, judged)


@within
def _publish(segments, t, polytopes, bounds, source, x):
    """Write the values of segment t to `x`, and leave `Segments.point` at their point; return the mark.

    `source` and `x` are float64 (variables,); `source` holds the values of the source.
    """
    its_variables = slice(segments.variable_starts[t], segments.variable_starts[t + 1])
    point, centre, place = segments.point[its_variables], segments.centre[its_variables], segments.place[t]
    constraints = segments.constraints[:, segments.constraint_starts[t] : segments.constraint_starts[t + 1]]
    n, count, status = len(x), segments.counts[t, CONSTRAINTS], segments.counts[t, STATUS]
    width = place[HIGH] - place[LOW]
    ends = np.array([source[0], source[n - 1], 1.0 if bounds == KEEP else 0.0])
    pulled = point.copy()
    for pull in range(PULLS + 1 if status == PROPERTIES_CENTRED else 0):
        if pull:
            pull_towards(centre, point, pull, pulled)
        put_values(place, ends, pulled, place[LOW], width, x)
        if constraints_hold(x, constraints, count) and properties_hold(x, polytopes.constraints, t):
            point[:] = pulled
            return REPAIRED if pull else 0
    # collapse: one value satisfies order and localities, but not every property
    if status != PROPERTIES_FIXED:
        pulled[:] = 0.5
        ends[2] = 0.0
        put_values(place, ends, pulled, place[LOW], width, x)
        if properties_hold(x, polytopes.constraints, t):
            point[:] = pulled
            return COLLAPSED
    x[:] = source
    if not constraints_hold(x, constraints, count):
        return IMPOSSIBLE
    return 0 if status == PROPERTIES_FIXED else UNCHANGED


# ------------------------------------------------------------------------------------ rounding


@borrowing
def _steps_as_floats(points, grid, base, t, published):
    """Write the numbers as which grid points, int64 (n,), are published to `published`, float64 (n,)."""
    for v in range(len(points)):
        published[v] = (base + grid.origin[t] + points[v]) / grid.steps


@within
def _round(segments, t, polytopes, bounds, grid, mark, x, published):
    """Put the values of segment t on the grid so that every constraint holds; return the segment's mark.

    The values are rounded. If that breaks a constraint, a walk on the grid starts at the rounded centre or,
    if that breaks one too, at the source's values. The last attempt publishes the source's values themselves.

    Parameters
    ----------
    segments, t, polytopes, bounds, grid
        As for `publish_with_properties`, and the segment.
    mark : int
        Mark of the segment before rounding.
    x : float64, shape (n,)
        Values, put on the grid: as steps from the first if `Grid.keeps_type`.
    published : float64, shape (n,)
        Written: the same values as the numbers that are published.
    """
    its_variables = slice(segments.variable_starts[t], segments.variable_starts[t + 1])
    constraints = segments.constraints[:, segments.constraint_starts[t] : segments.constraint_starts[t + 1]]
    place, n, count = segments.place[t], len(x), segments.counts[t, CONSTRAINTS]
    width, status = place[HIGH] - place[LOW], segments.counts[t, STATUS]
    low, high = grid.bounds[t]
    base = polytopes.constraints.base[t]
    source, points = source_on_grid(segments, t, grid, n), np.empty(n, np.int64)
    off_grid = x.copy()
    # attempts: 0 the walk's point, 1 a grid walk from the centre, 2 a grid walk from the source, 3 the source
    first_attempt = 0 if not mark & (COLLAPSED | UNCHANGED | IMPOSSIBLE) else 1
    for attempt in range(first_attempt if status == PROPERTIES_CENTRED else 2, 4):
        if attempt < 2:
            shape = segments.point[its_variables] if attempt == 0 else segments.centre[its_variables]
            put_on_grid(place, grid, t, shape, place[LOW], width, points)
            if bounds == KEEP:
                points[0], points[n - 1] = source[0], source[n - 1]
        else:
            points[:] = source
        _steps_as_floats(points, grid, base, t, published)
        if not grid_constraints_hold(points, constraints, count, low, high) or not properties_hold(
            published, polytopes.constraints, t
        ):
            continue
        if 0 < attempt < 3 and status != PROPERTIES_FIXED:
            _walk_on_grid(segments, t, polytopes, bounds, grid, points, published)
        for v in range(n):
            x[v] = points[v] if grid.keeps_type[t] else published[v]
        if constraints_hold(x, constraints, count):
            stayed = status != PROPERTIES_FIXED and attempt > 1 and np.array_equal(points, source)
            return UNCHANGED if stayed else mark & REPAIRED
    x[:] = off_grid
    published[:] = x
    return mark | NOT_ROUNDED


# This loop is not merged with `lattice.walk_on_grid`, whose inner loop would then carry the exact sums of the
# properties through every segment that has none.


@within
def _walk_on_grid(segments, t, polytopes, bounds, grid, points, published):
    """Walk as `lattice.walk_on_grid`, but do not take a step that breaks a property.

    A property allows a variable a range, which is computed in floats and is one step too wide at the end; the
    exact check of the property then decides.

    Parameters
    ----------
    segments, t, polytopes, bounds, grid
        As for `_round`.
    points : int64, shape (n,)
        Grid points that satisfy every constraint; moved in place.
    published : float64, shape (n,)
        The same as published numbers; updated.
    """
    n, (low, high) = len(points), grid.bounds[t]
    constraints = segments.constraints[:, segments.constraint_starts[t] : segments.constraint_starts[t + 1]]
    starts, listed = constraints_of_variables(n, constraints, segments.counts[t, CONSTRAINTS])
    weights, _ = weights_of(polytopes, t, n)
    properties = polytopes.constraints
    first_property = properties.starts[t]
    sizes = polytopes.sizes[first_property : properties.starts[t + 1]]
    margin = grid_margin(grid, t)
    draws = open_stream(segments.keys[t], segments.identities[t], GRID_LEVEL, 0)
    first, stop = free_variables(n, bounds != KEEP)
    base = properties.base[t]
    for _ in range(grid.sweeps):
        for one in range(first, stop):
            its_constraints = listed[starts[one] : starts[one + 1]]
            least, most = range_on_grid(points, one, constraints, its_constraints, low, high, margin)
            for index in range(len(sizes)):
                weight = weights[index, one]
                if weight == 0.0:
                    continue
                slack = exact_slack(published, properties, first_property + index)
                slack *= properties.bound_multiple[first_property + index]
                steps_left = math.ldexp(slack / sizes[index], SCALE_BITS) * grid.steps / weight
                if weight > 0.0 and steps_left < most - points[one]:
                    most = points[one] + np.int64(math.floor(steps_left)) + 1
                elif weight < 0.0 and steps_left > least - points[one]:
                    least = points[one] + np.int64(math.ceil(steps_left)) - 1
            if most <= least:
                continue
            before = points[one]
            points[one] = least + integer_below(draws, most - least + 1)
            _steps_as_floats(points, grid, base, t, published)
            if not properties_hold(published, properties, t):
                points[one] = before
                _steps_as_floats(points, grid, base, t, published)
