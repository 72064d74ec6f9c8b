"""Rows scattered among the parts of a spool, against a selection of each part's rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from app.store.blobs.scratch import SealedScratch
from providers.out_of_core.partitions import Span, scatter
from providers.tables.columns import take, take_rows
from providers.tables.digest import table_digest
from tests.every_type import COLUMNS


def _table(has_nulls: bool) -> pa.Table:
    """All columns whose values Arrow can move; without nulls, only rows with a value, again and again."""
    columns = {}
    for name, array in COLUMNS.items():
        rows = [row for row in range(len(array)) if has_nulls or array[row].is_valid]
        try:
            taken = take(pa.chunked_array([array]), pa.array(np.resize(rows, len(array)), pa.int64()))
        except pa.ArrowNotImplementedError:
            continue
        if rows:
            columns[name] = taken
    assert len(columns) > 20
    return pa.table(columns)


@pytest.mark.parametrize("has_nulls", [False, True])
def test_each_part_gets_its_rows_in_their_order(tmp_path: Path, has_nulls: bool) -> None:
    """Every type, next to each other, in two batches; parts without rows stay empty."""
    table = _table(has_nulls)
    random = np.random.default_rng(5)
    batches = [table, table.slice(3)]
    with SealedScratch(tmp_path) as scratch:
        spool = scratch.spool(9, 10**6)
        parts = [random.integers(0, 4, batch.num_rows) for batch in batches]
        for batch, of_row in zip(batches, parts, strict=True):
            scatter(Span([spool], 2, 5), of_row, batch)
        assert [spool.rows(part) for part in (0, 1, 6, 7, 8)] == [0] * 5
        for part in range(4):
            found = pa.concat_tables(spool.read(2 + part))
            wanted = [
                take_rows(batch, np.flatnonzero(of_row == part))
                for batch, of_row in zip(batches, parts, strict=True)
            ]
            assert found.schema == table.schema
            assert table_digest(found) == table_digest(pa.concat_tables(wanted))


def test_buffered_rows_do_not_keep_the_others_in_memory(tmp_path: Path) -> None:
    """A part of one row has the bytes of one row, also in a table of many."""
    table = pa.table(
        {"x": np.arange(100_000), "flag": pa.array([True, False] * 50_000), "t": ["a"] * 100_000}
    )
    parts = np.zeros(100_000, np.int64)
    parts[77] = 1
    with SealedScratch(tmp_path) as scratch:
        spool = scratch.spool(2, 10**9)
        scatter(spool, parts, table)
        (one,) = spool.read(1)
        assert one.to_pylist() == [{"x": 77, "flag": False, "t": "a"}]
        buffers = [buffer for column in one.columns for buffer in column.chunk(0).buffers() if buffer]
        assert sum(buffer.size for buffer in buffers) < 1000
