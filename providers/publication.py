"""From where the walks ended to published values: ends, repair, rounding, and the check of every relation.

The check is of the very numbers that are published, with no tolerance. Where rounding to float64 broke a
row, the shape is pulled towards the centre, by halves; where even the centre does not hold, since float64
cannot tell the values apart, all of the segment's values become one, which keeps every relation.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from providers.lattices import FINE, grid_rows_hold, on_lattice, walk_on_grid
from providers.localities import (
    COPIES_LEVEL,
    ENDS_LEVEL,
    borrowing,
    bounded,
    judge,
    opened,
    rows_hold,
    uniform_of,
    within,
)

SEGMENT, COLUMN, KEEP = 0, 1, 2
"""What the ends of a segment are."""

FIRST, LOW, HIGH, RANGE, LAST, DOMAIN_LOW, DOMAIN_HIGH, EXPONENT = range(8)
"""Places in `Segments.place`: the first value; the bounds and the range, from the first value on; the last
value; the domain; all by 2**exponent."""

REPAIRED, COLLAPSED, NOT_ROUNDED = 1, 2, 4
"""Marks of a segment: pulled towards the centre, made one value, left off the grid."""

_PULLS = 30


class Grid(NamedTuple):
    """Where published values are whole steps of 10**-decimals."""

    steps: float
    """Steps in one: 10**decimals; 0 where values are not rounded."""
    whole: Any
    """bool, shape (segments,): whether the values are published as steps from the first, not as float64."""
    factor: Any
    """int64, shape (segments,): steps in a unit of the source's values; 0 where those are no whole units."""
    origin: Any
    """int64, shape (segments,): the first value in steps, where `factor`; else 0."""
    bounds: Any
    """int64, shape (segments, 2): the least and greatest step that is published, from the origin on."""
    sweeps: int
    """Times that a walk on the grid goes through the variables."""


@within
def _ends(segments, t, shape, bounds, whole):
    """Draw the first value, from the source's first on, and the span; `shape` is made a shape, 0 to 1."""
    place, n = segments.place[t], len(shape)
    width = place[HIGH] - place[LOW]
    draws = opened(segments.keys[t], segments.identities[t], ENDS_LEVEL, 0)
    if bounds == KEEP and n > 1:
        return 0.0, place[RANGE]
    if n == 1:
        return 0.0 if bounds == KEEP else place[LOW] + uniform_of(draws) * width, 0.0
    if whole:
        start, span = shape[0], shape[n - 1] - shape[0]
        for at in range(n):
            shape[at] = (shape[at] - start) / span if span > 0.0 else 0.0
        return place[LOW] + width * start, width * span
    one, two, three = uniform_of(draws), uniform_of(draws), uniform_of(draws)
    span = width * (one ** (1.0 / (n - 1)) * two ** (1.0 / n))  # Beta(n - 1, 2), see providers.polytope
    return place[LOW] + three * (width - span), span


@borrowing
def _put(place, ends, shape, first, span, x):
    """The float64 numbers of a shape with these ends, within the domain."""
    n = len(x)
    for at in range(n):
        value = place[FIRST] + (first + span * shape[at])
        value = min(max(value, place[DOMAIN_LOW]), place[DOMAIN_HIGH])
        x[at] = math.ldexp(value, int(place[EXPONENT]))
    if ends[2] != 0.0:
        x[0], x[n - 1] = ends[0], ends[1]


@within
def _put_on_lattice(place, lattice, count, shape, first, span, x):
    """The float64 numbers of a shape whose ties are equal to the last bit; False where there are none."""
    points = np.empty(len(x), np.int64)
    if not on_lattice(shape, place[FIRST] + first, span, lattice, count, points):
        return False
    for at in range(len(x)):
        value = np.float64(points[at]) * 2.0**-FINE
        if not place[DOMAIN_LOW] <= value <= place[DOMAIN_HIGH] or abs(points[at]) > 2**53:
            return False
        x[at] = math.ldexp(value, int(place[EXPONENT]))
    return True


@within
def _publish(segments, t, bounds, whole, x):
    """Write the segment's values to `x`, ascending and every row kept; returns its mark, first and span.

    `Segments.point` is left at the shape that is published.
    """
    here = slice(segments.variables[t], segments.variables[t + 1])
    shape, centre = segments.point[here].copy(), segments.centre[here]
    rows = segments.rows[:, segments.rows_at[t] : segments.rows_at[t + 1]]
    values = segments.values[segments.starts[t] : segments.starts[t + 1]]
    place, n, written = segments.place[t], len(x), segments.counts[t, 1]
    first, span = _ends(segments, t, shape, bounds, whole)
    ends = np.array([values[0], values[-1], 1.0 if bounds == KEEP else 0.0])
    start, stop = segments.basis_at[t], segments.basis_at[t + 1]
    pulled = shape.copy()
    for pull in range(_PULLS + 1 if segments.counts[t, 6] == 1 else 0):
        if pull:
            weight = 2.0**-pull if pull < _PULLS else 0.0
            for at in range(n):
                pulled[at] = centre[at] + weight * (shape[at] - centre[at])
        if start < stop and n > 1:
            lattice = segments.lattice[start:stop].reshape((n, n))
            inside = span * 2.0**-20 if pull else 0.0  # the domain's ends may lie off the lattice
            put = _put_on_lattice(
                place, lattice, segments.counts[t, 4], pulled, first + 0.5 * inside, span - inside, x
            )
        else:
            _put(place, ends, pulled, first, span, x)
            put = True
        if put and rows_hold(x, rows, written):
            segments.point[here] = pulled
            return (REPAIRED if pull else 0), first, span
    pulled[:] = 0.5
    ends[2] = 0.0
    _put(place, ends, pulled, first, span, x)
    segments.point[here] = pulled
    return COLLAPSED, first, span


@borrowing
def _nearest(exact, place, value, steps):
    """The grid point nearest to a value, given from the source's first on: from there, or from 0."""
    if not exact:
        value += place[FIRST]
    return np.int64(np.rint(math.ldexp(value, int(place[EXPONENT])) * steps))


@within
def _round(segments, t, bounds, grid, collapsed, first_value, span, x):
    """Put the segment's values on the grid, every row kept; returns whether that was possible.

    The values are rounded. Where that breaks a row, a walk on the grid begins at the rounded centre or,
    where that breaks one as well, at the source's own values.
    """
    here = slice(segments.starts[t], segments.starts[t + 1])
    units, values, exact = segments.units[here], segments.values[here], grid.factor[t] > 0
    first, last = segments.first[here], segments.last[here]
    rows = segments.rows[:, segments.rows_at[t] : segments.rows_at[t + 1]]
    variables = slice(segments.variables[t], segments.variables[t + 1])
    shape, centre = segments.point[variables], segments.centre[variables]
    place, n, written = segments.place[t], len(x), segments.counts[t, 1]
    low, high = grid.bounds[t]
    margin = 0 if grid.whole[t] or grid.steps == 1.0 else 1  # float64 has not every decimal exactly
    source, points, off_grid = np.empty(n, np.int64), np.empty(n, np.int64), x.copy()
    for at in range(len(values)):
        if exact:
            step = np.int64(units[at] - units[0]) * grid.factor[t]
        else:
            step = np.int64(np.rint(values[at] * grid.steps))
        for copy in range(first[at], last[at] + 1):
            source[copy] = step
    for attempt in range(1 if collapsed else 0, 3):
        for at in range(n):
            part = shape[at] if attempt == 0 else centre[at]
            points[at] = _nearest(exact, place, first_value + span * part, grid.steps)
            points[at] = min(max(points[at], low), high)
        if attempt == 2:
            points[:] = source
        elif bounds == KEEP:
            points[0], points[n - 1] = source[0], source[n - 1]
        if grid_rows_hold(points, rows, written, low, high):
            if attempt:
                key, identity = segments.keys[t], segments.identities[t]
                walk_on_grid(
                    points, rows, written, low, high, margin, bounds == KEEP, grid.sweeps, key, identity
                )
            for at in range(n):
                x[at] = points[at] if grid.whole[t] else (grid.origin[t] + points[at]) / grid.steps
            if rows_hold(x, rows, written):
                return True
    x[:] = off_grid
    return False


@njit(cache=True, nogil=True)
def publish(start, stop, segments, ties, bounds, whole, spread, grid, marks, judged):
    """Publish these segments, and judge what it keeps of its relations.

    Parameters
    ----------
    spread : bool
        Whether duplicates are variables of their own: then each run of them is put in a random order.
    marks : int64, shape (segments,)
        Written: what happened to the segment.
    judged : int64, shape (segments, 2)
        Written: relations found that hold, and chosen ones that do not.
    """
    for t in range(start, stop):
        _publish_and_judge(segments, t, ties, bounds, whole, spread, grid, marks, judged)


@within
def _publish_and_judge(segments, t, ties, bounds, whole, spread, grid, marks, judged):
    here = slice(segments.starts[t], segments.starts[t + 1])
    first, last = segments.first[here], segments.last[here]
    key, identity = segments.keys[t], segments.identities[t]
    x = segments.x[segments.variables[t] : segments.variables[t + 1]]
    marks[t], first_value, span = _publish(segments, t, bounds, whole, x)
    if grid.steps > 0.0:
        if not _round(segments, t, bounds, grid, marks[t] == COLLAPSED, first_value, span, x):
            marks[t] |= NOT_ROUNDED
        elif marks[t] == COLLAPSED:
            marks[t] = 0
    judged[t, 0], judged[t, 1] = judge(
        segments.exact[t], segments.units[here], segments.values[here],
        ties, segments.counts[t, 2], segments.counts[t, 3], first, last, key, identity, x,
    )  # fmt: skip
    if spread:
        draws = opened(key, identity, COPIES_LEVEL, 0)
        for run in range(len(first)):
            for at in range(last[run] - first[run], 0, -1):
                other = bounded(draws, at + 1)
                one, two = first[run] + at, first[run] + other
                x[one], x[two] = x[two], x[one]
