"""Cut points out of core in two at a median, level by level.

A node is cut by its dimensions in descending order of width, ties by row number. Points are scattered by
splitters from a sample, so that only those between two splitters are sorted. Two splitters are close to the
median on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import Float64Array, IndexArray, Int64Array
from providers.out_of_core.partitions import Span, joined, scatter
from providers.out_of_core.splitters import place_ties, places
from providers.storage import Scratch, Spool
from providers.tables.columns import take_rows
from providers.tables.joining import in_one_chunk

Coordinate: TypeAlias = "npt.NDArray[np.float64] | npt.NDArray[np.int32]"

_SAMPLED = 2**14
"""Approximate number of sampled rows by which a node is cut."""

_DEVIATIONS = 4
"""Standard deviations of a sample's rank between the median and a splitter on each side of it."""

_AROUND = 2
"""Number of these splitters."""


@dataclass(frozen=True)
class CutKeys:
    """Keys by which points are cut."""

    dimensions: int
    """Number of dimensions."""
    coordinate: Callable[[pa.Table, int], Coordinate]
    """(points, dimension) -> coordinate of each point; it does not depend on the other points."""
    row: str
    """Name of the column with row numbers, which orders equal points."""
    widths: Callable[[Float64Array], Float64Array] = lambda ranges: ranges
    """(range of each dimension in a node) -> width of each; dimensions of width 0 are left out."""

    def of_points(self, table: pa.Table, dimensions: Sequence[int]) -> list[npt.NDArray[Any]]:
        """Return the keys of points, the most significant first: these dimensions, then the row number."""
        row: npt.NDArray[Any] = table.column(self.row).to_numpy()
        return [*(self.coordinate(table, dimension) for dimension in dimensions), row]


class PointParts(Protocol):
    """Points in several parts, each of which can be read repeatedly; a `Spool` is one."""

    def read(self, part: int) -> Iterator[pa.Table]:
        """Read a part's points."""

    def clear(self, part: int) -> None:
        """Delete a part's points."""


@dataclass
class StoredNode:
    """Points that are cut together, in some parts of a spool."""

    rows: int
    spool: PointParts
    parts: tuple[int, ...]
    rows_together: int
    """Approximate rows that are scattered together; small batches would leave many small pieces."""

    def pieces(self) -> Iterator[pa.Table]:
        """Yield the points in tables of about `rows_together` rows."""
        return joined(chain.from_iterable(self.spool.read(part) for part in self.parts), self.rows_together)

    def in_row_order(self, row: str) -> pa.Table:
        """Read all points into memory, by their numbers in the column ``row``, and delete them here."""
        table = pa.concat_tables(self.pieces())
        self.clear()
        return take_rows(table, np.argsort(table.column(row).to_numpy(), kind="stable"))

    def clear(self) -> None:
        """Delete the points."""
        for part in self.parts:
            self.spool.clear(part)

    def halves(
        self, keys: CutKeys, left: int, spool: Spool, first: int, parts: int
    ) -> tuple[StoredNode, StoredNode]:
        """Cut the node: return its first `left` points in cutting order, and the others.

        The points are written to `parts` parts of the spool from `first` on, and to two further parts. Only
        the part that contains the median is sorted.
        """
        sample, by = self._sample(keys)
        sampled = keys.of_points(sample, by)
        order = _order(sampled)[self._places(sample.num_rows, left, parts)]
        splitters = [key[order] for key in sampled]
        for table in self.pieces():
            scatter(Span([spool], first, parts), _parts_of(table, splitters, keys, by), table)
        self.clear()
        sizes = np.array([spool.rows(first + part) for part in range(parts)])
        ends = np.cumsum(sizes)
        cut = int(np.searchsorted(ends, left, side="right"))
        before = int(ends[cut] - sizes[cut])
        both = in_one_chunk(pa.concat_tables(spool.read(first + cut)))
        spool.clear(first + cut)
        order = _order(keys.of_points(both, by))
        extra = first + parts
        spool.add(extra, take_rows(both, order[: left - before]))
        spool.add(extra + 1, take_rows(both, order[left - before :]))
        whole = range(first, first + parts)
        return (
            StoredNode(left, spool, (*whole[:cut], extra), self.rows_together),
            StoredNode(self.rows - left, spool, (extra + 1, *whole[cut + 1 :]), self.rows_together),
        )

    def _places(self, sampled: int, left: int, parts: int) -> IndexArray:
        """Return the places of ``parts - 1`` splitters in a sorted sample, ascending."""
        share = left / self.rows
        margin = _DEVIATIONS * math.sqrt(sampled * share * (1.0 - share))
        around = [int(sampled * share - margin), math.ceil(sampled * share + margin)]
        equal = parts - _AROUND
        places = [sampled * part // equal for part in range(1, equal)] + around
        return np.sort(np.clip(np.array(places, np.int64), 0, sampled - 1))

    def _sample(self, keys: CutKeys) -> tuple[pa.Table, list[int]]:
        """Return a sample of the points, and the varying dimensions in descending order of width."""
        step = max(1, self.rows // _SAMPLED)
        sample, before = [], 0
        low, high = (np.full(keys.dimensions, end) for end in (np.inf, -np.inf))
        for table in self.pieces():
            for dimension in range(keys.dimensions):
                values = keys.coordinate(table, dimension)
                low[dimension] = min(low[dimension], values.min())
                high[dimension] = max(high[dimension], values.max())
            sample.append(take_rows(table, np.arange(-before % step, table.num_rows, step)))
            before += table.num_rows
        widths = keys.widths(high - low)
        widest = np.argsort(-widths, kind="stable").tolist()
        return in_one_chunk(pa.concat_tables(sample)), [each for each in widest if widths[each] > 0.0]


def cut_nodes(
    nodes: Sequence[StoredNode], lefts: Sequence[int], keys: CutKeys, most: int, scratch: Scratch,
    buffered: int,
) -> tuple[list[StoredNode], Spool]:  # fmt: skip
    """Cut each node in two. Return the halves in order, and the spool in which all of them are.

    Parameters
    ----------
    nodes : sequence of StoredNode
        Cleared.
    lefts : sequence of int
        Points of the first half of each node: 0 or more, and fewer than it has.
    keys : CutKeys
    most : int
        Largest number of points that are sorted together, approximately.
    scratch : Scratch
    buffered : int
        Bytes of points that are buffered before they are written.
    """
    parts = [max(1, -(-node.rows // most)) + _AROUND for node in nodes]
    firsts = [*accumulate((each + 2 for each in parts), initial=0)]
    spool = scratch.spool(firsts[-1], buffered)
    halves: list[StoredNode] = []
    for node, left, first, count in zip(nodes, lefts, firsts[:-1], parts, strict=True):
        halves += node.halves(keys, left, spool, first, count)
    return halves, spool


def store_nodes(nodes: Sequence[StoredNode], kept: Scratch, buffered: int) -> Spool:
    """Move nodes to a spool that has one part for each, and clear them; ``buffered``: as in `cut_nodes`."""
    spool = kept.spool(len(nodes), buffered)
    for part, node in enumerate(nodes):
        for table in node.pieces():
            spool.add(part, table)
        node.clear()
    return spool


def _parts_of(
    table: pa.Table, splitters: Sequence[npt.NDArray[Any]], keys: CutKeys, by: Sequence[int]
) -> Int64Array:
    """Return the part of each row: the number of splitters at or before it.

    ``splitters``: their keys by the dimensions ``by``, the most significant first.
    """
    # Without a varying dimension the rows are cut by their numbers, which are never tied.
    first = keys.coordinate(table, by[0]) if by else table.column(keys.row).to_numpy()
    parts, tied = places(splitters[0], first, wants_ties=bool(by))
    if len(tied):
        own = keys.of_points(take_rows(table, tied), by)
        place_ties(parts, tied, splitters, own, _order)
    return parts


def _order(keys: Sequence[npt.NDArray[Any]]) -> IndexArray:
    """Return the stable ascending order of keys, the most significant first."""
    order: IndexArray = np.lexsort(keys[::-1])
    return order
