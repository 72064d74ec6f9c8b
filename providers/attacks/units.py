"""Random rows of tables whose rows belong to units, such as persons: whole units, or one row of each.

A row of a unit of which another row was released was in the source, so that whole units are withheld.
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


def row_of_each(units: Int64Array, stream: Stream, purpose: str) -> Int64Array:
    """Return one random row of each unit, ascending by unit; shape (units,)."""
    order = shuffle_rows(len(units), stream.key(f"row of each unit/{purpose}")).order
    _, first = np.unique(units[order], return_index=True)
    return np.asarray(order[first], np.int64)
