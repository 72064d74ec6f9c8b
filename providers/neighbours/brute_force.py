"""Neighbours and donors of a row among an explicit list of candidates, by computing all distances.

The neighbourhood and the draws are those of `providers.neighbours.donors`.
"""

from typing import NamedTuple

import numpy as np

from providers.arrays import Float64Array, Int32Array
from providers.kernels.decorators import borrowing, inlined, within
from providers.neighbours.donors import (
    MOST_SORTED,
    WordBuffer,
    draw_from_list,
    insertion_sort,
    new_word_buffer,
    select_nth,
    squared_radius,
)

ROWS_PER_TASK = 64
"""Rows of one parallel task."""


class Scratch(NamedTuple):
    """Scratch space of the search for one row, in the form that kernels take."""

    squared: Float64Array
    """Squared distance of each candidate; shape (most candidates,)."""
    spare: Float64Array
    """Distances that are sorted or searched; shape (most candidates,)."""
    found: Int32Array
    """Neighbours; shape (most candidates,)."""
    buffer: WordBuffer
    """Words of the row's stream."""


@within
def new_scratch(most_candidates):
    """Allocate the scratch space for rows of at most `most_candidates` (int64) candidates."""
    return Scratch(
        np.empty(most_candidates),
        np.empty(most_candidates),
        np.empty(most_candidates, np.int32),
        new_word_buffer(),
    )


@inlined
def _squared_distance(points, row, other):
    """Squared distance of two rows, by the expression of `simd_distances`.

    `points` (`Points`) has all rows of the part. `row` (int64) and `other` (int32) are indices in the part.
    """
    numbers, codes = points.numbers, points.codes
    total = 0.0
    for field in range(numbers.shape[1]):
        difference = numbers[row, field] - numbers[other, field]
        total += difference * difference
    if codes.shape[1]:
        mismatches, missing = 0, 0
        for field in range(codes.shape[1]):
            if field < points.flags:
                mismatches += codes[row, field] != codes[other, field]
            else:
                missing += codes[row, field] != codes[other, field]
        total += points.weight * mismatches + 2.0 * missing
    return total


@borrowing
def _last_tied_row(kth, k, candidates, squared, tied):
    """Return the largest row number among the ties at the k-th distance that belong to the k nearest.

    Parameters
    ----------
    kth : float64
        The k-th smallest squared distance.
    k : int64
        Number of nearest rows.
    candidates, squared
        As for `_find_neighbours`.
    tied : int32, shape (candidates,) or more
        Scratch space.
    """
    nearer, ties = 0, 0
    for index in range(len(candidates)):
        if squared[index] < kth:
            nearer += 1
        elif squared[index] == kth:
            tied[ties] = candidates[index]
            ties += 1
    if ties <= MOST_SORTED:
        insertion_sort(tied, ties)
    return select_nth(tied, ties, k - nearer - 1)


@borrowing
def _find_neighbours(rule, candidates, scratch):
    """List the neighbours of a row among its candidates, and return their number.

    Parameters
    ----------
    rule : providers.neighbours.donors.NeighbourRule
    candidates : int32, shape (candidates,)
        Distinct rows without the row itself.
    scratch : Scratch
        Has the squared distances from the row, and receives the neighbours in the order of `candidates`.
    """
    squared, spare, found = scratch.squared, scratch.spare, scratch.found
    size = len(candidates)
    kth, radius, last_row = np.inf, np.inf, np.int32(-1)
    if size > rule.k:
        for index in range(size):
            spare[index] = squared[index]
        if size <= MOST_SORTED:
            insertion_sort(spare, size)
        kth = select_nth(spare, size, rule.k - 1)
        radius = squared_radius(rule, kth)
        if not rule.include_ties:
            last_row = _last_tied_row(kth, rule.k, candidates, squared, found)
    count = 0
    for index in range(size):
        is_among_k = squared[index] < kth or (squared[index] == kth and candidates[index] <= last_row)
        if squared[index] <= radius or is_among_k:
            found[count] = candidates[index]
            count += 1
    return count


@borrowing
def draw_for_row(points, row, identity, candidates, rule, keys, donors, sizes, scratch):
    """Draw a donor in each field for one row from its neighbourhood among some candidates.

    Parameters
    ----------
    points : Points
        Points of the part.
    row : int64
        Index of the row in the part.
    identity : int64
        Number of the row in the table.
    candidates : int32, shape (candidates,)
        Distinct rows of the part without the row itself.
    rule : NeighbourRule
    keys : uint32, shape (fields, 8)
        Key of each field.
    donors : uint32, shape (fields, n)
        First word of each field and row; replaced by the donor.
    sizes : int32, shape (n,)
        Receives the size of the row's neighbourhood.
    scratch : Scratch
        Written.
    """
    for index in range(len(candidates)):
        scratch.squared[index] = _squared_distance(points, row, candidates[index])
    sizes[row] = _find_neighbours(rule, candidates, scratch)
    draw_from_list(scratch.found, sizes[row], row, identity, keys, donors, scratch.buffer)
