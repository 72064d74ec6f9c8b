"""Reassemble exchanged values in row order, suppress, and build the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray
from providers.errors import UnswappableError
from providers.out_of_core.partitions import in_ranges
from providers.out_of_core.row_ranges import Marks, Ranges
from providers.params import SwapParams
from providers.results import Events, SwapResult, append_events, group_size_of_counts
from providers.storage import Source
from providers.swapping.guarantee import guarantee_figures
from providers.swapping.out_of_core.exchange import Move, Tally
from providers.swapping.participation import REASONS, TOOK_PART
from providers.swapping.report import add_nothing_changed_events, search_space_figures, swap_summary
from providers.swapping.reversible_groups import group_bits, refuse_reversible, warn_of_reversible
from providers.swapping.suppression import Unswappable, add_row_events, describe, suppress
from providers.tables.columns import null_mask

AbsentMask: TypeAlias = "Callable[[pa.ChunkedArray], BoolArray]"
"""Callback(column): mask of the rows whose value cannot take part."""

_UNSWAPPABLE = REASONS["alone"] | REASONS["group_too_small"]
"""Bits of the rows that cannot be swapped."""


class Assembly:
    """Assembles the destination, one row range at a time, and counts the figures of the report.

    Parameters
    ----------
    source : Source
    params : SwapParams
    moves : sequence of Move
    ranges : Ranges
        Exchanged values by row range.
    tally : Tally
        Figures of all units.
    absent_values : callable
        Column -> mask of the rows whose value cannot take part.
    """

    def __init__(
        self,
        source: Source,
        params: SwapParams,
        moves: Sequence[Move],
        ranges: Ranges,
        tally: Tally,
        absent_values: AbsentMask = null_mask,
    ) -> None:
        self._source = source
        self._params = params
        self._moves = moves
        self._ranges = ranges
        self._tally = tally
        self._absent_values = absent_values
        self._swap_fields = [name for move in moves for name in move.fields]
        self._events = Events()
        self._null_kept_events = Events()
        self._reasons: Counter[str] = Counter()
        self._took_part = self._unswapped = self._suppressed = 0
        self._counts = [tally.swapped.get(move.fields[0], Counter()) for move in moves]
        self._bits = group_bits(self._counts, params.rate, params.mechanism)
        self.schema = self._schema()

    @property
    def unchanged(self) -> frozenset[str]:
        """Fields that have the values of the source in all of its rows."""
        suppression = self._params.suppression
        dropped = suppression.policy == "drop" and any(self._tally.unswappable.values())
        changed = {*self._swap_fields, *suppression.fields}
        return frozenset(() if dropped else set(self._source.schema.names) - changed)

    def _schema(self) -> pa.Schema:
        """Return the source's schema; fields that are suppressed in some row become nullable."""
        schema: pa.Schema = self._source.schema
        if self._params.suppression.policy != "suppress":
            return schema
        unswappable = self._tally.unswappable
        named = self._params.suppression.fields if any(unswappable.values()) else ()
        for name in named or [name for name in self._swap_fields if unswappable[name]]:
            index = schema.get_field_index(name)
            schema = schema.set(index, schema.field(index).with_nullable(True))
        return schema

    def refuse(self) -> None:
        """Raise UnswappableError or ReversibleError if the parameters demand it."""
        self._refuse_unswappable()
        refuse_reversible(self._params, self._bits)

    def _refuse_unswappable(self) -> None:
        if self._params.suppression.policy != "fail" or not any(self._tally.unswappable.values()):
            return
        rows = 0
        for number in range(self._ranges.count):
            marks = [self._ranges.marks(move_index, number) for move_index in range(len(self._moves))]
            rows += int(np.count_nonzero(np.bitwise_or.reduce(marks) & _UNSWAPPABLE))
        raise UnswappableError(describe(rows, self._tally.unswappable_groups))

    def pieces(self) -> Iterator[pa.Table]:
        """Iterate over the destination, one row range at a time."""
        others = [name for name in self._source.schema.names if name not in self._swap_fields]
        other_tables = in_ranges(self._source, others, self._ranges.range_rows) if others else iter(())
        for number in range(self._ranges.count):
            first = number * self._ranges.range_rows
            columns: dict[str, pa.ChunkedArray] = {}
            if others:
                unmoved = next(other_tables)[1]
                columns.update(zip(unmoved.column_names, unmoved.columns, strict=True))
            marks = []
            for move_index, move in enumerate(self._moves):
                moved, move_marks = self._ranges.get(move_index, number)
                columns.update(zip(move.fields, moved, strict=True))
                marks.append(move_marks)
            names = self._source.schema.names
            table = pa.Table.from_arrays([columns[name] for name in names], schema=self._source.schema)
            columns.clear()
            yield self._suppress_and_count(table, marks, first)

    def _suppress_and_count(self, table: pa.Table, marks: list[Marks], first: int) -> pa.Table:
        """Apply the suppression to a row range and count its rows; ``first``: number of its first row."""
        combined = np.bitwise_or.reduce(marks)
        self._took_part += int(np.count_nonzero(combined & TOOK_PART))
        self._unswapped += int(np.count_nonzero(combined & ~np.uint8(TOOK_PART)))
        for reason, bit in REASONS.items():
            self._reasons[reason] += int(np.count_nonzero(combined & bit))
        by_field: dict[str, IndexArray] = {}
        kept: dict[tuple[str, str | None], IndexArray] = {}
        for move, move_marks in zip(self._moves, marks, strict=True):
            unswappable = np.flatnonzero(move_marks & _UNSWAPPABLE)
            absent = move_marks & REASONS["null"] != 0
            for name in move.fields:
                by_field[name] = unswappable
                if move.locked and absent.any():
                    field_absent = self._absent_values(table.column(name))
                    kept["null_kept", name] = np.flatnonzero(absent & ~field_absent)
        events, null_kept_events = Events(), Events()
        table, suppressed = suppress(table, self._params, Unswappable(by_field, 0), events)
        self._suppressed += suppressed
        add_row_events(null_kept_events, kept)
        append_events(self._events, events, first)
        append_events(self._null_kept_events, null_kept_events, first)
        return pa.Table.from_arrays(table.columns, schema=self.schema)

    def result(self) -> SwapResult:
        """Build the report, after the last range."""
        tally, events = self._tally, self._events
        took_part_by_field = {name: tally.took_part[name] for name in self._swap_fields}
        changed = {name: tally.changed[name] for name in self._swap_fields}
        append_events(events, self._null_kept_events)
        add_nothing_changed_events(changed, took_part_by_field, events)
        summary = swap_summary(
            rows=self._ranges.rows,
            groups=tally.groups.total(),
            group_size=group_size_of_counts(tally.groups),
            took_part=self._took_part,
            took_part_by_field=took_part_by_field,
            changed=changed,
            suppressed=self._suppressed,
            unswapped=self._unswapped,
            reasons=self._reasons,
        )
        warn_of_reversible(self._params, self._bits, events)
        params, fields = self._params, [move.fields for move in self._moves]
        provider_figures = search_space_figures(self._counts, self._bits, params.rate, params.mechanism)
        provider_figures |= guarantee_figures(params, fields, self._counts, tally.too_small)
        return SwapResult(self.schema.empty_table(), summary, events, provider_figures)
