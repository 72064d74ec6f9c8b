"""A small destination comes back as bytes, a larger one is written; both read alike."""

from pathlib import Path

import pyarrow as pa
import pytest

from app.store.blobs.arrow_stream import TableReader, read_table
from app.store.blobs.column_reader import BlobTable, write_tables
from app.store.blobs.sealed_files import BlobStore, small_table
from app.store.crypto.sealing import Sealer
from providers.tables.digest import table_digest

TABLE = pa.table({"income": pa.array(range(3000)), "city": pa.array([f"City-{n % 7}" for n in range(3000)])})
LIMIT = 1 << 16


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


def test_a_table_up_to_the_limit_is_not_written(store: BlobStore) -> None:
    digest, rows, content = write_tables(store.allocate(), TABLE.schema, [TABLE[:1000], TABLE[1000:]], LIMIT)
    assert (digest, rows) == (table_digest(TABLE), 3000)
    assert content is not None
    assert len(content) <= LIMIT
    assert not store.files()
    access = small_table(content)
    assert read_table(access) == TABLE
    assert BlobTable(access, 3000).read(["city"]) == TABLE.select(["city"])
    reader = TableReader(access)
    assert pa.Table.from_batches(reader, reader.schema) == TABLE
    reader.close()


@pytest.mark.parametrize("limit", [0, 1, 20_000, len(bytes(LIMIT)) // 2])
def test_a_table_over_the_limit_is_written_with_the_same_digest(store: BlobStore, limit: int) -> None:
    """Also where only the whole shows that it is too large, or its stream is larger than its values."""
    access = store.allocate()
    pieces = [TABLE[start : start + 500] for start in range(0, 3000, 500)]
    assert write_tables(access, TABLE.schema, pieces, limit) == (table_digest(TABLE), 3000, None)
    assert read_table(access) == TABLE
    assert store.names() == {access.id}


def test_a_table_without_rows_or_without_fields_is_small(store: BlobStore) -> None:
    empty = TABLE[:0]
    digest, rows, content = write_tables(store.allocate(), empty.schema, [empty], LIMIT)
    assert (digest, rows) == (table_digest(empty), 0)
    assert content is not None
    assert read_table(small_table(content)) == empty
