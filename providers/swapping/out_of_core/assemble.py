"""Reassemble exchanged values in row order, suppress, and build the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray
from providers.errors import UnswappableError
from providers.out_of_core.partitions import Reader
from providers.out_of_core.row_ranges import Marks, Ranges
from providers.params import SwapParams
from providers.provider import StreamedSection
from providers.results import Events, SwapResult, append_events, group_size_of_counts
from providers.sections import Section
from providers.storage import Source
from providers.swapping.guarantee import guarantee_figures
from providers.swapping.out_of_core.exchange import Move, Tally
from providers.swapping.participation import REASONS, TOOK_PART, UNSWAPPABLE
from providers.swapping.report import add_nothing_changed_events, search_space_figures, swap_summary
from providers.swapping.reversible_groups import group_bits, refuse_reversible, warn_of_reversible
from providers.swapping.suppression import Unswappable, add_row_events, describe, suppress
from providers.tables.columns import null_mask
from providers.tables.joining import empty_table

AbsentMask: TypeAlias = "Callable[[pa.ChunkedArray], BoolArray]"
"""Callback(column): mask of the rows whose value cannot take part."""


@dataclass(slots=True)
class AssemblyFigures:
    """Counts and events of assembled rows."""

    took_part: int = 0
    unswapped: int = 0
    suppressed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Number of rows for each reason for which a row was not swapped."""
    events: Events = field(default_factory=Events)
    null_kept_events: Events = field(default_factory=Events)
    refused: int = 0
    """Rows that cannot be swapped, for which the whole run is refused."""

    def add(self, more: AssemblyFigures) -> None:
        """Add the figures of later rows."""
        self.took_part += more.took_part
        self.unswapped += more.unswapped
        self.suppressed += more.suppressed
        self.reasons.update(more.reasons)
        append_events(self.events, more.events)
        append_events(self.null_kept_events, more.null_kept_events)
        self.refused += more.refused


class Assembly:
    """Assembles a section of the destination, one row range at a time, and reports on all sections.

    Parameters
    ----------
    source : Source
    params : SwapParams
    moves : sequence of Move
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
        tally: Tally,
        absent_values: AbsentMask = null_mask,
    ) -> None:
        self._source = source
        self._params = params
        self._moves = moves
        self._tally = tally
        self._absent_values = absent_values
        self._swap_fields = [name for move in moves for name in move.fields]
        self._counts = [tally.swapped.get(move.fields[0], Counter()) for move in moves]
        self._bits = group_bits(self._counts, params.rate, params.mechanism)
        self._figures = AssemblyFigures()
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

    def section(self, ranges: Ranges, section: Section) -> StreamedSection:
        """Assemble the rows of a section.

        Raises
        ------
        UnswappableError, ReversibleError
            The parameters refuse what the section has, and it is the whole destination. Rows that cannot be
            swapped in another section are counted, and `finished` refuses them.
        """
        if self._refuses_unswappable():
            self._figures.refused = self._count_unswappable(ranges, section)
            if section == Section(0, ranges.rows):
                self._refuse(self._figures)
            return StreamedSection(self.schema, iter(()), lambda: self._figures)
        refuse_reversible(self._params, self._bits)
        pieces = self._pieces(ranges, section)
        return StreamedSection(self.schema, pieces, lambda: self._figures, self.unchanged)

    def _refuses_unswappable(self) -> bool:
        return self._params.suppression.policy == "fail" and any(self._tally.unswappable.values())

    def _count_unswappable(self, ranges: Ranges, section: Section) -> int:
        count = 0
        for number, _, rows in ranges.within(section):
            marks = [ranges.marks(move_index, number)[rows] for move_index in range(len(self._moves))]
            count += int(np.count_nonzero(np.bitwise_or.reduce(marks) & UNSWAPPABLE))
        return count

    def _refuse(self, figures: AssemblyFigures) -> None:
        """Raise UnswappableError or ReversibleError if the parameters demand it."""
        if self._refuses_unswappable():
            raise UnswappableError(describe(figures.refused, self._tally.unswappable_groups))
        refuse_reversible(self._params, self._bits)

    def _pieces(self, ranges: Ranges, section: Section) -> Iterator[pa.Table]:
        """Iterate over the section, one row range at a time."""
        others = [name for name in self._source.schema.names if name not in self._swap_fields]
        reader = Reader(self._source, others, section.first) if others else None
        for number, first, rows in ranges.within(section):
            columns: dict[str, pa.ChunkedArray] = {}
            if reader is not None:
                unmoved = reader.take(rows.stop - rows.start)
                columns.update(zip(unmoved.column_names, unmoved.columns, strict=True))
            marks = []
            for move_index, move in enumerate(self._moves):
                moved, move_marks = ranges.get(move_index, number, rows)
                columns.update(zip(move.fields, moved, strict=True))
                marks.append(move_marks)
            names = self._source.schema.names
            table = pa.Table.from_arrays([columns[name] for name in names], schema=self._source.schema)
            columns.clear()
            yield self._suppress_and_count(table, marks, first)

    def _suppress_and_count(self, table: pa.Table, marks: list[Marks], first: int) -> pa.Table:
        """Apply the suppression to a row range and count its rows; ``first``: number of its first row."""
        figures, combined = self._figures, np.bitwise_or.reduce(marks)
        figures.took_part += int(np.count_nonzero(combined & TOOK_PART))
        figures.unswapped += int(np.count_nonzero(combined & ~np.uint8(TOOK_PART)))
        for reason, bit in REASONS.items():
            figures.reasons[reason] += int(np.count_nonzero(combined & bit))
        by_field: dict[str, IndexArray] = {}
        kept: dict[tuple[str, str | None], IndexArray] = {}
        for move, move_marks in zip(self._moves, marks, strict=True):
            unswappable = np.flatnonzero(move_marks & UNSWAPPABLE)
            absent = move_marks & REASONS["null"] != 0
            for name in move.fields:
                by_field[name] = unswappable
                if move.locked and absent.any():
                    field_absent = self._absent_values(table.column(name))
                    kept["null_kept", name] = np.flatnonzero(absent & ~field_absent)
        events, null_kept_events = Events(), Events()
        table, suppressed = suppress(table, self._params, Unswappable(by_field, 0), events)
        figures.suppressed += suppressed
        add_row_events(null_kept_events, kept)
        append_events(figures.events, events, first)
        append_events(figures.null_kept_events, null_kept_events, first)
        return pa.Table.from_arrays(table.columns, schema=self.schema)

    def finished(self, sections: Sequence[AssemblyFigures]) -> SwapResult:
        """Build the report from the figures of all sections, in their order.

        Raises
        ------
        UnswappableError, ReversibleError
            The parameters refuse what the table has.
        """
        figures = AssemblyFigures()
        for each in sections:
            figures.add(each)
        self._refuse(figures)
        tally, events = self._tally, figures.events
        took_part_by_field = {name: tally.took_part[name] for name in self._swap_fields}
        changed = {name: tally.changed[name] for name in self._swap_fields}
        append_events(events, figures.null_kept_events)
        add_nothing_changed_events(changed, took_part_by_field, events)
        summary = swap_summary(
            rows=self._source.rows,
            groups=tally.groups.total(),
            group_size=group_size_of_counts(tally.groups),
            took_part=figures.took_part,
            took_part_by_field=took_part_by_field,
            changed=changed,
            suppressed=figures.suppressed,
            unswapped=figures.unswapped,
            reasons=figures.reasons,
        )
        warn_of_reversible(self._params, self._bits, events)
        params, fields = self._params, [move.fields for move in self._moves]
        provider_figures = search_space_figures(self._counts, self._bits, params.rate, params.mechanism)
        provider_figures |= guarantee_figures(params, fields, self._counts, tally.too_small)
        return SwapResult(empty_table(self.schema), summary, events, provider_figures)
