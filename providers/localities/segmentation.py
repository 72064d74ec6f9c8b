"""Segment all fields of a table or of a row range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from providers.localities.properties import (
    Breach,
    Property,
    breaches,
    property_bytes,
    property_constraints,
    refuse_breaches,
)
from providers.localities.redraw import Batch, RedrawSettings
from providers.localities.report import Figures, report
from providers.localities.segment_arrays import COLUMN
from providers.localities.segments import (
    SegmentedField,
    own_range,
    segment_counts,
    segment_starts,
    segmented,
    set_grid,
    set_places,
)
from providers.randomness.chacha20 import Key
from providers.results import SwapResult
from providers.tables.numbers import Numbers, counted_from, numbers_of

Ends = tuple[Any, Any]
"""A least and a greatest value, in whole units if the field has them."""

_BYTES_OF_VALUE = 110
"""Memory of a value in a field: values, units, order, segment and variables, sorted and unsorted."""


def bytes_of_row(fields: int, properties: Iterable[Sequence[Property]], size: int) -> int:
    """Return the memory in bytes of a row's values in all fields, with its share of the properties.

    Parameters
    ----------
    fields : int
        Number of fields.
    properties : iterable of sequences of Property
        Properties of interest of each field.
    size : int
        Records of a segment.
    """
    return fields * _BYTES_OF_VALUE + sum(property_bytes(of_field, size) for of_field in properties)


@dataclass(frozen=True, slots=True)
class FieldSettings:
    """Settings of one field."""

    key: Key
    """Random key of the field."""
    domain: Ends | None
    """Range that may be published; None for the field's own range, or that of the type."""
    type_range: Ends | None
    """Least and greatest whole unit of the destination's type; None if that is float64."""
    properties: tuple[Property, ...] = ()
    """Properties of interest that the user gives."""

    def grid_is_relative(self) -> bool:
        """Whether float64 must distinguish only the steps from the field's least value on.

        That is so if steps are published as integers; but properties are computed from the values themselves.
        """
        return self.type_range is not None and not self.properties


@dataclass(frozen=True, slots=True)
class Segmentation:
    """Settings of all segments, and how to cut fields into them (section 4.2)."""

    fields: Mapping[str, FieldSettings]
    """Settings of each field, by name."""
    size: int
    """Records of a segment."""
    margin: float | None
    """Share of its range by which a segment is widened at each end; None for 1 / (n - 1)."""
    decimals: int | None
    """Decimals of published values; None if they are not rounded."""
    settings: RedrawSettings
    """Settings of the kernels."""
    anonymise: Callable[[Batch], None]
    """Runs the steps of the method on a batch of segments."""

    @property
    def bytes_of_row(self) -> int:
        """Memory in bytes of a row's values in all fields, with its share of the properties."""
        properties = (settings.properties for settings in self.fields.values())
        return bytes_of_row(len(self.fields), properties, self.size)

    def of_table(self, table: pa.Table) -> list[SegmentedField]:
        """Cut the fields of a whole table.

        Raises
        ------
        SourceError, ParameterError
            The values, or a relation on the source, do not fit the parameters; field by field.
        """
        fields = []
        for name, settings in self.fields.items():
            segmented_field = self.field_of_range(table, 0, name, None, settings.properties)
            numbers = segmented_field.numbers
            reach = reach_of(own_range(numbers), numbers.scale)
            refuse_breaches(self.breaches(segmented_field), name, reach, self.size)
            fields.append(segmented_field)
        return fields

    def of_range(self, table: pa.Table, first: int, own: Mapping[str, Ends | None]) -> list[SegmentedField]:
        """Cut the fields of the rows from `first` on, the start of a segment.

        `own` holds the range of each field in all rows.
        """
        return [
            self.field_of_range(table, first, name, own[name], settings.properties)
            for name, settings in self.fields.items()
        ]

    def field_of_range(
        self, table: pa.Table, first: int, name: str, own: Ends | None, properties: Sequence[Property]
    ) -> SegmentedField:
        """Cut one field of the rows from `first` on, the start of a segment.

        Parameters
        ----------
        table : pa.Table
            The rows.
        first : int
            Number of the first row in the whole table.
        name : str
            Name of the field.
        own : Ends, optional
            Range of the field in all rows; None if these are all.
        properties : sequence of Property
            Properties of interest of the field that are written.
        """
        settings = self.fields[name]
        segmented_field = self.placed(name, numbers_of(table.column(name), name), table.num_rows, own)
        segmented_field.identities = segmented_field.identities + np.uint64(first // self.size)
        if self.decimals is not None:
            set_grid(
                segmented_field, self.decimals, settings.type_range is not None, settings.grid_is_relative()
            )
        if properties:
            segmented_field.properties = property_constraints(
                segmented_field, properties, first, table.num_rows
            )
        return segmented_field

    def placed(self, name: str, numbers: Numbers, rows: int, own: Ends | None = None) -> SegmentedField:
        """Cut a field of this many rows, and set the bounds of its values.

        `own` is the range of the field in all rows; None if these are all.
        """
        settings = self.fields[name]
        own = own or own_range(numbers)
        if own is not None:
            numbers = counted_from(numbers, own[0])
        starts = segment_starts(rows, self.size)
        segmented_field = segmented(name, numbers, settings.key, starts, self.settings.spread)
        bounds = self.settings.bounds
        set_places(segmented_field, bounds, self.margin, settings.domain, settings.type_range, own)
        return segmented_field

    def breaches(self, segmented_field: SegmentedField) -> dict[int, Breach]:
        """Return the field's properties that do not hold on the source, by number."""
        properties = segmented_field.properties
        return {} if properties is None else breaches(segmented_field, properties)

    def report(self, table: pa.Table, figures: Figures, rows: int) -> SwapResult:
        """Build the result of redrawing a table of this many rows; `table` is the destination."""
        disclosed = {name for name, settings in self.fields.items() if settings.domain is None}
        segments = segment_counts(rows, self.size)
        in_column = self.settings.bounds == COLUMN
        return report(table, figures, rows, segments, disclosed if in_column else set())


def reach_of(own: Ends | None, scale: int) -> float:
    """Return the length of a field's own range, given in units of 10**-scale; 0 without values."""
    return 0.0 if own is None else float(own[1] - own[0]) / 10.0**scale
