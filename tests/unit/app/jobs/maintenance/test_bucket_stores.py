"""Stores whose tables are in a bucket: pairing, sweep, adoption, rotation, and a bucket that is away."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from app.__main__ import main
from app.engine.progress_file import ProgressFile, make_progress_file
from app.ids import new_id
from app.jobs.maintenance.health import HealthCheck
from app.jobs.progress import ProgressSender, shared_progress
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.blobs.arrow_stream import read_table, write_table
from app.store.blobs.bucket import Bucket, BucketUnusable
from app.store.blobs.bucket_blobs import BucketBlobs
from app.store.blobs.marks import delete_mark, read_mark
from app.store.crypto.sealing import Sealer
from app.store.sql.bindings import buffer_binding
from app.store.sql.deployment import StorageMismatch, StorageUnusable
from app.store.sql.models import Buffer
from tests.unit.app.jobs.maintenance.test_sweep import Open, audited, name_all, names, opening, trashed
from tests.unit.app.store.stored_rows import add, buffer

TABLE = pa.table({"x": range(1000)})


@pytest.fixture
def bucket(new_bucket: Callable[[], Bucket]) -> Bucket:
    return new_bucket()


@pytest.fixture
def open_stores(bucket: Bucket, tmp_path: Path) -> Iterator[Open]:
    """Opens the stores of one home and one bucket; those left open are closed."""
    yield from opening(Settings(home=tmp_path, storage=f"{bucket}"))


def put(bucket: Bucket, *blobs: str) -> None:
    """Objects of a dead replica in the place of sealed tables."""
    for blob in blobs:
        bucket.put(f"blobs/{blob[:2]}/{blob}", b"sealed")


def test_a_bucket_belongs_to_one_database(open_stores: Open, bucket: Bucket, tmp_path: Path) -> None:
    """Its marks are objects. Another database is refused, and so is another prefix."""
    stores = open_stores()
    marks = ("deployment", "identity", "rows-bound")
    assert all(read_mark(bucket, mark) for mark in marks)
    assert not any((tmp_path / mark).exists() for mark in marks)
    stores.close()
    open_stores().close()
    with pytest.raises(StorageMismatch, match=r"belongs to another database.*ROWVEIL_STORAGE to a prefix of"):
        Stores.open(Settings(home=tmp_path / "other", storage=f"{bucket}"))
    with pytest.raises(StorageMismatch, match=r"another bucket or prefix.*the same ROWVEIL_STORAGE"):
        open_stores(storage=f"{bucket}/other")


def test_what_no_row_names_goes_to_the_trash_and_comes_back(open_stores: Open, bucket: Bucket) -> None:
    stores = open_stores()
    kept, swept, restored = names(3)
    put(bucket, kept, swept, restored)
    name_all(stores, [kept])
    assert stores.sweep()
    assert (stores.blobs.names(), trashed(stores)) == ({kept}, {swept, restored})
    name_all(stores, [restored])
    assert stores.sweep()
    assert (stores.blobs.names(), trashed(stores)) == ({kept, restored}, {swept})
    assert audited(stores) == [
        ("storage.sweep", "2 of 3 tables were named by no row"),
        ("storage.take_back", "1 tables in the trash are named by rows"),
    ]
    assert len(bucket.objects("blobs")) == 3


def test_parts_stay_as_long_as_their_table(open_stores: Open, bucket: Bucket) -> None:
    stores = open_stores()
    kept, swept, unwritten = names(3)
    mine = stores.new_blob().id
    put(bucket, kept, swept)
    for blob in (kept, swept, mine, unwritten):
        bucket.put(f"parts/{blob}/{'a' * 32}", b"sealed")
    name_all(stores, [kept])
    for _ in range(2):
        assert stores.sweep()
        assert {found.key.split("/")[1] for found in bucket.objects("parts")} == {kept, swept, mine}
    assert (stores.blobs.names(), trashed(stores)) == ({kept}, {swept})
    bucket.delete([found.key for found in bucket.objects("trash")])
    bucket.delete([f"blobs/{swept[:2]}/{swept}"])
    assert stores.sweep()
    assert {found.key.split("/")[1] for found in bucket.objects("parts")} == {kept, mine}


def test_a_trash_is_not_emptied_while_a_named_table_is_in_it(
    open_stores: Open, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The mark of the table cannot be deleted, and its day is over."""
    stores = open_stores()
    named, orphan = names(2)
    put(bucket, named, orphan)
    for blob in (named, orphan):
        bucket.put(f"trash/2026-01-01/{blob}", b"")
    name_all(stores, [named])

    def refused(*_: object) -> bool:
        raise BucketUnusable(errno.EACCES, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(BucketBlobs, "take_back", refused)
        assert stores.sweep()
    assert "1 tables that rows name are still in the trash" in caplog.text
    assert len(bucket.objects("blobs")) == 2
    assert stores.sweep()
    assert stores.blobs.names() == {named}
    assert len(bucket.objects("blobs")) == 1


def test_a_sweep_that_would_take_too_much_takes_nothing(open_stores: Open, bucket: Bucket) -> None:
    stores = open_stores(trash_days=0)
    put(bucket, *names(101))
    assert stores.sweep()
    assert stores.sweeper.held == 101
    bucket.delete([found.key for found in bucket.objects("blobs")[:1]])
    assert stores.sweep()
    assert (stores.sweeper.held, bucket.objects("blobs")) == (0, [])


def test_a_table_is_read_by_the_key_of_its_row_after_a_rotation(
    open_stores: Open, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rotation writes no object; the old master key opens nothing afterwards."""
    stores = open_stores()
    access = stores.new_blob()
    write_table(access, TABLE)
    row = buffer(blob=access.id, owner="anonymous")
    row.sealed_key = stores.blobs.seal_key(access, buffer_binding(row))
    row_id = row.id
    add(stores.database, row)
    stores.close()
    before = bucket.objects("blobs")
    keys = tmp_path / "keys" / "master.key"
    old = keys.read_text()
    keys.write_text("0123456789abcdef" * 4 + "\n" + old)
    keys.chmod(0o600)
    monkeypatch.setenv("ROWVEIL_HOME", str(tmp_path))
    monkeypatch.setenv("ROWVEIL_STORAGE", f"{bucket}")
    assert main(["rotate-keys"]) == 0
    keys.write_text("0123456789abcdef" * 4 + "\n")
    opened = open_stores()
    with opened.database.read() as session:
        found = session.get(Buffer, row_id)
        assert found is not None
        sealed, binding = found.sealed_key, buffer_binding(found)
    assert read_table(opened.blobs.access(access.id, sealed, binding)) == TABLE
    assert bucket.objects("blobs") == before


def test_a_bucket_is_adopted(
    open_stores: Open, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """After its mark was lost, with what no row names moved to the trash."""
    stores = open_stores()
    kept, orphan = names(2)
    put(bucket, kept, orphan)
    name_all(stores, [kept])
    stores.close()
    delete_mark(bucket, "deployment")
    with pytest.raises(StorageMismatch):
        open_stores()
    monkeypatch.setenv("ROWVEIL_HOME", str(tmp_path))
    monkeypatch.setenv("ROWVEIL_STORAGE", f"{bucket}")
    assert main(["adopt-storage", "--trash-unnamed"]) == 0
    printed = capsys.readouterr().out
    assert f"{bucket} belongs to " in printed
    assert "Tables in the bucket: 2, of which rows name 1." in printed
    adopted = open_stores()
    assert (adopted.blobs.names(), trashed(adopted)) == ({kept}, {orphan})


def test_a_bucket_that_is_away_stops_no_sweep_for_good_and_shows_in_the_health(
    open_stores: Open, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A start with such a bucket is refused with the cause and the remedy."""
    stores = open_stores()
    health = HealthCheck(stores, None)  # type: ignore[arg-type] # the check of the storage needs no engine

    def away(*_: object) -> None:
        raise BucketUnusable(errno.EIO, "the bucket did not respond: check AWS_ENDPOINT_URL")

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "objects", away)
        assert not stores.sweep()
        assert "the sweep was interrupted: the bucket did not respond" in caplog.text
        health._check_storage()
        patch.setattr(Bucket, "get", away)
        assert not stores.sweep()
        with pytest.raises(StorageUnusable, match="did not respond"):
            health._check_storage()
        stores.close()
        with pytest.raises(StorageUnusable, match="check AWS_ENDPOINT_URL"):
            open_stores()
    stores = open_stores()
    assert stores.sweep()
    HealthCheck(stores, None)._check_storage()  # type: ignore[arg-type] # as above


def test_another_replica_sees_the_progress_of_a_job(
    bucket: Bucket, open_stores: Open, tmp_path: Path
) -> None:
    """It has no progress file of the job. The object goes with the file."""
    stores = open_stores()
    assert isinstance(stores.blobs, BucketBlobs)
    here, there = tmp_path / "progress" / "job.1", tmp_path / "other" / "job.1"
    make_progress_file(here)
    sender, read = ProgressSender(bucket, here.parent), shared_progress(stores.blobs)
    assert read(there) is None
    with ProgressFile(str(here)) as progress:
        progress(0.25, "swapping")
    sender.send()
    found = read(there)
    assert found is not None
    assert (found.fraction, found.stage) == (0.25, "swapping")
    assert read(here) == found
    sender.send()
    here.unlink()
    sender.send()
    assert (read(there), bucket.objects("progress")) == (None, [])


def test_only_progress_is_sent_of_the_folder_of_progress_files(bucket: Bucket, tmp_path: Path) -> None:
    """Workers may write there: long files, folders and other names stay on this machine."""
    good = tmp_path / f"{new_id()}.1"
    make_progress_file(good)
    for name, size in (
        ("job.2", 1 << 40),
        ("job.3", 127),
        ("job", 128),
        ("a b.1", 128),
        (f"{'a' * 99}.1", 128),
    ):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)
    (tmp_path / "job.4").mkdir()
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.5"))).write_bytes(bytes(128))
    sender = ProgressSender(bucket, tmp_path)
    sender.send()
    assert [found.key for found in bucket.objects("progress")] == [f"progress/{good.name}"]
    os.truncate(good, 1 << 40)
    sender.send()
    assert bucket.objects("progress") == []


def test_long_progress_of_another_replica_is_read_in_part(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version sends files of any length."""
    bucket.put("progress/job.1", bytes(1 << 20))
    monkeypatch.setattr(Bucket, "get", None)
    assert shared_progress(BucketBlobs(bucket, tmp_path, Sealer([bytes(32)])))(tmp_path / "job.1") is None


def test_an_upload_is_a_file_where_the_workers_are_on_this_machine(
    open_stores: Open, bucket: Bucket, tmp_path: Path
) -> None:
    """No row can name it; a sweep deletes what a dead service left of it, and `drop` what is read."""
    stores = open_stores()
    left, upload = stores.new_upload(), stores.new_upload()
    for access in (left, upload):
        write_table(access, TABLE)
        assert read_table(access) == TABLE
    assert (bucket.objects("blobs"), stores.blobs.names()) == ([], set())
    stores.drop([upload.id])
    assert [path.name for path in stores.blobs.folder.rglob("*") if path.is_file()] == [left.id]
    assert stores.sweep()
    assert Path(left.path).exists()
    stores.close()
    stores = open_stores()
    assert not Path(left.path).exists()
    stores.close()
    assert open_stores(engine="dask").new_upload().bucket == bucket


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"storage": "/srv/rowveil"}, "begins with s3://"),
        ({"storage": "file:///srv/rowveil"}, "for a folder, set ROWVEIL_SHARED_FOLDER"),
        ({"storage": "s3://one/a,b"}, "one bucket or prefix"),
        ({"storage": "s3://one/a", "source_prefixes": "*=s3://one"}, "ROWVEIL_SOURCE_PREFIXES"),
        ({"storage": "s3://one/a", "destination_prefixes": "x=s3://one/a/b"}, "ROWVEIL_DESTINATION_PREFIXES"),
        ({"storage": "s3://one", "overwrite_prefixes": "*=s3://one"}, "ROWVEIL_OVERWRITE_PREFIXES"),
        ({"storage": "s3://one/a", "audit_anchor_url": "s3://one/a/anchors"}, "ROWVEIL_AUDIT_ANCHOR_URL"),
    ],
)
def test_a_storage_that_is_none_or_is_not_the_services_own_is_refused(
    settings: dict[str, str], words: str
) -> None:
    """Otherwise callers could read, and replace, the service's own objects by reference."""
    with pytest.raises(ValueError, match=words):
        Settings.model_validate(settings)


def test_a_prefix_that_does_not_overlap_is_accepted() -> None:
    settings = Settings(storage="s3://one/a", source_prefixes="*=s3://one/ab", audit_anchor_url="s3://two")
    assert settings.storage == "s3://one/a"
