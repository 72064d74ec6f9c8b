"""Swap within groups out of core: sort the rows by group, exchange whole groups, reassemble in row order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray, Int64Array, UInt64Array
from providers.errors import ParameterError
from providers.grouping.groups import Groups, Pairing
from providers.grouping.shuffle import ONE_BUCKET
from providers.out_of_core.partitions import Rows, numbered, row_numbers
from providers.out_of_core.row_ranges import Ranges
from providers.out_of_core.samplesort import SortedRows, UnitParts, sorted_parts
from providers.out_of_core.unit_sizes import Sizes
from providers.params import SwapParams
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Division, StreamedResult, StreamedSection
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from providers.sections import Section
from providers.storage import Resources, Scratch, Source, Spool
from providers.swapping.guarantee import with_rate
from providers.swapping.out_of_core.assemble import AbsentMask, Assembly, AssemblyFigures
from providers.swapping.out_of_core.exchange import Exchanger, GroupCounter, Tally, all_moves
from providers.swapping.out_of_core.large_groups import Share, exchange_large
from providers.swapping.participation import REASONS, UNSWAPPABLE
from providers.tables.columns import null_mask, take_rows, unused


@dataclass(frozen=True)
class Listing:
    """Groups of a partition whose rows are sorted by their labels."""

    order: IndexArray
    """Rows of the partition, group by group, in listing order."""
    starts: Int64Array
    """Start of each group, and the end. The last group may continue in the next partition."""
    identities: UInt64Array
    """Identity of each group in the random streams."""


class Grouping(Protocol):
    """Rule that forms groups of rows sorted by labels."""

    controls: tuple[str, ...]
    """Fields from which labels are computed."""

    def labels(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """Return columns that order the rows of a batch; rows of a group are consecutive in this order."""

    def listing(self, table: pa.Table, rows: Int64Array, final: bool) -> Listing:
        """Return the groups of a partition.

        Parameters
        ----------
        table : pa.Table
            Rows of the last, possibly incomplete group, followed by the next rows in the order of labels.
        rows : ndarray of int64
            Row numbers in the source.
        final : bool
            Whether this is the last partition.
        """


class Watcher(Protocol):
    """Observer of every unit that computes the provider's figures. It is pickled between processes."""

    def observe(self, groups: Groups, table: pa.Table, name: str, pairing: Pairing) -> None:
        """Count a unit: its groups and rows, the first field of the move, and the pairing."""

    def merge(self, other: Any) -> None:
        """Add the figures of a watcher of other units."""

    def figures(self, tally: Tally) -> dict[str, Any]:
        """Return the provider's figures, after the last unit."""


def swap_outside(
    source: Source, params: SwapParams, stream: Stream, progress: Progress, resources: Resources,
    grouping: Callable[[int], Grouping] | None, watcher: Watcher | None = None, by_count: bool = False,
) -> StreamedResult:  # fmt: skip
    """Exchange the swap fields' values within groups; the result equals that of `swap_within`.

    Parameters
    ----------
    source : Source
        Read several times.
    params : SwapParams
        Checked.
    stream : Stream
        Purposes as in `swap_each`.
    progress : Progress
    resources : Resources
    grouping : callable, optional
        Number of rows -> grouping. None: the whole table is one group.
    watcher : Watcher, optional
    by_count : bool
        Whether groups are formed by counting rows, so that rows that ``nulls: keep`` leaves out must be
        removed before.

    Raises
    ------
    UnswappableError
        Rows cannot be swapped and the policy is ``fail``; raised before there is a destination.
    ReversibleError
        Groups are reversible and `on_reversible` is ``fail``; raised before there is a destination.
    """
    run = SwapRun(
        source, params, stream, resources, () if grouping is None else grouping(source.rows).controls
    )
    run.find_rate(grouping, by_count)
    spool = resources.scratch.spool(run.parts, run.sizes.waiting)
    exchanger = run.exchanger(spool)
    run.exchange_all(exchanger, progress, grouping, watcher, by_count)
    return run.assembled([spool], exchanger.tally, watcher)


@dataclass(frozen=True)
class SortPass:
    """Moves with the same participating rows, which one sort of the table serves."""

    moves: tuple[int, ...]
    """Indices of the moves."""
    present: tuple[str, ...]
    """Fields that must not be null in a row that takes part; empty if all rows take part."""
    rows: int
    """Number of rows that take part."""


def _absent(table: pa.Table, fields: Sequence[str]) -> BoolArray:
    """Mask of the rows that have a null in one of the fields."""
    return np.asarray(np.logical_or.reduce([null_mask(table.column(name)) for name in fields]))


class SwapRun:
    """One run: sizes of its units, its moves, and the reassembly of the destination.

    Parameters
    ----------
    source : Source
    params : SwapParams
    stream : Stream
    resources : Resources
    controls : tuple of str
        Fields from which labels are computed.
    label_bytes : int
        Bytes of a row's labels, if they are not the control fields themselves.

    Raises
    ------
    ParameterError
        Rows are selected by their risk, households move or are counted, classes are quantiles, or rows are
        checked.
    """

    def __init__(
        self, source: Source, params: SwapParams, stream: Stream, resources: Resources,
        controls: tuple[str, ...], label_bytes: int = 0,
    ) -> None:  # fmt: skip
        if params.risk is not None:
            raise ParameterError(
                "risks depend on the whole table, so that a swap with 'risk' does not run out of core",
                "/parameters/risk",
            )
        if params.whole_table == "classifier":
            raise ParameterError(
                "quantiles depend on the whole table, so that a swap by them does not run out of core; give "
                "the borders of the classes as 'breaks'",
                "/parameters/classifier",
            )
        if params.whole_table == "checks":
            raise ParameterError(
                "checks are verified on whole rows, so that a swap with 'checks' does not run out of core",
                "/parameters/checks",
            )
        if params.whole_table is not None:
            raise ParameterError(
                f"rows of a {params.unit_noun} can be anywhere in the table, so that a swap with "
                f"'{params.whole_table}' does not run out of core",
                f"/parameters/{params.whole_table}",
            )
        self.source = source
        self.params = params
        self.fields = tuple(dict.fromkeys([*controls, *params.swap_fields]))
        self.moves = all_moves(params, stream)
        self.sizes = Sizes.of(source, self.fields, resources.memory_bytes, label_bytes)
        self.row = unused("row", source.schema.names)
        self._scratch = resources.scratch

    @property
    def parts(self) -> int:
        """Number of partitions that a spool for exchanged values must have."""
        return Ranges.parts(self.source.rows, self.sizes.range_rows, len(self.moves))

    def exchanger(self, spool: Spool) -> Exchanger:
        """Return an exchanger that writes exchanged values to the spool."""
        return Exchanger(self.params, self.moves, self._ranges([spool]), self.row)

    def unit_exchanger(self, spool: Spool) -> Exchanger:
        """Return an exchanger for a unit of a `division`, which also writes the places of dropped rows."""
        drops = UNSWAPPABLE if self._drops_rows else 0
        return Exchanger(self.params, self.moves, self._ranges([spool], drops), self.row)

    def division(
        self,
        units: tuple[Any, ...],
        common: Any = None,
        params: Any = None,
        piece_files: tuple[int, ...] = (),
        pieces: int | None = None,
        whole_pieces: int = 0,
    ) -> Division:
        """Return the division into units, whose spools have parts for each move and row range.

        ``piece_files``, ``pieces``, ``whole_pieces``: as in `Division`. Default of ``pieces``: as many as
        units if there are files, else none.
        """
        starts = Ranges.starts(self.source.rows, self.sizes.range_rows)
        moves = len(self.moves)
        dropped = moves * len(starts) if self._drops_rows else None
        parts = Ranges.parts(self.source.rows, self.sizes.range_rows, moves + self._drops_rows)
        if pieces is None:
            pieces = len(units) if piece_files else 0
        return Division(units, parts, common, params, starts, dropped, pieces, whole_pieces, piece_files)

    @property
    def _drops_rows(self) -> bool:
        return self.params.suppression.policy == "drop"

    def find_rate(self, grouping: Callable[[int], Grouping] | None, by_count: bool) -> None:
        """Set the rate that meets `target_epsilon`, if there is one; this reads the source once more.

        Raises
        ------
        ParameterError
            No rate reaches the target.
        """
        if self.params.target_epsilon is None:
            return
        unwritten = Ranges([], self.source.rows, self.sizes.range_rows, len(self.moves))
        counter = GroupCounter(self.params, self.moves, unwritten, self.row)
        self.exchange_all(counter, no_progress, grouping, None, by_count)
        counts = [counter.tally.swapped.get(move.fields[0], Counter()) for move in self.moves]
        self.params = with_rate(self.params, counts, counter.tally.too_small)

    def exchange_all(
        self, exchanger: Exchanger, progress: Progress, grouping: Callable[[int], Grouping] | None,
        watcher: Watcher | None, by_count: bool,
    ) -> None:  # fmt: skip
        """Exchange all groups; ``grouping``, ``watcher`` and ``by_count`` as in `swap_outside`."""
        if not self.source.rows:
            return
        if grouping is None:
            self.exchange_everything(exchanger, progress)
            return
        progress(0.0, "sorting")
        passes = self.sort_passes(by_count)
        for number, sort_pass in enumerate(passes):
            pass_progress = sub_progress(progress, number / len(passes), (number + 1) / len(passes))
            self.keep_absent(sort_pass, exchanger)
            if sort_pass.rows:
                active = exchanger.limited_to(sort_pass.moves)
                groups = grouping(sort_pass.rows)
                rows = self.sorted_rows(self.rows_of(sort_pass), groups, active)
                self.exchange_groups(rows, groups, active, pass_progress, watcher)

    def exchange_everything(
        self, exchanger: Exchanger, progress: Progress, share: Share | None = None
    ) -> None:
        """Exchange the whole table as one group, or a share of it."""
        source, sizes = self.source, self.sizes
        if source.rows <= ONE_BUCKET:
            table = pa.concat_tables(numbered(source, self.fields, self.row))
            starts = np.array([0, source.rows], np.int64)
            exchanger.exchange_unit(table, Groups(source.rows, None, starts, np.zeros(1, np.uint64)))
            return
        fields = self.fields if share is None else self.moves[share.move_index].fields
        exchange_large(
            exchanger, lambda: numbered(source, fields, self.row), source.rows, 0, sizes.unit_rows,
            self._scratch, sizes.waiting, progress, share,
        )  # fmt: skip

    def sort_passes(self, by_count: bool) -> list[SortPass]:
        """Divide the moves by the rows that take part; ``by_count`` as in `swap_outside`."""
        all_rows = self.source.rows
        present = [all_rows] * len(self.moves)
        if by_count:
            for batch in self.source.batches(self.params.swap_fields):
                table = pa.Table.from_batches([batch])
                for index, move in enumerate(self.moves):
                    present[index] -= int(np.count_nonzero(_absent(table, move.fields)))
        without_nulls = tuple(index for index, rows in enumerate(present) if rows == all_rows)
        passes = [SortPass(without_nulls, (), all_rows)] if without_nulls else []
        return passes + [
            SortPass((index,), self.moves[index].fields, rows)
            for index, rows in enumerate(present)
            if rows < all_rows
        ]

    def rows_of(self, sort_pass: SortPass) -> Rows:
        """Return the rows that take part in a pass."""
        if not sort_pass.present:
            return Rows.of_source(self.source, self.row)
        return Rows(
            sort_pass.rows, lambda fields, within: self._read(sort_pass, fields, present=True, within=within)
        )

    def keep_absent(self, sort_pass: SortPass, exchanger: Exchanger) -> None:
        """Write the rows that take no part in a pass, with their own values."""
        if sort_pass.present:
            for table in self._read(sort_pass, sort_pass.present, present=False):
                for move_index in sort_pass.moves:
                    exchanger.keep_values(move_index, table, REASONS["null"])

    def _read(
        self, sort_pass: SortPass, fields: Sequence[str], present: bool, within: range | None = None
    ) -> Iterator[pa.Table]:
        """Read fields, with row numbers, of the rows that take part in a pass, or of all others.

        ``within``: as for `numbered`.
        """
        names = tuple(dict.fromkeys([*fields, *sort_pass.present]))
        for table in numbered(self.source, names, self.row, within):
            chosen = _absent(table, sort_pass.present) != present
            yield take_rows(table.select([*fields, self.row]), np.flatnonzero(chosen))

    def fields_of(self, moves: Sequence[int]) -> tuple[str, ...]:
        """Return the control fields and the fields of some moves."""
        unmoved = {name for move in self.moves for name in move.fields}
        unmoved -= {name for index in moves for name in self.moves[index].fields}
        return tuple(name for name in self.fields if name not in unmoved)

    def sorted_rows(self, rows: Rows, grouping: Grouping, exchanger: Exchanger) -> SortedRows:
        """Return the fields that the exchanger needs of some rows, in the order of their labels."""
        sizes = self.sizes
        parts = sorted_parts(
            rows, self.fields_of(exchanger.active), grouping.controls, grouping.labels, self.row,
            sizes.unit_rows, self._scratch, sizes.waiting,
        )  # fmt: skip
        return SortedRows(rows.count, parts)

    def scatter(
        self,
        rows: Rows,
        moves: Sequence[int],
        parts: UnitParts,
        piece: tuple[int, int],
        spool: Spool,
        first: int,
    ) -> None:
        """Scatter a piece of the source into the parts in which the rows of all units are sorted.

        Parameters
        ----------
        rows : Rows
            Rows that take part.
        moves : sequence of int
            Moves whose fields are scattered.
        parts : UnitParts
        piece : (int, int)
            Number of the piece, and number of pieces.
        spool : Spool
        first : int
            First part of the spool.
        """
        number, count = piece
        start, stop = (self.source.rows * each // count for each in (number, number + 1))
        if start < stop:
            parts.scatter(rows.read_within(self.fields_of(moves), range(start, stop)), spool, first)

    def exchange_groups(
        self, rows: SortedRows, grouping: Grouping, exchanger: Exchanger, progress: Progress,
        watcher: Watcher | None,
    ) -> None:  # fmt: skip
        """Exchange group by group; the rows are those of whole groups."""
        _GroupWalk(rows, grouping, exchanger, self.sizes, self._scratch, watcher).run(progress)

    def assembled(
        self,
        spools: Sequence[Spool],
        tally: Tally,
        watcher: Watcher | None,
        absent_values: AbsentMask = null_mask,
    ) -> StreamedResult:
        """Assemble the whole destination from the spools of a run by one worker.

        Parameters
        ----------
        spools : sequence of Spool
        tally : Tally
        watcher : Watcher or None
        absent_values : callable
            Column -> mask of the rows whose value cannot take part.

        Raises
        ------
        UnswappableError, ReversibleError
            As `swap_outside`.
        """
        streamed = self.section(spools, tally, Section(0, self.source.rows), absent_values)
        return StreamedResult(
            streamed.schema,
            streamed.pieces,
            lambda: self.finished(tally, watcher, [streamed.figures()]),
            streamed.unchanged,
        )

    def section(
        self, spools: Sequence[Spool], tally: Tally, section: Section, absent_values: AbsentMask = null_mask
    ) -> StreamedSection:
        """Assemble a section from the spools of all units; arguments and errors as `assembled`."""
        assembly = Assembly(self.source, self.params, self.moves, tally, absent_values)
        return assembly.section(self._ranges(spools), section)

    def finished(
        self, tally: Tally, watcher: Watcher | None, sections: Sequence[AssemblyFigures]
    ) -> SwapResult:
        """Build the report from the figures of all units and all sections; errors as `assembled`."""
        report = Assembly(self.source, self.params, self.moves, tally).finished(sections)
        if watcher is not None:
            report.provider.update(watcher.figures(tally))
        return report

    def _ranges(self, spools: Sequence[Spool], drops: int = 0) -> Ranges:
        return Ranges(spools, self.source.rows, self.sizes.range_rows, len(self.moves), drops)


class _GroupWalk:
    """Walk over partitions in the order of their labels that exchanges each group once it is complete."""

    def __init__(
        self, rows: SortedRows, grouping: Grouping, exchanger: Exchanger, sizes: Sizes, scratch: Scratch,
        watcher: Watcher | None,
    ) -> None:  # fmt: skip
        self._rows = rows
        self._grouping = grouping
        self._exchanger = exchanger
        self._sizes = sizes
        self._scratch = scratch
        self._observe = None if watcher is None else watcher.observe
        self._held: pa.Table | None = None
        """Rows of the last group, which may continue."""
        self._large: _LargeGroup | None = None
        """That group, if it is too large for memory, without its last row, which is held."""

    def run(self, progress: Progress) -> None:
        """Exchange every group."""
        done = 0
        for table in self._rows.parts:
            done += table.num_rows
            progress(0.3 + 0.6 * done / self._rows.count, "exchanging")
            self._add_partition(table, final=done == self._rows.count)

    def _add_partition(self, table: pa.Table, final: bool) -> None:
        """Exchange the groups that are complete; hold the rows of the last one unless this is the end."""
        if self._held is not None:
            table = pa.concat_tables([self._held, table])
            self._held = None
        rows = row_numbers(table, self._exchanger.row)
        listing = self._grouping.listing(table, rows, final)
        first, groups = 0, len(listing.identities)
        complete = groups if final else groups - 1
        if self._large is not None:
            if not complete:
                self._add_to_large(table, listing.order)
                return
            self._large.add(take_rows(table, listing.order[: listing.starts[1]]))
            self._finish_large()
            first = 1
        if complete > first:
            start, stop = listing.starts[first], listing.starts[complete]
            unit = take_rows(table, listing.order[start:stop])
            starts = listing.starts[first : complete + 1] - start
            identities = listing.identities[first:complete]
            self._exchanger.exchange_unit(
                unit, Groups(unit.num_rows, None, starts, identities), self._observe
            )
            del unit
        remaining = listing.order[listing.starts[complete] :]
        if len(remaining) > max(self._sizes.unit_rows, ONE_BUCKET):
            self._large = _LargeGroup(self._scratch, self._sizes.waiting, int(listing.identities[complete]))
            self._add_to_large(table, remaining)
        elif len(remaining):
            self._held = take_rows(table, remaining)

    def _add_to_large(self, table: pa.Table, order: IndexArray) -> None:
        """Add all but the last of these rows to the large group; hold the last one."""
        assert self._large is not None  # noqa: S101 - the caller has created it
        self._large.add(take_rows(table, order[:-1]))
        self._held = take_rows(table, order[-1:])

    def _finish_large(self) -> None:
        large, self._large = self._large, None
        assert large is not None  # noqa: S101 - the caller has checked
        exchange_large(
            self._exchanger, large.read, large.rows, large.identity, self._sizes.unit_rows,
            self._scratch, self._sizes.waiting, no_progress,
        )  # fmt: skip


class _LargeGroup:
    """A group that is too large for memory, in a spool."""

    def __init__(self, scratch: Scratch, memory: int, identity: int) -> None:
        self._spool = scratch.spool(1, memory)
        self.identity = identity

    def add(self, table: pa.Table) -> None:
        """Append rows."""
        self._spool.add(0, table)

    def read(self) -> Iterator[pa.Table]:
        """Iterate over batches of the rows in listing order."""
        return self._spool.read(0)

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self._spool.rows(0)
