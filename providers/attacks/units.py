"""Units of several rows: persons of `unit_id`, or households, whose rows are not independent of each other.

The rows of a unit share values, so that a row of a unit of which another row was released was in the source.
Hence whole units are withheld, and one row of each unit is attacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Int64Array
from providers.grouping.shuffle import shuffle_rows
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import sample_rows
from providers.randomness.chacha20 import Stream
from providers.tables.codes import codes_and_nulls

WITHHELD = 10
"""One of this many rows or units is withheld."""

_PARAMETERS = ("unit_id", "household", "household_check")
"""Parameters of services that name the field of units; a service takes one of them."""


def unit_field(parameters: Mapping[str, Any]) -> str | None:
    """Return the field by which rows belong together, from a run's parameters; None: rows stand alone."""
    return next((str(parameters[name]) for name in _PARAMETERS if parameters.get(name) is not None), None)


def unit_codes(table: pa.Table, field: str | None) -> Int64Array | None:
    """Return the unit of each row, numbered from 0; a row without a unit is one of its own.

    None if the table has no such field.
    """
    if field is None or field not in table.schema.names:
        return None
    column = table.column(field)
    found, count, absent = codes_and_nulls(column)
    if absent:
        missing = np.flatnonzero(column.is_null().to_numpy())
        found = found.copy()
        found[missing] = count + np.arange(len(missing))
        found = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return found


def withheld_rows(table: pa.Table, field: str | None, stream: Stream, purpose: str) -> BoolArray:
    """Mask of a random tenth of the rows, or of all rows of a random tenth of the units.

    Parameters
    ----------
    table : pa.Table
    field : str or None
        Field of units; None: rows are withheld.
    stream : Stream
    purpose : str
        Address of the random draw.

    Raises
    ------
    NotApplicable
        There are fewer than ten rows or units.
    """
    units = unit_codes(table, field)
    if units is None:
        count, noun = table.num_rows, "rows"
    else:
        count, noun = int(units.max(initial=-1)) + 1, f"units of '{field}'"
    if count < WITHHELD:
        raise NotApplicable(f"a source of fewer than {WITHHELD} {noun} has no tenth to withhold")
    drawn = np.zeros(count, np.bool_)
    drawn[sample_rows(count, count // WITHHELD, stream, purpose)] = True
    return drawn if units is None else drawn[units]


def sampled_units(table: pa.Table, field: str | None, most: int, stream: Stream, purpose: str) -> Int64Array:
    """Sample at most `most` rows, ascending: single rows, or whole units in a random order.

    Parameters
    ----------
    table : pa.Table
    field : str or None
        Field of units; None: rows are sampled.
    most : int
    stream : Stream
    purpose : str
        Address of the random draw.
    """
    units = unit_codes(table, field)
    if units is None or table.num_rows <= most:
        return sample_rows(table.num_rows, most, stream, purpose)
    sizes = np.bincount(units)
    order = shuffle_rows(len(sizes), stream.key(f"sample/{purpose}")).order
    chosen = np.zeros(len(sizes), np.bool_)
    chosen[order[np.cumsum(sizes[order]) <= most]] = True
    return np.flatnonzero(chosen[units]).astype(np.int64)


def row_of_each(units: Int64Array, stream: Stream, purpose: str) -> Int64Array:
    """Return one random row of each unit, ascending by unit; shape (units,)."""
    order = shuffle_rows(len(units), stream.key(f"row of each unit/{purpose}")).order
    _, first = np.unique(units[order], return_index=True)
    return np.asarray(order[first], np.int64)
