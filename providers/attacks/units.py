"""Random rows of tables whose rows belong to units, such as persons: whole units, or one row of each.

A row of a unit of which another row was released was in the source, so that whole units are withheld. An
intruder who knows a row of a person knows the person.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Int64Array
from providers.grouping.shuffle import shuffle_rows
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import sample_rows
from providers.randomness.chacha20 import Stream
from providers.tables.units import unit_codes

WITHHELD = 10
"""One of this many rows or units is withheld."""


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


def known_share_of(
    rows: int, units: Int64Array | None, share: float, least: int, stream: Stream, purpose: str
) -> BoolArray:
    """Mask of a random share of the rows, or of all rows of a random share of the units.

    Parameters
    ----------
    rows : int
    units : ndarray of int64, shape (rows,), optional
        Unit of each row; None: rows stand alone.
    share : float
    least : int
        Least number of rows or units.
    stream : Stream
    purpose : str
        Address of the random draw.
    """
    count = rows if units is None else int(units.max(initial=-1)) + 1
    chosen = np.zeros(count, np.bool_)
    chosen[sample_rows(count, max(least, round(share * count)), stream, purpose)] = True
    return chosen if units is None else chosen[units]


def of_whole_units(rows: BoolArray, units: Int64Array | None) -> BoolArray:
    """Extend a mask of rows to all rows of their units."""
    return rows if units is None else np.isin(units, units[rows])


def one_of_each(rows: Int64Array, units: Int64Array | None, stream: Stream, purpose: str) -> Int64Array:
    """Return one random row of each unit among some rows, ascending; all rows if each row is a unit."""
    return rows if units is None else np.sort(rows[row_of_each(units[rows], stream, purpose)])


def row_of_each(units: Int64Array, stream: Stream, purpose: str) -> Int64Array:
    """Return one random row of each unit, ascending by unit; shape (units,)."""
    order = shuffle_rows(len(units), stream.key(f"row of each unit/{purpose}")).order
    _, first = np.unique(units[order], return_index=True)
    return np.asarray(order[first], np.int64)
