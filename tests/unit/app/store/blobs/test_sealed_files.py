"""Blobs come back as they were written, and a blob that was touched does not come back at all."""

import errno
import io
import os
import resource
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.store.blobs.arrow_stream import TableReader, read_table, write_table
from app.store.blobs.sealed_files import (
    CHUNK,
    BlobAccess,
    BlobMissing,
    BlobStore,
    SealedWriter,
    owner_of,
)
from app.store.blobs.sealed_reader import SealedReader
from app.store.crypto.sealing import SealBroken, Sealer

SIZES = [0, 1, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 17]


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


def pattern(size: int) -> bytes:
    """Bytes in which no two chunks are alike."""
    return np.arange(size // 8 + 1, dtype=">u8").tobytes()[:size]


def written(store: BlobStore, pieces: Iterable[bytes]) -> BlobAccess:
    access = store.allocate()
    with SealedWriter(access) as writer:
        for piece in pieces:
            writer.write(piece)
    return access


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("step", [700_001, 10 * CHUNK])
def test_what_was_written_is_read(store: BlobStore, size: int, step: int) -> None:
    plain = pattern(size)
    access = written(store, [plain[at : at + step] for at in range(0, size, step)])
    assert store.access_by_header(access.id) == access
    with SealedReader(access) as reader:
        assert reader.size == size
        assert reader.read_whole().to_pybytes() == plain
    with io.BufferedReader(SealedReader(access)) as stream:
        assert stream.read() == plain


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2 * CHUNK + 20), st.integers(0, CHUNK + 5)), max_size=8))
def test_any_part_is_read_from_any_place(parts: list[tuple[int, int]]) -> None:
    plain = pattern(2 * CHUNK + 9)
    access = WRITTEN_ONCE.of(plain)
    with io.BufferedReader(SealedReader(access)) as stream:
        for place, count in parts:
            stream.seek(place)
            assert stream.read(count) == plain[place : place + count]
        assert stream.seek(-5, os.SEEK_END) == len(plain) - 5
        assert stream.read() == plain[-5:]


class _WrittenOnce:
    """One blob for all examples."""

    access: BlobAccess | None = None
    folder: Path

    def of(self, plain: bytes) -> BlobAccess:
        if self.access is None:
            self.access = written(BlobStore(self.folder, Sealer([bytes(32)])), [plain])
        return self.access


WRITTEN_ONCE = _WrittenOnce()


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    WRITTEN_ONCE.folder = tmp_path_factory.mktemp("blobs")


def chunk_of(access: BlobAccess, number: int) -> slice:
    start = len(access.header) + number * (CHUNK + 16)
    return slice(start, start + CHUNK + 16)


@pytest.mark.parametrize("attack", ["bit", "cut", "cut_chunk", "swap", "repeat", "append", "drop_first"])
def test_a_touched_blob_does_not_open(store: BlobStore, attack: str) -> None:
    access = written(store, [pattern(3 * CHUNK)])
    path = Path(access.path)
    sealed = bytearray(path.read_bytes())
    first, second = chunk_of(access, 0), chunk_of(access, 1)
    match attack:
        case "bit":
            sealed[second.start + 5] ^= 4
        case "cut":
            del sealed[-1]
        case "cut_chunk":
            del sealed[chunk_of(access, 2)]
        case "swap":
            sealed[first], sealed[second] = sealed[second], sealed[first]
        case "repeat":
            sealed[second] = sealed[first]
        case "append":
            sealed += sealed[second]
        case "drop_first":
            del sealed[first]
    path.write_bytes(sealed)
    with SealedReader(access) as reader, pytest.raises(SealBroken):
        reader.read_whole()
    with io.BufferedReader(SealedReader(access)) as stream, pytest.raises(SealBroken):
        stream.read()


@pytest.mark.parametrize("size", [0, 10])
def test_a_blob_cut_to_its_header_does_not_open(store: BlobStore, size: int) -> None:
    access = written(store, [pattern(size)])
    Path(access.path).write_bytes(access.header + b"x" * 3)
    with pytest.raises(SealBroken):
        SealedReader(access)


def test_one_blob_does_not_stand_in_for_another(store: BlobStore) -> None:
    one, other = written(store, [b"one"]), written(store, [b"other"])
    shutil.copy(one.path, other.path)
    with pytest.raises(SealBroken):
        store.access_by_header(other.id)


def test_a_blob_shows_nothing_of_what_it_holds(store: BlobStore) -> None:
    access = written(store, [b"income 98765.43 of a person"])
    sealed = Path(access.path).read_bytes()
    assert b"98765" not in sealed
    assert access.data_key not in sealed
    assert "data_key" not in repr(access)
    assert Path(access.path).stat().st_mode & 0o777 == 0o600


def test_a_writer_left_by_an_error_leaves_nothing(store: BlobStore, tmp_path: Path) -> None:
    access = store.allocate()

    def pieces() -> Iterable[bytes]:
        yield pattern(2 * CHUNK)
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"), SealedWriter(access) as writer:
        writer.writelines(pieces())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(BlobMissing):
        store.access_by_header(access.id)


@pytest.mark.parametrize("flush", ["fdatasync", "fsync"])
def test_a_flush_that_fails_leaves_no_blob(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    """The system reports once that bytes did not come to the disk: also if they were flushed before."""

    def lost(_: int) -> None:
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, flush, lost)
    access = store.allocate()
    with pytest.raises(OSError, match="lost"), SealedWriter(access) as writer:  # noqa: PT012
        for _ in range(40):
            writer.write(bytes(CHUNK))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize(("lasting", "flushed"), [(True, {"fdatasync", "fsync"}), (False, set())])
def test_only_what_lasts_is_flushed(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch, lasting: bool, flushed: set[str]
) -> None:
    seen = set()

    def watched(name: str) -> None:
        real = getattr(os, name)

        def flush(handle: int) -> None:
            seen.add(name)
            real(handle)

        monkeypatch.setattr(os, name, flush)

    watched("fsync")
    watched("fdatasync")
    access = store.allocate()
    with SealedWriter(access, lasting) as writer:
        writer.write(pattern(40 * CHUNK))
    assert seen == flushed
    with SealedReader(access) as reader:
        assert reader.read_whole().to_pybytes() == pattern(40 * CHUNK)


def test_a_blob_is_not_there_before_it_is_closed(store: BlobStore) -> None:
    access = store.allocate()
    writer = SealedWriter(access)
    writer.write(pattern(2 * CHUNK))
    with pytest.raises(BlobMissing):
        store.access_by_header(access.id)
    writer.close()
    store.access_by_header(access.id)


def test_a_blob_says_who_made_it() -> None:
    store = BlobStore(Path("nowhere"), Sealer([bytes(32)]))
    assert owner_of(store.allocate("0123456789ab").id) == "0123456789ab"


def test_delete(store: BlobStore, tmp_path: Path) -> None:
    """Delete a blob, its draft, and an address of neither."""
    kept, deleted = (written(store, [b"x"]) for _ in range(2))
    store.delete(deleted.id)
    store.delete(deleted.id)
    left = store.allocate()
    draft = Path(f"{left.path}.0123.draft")
    draft.parent.mkdir(exist_ok=True)
    draft.write_bytes(b"left by a killed worker")
    assert {path.name for path in store.files()} == {kept.id, draft.name}
    store.delete(left.id)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [kept.id]


def test_two_writers_of_one_blob_do_not_write_into_each_others_draft(store: BlobStore) -> None:
    """The blob is whole at any time, also if a cluster repeats a task whose first worker is not dead."""
    access = store.allocate()
    plain = pattern(3 * CHUNK + 17)
    first, second = SealedWriter(access), SealedWriter(access)
    first.write(plain[: 2 * CHUNK])
    second.write(plain)
    second.close()
    with SealedReader(access) as reader:
        assert reader.read_whole().to_pybytes() == plain
    first.write(plain[2 * CHUNK :])
    first.close()
    with SealedReader(access) as reader:
        assert reader.read_whole().to_pybytes() == plain
    assert [path.name for path in Path(access.path).parent.iterdir()] == [access.id]


def test_a_writer_whose_blob_was_deleted_makes_none(store: BlobStore) -> None:
    """Its draft went with the blob, so that what comes too late does not come at all."""
    access = store.allocate()
    writer = SealedWriter(access)
    writer.write(b"too late")
    store.delete(access.id)
    with pytest.raises(FileNotFoundError):
        writer.close()
    assert not list(Path(access.path).parent.iterdir())


def test_a_table_comes_back_equal_whole_and_in_batches(store: BlobStore) -> None:
    table = pa.table(
        {
            "number": pa.array(range(200_000)),
            "text": pa.array([None if row % 7 == 0 else f"row {row}" for row in range(200_000)]),
            "code": pa.array(["a", "b"] * 100_000).dictionary_encode(),
        }
    )
    access = store.allocate()
    write_table(access, table)
    assert read_table(access).equals(table)
    reader = TableReader(access)
    batches = list(reader)
    reader.close()
    assert max(batch.num_rows for batch in batches) <= 65_536
    assert pa.Table.from_batches(batches).equals(table)


def test_an_empty_table_comes_back(store: BlobStore) -> None:
    table = pa.table({"a": pa.array([], pa.int64())})
    access = store.allocate()
    write_table(access, table)
    assert read_table(access).equals(table)


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_disk_that_takes_part_of_a_chunk_fails_the_blob(store: BlobStore, chunks: int) -> None:
    """A write to a full disk may take only the start of its bytes, without an error."""
    access = store.allocate()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((chunks - 1) * CHUNK + 1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"), SealedWriter(access) as writer:
            writer.write(pattern(chunks * CHUNK))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.files() == []
