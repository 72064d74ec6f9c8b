"""Write access to the database and an ordinary key open nobody else's seed, report or table."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from app.__main__ import main
from app.callers import READ, RUN, SEEDS, Caller
from app.errors import AppError
from app.jobs.requests import SubmissionOptions
from app.jobs.service import JobService
from app.store.blobs.arrow_stream import TableReader
from app.store.crypto.sealing import unbound_context
from app.store.sql.db import Database
from app.store.sql.models import Buffer, Job
from app.store.sql.reseal import Binder
from tests.faults import doings
from tests.faults.conftest import Running, embedded, in_folder, new_job, people

pytestmark = pytest.mark.faults

SCOPES = frozenset((RUN, READ, SEEDS))
VICTIM = Caller("victim", "census", SCOPES)
THIEF = Caller("thief", "gang", SCOPES)
SEED = bytes(range(3, 35))


@dataclass(frozen=True)
class Desk:
    """Calls of one caller to a service."""

    service: Running
    caller: Caller

    @property
    def jobs(self) -> JobService:
        return self.service.jobs.on_behalf_of(self.caller)

    def run(self, source: pa.Table | str, **values: object) -> Job:
        job = self.service.loop.do(self.jobs.submit(new_job(source, seed=SEED, **values)))
        return self.service.end(job)

    def upload(self, table: pa.Table) -> Buffer:
        async def chunks():  # type: ignore[no-untyped-def]
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            yield sink.getvalue().to_pybytes()

        media_type = "application/vnd.apache.arrow.stream"
        return self.service.loop.do(self.jobs.buffers.create(chunks(), media_type))

    def seed(self, job: Job) -> str:
        return self.service.loop.do(self.jobs.seed(job.id, "to test it"))[1]

    def report(self, job: Job) -> object:
        return self.service.loop.do(self.jobs.report(job.id))

    def rows(self, job: Job) -> pa.Table:
        return self.service.loop.do(self.jobs.destination(job.id))

    def streamed(self, job: Job) -> pa.Table:
        found = self.service.loop.do(self.jobs.with_destination(job.id))
        return read(self.service.loop.do(self.jobs.open_destination(found)))

    def rerun(self, job: Job) -> Job:
        return self.service.end(self.service.loop.do(self.jobs.rerun(job.id)))

    def buffer_rows(self, buffer_id: str) -> pa.Table:
        buffer = self.service.loop.do(self.jobs.buffers.get(buffer_id))
        return read(self.service.loop.do(self.jobs.buffers.open(buffer)))


def read(reader: TableReader) -> pa.Table:
    try:
        return pa.Table.from_batches(list(reader), reader.schema)
    finally:
        reader.close()


def write(service: Running, statement: str, **values: object) -> None:
    """Do what somebody does who has the database's password."""
    database = Database(service.settings)
    try:
        with database.engine.begin() as connection:
            connection.execute(sa.text(statement), values)
    finally:
        database.close()


def refused(action: Callable[..., object], *given: object) -> None:
    with pytest.raises(AppError) as raised:
        action(*given)
    assert raised.value.status in (404, 422, 500)
    if raised.value.status == 500:
        assert "does not open under this id" in raised.value.message


def test_a_job_given_to_another_owner_opens_for_nobody(service: Running) -> None:
    """Its seed, its report, its rows and its source; given back, it opens again."""
    victim, thief = Desk(service, VICTIM), Desk(service, THIEF)
    job = victim.run(people(), retain_source=True)
    rows = victim.rows(job)
    for change in ("owner = 'thief'", "project = 'gang'", "owner = 'thief', project = 'gang'"):
        write(service, f"UPDATE jobs SET {change} WHERE id = :id", id=job.id)
        for action in (thief.seed, thief.report, thief.rows, thief.streamed, thief.rerun):
            refused(action, job)
        write(service, "UPDATE jobs SET owner = 'victim', project = 'census' WHERE id = :id", id=job.id)
    assert victim.seed(job) == SEED.hex()
    assert victim.rows(job) == victim.streamed(job) == rows
    assert victim.report(job)
    assert victim.rerun(job).reproduced is True


def test_a_table_named_in_another_row_does_not_open(service_of_files: Running) -> None:
    """A buffer or a job of the thief's that names the victim's table, with its sealed key or without."""
    service = service_of_files
    victim, thief = Desk(service, VICTIM), Desk(service, THIEF)
    job, buffer = victim.run(people(), retain_source=True), victim.upload(people())
    own_buffer, own_job = thief.upload(people(10)), thief.run(people(10), retain_source=True)
    assert buffer.sealed_key is not None
    stolen = (
        (buffer.blob, buffer.sealed_key),
        (job.source_blob, job.sealed_source_key),
        (job.destination_blob, job.sealed_destination_key),
    )
    for blob, sealed in stolen:
        for key in (sealed, own_buffer.sealed_key, None):
            write(
                service,
                "UPDATE buffers SET blob = :blob, sealed_key = :key WHERE id = :id",
                blob=blob,
                key=key,
                id=own_buffer.id,
            )
            refused(thief.buffer_rows, own_buffer.id)
            refused(thief.run, own_buffer.id)
            write(
                service,
                "UPDATE jobs SET destination_blob = :blob, sealed_destination_key = :key, "
                "source_blob = :blob, sealed_source_key = :key, source_digest = :digest WHERE id = :id",
                blob=blob,
                key=key,
                digest=buffer.digest,
                id=own_job.id,
            )
            for action in (thief.rows, thief.streamed, thief.rerun):
                refused(action, own_job)
    write(service, "UPDATE buffers SET owner = 'thief', project = 'gang' WHERE id = :id", id=buffer.id)
    refused(thief.buffer_rows, buffer.id)
    write(service, "UPDATE buffers SET owner = 'victim', project = 'census' WHERE id = :id", id=buffer.id)
    assert victim.buffer_rows(buffer.id) == people()


@in_folder
def test_a_small_table_copied_to_another_row_does_not_open(service: Running) -> None:
    """Nor does a destination as a source."""
    victim, thief = Desk(service, VICTIM), Desk(service, THIEF)
    job, own = victim.run(people(), retain_source=True), thief.run(people(), retain_source=True)
    copied = "(SELECT {} FROM jobs WHERE id = :victim)"
    for column in ("sealed_source", "sealed_destination"):
        other = copied.format(column)
        write(
            service,
            f"UPDATE jobs SET sealed_source = {other}, sealed_destination = {other} WHERE id = :id",
            victim=job.id,
            id=own.id,
        )
        for action in (thief.rows, thief.streamed, thief.rerun):
            refused(action, own)
    write(service, "UPDATE jobs SET sealed_destination = sealed_source WHERE id = :id", id=job.id)
    refused(victim.rows, job)


def test_a_rerun_takes_no_buffer_that_its_caller_does_not_see(service: Running) -> None:
    victim, thief = Desk(service, VICTIM), Desk(service, THIEF)
    buffer, own = victim.upload(people()), thief.run(people(10))
    write(
        service,
        "UPDATE jobs SET source_buffer = :buffer, source_digest = :digest WHERE id = :id",
        buffer=buffer.id,
        digest=buffer.digest,
        id=own.id,
    )
    with pytest.raises(AppError, match="was not retained"):
        thief.rerun(own)


def test_a_queued_job_cannot_be_pointed_at_anothers_table(service_of_files: Running) -> None:
    """It fails before a worker sees the table."""
    service = service_of_files
    victim, thief = Desk(service, VICTIM), Desk(service, THIEF)
    job = victim.run(people(), retain_source=True)
    held = [service.submit(people(), seed=doings.HELD) for _ in range(2)]  # no worker is free
    for each in held:
        service.wait_until_held(each)
    queued = service.loop.do(thief.jobs.submit(new_job(people(10))))
    write(
        service,
        "UPDATE jobs SET source_blob = :blob, sealed_source_key = :key WHERE id = :id",
        blob=job.source_blob,
        key=job.sealed_source_key,
        id=queued.id,
    )
    for each in held:
        service.open_gate(each)
    ended = service.end(queued)
    assert (ended.state, ended.destination_blob) == ("failed", None)
    assert "cannot be opened" in str(ended.error)


def test_an_idempotency_key_gives_no_job_or_buffer_of_another_caller(service: Running) -> None:
    victim, thief = Desk(service, VICTIM), Desk(service, THIEF)
    job = victim.run(people())
    submission = SubmissionOptions(idempotency_key="mine", request_fingerprint="the same")
    new = new_job(people(10), idempotency_key="mine", request_fingerprint="the same")
    service.end(service.loop.do(thief.jobs.submit(new)))
    write(service, "UPDATE idempotency_keys SET resource = :id WHERE owner = 'thief'", id=job.id)
    assert service.loop.do(thief.jobs.accepted_before(submission)) is None


def as_older_versions_left_it(home: Path, database: Database, service: Running) -> None:
    """Seal seeds and reports to their places, and let the rows forget the keys of their tables."""
    stores = service.jobs._stores
    assert Binder(database, stores.sealer, stores.blobs).unbind().unopened == 0
    with database.write() as session:
        session.execute(sa.text("UPDATE jobs SET sealed_source_key = NULL, sealed_destination_key = NULL"))
        session.execute(sa.text("UPDATE buffers SET sealed_key = NULL"))
    (home / "rows-bound").unlink()


@in_folder
def test_rows_of_an_older_version_are_bound_at_the_first_start_and_never_again(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A queued job runs, and old results open; a row that appears later as of an older version does not."""
    old = start()
    victim = Desk(old, VICTIM)
    job, buffer = victim.run(people(), retain_source=True), victim.upload(people(20))
    rows, home = victim.rows(job), old.settings.home
    held = old.submit(people(), seed=doings.HELD)
    old.wait_until_held(held)
    waiting = old.loop.do(victim.jobs.submit(new_job(buffer.id, seed=SEED)))
    database = Database(old.settings)
    old.close()
    as_older_versions_left_it(home, database, old)

    new = start()
    victim = Desk(new, VICTIM)
    new.wait_until_held(held)
    new.open_gate(held)
    assert (new.end(held).state, new.end(waiting).state) == ("succeeded", "succeeded")
    assert (victim.seed(job), victim.rows(job)) == (SEED.hex(), rows)
    assert victim.buffer_rows(buffer.id) == people(20)
    assert victim.rerun(job).reproduced is True
    new.close()
    with database.read() as session:
        noted = sa.text("SELECT count(*) FROM audit_lines WHERE action = 'rows.reseal'")
        assert session.scalar(noted) == 1

    as_older_versions_left_it(home, database, new)
    (home / "rows-bound").write_text("")  # a database was changed, or restored, and not upgraded
    with database.write() as session:
        session.execute(sa.text("UPDATE jobs SET owner = 'thief', project = 'gang'"))
        session.execute(sa.text("UPDATE buffers SET owner = 'thief', project = 'gang'"))
    later = start()
    thief = Desk(later, THIEF)
    for action in (thief.seed, thief.rows, thief.rerun):
        refused(action, job)
    refused(thief.buffer_rows, buffer.id)
    later.close()

    with database.write() as session:  # the operator finds it as it was, and has it bound
        session.execute(sa.text("UPDATE jobs SET owner = 'victim', project = 'census'"))
        session.execute(sa.text("UPDATE buffers SET owner = 'victim', project = 'census'"))
    database.close()
    monkeypatch.setenv("ROWVEIL_HOME", str(home))
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", later.settings.database_url)
    assert main(["reseal"]) == 0
    assert "sealed to their rows: " in capsys.readouterr().out
    assert Desk(start(), VICTIM).rows(job) == rows


@in_folder
def test_the_way_back_to_an_older_version_seals_values_as_that_expects_them(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small table in a row forbids it, and changes nothing; and the next upgrade binds the values again."""
    service = start(small_table_bytes=0)
    victim = Desk(service, VICTIM)
    job, home, settings = victim.run(people()), service.settings.home, service.settings
    rows = victim.rows(job)
    monkeypatch.setenv("ROWVEIL_HOME", str(home))
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", settings.database_url)
    back = ["migrate", "--to", "2026_11_23_deployment"]
    assert main(back) == 1
    assert re.search("stop them first|a service uses", capsys.readouterr().err)
    service.close()

    service = start()
    small = Desk(service, VICTIM).run(people(50))
    service.close()
    assert main(back) == 1
    assert "1 jobs have small tables in their rows" in capsys.readouterr().err
    assert (home / "rows-bound").exists()
    database = Database(settings)
    with database.write() as session:
        session.execute(sa.delete(Job).where(Job.id == small.id))

    assert main(back) == 0, capsys.readouterr().err
    stores = service.jobs._stores
    with database.read() as session:
        older = sa.text("SELECT sealed_seed FROM jobs WHERE id = :id")
        seed = bytes(session.scalar(older, {"id": job.id}) or b"")
    database.close()
    assert not stores.sealer.is_bound(seed)
    assert stores.sealer.open(seed, unbound_context("seed", job.id)) == SEED
    assert not (home / "rows-bound").exists()
    assert main(["migrate"]) == 0
    victim = Desk(start(), VICTIM)
    assert (victim.seed(job), victim.rows(job)) == (SEED.hex(), rows)


@embedded
def test_a_table_that_is_missing_does_not_keep_the_others_from_being_bound(
    start: Callable[..., Running],
) -> None:
    old = start(small_table_bytes=0)
    victim = Desk(old, VICTIM)
    lost, job = victim.run(people()), victim.run(people())
    rows, home, database = victim.rows(job), old.settings.home, Database(old.settings)
    old.close()
    as_older_versions_left_it(home, database, old)
    database.close()
    blob = str(lost.destination_blob)
    (home / "blobs" / blob[:2] / blob).unlink()
    new = start()
    assert Desk(new, VICTIM).rows(job) == rows
    refused(Desk(new, VICTIM).rows, lost)
