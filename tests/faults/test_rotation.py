"""Master keys change: what was sealed stays readable, under the new key alone."""

import base64
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import SecretStr

from app.__main__ import main
from app.store.blobs.arrow_stream import read_table, write_table
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Binding, SealBroken, Sealer, webhook_context
from app.webhooks.messages import Webhook
from tests.faults import doings
from tests.faults.conftest import Running, embedded, new_attack, people

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
    table = pa.table({"a": [1, 2, 3]})
    store = BlobStore(tmp_path, Sealer([OLD]))
    access = store.allocate()
    write_table(access, table)
    rotating = BlobStore(tmp_path, Sealer([NEW, OLD]))
    rotating._write_journal([(access.id, rotating._header(access.id, access.data_key))])
    path = Path(access.path)
    path.write_bytes(b"RVBL\x01" + b"torn" + path.read_bytes()[9:])
    with pytest.raises(SealBroken):
        rotating.access_by_header(access.id)
    assert rotating.reseal() == 0
    assert read_table(BlobStore(tmp_path, Sealer([NEW])).access_by_header(access.id)) == table
    assert not list(tmp_path.glob("*.journal"))


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
        ((sealed,),) = database.execute("SELECT sealed_webhook FROM deliveries")
    assert b"receiver.example" in Sealer([NEW]).open(sealed, webhook_context(job.id))
    with pytest.raises(SealBroken, match="not among the keys"):
        Sealer([OLD]).open(sealed, webhook_context(job.id))
