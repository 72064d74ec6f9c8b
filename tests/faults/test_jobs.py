"""Jobs whose worker or whose service is killed, starved or stopped, with real workers."""

import contextlib
import errno
import logging
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.engine.oom_kills import oom_kills, open_statistics
from app.engine.progress_file import has_outlived_service, make_progress_file
from app.errors import StateConflict, Unavailable
from app.jobs.maintenance.takeover import MOST_CRASHES
from app.jobs.releases.recording import question_of
from app.jobs.stores import HomeInUse
from app.store.blobs.bucket_blobs import BucketBlobs
from app.store.sql.db import Database
from app.store.sql.models import Job
from providers.tables.digest import table_digest
from tests.conftest import BUCKET, DATABASES
from tests.faults import doings
from tests.faults.conftest import (
    Running,
    embedded,
    embedded_or_bucket,
    files_below,
    in_bucket,
    in_folder,
    new_job,
    new_measures,
    people,
)
from tests.faults.replicas import until
from tests.faults.running import PATIENCE, parent_of, wait_until_gone
from tests.preloaded.processes import start_command

pytestmark = pytest.mark.faults

Start = Callable[..., Running]


@in_bucket
def test_a_killed_worker_fails_its_own_job_alone(service: Running) -> None:
    held, other = service.submit(people(), seed=doings.HELD), service.submit(people(), seed=doings.HELD)
    pids = [service.wait_until_held(job).pid for job in (held, other)]
    os.kill(pids[0], signal.SIGKILL)
    failed = service.end(held)
    assert (failed.state, failed.outcome) == ("failed", "FAILURE")
    assert failed.error is not None
    assert (failed.error["code"], failed.error["status"]) == ("worker_died", 503)
    assert "SIGKILL" in failed.error["detail"]
    service.open_gate(other)
    assert service.end(other).state == "succeeded"
    assert service.run(people()).state == "succeeded"


@embedded
def test_jobs_of_a_killed_fork_server_run_again(service: Running) -> None:
    """All its workers end with it, so that none of their jobs can be the reason."""
    jobs = [service.submit(people(), seed=doings.HELD) for _ in range(2)]
    workers = [service.wait_until_held(job).pid for job in jobs]
    (server,) = {parent_of(worker) for worker in workers}
    os.kill(server, signal.SIGKILL)
    for worker in workers:
        wait_until_gone(worker)
    for job in jobs:
        while service.wait_until_held(job).pid in workers:
            time.sleep(0.05)
        service.open_gate(job)
        ended = service.end(job)
        assert (ended.state, ended.attempt, ended.crashes) == ("succeeded", 2, 0)


def test_a_job_out_of_memory_says_so(service: Running) -> None:
    failed = service.run(people(), seed=doings.GREEDY)
    assert failed.error is not None
    assert (failed.state, failed.error["code"], failed.error["status"]) == ("failed", "memory_limit", 413)
    assert service.run(people()).state == "succeeded"


@embedded
def test_a_job_over_its_time_says_so(start: Start) -> None:
    impatient = start(job_time_limit=1.0)
    failed = impatient.run(people(), seed=doings.HELD)
    assert failed.error is not None
    assert (failed.state, failed.error["code"], failed.error["status"]) == ("failed", "time_limit", 503)


def test_an_unforeseen_failure_shows_no_value_and_no_place(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    failed = service.run(people(), seed=doings.BROKEN)
    assert failed.error is not None
    assert failed.error["code"] == "internal_error"
    shown = str(failed.error)
    assert "Ada" not in shown
    assert ".py" not in shown
    (logged,) = [record.getMessage() for record in caplog.records if failed.id in record.getMessage()]
    assert "swap_as_instructed" in logged
    assert "Ada" not in logged


@in_bucket
def test_cancel_stops_the_worker_and_the_job(service: Running) -> None:
    job = service.submit(people(), seed=doings.HELD)
    pid = service.wait_until_held(job).pid
    cancelled = service.loop.do(service.jobs.cancel(job.id))
    assert (cancelled.state, cancelled.outcome, cancelled.error) == ("cancelled", "FAILURE", None)
    wait_until_gone(pid, 0)
    assert cancelled.source_blob is None
    assert service.loop.do(service.jobs.cancel(job.id)).state == "cancelled"
    with pytest.raises(StateConflict, match="job is cancelled"):
        service.rows(job)


def test_a_cancel_at_any_moment_ends_the_job_one_way(service: Running) -> None:
    async def submit_and_cancel(turn: int) -> str:
        job = await service.jobs.submit(new_job(people()))
        await service.jobs.wait(job.id, 0.002 * (turn % 6))
        with contextlib.suppress(StateConflict):
            await service.jobs.cancel(job.id)
        return (await service.jobs.wait(job.id, PATIENCE)).state

    states = [service.loop.do(submit_and_cancel(turn)) for turn in range(12)]
    assert set(states) <= {"cancelled", "succeeded"}
    assert service.run(people()).state == "succeeded"


def test_a_queued_job_is_cancelled_without_having_run(start: Start) -> None:
    one = start(workers=1)
    held, queued = one.submit(people(), seed=doings.HELD), one.submit(people())
    one.wait_until_held(held)
    assert one.loop.do(one.jobs.cancel(queued.id)).started_at is None
    one.open_gate(held)
    assert one.end(held).state == "succeeded"
    assert one.get(queued).state == "cancelled"
    with pytest.raises(StateConflict, match="succeeded already"):
        one.loop.do(one.jobs.cancel(held.id))


@in_bucket
def test_a_service_that_is_shut_down_goes_on_where_it_was(start: Start) -> None:
    before = start(workers=1)
    running, queued = before.submit(people(), seed=doings.HELD), before.submit(people())
    pid = before.wait_until_held(running).pid
    before.close()
    wait_until_gone(pid)

    after = start(workers=1)
    after.wait_until_held(running)
    after.open_gate(running)
    ended = [after.end(job) for job in (running, queued)]
    assert [job.state for job in ended] == ["succeeded", "succeeded"]
    assert (ended[0].attempt, ended[0].crashes) == (2, 0)


@pytest.mark.parametrize(
    ("database_kind", "kind", "dies_first"),
    [
        *((database, *case) for database in DATABASES for case in (
            ("DSWAP", False), ("DSWAP", True), ("RSWAP", False), ("frontier", False),
        )),
        (BUCKET, "DSWAP", False),
    ],
    indirect=["database_kind"],
)  # fmt: skip
def test_a_service_that_is_killed_loses_no_job(
    start: Start, tmp_path: Path, database: dict[str, str], kind: str, dies_first: bool
) -> None:
    """Neither the one that runs nor the one that waits, whatever kind of job it is.

    The death counts as the job's crash unless its worker notes that it outlives the service.
    """
    home = tmp_path / "home"
    environment = os.environ | {f"ROWVEIL_{name.upper()}": value for name, value in database.items()}
    process = start_command(["tests.faults.killed_service", str(home), kind], environment)
    assert process.stdout is not None
    try:
        running, queued, pid = process.stdout.readline().split()
        if dies_first:  # as if a container is killed: nothing is left that could note anything
            os.kill(int(pid), signal.SIGSTOP)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    if dies_first:
        os.kill(int(pid), signal.SIGKILL)
    wait_until_gone(int(pid))  # a worker leaves with its service

    after = start(workers=2)
    jobs = [after.loop.do(after.jobs.get(job_id)) for job_id in (running, queued)]
    for job in jobs:
        after.wait_until_held(job)
        after.open_gate(job)
    ended = [after.end(job) for job in jobs]
    open_statistics()
    counted = 1 if dies_first or oom_kills() is None else 0
    assert [(job.state, job.crashes) for job in ended] == [("succeeded", counted), ("succeeded", 0)]
    if kind != "frontier":
        assert ended[0].destination_digest == ended[1].destination_digest
    else:
        compared, judged = (after.loop.do(after.jobs.report(job.id)) for job in ended)
        assert len(compared["frontier"]["points"]) == 3
        assert judged["measures"]["marginals"]["value"]["identical"] == 1


@pytest.mark.parametrize(("attempt", "noted", "state"), [
    (1, False, "failed"), (1, True, "running"), (10, True, "failed"),
])  # fmt: skip
def test_a_job_that_the_service_does_not_survive_is_given_up(
    start: Start, attempt: int, noted: bool, state: str
) -> None:
    """Unless its worker has outlived the service, and there were few attempts."""
    before = start(workers=1)
    job = before.submit(people(), seed=doings.HELD)
    before.wait_until_held(job)
    before.close()
    database = Database(before.settings)
    with database.write() as session:
        row = session.get_one(Job, job.id)
        row.state, row.claimed_by, row.crashes = "running", "a dead service", MOST_CRASHES - 1
        row.attempt = attempt
    database.close()
    path = before.settings.home / "progress" / f"{job.id}.{attempt}"
    make_progress_file(path)
    if noted:
        with path.open("r+b") as file:
            file.seek(120)
            file.write(b"\x01")
    assert has_outlived_service(path) is noted

    after = start(workers=1)
    if state == "running":
        after.wait_until_held(job)
        after.open_gate(job)
        again = after.end(job)
        assert (again.state, again.crashes) == ("succeeded", MOST_CRASHES - 1)
        return
    failed = after.get(job)
    assert (failed.state, failed.crashes) == ("failed", MOST_CRASHES)
    assert failed.error is not None
    assert failed.error["code"] == "attempts_exhausted"
    assert failed.source_blob is None


@embedded
def test_a_home_has_one_service(service: Running) -> None:
    with pytest.raises(HomeInUse, match="another service uses"):
        Running(service.settings)


@in_folder
def test_a_source_that_was_touched_fails_its_job_alone(start: Start) -> None:
    one = start(workers=1, small_table_bytes=0)
    held, touched = one.submit(people(), seed=doings.HELD), one.submit(people())
    one.wait_until_held(held)
    blob = one.settings.home / "blobs" / str(touched.source_blob)[:2] / str(touched.source_blob)
    sealed = bytearray(blob.read_bytes())
    sealed[-30] ^= 1
    blob.write_bytes(sealed)
    one.open_gate(held)
    failed = one.end(touched)
    assert failed.error is not None
    assert (failed.state, failed.error["code"]) == ("failed", "internal_error")
    assert one.end(held).state == "succeeded"


@in_bucket
def test_a_job_whose_start_meets_a_lost_database_is_started_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim has been committed when the database is lost, so the job is requeued by two takeovers."""
    lost: list[bool] = []

    def question_once_lost(*arguments: Any) -> Any:
        job = arguments[-1]
        if (job.attempt or 0) < 2:  # before its claim a job has none
            lost.append(True)
            raise Unavailable("the database is temporarily not available; try again")
        return question_of(*arguments)

    monkeypatch.setattr("app.jobs.task_builder.question_of", question_once_lost)
    one = start(workers=1, lease_seconds=1.0)
    ended = one.run(people())
    assert lost
    assert (ended.state, ended.attempt, ended.crashes) == ("succeeded", 2, 0)


def queued_behind_a_held_one(one: Running) -> tuple[Job, list[Job]]:
    """A running job, and jobs with files that wait for its worker."""
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    return held, [one.submit(people()) for _ in range(3)]


@in_folder
def test_queued_jobs_wait_for_a_shared_folder_that_is_not_mounted(start: Start, tmp_path: Path) -> None:
    """Only the first of them is claimed before."""
    one = start(workers=1, small_table_bytes=0)
    held, queued = queued_behind_a_held_one(one)
    names = ("blobs", "deployment")
    for name in names:
        (one.settings.home / name).rename(tmp_path / name)
    one.loop.do(one.jobs.cancel(held.id))
    until("a job was claimed", lambda: bool(one.jobs._dispatcher._storage.failed))
    time.sleep(3)  # the storage is checked again meanwhile
    assert [one.get(job).state for job in queued] == ["queued"] * 3
    for name in names:
        (tmp_path / name).rename(one.settings.home / name)
    ended = [one.end(job) for job in queued]
    assert [(job.state, job.attempt, job.crashes) for job in ended] == [
        ("succeeded", 2, 0),
        ("succeeded", 1, 0),
        ("succeeded", 1, 0),
    ]


@embedded
def test_queued_jobs_wait_for_a_disk_that_is_full(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one = start(workers=1)
    held, queued = queued_behind_a_held_one(one)

    def fail(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        for module in ("dispatcher", "stores"):
            patch.setattr(f"app.jobs.{module}.make_progress_file", fail)
        one.open_gate(held)
        one.end(held)
        time.sleep(3)
        assert [one.get(job).state for job in queued] == ["queued"] * 3
    assert [one.end(job).state for job in queued] == ["succeeded"] * 3


@embedded
@pytest.mark.parametrize(("error", "code"), [(errno.ENOSPC, "storage_full"), (errno.EIO, "internal_error")])
def test_a_file_that_never_opens_fails_its_job_in_the_end(
    start: Start, monkeypatch: pytest.MonkeyPatch, error: int, code: str
) -> None:
    """The storage works otherwise, and the other jobs run after it."""
    monkeypatch.setattr("app.jobs.maintenance.storage_gate._PAUSE_SECONDS", 0.05)
    one = start(workers=1)
    held, queued = queued_behind_a_held_one(one)

    def make(path: Path) -> None:
        if path.name.startswith(queued[0].id):
            raise OSError(error, os.strerror(error))
        make_progress_file(path)

    monkeypatch.setattr("app.jobs.dispatcher.make_progress_file", make)
    one.open_gate(held)
    failed, *others = (one.end(job) for job in queued)
    assert failed.error is not None
    assert (failed.state, failed.attempt, failed.error["code"]) == ("failed", 10, code)
    assert [job.state for job in others] == ["succeeded"] * 2


@embedded
def test_a_job_that_is_no_longer_tracked_runs_again(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the service ends its tracking: the job returns to the queue, or is cancelled."""

    async def fail(*_: Any) -> None:
        raise RuntimeError("a defect")

    def untracked() -> Job:
        with monkeypatch.context() as patch:
            patch.setattr(service.jobs._dispatcher, "_track", fail)
            job = service.submit(people())
            until("the job has been started", lambda: service.get(job).state == "running")
        return job

    again = untracked()
    ended = service.end(again)
    assert (ended.state, ended.attempt) == ("succeeded", 2)
    assert service.loop.do(service.jobs.cancel(untracked().id)).state == "cancelled"


@embedded
def test_the_bytes_do_not_depend_on_workers_or_threads(start: Start) -> None:
    """Enough rows for the parallel kernels; each job at once with the others."""
    table = people(30_000)
    results: list[list[pa.Table]] = []
    for workers, threads in ((1, 2), (2, 1), (5, 1)):
        several = start(f"home{workers}", workers=workers, worker_threads=threads)
        jobs = [
            several.submit(
                table,
                service=name,
                seed=bytes([seed]) * 32,
                parameters=parameters | {"swap_fields": ["income", "name"]},
            )
            for seed in (17, 18)
            for name, parameters in (
                ("DSWAP", {"rate": 0.4}),
                ("CDSWAP", {"control_field": "city"}),
            )
        ]
        results.append([several.rows(several.end(job)) for job in jobs])
        several.close()
    for tables in results[1:]:
        for one, other in zip(results[0], tables, strict=True):
            assert one.equals(other)
            assert table_digest(one) == table_digest(other)
    assert len({table_digest(one) for one in results[0]}) == 4


@embedded_or_bucket
@pytest.mark.parametrize("small_table_bytes", [0, 2**17], ids=["files", "rows"])
def test_nothing_at_rest_shows_a_seed_or_a_value(
    start: Start, caplog: pytest.LogCaptureFixture, small_table_bytes: int
) -> None:
    caplog.set_level(logging.DEBUG)
    one = start(workers=1, small_table_bytes=small_table_bytes)
    seed = bytes(range(101, 133))
    ended = one.run(people(), seed=seed, retain_source=True)
    one.run(people(), seed=doings.BROKEN)
    judged = one.end(
        one.accept(new_measures(people(), people(), seed=seed, options={"measures": {"sample": 50}}))
    )
    assert "City-1" in str(one.loop.do(one.jobs.report(judged.id)))  # reports name groups: they are sealed
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    income = 987_654_321_000 + 500
    secrets = {
        "seed": seed,
        "seed in hex": seed.hex().encode(),
        "seed as a number": str(int.from_bytes(seed, "big")).encode(),
        "income": income.to_bytes(8, "little"),
        "income as text": str(income).encode(),
        "name": b"Person-0005",
        "category": b"City-1",
    }
    stored = {path.name: path.read_bytes() for path in files_below(one.settings.home)}
    if isinstance(blobs := one.jobs._stores.blobs, BucketBlobs):
        bucket = blobs.bucket
        stored |= {
            each.key.rpartition("/")[2]: bucket.get(each.key) or b"" for each in bucket.objects("blobs")
        }
    names = set(stored)
    assert names >= {"rowveil.db", "rowveil.db-wal"}
    assert (str(ended.source_blob) in names) == (small_table_bytes == 0)
    for what, secret in secrets.items():
        for name, content in stored.items():
            assert secret not in content, f"{what} in {name}"
        assert secret not in caplog.text.encode(errors="replace"), f"{what} in the log"
    assert all(secret not in repr(ended.__dict__).encode() for secret in secrets.values())
    keys = one.settings.home / "keys"
    assert {path.stat().st_mode & 0o777 for path in keys.iterdir()} == {0o600}
    one.open_gate(held)
    one.end(held)


@embedded
def test_a_purged_job_leaves_audit_lines_a_ledger_entry_and_no_file(start: Start) -> None:
    one = start(workers=1)
    ended = one.run(people(), retain_source=True)
    one.loop.do(one.jobs.delete(ended.id))
    names = {path.name for path in files_below(one.settings.home)}
    of_the_service = {"lock", ".rowveil.db.lock", "identity", "deployment", "rows-bound"}
    assert names <= {"rowveil.db", "rowveil.db-wal", "rowveil.db-shm", *of_the_service}
    one.close()
    kept = (one.settings.home / "rowveil.db").read_bytes()
    assert ended.seed_fingerprint.encode() not in kept
    tables = {}
    with sqlite3.connect(one.settings.home / "rowveil.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = database.execute(f"SELECT * FROM {name}").fetchall()
            if naming := [row for row in rows if ended.id in row]:
                tables[name] = len(naming)
    database.close()
    # It was submitted, released and deleted.
    assert tables == {"audit_lines": 3, "ledger": 1}
