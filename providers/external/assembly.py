"""Exchanged values back in the order of the rows, beside the fields that never moved; and the report."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from providers.errors import UnswappableError
from providers.external.exchanging import Marks, Moves, Ranges, Tally
from providers.external.parts import in_ranges
from providers.measures.risk import matching_bits_of_counts
from providers.params import SwapParams
from providers.provider import EVENTS_SHOWN, Event, Events, Summary, SwapResult
from providers.radix import IndexArray
from providers.storage import Source
from providers.suppression import Unswappable, add_row_events, describe, suppress
from providers.swapping import REASONS, TOOK_PART, group_size_of_counts
from providers.table import BoolArray, null_mask

Lacking = Callable[[pa.ChunkedArray], BoolArray]

_UNSWAPPABLE = REASONS["alone"] | REASONS["group_too_small"]


class Assembly:
    """Puts the destination together, range by range, and counts what the report says."""

    def __init__(
        self,
        source: Source,
        params: SwapParams,
        moves: Sequence[Moves],
        ranges: Ranges,
        tally: Tally,
        lacking: Lacking = null_mask,
    ) -> None:
        """``lacking``: where a column holds no value that could take part."""
        self._source = source
        self._params = params
        self._moves = moves
        self._ranges = ranges
        self._tally = tally
        self._lacking = lacking
        self._moved = [name for move in moves for name in move.fields]
        self._events = Events()
        self._kept_beside_nulls = Events()
        self._reasons: Counter[str] = Counter()
        self._took_part = self._unswapped = self._suppressed = 0
        self.schema = self._schema()

    def _schema(self) -> pa.Schema:
        """The source's, where a field that is suppressed in some row may hold nulls."""
        schema: pa.Schema = self._source.schema
        if self._params.suppression.policy != "suppress":
            return schema
        unswappable = self._tally.unswappable
        named = self._params.suppression.fields if any(unswappable.values()) else ()
        for name in named or [name for name in self._moved if unswappable[name]]:
            at = schema.get_field_index(name)
            schema = schema.set(at, schema.field(at).with_nullable(True))
        return schema

    def refuse_unswappable(self) -> None:
        """Raise UnswappableError where rows cannot be swapped and the policy is to fail."""
        if self._params.suppression.policy != "fail" or not any(self._tally.unswappable.values()):
            return
        rows = 0
        for number in range(self._ranges.count):
            marks = [self._ranges.marks(which, number) for which in range(len(self._moves))]
            rows += int(np.count_nonzero(np.bitwise_or.reduce(marks) & _UNSWAPPABLE))
        raise UnswappableError(describe(rows, self._tally.unswappable_groups))

    def pieces(self) -> Iterator[pa.Table]:
        """The destination, range by range."""
        others = [name for name in self._source.schema.names if name not in self._moved]
        beside = in_ranges(self._source, others, self._ranges.range_rows) if others else iter(())
        for number in range(self._ranges.count):
            first = number * self._ranges.range_rows
            columns: dict[str, pa.ChunkedArray] = {}
            if others:
                still = next(beside)[1]
                columns.update(zip(still.column_names, still.columns, strict=True))
            marks = []
            for which, move in enumerate(self._moves):
                moved, of_move = self._ranges.get(which, number)
                columns.update(zip(move.fields, moved, strict=True))
                marks.append(of_move)
            names = self._source.schema.names
            table = pa.Table.from_arrays([columns[name] for name in names], schema=self._source.schema)
            columns.clear()
            yield self._finished(table, marks, first)

    def _finished(self, table: pa.Table, marks: list[Marks], first: int) -> pa.Table:
        """The range after suppression, its rows counted."""
        together = np.bitwise_or.reduce(marks)
        self._took_part += int(np.count_nonzero(together & TOOK_PART))
        self._unswapped += int(np.count_nonzero(together & ~np.uint8(TOOK_PART)))
        for reason, bit in REASONS.items():
            self._reasons[reason] += int(np.count_nonzero(together & bit))
        by_field: dict[str, IndexArray] = {}
        kept: dict[tuple[str, str | None], IndexArray] = {}
        for move, of_move in zip(self._moves, marks, strict=True):
            unswappable = np.flatnonzero(of_move & _UNSWAPPABLE)
            absent = of_move & REASONS["null"] != 0
            for name in move.fields:
                by_field[name] = unswappable
                if move.locked and absent.any():
                    own = self._lacking(table.column(name))
                    kept["null_kept", name] = np.flatnonzero(absent & ~own)
        events, beside_nulls = Events(), Events()
        table, suppressed = suppress(table, self._params, Unswappable(by_field, 0), events)
        self._suppressed += suppressed
        add_row_events(beside_nulls, kept)
        append_events(self._events, events, first)
        append_events(self._kept_beside_nulls, beside_nulls, first)
        return pa.Table.from_arrays(table.columns, schema=self.schema)

    def result(self) -> SwapResult:
        """The report; after the last piece."""
        tally, events = self._tally, self._events
        append_events(events, self._kept_beside_nulls)
        for name in self._moved:
            if not tally.changed[name] and tally.took_part[name]:
                message = "every exchange was of equal values: no row's value changed"
                events.add(Event("nothing_changed", message, field=name))
        rows = self._ranges.rows
        shares = [tally.took_part[name] / rows for name in self._moved if rows]
        summary = Summary(
            rows=rows,
            groups=tally.groups.total(),
            group_size=group_size_of_counts(tally.groups),
            took_part=self._took_part,
            took_part_by_field={name: tally.took_part[name] for name in self._moved},
            changed={name: tally.changed[name] for name in self._moved},
            suppressed=self._suppressed,
            unswapped=self._unswapped,
            unswapped_reasons={name: count for name, count in self._reasons.items() if count},
            achieved_rate=sum(shares) / len(shares) if shares else 0.0,
        )
        bits = 0.0
        for move in self._moves:
            bits += matching_bits_of_counts(tally.swapped.get(move.fields[0], Counter()), self._params.rate)
        return SwapResult(self.schema.empty_table(), summary, events, {"matching_bits": bits})


def append_events(events: Events, more: Events, first: int = 0) -> None:
    """Add events of later rows, which count from `first`, at the end."""
    events.counts.update(more.counts)
    for event in more.listed[: max(0, EVENTS_SHOWN - len(events.listed))]:
        row = None if event.row is None else event.row + first
        events.listed.append(Event(event.code, event.message, row, event.field))
