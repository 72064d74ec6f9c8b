"""MEDS with a first cut, out of core and in units: the parts are cut on disk, and exchanged one by one.

Parts and bins are those of a run in memory. Standard deviations are exact, whatever the batches. Each part
has to fit in memory. In a divided run, one worker cuts the units' rows apart, and each unit makes its parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from providers.arrays import Float64Array
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
from providers.out_of_core.median_cut import CutKeys, StoredNode, cut_nodes, store_nodes
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

P = TypeVar("P", bound=BinParams)

_MEMORY_FRACTION = 40
"""Memory is divided by this for the rows that are scattered together; their parts take as much again."""

_SORTED_TABLES = 24
"""Memory is divided by this for the rows that are sorted together when a node is cut on disk."""

_NODE_TABLES = 8
"""Memory is divided by this for the rows of a node that is cut into its parts in memory."""

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
class PartFigures:
    """Figures of some parts."""

    tally: Tally
    within: tuple[float, ...]
    """Sum of squares within the bins of each part."""


@dataclass(frozen=True, slots=True)
class _Node:
    """Adjacent parts with their rows."""

    first: int
    """Number of the first part."""
    stop: int
    points: StoredNode

    def is_within(self, shares: Iterable[tuple[int, int]]) -> bool:
        """Whether one of some ranges of parts has all parts of the node."""
        return any(first <= self.first and self.stop <= stop for first, stop in shares)

    def halves(self, cut: Iterator[StoredNode]) -> list[_Node]:
        """Return the halves of the node; their rows are the next two of ``cut``."""
        middle = middle_part(self.first, self.stop)
        return [_Node(self.first, middle, next(cut)), _Node(middle, self.stop, next(cut))]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Data of a preparation. Its spool has one part with the rows of each node."""

    spread: Spread
    nodes: tuple[tuple[int, int], ...] = ()
    """First part of each node and the end. A node has parts of one unit only."""


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
        source, params = run.source, run.params
        self.row = unused("row", source.schema.names)
        self.numbers = Numbers(source, params.swap_fields, params.nulls, self.row, ranges)
        names, rows = self.numbers.names, self.numbers.rows.count
        self.swap: SwapRun = run_in_cells(
            source, service.swap(params, source.schema), names, run.stream, run.resources
        )
        self.rule = service.rule(params, rows, len(names))
        self._dimensions = tuple(
            unused(f"x{index}", [*source.schema.names, self.row]) for index in range(len(names))
        )
        self._row_bytes = bytes_read(source, names) // max(1, source.rows) + 8 * len(names) + 8
        if rows:
            service.check(params, self.numbers.fields, rows)
            check_parts(rows, self.rule)
            self._check_memory(rows)

    def _check_memory(self, rows: int) -> None:
        """Raise SourceError if a part does not fit in memory; the message names the number that does."""
        row_bytes = 3 * self._row_bytes + 16 * len(self._dimensions) + _TREE_BYTES
        most = max(_LEAST_ROWS, self._run.resources.memory_bytes // (2 * row_bytes))
        _, largest = self.rule.part_sizes(rows)
        if largest > most:
            raise SourceError(
                f"a part of {largest} rows takes about {largest * row_bytes} bytes, and {most * row_bytes} "
                f"bytes of memory are available; use at least {-(-rows // most)} parts",
                "/parameters/parts",
            )

    def standards(self) -> list[Standard]:
        """Return the statistics of each field, for which the source is read."""
        numbers = self.numbers

        def batches(name: str) -> Callable[[], Any]:
            return lambda: (numbers_of(table.column(name)) for table in numbers.rows.read(numbers.names))

        return [Standard.of_batches(each.low, each.high, batches(each.name)) for each in numbers.fields]

    def spread(self, standards: Sequence[Standard]) -> Spread:
        """Return the spread of the fields."""
        ranges = [(field.low, field.high) for field in self.numbers.fields]
        return Spread.of_fields(ranges, standards, self._service.standardise(self._run.params))

    def all_rows(self, standards: Sequence[Standard]) -> _Node:
        """Return a node with all rows, of which there is at least one, and their coordinates."""
        resources = self._run.resources
        points = resources.scratch.spool(1, resources.memory_bytes // _MEMORY_FRACTION)
        for table in self.numbers.rows.read(self.numbers.names):
            points.add(0, self._with_points(table, standards))
        return self._node(0, self.rule.parts, points, 0)

    def cut_apart(
        self, rows: _Node, shares: Sequence[tuple[int, int]], kept: Scratch, progress: Progress
    ) -> tuple[tuple[tuple[int, int], ...], Spool]:
        """Cut all rows, which are cleared, into nodes that have parts of one unit only.

        Parameters
        ----------
        rows : _Node
        shares : sequence of (int, int)
            First part of each unit and the end.
        kept : Scratch
            Space for the rows of the nodes.
        progress : Progress

        Returns
        -------
        nodes : tuple of (int, int)
            First part of each node and the end.
        spool : Spool
            One part with the rows of each node.
        """

        def is_shared(node: _Node) -> bool:
            return not node.is_within(shares)

        nodes = [rows]
        while shared := sum(map(is_shared, nodes)):
            progress((len(nodes) - shared) / (len(nodes) + shared), "cutting the rows apart")
            nodes = self._cut(nodes, is_shared)
        buffered = self._run.resources.memory_bytes // 20
        spool = store_nodes([node.points for node in nodes], kept, buffered)
        return tuple((node.first, node.stop) for node in nodes), spool

    def nodes_of(self, prepared: Prepared, share: tuple[int, int]) -> list[_Node]:
        """Return the nodes of a unit; ``share``: its first part and the end."""
        nodes = [
            self._node(first, stop, prepared.spools[0], number)
            for number, (first, stop) in enumerate(prepared.data.nodes)
        ]
        return [node for node in nodes if node.is_within([share])]

    def exchange(
        self, nodes: Sequence[_Node], spread: Spread, exchanger: Exchanger, progress: Progress
    ) -> PartFigures:
        """Cut nodes, which are cleared, into parts; form the bins of each part and exchange its rows."""
        nodes = self._fitting(nodes, sub_progress(progress, 0.0, 0.4))
        exchanging = sub_progress(progress, 0.4, 1.0)
        parts = sum(node.stop - node.first for node in nodes)
        within: list[float] = []
        for node in nodes:
            tables = self._parts_of(node)
            for _ in range(node.first, node.stop):
                exchanging(len(within) / parts, "exchanging within parts")
                within.append(self._exchange_part(next(tables), spread, exchanger))
        return PartFigures(exchanger.tally, tuple(within))

    def _exchange_part(self, table: pa.Table, spread: Spread, exchanger: Exchanger) -> float:
        """Form the bins of a part and exchange its rows. Return the sum of squares within the bins."""
        points = self._points(table)
        bin_of = self.rule.bins(points, lambda share: None)
        within = spread.within(points, bin_of)
        del points
        order = radix_order([bin_of.astype(np.uint64)])
        starts = np.concatenate(([0], np.cumsum(np.bincount(bin_of)))).astype(np.int64)
        table = take_rows(table.select([*self.numbers.names, self.row]), order)
        identities = np.asarray(table.column(self.row).to_numpy())[starts[:-1]].astype(np.uint64)
        exchanger.exchange_unit(table, Groups(table.num_rows, None, starts, identities))
        return within

    def _fitting(self, nodes: Sequence[_Node], progress: Progress) -> list[_Node]:
        """Cut nodes on disk, level by level, until each fits in memory or has one part."""
        memory, rows = self._run.resources.memory_bytes, self.numbers.rows.count
        fitting = max(_LEAST_ROWS, memory // (_NODE_TABLES * self._row_bytes))

        def is_large(node: _Node) -> bool:
            return node.points.rows > fitting and node.stop - node.first > 1

        nodes = list(nodes)
        while large := [node.points.rows for node in nodes if is_large(node)]:
            progress(math.log(rows / max(large), rows), "cutting the rows into parts")
            nodes = self._cut(nodes, is_large)
        return nodes

    def _cut(self, nodes: Sequence[_Node], is_cut: Callable[[_Node], bool]) -> list[_Node]:
        """Return the nodes, some of which are cut in two."""
        memory, scratch = self._run.resources.memory_bytes, self._run.resources.scratch
        places = self.rule.places(self.numbers.rows.count)
        most = max(_LEAST_ROWS, memory // (_SORTED_TABLES * self._row_bytes))
        found = [node for node in nodes if is_cut(node)]
        lefts = [places[middle_part(node.first, node.stop)] - places[node.first] for node in found]
        keys = CutKeys(self._dimensions, self.row)
        halves = iter(cut_nodes([node.points for node in found], lefts, keys, most, scratch, memory // 20))
        return [each for node in nodes for each in (node.halves(halves) if is_cut(node) else [node])]

    def _node(self, first: int, stop: int, spool: Spool, spool_part: int) -> _Node:
        """Return the parts ``first`` to ``stop`` with their rows, which are a part of a spool."""
        places = self.rule.places(self.numbers.rows.count)
        together = max(_LEAST_ROWS, self._run.resources.memory_bytes // (_MEMORY_FRACTION * self._row_bytes))
        stored = StoredNode(places[stop] - places[first], spool, (spool_part,), together)
        return _Node(first, stop, stored)

    def _parts_of(self, node: _Node) -> Iterator[pa.Table]:
        """Yield the rows of each part of a node, ascending, and clear the node.

        Memory holds a node of several parts until the last one, and nothing of a node that is one part.
        """
        if node.stop - node.first == 1:
            yield node.points.in_row_order(self.row)
            return
        places = self.rule.places(self.numbers.rows.count)[node.first : node.stop + 1]
        table = node.points.in_row_order(self.row)
        for rows in parts_of(self._points(table), [place - places[0] for place in places]):
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

    def _points(self, table: pa.Table) -> Float64Array:
        """Return the coordinates of rows; shape (fields, rows)."""
        return np.ascontiguousarray([table.column(name).to_numpy() for name in self._dimensions])

    def _with_points(self, table: pa.Table, standards: Sequence[Standard]) -> pa.Table:
        """Append the coordinates of rows."""
        standardise = self._service.standardise(self._run.params)
        for name, dimension, standard in zip(self.numbers.names, self._dimensions, standards, strict=True):
            values: Float64Array = numbers_of(table.column(name))
            column = standard.standardised(values) if standardise else values
            table = table.append_column(dimension, pa.array(column))
        return table


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
        return parts.assembled([spool], [PartFigures(exchanger.tally, ())], Spread(0, 0.0))
    standards = parts.standards()
    spread = parts.spread(standards)
    nodes = [parts.all_rows(standards)]
    figures = parts.exchange(nodes, spread, exchanger, sub_progress(progress, 0.1, 0.9))
    return parts.assembled([spool], [figures], spread)


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
            return Prepared(_Prepared(Spread(0, 0.0)), ())
        standards = parts.standards()
        rows = parts.all_rows(standards)
        nodes, spool = parts.cut_apart(rows, division.units, kept, progress)
        return Prepared(_Prepared(parts.spread(standards), nodes), (spool,))

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> PartFigures:
        parts, prepared = PartRun(service, run, division.common), _prepared(run)
        exchanger = parts.swap.unit_exchanger(spool)
        if number == 0:
            keep_absent(parts.numbers, exchanger)
        if not prepared.spools:
            return PartFigures(exchanger.tally, ())
        nodes = parts.nodes_of(prepared, division.units[number])
        return parts.exchange(nodes, prepared.data.spread, exchanger, no_progress)

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
        return PartRun(service, run, division.common).finished(units, _prepared(run).data.spread, sections)

    return Sharing(divide, work, assemble, finish, prepare=prepare)


def _prepared(run: Run[Any]) -> Prepared:
    assert run.prepared is not None  # noqa: S101 - the preparation has run
    return run.prepared
