"""MEDS with a first cut, out of core and in units: the parts are cut on disk, and exchanged one by one.

Parts and bins are those of a run in memory. Standard deviations are exact, whatever the batches. Each part
has to fit in memory. In a divided run, one worker cuts the units' rows apart, and each unit makes its parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from providers.arrays import Float64Array, Int64Array, UInt64Array
from providers.binning.first_cut import (
    PartRule,
    Spread,
    check_parts,
    middle_part,
    parts_of,
)
from providers.binning.out_of_core import NumberRanges, Numbers, keep_absent, not_finite, run_in_cells
from providers.binning.privacy import P_PRIVACY_KEY, privacy_of_meds
from providers.binning.swap import BinParams
from providers.binning.values import FieldValues, numbers_of
from providers.errors import SourceError
from providers.grouping.groups import Groups
from providers.kernels.exact_sum import Standard
from providers.kernels.radix_sort import radix_order
from providers.out_of_core.median_cut import CutKeys, PointParts, StoredNode, cut_nodes, store_nodes
from providers.params import SwapParams
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import (
    Division,
    Prepared,
    Run,
    Sharing,
    StreamedResult,
    StreamedSection,
    UnitResult,
)
from providers.results import SwapResult
from providers.sections import Section
from providers.storage import Scratch, Spool, bytes_read
from providers.swapping.out_of_core.assemble import AssemblyFigures
from providers.swapping.out_of_core.exchange import Exchanger, Tally
from providers.swapping.out_of_core.swap import SwapRun
from providers.tables.columns import take_rows, unused
from providers.tables.joining import in_one_chunk

P = TypeVar("P", bound=BinParams)

_MEMORY_FRACTION = 40
"""Memory is divided by this for the rows that are scattered together; their parts take as much again."""

_SORTED_TABLES = 24
"""Memory is divided by this for the rows that are sorted together when a node is cut on disk."""

_NODE_TABLES = 8
"""Memory is divided by this for the rows of a node that is cut into its parts in memory."""

_EXCHANGED_TABLES = 24
"""Memory is divided by this for the rows of small parts that are exchanged together."""

_MOST_TOGETHER = 2**17
"""Most rows of small parts that are exchanged together."""

_BUFFERED_FRACTION = 20
"""Memory is divided by this for the rows that are buffered before they are written."""

_LEAST_ROWS = 64

_TREE_BYTES = 64
"""Bytes of a row in the tree of its part, apart from its coordinates."""


@dataclass(frozen=True)
class PartService(Generic[P]):
    """Functions that a service declares whose bins are formed in the parts of a first cut."""

    rule: Callable[[P, int, int], PartRule]
    """(params, rows, fields) -> rule of the bins."""
    check: Callable[[P, Sequence[FieldValues], int], None]
    """(params, ranges of the fields, rows) -> None; raises SourceError if distances cannot be computed."""
    standardise: Callable[[P], bool]
    """Whether distances are measured in standard deviations."""
    figures: Callable[[PartRule, float], dict[str, Any]]
    """(rule, share of the variance within bins) -> figures of the report."""
    swap: Callable[[P, pa.Schema], SwapParams]
    """(params, schema) -> parameters of the exchange: locked, of the fields that define distances."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Statistics of all rows, by which distances are measured."""

    standards: tuple[Standard, ...]
    """Mean and standard deviation of each field."""
    spread: Spread


_NO_ROWS = Scale((), Spread(0, 0.0))


@dataclass(frozen=True, slots=True)
class PartFigures:
    """Figures of some parts."""

    tally: Tally
    within: tuple[float, ...]
    """Sum of squares within the bins of each part."""


@dataclass(frozen=True, slots=True)
class _Node:
    """Adjacent parts with their rows."""

    parts: range
    points: StoredNode


@dataclass(frozen=True, slots=True)
class _KeptNode:
    """Node of a preparation, which is pickled between processes."""

    parts: range
    spool: int
    """Number of the spool with the rows."""
    spool_parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Data of a preparation, next to the spools with the rows of its nodes."""

    scale: Scale
    nodes: tuple[_KeptNode, ...] = ()
    """Nodes that have parts of one unit only."""


@dataclass(frozen=True, slots=True)
class _BinnedPart:
    """Part whose rows are in the order of its bins."""

    table: pa.Table
    starts: Int64Array
    """First row of each bin, and the number of rows."""
    identities: UInt64Array
    """Row number of the first row of each bin."""
    within: float
    """Sum of squares within the bins."""


@dataclass(frozen=True, slots=True)
class _SourcePoints:
    """Points of a source, in one part, which stay there."""

    numbers: Numbers

    def read(self, part: int) -> Iterator[pa.Table]:
        """Read the fields and the row numbers."""
        return self.numbers.rows.read(self.numbers.names)

    def clear(self, part: int) -> None:
        """Do nothing: a source is only read."""


class PartRun(Generic[P]):
    """Steps of a run with a first cut, by one worker or by several.

    Parameters
    ----------
    service : PartService
    run : Run
    ranges : NumberRanges, optional
        Ranges of the fields, if they are known: then the source is not read here.

    Raises
    ------
    SourceError
        A value is unusable, distances cannot be computed, or a part is too small or does not fit in memory.
    """

    def __init__(self, service: PartService[P], run: Run[P], ranges: NumberRanges | None = None) -> None:
        self._service, self._run = service, run
        self._buffered = run.resources.memory_bytes // _BUFFERED_FRACTION
        source, params = run.source, run.params
        self.row = unused("row", source.schema.names)
        self.numbers = Numbers(source, params.swap_fields, params.nulls, self.row, ranges)
        names, rows = self.numbers.names, self.numbers.rows.count
        self.swap: SwapRun = run_in_cells(
            source, service.swap(params, source.schema), names, run.stream, run.resources
        )
        self.rule = service.rule(params, rows, len(names))
        self._row_bytes = row_bytes = bytes_read(source, names) // max(1, source.rows) + 8 * len(names) + 8
        fitting = run.resources.memory_bytes // (_EXCHANGED_TABLES * row_bytes)
        self._together = max(_LEAST_ROWS, min(_MOST_TOGETHER, fitting))
        """Rows from which parts are exchanged."""
        if rows:
            service.check(params, self.numbers.fields, rows)
            check_parts(rows, self.rule, names)
            self._check_memory(rows)

    def _check_memory(self, rows: int) -> None:
        """Raise SourceError if a part does not fit in memory; the message names the number that does."""
        row_bytes = 3 * self._row_bytes + 16 * len(self.numbers.names) + _TREE_BYTES
        most = max(_LEAST_ROWS, self._run.resources.memory_bytes // (2 * row_bytes))
        _, largest = self.rule.part_sizes(rows)
        if largest > most:
            raise SourceError(
                f"a part of {largest} rows takes about {largest * row_bytes} bytes, and {most * row_bytes} "
                f"bytes of memory are available; use at least {-(-rows // most)} parts",
                "/parameters/parts",
            )

    def scale(self) -> Scale:
        """Return the statistics of the fields, for which the source is read."""
        numbers = self.numbers

        def batches() -> Iterator[list[Float64Array]]:
            for table in numbers.rows.read(numbers.names):
                yield [numbers_of(table.column(name)) for name in numbers.names]

        ranges = [(field.low, field.high) for field in numbers.fields]
        standards = tuple(Standard.of_fields(ranges, batches))
        spread = Spread.of_fields(ranges, standards, self._service.standardise(self._run.params))
        return Scale(standards, spread)

    def all_rows(self) -> _Node:
        """Return a node with all rows, of which there is at least one. They stay in the source."""
        return self._node(range(self.rule.parts), _SourcePoints(self.numbers), (0,))

    def cut_apart(
        self, scale: Scale, units: Sequence[tuple[int, int]], kept: Scratch, progress: Progress
    ) -> tuple[tuple[_KeptNode, ...], tuple[Spool, ...]]:
        """Cut all rows into nodes that have parts of one unit only.

        Parameters
        ----------
        scale : Scale
        units : sequence of (int, int)
            First part of each unit and the end.
        kept : Scratch
            Space for the rows of the nodes.
        progress : Progress

        Returns
        -------
        nodes : tuple of _KeptNode
        spools : tuple of Spool
            Their rows.
        """
        shares = [range(first, stop) for first, stop in units]

        def is_shared(node: _Node) -> bool:
            return not _is_within(node.parts, shares)

        nodes = [self.all_rows()]
        in_place: list[Spool] = []
        while shared := [node.parts for node in nodes if is_shared(node)]:
            progress((len(nodes) - len(shared)) / (len(nodes) + len(shared)), "cutting the rows apart")
            is_last = all(_is_within(half, shares) for parts in shared for half in _halves(parts))
            scratch = kept if is_last else self._run.resources.scratch
            nodes, spool = self._cut(nodes, is_shared, scale, scratch)
            in_place = [spool] if is_last else []
        elsewhere = [node.points for node in nodes if node.points.spool not in in_place]
        spools = [*in_place, *([store_nodes(elsewhere, kept, self._buffered)] if elsewhere else [])]
        moved = itertools.count()
        return tuple(
            _KeptNode(node.parts, 0, node.points.parts)
            if node.points.spool in in_place
            else _KeptNode(node.parts, len(in_place), (next(moved),))
            for node in nodes
        ), tuple(spools)

    def nodes_of(self, prepared: Prepared, unit: tuple[int, int]) -> list[_Node]:
        """Return the nodes of a unit; ``unit``: its first part and the end."""
        return [
            self._node(kept.parts, prepared.spools[kept.spool], kept.spool_parts)
            for kept in prepared.data.nodes
            if _is_within(kept.parts, [range(*unit)])
        ]

    def exchange(
        self, nodes: Sequence[_Node], scale: Scale, exchanger: Exchanger, progress: Progress
    ) -> PartFigures:
        """Cut nodes, which are cleared, into parts; form the bins of each part and exchange its rows."""
        nodes = self._fitting(nodes, scale, sub_progress(progress, 0.0, 0.4))
        exchanging = sub_progress(progress, 0.4, 1.0)
        parts = sum(len(node.parts) for node in nodes)
        within: list[float] = []
        waiting: list[_BinnedPart] = []
        for node in nodes:
            tables = self._parts_of(node, scale)
            for _ in node.parts:
                exchanging(len(within) / parts, "exchanging within parts")
                binned = self._binned(next(tables), scale)
                within.append(binned.within)
                waiting.append(binned)
                if sum(each.table.num_rows for each in waiting) >= self._together:
                    _exchange_parts(waiting, exchanger)
                    waiting.clear()
        if waiting:
            _exchange_parts(waiting, exchanger)
        return PartFigures(exchanger.tally, tuple(within))

    def _binned(self, table: pa.Table, scale: Scale) -> _BinnedPart:
        """Form the bins of a part."""
        points = self._points(table, scale)
        bin_of = self.rule.bins(points, lambda share: None)
        within = scale.spread.within(points, bin_of)
        del points
        order = radix_order([bin_of.astype(np.uint64)])
        starts = np.concatenate(([0], np.cumsum(np.bincount(bin_of)))).astype(np.int64)
        table = take_rows(table.select([*self.numbers.names, self.row]), order)
        identities = np.asarray(table.column(self.row).to_numpy())[starts[:-1]].astype(np.uint64)
        return _BinnedPart(table, starts, identities, within)

    def _fitting(self, nodes: Sequence[_Node], scale: Scale, progress: Progress) -> list[_Node]:
        """Cut nodes out of core, level by level, until each fits in memory or has one part."""
        resources, rows = self._run.resources, self.numbers.rows.count
        fitting = max(_LEAST_ROWS, resources.memory_bytes // (_NODE_TABLES * self._row_bytes))

        def is_large(node: _Node) -> bool:
            return node.points.rows > fitting and len(node.parts) > 1

        nodes = list(nodes)
        while large := [node.points.rows for node in nodes if is_large(node)]:
            progress(math.log(rows / max(large), rows), "cutting the rows into parts")
            nodes, _ = self._cut(nodes, is_large, scale, resources.scratch)
        return nodes

    def _cut(
        self, nodes: Sequence[_Node], is_cut: Callable[[_Node], bool], scale: Scale, scratch: Scratch
    ) -> tuple[list[_Node], Spool]:
        """Return the nodes, some of which are cut in two, and the spool with the rows of these halves."""
        places = self.rule.places(self.numbers.rows.count)
        most = max(_LEAST_ROWS, self._run.resources.memory_bytes // (_SORTED_TABLES * self._row_bytes))
        found = [node for node in nodes if is_cut(node)]
        lefts = [places[_halves(node.parts)[0].stop] - places[node.parts.start] for node in found]
        keys = CutKeys(len(self.numbers.names), partial(self._coordinate, scale), self.row)
        points = [node.points for node in found]
        halves, spool = cut_nodes(points, lefts, keys, most, scratch, self._buffered)
        cut_points = iter(halves)
        return [
            each
            for node in nodes
            for each in (
                [_Node(half, next(cut_points)) for half in _halves(node.parts)] if is_cut(node) else [node]
            )
        ], spool

    def _node(self, parts: range, spool: PointParts, spool_parts: tuple[int, ...]) -> _Node:
        """Return a node with its rows, which are some parts of a spool."""
        places = self.rule.places(self.numbers.rows.count)
        together = max(_LEAST_ROWS, self._run.resources.memory_bytes // (_MEMORY_FRACTION * self._row_bytes))
        rows = places[parts.stop] - places[parts.start]
        return _Node(parts, StoredNode(rows, spool, spool_parts, together))

    def _parts_of(self, node: _Node, scale: Scale) -> Iterator[pa.Table]:
        """Yield the rows of each part of a node, ascending, and clear the node.

        Memory holds a node of several parts until the last one, and nothing of a node that is one part.
        """
        if len(node.parts) == 1:
            yield node.points.in_row_order(self.row)
            return
        places = self.rule.places(self.numbers.rows.count)[node.parts.start : node.parts.stop + 1]
        table = node.points.in_row_order(self.row)
        for rows in parts_of(self._points(table, scale), [place - places[0] for place in places]):
            yield take_rows(table, rows)

    def assembled(
        self, spools: Sequence[Spool], figures: Sequence[PartFigures], spread: Spread
    ) -> StreamedResult:
        """Assemble the whole destination from the spools of a run by one worker."""
        streamed = self.section(spools, figures, Section(0, self._run.source.rows))
        return StreamedResult(
            streamed.schema,
            streamed.pieces,
            lambda: self.finished(figures, spread, [streamed.figures()]),
            streamed.unchanged,
        )

    def section(
        self, spools: Sequence[Spool], figures: Sequence[PartFigures], section: Section
    ) -> StreamedSection:
        """Assemble a section from the spools and figures of all units, in their order."""
        tally = Tally.of_all(each.tally for each in figures)
        return self.swap.section(spools, tally, section, not_finite)

    def finished(
        self, figures: Sequence[PartFigures], spread: Spread, sections: Sequence[AssemblyFigures]
    ) -> SwapResult:
        """Build the report from the figures of all units and sections, in their order."""
        tally = Tally.of_all(each.tally for each in figures)
        rows, bin_sizes = self.numbers.rows.count, tally.groups
        within = itertools.chain.from_iterable(each.within for each in figures)
        own = self._service.figures(self.rule, spread.share(within, rows)) if rows else {}
        minimal_depth = min(bin_sizes) if bin_sizes else 0
        report = self.swap.finished(tally, None, sections)
        report.provider.update(
            partition_degree=bin_sizes.total(),
            minimal_depth=minimal_depth,
            singletons=bin_sizes[1],
            **own,
        )
        if rows:
            smallest, _ = self.rule.part_sizes(rows)
            report.measures[P_PRIVACY_KEY] = privacy_of_meds(smallest, minimal_depth)
        return report

    def _points(self, table: pa.Table, scale: Scale) -> Float64Array:
        """Return the coordinates of rows; shape (fields, rows)."""
        return np.array([self._coordinate(scale, table, field) for field in range(len(self.numbers.names))])

    def _coordinate(self, scale: Scale, table: pa.Table, field: int) -> Float64Array:
        """Return the coordinates of rows by one field."""
        values: Float64Array = numbers_of(table.column(self.numbers.names[field]))
        standardise = self._service.standardise(self._run.params)
        return scale.standards[field].standardised(values) if standardise else values


def _exchange_parts(parts: Sequence[_BinnedPart], exchanger: Exchanger) -> None:
    """Exchange the rows within the bins of some parts.

    Each bin has a random stream of its own, so that it does not matter which parts are exchanged together.
    """
    table = in_one_chunk(pa.concat_tables([part.table for part in parts]))
    firsts = itertools.accumulate((part.table.num_rows for part in parts), initial=0)
    starts = [part.starts[:-1] + first for part, first in zip(parts, firsts, strict=False)]
    identities = np.concatenate([part.identities for part in parts])
    whole = np.concatenate([*starts, [table.num_rows]])
    exchanger.exchange_unit(table, Groups(table.num_rows, None, whole, identities))


def _halves(parts: range) -> tuple[range, range]:
    """Return the parts on both sides of a cut."""
    middle = middle_part(parts.start, parts.stop)
    return range(parts.start, middle), range(middle, parts.stop)


def _is_within(parts: range, units: Iterable[range]) -> bool:
    """Whether one of some units has all of these parts."""
    return any(unit.start <= parts.start and parts.stop <= unit.stop for unit in units)


def swap_in_parts(service: PartService[P], run: Run[P], progress: Progress) -> StreamedResult:
    """Exchange values within the bins of each part, with one part in memory. Equal to a run in memory.

    Raises as `PartRun` and as `SwapRun.assembled`.
    """
    progress(0.0, "reading numbers")
    parts = PartRun(service, run)
    spool = run.resources.scratch.spool(parts.swap.parts, parts.swap.sizes.waiting)
    exchanger = parts.swap.exchanger(spool)
    keep_absent(parts.numbers, exchanger)
    if not parts.numbers.rows.count:
        return parts.assembled([spool], [PartFigures(exchanger.tally, ())], _NO_ROWS.spread)
    scale = parts.scale()
    figures = parts.exchange([parts.all_rows()], scale, exchanger, sub_progress(progress, 0.1, 0.9))
    return parts.assembled([spool], [figures], scale.spread)


def sharing_of_parts(service: PartService[P]) -> Sharing[P]:
    """Divide a table by ranges of the parts of its first cut, whose rows one worker cuts apart."""

    def divide(run: Run[P], progress: Progress, wanted: int) -> Division:
        progress(0.0, "reading numbers")
        parts = PartRun(service, run)
        count = min(wanted, parts.rule.parts) if parts.numbers.rows.count else 1
        cuts = [parts.rule.parts * number // count for number in range(count + 1)]
        units = tuple(itertools.pairwise(cuts))
        return parts.swap.division(units, parts.numbers.ranges)

    def prepare(run: Run[P], progress: Progress, division: Division, kept: Scratch) -> Prepared:
        parts = PartRun(service, run, division.common)
        if not parts.numbers.rows.count:
            return Prepared(_Prepared(_NO_ROWS), ())
        scale = parts.scale()
        nodes, spools = parts.cut_apart(scale, division.units, kept, progress)
        return Prepared(_Prepared(scale, nodes), spools)

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> PartFigures:
        parts, prepared = PartRun(service, run, division.common), _prepared(run)
        exchanger = parts.swap.unit_exchanger(spool)
        if number == 0:
            keep_absent(parts.numbers, exchanger)
        if not prepared.spools:
            return PartFigures(exchanger.tally, ())
        nodes = parts.nodes_of(prepared, division.units[number])
        return parts.exchange(nodes, prepared.data.scale, exchanger, no_progress)

    def assemble(
        run: Run[P], division: Division, done: Sequence[UnitResult], section: Section
    ) -> StreamedSection:
        parts = PartRun(service, run, division.common)
        return parts.section([unit.rows for unit in done], [unit.figures for unit in done], section)

    def finish(
        run: Run[P],
        division: Division,
        units: Sequence[PartFigures],
        sections: Sequence[AssemblyFigures],
    ) -> SwapResult:
        return PartRun(service, run, division.common).finished(
            units, _prepared(run).data.scale.spread, sections
        )

    return Sharing(divide, work, assemble, finish, prepare=prepare)


def _prepared(run: Run[Any]) -> Prepared:
    assert run.prepared is not None  # noqa: S101 - the preparation has run
    return run.prepared
