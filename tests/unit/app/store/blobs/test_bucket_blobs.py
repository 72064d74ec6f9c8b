"""Blobs as objects of a bucket, on a real S3 server: contents, trash, sweep, and what the server refuses."""

import io
import os
import secrets
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from app.store.blobs import bucket as bucket_module
from app.store.blobs import bucket_blobs
from app.store.blobs.bucket import Bucket, BucketUnusable, Stopped, Upload
from app.store.blobs.bucket_blobs import DEAD_UPLOAD_SECONDS, UPLOAD_SECONDS, BucketBlobs
from app.store.blobs.bucket_reader import ObjectReader
from app.store.blobs.reading import Part, new_token, open_blob, part_access, write_parts
from app.store.blobs.sealed_files import (
    CHUNK,
    BlobAccess,
    BlobMissing,
    SealedWriter,
    extend_draft,
    owner_of,
    reserve_draft,
)
from app.store.blobs.sealed_reader import SealedReader
from app.store.crypto.sealing import Binding, SealBroken, Sealer, SealUnbound

ROW = Binding("source", "jobs", "1", "key:1", "")
DAY = date(2026, 11, 23)
MIB = 2**20


@pytest.fixture
def bucket(new_bucket: Callable[[], Bucket]) -> Bucket:
    return new_bucket()


@pytest.fixture
def store(bucket: Bucket, tmp_path: Path) -> BucketBlobs:
    return BucketBlobs(bucket, tmp_path / "blobs", Sealer([bytes(32)]))


def written(store: BucketBlobs, content: bytes, owner: str = "0" * 12) -> BlobAccess:
    access = store.allocate(owner)
    with SealedWriter(access) as writer:
        writer.write(content)
    return access


def files_of(store: BucketBlobs) -> list[Path]:
    return [path for path in store.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 17 * CHUNK + 5])
def test_a_blob_is_read_as_it_was_written(store: BucketBlobs, size: int) -> None:
    """The largest one is sent in parts. No draft stays here, and no plain byte is in the bucket."""
    content = os.urandom(8) * (size // 8 + 1)
    access = written(store, content[:size])
    sealed = store.seal_key(access, ROW)
    found = store.access(access.id, sealed, ROW)
    with SealedReader(found) as reader:
        assert reader.size == size
        assert reader.read_whole().to_pybytes() == content[:size]
    with io.BufferedReader(SealedReader(found)) as buffered:
        assert buffered.read() == content[:size]
    assert not files_of(store)
    assert store.measure() == (1, size + 16 * max(1, -(-size // CHUNK)))
    if size >= CHUNK:
        assert content[:64] not in store.bucket.read(access.key, 0, size)


def test_parts_of_a_blob_are_read_where_they_are(store: BucketBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read somewhere gets one chunk; reads one after another get 4 MiB each."""
    content = os.urandom(20 * MIB)
    access = written(store, content)
    asked: list[tuple[int, int]] = []
    read = Bucket.read

    def noted(self: Bucket, key: str, start: int, length: int) -> bytes:
        asked.append((start, length))
        return read(self, key, start, length)

    monkeypatch.setattr(Bucket, "read", noted)
    with SealedReader(access) as reader:
        for position in (13 * MIB + 5, 3 * MIB, 19 * MIB + 7):
            reader.seek(position)
            assert reader.read(100) == content[position : position + 100]
        assert [length for _, length in asked] == [CHUNK + 16] * 3
        asked.clear()
        reader.seek(0)
        assert reader.read() == content
    assert len(asked) <= 7


def test_a_blob_in_parts_is_read_measured_and_deleted_as_one(store: BucketBlobs) -> None:
    access, tokens = store.allocate(), [new_token(), new_token(), new_token()]
    for token in tokens:
        with SealedWriter(part_access(access, token)) as writer:
            writer.write(token.encode())
    write_parts(access, b"<", [Part(token, 32) for token in tokens[:2]], b">")
    assert not files_of(store)
    plain = f"<{tokens[0]}{tokens[1]}>".encode()
    with open_blob(store.access(access.id, store.seal_key(access, ROW), ROW)) as reader:
        assert reader.read_whole().to_pybytes() == plain
    assert store.measure()[0] == 4
    store.delete_parts(access.id, tokens[:2])
    names = {path.name for path in store.files()}
    assert names == {access.id, *(f"{access.id}.{token}.part" for token in tokens[:2])}
    assert store.names() == {access.id}
    store.trash.put(next(path for path in store.files() if path.name == access.id), DAY)
    store._measured = None
    assert (store.measure()[0], store.measure_trash()[0]) == (0, 3)
    store.delete(access.id)
    assert not store.bucket.objects("parts")


def test_a_deleted_blob_is_missing_also_while_it_is_read(store: BucketBlobs) -> None:
    access = written(store, bytes(3 * MIB))
    sealed = store.seal_key(access, ROW)
    with SealedReader(access) as reader:
        assert reader.read(10) == bytes(10)
        store.delete(access.id)
        reader.seek(2 * MIB)
        with pytest.raises(BlobMissing, match="deleted"):
            reader.read(10)
    with pytest.raises(BlobMissing):
        store.access(access.id, sealed, ROW)
    with pytest.raises(BlobMissing):
        SealedReader(access)
    store.delete(access.id)
    assert (store.names(), store.files()) == (set(), [])


def test_a_changed_object_does_not_open(store: BucketBlobs) -> None:
    """A byte changed, an end cut off, and the bytes of another blob."""
    access, other = written(store, bytes(2 * MIB)), written(store, bytes(2 * MIB))
    sealed = store.bucket.get(access.key)
    assert sealed is not None
    changed = bytearray(sealed)
    changed[MIB + 100] ^= 1
    for content in (bytes(changed), sealed[:-1], sealed[: CHUNK + 16], store.bucket.get(other.key)):
        assert content is not None
        store.bucket.put(access.key, content)
        with SealedReader(access) as reader, pytest.raises(SealBroken):
            reader.read_whole()


def test_a_writer_that_fails_leaves_neither_object_nor_draft_nor_upload(
    store: BucketBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = store.allocate()

    def fail() -> None:
        with SealedWriter(access) as writer:
            writer.write(bytes(20 * MIB))
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    monkeypatch.setattr(bucket_module, "_PART", 5 * MIB)
    path = store.folder / "file"
    path.write_bytes(bytes(20 * MIB))
    asked = iter([False, False, True])
    with pytest.raises(Stopped):
        store.bucket.send(path, access.key, lambda: next(asked))
    path.unlink()
    assert (store.names(), files_of(store), store.bucket.uploads("blobs")) == (set(), [], [])


def test_a_stopped_or_failed_fetch_leaves_no_file(store: BucketBlobs, tmp_path: Path) -> None:
    access = written(store, bytes(40 * MIB))
    asked = iter([False, True, True])
    with pytest.raises(Stopped):
        store.bucket.fetch(access.key, tmp_path / "copy", lambda: next(asked))
    with pytest.raises(FileNotFoundError):
        store.bucket.fetch("blobs/none", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert store.bucket.fetch(access.key, tmp_path / "copy") == 40 * (MIB + 16)
    assert (tmp_path / "copy").read_bytes() == store.bucket.get(access.key)


def test_tables_of_a_bucket_have_no_draft_and_no_header(store: BucketBlobs) -> None:
    """A worker on another machine could not take the draft over; rows have the keys."""
    access = written(store, b"rows")
    draft = reserve_draft(access, MIB)
    assert draft == ""
    extend_draft(draft, 2 * MIB, MIB)
    assert store.reseal() == 0
    with pytest.raises(SealUnbound):
        store.access_by_header(access.id)
    with pytest.raises(SealUnbound):
        store.access(access.id, None, ROW)
    assert not files_of(store)


def test_the_trash_hides_a_blob_and_gives_it_back(store: BucketBlobs) -> None:
    kept, trashed = written(store, b"kept"), written(store, b"trashed")
    (path,) = (path for path in store.files() if path.name == trashed.id)
    assert store.trash.put(path, DAY)
    assert (store.names(), store.measure()) == ({kept.id}, (1, 20))
    assert [path.name for path in store.trash.files()] == [trashed.id]
    assert store.measure_trash() == (1, 23)
    assert store.trash.empty(DAY) == 0
    assert store.take_back(store.trash.files()[0])
    assert (store.names(), store.trash.files()) == ({kept.id, trashed.id}, [])
    with SealedReader(trashed) as reader:
        assert reader.read() == b"trashed"


def test_emptying_the_trash_deletes_the_blobs_of_earlier_days(store: BucketBlobs) -> None:
    """An object that is no mark of a blob stays."""
    old, young, free = (written(store, b"rows") for _ in range(3))
    by_name = {path.name: path for path in store.files()}
    assert store.trash.put(by_name[old.id], DAY)
    assert store.trash.put(by_name[young.id], DAY + timedelta(days=1))
    store.bucket.put("trash/notes", b"")
    assert store.trash.empty(DAY + timedelta(days=1)) == 1
    assert {found.key for found in store.bucket.objects("blobs")} == {young.key, free.key}
    store.delete(young.id)
    assert not store.take_back(store.trash.files()[0])
    assert [found.key for found in store.bucket.objects("trash")] == ["trash/notes"]
    assert not store.trash.put(by_name[old.id], DAY)


def test_the_figures_are_measured_again_after_a_while(
    store: BucketBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.measure() == (0, 0)
    written(store, b"rows")
    assert store.measure() == (0, 0)
    monkeypatch.setattr(bucket_blobs, "_MEASURED_SECONDS", 0.0)
    assert store.measure() == (1, 20)


class Uploads:
    """Multipart uploads that nobody has ended."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._client: Any = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])

    def begin(self, key: str) -> None:
        given = {"Bucket": self._bucket.name, "Key": self._bucket.prefix + key}
        upload = self._client.create_multipart_upload(**given)["UploadId"]
        self._client.upload_part(**given, UploadId=upload, PartNumber=1, Body=bytes(5 * MIB))


def test_a_sweep_aborts_uploads_of_dead_services_and_deletes_what_jobs_have_left(
    store: BucketBlobs, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload is aborted earlier if its service is dead; a unit's, if its job does not run.

    None is aborted while the clock may be wrong.
    """
    dead, alive = store.allocate("d" * 12), store.allocate("a" * 12)
    uploads = Uploads(bucket)
    parts = [part_access(access, "a" * 32).key for access in (dead, alive)]
    begun = [dead.key, alive.key, *parts, "scratch/ended.1/0-0-aa", "scratch/runs.1/0-0-aa"]
    for key in begun:
        uploads.begin(key)
    for key in ("progress/runs.1", "progress/ended.1", "scratch/runs.1/1-0-bb", "scratch/ended.1/1-0-bb"):
        bucket.put(key, b"")

    listed_uploads = Bucket.uploads  # the server gives every upload the same day of the past
    begun_at = datetime.now(UTC)

    def of_today(self: Bucket, folder: str) -> list[Upload]:
        return [upload._replace(begun_at=begun_at) for upload in listed_uploads(self, folder)]

    monkeypatch.setattr(Bucket, "uploads", of_today)

    def left(age: float | None) -> list[str]:
        now = None if age is None else begun_at + timedelta(seconds=age)
        store.sweep_others({"runs.1"}, lambda blob: owner_of(blob) == "d" * 12, now)
        folders = ("blobs", "parts", "scratch")
        return [upload.key for folder in folders for upload in bucket.uploads(folder)]

    assert sorted(left(DEAD_UPLOAD_SECONDS)) == sorted(begun)
    listed = [*bucket.objects("progress"), *bucket.objects("scratch")]
    assert [found.key for found in listed] == ["progress/runs.1", "scratch/runs.1/1-0-bb"]
    assert sorted(left(None)) == sorted(begun)
    assert (
        left(DEAD_UPLOAD_SECONDS + 1)
        == left(UPLOAD_SECONDS)
        == [alive.key, parts[1], "scratch/runs.1/0-0-aa"]
    )
    assert left(UPLOAD_SECONDS + 1) == []


def test_another_prefix_of_the_bucket_is_left_alone(new_bucket: Callable[[], Bucket], tmp_path: Path) -> None:
    one, other = (
        BucketBlobs(new_bucket(), tmp_path / name, Sealer([bytes(32)])) for name in ("one", "other")
    )
    access = written(one, b"rows")
    assert other.names() == set()
    other.delete(access.id)
    assert one.names() == {access.id}


@pytest.mark.parametrize(
    "call",
    [
        lambda bucket, path: bucket.put("key", b""),
        lambda bucket, path: bucket.create("key", b""),
        lambda bucket, path: bucket.send(path, "key"),
        lambda bucket, path: bucket.objects("blobs"),
        lambda bucket, path: bucket.uploads("blobs"),
        lambda bucket, path: bucket.size("key"),
        lambda bucket, path: bucket.read("key", 0, 1),
    ],
)
def test_a_missing_bucket_is_named(
    call: Callable[[Bucket, Path], object], new_bucket: Callable[[], Bucket], tmp_path: Path
) -> None:
    """A table in it is not taken for a deleted one."""
    new_bucket()  # sets the credentials
    (tmp_path / "file").write_bytes(b"rows")
    name = f"none-{secrets.token_hex(4)}"
    with pytest.raises(BucketUnusable, match=f"there is no bucket {name}: create it"):
        call(Bucket(name), tmp_path / "file")


def test_a_server_that_does_not_answer_is_reported_without_its_address(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a refusal names the credentials; neither message has a part of a response."""
    from obstore.exceptions import GenericError, PermissionDeniedError

    client = pytest.importorskip("obstore")
    for error, expected in (
        (GenericError("http://10.0.0.1/?secret=9f2c"), "did not respond"),
        (PermissionDeniedError("key 9f2c"), "check the credentials"),
    ):

        def fail(*_: object, raised: Exception = error, **__: object) -> None:
            raise raised

        monkeypatch.setattr(client, "put", fail)
        with pytest.raises(BucketUnusable, match=expected) as caught:
            bucket.put("key", b"")
        assert "9f2c" not in str(caught.value)


def test_a_read_beyond_the_end_returns_less(bucket: Bucket) -> None:
    bucket.put("object", b"0123456789")
    reader = ObjectReader(bucket, "object")
    target = bytearray(8)
    assert reader.read_into(memoryview(target), 6) == 4
    assert target[:4] == b"6789"
    reader.close()
    with pytest.raises(FileNotFoundError):
        ObjectReader(bucket, "none")
