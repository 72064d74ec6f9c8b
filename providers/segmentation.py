"""How the fields of a table are cut into segments, and what their values may become; of any range of rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from providers.provider import SwapResult
from providers.publication import COLUMN
from providers.redrawing import Law
from providers.redrawn import Figures, report
from providers.rng import Key
from providers.segmented import (
    SegmentedField,
    own_range,
    segment_counts,
    segmented,
    segments_of,
    set_grid,
    set_places,
)
from providers.units import Numbers, counted_from, numbers_of

Ends = tuple[Any, Any]
"""A least and a greatest value, in whole units where the field has such."""

BYTES_OF_A_VALUE = 110
"""Values, units, order, segment, run and variables of a field's value, sorted and unsorted."""


@dataclass(frozen=True, slots=True)
class FieldLaw:
    """What holds for one field."""

    key: Key
    domain: Ends | None
    """What may be published; None for the field's own range, or for all that the type can hold."""
    whole: Ends | None
    """The least and greatest whole unit of the destination's type; None where that is float64."""


@dataclass(frozen=True, slots=True)
class Segmentation:
    """What holds for all segments."""

    fields: Mapping[str, FieldLaw]
    size: int
    """Rows of a segment."""
    bounds: int
    margin: float | None
    decimals: int | None
    law: Law

    def of_table(self, table: pa.Table) -> list[SegmentedField]:
        """The fields of a whole table, cut. Raises SourceError."""
        fields = []
        for name in self.fields:
            of = self.placed(name, numbers_of(table.column(name), name), table.num_rows)
            if self.decimals is not None:
                set_grid(of, self.decimals, self.fields[name].whole is not None)
            fields.append(of)
        return fields

    def of_range(self, table: pa.Table, first: int, own: Mapping[str, Ends | None]) -> list[SegmentedField]:
        """The fields of rows from `first` on, where a segment starts; ``own``: their ranges in all rows."""
        fields = []
        for name in self.fields:
            numbers = numbers_of(table.column(name), name)
            of = self.placed(name, numbers, table.num_rows, own[name])
            of.numbering = of.numbering + np.uint64(first // self.size)
            if self.decimals is not None:
                set_grid(of, self.decimals, self.fields[name].whole is not None)
            fields.append(of)
        return fields

    def placed(self, name: str, numbers: Numbers, rows: int, own: Ends | None = None) -> SegmentedField:
        """The segments of a field, and where their values may lie; without ``own`` these are all rows."""
        of_field = self.fields[name]
        own = own or own_range(numbers)
        if own is not None:
            numbers = counted_from(numbers, own[0])
        starts = segments_of(rows, self.size)
        of = segmented(name, numbers, of_field.key, starts, self.law.spread)
        set_places(of, self.bounds, self.margin, of_field.domain, of_field.whole, own)
        return of

    def report(self, table: pa.Table, figures: Figures, rows: int) -> SwapResult:
        """The result of redrawing so many rows, its table as it is given."""
        disclosed = {name for name, of in self.fields.items() if of.domain is None}
        segments = segment_counts(rows, self.size)
        return report(table, figures, rows, segments, disclosed if self.bounds == COLUMN else set())
