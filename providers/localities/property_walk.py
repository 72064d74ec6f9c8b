"""The polytope of a segment that has properties of interest, and the walk through it.

A property of interest may fail when x becomes a x + b, so shape and ends cannot be drawn separately, as in
`polytope`. The walk goes through the values themselves, as y = (x - low) / (high - low): the bounds are 0 and
1, and every y is free. With bounds `keep` the ends stay at 0 and 1 and the others are free. The inequalities
are the kept localities, the order, the bounds and the properties. The limit distribution of a walk over whole
chords is uniform on all values that satisfy them.

The centre, the directions and the steps are those of `polytope` and `hit_and_run`. The coefficients of a
property are divided by the greatest of them in size over the free variables, so that its slack is a length
like the others.

Arguments of kernels
--------------------
segments : Segments
    Batch of segments. Kernels of one segment write the arrays that the kernel over a range of tasks names;
    `weights_of` and `_polytope_of` write none.
t : int
    Index of a segment in `segments`.
n : int
    Number of variables of segment t.
polytopes : PropertyPolytopes
    Properties of interest of the batch. Written like `segments`.
keep : bool
    Whether the ends stay at 0 and 1.
law : int
    ROUNDED, WHOLE_CHORD or FORWARD.
from_data : bool
    Whether the walk starts at the source's values; else it starts at the centre.
steps : int
    Maximum number of Newton steps of one call.
first_step, last_step : int
    First step of a walk, a multiple of 1024, and the one after the last.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from providers.kernels.decorators import within
from providers.localities.hit_and_run import place_start, walk_polytope
from providers.localities.polytope import Polytope, advance_centre, free_variables, round_directions
from providers.localities.property_constraints import (
    SCALE_BITS,
    PropertyConstraints,
    exact_slack,
    values_by_variable,
)
from providers.localities.segment_arrays import (
    CENTRED,
    DIMENSIONS,
    EXPONENT,
    HIGH,
    INEQUALITIES,
    LOW,
    NO_INTERIOR,
    PROPERTIES_CENTRED,
    PROPERTIES_FIXED,
    PROPERTIES_NO_INTERIOR,
    PROPERTIES_TO_CENTRE,
    RANGE,
    ROUNDED,
    STATUS,
    Segments,
)
from providers.numba import njit


class PropertyPolytopes(NamedTuple):
    """Properties of interest as inequalities in y, segment by segment."""

    constraints: PropertyConstraints
    """The same properties in x."""
    weight_starts: Any
    """int64, shape (segments + 1,): starts in `weights`; a segment's have the shape (constraints, n)."""
    weights: Any
    """float64: coefficients of each constraint over y; the greatest over the free variables is 1 in size."""
    limits: Any
    """float64, shape (constraints,): a constraint is weights . y <= limit."""
    sizes: Any
    """float64, shape (constraints,): divisor of the coefficients; 0 if no free variable has one."""
    direction_starts: Any
    """int64, shape (segments + 1,): starts in `directions`."""
    directions: Any
    """float64: for each segment an array (dimensions, n), if the walk is ROUNDED; else empty."""


@within
def weights_of(polytopes, t, n):
    """Weights, float64 (constraints, n), and limits, float64 (constraints,), of segment t's properties."""
    start, stop = polytopes.constraints.starts[t], polytopes.constraints.starts[t + 1]
    flat = polytopes.weights[polytopes.weight_starts[t] : polytopes.weight_starts[t + 1]]
    return flat.reshape((stop - start, n)), polytopes.limits[start:stop]


@within
def _polytope_of(segments, t, polytopes, n, keep):
    """Polytope of segment t with its properties of interest, in n variables."""
    constraints = segments.constraints[:, segments.constraint_starts[t] : segments.constraint_starts[t + 1]]
    weights, limits = weights_of(polytopes, t, n)
    return Polytope(constraints, segments.counts[t, INEQUALITIES], not keep, weights, limits)


# ------------------------------------------------------------------------------------ constraints


@njit(cache=True, nogil=True)
def prepare(start, stop, segments, tasks, polytopes, keep):
    """Write the properties of tasks `start` to `stop` as inequalities; put point and centre at the source.

    Parameters
    ----------
    start, stop : int
        First task, and the one after the last.
    segments : Segments
        Written: `point`, `centre`, and DIMENSIONS and STATUS in `counts`.
    tasks : int64, shape (tasks,)
        Segment of each task.
    polytopes : PropertyPolytopes
        Written: `weights`, `limits` and `sizes`.
    keep : bool
        Whether the ends stay.
    """
    for task in range(start, stop):
        _prepare(segments, tasks[task], polytopes, keep)


@within
def _prepare(segments, t, polytopes, keep):
    """Run `prepare` for segment t."""
    its_variables = slice(segments.variable_starts[t], segments.variable_starts[t + 1])
    its_values = slice(segments.value_starts[t], segments.value_starts[t + 1])
    point, place, counts = segments.point[its_variables], segments.place[t], segments.counts[t]
    n, width = len(point), place[HIGH] - place[LOW]
    low, high = free_variables(n, not keep)
    x = np.empty(n)
    values_by_variable(segments.values[its_values], segments.first[its_values], segments.last[its_values], x)
    counts[DIMENSIONS] = high - low
    counts[STATUS] = PROPERTIES_TO_CENTRE if high > low and width > 0.0 else PROPERTIES_FIXED
    if counts[STATUS] == PROPERTIES_FIXED:
        return
    for v in range(n):
        point[v] = (place[RANGE] * point[v] - place[LOW]) / width
    if keep:
        point[0], point[n - 1] = 0.0, 1.0
    segments.centre[its_variables] = point
    weights, limits = weights_of(polytopes, t, n)
    properties, first_constraint = polytopes.constraints, polytopes.constraints.starts[t]
    for index in range(len(limits)):
        constraint = first_constraint + index
        weights[index] = 0.0
        for term in range(properties.term_starts[constraint], properties.term_starts[constraint + 1]):
            product = properties.coefficient[term] * properties.multiple[term]
            weights[index, properties.variable[term]] += product
        size = 0.0
        for v in range(low, high):
            size = max(size, abs(weights[index, v]))
        slack = exact_slack(x, properties, constraint) * properties.bound_multiple[constraint]
        if np.isnan(slack):
            counts[STATUS] = PROPERTIES_NO_INTERIOR
        polytopes.sizes[constraint] = size
        if size == 0.0:  # no free variable has a coefficient: the constraint holds, whatever they are
            weights[index] = 0.0
            limits[index] = 1.0
            continue
        total = 0.0
        for v in range(n):
            weights[index, v] /= size
            total += weights[index, v] * point[v]
        # the limit follows from the exact slack at the source, and so is as exact as the slack
        limits[index] = math.ldexp(slack / size, SCALE_BITS - int(place[EXPONENT])) / width + total


# ------------------------------------------------------------------------------------ centre and start


@njit(cache=True, nogil=True)
def find_property_centres(start, stop, segments, tasks, polytopes, keep, steps):
    """Take up to `steps` Newton steps in each segment of tasks `start` to `stop` whose centre is wanted.

    Parameters
    ----------
    start, stop, tasks, polytopes, keep
        As for `prepare`.
    segments : Segments
        Written: `centre`, `newton` and the status in `counts`.
    steps : int
        Maximum number of steps per segment.
    """
    for task in range(start, stop):
        if segments.counts[tasks[task], STATUS] == PROPERTIES_TO_CENTRE:
            _find_centre(segments, tasks[task], polytopes, keep, steps)


@within
def _find_centre(segments, t, polytopes, keep, steps):
    """Run `find_property_centres` for segment t."""
    centre = segments.centre[segments.variable_starts[t] : segments.variable_starts[t + 1]]
    n = len(centre)
    polytope = _polytope_of(segments, t, polytopes, n, keep)
    status = advance_centre(centre, polytope, np.empty((0, n)), segments.newton[t], steps)
    if status == CENTRED:
        segments.counts[t, STATUS] = PROPERTIES_CENTRED
    elif status == NO_INTERIOR:
        segments.counts[t, STATUS] = PROPERTIES_NO_INTERIOR


@njit(cache=True, nogil=True)
def start_property_walks(start, stop, segments, tasks, polytopes, keep, law, from_data):
    """Round the polytopes of tasks `start` to `stop`, and put their walks at their starts.

    Parameters
    ----------
    start, stop, tasks, keep
        As for `prepare`.
    segments : Segments
        Written: `point`, and the status in `counts` if a polytope cannot be rounded.
    polytopes : PropertyPolytopes
        Written: `directions`.
    law : int
        ROUNDED, WHOLE_CHORD or FORWARD.
    from_data : bool
        Whether the walk starts at the source's values.
    """
    for task in range(start, stop):
        if segments.counts[tasks[task], STATUS] == PROPERTIES_CENTRED:
            _start_walk(segments, tasks[task], polytopes, keep, law, from_data)


@within
def _start_walk(segments, t, polytopes, keep, law, from_data):
    """Run `start_property_walks` for segment t."""
    its_variables = slice(segments.variable_starts[t], segments.variable_starts[t + 1])
    point, centre, counts = segments.point[its_variables], segments.centre[its_variables], segments.counts[t]
    n = len(point)
    polytope = _polytope_of(segments, t, polytopes, n, keep)
    if law == ROUNDED:
        flat = polytopes.directions[polytopes.direction_starts[t] : polytopes.direction_starts[t + 1]]
        directions = flat.reshape((counts[DIMENSIONS], n))
        if not round_directions(centre, polytope, np.empty((0, n)), directions):
            counts[STATUS] = PROPERTIES_NO_INTERIOR
            return
    place_start(point, centre, polytope, from_data)


# ------------------------------------------------------------------------------------ the walk


@njit(cache=True, nogil=True)
def walk_with_properties(
    start, stop, segments, tasks, polytopes, keep, law, iterations, total, first_step, last_step
):
    """Take steps `first_step` to `last_step` of the walks of tasks `start` to `stop`.

    Parameters
    ----------
    start, stop, tasks, polytopes, keep, law
        As for `start_property_walks`.
    segments : Segments
        Written: `point`, `trace` and WORDS in `counts`.
    iterations : int
        Steps of a walk per variable; not used unless `total` is 0.
    total : int
        Steps of a walk, or 0.
    first_step, last_step : int
        First step, a multiple of 1024, and the one after the last.
    """
    for task in range(start, stop):
        t = tasks[task]
        n = segments.variable_starts[t + 1] - segments.variable_starts[t]
        steps = total if total else iterations * n
        if segments.counts[t, STATUS] == PROPERTIES_CENTRED and first_step < steps:
            _walk(segments, t, n, polytopes, keep, law, first_step, min(steps, last_step))


@within
def _walk(segments, t, n, polytopes, keep, law, first_step, last_step):
    """Run `walk_with_properties` for segment t of n variables."""
    count = segments.counts[t, DIMENSIONS]
    polytope = _polytope_of(segments, t, polytopes, n, keep)
    flat = polytopes.directions[polytopes.direction_starts[t] : polytopes.direction_starts[t + 1]]
    directions = flat.reshape((count if len(flat) else 0, n))
    no_rates = np.empty((0, 0))  # a property's rate costs n operations anyway: rates are not stored
    walk_polytope(
        segments, t, polytope, np.empty((0, n)), count, law, first_step, last_step, directions, no_rates
    )


# ------------------------------------------------------------------------------------ arrays


def polytopes_of(
    constraints: PropertyConstraints, segments: Segments, rounded: bool, keep: bool
) -> PropertyPolytopes:
    """Allocate the arrays that `prepare` and `start_property_walks` write."""
    n = np.diff(segments.variable_starts)
    counts = np.diff(constraints.starts)
    free = np.maximum(n - 2, 0) if keep else n
    cells = np.where((counts > 0) & rounded, free * n, 0)
    weight_starts = np.concatenate([[0], np.cumsum(counts * n)]).astype(np.int64)
    direction_starts = np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)
    return PropertyPolytopes(
        constraints, weight_starts, np.zeros(int(weight_starts[-1])), np.zeros(int(counts.sum())),
        np.ones(int(counts.sum())), direction_starts, np.zeros(int(direction_starts[-1])),
    )  # fmt: skip
