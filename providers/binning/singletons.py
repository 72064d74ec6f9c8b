"""Merge singletons, bins of one row, into the nearest larger bin.

The nearest bin is the one with the nearest mean, measured in cell widths; ties go to the cell that comes
first. The search is exact and uses a k-d tree over the means: O(log bins) per row in few fields, more in
many.

References
----------
Friedman, Bentley and Finkel 1977, doi:10.1145/355744.355745: the k-d tree with bounds.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from providers.arrays import Float64Array, IndexArray, Int64Array
from providers.binning.grid import Axis
from providers.binning.mean_tree import AT_ONCE, MeanTree
from providers.binning.values import FieldValues
from providers.grouping.groups import Groups
from providers.kernels.parallel import parallel
from providers.kernels.pointers import addresses_of, float_at
from providers.kernels.radix_sort import radix_order
from providers.numba import prange
from providers.progress import Progress, no_progress
from providers.results import Event

_FEW = 1024
"""Number of singletons below which only the means of candidate bins are computed, not of all bins."""

NOTHING_TO_MERGE_INTO = Event(
    "nothing_to_merge_into",
    "no bin holds two or more rows, so that no singleton can be merged: widen the cells",
)
"""Event of a run in which all bins are singletons."""


def merge_singletons(
    fields: Sequence[FieldValues],
    axes: Sequence[Axis],
    order: IndexArray,
    starts: Int64Array,
    progress: Progress,
) -> Groups:
    """Return the bins of two or more rows, each with the singletons to which it is nearest.

    Parameters
    ----------
    fields : sequence of FieldValues
    axes : sequence of Axis
        The grid.
    order, starts : ndarrays of int
        Rows by cell, as returned by `rows_by_cell`; at least one bin holds two rows.
    progress : Progress
    """
    sizes = np.diff(starts)
    singletons = order[starts[:-1][sizes == 1]]
    bins = np.flatnonzero(sizes > 1)
    used, cuts = widths_of(axes)
    columns = [fields[number].values for number in used]
    points = _in_widths(columns, singletons, cuts)
    means = partial(_means, columns, order, starts, cuts, progress)
    if len(singletons) < min(_FEW, len(bins) // 4):
        corners = np.floor(_in_widths(columns, order[starts[bins]], cuts))
        last = np.array([axes[number].last for number in used])
        centres = np.minimum(corners, last) + 0.5
        candidates = _candidate_bins(points, centres, lambda numbers: means(bins[numbers]))
    else:
        candidates = np.arange(len(bins))
    nearest = candidates[MeanTree(means(bins[candidates]), progress).nearest(points, progress)]
    by_bin = radix_order([nearest.astype(np.uint64), singletons.astype(np.uint64)])
    counts = np.bincount(nearest, minlength=len(bins))
    joining_starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    merged_starts = np.concatenate(([0], np.cumsum(sizes[bins]))).astype(np.int64) + joining_starts
    merged = np.empty_like(order)
    _merge_rows(order, starts, bins, singletons[by_bin], joining_starts, merged_starts, merged)
    return Groups(len(order), merged, merged_starts, merged[merged_starts[:-1]].astype(np.uint64))


def widths_of(axes: Sequence[Axis]) -> tuple[list[int], Float64Array]:
    """Return the indices of the fields that vary, and origin and width of each, shape (varying, 2)."""
    used = [number for number, axis in enumerate(axes) if axis.width > 0]
    return used, np.array([(axes[number].origin, axes[number].width) for number in used]).reshape(-1, 2)


def _in_widths(columns: Sequence[Float64Array], rows: IndexArray, cuts: Float64Array) -> Float64Array:
    """Return the values of these rows in widths from the origin; shape (rows, fields)."""
    return np.asarray((np.column_stack([column[rows] for column in columns]) - cuts[:, 0]) / cuts[:, 1])


def _candidate_bins(
    points: Float64Array, centres: Float64Array, means_of: Callable[[Int64Array], Float64Array]
) -> Int64Array:
    """Return the numbers of the bins that can be nearest to a point, and few others, ascending.

    Parameters
    ----------
    points : ndarray of float64, shape (points, fields)
    centres : ndarray of float64, shape (bins, fields)
        Centres of the bins' cells.
    means_of : callable
        Numbers of bins -> their means.

    Notes
    -----
    The mean of a bin is inside its cell. So the cell of the nearest bin is no further away than the mean of
    any other bin, for example of the bin with the nearest centre.
    """
    tree = MeanTree(centres, no_progress)
    guesses, of_point = np.unique(tree.nearest(points, no_progress), return_inverse=True)
    offsets = points - means_of(guesses)[of_point]
    reach = np.sqrt((offsets * offsets).sum(axis=1))
    tolerance = 1e-6 * (1.0 + np.abs(centres).max())  # exceeds the rounding errors of the means
    return tree.within(points, reach + tolerance, 0.5 + tolerance)


def _means(
    columns: Sequence[Float64Array],
    order: IndexArray,
    starts: Int64Array,
    cuts: Float64Array,
    progress: Progress,
    bins: Int64Array,
) -> Float64Array:
    """Return the means of these bins in widths; shape (bins, fields)."""
    sums = np.zeros((len(bins), len(columns)))
    for start in range(0, len(bins), AT_ONCE):
        progress(start / len(bins), "finding means")
        part = slice(start, start + AT_ONCE)
        add_up(columns, order, starts, bins[part], cuts, sums[part])
    return np.asarray(sums / (starts[bins + 1] - starts[bins])[:, np.newaxis])


def add_up(
    columns: Sequence[Float64Array],
    order: IndexArray,
    starts: Int64Array,
    bins: Int64Array,
    cuts: Float64Array,
    sums: Float64Array,
) -> None:
    """Add the values of the bins' rows, in widths from the origin, to `sums`.

    Values are added one after the other in the order of the rows, so that a bin may be summed batch by
    batch.

    Parameters
    ----------
    columns : sequence of ndarray of float64, shape (rows,)
        Values of the fields that vary.
    order, starts : ndarrays of int
        Rows by cell, as returned by `rows_by_cell`.
    bins : ndarray of int64
        Indices into `starts`.
    cuts : ndarray of float64, shape (fields, 2)
        Origin and width of each field.
    sums : ndarray of float64, shape (bins, fields)
        Added to.
    """
    _add_up(addresses_of(columns), order, starts, bins, cuts, sums)


@parallel
def _add_up(addresses, order, starts, bins, cuts, sums):
    """Add values as `add_up` does.

    Parameters
    ----------
    addresses : ndarray of uint64, shape (fields,)
        Addresses of the columns of float64.
    order, starts, bins, cuts, sums
        As for `add_up`; `sums` is added to.
    """
    for at in prange(len(bins)):
        start, stop = starts[bins[at]], starts[bins[at] + 1]
        for field in range(len(cuts)):
            total = sums[at, field]
            for place in range(start, stop):
                total += (float_at(addresses[field], np.int64(order[place])) - cuts[field, 0]) / cuts[
                    field, 1
                ]
            sums[at, field] = total


@parallel
def _merge_rows(order, starts, bins, joining, joining_starts, merged_starts, merged):
    """Merge each bin's rows and the singletons that join it, both ascending, into one ascending list.

    Parameters
    ----------
    order, starts : ndarrays of int
        Rows by cell, as returned by `rows_by_cell`.
    bins : ndarray of int64, shape (bins,)
        Indices into `starts` of the larger bins.
    joining : ndarray of int
        Singleton rows, by the bin that they join, ascending within it.
    joining_starts : ndarray of int64, shape (bins + 1,)
        Start of each bin's rows in `joining`.
    merged_starts : ndarray of int64, shape (bins + 1,)
        Start of each bin's rows in `merged`.
    merged : ndarray of int, shape (rows,)
        Written.
    """
    for number in prange(len(bins)):
        own, own_stop = starts[bins[number]], starts[bins[number] + 1]
        other, other_stop = joining_starts[number], joining_starts[number + 1]
        for place in range(merged_starts[number], merged_starts[number + 1]):
            if other == other_stop or (own < own_stop and order[own] < joining[other]):
                merged[place] = order[own]
                own += 1
            else:
                merged[place] = joining[other]
                other += 1
