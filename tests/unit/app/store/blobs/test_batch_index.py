"""The index of a table's batches gives a reader its place, and a table is read as well without one."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.store.blobs import arrow_stream, batch_index, column_reader
from app.store.blobs.arrow_stream import write_table
from app.store.blobs.batch_index import BatchIndex, index_bytes, read_batch_index
from app.store.blobs.column_reader import BlobTable, write_tables
from app.store.blobs.field_digests import FieldDigests
from app.store.blobs.reading import open_blob
from app.store.blobs.sealed_files import CHUNK, BlobAccess, BlobStore
from app.store.blobs.sealed_reader import SealedReader
from app.store.blobs.selected_fields import selected_batches
from app.store.crypto.sealing import SealBroken, Sealer
from providers.tables.digest import table_digest
from tests.property.arrow_tables import FLAT_TYPES, another_carriage, tables, types

ROWS = 1000

STEP = 100
"""Rows from one entry of the index to the next, in place of a million."""

PIECE = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return BlobStore(tmp_path_factory.mktemp("store") / "blobs", Sealer([bytes(32)]))


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_index, "_INDEX_ROWS", STEP)


def numbers() -> pa.Table:
    return pa.table(
        {
            "x": np.arange(ROWS),
            "name": [f"row {row}" if row % 7 else None for row in range(ROWS)],
            "list": [[row] * (row % 3) if row % 5 else None for row in range(ROWS)],
        }
    )


def written(store: BlobStore, table: pa.Table) -> tuple[BlobAccess, str]:
    access = store.allocate()
    pieces = [table[first : first + PIECE] for first in range(0, table.num_rows, PIECE)]
    return access, write_tables(access, table.schema, pieces)[0]


def index_of(access: BlobAccess, fields: int) -> BatchIndex:
    with open_blob(access) as reader:
        return read_batch_index(reader, reader.size, fields)


@given(st.data())
def test_a_table_of_any_type_is_read_from_each_row_on(store: BlobStore, data: st.DataObject) -> None:
    plain = data.draw(tables(of=types(FLAT_TYPES), min_fields=1))
    table = data.draw(another_carriage(plain))
    access = store.allocate()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch_index, "_INDEX_ROWS", data.draw(st.integers(1, 3)))
        write_table(access, table, data.draw(st.sampled_from([1, 2, None])))
    names = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    selected = table.select([name for name in table.column_names if name in names])
    opened = BlobTable(access, table.num_rows)
    for start in range(table.num_rows + 2):
        found = pa.Table.from_batches(opened.batches(names, start), selected.schema)
        found.validate(full=True)
        assert table_digest(found) == table_digest(selected[start:])
    store.delete(access.id)


@pytest.mark.usefixtures("small_steps")
def test_each_entry_is_the_place_of_a_batch(store: BlobStore) -> None:
    table = numbers()
    access, digest = written(store, table)
    index = index_of(access, 3)
    assert [row for row, _ in index.entries] == list(range(0, ROWS, 3 * PIECE))  # at least STEP rows apart
    with open_blob(access) as reader:
        plain = reader.read_whole()
    for row, position in index.entries:
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(plain.slice(position)), table.schema)
        assert pa.Table.from_batches([batch]) == table[row : row + PIECE]
    assert index.before(0) == index.entries[0]
    assert index.before(119) == index.entries[0]
    assert index.before(120) == index.entries[1]
    assert index.before(ROWS) == index.entries[-1]
    assert digest == table_digest(table)
    assert BlobTable(access, ROWS).field_digests() is not None


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("fields", [["x"], ["x", "name", "list"]])
def test_a_table_of_an_older_version_is_read_from_a_row_on(
    store: BlobStore, fields: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the digests of its fields, with no index in front of them."""
    table = numbers()
    newer, digest = written(store, table)
    monkeypatch.setattr(arrow_stream, "index_bytes", lambda _: b"")
    older, older_digest = written(store, table)
    assert index_of(older, 3) == BatchIndex()
    assert older_digest == digest
    stored = BlobTable(older, ROWS)
    assert stored.field_digests() == BlobTable(newer, ROWS).field_digests()
    for start in (1, PIECE, 119, 120, ROWS - 1, ROWS):
        found = pa.Table.from_batches(stored.batches(fields, start), table.select(fields).schema)
        assert found == table.select(fields)[start:]


@pytest.mark.usefixtures("small_steps")
def test_the_index_is_read_once(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    access, _ = written(store, numbers())
    read: list[int] = []

    def noted(reader: SealedReader, size: int, fields: int) -> BatchIndex:
        read.append(size)
        return read_batch_index(reader, size, fields)

    monkeypatch.setattr(column_reader, "read_batch_index", noted)
    stored = BlobTable(access, ROWS)
    list(stored.batches(["x"]))
    assert not read
    for start in (1, 500, 900):
        list(stored.batches(["x"], start))
    assert len(read) == 1


@pytest.mark.usefixtures("small_steps")
def test_a_table_of_other_rows_does_not_open_from_a_row_on(store: BlobStore) -> None:
    access, _ = written(store, numbers())
    begin = index_of(access, 3).before(500)
    assert begin is not None
    for rows in (ROWS - 1, ROWS + 1):
        with pytest.raises(SealBroken, match=f"has {ROWS} rows, expected are {rows}"):
            list(selected_batches(access, [0], rows, 500, begin))


@pytest.mark.parametrize("position", [1, 200, 1 << 40])
def test_an_entry_that_is_no_batch_does_not_open(store: BlobStore, position: int) -> None:
    access, _ = written(store, numbers())
    with pytest.raises(SealBroken):
        list(selected_batches(access, [0], ROWS, 500, (480, position)))


ENTRIES = ((0, 8), (5, 300))


@pytest.mark.parametrize("digests", [b"", FieldDigests(7, (bytes(32), bytes(32))).to_bytes()])
@pytest.mark.parametrize("entries", [ENTRIES, ENTRIES[:1], ()])
def test_an_index_is_found_with_and_without_digests(
    entries: tuple[tuple[int, int], ...], digests: bytes
) -> None:
    """The stream in front of it may be of any bytes; an index of one entry is not written."""
    content = b"stream" + index_bytes(entries) + digests
    found = read_batch_index(io.BytesIO(content), len(content), 2)
    assert found == BatchIndex(entries if len(entries) > 1 else ())


@pytest.mark.parametrize("kept", range(len(index_bytes(ENTRIES))))
def test_a_part_of_an_index_is_none(kept: int) -> None:
    for content in (index_bytes(ENTRIES)[:kept], index_bytes(ENTRIES)[len(index_bytes(ENTRIES)) - kept :]):
        assert read_batch_index(io.BytesIO(content), len(content), 2) == BatchIndex()


def test_the_batches_between_an_entry_and_the_first_row_stay_sealed(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last eighth of a table of three million rows opens less than a quarter of its chunks."""
    rows, access = 3_000_000, store.allocate()
    table = pa.table({"x": np.arange(rows), "y": np.arange(rows) / 7})
    write_table(access, table, 1 << 18)  # batches of four chunks; their metadata are in one of them
    opened: set[int] = set()
    open_chunk = SealedReader._open_chunk

    def noted(self: SealedReader, chunk: int, plain: memoryview) -> None:
        opened.add(chunk)
        open_chunk(self, chunk, plain)

    monkeypatch.setattr(SealedReader, "_open_chunk", noted)
    start = rows * 7 // 8
    found = pa.Table.from_batches(BlobTable(access, rows).batches(["x", "y"], start))
    assert found == table[start:]
    chunks = Path(access.path).stat().st_size // CHUNK
    assert len(opened) < chunks // 4
    assert not opened & set(range(1, (2 << 20) * 16 // CHUNK))


def test_a_table_without_rows_has_none_from_a_row_on(store: BlobStore) -> None:
    access, _ = written(store, numbers()[:0])
    for fields in (["x"], ["x", "name", "list"]):
        assert not list(BlobTable(access, 0).batches(fields, 1))
