"""A blob in parts reads as one, and no part can be changed, swapped, or opened without its blob."""

import io
import random
import shutil
from pathlib import Path

import pytest

from app.store.blobs.reading import (
    MemoryReader,
    Part,
    PartsReader,
    new_token,
    open_blob,
    part_access,
    parts_of,
    write_parts,
)
from app.store.blobs.sealed_files import (
    CHUNK,
    BlobAccess,
    BlobMissing,
    BlobStore,
    SealedWriter,
    object_key,
    small_table,
)
from app.store.blobs.sealed_reader import SealedReader
from app.store.crypto.sealing import SealBroken, Sealer

HEAD, TAIL = b"the head", b"the tail"


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


def random_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def written(store: BlobStore, sizes: list[int]) -> tuple[BlobAccess, bytes]:
    """Write a blob with parts of these sizes; return access to it and its plain bytes."""
    access, parts, plain = store.allocate(), [], [HEAD]
    for size in sizes:
        content, token = random_bytes(size), new_token()
        with SealedWriter(part_access(access, token)) as writer:
            writer.write(content)
        parts.append(Part(token, size))
        plain.append(content)
    write_parts(access, HEAD, parts, TAIL)
    return access, b"".join([*plain, TAIL])


@pytest.mark.parametrize("sizes", [[], [1], [0, 5, 0], [CHUNK, 3], [3 * CHUNK + 17, 1, CHUNK - 1]])
def test_parts_are_read_as_one(store: BlobStore, sizes: list[int]) -> None:
    access, plain = written(store, sizes)
    with open_blob(store.access_by_header(access.id)) as reader:
        assert isinstance(reader, PartsReader)
        assert reader.size == len(plain)
        assert reader.read_whole().to_pybytes() == plain
        assert not reader.read(1)
        for at in (0, 3, len(HEAD), len(plain) // 2, len(plain) - 3, len(plain), len(plain) + 5):
            reader.seek(at)
            assert reader.tell() == at
            assert reader.read(1) == plain[at : at + 1]
    with io.BufferedReader(open_blob(access)) as stream:
        assert stream.read() == plain
    assert [part.size for part in parts_of(access)] == sizes


def test_a_blob_in_one_file_is_read_as_before(store: BlobStore) -> None:
    access = store.allocate()
    with SealedWriter(access) as writer:
        writer.write(b"rowveil.part")
    with open_blob(access) as reader:
        assert isinstance(reader, SealedReader)
        assert reader.read_whole().to_pybytes() == b"rowveil.part"
    assert not parts_of(access)
    assert isinstance(open_blob(small_table(b"rows")), MemoryReader)


@pytest.mark.parametrize("size", [0, 5, 16, CHUNK, 2 * CHUNK + 1])
def test_the_chunk_that_was_looked_at_is_not_opened_twice(
    store: BlobStore, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, content = store.allocate(), random_bytes(size)
    with SealedWriter(access) as writer:
        writer.write(content)
    opened = []
    open_chunk = SealedReader._open_chunk

    def noted(self: SealedReader, chunk: int, plain: memoryview) -> None:
        opened.append(chunk)
        open_chunk(self, chunk, plain)

    monkeypatch.setattr(SealedReader, "_open_chunk", noted)
    with open_blob(access) as reader:
        assert reader.read_whole().to_pybytes() == content
    assert opened == list(range(max(1, -(-size // CHUNK))))


def test_a_part_that_was_changed_does_not_open(store: BlobStore) -> None:
    access, _ = written(store, [100, 100])
    path = Path(part_access(access, parts_of(access)[1].token).path)
    sealed = bytearray(path.read_bytes())
    sealed[7] ^= 1
    path.write_bytes(sealed)
    with open_blob(access) as reader, pytest.raises(SealBroken):
        reader.read_whole()


@pytest.mark.parametrize("sizes", [[100, 100], [100, 101]])
def test_parts_that_changed_places_do_not_open(store: BlobStore, sizes: list[int], tmp_path: Path) -> None:
    """Neither those of one blob nor those of two."""
    access, _ = written(store, sizes)
    other, _ = written(store, sizes)
    first, second = (Path(part_access(access, part.token).path) for part in parts_of(access))
    foreign = Path(part_access(other, parts_of(other)[0].token).path)
    for source in (second, foreign):
        shutil.copy(source, tmp_path / "kept")
        first.write_bytes((tmp_path / "kept").read_bytes())
        with open_blob(access) as reader, pytest.raises(SealBroken):
            reader.read_whole()


def test_a_part_with_another_length_is_refused(store: BlobStore) -> None:
    access = store.allocate()
    token = new_token()
    with SealedWriter(part_access(access, token)) as writer:
        writer.write(b"12345")
    write_parts(access, HEAD, [Part(token, 4)], TAIL)
    with open_blob(access) as reader, pytest.raises(SealBroken, match="another size"):
        reader.read_whole()


def test_a_missing_part_is_a_missing_blob(store: BlobStore) -> None:
    access, _ = written(store, [100])
    Path(part_access(access, parts_of(access)[0].token).path).unlink()
    with open_blob(access) as reader, pytest.raises(BlobMissing):
        reader.read_whole()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        (5).to_bytes(8, "little") + b"[1,2]",
        (2).to_bytes(8, "little") + b"{}",
        (2**60).to_bytes(8, "little"),
        (2**21).to_bytes(8, "little") + b" " * 2**21,
        *(
            len(listed).to_bytes(8, "little") + listed
            for listed in (
                b'{"head": 1, "tail": 1, "parts": []}',
                b'{"head": 0, "tail": 0, "parts": [["x", 1]]}',
                b'{"head": 0, "tail": 0, "parts": [["00000000000000000000000000000000", -1]]}',
                b'{"head": -1, "tail": 1, "parts": []}',
                b'{"head": 0, "tail": "0", "parts": []}',
                b"[" * 100_000,
            )
        ),
    ],
)
def test_a_list_of_parts_that_is_none_is_refused(store: BlobStore, content: bytes) -> None:
    access = store.allocate()
    with SealedWriter(access) as writer:
        writer.write(b"rowveil.parts/1\n" + content)
    with pytest.raises(SealBroken):
        open_blob(access)


def test_every_run_of_a_worker_has_a_key_of_its_own(store: BlobStore) -> None:
    access = store.allocate()
    one, two = (part_access(access, new_token()) for _ in range(2))
    assert len({access.data_key, one.data_key, two.data_key}) == 3
    assert part_access(access, one.id.split(".")[1]) == one
    assert object_key(one.id) == f"parts/{access.id}/{one.id.split('.')[1]}"


@pytest.mark.parametrize("token", ["", "../../x", "A" * 32, "0" * 31, f"{'0' * 32}\n"])
def test_a_token_is_no_path(store: BlobStore, token: str) -> None:
    with pytest.raises(ValueError, match="32 hex digits"):
        part_access(store.allocate(), token)


def test_a_blob_is_deleted_with_its_parts(store: BlobStore) -> None:
    access, _ = written(store, [10, 10])
    other, _ = written(store, [10])
    kept, gone = parts_of(access)
    assert store.names() == {access.id, other.id}
    store.delete_parts(access.id, [kept.token])
    left = {path.name for path in store.files()}
    assert f"{access.id}.{kept.token}.part" in left
    assert f"{access.id}.{gone.token}.part" not in left
    store.delete(access.id)
    assert {path.name.partition(".")[0] for path in store.files()} == {other.id}


def test_keys_of_parts_need_no_sealing(store: BlobStore, tmp_path: Path) -> None:
    access, plain = written(store, [10])
    newer = BlobStore(store.folder, Sealer([b"1" * 32, bytes(32)]))
    assert newer.reseal() == 1
    with open_blob(newer.access_by_header(access.id)) as reader:
        assert reader.read_whole().to_pybytes() == plain
