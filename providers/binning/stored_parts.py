"""MEDS with a first cut, out of core and in units: the parts are cut on disk, and exchanged one by one.

Parts and bins are those of a run in memory. Standard deviations are exact, whatever the batches. Each part
has to fit in memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
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
from providers.out_of_core.median_cut import CutKeys, StoredNode, cut_nodes
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

    def halves(self, cut: Iterator[StoredNode]) -> list[_Node]:
        """Return the halves of the node; their rows are the next two of ``cut``."""
        middle = middle_part(self.first, self.stop)
        return [_Node(self.first, middle, next(cut)), _Node(middle, self.stop, next(cut))]


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

    def store(self, standards: Sequence[Standard], kept: Scratch, progress: Progress) -> Spool:
        """Cut the rows, and return a spool that has one part for each of theirs; ``kept``: space for it."""
        resources, rows = self._run.resources, self.numbers.rows.count
        memory, parts = resources.memory_bytes, self.rule.parts
        places = self.rule.places(rows)
        points = resources.scratch.spool(1, memory // _MEMORY_FRACTION)
        for table in self.numbers.rows.read(self.numbers.names):
            points.add(0, self._with_points(table, standards))
        keys = CutKeys(self._dimensions, self.row)
        together = max(_LEAST_ROWS, memory // (_MEMORY_FRACTION * self._row_bytes))
        most = max(_LEAST_ROWS, memory // (_SORTED_TABLES * self._row_bytes))
        nodes = [_Node(0, parts, StoredNode(rows, points, (0,), together))]
        fitting = max(_LEAST_ROWS, memory // (_NODE_TABLES * self._row_bytes))

        def large(node: _Node) -> bool:
            return node.points.rows > fitting and node.stop - node.first > 1

        while found := [node for node in nodes if large(node)]:
            progress(0.5 * math.log(rows / found[0].points.rows, rows), "cutting the rows into parts")
            lefts = [places[middle_part(node.first, node.stop)] - places[node.first] for node in found]
            points_of = [node.points for node in found]
            halves = iter(cut_nodes(points_of, lefts, keys, most, resources.scratch, memory // 20))
            nodes = [each for node in nodes for each in (node.halves(halves) if large(node) else [node])]
        spool = kept.spool(parts, memory // 10)
        for node in nodes:
            progress(0.5 + 0.5 * node.first / parts, "cutting the rows into parts")
            for part, table in enumerate(self._parts_of(node, places), node.first):
                spool.add(part, table)
        return spool

    def _parts_of(self, node: _Node, places: Sequence[int]) -> Iterator[pa.Table]:
        """Yield the rows of each part of a node that fits in memory, ascending, and clear the node."""
        table = pa.concat_tables(node.points.pieces())
        node.points.clear()
        table = take_rows(table, np.argsort(table.column(self.row).to_numpy(), kind="stable"))
        own = [place - places[node.first] for place in places[node.first : node.stop + 1]]
        for rows in parts_of(self._points(table), own):
            yield take_rows(table, rows)

    def exchange(
        self, parts: Spool, share: tuple[int, int], spread: Spread, exchanger: Exchanger, progress: Progress
    ) -> PartFigures:
        """Form the bins of a range of parts and exchange their rows; ``share``: first part and end."""
        first, stop = share
        within = []
        for part in range(first, stop):
            progress((part - first) / (stop - first), "exchanging within parts")
            table = pa.concat_tables(parts.read(part))
            parts.clear(part)
            points = self._points(table)
            bin_of = self.rule.bins(points, lambda share: None)
            within.append(spread.within(points, bin_of))
            del points
            order = radix_order([bin_of.astype(np.uint64)])
            starts = np.concatenate(([0], np.cumsum(np.bincount(bin_of)))).astype(np.int64)
            table = take_rows(table.select([*self.numbers.names, self.row]), order)
            identities = np.asarray(table.column(self.row).to_numpy())[starts[:-1]].astype(np.uint64)
            exchanger.exchange_unit(table, Groups(table.num_rows, None, starts, identities))
        return PartFigures(exchanger.tally, tuple(within))

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
    stored = parts.store(standards, run.resources.scratch, sub_progress(progress, 0.1, 0.4))
    exchanging = sub_progress(progress, 0.4, 0.9)
    figures = parts.exchange(stored, (0, parts.rule.parts), spread, exchanger, exchanging)
    return parts.assembled([spool], [figures], spread)


def sharing_of_parts(service: PartService[P]) -> Sharing[P]:
    """Divide a table by ranges of the parts of its first cut, which one worker makes for all units."""

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
            return Prepared(Spread(0, 0.0), ())
        standards = parts.standards()
        return Prepared(parts.spread(standards), (parts.store(standards, kept, progress),))

    def work(run: Run[P], division: Division, number: int, spool: Spool) -> PartFigures:
        parts, prepared = PartRun(service, run, division.common), _prepared(run)
        exchanger = parts.swap.unit_exchanger(spool)
        if number == 0:
            keep_absent(parts.numbers, exchanger)
        if not prepared.spools:
            return PartFigures(exchanger.tally, ())
        return parts.exchange(
            prepared.spools[0], division.units[number], prepared.data, exchanger, no_progress
        )

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
        return PartRun(service, run, division.common).finished(units, _prepared(run).data, sections)

    return Sharing(divide, work, assemble, finish, prepare=prepare)


def _prepared(run: Run[Any]) -> Prepared:
    assert run.prepared is not None  # noqa: S101 - the preparation has run
    return run.prepared
