"""Encodings and metadata come back as they went in: upload, storage, download."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.engine.engine import Failure
from app.formats import open_table, stream_chunks
from app.formats.errors import FormatError
from app.formats.media_types import ARROW_STREAM, CSV, JSON, PARQUET
from app.store.blobs.arrow_stream import TableReader
from app.store.blobs.sealed_files import BlobStore, SealedWriter
from app.store.crypto.sealing import Sealer
from app.worker.run_ingest import run_ingest
from app.worker.tasks import IngestTask
from providers.tables.digest import table_digest
from providers.tables.encodings import canonical_array
from tests.every_type import COLUMNS, halves_in_two_chunks, in_two_chunks

GEO = b'{"primary_column": "g", "columns": {"g": {"bbox": [0, 0, 1, 1]}}}'
METADATA = {b"geo": GEO, b"\xff": b"\x00\xfe"}
UNIT = {b"unit": b"EUR", b"ARROW:extension:name": b"geoarrow.wkb", b"ARROW:extension:metadata": b"{}"}
AS_PLAIN_IN_PARQUET = {
    "runs of integers", "runs of text", "runs of views", "runs of wide decimals", "runs of a dictionary",
    "list of views", "struct", "list of a dictionary with a null", "list view",
    "dictionary of views with a null", "dictionary of nulls", "dictionary of integers with a null",
    "dictionary of floats with a null", "dictionary of lists with a null", "json of views",
    "dictionary of float16", "dictionary of float16 with a null", "list of a dictionary of float16",
    "struct of a dictionary of float16",
}  # fmt: skip
"""Columns whose encoding Parquet, or Arrow's writer of it, does not have."""
OTHER_IN_PARQUET = {"time32[s]": pa.time32("ms"), "timestamp[s]": pa.timestamp("ms"), "date64": pa.date32()}
NOT_IN_PARQUET = {
    "interval", "fixed_binary(0)", "decimal32 of negative scale", "decimal of negative scale",
    "wide decimal of negative scale",
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


def stream_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def through(store: BlobStore, table: pa.Table, media_type: str) -> bytes:
    """Upload the table as an Arrow stream and download it in a media type."""
    upload = store.allocate()
    with SealedWriter(upload) as writer:
        writer.write(stream_of(table))
    task = IngestTask(upload, ARROW_STREAM, {}, store.allocate(), 2**30)
    outcome = run_ingest(task)
    assert not isinstance(outcome, Failure), outcome
    assert outcome["digest"] == table_digest(table)
    reader = TableReader(task.table)
    try:
        return b"".join(stream_chunks(media_type, reader.schema, reader))
    finally:
        reader.close()


def parquet_table(body: bytes) -> pa.Table:
    return pq.ParquetFile(io.BytesIO(body)).read()


@pytest.mark.parametrize("name", COLUMNS)
def test_an_arrow_stream_comes_back_in_the_types_it_had(store: BlobStore, name: str) -> None:
    """Views, runs, dictionaries and extension types keep their types."""
    field = pa.field("f", COLUMNS[name].type, metadata=UNIT if name == "binary" else None)
    schema = pa.schema([field, pa.field("other", pa.int64())], metadata=METADATA)
    table = pa.Table.from_arrays([in_two_chunks(COLUMNS[name]), pa.array(range(12))], schema=schema)
    back = pa.ipc.open_stream(through(store, table, ARROW_STREAM)).read_all()
    back.validate(full=True)
    assert back.schema.field("f").type == field.type
    assert back.schema.metadata == METADATA
    assert (back.schema.field("f").metadata or None) == field.metadata
    assert table_digest(back) == table_digest(table)


@pytest.mark.parametrize("name", COLUMNS)
def test_parquet_keeps_the_types_that_it_has_or_is_refused_before_it_begins(
    store: BlobStore, name: str
) -> None:
    """No file is truncated: a column is refused before the first chunk is written, or written completely."""
    schema = pa.schema([pa.field("f", COLUMNS[name].type)], metadata=METADATA)
    table = pa.Table.from_arrays([in_two_chunks(COLUMNS[name])], schema=schema)
    if name in NOT_IN_PARQUET:
        with pytest.raises(FormatError, match="which Parquet cannot carry"):
            stream_chunks(PARQUET, table.schema, table.to_batches())
        return
    back = parquet_table(through(store, table, PARQUET))
    assert table_digest(back) == table_digest(table)
    assert {key: value for key, value in back.schema.metadata.items() if key != b"ARROW:schema"} == METADATA
    if name in OTHER_IN_PARQUET:
        assert back.schema.field("f").type == OTHER_IN_PARQUET[name]
    elif name not in AS_PLAIN_IN_PARQUET:
        assert back.schema.field("f").type == table.schema.field("f").type


@pytest.mark.parametrize("media_type", [ARROW_STREAM, PARQUET, CSV, JSON])
def test_a_dictionary_that_holds_a_null_is_answered_whole(store: BlobStore, media_type: str) -> None:
    names = [
        name
        for name in COLUMNS
        if "dictionary" in name and "list" not in name and not name.startswith("struct")
    ]
    table = pa.table({name: in_two_chunks(COLUMNS[name]) for name in names})
    body = through(store, table, media_type)
    if media_type in (ARROW_STREAM, PARQUET):
        schema, batches = open_table(media_type, body)
        assert table_digest(pa.Table.from_batches(batches, schema)) == table_digest(table)
    else:
        plain = {name: canonical_array(COLUMNS[name]) for name in names}
        expected = b"".join(stream_chunks(media_type, pa.schema(plain_fields(plain)), plain_batches(plain)))
        assert body == expected


def plain_fields(columns: dict[str, pa.Array]) -> list[tuple[str, pa.DataType]]:
    return [(name, array.type) for name, array in columns.items()]


def plain_batches(columns: dict[str, pa.Array]) -> list[pa.RecordBatch]:
    return [pa.record_batch(columns)]


def test_runs_counted_by_16_bits_come_back_in_more_than_one_batch(store: BlobStore) -> None:
    """A batch of 65 536 rows cannot have run ends of 16 bits: it is cut."""
    rows = 40_000
    kind = pa.run_end_encoded(pa.int16(), pa.int64())
    half = pa.RunEndEncodedArray.from_arrays(
        pa.array([rows // 2], pa.int16()), pa.array([1], pa.int64()), type=kind
    )
    table = pa.table({"f": pa.chunked_array([half, half], kind), "g": np.arange(rows)})
    back = pa.ipc.open_stream(through(store, table, ARROW_STREAM)).read_all()
    assert back.schema.field("f").type == kind
    assert table_digest(back) == table_digest(table)


def test_metadata_that_only_a_writer_may_set_are_not_believed(store: BlobStore) -> None:
    """Foreign metadata with an Arrow schema or original types are ignored."""
    other = pa.schema([("f", pa.string_view())])
    lies = {b"ARROW:schema": other.serialize().to_pybytes(), b"rowveil:types": other.serialize().to_pybytes()}
    table = pa.Table.from_arrays(
        [pa.array(["1", "2"])], schema=pa.schema([("f", pa.string())], metadata={**lies, **METADATA})
    )
    for media_type in (ARROW_STREAM, PARQUET):
        body = through(store, table, media_type)
        back: Any = parquet_table(body) if media_type == PARQUET else pa.ipc.open_stream(body).read_all()
        assert back.schema.field("f").type == pa.string()
        assert b"rowveil:types" not in back.schema.metadata
        assert back.schema.metadata[b"geo"] == METADATA[b"geo"]


def test_a_date_beyond_32_bits_is_refused_by_name() -> None:
    """The date has no canonical form; the message states what to send."""
    far = pa.array([(2**31 + 5) * 86_400_000], pa.int64()).view(pa.date64())
    with pytest.raises(FormatError, match="field 'd' has a date64 that does not fit a date of 32 bits"):
        list(open_table(ARROW_STREAM, stream_of(pa.table({"d": far})))[1])


def test_dictionaries_that_together_are_too_many_are_written_batch_by_batch() -> None:
    """The file is complete although the indices cannot number all values of a row group."""
    kind = pa.dictionary(pa.int8(), pa.string())
    halves = [
        pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array([f"{n}" for n in values]))
        for values in (range(100), range(100, 200))
    ]
    table = pa.table({"f": pa.chunked_array(halves, kind)})
    body = b"".join(stream_chunks(PARQUET, table.schema, table.to_batches()))
    assert table_digest(parquet_table(body)) == table_digest(table)


@pytest.mark.parametrize("media_type", [ARROW_STREAM, PARQUET, CSV, JSON])
def test_batches_with_other_dictionaries_of_half_floats_keep_their_values(
    store: BlobStore, media_type: str
) -> None:
    """Arrow joins such dictionaries as integers: 1.5 became 15872 in the stored table."""
    table = pa.table({"half": halves_in_two_chunks()})
    body = through(store, table, media_type)
    if media_type in (ARROW_STREAM, PARQUET):
        schema, batches = open_table(media_type, body)
        assert table_digest(pa.Table.from_batches(batches, schema)) == table_digest(table)
    else:
        plain = {"half": canonical_array(pa.array(table["half"].to_pylist(), pa.float16()))}
        expected = b"".join(stream_chunks(media_type, pa.schema(plain_fields(plain)), plain_batches(plain)))
        assert body == expected
