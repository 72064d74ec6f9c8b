"""The walk through the polytope: hit-and-run from the centre or from the data, many segments at a time.

A step draws a direction v and moves to a uniform point of the whole chord through z along it. With the
slacks s and their rates a along v, the chord is [-1 / max(a / s), -1 / min(a / s)]: the greatest and the
least of a quotient, whatever its sign. A step's slacks are put forward together with the next step's
quotients, in one pass; every 1024 steps they are computed anew from z.

References
----------
Smith 1984, Operations Research 32(6), doi:10.1287/opre.32.6.1296: hit-and-run.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from providers.draws import normals_in, room_for_normals, uniform
from providers.lattices import lattice_of
from providers.localities import (
    BOTH_SIDED,
    DIRECTION_LEVEL,
    WALK_LEVEL,
    borrowing,
    bounded,
    choose_relations,
    drawn_so_far,
    next_word,
    opened,
    within,
)
from providers.polytope import advance_centre, equalities_last, least, rates, round_directions, spread_out

borrowing_ieee = njit(
    cache=True, nogil=True, _nrt=False, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
)

ROUNDED, WHOLE_CHORD, FORWARD = 0, 1, 2
"""The directions' law: rows of the inverse Cholesky factor, or Gaussian; FORWARD: only half the chord."""

RENEWED = 1024
"""Steps after which the slacks are computed anew."""

_FLOOR = 1e-290
"""A slack that rounding has made 0 or negative counts as this: the walk can only turn away from its row."""
_LANES = 16


class Segments(NamedTuple):
    """Segments of one or several fields, end to end: segment t has ``starts[t]`` up to ``starts[t + 1]``."""

    keys: Any
    """uint32, shape (segments, 8): of the segment's field."""
    identities: Any
    """uint64, shape (segments,): the segment's number."""
    exact: Any
    """bool, shape (segments,): whether the values are whole units."""
    starts: Any
    """int64, shape (segments + 1,): of the distinct values, in `units`, `values`, `first` and `last`."""
    units: Any
    """uint64: sorted distinct values as whole units, where `exact`."""
    values: Any
    """float64: sorted distinct values."""
    first: Any
    """int64: the first variable of a distinct value."""
    last: Any
    """int64: the last."""
    variables: Any
    """int64, shape (segments + 1,): starts of the variables, in `point`, `centre` and `x`."""
    point: Any
    """float64: where the walk is."""
    centre: Any
    """float64: the analytic centre."""
    x: Any
    """float64: the destination's values."""
    rows_at: Any
    """int64, shape (segments + 1,): starts of the rows."""
    rows: Any
    """int32, shape (4, rows): i, j, k and sense."""
    counts: Any
    """int64, shape (segments, 7): rows but `=`, rows, relations found, chosen, dimensions, words drawn; and
    the status: 0 to be centred, 1 centred, -1 without an interior."""
    newton: Any
    """float64, shape (segments, 3): the state of `advance_centre`."""
    basis_at: Any
    """int64, shape (segments + 1,): starts of the bases; all 0 unless ties are kept equal."""
    lattice: Any
    """int64: for each segment a basis of the integer points with equal ties, see `lattice_of`."""
    basis: Any
    """float64: the same, as directions of the walk."""
    trace: Any
    """float64, shape (segments, 2, 6): of each slow mode count, first, last, sum, squares, products."""
    place: Any
    """float64, shape (segments, 8): see `providers.publication`."""


@within
def _basis_of(segments, t, n):
    """The directions of the walk with equal ties, one a row; none: every inner variable."""
    start, stop = segments.basis_at[t], segments.basis_at[t + 1]
    if start == stop:
        return np.empty((0, n))
    return segments.basis[start:stop].reshape((n, n))[: segments.counts[t, 4]]


@borrowing
def data_shape(exact, units, values, first, last, shape):
    """The shape of the source's values: 0 at the first, 1 at the last."""
    n = len(values)
    for at in range(n):
        if n == 1:
            part = 0.0
        elif exact:
            part = np.float64(units[at] - units[0]) / np.float64(units[n - 1] - units[0])
        elif np.isinf(values[n - 1] - values[0]):
            part = (0.5 * values[at] - 0.5 * values[0]) / (0.5 * values[n - 1] - 0.5 * values[0])
        else:
            part = (values[at] - values[0]) / (values[n - 1] - values[0])
        for copy in range(first[at], last[at] + 1):
            shape[copy] = part
    shape[len(shape) - 1] = 1.0


# Kernels work on a range of segments, and hold no lock: threads take ranges of their own. numba's parallel
# loops over a tuple of arrays take several times as long to compile, and lose what is assigned to its arrays.


@njit(cache=True, nogil=True)
def extract(start, stop, segments, ties, sigma):
    """Draw the relations of these segments, and put the points at the source's shapes."""
    for t in range(start, stop):
        _extract(segments, t, ties, sigma)


@within
def _extract(segments, t, ties, sigma):
    here = slice(segments.starts[t], segments.starts[t + 1])
    units, values = segments.units[here], segments.values[here]
    first, last = segments.first[here], segments.last[here]
    exact, identity = segments.exact[t], segments.identities[t]
    rows = segments.rows[:, segments.rows_at[t] : segments.rows_at[t + 1]]
    counts = segments.counts[t]
    written, found, wanted = choose_relations(
        exact, units, values, ties, sigma, first, last, segments.keys[t], identity, rows
    )
    shape = segments.centre[segments.variables[t] : segments.variables[t + 1]]
    n = len(shape)
    data_shape(exact, units, values, first, last, shape)
    point = segments.point[segments.variables[t] : segments.variables[t + 1]]
    point[:] = shape
    counts[0] = counts[1] = written
    counts[2], counts[3] = found, wanted
    counts[4] = max(0, n - 2)
    if n < 2:
        counts[6] = 1
    elif ties == BOTH_SIDED:
        counts[0] = equalities_last(rows, written)
        flat = slice(segments.basis_at[t], segments.basis_at[t + 1])
        lattice, basis = segments.lattice[flat].reshape((n, n)), segments.basis[flat].reshape((n, n))
        counts[4] = lattice_of(rows, counts[0], written, lattice)
        for row in range(n):
            for column in range(n):
                basis[row, column] = lattice[row, column]
        if counts[4] < 0:
            counts[6] = -1
    if counts[4] == 0 and counts[6] == 0:
        counts[6] = 1


@njit(cache=True, nogil=True)
def find_centres(start, stop, segments, steps):
    """Take up to so many Newton steps in each of these segments that is not centred."""
    for t in range(start, stop):
        if segments.counts[t, 6] == 0:
            _find_centre(segments, t, steps)


@within
def _find_centre(segments, t, steps):
    centre = segments.centre[segments.variables[t] : segments.variables[t + 1]]
    rows = segments.rows[:, segments.rows_at[t] : segments.rows_at[t + 1]]
    basis, counts = _basis_of(segments, t, len(centre)), segments.counts[t]
    counts[6] = advance_centre(centre, rows, counts[0], basis, segments.newton[t], steps)


# ------------------------------------------------------------------------------------ before the walk


@borrowing
def _slacks(point, rows, written, whole, slack):
    """The slacks at a point, none below the floor; `whole`: also of the two bounds, 0 and 1."""
    rates(point, rows, written, slack)
    if whole:
        slack[-2], slack[-1] = point[0], 1.0 - point[-1]


@within
def _start(segments, t, rows, whole, from_data):
    """Put the point of a centred segment where its walk begins.

    A walk through shapes begins at the source's shape or at the centre. A walk through the `whole`
    polytope, where 0 and 1 are the bounds, begins at the source or at the centre, in their middle, with
    the mean span (n - 1) / (n + 1). Where ties put the source on the boundary, from which a walk hardly
    gets away, it begins 1/1024 of the way from there to the centre.
    """
    point = segments.point[segments.variables[t] : segments.variables[t + 1]]
    centre = segments.centre[segments.variables[t] : segments.variables[t + 1]].copy()
    n, written = len(point), segments.counts[t, 0]
    if whole:
        place = segments.place[t]
        width = place[2] - place[1]
        for at in range(n):
            centre[at] = 1.0 / (n + 1) + (n - 1.0) / (n + 1) * centre[at]
            point[at] = (place[3] * point[at] - place[1]) / width if width > 0.0 else centre[at]
    if not from_data:
        point[:] = centre
        return
    slack = np.empty(written + n - 1 + 2 * whole)
    _slacks(point, rows, written, whole, slack)
    if least(slack) <= 0.0:
        for at in range(n):
            point[at] += 2.0**-10 * (centre[at] - point[at])


@njit(cache=True, nogil=True)
def make_ready(
    start, stop, segments, tasks, law, whole, from_data, directions_at, directions, rates_at, all_rates
):
    """Round the polytopes and put the walks of these of the tasks' segments at their starts.

    Segment ``tasks[nth]`` has its directions at ``directions_at[nth]``, one after the other, and, where
    there is room, the rate of every slack along each of them at ``rates_at[nth]``.
    """
    for nth in range(start, stop):
        if segments.counts[tasks[nth], 6] == 1:
            flat = directions[directions_at[nth] : directions_at[nth + 1]]
            every = all_rates[rates_at[nth] : rates_at[nth + 1]]
            _make_ready(segments, tasks[nth], law, whole, from_data, flat, every)


@within
def _make_ready(segments, t, law, whole, from_data, flat, flat_rates):
    rows = segments.rows[:, segments.rows_at[t] : segments.rows_at[t + 1]]
    centre = segments.centre[segments.variables[t] : segments.variables[t + 1]]
    counts, n = segments.counts[t], len(centre)
    written, count = counts[0], counts[4]
    if law == ROUNDED and count > 0 and n > 1:
        directions = flat.reshape((count, n))
        if not round_directions(centre, rows, written, _basis_of(segments, t, n), directions):
            counts[6] = -1
            return
        if len(flat_rates):
            every = flat_rates.reshape((count, written + n - 1))
            for one in range(count):
                rates(directions[one], rows, written, every[one])
    _start(segments, t, rows, whole, from_data)


# ------------------------------------------------------------------------------------ the walk


@borrowing_ieee
def _put_forward(slack, step, previous, rate, top, bottom):
    """Slack += step * previous; returns the greatest and the least of rate / slack.

    In lanes, each with a greatest and a least of its own (`top` and `bottom`, scratch): the compiler
    makes vectors of them. Which is greatest does not depend on the order.
    """
    for lane in range(_LANES):
        top[lane] = bottom[lane] = 0.0
    together = len(slack) // _LANES * _LANES
    for start in range(0, together, _LANES):
        for lane in range(_LANES):
            at = start + lane
            left = slack[at] + step * previous[at]
            left = left if left > _FLOOR else _FLOOR
            slack[at] = left
            quotient = rate[at] / left
            top[lane] = quotient if quotient > top[lane] else top[lane]
            bottom[lane] = quotient if quotient < bottom[lane] else bottom[lane]
    greatest = smallest = 0.0
    for at in range(together, len(slack)):
        left = max(slack[at] + step * previous[at], _FLOOR)
        slack[at] = left
        greatest, smallest = max(greatest, rate[at] / left), min(smallest, rate[at] / left)
    for lane in range(_LANES):
        greatest, smallest = max(greatest, top[lane]), min(smallest, bottom[lane])
    return greatest, smallest


@borrowing
def _note(trace, point, centre):
    """Add the point's slow modes to the trace: how far it is bent, and how much more so on one side."""
    n = len(point)
    for mode in range(2):
        value = 0.0
        for at in range(n):
            value += (1.0 if mode == 0 else 2.0 * at - (n - 1)) * (point[at] - centre[at])
        mine = trace[mode]
        if mine[0] == 0.0:
            mine[1] = value
        else:
            mine[5] += mine[2] * value
        mine[0] += 1.0
        mine[2] = value
        mine[3] += value
        mine[4] += value * value


@borrowing
def _gaussian(room, key, identity, number, basis, every_variable, coefficients, direction):
    """The Gaussian direction of step `number`: of all variables, or of the basis' directions."""
    free = len(coefficients)
    first = number * ((free + 7) // 8 * 8)
    normals_in(room, key, identity, np.uint32(DIRECTION_LEVEL), first, coefficients)
    if every_variable:
        for at in range(free):
            direction[at] = coefficients[at]
    else:
        spread_out(coefficients, basis, direction)


@within
def _walk(segments, t, law, whole, first_step, last_step, directions, every):
    """Walk one segment from `first_step`, a multiple of 1024, up to `last_step`; see `walk`."""
    here = slice(segments.variables[t], segments.variables[t + 1])
    point, centre = segments.point[here], segments.centre[here]
    rows = segments.rows[:, segments.rows_at[t] : segments.rows_at[t + 1]]
    n, written, count = len(point), segments.counts[t, 0], segments.counts[t, 4]
    basis = _basis_of(segments, t, n)
    equal = segments.basis_at[t] < segments.basis_at[t + 1]
    if whole:
        count = count + 2 if equal else n
        if equal:
            start = segments.basis_at[t]
            basis = segments.basis[start : start + n * n].reshape((n, n))[:count]
    key, identity = segments.keys[t], segments.identities[t]
    draws = opened(key, identity, WALK_LEVEL, segments.counts[t, 5])
    total = written + n - 1 + 2 * whole
    slack, buffers = np.empty(total), np.zeros((2, total))
    direction, coefficients = np.empty(n), np.empty(count)
    _take_steps(
        point, centre, rows, written, key, identity, draws, law, whole, equal, basis, first_step, last_step,
        directions, every, slack, buffers, direction, coefficients, np.empty((2, _LANES)),
        room_for_normals(), segments.trace[t],
    )  # fmt: skip
    segments.counts[t, 5] = drawn_so_far(draws)


@borrowing_ieee
def _take_steps(
    point, centre, rows, written, key, identity, draws, law, whole, equal, basis, first_step, last_step,
    directions, every, slack, buffers, direction, coefficients, lanes, room, trace,
):  # fmt: skip
    """The steps of `_walk`; from `slack` to `room` is scratch, `buffers` all 0."""
    n, count = len(point), len(coefficients)
    step, previous = 0.0, buffers[1]
    for number in range(first_step, last_step):
        if number % RENEWED == 0:
            _slacks(point, rows, written, whole, slack)
            step = 0.0
        rate = buffers[number % 2]
        if law == ROUNDED:
            chosen = bounded(draws, count)
            direction = directions[chosen]
            if len(every):
                rate = every[chosen]
            else:
                rates(direction, rows, written, rate)
        else:
            _gaussian(room, key, identity, number, basis, whole and not equal, coefficients, direction)
            rates(direction, rows, written, rate)
            if whole:
                rate[-2], rate[-1] = direction[0], -direction[-1]
        greatest, smallest = _put_forward(slack, step, previous, rate, lanes[0], lanes[1])
        high, part = next_word(draws), next_word(draws)
        ahead = -1.0 / smallest
        if law == FORWARD:
            step = uniform(high, part) * ahead
        else:
            behind = -1.0 / greatest
            step = behind + uniform(high, part) * (ahead - behind)
        for at in range(n):
            point[at] += step * direction[at]
        previous = rate
        if (number + 1) % count == 0:
            _note(trace, point, centre)


@njit(cache=True, nogil=True)
def walk(
    start, stop, segments, tasks, law, whole, iterations, total, first_step, last_step,
    directions_at, directions, rates_at, all_rates,
):  # fmt: skip
    """Take steps `first_step` (a multiple of 1024) up to `last_step` of each of these of the tasks' walks.

    A walk has `iterations` steps for each variable or, where `total` is not 0, `total` steps.
    """
    for nth in range(start, stop):
        t = tasks[nth]
        n = segments.variables[t + 1] - segments.variables[t]
        count, written = segments.counts[t, 4], segments.counts[t, 0]
        steps = total if total else iterations * n
        if segments.counts[t, 6] == 1 and n > 1 and (count > 0 or whole) and first_step < steps:
            flat = directions[directions_at[nth] : directions_at[nth + 1]]
            flat_rates = all_rates[rates_at[nth] : rates_at[nth + 1]]
            known = count if len(flat) else 0
            every = flat_rates.reshape((count if len(flat_rates) else 0, written + n - 1))
            last = min(steps, last_step)
            _walk(segments, t, law, whole, first_step, last, flat.reshape((known, n)), every)
