"""A table is one file, however its rows are stored."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from app.formats import arrow, parquet, stream_chunks
from app.formats.errors import FormatError
from app.formats.media_types import ARROW_STREAM, PARQUET
from app.formats.written_batches import written_batches
from providers.tables.layouts import workable, workable_schema
from tests.every_type import COLUMNS, ROWS


def stored_variants(table: pa.Table) -> Iterator[list[pa.RecordBatch]]:
    """The rows in one batch, in slices of it, in batches of their own memory, and with an empty batch."""
    yield table.to_batches()
    yield table.to_batches(max_chunksize=7)
    yield table.to_batches(max_chunksize=3)
    yield [table.slice(row, 1).combine_chunks().to_batches()[0] for row in range(table.num_rows)]
    yield [*table.slice(0, 0).to_batches(), *table.slice(0, 4).to_batches(), *table.slice(4).to_batches()]


@pytest.mark.parametrize("media_type", [ARROW_STREAM, PARQUET])
@pytest.mark.parametrize("most_bytes", [100, 1 << 24])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_file_does_not_show_how_its_table_is_stored(
    name: str, most_bytes: int, media_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its borders are between other rows than those of the stored batches."""
    monkeypatch.setattr(arrow, "_BATCH_ROWS", 5)
    monkeypatch.setattr(arrow, "BATCH_BYTES", most_bytes)
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 5)
    monkeypatch.setattr(parquet, "_GROUP_BYTES", most_bytes)
    table = pa.table(
        [workable(COLUMNS[name]), [f"row {row}" for row in range(ROWS)]], names=["field", "text"]
    )
    schema = workable_schema(table.schema)
    try:
        files = {b"".join(stream_chunks(media_type, schema, batches)) for batches in stored_variants(table)}
    except FormatError:
        assert media_type == PARQUET  # it cannot represent some types
        return
    assert len(files) == 1


def test_borders_follow_the_sizes_of_rows_and_no_row_is_cut() -> None:
    texts = ["a" * size for size in (30, 30, 30, 500, 60, 39, 1, 100, 100, 10)]
    table = pa.table({"t": texts})
    for batches in stored_variants(table):
        found = list(written_batches(batches, 3, 100))
        assert [batch.num_rows for batch in found] == [3, 1, 3, 1, 1, 1]
        assert pa.Table.from_batches(found).equals(table)


def test_a_wide_table_is_one_file() -> None:
    """A row group of Parquet is full by its bytes before it is by its rows."""
    table = pa.table({f"f{number}": range(5000) for number in range(1000)})
    files = {
        b"".join(stream_chunks(PARQUET, table.schema, table.to_batches(max_chunksize=size)))
        for size in (5000, 3000, 1700)
    }
    assert len(files) == 1


def test_nested_dictionaries_that_arrow_cannot_join_are_written() -> None:
    """NaN makes the dictionary unequal to itself, and Arrow unifies none with a null."""
    entries = pa.DictionaryArray.from_arrays([0, 1, 2, 0], pa.array([0.5, float("nan"), None]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), entries)
    table = pa.table({"field": lists})
    for batches in (table.to_batches(), table.to_batches(max_chunksize=2)):
        content = b"".join(stream_chunks(ARROW_STREAM, table.schema, batches))
        assert str(pa.ipc.open_stream(content).read_all().to_pylist()) == str(table.to_pylist())
