"""Selected fields of a stored table are those of the table, and nothing else of the blob is opened."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.store.blobs.arrow_stream import TableWriter, table_bytes, write_table
from app.store.blobs.column_reader import BlobTable
from app.store.blobs.sealed_files import CHUNK, BlobAccess, BlobStore, small_table
from app.store.blobs.sealed_reader import SealedReader
from app.store.blobs.selected_fields import can_select, selected_batches, selected_words
from app.store.crypto.sealing import SealBroken, Sealer
from providers.tables.digest import table_digest
from tests.property.arrow_tables import FLAT_TYPES, another_carriage, tables, types

ROWS = 600_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return BlobStore(tmp_path_factory.mktemp("store") / "blobs", Sealer([bytes(32)]))


@pytest.fixture(scope="module")
def wide() -> pa.Table:
    """Fields of 4.8 MB each, which are several chunks of a blob."""
    number = np.arange(ROWS)
    return pa.table({name: number * factor for factor, name in enumerate("abcdef", 3)})


@pytest.fixture(scope="module")
def stored(store: BlobStore, wide: pa.Table) -> BlobAccess:
    access = store.allocate()
    write_table(access, wide, 200_000)
    return access


@given(st.data())
def test_they_are_the_fields_of_the_table(store: BlobStore, data: st.DataObject) -> None:
    """Fields of every type and layout are read, however the rows are divided into batches."""
    plain = data.draw(tables(of=types(FLAT_TYPES), min_fields=1))
    table = data.draw(another_carriage(plain))
    access = store.allocate()
    write_table(access, table, data.draw(st.sampled_from([1, 2, None])))
    names = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    names = [name for name in table.column_names if name in names]
    opened = BlobTable(access, table.num_rows)
    found = opened.read(names)
    found.validate(full=True)
    expected = table_digest(table.select(names))  # equal for NaN, and for values that Python cannot hold
    assert table_digest(found) == expected
    assert found.schema == table.select(names).schema
    assert table_digest(pa.Table.from_batches(opened.batches(names), found.schema)) == expected
    store.delete(access.id)


def test_whole_words_have_one_chunk_and_fields_with_nulls_are_left_out(store: BlobStore) -> None:
    table = pa.table({"a": [1, 2, 3], "b": [1, None, 3], "c": ["x", "y", "z"], "d": [1.5, 2.5, 3.5]})
    access = store.allocate()
    write_table(access, table, 1)
    words = selected_words(access, table.schema, [0, 1, 3], 3)
    assert {index: array.to_pylist() for index, array in words.items()} == {0: [1, 2, 3], 3: [1.5, 2.5, 3.5]}
    read = BlobTable(access, 3).read(["a", "b", "c", "d"])
    assert read == table
    assert [column.num_chunks for column in read.columns] == [1, 1, 1, 1]


def test_other_fields_stay_sealed(
    stored: BlobAccess, wide: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    open_chunk = SealedReader._open_chunk

    def noted(reader: SealedReader, chunk: int, plain: memoryview) -> None:
        opened.append(chunk)
        open_chunk(reader, chunk, plain)

    monkeypatch.setattr(SealedReader, "_open_chunk", noted)
    table = BlobTable(stored, ROWS)
    whole: Callable[[], pa.Table] = partial(table.read, ["b"])
    in_batches: Callable[[], pa.Table] = lambda: pa.Table.from_batches(table.batches(["b"]))  # noqa: E731
    for read in (whole, in_batches):
        opened.clear()
        assert read() == wide.select(["b"])
        chunks = Path(stored.path).stat().st_size // CHUNK
        # 1.6 MB of each batch are at most three chunks, and its header is in another one
        assert len(set(opened)) <= 3 * 5 + 1 < chunks
        assert len(opened) <= len(set(opened)) + 3  # none is opened for each of its buffers


def test_a_dictionary_is_read_as_before(store: BlobStore) -> None:
    table = pa.table({"a": [1, 2, 3], "d": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [4, 5, 6]})
    nested = pa.schema([("l", pa.list_(pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))])))])
    assert not can_select(table.schema)
    assert not can_select(nested)
    assert can_select(table.select(["a", "b"]).schema)
    access = store.allocate()
    write_table(access, table)
    assert BlobTable(access, 3).read(["b", "d"]) == table.select(["d", "b"])


@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_table_has_empty_fields(store: BlobStore, rows: int) -> None:
    table = pa.table({"a": pa.array([1.5] * rows), "b": pa.array(["x"] * rows), "c": pa.nulls(rows)})
    access = store.allocate()
    write_table(access, table)
    small = small_table(table_bytes(table.schema, table.to_batches()))
    for opened in (BlobTable(access, rows), BlobTable(small, rows)):
        assert opened.read(["c", "a"]) == table.select(["a", "c"])
        assert pa.Table.from_batches(opened.batches(["b"]), table.select(["b"]).schema) == table.select(["b"])


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.999])
def test_a_truncated_table_does_not_open(
    store: BlobStore, stored: BlobAccess, wide: pa.Table, kept: float
) -> None:
    """Also where all chunks of the field are there, and the file ends between two chunks."""
    content = Path(stored.path).read_bytes()
    copy = store.allocate()
    sealed = len(content) - len(stored.header)
    chunks = int(kept * sealed / (CHUNK + 16))
    end = len(stored.header) + chunks * (CHUNK + 16) + (0 if chunks else 20)
    Path(copy.path).parent.mkdir(exist_ok=True)
    Path(copy.path).write_bytes(content[:end])
    cut = BlobAccess(copy.id, copy.path, stored.header, stored.data_key)
    with pytest.raises(SealBroken):
        selected_words(cut, wide.schema, [0], ROWS)
    with pytest.raises(SealBroken):
        list(selected_batches(cut, [0], ROWS))


def test_a_table_of_other_rows_does_not_open(stored: BlobAccess, wide: pa.Table) -> None:
    for rows in (ROWS + 1, ROWS * 2):
        with pytest.raises(SealBroken, match=f"has {ROWS} rows, expected are {rows}"):
            selected_words(stored, wide.schema, [1], rows)


def test_a_large_batch_is_written_in_a_thread_and_its_error_is_reported(
    store: BlobStore, wide: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch or the end of the block raises it, and no blob appears."""
    batches = wide.to_batches(max_chunksize=200_000)

    def fails(*_: object, last: bool) -> None:
        raise OSError(28, "No space left on device")

    for count in (1, 2):
        access = store.allocate()

        def write(access: BlobAccess = access, count: int = count) -> None:
            with TableWriter(access, wide.schema) as writer, monkeypatch.context() as patched:
                patched.setattr("app.store.blobs.sealed_files.SealedWriter._emit", fails)
                for batch in batches[:count]:
                    writer.write(batch)
                writer._settle()

        with pytest.raises(OSError, match="No space left"):
            write()
        assert access.id not in store.names()
        assert not list(Path(access.path).parent.glob(f"{access.id}*"))
