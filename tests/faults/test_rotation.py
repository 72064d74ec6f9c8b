"""Master keys change: what was sealed stays readable, under the new key alone."""

import base64
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import SecretStr

from app.__main__ import main
from app.engine.sandbox import landlock_version
from app.jobs.lifecycle import _confinement
from app.settings import Settings
from app.store.blobs.arrow_stream import read_table, write_table
from app.store.blobs.header_journal import JournalRefused
from app.store.blobs.sealed_files import BlobAccess, BlobStore
from app.store.crypto.sealing import Binding, SealBroken, Sealer, webhook_context
from app.store.sql.bindings import message_binding
from app.store.sql.models import Delivery
from app.webhooks.messages import Webhook
from tests.faults import confined, doings
from tests.faults.conftest import Running, embedded, new_attack, people
from tests.faults.test_confinement import linux, run_in_worker

pytestmark = pytest.mark.faults

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
SEED = bytes(range(2, 34))


def as_setting(*keys: bytes) -> SecretStr:
    return SecretStr(",".join(base64.b64encode(key).decode() for key in keys))


@embedded
@pytest.mark.parametrize("small_table_bytes", [0, 2**17], ids=["files", "rows"])
def test_after_a_rotation_the_old_key_opens_nothing(
    start: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    small_table_bytes: int,
) -> None:
    """While the service runs, with a job in its midst; results, fingerprints and the audit go on."""
    before = start(workers=1, small_table_bytes=small_table_bytes, key=as_setting(OLD))
    job = before.run(people(), seed=SEED, retain_source=True)
    attacked = before.end(
        before.accept(new_attack(people(), people(), people(50), seed=SEED, retain_source=True))
    )
    digest = job.destination_digest
    before.close()

    between = start(workers=1, small_table_bytes=small_table_bytes, key=as_setting(NEW, OLD))
    held = between.submit(people(), seed=doings.HELD)
    between.wait_until_held(held)
    home = between.settings.home
    monkeypatch.setenv("ROWVEIL_HOME", str(home))
    monkeypatch.setenv("ROWVEIL_KEY", as_setting(NEW, OLD).get_secret_value())
    assert main(["rotate-keys"]) == 0
    # Two seeds and reports, five tables or their keys in the rows, three kept keys; five tables.
    in_files = small_table_bytes == 0
    assert f"12 values and {5 * in_files} blobs" in capsys.readouterr().out
    assert main(["rotate-keys"]) == 0
    assert "0 values and 0 blobs" in capsys.readouterr().out
    between.open_gate(held)
    assert between.end(held).state == "succeeded"
    between.close()

    old = Sealer([OLD])
    with closing(sqlite3.connect(home / "rowveil.db")) as database:
        for service, job_id, sealed in database.execute("SELECT service, id, sealed_seed FROM jobs"):
            with pytest.raises(SealBroken, match="not among the keys"):
                old.open(sealed, Binding("seed", service, job_id, "service", None, terms=""))
    files = [path for path in (home / "blobs").glob("??/*") if path.is_file()]
    assert len(files) == 6 * in_files
    for path in files:
        with pytest.raises(SealBroken, match="not among the keys"):
            BlobStore(home / "blobs", old).access_by_header(path.name)

    after = start(workers=1, small_table_bytes=small_table_bytes, key=as_setting(NEW))
    again = after.end(after.loop.do(after.jobs.rerun(job.id)))
    assert (again.reproduced, again.destination_digest) == (True, digest)
    assert after.end(after.loop.do(after.jobs.rerun(attacked.id))).reproduced is True
    assert again.seed_fingerprint == job.seed_fingerprint
    assert after.rows(job).num_rows == people().num_rows
    assert after.loop.do(after.jobs.seed(job.id, "to test it"))[1] == SEED.hex()
    after.close()
    monkeypatch.setenv("ROWVEIL_KEY", as_setting(NEW).get_secret_value())
    assert main(["audit", "verify"]) == 0


def test_without_the_key_that_sealed_the_service_does_not_start(start: Callable[..., Running]) -> None:
    """The service refuses to start, and leaves the database that it cannot read unchanged."""
    start(workers=1, key=as_setting(OLD)).close()
    with pytest.raises(SealBroken, match="not among the keys given"):
        start(workers=1, key=as_setting(NEW))


TABLE = pa.table({"a": [1, 2, 3]})


def stored_table(folder: Path) -> tuple[BlobAccess, BlobStore]:
    """Write a blob under the old key; return its access, and the store of a rotation to the new key."""
    access = BlobStore(folder, Sealer([OLD])).allocate()
    write_table(access, TABLE)
    return access, BlobStore(folder, Sealer([NEW, OLD]))


def tear(path: Path) -> None:
    """Leave a header as a power cut may leave it."""
    path.write_bytes(b"RVBL\x01" + b"torn" + path.read_bytes()[9:])


def former_journal(folder: Path, *lines: tuple[str, bytes]) -> Path:
    """Write a journal as earlier versions wrote it."""
    path = folder / "reseal.journal"
    path.write_text("".join(f"{name} {header.hex()}\n" for name, header in lines))
    return path


@embedded
def test_a_rotation_is_refused_while_a_service_seals_with_another_key(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service does not know the new key: it would open nothing more."""
    service = start(workers=1, key=as_setting(OLD))
    job = service.run(people(), seed=SEED, retain_source=True)
    home = service.settings.home
    monkeypatch.setenv("ROWVEIL_HOME", str(home))
    monkeypatch.setenv("ROWVEIL_KEY", as_setting(NEW, OLD).get_secret_value())
    assert main(["rotate-keys"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    old, new = Sealer([OLD]).key_id, Sealer([NEW]).key_id
    assert f"seals with the master key {old}, and the first one given to this command is {new}" in err
    assert "nothing was changed. Give every replica and this command the same keys" in err
    assert service.end(service.loop.do(service.jobs.rerun(job.id))).reproduced is True
    service.close()
    assert main(["rotate-keys"]) == 0


def test_a_header_that_a_power_cut_tore_is_written_again(tmp_path: Path) -> None:
    """The journal has every header before the first of them is touched."""
    access, rotating = stored_table(tmp_path / "blobs")
    rotating._journal.write([(access.id, rotating._header(access.id, access.data_key))])
    assert (tmp_path / "reseal.journal").is_file()
    assert access.id.encode() not in (tmp_path / "reseal.journal").read_bytes()
    tear(Path(access.path))
    with pytest.raises(SealBroken):
        rotating.access_by_header(access.id)
    assert rotating.reseal() == 0
    assert read_table(BlobStore(tmp_path / "blobs", Sealer([NEW])).access_by_header(access.id)) == TABLE
    assert not list(tmp_path.rglob("*.journal"))


@pytest.mark.parametrize("trashed", [False, True])
def test_an_interrupted_rotation_of_an_earlier_version_is_completed(tmp_path: Path, trashed: bool) -> None:
    """Its journal is text in the folder of the blobs; all its headers open under the keys given."""
    access, rotating = stored_table(tmp_path / "blobs")
    path = Path(access.path)
    if trashed:
        rotating.trash.put(path, date(2026, 11, 30))
        path = tmp_path / "blobs" / "trash" / "2026-11-30" / access.id
    former_journal(
        tmp_path / "blobs",
        (access.id, rotating._header(access.id, access.data_key)),
        ("0" * 32, rotating._header("0" * 32, bytes(32))),  # deleted meanwhile
    )
    tear(path)
    assert rotating.reseal() == 0
    assert read_table(BlobStore(tmp_path / "blobs", Sealer([NEW]))._open_header(access.id, path)) == TABLE
    assert not list(tmp_path.rglob("*.journal"))


Forge = Callable[[Path, BlobStore, BlobAccess], tuple[str, bytes]]

FORGED: dict[str, Forge] = {
    "an absolute path": lambda outside, store, access: (str(outside), store._header(access.id, bytes(32))),
    "a path upwards": lambda outside, store, access: ("../outside", store._header(access.id, bytes(32))),
    "code": lambda outside, store, access: (str(outside), b"import os"),
    "a header of another blob": lambda outside, store, access: (
        access.id,
        store._header("0" * 32, bytes(32)),
    ),
    "a header under another key": lambda outside, store, access: (
        access.id,
        BlobStore(store.folder, Sealer([bytes(32)]))._header(access.id, bytes(32)),
    ),
    "a short header": lambda outside, store, access: (
        access.id,
        store._header(access.id, access.data_key)[:-1],
    ),
    "a long header": lambda outside, store, access: (
        access.id,
        store._header(access.id, access.data_key) + b"\0",
    ),
    "a header of a longer key": lambda outside, store, access: (
        access.id,
        store._header(access.id, bytes(33)),
    ),
    "capital digits": lambda outside, store, access: (
        access.id[:-1] + "A",
        store._header(access.id, access.data_key),
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_journal_that_no_rotation_wrote_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing is written, also not the genuine line before the forged one."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"RVBL\x01" + bytes(200))
    access, rotating = stored_table(tmp_path / "blobs")
    before = Path(access.path).read_bytes()
    journal = former_journal(
        tmp_path / "blobs",
        (access.id, rotating._header(access.id, access.data_key)),
        FORGED[name](outside, rotating, access),
    )
    with pytest.raises(JournalRefused, match=r"line 2 .*Nothing was written.*move it"):
        rotating.reseal()
    assert outside.read_bytes() == b"RVBL\x01" + bytes(200)
    assert Path(access.path).read_bytes() == before
    assert journal.is_file()
    journal.unlink()
    assert rotating.reseal() == 1


@pytest.mark.parametrize("kind", ["a link", "a folder", "too long", "no text"])
def test_a_journal_that_is_no_file_of_lines_is_refused(tmp_path: Path, kind: str) -> None:
    """None of it is read into memory or followed."""
    access, rotating = stored_table(tmp_path / "blobs")
    journal = tmp_path / "blobs" / "reseal.journal"
    if kind == "a link":
        genuine = tmp_path / "genuine"
        genuine.write_text(f"{access.id} {rotating._header(access.id, access.data_key).hex()}\n")
        journal.symlink_to(genuine)
    elif kind == "a folder":
        journal.mkdir()
    elif kind == "too long":
        journal.touch()
        os.truncate(journal, 1 << 40)  # sparse
    else:
        journal.write_bytes(bytes(range(256)))
    with pytest.raises(JournalRefused, match="is not the journal of a rotation"):
        rotating.reseal()


def test_a_sealed_journal_that_was_changed_or_has_another_key_is_refused(tmp_path: Path) -> None:
    access, rotating = stored_table(tmp_path / "blobs")
    rotating._journal.write([(access.id, rotating._header(access.id, access.data_key))])
    path = tmp_path / "reseal.journal"
    with pytest.raises(JournalRefused, match=r"not among the keys given.*Give all master keys"):
        BlobStore(tmp_path / "blobs", Sealer([OLD])).reseal()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(JournalRefused, match="was changed or moved"):
        rotating.reseal()


@pytest.mark.parametrize("kind", ["a link", "a folder that is a link", "another file", "a folder"])
def test_a_header_goes_to_a_blob_only(tmp_path: Path, kind: str) -> None:
    """A file in the place of a blob keeps its content, and no link is followed."""
    access, rotating = stored_table(tmp_path / "blobs")
    path, outside = Path(access.path), tmp_path / "outside" / access.id
    outside.parent.mkdir()
    content = b"RVBL\x01" + bytes(200)
    if kind == "another file":
        content = b"#!/bin/sh\n" + bytes(200)
    outside.write_bytes(content)
    path.unlink()
    if kind == "a link":
        path.symlink_to(outside)
    elif kind == "a folder that is a link":
        path.parent.rmdir()
        path.parent.symlink_to(outside.parent)
    elif kind == "another file":
        outside.rename(path)
        outside = path
    else:
        path.mkdir()
    former_journal(tmp_path / "blobs", (access.id, rotating._header(access.id, access.data_key)))
    with pytest.raises(JournalRefused, match="repeat `rowveil rotate-keys`"):
        rotating.reseal()
    assert outside.read_bytes() == content


@linux
def test_code_in_a_worker_writes_no_file_by_the_journal_of_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot write the journal, and the command refuses one in the place of earlier versions."""
    if not landlock_version():
        pytest.skip("this kernel has no Landlock")
    home, program = tmp_path / "home", tmp_path / "program.py"
    home.mkdir()
    program.write_text("print('as its author wrote it')\n")
    monkeypatch.setenv("ROWVEIL_HOME", str(home))
    monkeypatch.setenv("ROWVEIL_KEY", as_setting(NEW, OLD).get_secret_value())
    assert main(["migrate"]) == 0
    forged = f"{program} {b'import os#'.hex()}\n".encode()
    paths = [str(home / "reseal.journal"), str(home / "blobs" / "reseal.journal")]
    found = run_in_worker(
        confined.write_files, dict.fromkeys(paths, forged), _confinement(Settings(home=home))
    )
    assert found == {paths[0]: "PermissionError", paths[1]: "done"}
    assert main(["rotate-keys"]) == 1
    message = capsys.readouterr().err
    assert "line 1 is not the id of a blob and a header" in message
    assert "move it out of the folder" in message
    assert program.read_text() == "print('as its author wrote it')\n"
    Path(paths[1]).unlink()
    assert main(["rotate-keys"]) == 0


def test_a_folder_in_the_place_of_a_blob_is_named(tmp_path: Path) -> None:
    """A worker can make one: the command says what to do."""
    _, rotating = stored_table(tmp_path / "blobs")
    (tmp_path / "blobs" / "00" / "folder").mkdir(parents=True)
    with pytest.raises(SealBroken, match="folder' is a folder, where only blobs are: move it away"):
        rotating.reseal()


def test_a_blob_under_an_unknown_key_stops_the_rotation(tmp_path: Path) -> None:
    """Nothing is forgotten in silence: its key may be found yet."""
    store = BlobStore(tmp_path, Sealer([OLD]))
    write_table(store.allocate(), pa.table({"a": [1]}))
    with pytest.raises(SealBroken, match="not among the keys"):
        BlobStore(tmp_path, Sealer([NEW])).reseal()


@embedded
def test_the_message_of_a_job_that_runs_during_a_rotation_is_sealed_under_the_new_key(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job was claimed before the rotation, with its webhook under the old key."""
    before = start(workers=1, key=as_setting(OLD))
    job = before.submit(people(), seed=doings.HELD, webhook=Webhook("https://receiver.example/hook", ""))
    before.wait_until_held(job)
    before.close()
    between = start(workers=1, key=as_setting(NEW, OLD))
    between.wait_until_held(job)
    home = between.settings.home
    monkeypatch.setenv("ROWVEIL_HOME", str(home))
    monkeypatch.setenv("ROWVEIL_KEY", as_setting(NEW, OLD).get_secret_value())
    assert main(["rotate-keys"]) == 0
    between.open_gate(job)
    assert between.end(job).state == "succeeded"
    between.close()
    with closing(sqlite3.connect(home / "rowveil.db")) as database:
        ((sealed, *row),) = database.execute("SELECT sealed_webhook, id, job_id, body FROM deliveries")
    message = Delivery(id=row[0], job_id=row[1], body=row[2])
    assert message.job_id == job.id
    assert b"receiver.example" in Sealer([NEW]).open(sealed, message_binding(message))
    with pytest.raises(SealBroken, match="not among the keys"):
        Sealer([OLD]).open(sealed, message_binding(message))
    with pytest.raises(SealBroken, match="an unknown version"):
        Sealer([NEW]).open(sealed, webhook_context(job.id))  # as a version before it was bound
