"""Ranges of a source have its rows, from any row to any other, and begin to read at the first of them."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from providers.out_of_core.partitions import Reader, in_ranges, numbered, row_numbers
from tests.property.out_of_core import TableSource

ROWS = 20

TABLE = pa.table({"a": range(ROWS), "b": [f"row {row}" for row in range(ROWS)]})


class NotedSource(TableSource):
    """Source that notes from which rows on it is read."""

    def __init__(self, batch_rows: int) -> None:
        super().__init__(TABLE, batch_rows)
        self.starts: list[int] = []

    def batches(self, fields: Sequence[str], start: int = 0) -> Iterator[pa.RecordBatch]:
        self.starts.append(start)
        return super().batches(fields, start)


@pytest.mark.parametrize("batch_rows", [1, 7, ROWS])
@pytest.mark.parametrize("rows", [1, 3, ROWS, ROWS + 1])
@pytest.mark.parametrize("start", [0, 1, 6, 7, ROWS])
@pytest.mark.parametrize("stop", [None, 8, ROWS])
def test_ranges_are_those_of_the_table(batch_rows: int, rows: int, start: int, stop: int | None) -> None:
    source = NotedSource(batch_rows)
    found = list(in_ranges(source, ["a"], rows, start, stop))
    end = ROWS if stop is None else stop
    assert [first for first, _ in found] == list(range(start, end, rows))
    for first, table in found:
        assert table == TABLE.select(["a"])[first : min(first + rows, end)]
    assert source.starts == [start]


@pytest.mark.parametrize("start", [0, 1, 7, 13])
def test_a_reader_begins_at_its_row(start: int) -> None:
    source = NotedSource(7)
    reader = Reader(source, ["a", "b"], start)
    assert reader.take(2) == TABLE[start : start + 2]
    assert reader.take(5) == TABLE[start + 2 : start + 7]
    assert source.starts == [start]


@pytest.mark.parametrize(("rows", "kind"), [(ROWS, pa.int32()), (2**31, pa.int64())])
def test_row_numbers_have_the_narrowest_type(rows: int, kind: pa.DataType) -> None:
    source = TableSource(TABLE, 7)
    source.rows = rows  # a larger table needs no memory here: its batches end early
    tables = list(numbered(source, ["a"], "row", range(5, ROWS)))
    assert {table.schema.field("row").type for table in tables} == {kind}
    numbers = np.concatenate([row_numbers(table, "row") for table in tables])
    assert numbers.dtype == np.int64
    assert numbers.tolist() == list(range(5, ROWS))
