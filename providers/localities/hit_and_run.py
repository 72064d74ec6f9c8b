"""Hit-and-run walk through the polytope.

A step draws a direction v and moves to a uniform point of the whole chord through z along it (section 4.1).
With the slacks s and their rates a along v, equation 5 gives the chord [-1 / max(a / s), -1 / min(a / s)]:
only the greatest and the least quotient are needed. Slacks are updated in the same pass that takes the next
step's quotients, and are computed afresh from z every 1024 steps.

Arguments of kernels
--------------------
segments : Segments
    Batch of segments. Kernels of one segment write the arrays that the kernel over a range of tasks or
    segments names; `_basis_of` and `_polytope_of` write none.
t : int
    Index of a segment in `segments`.
n : int
    Number of variables of segment t.
with_bounds, walks_ends : bool
    Whether the ends are variables, bounded by 0 and 1; else they are fixed at 0 and 1.
from_data : bool
    Whether the walk starts at the source's values; else it starts at the centre.
law : int
    ROUNDED, WHOLE_CHORD or FORWARD.
ties, sigma, selection
    As for `relations.choose_relations`: int, float and int.
steps : int
    Maximum number of Newton steps of one call.
flat : float64, shape (dimensions * n,) or (0,)
    Directions of one task, a row after the other. Written by `_make_ready` if `law` is ROUNDED.
flat_rates : float64, shape (dimensions * slacks,) or (0,)
    Rates of all slacks along each of these directions. Written at the same time.
directions, known_rates : float64, shapes (dimensions or 0, n) and (dimensions or 0, slacks)
    The same as matrices, in `_walk` and `walk_polytope`; without rows if they are not stored.
first_step, last_step : int
    First step of a walk, a multiple of 1024, and the one after the last.

References
----------
Smith 1984, Operations Research 32(6), doi:10.1287/opre.32.6.1296: hit-and-run.
Xue, Karras, Raissi and Pung 2011, CIKM: section 4.1, equations 1 to 5.
"""

from typing import Any, NamedTuple

import numpy as np

from providers.arrays import Float64Array
from providers.kernels.decorators import borrowing, borrowing_ieee_optimised, within
from providers.localities.lattice import lattice_of
from providers.localities.polytope import (
    Polytope,
    advance_centre,
    expand,
    least,
    move_equalities_last,
    rates,
    round_directions,
    slack_count,
    slacks,
)
from providers.localities.relations import BOTH_SIDED, DIRECTION_LEVEL, WALK_LEVEL, choose_relations
from providers.localities.segment_arrays import (
    CENTRED,
    CHOSEN,
    CONSTRAINTS,
    DIMENSIONS,
    FORWARD,
    FOUND,
    HIGH,
    INEQUALITIES,
    LOW,
    NO_INTERIOR,
    RANGE,
    ROUNDED,
    STATUS,
    TO_CENTRE,
    WORDS,
)
from providers.numba import njit
from providers.randomness.distributions import normals_in, room_for_normals, uniform
from providers.randomness.word_stream import bounded, next_word, open_stream, words_used

RENEWED = 1024
"""Number of steps after which the slacks are computed afresh."""

_FLOOR = 1e-290
"""Least slack that the walk uses: a slack that rounding has made 0 or negative only lets it turn away."""

QUOTIENT_LANES = 16
"""Number of quotients that `_update_slacks` takes at a time, so that the compiler uses vectors."""


@within
def _basis_of(segments, t, n):
    """Basis of the shapes with equal ties of segment t, shape (directions, n); empty without equal ties."""
    start, stop = segments.basis_starts[t], segments.basis_starts[t + 1]
    if start == stop:
        return np.empty((0, n))
    return segments.basis[start:stop].reshape((n, n))[: segments.counts[t, DIMENSIONS]]


@within
def _polytope_of(segments, t, n, with_bounds):
    """Polytope of segment t, without properties of interest, in n variables."""
    constraints = segments.constraints[:, segments.constraint_starts[t] : segments.constraint_starts[t + 1]]
    n_constraints = segments.counts[t, INEQUALITIES]
    return Polytope(constraints, n_constraints, with_bounds, np.empty((0, n)), np.empty(0))


@borrowing
def _source_shape(exact, units, values, first, last, shape):
    """Write the shape of the source's values, 0 at the first and 1 at the last, to `shape`.

    Parameters
    ----------
    exact, units, values, first, last
        As for `relations.choose_relations`.
    shape : float64, shape (variables,)
        Written.
    """
    n = len(values)
    for index in range(n):
        if n == 1:
            fraction = 0.0
        elif exact:
            fraction = np.float64(units[index] - units[0]) / np.float64(units[n - 1] - units[0])
        elif np.isinf(values[n - 1] - values[0]):
            fraction = (0.5 * values[index] - 0.5 * values[0]) / (0.5 * values[n - 1] - 0.5 * values[0])
        else:
            fraction = (values[index] - values[0]) / (values[n - 1] - values[0])
        for copy in range(first[index], last[index] + 1):
            shape[copy] = fraction
    shape[len(shape) - 1] = 1.0


# Kernels take a range of segments and release the GIL, so that threads work on ranges of their own. numba's
# parallel loops over a tuple of arrays take several times as long to compile, and lose assignments to them.


@njit(cache=True, nogil=True)
def extract(start, stop, segments, ties, sigma, selection):
    """Select the localities of segments `start` to `stop`, and put their points at the source's shapes.

    Parameters
    ----------
    start, stop : int
        First segment, and the one after the last.
    segments : Segments
        Written: `constraints`, `counts`, `point`, `centre` and, with ties kept equal, `lattice` and `basis`.
    ties, selection : int
        As for `relations.choose_relations`.
    sigma : float
        Share of the localities that is kept.
    """
    for t in range(start, stop):
        _extract(segments, t, ties, sigma, selection)


@within
def _extract(segments, t, ties, sigma, selection):
    """Run `extract` for segment t."""
    its_values = slice(segments.value_starts[t], segments.value_starts[t + 1])
    its_variables = slice(segments.variable_starts[t], segments.variable_starts[t + 1])
    units, values = segments.units[its_values], segments.values[its_values]
    first, last = segments.first[its_values], segments.last[its_values]
    exact, identity = segments.exact[t], segments.identities[t]
    constraints = segments.constraints[:, segments.constraint_starts[t] : segments.constraint_starts[t + 1]]
    counts = segments.counts[t]
    n_constraints, found, wanted = choose_relations(
        exact, units, values, ties, sigma, selection, first, last, segments.keys[t], identity, constraints
    )
    shape = segments.centre[its_variables]
    n = len(shape)
    _source_shape(exact, units, values, first, last, shape)
    point = segments.point[its_variables]
    point[:] = shape
    counts[INEQUALITIES] = counts[CONSTRAINTS] = n_constraints
    counts[FOUND], counts[CHOSEN] = found, wanted
    counts[DIMENSIONS] = max(0, n - 2)
    if n < 2:  # a single variable has no shape
        counts[STATUS] = CENTRED
    elif ties == BOTH_SIDED:
        counts[INEQUALITIES] = move_equalities_last(constraints, n_constraints)
        flat = slice(segments.basis_starts[t], segments.basis_starts[t + 1])
        lattice, basis = segments.lattice[flat].reshape((n, n)), segments.basis[flat].reshape((n, n))
        counts[DIMENSIONS] = lattice_of(constraints, counts[INEQUALITIES], n_constraints, lattice)
        for row in range(n):
            for column in range(n):
                basis[row, column] = lattice[row, column]
        if counts[DIMENSIONS] < 0:
            counts[STATUS] = NO_INTERIOR
    # a polytope of one point is its own centre
    if counts[DIMENSIONS] == 0 and counts[STATUS] == TO_CENTRE:
        counts[STATUS] = CENTRED


@njit(cache=True, nogil=True)
def find_centres(start, stop, segments, steps):
    """Take up to `steps` Newton steps in each segment from `start` to `stop` whose centre is wanted.

    Parameters
    ----------
    start, stop : int
        First segment, and the one after the last.
    segments : Segments
        Written: `centre`, `newton` and the status in `counts`.
    steps : int
        Maximum number of steps per segment.
    """
    for t in range(start, stop):
        if segments.counts[t, STATUS] == TO_CENTRE:
            _find_centre(segments, t, steps)


@within
def _find_centre(segments, t, steps):
    """Run `find_centres` for segment t."""
    centre = segments.centre[segments.variable_starts[t] : segments.variable_starts[t + 1]]
    n = len(centre)
    polytope, basis = _polytope_of(segments, t, n, False), _basis_of(segments, t, n)
    segments.counts[t, STATUS] = advance_centre(centre, polytope, basis, segments.newton[t], steps)


# ------------------------------------------------------------------------------------ before the walk


@within
def place_start(point, centre, polytope, from_data):
    """Put `point`, which is at the source, at the start of the walk: the source or the centre.

    If ties place the source on the boundary, from which a walk hardly gets away, the walk starts 1/1024 of
    the way from there to the centre.

    Parameters
    ----------
    point, centre : float64, shape (n,)
        Current point and analytic centre. `point` is written.
    polytope : Polytope
        Inequalities of the segment.
    from_data : bool
        Whether the walk starts at the source.
    """
    if not from_data:
        point[:] = centre
        return
    slack = np.empty(slack_count(polytope, len(point)))
    slacks(point, polytope, slack)
    if least(slack) <= 0.0:
        for v in range(len(point)):
            point[v] += 2.0**-10 * (centre[v] - point[v])


@within
def _start(segments, t, walks_ends, from_data):
    """Put the point of a centred segment t at the start of its walk.

    A walk through shapes starts at the source's shape or at the centre. If the ends are variables
    (`walks_ends`), bounded by 0 and 1, the shape of the start gets ends, too: the source's ends, or the ends
    of a centre in the middle with the mean span (n - 1) / (n + 1).
    """
    point = segments.point[segments.variable_starts[t] : segments.variable_starts[t + 1]]
    centre = segments.centre[segments.variable_starts[t] : segments.variable_starts[t + 1]].copy()
    n = len(point)
    if walks_ends:
        place = segments.place[t]
        width = place[HIGH] - place[LOW]
        for v in range(n):
            centre[v] = 1.0 / (n + 1) + (n - 1.0) / (n + 1) * centre[v]
            point[v] = (place[RANGE] * point[v] - place[LOW]) / width if width > 0.0 else centre[v]
    place_start(point, centre, _polytope_of(segments, t, n, walks_ends), from_data)


@njit(cache=True, nogil=True)
def make_ready(
    start, stop, segments, tasks, law, walks_ends, from_data, direction_starts, directions, rate_starts,
    all_rates,
):  # fmt: skip
    """Round the polytopes and put the walks of tasks `start` to `stop` at their starts.

    Parameters
    ----------
    start, stop : int
        First task, and the one after the last.
    segments : Segments
        Written: `point`, and the status in `counts` if a polytope cannot be rounded.
    tasks : int64, shape (tasks,)
        Segment of each task.
    law : int
        ROUNDED, WHOLE_CHORD or FORWARD.
    walks_ends : bool
        Whether the ends are variables of the walk.
    from_data : bool
        Whether the walk starts at the source's values.
    direction_starts, rate_starts : int64, shape (tasks + 1,)
        Starts in `directions` and `all_rates`.
    directions : float64
        Written: for each task its directions, one after the other.
    all_rates : float64
        Written: for each task that has cells here, the rates of all slacks along each direction.
    """
    for task in range(start, stop):
        if segments.counts[tasks[task], STATUS] == CENTRED:
            flat = directions[direction_starts[task] : direction_starts[task + 1]]
            flat_rates = all_rates[rate_starts[task] : rate_starts[task + 1]]
            _make_ready(segments, tasks[task], law, walks_ends, from_data, flat, flat_rates)


@within
def _make_ready(segments, t, law, walks_ends, from_data, flat, flat_rates):
    """Run `make_ready` for segment t with the cells of its directions and rates."""
    centre = segments.centre[segments.variable_starts[t] : segments.variable_starts[t + 1]]
    counts, n = segments.counts[t], len(centre)
    count = counts[DIMENSIONS]
    if law == ROUNDED and count > 0 and n > 1:
        polytope = _polytope_of(segments, t, n, False)
        directions = flat.reshape((count, n))
        if not round_directions(centre, polytope, _basis_of(segments, t, n), directions):
            counts[STATUS] = NO_INTERIOR
            return
        if len(flat_rates):
            known_rates = flat_rates.reshape((count, slack_count(polytope, n)))
            for index in range(count):
                rates(directions[index], polytope, known_rates[index])
    _start(segments, t, walks_ends, from_data)


# ------------------------------------------------------------------------------------ the walk


@borrowing_ieee_optimised
def _update_slacks(slack, step, previous, rate, top, bottom):
    """Add step * previous to the slacks; return the greatest and the least quotient rate / slack.

    Sixteen lanes have a greatest and a least of their own, so that the compiler uses vectors. The greatest
    does not depend on the order of comparisons.

    Parameters
    ----------
    slack : float64, shape (slacks,)
        Slacks before the last step; updated.
    step : float
        Length of the last step.
    previous, rate : float64, shape (slacks,)
        Rates of the slacks along the directions of the last and of the next step.
    top, bottom : float64, shape (16,)
        Scratch: greatest and least quotient of each lane.
    """
    for lane in range(QUOTIENT_LANES):
        top[lane] = bottom[lane] = 0.0
    vectorised = len(slack) // QUOTIENT_LANES * QUOTIENT_LANES
    for start in range(0, vectorised, QUOTIENT_LANES):
        for lane in range(QUOTIENT_LANES):
            index = start + lane
            left = slack[index] + step * previous[index]
            left = left if left > _FLOOR else _FLOOR
            slack[index] = left
            quotient = rate[index] / left
            top[lane] = quotient if quotient > top[lane] else top[lane]
            bottom[lane] = quotient if quotient < bottom[lane] else bottom[lane]
    greatest = smallest = 0.0
    for index in range(vectorised, len(slack)):
        left = max(slack[index] + step * previous[index], _FLOOR)
        slack[index] = left
        greatest, smallest = max(greatest, rate[index] / left), min(smallest, rate[index] / left)
    for lane in range(QUOTIENT_LANES):
        greatest, smallest = max(greatest, top[lane]), min(smallest, bottom[lane])
    return greatest, smallest


@borrowing
def _note_modes(trace, point, centre):
    """Add two slow modes of the point to the trace: its bend, and the difference of bend between its sides.

    `trace` is float64 (2, 6), as in `Segments`, and updated; `point` and `centre` are float64 (n,).
    """
    n = len(point)
    for mode in range(2):
        value = 0.0
        for v in range(n):
            value += (1.0 if mode == 0 else 2.0 * v - (n - 1)) * (point[v] - centre[v])
        of_mode = trace[mode]
        if of_mode[0] == 0.0:
            of_mode[1] = value
        else:
            of_mode[5] += of_mode[2] * value
        of_mode[0] += 1.0
        of_mode[2] = value
        of_mode[3] += value
        of_mode[4] += value * value


class WalkScratch(NamedTuple):
    """Scratch space of one walk, in the form that kernels take."""

    slack: Float64Array
    """Slacks of the inequalities; shape (slacks,)."""
    buffers: Float64Array
    """Rates of the slacks along the last and the next direction, 0 at first; shape (2, slacks)."""
    direction: Float64Array
    """Direction of a step; shape (n,)."""
    coefficients: Float64Array
    """Its coordinates in the basis; shape (dimensions,)."""
    lanes: Float64Array
    """Greatest and least quotient of each lane; shape (2, 16)."""
    normals: tuple[Any, ...]
    """Scratch space of `normals_in`."""


@within
def _walk_scratch(total, n, count):
    """Allocate the scratch space of a walk with `total` slacks in `count` dimensions (both int64)."""
    return WalkScratch(
        np.empty(total),
        np.zeros((2, total)),
        np.empty(n),
        np.empty(count),
        np.empty((2, QUOTIENT_LANES)),
        room_for_normals(),
    )


@borrowing_ieee_optimised
def take_steps(
    polytope, basis, point, centre, key, identity, draws, law, first_step, last_step, directions,
    known_rates, scratch, trace,
):  # fmt: skip
    """Take steps `first_step` to `last_step` of one walk, with or without properties of interest.

    Parameters
    ----------
    polytope : Polytope
        Inequalities of the segment.
    basis : float64, shape (directions, n)
        Directions that keep equal ties; empty for the free variables.
    point, centre : float64, shape (n,)
        Current point, moved in place; analytic centre.
    key : uint32, shape (8,)
        Random key of the field.
    identity : uint64
        Number of the segment.
    draws : uint32
        Open random stream of the walk.
    law : int
        ROUNDED, WHOLE_CHORD or FORWARD.
    first_step, last_step : int
        First step, a multiple of 1024, and the one after the last.
    directions : float64, shape (count, n)
        Directions of a ROUNDED walk.
    known_rates : float64, shape (count or 0, slacks)
        Rates of all slacks along each of the directions; empty if they are computed at every step.
    scratch : WalkScratch
        Written.
    trace : float64, shape (2, 6)
        Updated: slow modes, as in `Segments`.
    """
    slack, buffers, lanes = scratch.slack, scratch.buffers, scratch.lanes
    direction, coefficients = scratch.direction, scratch.coefficients
    n, count = len(point), len(coefficients)
    step, previous = 0.0, buffers[1]
    for number in range(first_step, last_step):
        if number % RENEWED == 0:
            slacks(point, polytope, slack)
            step = 0.0
        rate = buffers[number % 2]
        # walking direction dX, and the rates dV of the slacks along it (equation 4)
        if law == ROUNDED:
            chosen = bounded(draws, count)
            direction = directions[chosen]
            if len(known_rates):
                rate = known_rates[chosen]
            else:
                rates(direction, polytope, rate)
        else:
            address = number * ((count + 7) // 8 * 8)
            normals_in(scratch.normals, key, identity, np.uint32(DIRECTION_LEVEL), address, coefficients)
            expand(coefficients, polytope.with_bounds, basis, direction)
            rates(direction, polytope, rate)
        # walking length theta: uniform on the chord of equation 5, or on its forward half
        greatest, smallest = _update_slacks(slack, step, previous, rate, lanes[0], lanes[1])
        high, low = next_word(draws), next_word(draws)
        ahead = -1.0 / smallest
        if law == FORWARD:
            step = uniform(high, low) * ahead
        else:
            behind = -1.0 / greatest
            step = behind + uniform(high, low) * (ahead - behind)
        for v in range(n):
            point[v] += step * direction[v]
        previous = rate
        if (number + 1) % count == 0:  # once per sweep
            _note_modes(trace, point, centre)


@within
def walk_polytope(
    segments, t, polytope, basis, count, law, first_step, last_step, directions, known_rates
):  # fmt: skip
    """Take steps `first_step` to `last_step` of the walk of segment t, in `count` dimensions.

    `polytope`, `basis`, `law`, `directions` and `known_rates` are as in `take_steps`. Of `segments`,
    `point`, `trace` and WORDS in `counts` are written.
    """
    its_variables = slice(segments.variable_starts[t], segments.variable_starts[t + 1])
    point, centre = segments.point[its_variables], segments.centre[its_variables]
    n = len(point)
    key, identity = segments.keys[t], segments.identities[t]
    draws = open_stream(key, identity, WALK_LEVEL, segments.counts[t, WORDS])
    scratch = _walk_scratch(slack_count(polytope, n), n, count)
    take_steps(
        polytope, basis, point, centre, key, identity, draws, law, first_step, last_step, directions,
        known_rates, scratch, segments.trace[t],
    )  # fmt: skip
    segments.counts[t, WORDS] = words_used(draws)


@within
def _walk(segments, t, law, walks_ends, first_step, last_step, directions, known_rates):
    """Run `walk` for segment t."""
    n = segments.variable_starts[t + 1] - segments.variable_starts[t]
    count, basis = segments.counts[t, DIMENSIONS], _basis_of(segments, t, n)
    if walks_ends:
        start = segments.basis_starts[t]
        equal = start < segments.basis_starts[t + 1]
        # the lattice basis continues with a row that moves the last end, and one that shifts all values
        count = count + 2 if equal else n
        if equal:
            basis = segments.basis[start : start + n * n].reshape((n, n))[:count]
    polytope = _polytope_of(segments, t, n, walks_ends)
    walk_polytope(segments, t, polytope, basis, count, law, first_step, last_step, directions, known_rates)


@njit(cache=True, nogil=True)
def walk(
    start, stop, segments, tasks, law, walks_ends, iterations, total, first_step, last_step,
    direction_starts, directions, rate_starts, all_rates,
):  # fmt: skip
    """Take steps `first_step` to `last_step` of the walks of tasks `start` to `stop`.

    Parameters
    ----------
    start, stop : int
        First task, and the one after the last.
    segments : Segments
        Written: `point`, `trace` and WORDS in `counts`.
    tasks, law, walks_ends, direction_starts, directions, rate_starts, all_rates
        As for `make_ready`, which has written the directions and rates.
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
        count, n_constraints = segments.counts[t, DIMENSIONS], segments.counts[t, INEQUALITIES]
        steps = total if total else iterations * n
        is_walked = segments.counts[t, STATUS] == CENTRED and n > 1 and (count > 0 or walks_ends)
        if is_walked and first_step < steps:
            flat = directions[direction_starts[task] : direction_starts[task + 1]]
            flat_rates = all_rates[rate_starts[task] : rate_starts[task + 1]]
            known = count if len(flat) else 0
            known_rates = flat_rates.reshape((count if len(flat_rates) else 0, n_constraints + n - 1))
            last = min(steps, last_step)
            _walk(segments, t, law, walks_ends, first_step, last, flat.reshape((known, n)), known_rates)
