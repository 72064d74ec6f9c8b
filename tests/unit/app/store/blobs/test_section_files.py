"""A table that is written in sections is the same as one that is written at once, in bounded memory too."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from app.store.blobs import batch_index
from app.store.blobs.arrow_stream import TableReader, read_table, table_bytes, write_table
from app.store.blobs.column_reader import BlobTable, digest_of_blob, write_tables
from app.store.blobs.sealed_files import BlobAccess, BlobStore, SealedWriter
from app.store.blobs.sealed_reader import SealedReader
from app.store.blobs.section_files import StoredSection, join_sections, write_section
from app.store.crypto.sealing import Sealer
from providers.tables import digest as digest_module
from providers.tables.digest import DigestForm, table_digest
from tests.every_type import COLUMNS

CHUNK_ROWS = 1 << 10


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of the digest and steps of the index of a thousand rows."""
    monkeypatch.setattr(digest_module, "CHUNK_ROWS", CHUNK_ROWS)
    monkeypatch.setattr(batch_index, "_INDEX_ROWS", CHUNK_ROWS)


def numbers(rows: int) -> pa.Table:
    random = np.random.default_rng(rows)
    return pa.table(
        {
            "x": random.random(rows),
            "name": [f"row {row}" if row % 7 else None for row in range(rows)],
            "small": (np.arange(rows) % 100).astype(np.int8),
        }
    )


def pieces_of(table: pa.Table, rows: int) -> list[pa.Table]:
    return [table[first : first + rows] for first in range(0, table.num_rows, rows)]


def in_sections(
    access: BlobAccess,
    table: pa.Table,
    section_rows: int,
    piece_rows: int,
    known: list[bytes | None] | None = None,
) -> str:
    stored: list[StoredSection] = [
        write_section(access, table.schema, pieces_of(section, piece_rows), known=known)
        for section in pieces_of(table, section_rows)
    ]
    digest, rows = join_sections(access, table.schema, stored, known)
    assert rows == table.num_rows
    return digest


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("section_rows", [CHUNK_ROWS, 3 * CHUNK_ROWS, 100 * CHUNK_ROWS])
@pytest.mark.parametrize("rows", [1, CHUNK_ROWS, 5 * CHUNK_ROWS, 5 * CHUNK_ROWS + 17])
def test_sections_are_the_table(store: BlobStore, rows: int, section_rows: int) -> None:
    table, at_once, access = numbers(rows), store.allocate(), store.allocate()
    expected, _, _ = write_tables(at_once, table.schema, [table])
    assert in_sections(access, table, section_rows, 700) == expected == table_digest(table)
    assert read_table(access) == table
    reader = TableReader(access)
    assert pa.Table.from_batches(reader, reader.schema) == table
    reader.close()
    assert digest_of_blob(access, DigestForm.PARTS) == expected
    stored, other = BlobTable(access, rows), BlobTable(at_once, rows)
    assert stored.field_digests() == other.field_digests()
    assert stored.whole() == table
    assert stored.read(["x", "small"]) == table.select(["x", "small"])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_is_stored_in_sections(store: BlobStore, name: str) -> None:
    """Dictionaries too, of which each section begins with one of its own."""
    column = COLUMNS[name]
    chunk = pa.table({"x": column})
    table = pa.concat_tables([chunk] * (3 * CHUNK_ROWS // len(column)))[: 2 * CHUNK_ROWS + 1]
    table = table.combine_chunks() if not pa.types.is_dictionary(column.type) else table
    access = store.allocate()
    digest = in_sections(access, table, CHUNK_ROWS, 700)
    assert digest == table_digest(table) == table_digest(read_table(access))
    rest = pa.Table.from_batches(BlobTable(access, table.num_rows).batches(["x"], 1500), table.schema)
    assert table_digest(rest) == table_digest(table[1500:])


@pytest.mark.usefixtures("small_chunks")
def test_known_fields_are_not_digested_again(store: BlobStore) -> None:
    table, access, first = numbers(3 * CHUNK_ROWS), store.allocate(), store.allocate()
    expected = in_sections(first, table, CHUNK_ROWS, CHUNK_ROWS)
    found = BlobTable(first, table.num_rows).field_digests()
    assert found is not None
    known = [found.digests[0], None, found.digests[2]]
    assert in_sections(access, table, CHUNK_ROWS, CHUNK_ROWS, known) == expected
    wrong = [bytes(32), None, found.digests[2]]
    assert in_sections(store.allocate(), table, CHUNK_ROWS, CHUNK_ROWS, wrong) != expected


@pytest.mark.usefixtures("small_chunks")
def test_a_section_that_ends_within_a_chunk_is_refused(store: BlobStore) -> None:
    with pytest.raises(ValueError, match="chunks"):
        in_sections(store.allocate(), numbers(3 * CHUNK_ROWS), CHUNK_ROWS + 1, CHUNK_ROWS)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("fields", [["x"], ["x", "name", "small"], ["name"]])
@pytest.mark.parametrize("sections", [False, True])
def test_a_table_is_read_from_any_row_on(store: BlobStore, fields: list[str], sections: bool) -> None:
    rows = 5 * CHUNK_ROWS + 17
    table, access = numbers(rows), store.allocate()
    if sections:
        in_sections(access, table, 2 * CHUNK_ROWS, 300)
    else:
        write_tables(access, table.schema, pieces_of(table, 300))
    stored = BlobTable(access, rows)
    for start in (0, 1, 299, 300, CHUNK_ROWS - 1, CHUNK_ROWS, 2 * CHUNK_ROWS, 4000, rows - 1, rows, rows + 1):
        found = pa.Table.from_batches(stored.batches(fields, start), table.select(fields).schema)
        assert found == table.select(fields)[start:]


@pytest.mark.parametrize("content", ["table", "dictionary"])
def test_tables_without_an_index_are_read_from_a_row_on(store: BlobStore, content: str) -> None:
    table = numbers(3000)
    if content == "dictionary":
        table = table.set_column(1, "name", table["name"].dictionary_encode())
    access = store.allocate()
    write_table(access, table, 500)
    for start in (0, 499, 500, 2999, 3000):
        found = pa.Table.from_batches(
            BlobTable(access, 3000).batches(table.column_names, start), table.schema
        )
        assert table_digest(found) == table_digest(table[start:])


@pytest.mark.parametrize("fields", [["x"], ["x", "y"]])
def test_rows_before_the_first_one_stay_sealed(
    store: BlobStore, fields: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 3 << 20
    table = pa.table({"x": np.arange(rows), "y": np.arange(rows) / 7})
    access = store.allocate()
    write_tables(access, table.schema, [table])
    opened: set[int] = set()
    open_chunk = SealedReader._open_chunk

    def noted(self: SealedReader, chunk: int, plain: memoryview) -> None:
        opened.add(chunk)
        open_chunk(self, chunk, plain)

    monkeypatch.setattr(SealedReader, "_open_chunk", noted)
    start = 2 << 20
    found = pa.Table.from_batches(BlobTable(access, rows).batches(fields, start))
    assert found == table.select(fields)[start:]
    assert Path(access.path).stat().st_size > 48 << 20
    assert not opened & set(range(1, 32))  # the schema is in chunk 0; each million rows takes 16 chunks


@pytest.mark.parametrize("end", [b"", b"x" * 40, b"\xff" * 8 + b"rowveil.batches\n"])
def test_another_end_of_a_blob_is_no_index(store: BlobStore, end: bytes) -> None:
    table, access = numbers(100), store.allocate()
    with SealedWriter(access) as sink:
        sink.write(table_bytes(table.schema, table.to_batches()) + end)
    found = pa.Table.from_batches(BlobTable(access, 100).batches(["x"], 60))
    assert found == table.select(["x"])[60:]
