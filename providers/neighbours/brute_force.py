"""Neighbours and donors of a row among an explicit list of candidates, by computing all distances.

The neighbourhood and the draws are those of `providers.neighbours.donors`.
"""

import numpy as np

from providers.kernels.decorators import borrowing, inlined
from providers.neighbours.donors import (
    MOST_SORTED,
    draw_from_list,
    insertion_sort,
    select_nth,
    squared_radius,
)

ROWS_PER_TASK = 64
"""Rows of one parallel task."""


@inlined
def _squared_distance(numbers, codes, flags, weight, row, other):
    """Squared distance of two rows, by the expression of `simd_distances`.

    `numbers`, `codes`, `flags` and `weight` are those of `draw_for_row`. `row` (int64) and `other` (int32)
    are indices of the rows in the part.
    """
    total = 0.0
    for field in range(numbers.shape[1]):
        difference = numbers[row, field] - numbers[other, field]
        total += difference * difference
    if codes.shape[1]:
        mismatches, missing = 0, 0
        for field in range(codes.shape[1]):
            if field < flags:
                mismatches += codes[row, field] != codes[other, field]
            else:
                missing += codes[row, field] != codes[other, field]
        total += weight * mismatches + 2.0 * missing
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
def _find_neighbours(rule, candidates, squared, spare, found):
    """List the neighbours of a row among its candidates, and return their number.

    Parameters
    ----------
    rule : providers.neighbours.donors.NeighbourRule
    candidates : int32, shape (candidates,)
        Distinct rows without the row itself.
    squared : float64, shape (candidates,) or more
        Squared distances from the row.
    spare : float64, shape (candidates,) or more
        Scratch space.
    found : int32, shape (candidates,) or more
        Receives the neighbours, in the order of `candidates`.
    """
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


@inlined
def draw_for_row(
    numbers, codes, flags, weight, row, identity, candidates, rule, keys, donors, sizes, squared, spare,
    found, used, words, address, block,
):  # fmt: skip
    """Draw a donor in each field for one row from its neighbourhood among some candidates.

    Parameters
    ----------
    numbers : float64, shape (n, numbers)
        Numbers of the points of the part.
    codes : int32, shape (n, codes)
        Codes of the points.
    flags : int64
        Index of the first code that is a missing flag.
    weight : float64
        Squared distance of two different categories.
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
    squared, spare : float64, shape (candidates,) or more
        Scratch space.
    found : int32, shape (candidates,) or more
        Scratch space.
    used, words, address, block
        Scratch space of a stream of random words, as in `providers.neighbours.donors`; written.
    """
    for index in range(len(candidates)):
        squared[index] = _squared_distance(numbers, codes, flags, weight, row, candidates[index])
    sizes[row] = _find_neighbours(rule, candidates, squared, spare, found)
    draw_from_list(found, sizes[row], row, identity, keys, donors, used, words, address, block)
