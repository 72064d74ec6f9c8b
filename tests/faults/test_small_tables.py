"""Small tables are sealed in their job's row, and a free worker gets a job by its acceptance."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from app.errors import Gone, Unavailable
from app.jobs.lifecycle import _FILE_THREADS
from app.jobs.maintenance.loop import MaintenanceLoop
from app.jobs.stores import Stores
from app.store.sql.models import Job
from providers.tables.digest import table_digest
from tests.faults import doings
from tests.faults.conftest import Running, embedded, in_folder, new_job, new_measures, people
from tests.faults.replicas import until
from tests.faults.running import PATIENCE

pytestmark = pytest.mark.faults

Start = Callable[..., Running]
LARGE = 20_000
SMALL = 100_000
"""Bytes of a table that is in the row of its job, in a bucket too."""
SEED = bytes(range(32))


def stored(service: Running, job: Job) -> Any:
    """The columns of the row that hold or name tables."""
    columns = (Job.source_blob, Job.destination_blob, Job.sealed_source, Job.sealed_destination)
    with service.jobs._stores.database.read() as session:
        return session.execute(sa.select(*columns).where(Job.id == job.id)).one()


def blobs(service: Running) -> set[str]:
    return service.jobs._stores.blobs.names()


@in_folder
def test_a_small_job_leaves_no_file_and_keeps_its_destination_sealed(service: Running) -> None:
    before = blobs(service)
    ended = service.run(people(), seed=SEED)
    source_blob, destination_blob, source, destination = stored(service, ended)
    assert (ended.state, source_blob, destination_blob, source) == ("succeeded", None, None, None)
    assert b"Person-000" not in destination
    assert table_digest(service.rows(ended)) == ended.destination_digest
    assert blobs(service) == before


@embedded
def test_rows_are_the_same_from_a_row_and_from_a_file(start: Start) -> None:
    in_row, in_file = start("row"), start("file", small_table_bytes=0)
    tables = [one.rows(one.run(people(), seed=SEED)) for one in (in_row, in_file)]
    assert tables[0].equals(tables[1])
    assert not blobs(in_row)
    assert len(blobs(in_file)) == 1


@embedded
def test_tables_that_do_not_open_hold_no_other_call(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that does not respond: reads of rows wait, further ones are refused, and other calls go on."""
    service = start("hung", small_table_bytes=0)
    ended = service.run(people(), seed=SEED)
    expected = service.rows(ended)
    hung, responds = threading.Semaphore(0), threading.Event()
    open_table = Stores.open_table

    def hanging(*arguments: Any) -> Any:
        hung.release()
        assert responds.wait(PATIENCE)
        return open_table(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Stores, "open_table", hanging)
        try:
            reads = [service.loop.start(service.jobs.destination(ended.id)) for _ in range(_FILE_THREADS)]
            assert all(hung.acquire(timeout=PATIENCE / 9) for _ in reads)
            assert service.loop.do(service.jobs.manifest(ended.id), PATIENCE / 3)
            patch.setattr("app.file_threads.HANGING_SECONDS", -1.0)
            with pytest.raises(Unavailable, match="does not respond"):
                service.rows(ended)
        finally:
            responds.set()
    assert all(read.result(PATIENCE).equals(expected) for read in reads)


def test_a_table_over_the_limit_is_a_file(service: Running) -> None:
    before = blobs(service)
    ended = service.run(people(LARGE))
    source_blob, destination_blob, source, destination = stored(service, ended)
    assert (source_blob, source, destination) == (None, None, None)
    assert blobs(service) - before == {destination_blob}


@in_folder
def test_a_retained_small_source_is_there_for_a_rerun_and_for_the_rerun_of_that(service: Running) -> None:
    first = service.run(people(), seed=SEED, retain_source=True)
    assert stored(service, first)[2] is not None
    second = service.end(service.loop.do(service.jobs.rerun(first.id)))
    assert (second.state, second.reproduced) == ("succeeded", True)


def test_both_small_tables_of_a_measures_job_are_let_go_at_its_end(service: Running) -> None:
    ended = service.end(service.accept(new_measures(people(), people())))
    assert ended.state == "succeeded"
    assert stored(service, ended) == (None, None, None, None)


@in_folder
def test_a_small_source_that_was_touched_fails_its_job_alone(start: Start) -> None:
    one = start(workers=1)
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)  # now no worker is free, and the other job's table stays in its row
    touched = one.submit(people())
    sealed = bytearray(stored(one, touched)[2])
    sealed[30] ^= 1
    with one.jobs._stores.database.write() as session:
        session.execute(sa.update(Job).where(Job.id == touched.id).values(sealed_source=bytes(sealed)))
    one.open_gate(held)
    failed = one.end(touched)
    assert failed.error is not None
    assert (failed.state, failed.error["code"]) == ("failed", "internal_error")
    assert one.end(held).state == "succeeded"


@in_folder
def test_a_released_small_destination_is_gone(start: Start) -> None:
    one = start(result_retention=0.001)
    ended = one.run(people())
    one.loop.do(one.jobs.purge())
    assert stored(one, ended) == (None, None, None, None)
    with pytest.raises(Gone):
        one.rows(ended)


def test_a_job_that_finds_a_free_worker_takes_two_transactions(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its acceptance is its claim, and its end. Where a job waits, a new one queues behind it."""
    monkeypatch.setattr(MaintenanceLoop, "start", lambda self: None)  # its first purge commits, too
    one = start(workers=1, lease_seconds=60.0)
    one.run(people())
    commits: list[sa.Connection] = []
    with listening(one, commits.append):
        ended = one.run(people())
    assert (ended.state, ended.attempt, len(commits)) == ("succeeded", 1, 2)
    assert ended.started_at == ended.created_at
    held = one.submit(people(), seed=doings.HELD)
    assert held.state == "running"
    waiting = [one.submit(people()) for _ in range(2)]
    assert [job.state for job in waiting] == ["queued", "queued"]
    one.wait_until_held(held)
    one.open_gate(held)
    ends = [one.end(job) for job in (held, *waiting)]
    assert [job.state for job in ends] == ["succeeded"] * 3
    assert ends[1].started_at is not None
    assert ends[2].started_at is not None
    assert ends[1].started_at < ends[2].started_at


def test_a_worker_begins_while_the_acceptance_is_being_committed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit waits here until the worker is at its gate; nobody else sees the job before."""
    monkeypatch.setattr(MaintenanceLoop, "start", lambda self: None)  # its first purge commits, too
    one = start(workers=1, lease_seconds=60.0, small_table_bytes=SMALL)
    before = one.run(people())
    begun: list[bool] = []

    def wait_for_worker(_: sa.Connection) -> None:
        if not begun:
            until("the worker is at its gate", lambda: any(one.settings.home.glob("gate-*")))
            begun.append(newest(one) == [before.id])

    with listening(one, wait_for_worker):
        held = one.submit(people(), seed=doings.HELD)
    assert begun == [True]
    assert held.state == "running"
    one.open_gate(held)
    assert one.end(held).state == "succeeded"


def test_a_job_is_returned_as_it_was_accepted(service: Running) -> None:
    """Otherwise a request that does not wait would be answered as one whose job has ended, now and then."""
    service.run(people())  # the worker is up
    job = service.submit(people())
    assert service.end(job).state == "succeeded"
    assert (job.state, job.finished_at, job.destination_digest) == ("running", None, None)


@pytest.mark.parametrize("seed", [SEED, doings.HELD])
def test_a_job_whose_acceptance_is_not_committed_leaves_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch, seed: bytes
) -> None:
    """Its worker has begun, and perhaps ended; it is free for the next job, and another one did not start."""
    monkeypatch.setattr(MaintenanceLoop, "start", lambda self: None)  # its first purge commits, too
    one = start(workers=1, lease_seconds=60.0, small_table_bytes=SMALL)
    before = one.run(people())
    files = everything(one)
    failed: list[sa.Connection] = []

    def fail(connection: sa.Connection) -> None:
        if not failed:
            failed.append(connection)
            raise sa.exc.OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    with listening(one, fail):
        with pytest.raises(Unavailable):
            one.submit(people(LARGE // 10), seed=seed)
        after = one.run(people(), seed=SEED)
    assert (after.state, after.attempt) == ("succeeded", 1)
    assert newest(one) == [after.id, before.id]
    until("its files are deleted", lambda: everything(one) == files)


@contextmanager
def listening(service: Running, function: Callable[[sa.Connection], None]) -> Iterator[None]:
    """Call a function before each commit of the service. The end of a snapshot is none."""
    engine = service.jobs._stores.database.engine

    def committing(connection: sa.Connection) -> None:
        if not connection.get_execution_options().get("postgresql_readonly"):
            function(connection)

    event.listen(engine, "commit", committing)
    try:
        yield
    finally:
        event.remove(engine, "commit", committing)


def everything(service: Running) -> set[str]:
    """Names of all tables and progress files."""
    return blobs(service) | {path.name for path in (service.settings.home / "progress").iterdir()}


@embedded
def test_a_job_that_comes_while_all_workers_are_busy_is_claimed_by_its_acceptance(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits a moment for a worker. If more jobs wait than run, all are queued as they came."""
    monkeypatch.setattr("app.jobs.dispatcher._ARRIVAL_SECONDS", PATIENCE)
    one = start(workers=1)
    before = one.run(people())
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    first = arrive(one, seed=doings.HELD)
    assert newest(one) == [held.id, before.id]  # nothing is stored before the worker is free
    one.open_gate(held)
    claimed = first.result(PATIENCE)
    assert (claimed.state, claimed.attempt, claimed.started_at) == ("running", 1, claimed.created_at)
    one.wait_until_held(claimed)
    waiting = [arrive(one), one.loop.start(one.jobs.submit(new_job(people())))]
    queued = [each.result(PATIENCE) for each in waiting]
    assert [job.state for job in queued] == ["queued", "queued"]
    assert newest(one) == [queued[1].id, queued[0].id, claimed.id, held.id, before.id]
    assert queued[0].ranked_at < queued[1].ranked_at
    one.open_gate(claimed)
    assert [one.end(job).state for job in (held, claimed, *queued)] == ["succeeded"] * 4


@embedded
@pytest.mark.parametrize("stopped", [False, True])
def test_a_job_that_waits_in_vain_for_a_worker_is_queued(
    start: Start, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """At the end of its time, or when the service stops."""
    monkeypatch.setattr("app.jobs.dispatcher._ARRIVAL_SECONDS", PATIENCE if stopped else 0.5)
    one = start(workers=1)
    one.run(people())
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    waiting = arrive(one)
    if stopped:
        one.loop.do(on_the_loop(one.jobs._dispatcher.stop_claiming))
    queued = waiting.result(PATIENCE)
    assert (queued.state, queued.claimed_by) == ("queued", None)
    one.open_gate(held)
    assert one.end(held).state == "succeeded"
    if not stopped:
        assert one.end(queued).state == "succeeded"


def arrive(service: Running, **values: Any) -> Future[Job]:
    """Submit a job, and return when it waits for a worker."""

    async def submitted() -> asyncio.Task[Job]:
        submitting = asyncio.ensure_future(service.jobs.submit(new_job(people(), **values)))
        async with asyncio.timeout(PATIENCE):
            while not service.jobs._dispatcher._arrivals:
                await asyncio.sleep(0)  # it may wait for a short time only
        return submitting

    async def result(submitting: asyncio.Task[Job]) -> Job:
        return await submitting

    return service.loop.start(result(service.loop.do(submitted())))


async def on_the_loop(function: Callable[[], None]) -> None:
    function()


def newest(service: Running) -> list[str]:
    """Ids of all stored jobs, newest first."""
    with service.jobs._stores.database.read() as session:
        return list(session.scalars(sa.select(Job.id).order_by(Job.id.desc())))


def test_the_row_of_an_ended_job_is_what_the_database_holds(service: Running) -> None:
    """The end is handed to who waits without reading it again."""
    submitted = service.submit(people(), service="CDSWAP", parameters={"control_field": "city"})
    ended = service.end(submitted)
    read = service.loop.do(service.jobs._get_with_table(ended.id))
    names = [column.key for column in sa.inspect(Job).columns if column.key in read.__dict__]
    assert len(names) > 40
    assert {name: getattr(ended, name) for name in names} == {name: getattr(read, name) for name in names}


@embedded
def test_a_worker_that_a_queued_job_is_about_to_get_is_not_free_for_a_new_job(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is claimed without a worker could run in another replica instead."""
    one = start(workers=1)
    dispatcher = one.jobs._dispatcher
    claim, claimed, go_on = dispatcher._claim, threading.Event(), threading.Event()

    def claim_slowly(until_turn: datetime | None) -> Any:
        found = claim(until_turn)
        if found is not None:
            claimed.set()  # and wait, without holding up the event loop
            assert one.jobs._stores.database.aside(dispatcher._threads.background, go_on.wait, PATIENCE)
        return found

    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    queued = one.submit(people())
    monkeypatch.setattr(dispatcher, "_claim", claim_slowly)
    one.open_gate(held)
    assert claimed.wait(PATIENCE)
    newest = one.submit(people())
    try:
        assert (one.get(queued).state, newest.state) == ("running", "queued")
    finally:
        go_on.set()
    assert [one.end(job).state for job in (held, queued, newest)] == ["succeeded"] * 3
