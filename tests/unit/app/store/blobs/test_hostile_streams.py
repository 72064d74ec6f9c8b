"""A table whose writer was hostile is refused by the service, before a value of it is used."""

import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from app.store.blobs.arrow_stream import TableReader, read_table, table_bytes
from app.store.blobs.column_reader import digest_of_blob
from app.store.blobs.sealed_files import BlobAccess, BlobStore, SealedWriter, small_table
from app.store.crypto.sealing import SealBroken, Sealer
from providers.tables.digest import DigestForm


def replaced(table: pa.Table, former: bytes, new: bytes) -> bytes:
    """Return the stream of a table with some of its bytes replaced."""
    stream = table_bytes(table.schema, table.to_batches())
    assert stream.count(former) == 1
    return stream.replace(former, new)


TEXT = pa.table({"a": ["abcdefgh" * 8, "x"]})
CODES = pa.table({"a": pa.array(["x", "y", "x", "y", "y", "y", "y", "y", "x", "x"]).dictionary_encode()})

STREAMS = {
    "offsets beyond the text": replaced(
        TEXT, struct.pack("=3i", 0, 64, 65), struct.pack("=3i", 0, 9000, 9001)
    ),
    "offsets that decrease": replaced(TEXT, struct.pack("=3i", 0, 64, 65), struct.pack("=3i", 0, -64, 65)),
    "text that is not UTF-8": replaced(TEXT, b"abcdefgh" * 8, b"\xff" * 64),
    "codes beyond the dictionary": replaced(
        CODES, struct.pack("=10i", 0, 1, 0, 1, 1, 1, 1, 1, 0, 0), struct.pack("=10i", 0, *[1 << 20] * 9)
    ),
    "no stream": b"\xff" * 100,
}


def in_file(folder: Path, stream: bytes) -> BlobAccess:
    access = BlobStore(folder / "blobs", Sealer([bytes(32)])).allocate()
    with SealedWriter(access) as writer:
        writer.write(stream)
    return access


def in_row(folder: Path, stream: bytes) -> BlobAccess:
    return small_table(stream)


@pytest.mark.parametrize("store", [in_file, in_row])
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_arrow_would_read_outside_of_its_memory_is_refused(
    tmp_path: Path, name: str, store: Callable[[Path, bytes], BlobAccess]
) -> None:
    """The reader's message has none of the values."""
    access = store(tmp_path, STREAMS[name])
    with pytest.raises(SealBroken, match="no valid Arrow table") as refused:
        read_table(access)
    assert "efgh" not in str(refused.value)
    with pytest.raises(SealBroken, match="no valid Arrow table"):
        list(TableReader(access))
    with pytest.raises(SealBroken, match="no valid Arrow table"):
        digest_of_blob(access, DigestForm.PARTS)
