"""First cut of a table into parts, in each of which MEDS forms bins on its own.

The rows are cut in two at a median, and each half again, until there are as many parts as wanted. A node is
cut along the field with the largest range in it. Ties go by the field with the next largest range, and at the
end by row number. Parts are about equally large. All but the last hold a multiple of 2k rows, so that only
the last part leaves a remainder, like a table that is not cut.

References
----------
Bentley 1975, doi:10.1145/361002.361007: the k-d tree.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int32Array, Int64Array
from providers.binning.microaggregation import ReportShare, partition
from providers.errors import SourceError
from providers.kernels.exact_sum import Standard


@dataclass(frozen=True, slots=True)
class PartRule:
    """Bins of a run with a first cut."""

    k: int
    """Rows of a bin."""
    parts: int
    """Number of parts; 1: there is no first cut."""
    method: str
    """Choice of the two distant rows in a part: ``exact`` or ``mdav``."""

    def places(self, rows: int) -> list[int]:
        """Return the first of `rows` rows of each part, in the order of the cuts, and the end."""
        pair = 2 * self.k
        return [rows * part // (self.parts * pair) * pair for part in range(self.parts)] + [rows]

    def part_sizes(self, rows: int) -> tuple[int, int]:
        """Return the number of rows of the smallest and of the largest part."""
        sizes = np.diff(self.places(rows))
        return int(sizes.min()), int(sizes.max())

    def bins(self, points: Float64Array, report: ReportShare) -> Int32Array:
        """Return the bin of each row of a part, numbered from 0; ``points``: shape (fields, rows)."""
        return partition(points, self.k, self.method, report)


def check_parts(rows: int, rule: PartRule, fields: Iterable[str]) -> None:
    """Raise SourceError if a part has fewer rows than two bins.

    ``rows``: number of rows that have all numbers of the fields.
    """
    most = rows // (2 * rule.k)
    if rule.parts <= max(most, 1):
        return
    named = ", ".join(f"'{field}'" for field in fields)
    advice = f"use at most {most} parts" if most > 1 else "use another method, which does not cut the rows"
    raise SourceError(
        f"{rule.parts} parts of the {rows} rows that have numbers in {named} hold fewer rows than two bins "
        f"of {rule.k}; {advice}",
        "/parameters/parts",
    )


def parts_of(points: Float64Array, places: Sequence[int]) -> Iterator[Int64Array]:
    """Yield the rows of each part, ascending.

    Parameters
    ----------
    points : ndarray of float64, shape (fields, rows)
    places : sequence of int
        Ascending, as `PartRule.places` returns them.
    """
    nodes = [(0, len(places) - 1, np.arange(points.shape[1], dtype=np.int64))]
    while nodes:
        first, stop, rows = nodes.pop()
        if stop - first == 1:
            yield rows
            continue
        middle = middle_part(first, stop)
        chosen = first_rows(points[:, rows], places[middle] - places[first])
        nodes.append((middle, stop, rows[~chosen]))
        nodes.append((first, middle, rows[chosen]))


def first_rows(points: Float64Array, count: int) -> BoolArray:
    """Choose the first `count` rows of a node in the order of its cut, in O(rows) time.

    Parameters
    ----------
    points : ndarray of float64, shape (fields, rows)
        Rows in ascending order of their numbers; coordinates are finite.
    count : int
        1 or more, and at most all rows.

    Returns
    -------
    ndarray of bool, shape (rows,)
    """
    widths = points.max(axis=1) - points.min(axis=1)
    chosen = np.zeros(points.shape[1], np.bool_)
    tied = np.arange(points.shape[1])
    for field in np.argsort(-widths, kind="stable").tolist():
        if widths[field] <= 0.0:
            break
        values = points[field, tied]
        median = np.partition(values, count - 1)[count - 1]
        first = tied[values < median]
        chosen[first] = True
        count -= len(first)
        tied = tied[values == median]
    chosen[tied[:count]] = True
    return chosen


def middle_part(first: int, stop: int) -> int:
    """Return the first part of the second half of the parts ``first`` to ``stop``."""
    return (first + stop) // 2


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of the fields of all rows, in the units in which distances are measured."""

    exponent: int
    """Squares are taken of values times 2**-exponent, so that their sums are within float64."""
    total: float
    """Sum of the fields' population variances, after this scaling."""

    @classmethod
    def of_fields(
        cls, ranges: Sequence[tuple[float, float]], standards: Sequence[Standard], standardise: bool
    ) -> Self:
        """Return the spread of one field or more.

        Parameters
        ----------
        ranges : sequence of (float, float)
            Smallest and largest value of each field.
        standards : sequence of Standard
        standardise : bool
            Whether distances are measured in standard deviations.
        """
        if standardise:
            return cls(0, sum(each.variance for each in standards))
        exponent = int(np.frexp(max(high - low for low, high in ranges))[1])
        return cls(
            exponent,
            sum(math.ldexp(each.sd**2 * each.variance, 2 * (each.exponent - exponent)) for each in standards),
        )

    def within(self, points: Float64Array, bin_of: Int32Array) -> float:
        """Return the sum of squared deviations of some rows from the means of their bins.

        Parameters
        ----------
        points : ndarray of float64, shape (fields, rows)
        bin_of : ndarray of int32, shape (rows,)
            Bin of each row.
        """
        sizes = np.bincount(bin_of)
        total = 0.0
        for values in points:
            scaled = np.ldexp(values - values.min(), -self.exponent)
            scaled -= (np.bincount(bin_of, weights=scaled) / sizes)[bin_of]
            total += float(np.sum(np.square(scaled)))
        return total

    def share(self, within: Iterable[float], rows: int) -> float:
        """Return the share of the variance of `rows` rows that is within their bins, 0 to 1.

        ``within``: sum of squares of each part, in order.
        """
        return min(1.0, sum(within) / (self.total * rows)) if self.total else 0.0


def bins_in_parts(
    rule: PartRule, points: Float64Array, spread: Spread, report: ReportShare
) -> tuple[Int32Array, list[float]]:
    """Return the bin of each row, numbered part by part, and the sum of squares within bins of each part.

    Parameters
    ----------
    rule : PartRule
    points : ndarray of float64, shape (fields, rows)
    spread : Spread
        Spread of these rows.
    report : callable
        Called with the share of the work that is done.
    """
    if rule.parts == 1:
        bin_of = rule.bins(points, report)
        return bin_of, [spread.within(points, bin_of)]
    bin_of = np.empty(points.shape[1], np.int32)
    within: list[float] = []
    bins = 0
    for part, rows in enumerate(parts_of(points, rule.places(points.shape[1]))):
        own = np.ascontiguousarray(points[:, rows])

        def report_part(share: float, part: int = part) -> None:
            report((part + share) / rule.parts)

        own_bins = rule.bins(own, report_part)
        within.append(spread.within(own, own_bins))
        bin_of[rows] = own_bins + bins
        bins += int(own_bins.max()) + 1
    return bin_of, within
