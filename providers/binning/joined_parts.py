"""Singletons that leave the parts of their own cells for the parts of the bins that they join.

The pieces of a source are scattered by cell, while one more piece finds which singletons join which bins. The
additional piece writes these rows twice: to the parts of their own cells, and to the parts of the bins that
they join. A unit removes the former rows from its parts, and adds the latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from providers.arrays import UInt64Array
from providers.binning.out_of_core import CellGrid, MergedSingletons, Numbers
from providers.out_of_core.partitions import Span, row_numbers
from providers.out_of_core.samplesort import SortedRows, UnitCuts, UnitParts, sorted_spools
from providers.storage import Spool
from providers.tables.columns import take_rows, unused


def scatter_joining(
    numbers: Numbers, grid: CellGrid, cuts: UnitCuts, fields: Sequence[str], row: str,
    left: Spool, joined: Spool,
) -> None:  # fmt: skip
    """Write the singletons that join another bin; if there are some, the source is read once more.

    Parameters
    ----------
    numbers : Numbers
    grid : CellGrid
        With the merged singletons.
    cuts : UnitCuts
    fields : sequence of str
        Fields that the units need: those that define the grid, and others.
    row : str
        Name of the column that holds row numbers.
    left : Spool
        Gets the rows in the parts of their own cells.
    joined : Spool
        Gets the rows, with the cell ids of their bins, in the parts of these bins.
    """
    merged = grid.merged
    if merged is None:
        return
    cells, bins = replace(grid, merged=None).grouping(numbers, row), grid.grouping(numbers, row)
    ids = [unused(f"bin{word}", [*fields, row]) for word in range(len(merged.ids))]
    # Rows that cut may be singletons, too: they stay where they are, while those that join move.
    with_ids = replace(
        cuts,
        first_rows=_with_ids(cuts.first_rows, ids, cells.ids(cuts.first_rows)),
        splitters=_with_ids(cuts.splitters, ids, cells.ids(cuts.splitters)),
    )
    of_cells = UnitParts(cuts, numbers.names, cells.labels, row)
    of_bins = UnitParts(with_ids, ids, lambda table: [table.column(name) for name in ids], row)
    for table in numbers.rows.read(fields):
        rows = take_rows(table, np.flatnonzero(np.isin(row_numbers(table, row), merged.rows)))
        of_cells.scatter(iter([rows]), left, 0)
        of_bins.scatter(iter([_with_ids(rows, ids, bins.ids(rows))]), joined, 0)


def rejoined(
    scattered: Sequence[Spool], left: Spool, joined: Spool, first: int, stop: int, row: str
) -> tuple[SortedRows, MergedSingletons | None]:
    """Return a unit's rows in the order of their parts, and the singletons that have joined one of its bins.

    Parameters
    ----------
    scattered : sequence of Spool
        Pieces of the source, in their order, by cell.
    left, joined : Spool
        As written by `scatter_joining`.
    first, stop : int
        First part of the unit, and the end.
    row : str
        Name of the column that holds row numbers.
    """
    own, leaving, joining = (Span(spools, first, stop - first) for spools in (scattered, [left], [joined]))
    parts = range(stop - first)
    changes = sum(leaving.rows(part) + joining.rows(part) for part in parts)
    if not changes:
        return sorted_spools(scattered, first, stop), None
    moved = {part: _of_part(joining, part) for part in parts if joining.rows(part)}
    merged = _merged(list(moved.values()), row)

    def in_order() -> Iterator[pa.Table]:
        for part in parts:
            tables = list(own.read(part))
            own.clear(part)
            if leaving.rows(part):
                gone = _of_part(leaving, part)
                tables = [_without(table, gone, row) for table in tables]
            if part in moved:
                tables.append(moved[part].select(range(moved[part].column_names.index(row) + 1)))
            if not sum(table.num_rows for table in tables):
                continue
            together = pa.concat_tables(tables)
            if part in moved:
                together = take_rows(together, np.argsort(row_numbers(together, row), kind="stable"))
            yield together

    count = sum(own.rows(part) - leaving.rows(part) + joining.rows(part) for part in parts)
    return SortedRows(count, in_order()), merged


def _with_ids(table: pa.Table, names: Sequence[str], ids: UInt64Array) -> pa.Table:
    """Append the words of cell ids, shape (words, rows), as columns."""
    for name, word in zip(names, ids, strict=True):
        table = table.append_column(name, pa.array(word))
    return table


def _of_part(spool: Span, part: int) -> pa.Table:
    """Return all rows of a part; there are some."""
    return pa.concat_tables(spool.read(part))


def _without(table: pa.Table, gone: pa.Table, row: str) -> pa.Table:
    """Return the rows of a table whose numbers are not among those of another one."""
    staying = np.isin(row_numbers(table, row), row_numbers(gone, row), invert=True)
    return take_rows(table, np.flatnonzero(staying))


def _merged(joining: Sequence[pa.Table], row: str) -> MergedSingletons | None:
    """Return the rows that join, by row number; their cell ids are in the columns after that number."""
    if not joining:
        return None
    table = pa.concat_tables(joining)
    table = take_rows(table, np.argsort(row_numbers(table, row), kind="stable"))
    words = table.columns[table.column_names.index(row) + 1 :]
    return MergedSingletons(row_numbers(table, row), np.stack([word.to_numpy() for word in words]))
