"""Aggregate queries: the average of a field over rows beyond two thresholds and in some categories."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int32Array
from providers.measures.shared.finding import BEYOND_FLOAT64, NotApplicable
from providers.numba import njit


@dataclass(frozen=True)
class Instances:
    """Random instances of one query: AVG(average) WHERE first > t AND second > u AND category IN a set."""

    first: Float64Array
    """Thresholds t; shape (instances,)."""
    second: Float64Array
    """Thresholds u; shape (instances,)."""
    chosen: BoolArray
    """Whether a category is in the set; shape (instances, categories)."""


def drawn_instances(
    numbers: Float64Array, domains: Sequence[tuple[float, float]], categories: int
) -> Instances:
    """Build instances from uniform numbers in [0, 1).

    Parameters
    ----------
    numbers : ndarray of float64, shape (instances, 3 + categories)
        The first two place the thresholds, the third the size of the set, 1 to all; the categories with the
        smallest of the others are the set, so that all sets of a size are equally likely.
    domains : sequence of (float, float)
        Least and greatest value of both fields with a threshold.
    categories : int
    """
    first, second = (low + numbers[:, index] * (high - low) for index, (low, high) in enumerate(domains))
    sizes = 1 + (numbers[:, 2] * categories).astype(np.int64)
    ranks = np.argsort(np.argsort(numbers[:, 3:], axis=1, kind="stable"), axis=1, kind="stable")
    return Instances(first, second, ranks < sizes[:, np.newaxis])


@njit(cache=True, nogil=True)
def _add_up(places, beyond, categories, values, reached, limits, chosen, sums, counts, answers):
    """Compute the average of each instance, NaN if no row is in it.

    Rows are added in descending order of the first field to a Fenwick tree over the second one, for each
    category (Fenwick 1994, doi:10.1002/spe.4380240306). Instances come in descending order of their first
    thresholds, so that the trees hold exactly the rows beyond the first threshold of the instance.

    Parameters
    ----------
    places : ndarray of int64, shape (rows,)
        Place of a row in a tree, from 1 on: the smaller, the more thresholds of the second field it is
        beyond; above `reached` if it is beyond none.
    beyond : ndarray of int64, shape (instances,)
        Number of rows, in their order, that are beyond the first threshold of each instance; ascending.
    categories : ndarray of int32, shape (rows,)
    values : ndarray of float64, shape (rows,)
        Numbers to average.
    reached : int
        Places of a tree.
    limits : ndarray of int64, shape (instances,)
        Last place of the rows that are beyond the second threshold of each instance.
    chosen : ndarray of bool, shape (instances, categories)
    sums : ndarray of float64, shape (categories, reached + 1)
        Trees; zeros.
    counts : ndarray of int64, shape (categories, reached + 1)
        Trees; zeros.
    answers : ndarray of float64, shape (instances,)
        Written.
    """
    row = 0
    for instance in range(len(beyond)):
        while row < beyond[instance]:
            place, category = places[row], categories[row]
            while place <= reached:
                sums[category, place] += values[row]
                counts[category, place] += 1
                place += place & -place
            row += 1
        total, count = 0.0, 0
        for category in range(chosen.shape[1]):
            if chosen[instance, category]:
                place = limits[instance]
                while place > 0:
                    total += sums[category, place]
                    count += counts[category, place]
                    place -= place & -place
        answers[instance] = total / count if count else np.nan


def averages(
    average: Float64Array, first: Float64Array, second: Float64Array, categories: Int32Array, asked: Instances
) -> Float64Array:
    """Answer each instance; NaN if no row satisfies it. Shape (instances,).

    Parameters
    ----------
    average, first, second : ndarray of float64, shape (rows,)
        NaN where missing: such a row satisfies no condition, and has no value to average.
    categories : ndarray of int32, shape (rows,)
        Number of the category of each row; -1 for none of those of the sets.
    asked : Instances

    Raises
    ------
    NotApplicable
        The sum of the averaged field is too large for float64.

    Notes
    -----
    O((n + instances * categories) log instances), after sorting the rows.
    """
    usable = ~(np.isnan(average) | np.isnan(first) | np.isnan(second)) & (categories >= 0)
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(-first[rows], kind="stable")]
    order = np.argsort(-asked.first, kind="stable")
    ascending = np.sort(asked.second)
    # A row that is beyond b of the thresholds has the place size + 1 - b, and is beyond threshold number r,
    # from 0 on, if its place is at most size - r.
    size = len(ascending)
    if not np.isfinite(np.abs(average[rows]).sum()):
        raise NotApplicable(BEYOND_FLOAT64)
    places = size + 1 - np.searchsorted(ascending, second[rows], side="left").astype(np.int64)
    limits = size - np.searchsorted(ascending, asked.second[order], side="left").astype(np.int64)
    beyond = np.searchsorted(-first[rows], -asked.first[order], side="left").astype(np.int64)
    width = asked.chosen.shape[1]
    answers = np.empty(size)
    _add_up(
        places,
        beyond,
        np.ascontiguousarray(categories[rows], np.int32),
        np.ascontiguousarray(average[rows]),
        size,
        limits,
        np.ascontiguousarray(asked.chosen[order]),
        np.zeros((width, size + 1)),
        np.zeros((width, size + 1), np.int64),
        answers,
    )
    found = np.empty(size)
    found[order] = answers
    return found
