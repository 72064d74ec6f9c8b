"""DSWAP, CDSWAP and DDSWAP out of core: from a source to its destination, through units that fit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from providers.external.assembly import Assembly, Lacking
from providers.external.exchanging import Exchanging, Ranges, Tally, all_moves
from providers.external.large import Share, exchange_large
from providers.external.parts import Rows, numbered, unused
from providers.external.sorting import Labels, sorted_parts
from providers.groups import Groups, Pairing
from providers.kernels import ONE_BUCKET
from providers.params import SwapParams
from providers.provider import Progress, Streamed, SwapResult, no_progress
from providers.radix import IndexArray, Int64Array, UInt64Array
from providers.rng import Stream
from providers.storage import Room, Scratch, Source, Spool, bytes_read
from providers.table import null_mask, take_rows


@dataclass(frozen=True)
class Sizes:
    """How large the pieces are that the work is cut into. No result depends on them."""

    unit_rows: int
    """Rows exchanged at a time."""
    range_rows: int
    """Rows put together at a time."""
    waiting: int
    """Bytes of rows that wait to be put aside."""

    @classmethod
    def of(cls, source: Source, fields: tuple[str, ...], memory: int, label_bytes: int = 0) -> "Sizes":
        """What fits: sorting and exchanging take several copies of what is read, and of a row's labels."""
        rows = max(1, source.rows)
        read = bytes_read(source, fields) / rows + 8 + label_bytes
        every = source.nbytes / rows
        unit = int(0.5 * memory / (3 * read + 64))
        together = int(0.3 * memory / (4 * every + 24))
        return cls(max(_LEAST_ROWS, unit), max(_LEAST_ROWS, together), memory // 10)


_LEAST_ROWS = 64


@dataclass(frozen=True)
class Listing:
    """Groups of a piece of the table that is sorted by its labels."""

    order: IndexArray
    """The piece's rows, group by group, in listing order."""
    starts: Int64Array
    """Where groups start, and the end; the last may go on in the next piece, unless this is the last."""
    identities: UInt64Array


class Grouping(Protocol):
    """What says which rows are a group."""

    controls: tuple[str, ...]
    """The fields that say so."""

    def labels(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """Columns that order the rows of a piece; a group's rows lie together."""

    def listing(self, table: pa.Table, rows: Int64Array, final: bool) -> Listing:
        """The groups of a piece: of the rows that have not been given out, and those that come next.

        ``rows`` are the numbers of the piece's rows; ``final`` says that no piece comes after it.
        """


class Watcher(Protocol):
    """Sees every unit, to say the provider's own figures; it travels between processes."""

    def see(self, groups: Groups, table: pa.Table, name: str, pairing: Pairing) -> None:
        """A unit's groups and rows, the first of the fields that move, and how they are exchanged."""

    def include(self, other: Any) -> None:
        """What another one of its kind has seen."""

    def figures(self, tally: Tally) -> dict[str, Any]:
        """The figures, once all is exchanged."""


def swap_outside(
    source: Source, params: SwapParams, stream: Stream, progress: Progress, room: Room,
    grouping: Grouping | None, watcher: Watcher | None = None,
) -> Streamed:  # fmt: skip
    """Exchange the swap fields' values within groups; the same result as `swapping.swap_within`.

    Parameters
    ----------
    source : Source
        Read several times.
    params : SwapParams
        Checked.
    stream : Stream
        Purposes as there.
    progress : Progress
    room : Room
    grouping : Grouping, optional
        None: the whole table is one group.
    watcher : Watcher, optional

    Raises
    ------
    UnswappableError
        Rows cannot be swapped and the policy is ``fail``; raised before there is a destination.
    """
    run = SwapRun(source, params, stream, room, () if grouping is None else grouping.controls)
    spool = room.scratch.spool(run.parts, run.sizes.waiting)
    exchanging = run.exchanging(spool)
    if not source.rows:
        pass
    elif grouping is None:
        run.exchange_everything(exchanging, progress)
    else:
        progress(0.0, "sorting")
        rows = Rows.of_source(source, run.row)
        run.exchange_groups(rows, grouping, exchanging, progress, watcher)
    return run.assembled([spool], exchanging.tally, watcher)


class SwapRun:
    """One run: how large its pieces are, what is moved, and how what has been moved is put together."""

    def __init__(
        self, source: Source, params: SwapParams, stream: Stream, room: Room, controls: tuple[str, ...],
        label_bytes: int = 0,
    ) -> None:  # fmt: skip
        """``label_bytes``: of a row's labels, where they are not the control fields themselves."""
        self.source = source
        self.params = params
        self.fields = tuple(dict.fromkeys([*controls, *params.swap_fields]))
        self.moves = all_moves(params, stream)
        self.sizes = Sizes.of(source, self.fields, room.memory_bytes, label_bytes)
        self.row = unused("row", source.schema.names)
        self._scratch = room.scratch

    @property
    def parts(self) -> int:
        """Parts that a spool for exchanged values must have."""
        return Ranges.parts(self.source.rows, self.sizes.range_rows, len(self.moves))

    def exchanging(self, spool: Spool) -> Exchanging:
        """What exchanges units, and puts what comes out into the spool."""
        return Exchanging(self.params, self.moves, self._ranges([spool]), self.row)

    def exchange_everything(
        self, exchanging: Exchanging, progress: Progress, share: Share | None = None
    ) -> None:
        """The whole table as one group, or a share of it."""
        source, sizes = self.source, self.sizes
        if source.rows <= ONE_BUCKET:
            table = pa.concat_tables(numbered(source, self.fields, self.row))
            starts = np.array([0, source.rows], np.int64)
            exchanging.unit(table, Groups(source.rows, None, starts, np.zeros(1, np.uint64)))
            return
        fields = self.fields if share is None else self.moves[share.which].fields
        exchange_large(
            exchanging, lambda: numbered(source, fields, self.row), source.rows, 0, sizes.unit_rows,
            self._scratch, sizes.waiting, progress, share,
        )  # fmt: skip

    def exchange_groups(
        self, rows: Rows, grouping: Grouping, exchanging: Exchanging, progress: Progress,
        watcher: Watcher | None,
    ) -> None:  # fmt: skip
        """Whole groups, which these rows are, in the order of their labels."""
        _Walk(rows, self.fields, grouping, exchanging, self.sizes, self._scratch, watcher).run(progress)

    def assembled(
        self,
        spools: Sequence[Spool],
        tally: Tally,
        watcher: Watcher | None,
        lacking: Lacking = null_mask,
    ) -> Streamed:
        """The destination. Raises UnswappableError."""
        assembly = Assembly(self.source, self.params, self.moves, self._ranges(spools), tally, lacking)
        assembly.refuse_unswappable()

        def result() -> SwapResult:
            found = assembly.result()
            if watcher is not None:
                found.provider.update(watcher.figures(tally))
            return found

        return Streamed(assembly.schema, assembly.pieces(), result)

    def _ranges(self, spools: Sequence[Spool]) -> Ranges:
        return Ranges(spools, self.source.rows, self.sizes.range_rows, len(self.moves))


class _Walk:
    """Leads through the parts in the order of their labels, and gives out each group once it is whole."""

    def __init__(
        self, rows: Rows, fields: tuple[str, ...], grouping: Grouping, exchanging: Exchanging,
        sizes: Sizes, scratch: Scratch, watcher: Watcher | None,
    ) -> None:  # fmt: skip
        self._rows = rows
        self._fields = fields
        self._grouping = grouping
        self._exchanging = exchanging
        self._sizes = sizes
        self._scratch = scratch
        self._see = None if watcher is None else watcher.see
        self._held: pa.Table | None = None
        """Rows of the group that may go on."""
        self._large: _LargeGroup | None = None
        """All but the last row of that group, where it has become too large; the last one is held."""

    def run(self, progress: Progress) -> None:
        """Exchange every group."""
        done = 0
        labels: Labels = self._grouping.labels
        parts = sorted_parts(
            self._rows, self._fields, self._grouping.controls, labels, self._exchanging.row,
            self._sizes.unit_rows, self._scratch, self._sizes.waiting,
        )  # fmt: skip
        for table in parts:
            done += table.num_rows
            progress(0.3 + 0.6 * done / self._rows.count, "exchanging")
            self._take_in(table, final=done == self._rows.count)

    def _take_in(self, table: pa.Table, final: bool) -> None:
        if self._held is not None:
            table = pa.concat_tables([self._held, table])
            self._held = None
        rows = np.asarray(table.column(self._exchanging.row).to_numpy())
        listing = self._grouping.listing(table, rows, final)
        first, groups = 0, len(listing.identities)
        whole = groups if final else groups - 1
        if self._large is not None:
            if not whole:
                self._set_aside(table, listing.order)
                return
            self._large.add(take_rows(table, listing.order[: listing.starts[1]]))
            self._finish_large()
            first = 1
        if whole > first:
            start, stop = listing.starts[first], listing.starts[whole]
            unit = take_rows(table, listing.order[start:stop])
            starts = listing.starts[first : whole + 1] - start
            identities = listing.identities[first:whole]
            self._exchanging.unit(unit, Groups(unit.num_rows, None, starts, identities), self._see)
            del unit
        left = listing.order[listing.starts[whole] :]
        if len(left) > max(self._sizes.unit_rows, ONE_BUCKET):
            self._large = _LargeGroup(self._scratch, self._sizes.waiting, int(listing.identities[whole]))
            self._set_aside(table, left)
        elif len(left):
            self._held = take_rows(table, left)

    def _set_aside(self, table: pa.Table, order: IndexArray) -> None:
        """All but the last of these rows."""
        assert self._large is not None  # noqa: S101 - the caller has made it
        self._large.add(take_rows(table, order[:-1]))
        self._held = take_rows(table, order[-1:])

    def _finish_large(self) -> None:
        large, self._large = self._large, None
        assert large is not None  # noqa: S101 - the caller has asked
        exchange_large(
            self._exchanging, large.pieces, large.rows, large.identity, self._sizes.unit_rows,
            self._scratch, self._sizes.waiting, no_progress,
        )  # fmt: skip


class _LargeGroup:
    """A group that is put aside as it comes."""

    def __init__(self, scratch: Scratch, memory: int, identity: int) -> None:
        self._spool = scratch.spool(1, memory)
        self.identity = identity

    def add(self, table: pa.Table) -> None:
        """Rows at its end."""
        self._spool.add(0, table)

    def pieces(self) -> Iterator[pa.Table]:
        """Its rows in listing order."""
        return self._spool.read(0)

    @property
    def rows(self) -> int:
        """Rows so far."""
        return self._spool.rows(0)
