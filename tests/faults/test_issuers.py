"""Owners of tokens have their issuer; rows of older versions get it once, and lose it on the way back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.__main__ import main
from app.callers import READ, RUN, SEEDS, Caller, token_owner
from app.jobs.maintenance.adoption import StorageInUse
from app.jobs.requests import SubmissionOptions
from app.jobs.stores import HomeInUse
from app.store.crypto.sealing import Binding
from app.store.sql.bindings import seed_binding_without_terms
from app.store.sql.db import Database
from app.store.sql.deployment import StorageUnusable
from app.store.sql.models import Job
from app.store.sql.reseal import Renamer
from tests.faults import doings
from tests.faults.conftest import Running, embedded, in_folder, new_job, people
from tests.faults.test_binding import SEED, Desk, refused, write

pytestmark = pytest.mark.faults

SCOPES = frozenset((RUN, READ, SEEDS))
FIRST, SECOND = "https://first.example", "https://second.example"
BEFORE = Caller("oidc:ada", scopes=SCOPES)
ADA = replace(BEFORE, owner=token_owner(FIRST, "ada"))
NAMESAKE = replace(BEFORE, owner=token_owner(SECOND, "ada"))
THE_VERSION_BEFORE = "2026_11_23g_destination_options"


def issued_by(issuer: str) -> dict[str, str]:
    return {"oidc_issuer": issuer, "oidc_audience": "https://rowveil.example"}


def as_operator(monkeypatch: pytest.MonkeyPatch, service: Running, issuer: str) -> None:
    """Give the command line the settings of the service, with that issuer."""
    monkeypatch.setenv("ROWVEIL_HOME", str(service.settings.home))
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", service.settings.database_url)
    for name, value in issued_by(issuer).items():
        monkeypatch.setenv(f"ROWVEIL_{name.upper()}", value)


def sees_nothing(desk: Desk, jobs: list[Job], buffer_id: str) -> None:
    for job in jobs:
        for action in (desk.seed, desk.report, desk.rows, desk.streamed, desk.rerun):
            refused(action, job)
    refused(desk.buffer_rows, buffer_id)


def owners(service: Running) -> dict[str, str]:
    """Owner of each job, as the database has it."""
    database = Database(service.settings)
    try:
        with database.read() as session:
            return {row.id: row.owner for row in session.execute(sa.select(Job.id, Job.owner))}
    finally:
        database.close()


def mark_of(service: Running) -> Path:
    return service.settings.home / "first-issuer"


def test_rows_of_an_older_version_go_to_the_first_issuer_and_to_no_other(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their owner reads and repeats them; one with the same subject at another issuer sees none of them."""
    old = start()  # without an issuer no owner gets one, as in an older version
    before = Desk(old, BEFORE)
    job, buffer = before.run(people(), retain_source=True), before.upload(people(20))
    rows, report = before.rows(job), before.report(job)
    stolen = Desk(old, Caller("victim", scopes=SCOPES)).run(people(30))
    write(old, "UPDATE jobs SET owner = 'oidc:ada' WHERE id = :id", id=stolen.id)
    held = old.submit(people(), seed=doings.HELD)
    old.wait_until_held(held)
    known = SubmissionOptions(idempotency_key="mine", request_fingerprint="the same")
    waiting = old.loop.do(
        before.jobs.submit(
            new_job(buffer.id, seed=SEED, idempotency_key="mine", request_fingerprint="the same")
        )
    )
    old.close()

    new = start(**issued_by(FIRST))
    ada, namesake = Desk(new, ADA), Desk(new, NAMESAKE)
    new.wait_until_held(held)
    new.open_gate(held)
    assert (new.end(held).state, new.end(waiting).state) == ("succeeded", "succeeded")
    assert (ada.seed(job), ada.rows(job), ada.report(job)) == (SEED.hex(), rows, report)
    assert ada.seed(waiting) == SEED.hex()
    assert ada.rerun(job).reproduced is True
    assert ada.buffer_rows(buffer.id) == people(20)
    accepted = new.loop.do(ada.jobs.accepted_before(known))
    assert accepted is not None
    assert accepted.id == waiting.id
    for stranger in (namesake, Desk(new, BEFORE)):
        sees_nothing(stranger, [job, waiting], buffer.id)
        assert new.loop.do(stranger.jobs.accepted_before(known)) is None
    sees_nothing(ada, [stolen], stolen.id)  # its values open under the owner only who sealed them
    assert owners(new)[stolen.id] == "oidc:ada"
    later_job = ada.run(people(40))
    new.close()
    as_operator(monkeypatch, new, FIRST)
    assert main(["ledger", "--verify"]) == 0
    assert main(["audit", "verify"]) == 0
    for owner in (NAMESAKE.owner, BEFORE.owner):
        write(new, "UPDATE ledger SET owner = :owner WHERE job_id = :id", owner=owner, id=job.id)
        assert main(["ledger", "--verify"]) == 1
        assert job.id in capsys.readouterr().err
    write(new, "UPDATE ledger SET owner = :owner WHERE job_id = :id", owner=ADA.owner, id=job.id)

    moved = start(**issued_by(SECOND))
    sees_nothing(Desk(moved, NAMESAKE), [job, waiting, later_job], buffer.id)
    assert Desk(moved, ADA).rows(job) == rows
    moved.close()


@in_folder
def test_a_restored_row_of_an_older_version_goes_to_the_first_issuer_by_command(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start does not rename it: the issuer of the day may be another one."""
    first = start(**issued_by(FIRST))
    first.close()
    assert mark_of(first).read_text().startswith(ADA.owner.removesuffix("ada"))
    restored = start()
    job = Desk(restored, BEFORE).run(people(), idempotency_key="mine", request_fingerprint="the same")
    rows = Desk(restored, BEFORE).rows(job)
    restored.close()
    for table, others in (
        ("callers", "seen_at"),
        ("idempotency_keys", "key, fingerprint, resource, expires_at"),
    ):
        # The owner has used the service under the new name, too.
        copied = f"SELECT :owner, {others} FROM {table} WHERE owner = 'oidc:ada'"
        write(restored, f"INSERT INTO {table} (owner, {others}) {copied}", owner=ADA.owner)
    start(**issued_by(SECOND)).close()
    assert owners(restored)[job.id] == BEFORE.owner

    as_operator(monkeypatch, restored, SECOND)
    assert main(["reseal"]) == 0
    assert "owners with their issuer: 2 rows; 0 rows do not open" in capsys.readouterr().out
    later = start(**issued_by(SECOND))
    assert Desk(later, ADA).rows(job) == rows
    refused(Desk(later, NAMESAKE).rows, job)


@in_folder
def test_the_way_back_takes_the_issuer_out_of_owners_and_leaves_those_of_others(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The older version opens the rows; the ledger is as recorded; the next upgrade names the issuer."""
    service = start(**issued_by(FIRST))
    job, others = Desk(service, ADA).run(people()), Desk(service, NAMESAKE).run(people(30))
    buffer, rows = Desk(service, ADA).upload(people(20)), Desk(service, ADA).rows(job)
    service.close()
    as_operator(monkeypatch, service, FIRST)
    assert main(["migrate", "--to", THE_VERSION_BEFORE]) == 0
    assert "owners without their issuer, as an older version expects them: 3 rows" in capsys.readouterr().out
    assert not mark_of(service).exists()
    assert owners(service) == {job.id: BEFORE.owner, others.id: NAMESAKE.owner}
    database = Database(service.settings)
    with database.read() as session:
        sealed = session.scalars(sa.select(Job.sealed_seed).where(Job.id == job.id)).one()
        of_others = session.scalars(sa.select(Job.sealed_seed).where(Job.id == others.id)).one()
    database.close()
    sealer = service.jobs._stores.sealer
    assert sealer.open(sealed, Binding("seed", "DSWAP", job.id, "oidc:ada", None)) == SEED
    assert sealer.open(of_others, seed_binding_without_terms(others)) == SEED
    assert main(["migrate"]) == 0
    assert main(["ledger", "--verify"]) == 0

    again = start(**issued_by(FIRST))
    assert Desk(again, ADA).rows(job) == rows
    assert Desk(again, ADA).buffer_rows(buffer.id) == people(20)
    refused(Desk(again, ADA).rows, others)
    refused(Desk(again, BEFORE).rows, job)
    again.close()
    assert main(["ledger", "--verify"]) == 0


def test_a_replica_at_work_forbids_the_renaming(start: Callable[..., Running]) -> None:
    """It could be running one of the jobs. When it has stopped, the next start renames their owners."""
    working = start()
    job = Desk(working, BEFORE).run(people())
    with pytest.raises((StorageInUse, HomeInUse)):
        start(**issued_by(FIRST))
    assert owners(working)[job.id] == BEFORE.owner
    assert not mark_of(working).exists()
    working.close()
    start(**issued_by(FIRST))
    assert owners(working)[job.id] == ADA.owner


@embedded
def test_an_interrupted_renaming_goes_on_at_the_next_start(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renamed rows open, and the file is written only at the end."""
    old = start()
    job, buffer = Desk(old, BEFORE).run(people()), Desk(old, BEFORE).upload(people(20))
    rows = Desk(old, BEFORE).rows(job)
    old.close()

    def interrupted(*_: object) -> None:
        raise StorageUnusable("the folder went away")

    with monkeypatch.context() as patch:
        patch.setattr(Renamer, "_rename_unique", interrupted)
        with pytest.raises(StorageUnusable, match="went away"):
            start(**issued_by(FIRST))
    assert owners(old)[job.id] == ADA.owner
    assert not mark_of(old).exists()
    new = start(**issued_by(FIRST))
    assert mark_of(new).exists()
    assert Desk(new, ADA).rows(job) == rows
    assert Desk(new, ADA).buffer_rows(buffer.id) == people(20)
