"""An upload as a worker reads it: what it may take, and that nothing half-written stays."""

import errno
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.engine.engine import STORAGE_FULL, TOO_LARGE, Failure
from app.formats.media_types import ARROW_STREAM, CSV
from app.jobs.failure_errors import error_of
from app.store.blobs.arrow_stream import TableReader, read_table
from app.store.blobs.sealed_files import BlobStore, SealedWriter
from app.store.crypto.sealing import Sealer
from app.worker import run_ingest as ingest
from app.worker.run_ingest import run_ingest
from app.worker.tasks import IngestTask
from providers.tables.digest import table_digest


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


def task(
    store: BlobStore, data: bytes, media_type: str = CSV, max_bytes: int = 2**30, **options: Any
) -> IngestTask:
    upload = store.allocate()
    with SealedWriter(upload) as writer:
        writer.write(data)
    return IngestTask(upload, media_type, options, store.allocate(), max_bytes)


def stream(*batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def failed(given: IngestTask) -> Failure:
    """The failure of a task, which has left no table and no draft of one."""
    outcome = run_ingest(given)
    assert isinstance(outcome, Failure)
    place = Path(given.table.path)
    assert [path for path in place.parent.glob("*") if path.name.startswith(place.name)] == []
    return outcome


def test_many_small_batches_become_few_with_the_same_digest(store: BlobStore) -> None:
    table = pa.table({"n": list(range(5000)), "s": ["a", None] * 2500})
    given = task(store, stream(*table.to_batches(max_chunksize=3)), ARROW_STREAM)
    outcome = run_ingest(given)
    assert not isinstance(outcome, Failure)
    assert outcome["digest"] == table_digest(table)
    assert (outcome["rows"], [field["name"] for field in outcome["fields"]]) == (5000, ["n", "s"])
    reader = TableReader(given.table)
    assert [batch.num_rows for batch in reader] == [1024 * 3, 5000 - 1024 * 3]
    reader.close()
    assert read_table(given.table).equals(table)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"a": np.zeros(20_000, np.int64)}),
        pa.record_batch({"a": pa.nulls(200_000)}),
        pa.record_batch({"a": pa.DictionaryArray.from_arrays(np.zeros(2000, np.int8), ["x" * 100])}),
    ],
    ids=["values", "nulls", "a dictionary's values"],
)
def test_a_table_larger_than_it_may_be_is_refused(store: BlobStore, batch: pa.RecordBatch) -> None:
    failure = failed(task(store, stream(batch), ARROW_STREAM, max_bytes=100_000))
    assert failure.code == TOO_LARGE
    assert "100000 bytes" in failure.message
    assert error_of(failure).status == 413  # type: ignore[union-attr]
    assert isinstance(run_ingest(task(store, stream(batch), ARROW_STREAM)), dict)


CODES = pa.DictionaryArray.from_arrays(np.zeros(2000, np.int8), ["x" * 100])
ROWS = pa.array(range(2001), pa.int32())
ENCODED: dict[str, pa.Array] = {
    "struct": pa.StructArray.from_arrays([CODES], ["a"]),
    "list": pa.ListArray.from_arrays(ROWS, CODES),
    "map": pa.MapArray.from_arrays(ROWS, pa.array(["k"] * 2000), CODES),
    "dictionary of structs": pa.DictionaryArray.from_arrays(
        np.zeros(2000, np.int8), pa.StructArray.from_arrays([CODES.slice(0, 1)], ["a"])
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2000], pa.int32()), pa.array(["x" * 100])),
}


@pytest.mark.parametrize("case", ENCODED)
def test_encoded_values_count_as_decoded_at_every_depth(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    batch = pa.record_batch({"a": ENCODED[case]})
    assert failed(task(store, stream(batch), ARROW_STREAM, max_bytes=199_999)).code == TOO_LARGE
    outcome = run_ingest(task(store, stream(batch), ARROW_STREAM))
    assert not isinstance(outcome, Failure)
    monkeypatch.setattr(ingest, "_MOST_DECODED", 1000)
    in_pieces = run_ingest(task(store, stream(batch), ARROW_STREAM))
    assert not isinstance(in_pieces, Failure)
    assert in_pieces["digest"] == outcome["digest"]


def test_a_row_too_large_when_it_is_decoded_is_refused(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MOST_ROW_BYTES", 2**20)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2000], pa.int32()), CODES)
    assert not isinstance(
        run_ingest(task(store, stream(pa.record_batch({"a": lists})), ARROW_STREAM)), Failure
    )
    monkeypatch.setattr(ingest, "MOST_ROW_BYTES", 2**17)
    failure = failed(task(store, stream(pa.record_batch({"a": lists})), ARROW_STREAM))
    assert failure.code == "invalid_source"
    assert "row 1 (counting from 0) takes more than 0 MiB when its dictionaries" in failure.message


def test_a_dictionary_of_long_values_has_the_digest_of_its_values(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_MOST_DECODED", 1000)
    words = pa.array(["x" * 300, "y" * 200, None]).take(pa.array([0, 1, 2, 1] * 50))
    encoded = pa.record_batch({"a": words.dictionary_encode()})
    outcome = run_ingest(task(store, stream(encoded), ARROW_STREAM))
    assert not isinstance(outcome, Failure)
    assert outcome["digest"] == table_digest(pa.table({"a": words}))


def test_a_row_too_large_to_be_held_is_refused(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "MOST_ROW_BYTES", 20 * 2**20)
    text = b"a,b\n1,x\n2," + b"y" * (21 * 2**20) + b"\n"
    failure = failed(task(store, text))
    assert (failure.code, "takes more than 20 MiB" in failure.message) == ("invalid_source", True)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_storage_is_said_to_be_full(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(number, "no room")

    given = task(store, b"a,b\n1,2\n")
    monkeypatch.setattr(SealedWriter, "_emit", full)
    failure = failed(given)
    assert failure.code == STORAGE_FULL
    assert error_of(failure).status == 507  # type: ignore[union-attr]


def test_what_is_wrong_in_a_late_batch_leaves_nothing_of_the_first(store: BlobStore) -> None:
    text = b"a,b\n" + b"1,2\n" * 1_000_000 + b"1,x\n"
    failure = failed(task(store, text, fields={"a": "int8", "b": "int8"}))
    assert "field 'b', row 1000000 (counting from 0)" in failure.message
