"""Jobs with real workers and without faults."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, get_ident
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from app.callers import THE_SERVICE
from app.engine.engine import Progress
from app.errors import (
    AppError,
    Conflict,
    Gone,
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
    StateConflict,
)
from app.jobs.watchers import LOOK_SECONDS
from app.store.crypto.sealing import signature_holds
from app.store.sql import jobs
from app.store.sql.db import Database
from app.store.sql.models import AuditLine, Job
from providers import PROVIDERS
from providers.errors import ParameterError
from providers.progress import no_progress
from providers.selection.candidates import CHOICE_REVISION
from providers.tables.digest import table_digest
from tests.faults import doings
from tests.faults.conftest import Running, blobs_of, embedded, in_folder, new_job, people
from tests.faults.older_jobs import as_of_revision_2
from tests.faults.replicas import until
from tests.faults.running import PATIENCE
from tests.faults.uploads import upload

pytestmark = pytest.mark.faults

SEED = bytes(range(32))


def test_a_job_gives_what_its_provider_gives(service: Running) -> None:
    table = people()
    job = service.run(table, seed=SEED, inline=True)
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params(swap_fields=("income",)), table.schema)
    expected = provider.swap(table, params, provider.stream(SEED), no_progress)
    assert service.rows(job).equals(expected.table)
    assert (job.state, job.outcome, job.error, job.inline) == ("succeeded", "SUCCESS", None, True)
    assert job.destination_digest == table_digest(expected.table)
    assert (job.source_digest, job.row_count) == (table_digest(table), 1000)
    assert job.destination_fields == job.source_fields
    assert job.source_fields[1] == {"name": "income", "type": "int64"}
    assert job.parameters["swap_fields"] == ["income"]
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.started_at <= job.finished_at
    assert service.loop.do(service.jobs.progress(job)).fraction == 1.0
    assert job.source_blob is None


def test_an_accepted_job_reports_all_that_is_known(service: Running) -> None:
    until("a worker is free", lambda: service.jobs._dispatcher._free_workers() > 0)
    job = service.submit(people(), seed=doings.HELD)
    accepted = {
        name: getattr(job, name) for name in {*Job.__mapper__.columns.keys()} - {"sealed_report", "manifest"}
    }
    found = accepted["state"], accepted["outcome"], accepted["attempt"]
    assert found == ("running", None, 1)
    assert accepted["started_at"] == accepted["created_at"]
    service.open_gate(job)
    service.end(job)


def test_what_was_suppressed_is_information(service: Running) -> None:
    alone = pa.table({"income": [1, 2, 3], "city": ["a", "a", "b"]})
    job = service.run(alone, service="CDSWAP", parameters={"control_field": "city"})
    assert job.outcome == "SUCCESS_WITH_INFO"
    assert job.event_counts is not None
    assert sum(job.event_counts.values()) >= 1
    assert job.events
    assert job.events[0]["row"] == 2
    assert service.rows(job).column("income").to_pylist()[2] is None


def test_a_providers_refusal_is_the_jobs_error(service: Running) -> None:
    alone = pa.table({"income": [1, 2, 3], "city": ["a", "a", "b"]})
    parameters = {"control_field": "city", "suppression": {"policy": "fail"}}
    job = service.run(alone, service="CDSWAP", parameters=parameters)
    assert job.error is not None
    assert (job.state, job.error["code"], job.error["status"]) == ("failed", "unswappable_rows", 422)


def test_the_report_is_there_when_it_was_asked_for(service: Running) -> None:
    report = service.loop.do(service.jobs.report(service.run(people()).id))
    assert set(report) == {"headline", "summary", "provider", "measures", "limits"}
    assert report["summary"]["rows"] == 1000
    assert report["measures"]["changed_share"]["value"]["income"] == pytest.approx(1.0)
    with pytest.raises(NotFound, match="report 'none'"):
        service.loop.do(service.jobs.report(service.run(people(), report="none").id))


def test_the_manifest_holds_all_but_the_seed_and_is_signed(service: Running) -> None:
    job = service.run(people(), seed=SEED)
    signed = service.loop.do(service.jobs.manifest(job.id))
    manifest = signed["manifest"]
    assert signature_holds(manifest, signed["signature"])
    assert not signature_holds(manifest | {"revision": 99}, signed["signature"])
    assert manifest["source"] == {
        "digest": job.source_digest,
        "fields": job.source_fields,
        "rows": 1000,
    }
    assert manifest["destination"]["digest"] == job.destination_digest
    assert manifest["parameters"] == job.parameters
    assert manifest["seed_fingerprint"] == job.seed_fingerprint
    libraries = {"rowveil", "python", "numpy", "numba", "pyarrow", "scikit-learn", "scipy"}
    assert set(manifest["libraries"]) == libraries
    assert SEED.hex() not in str(signed)


def test_a_seed_is_drawn_where_none_is_given_and_read_under_audit(service: Running) -> None:
    jobs = [service.run(people()) for _ in range(2)]
    seeds = [service.loop.do(service.jobs.seed(job.id, "to test it"))[1] for job in jobs]
    assert len(set(seeds)) == 2
    assert all(len(seed) == 32 and job.seed_bits == 128 for seed, job in zip(seeds, jobs, strict=True))
    again = service.run(people(), seed=int(seeds[0], 16).to_bytes(32, "big"))
    assert again.destination_digest == jobs[0].destination_digest
    assert again.seed_fingerprint == jobs[0].seed_fingerprint != jobs[1].seed_fingerprint
    database = Database(service.settings)
    with database.read() as session:
        lines = session.scalars(sa.select(AuditLine.subject).where(AuditLine.action == "seed.read")).all()
    database.close()
    assert {job.id for job in jobs} <= set(lines)


def test_the_same_idempotency_key_gives_the_same_job(service: Running) -> None:
    call = {"idempotency_key": "key-1", "request_fingerprint": "aaaa"}
    first, second = service.submit(people(), **call), service.submit(people(), **call)
    assert first.id == second.id
    with pytest.raises(IdempotencyKeyReused):
        service.submit(people(), idempotency_key="key-1", request_fingerprint="bbbb")


def test_calls_at_once_with_one_idempotency_key_make_one_job(service: Running) -> None:
    call = {"idempotency_key": "key-2", "request_fingerprint": "aaaa"}
    started = [service.loop.start(service.jobs.submit(new_job(people(), **call))) for _ in range(8)]
    ids = {future.result(PATIENCE).id for future in started}
    assert len(ids) == 1


def test_wait_returns_when_its_time_is_over(service: Running) -> None:
    held = service.submit(people(), seed=doings.HELD)
    service.wait_until_held(held)
    assert service.loop.do(service.jobs.wait(held.id, 0.0)).state == "running"
    assert service.loop.do(service.jobs.progress(service.get(held))).stage == doings.STAGE_HELD
    service.open_gate(held)
    assert service.end(held).state == "succeeded"


def test_updates_go_from_state_to_state_and_end(service: Running) -> None:
    held = service.submit(people(), seed=doings.HELD)

    async def watch() -> list[str]:
        states: list[str] = []
        async for job, progress in service.jobs.updates(held.id):
            states += [job.state] if job.state not in states else []
            assert 0.0 <= progress.fraction <= 1.0
        return states

    watching = service.loop.start(watch())
    service.wait_until_held(held)
    service.open_gate(held)
    states = watching.result(PATIENCE)
    assert states[-2:] == ["running", "succeeded"]
    assert service.loop.do(watch()) == ["succeeded"]


def test_progress_does_not_fall_back_while_an_end_is_reported(service: Running) -> None:
    """The progress file is deleted as soon as the end is in the database, before watchers are notified."""
    held = service.submit(people(), seed=doings.HELD)
    seen: list[Progress] = []
    at_gate = Event()

    async def watch() -> None:
        async for _, progress in service.jobs.updates(held.id):
            seen.append(progress)
            if progress.stage == doings.STAGE_HELD:
                at_gate.set()

    watching = service.loop.start(watch())
    assert at_gate.wait(PATIENCE)
    path = service.jobs._stores.progress_path(service.get(held))
    gone = path.rename(path.with_suffix(".gone"))
    sleep(4 * LOOK_SECONDS)
    assert seen[-1].stage == doings.STAGE_HELD
    gone.rename(path)
    service.open_gate(held)
    watching.result(PATIENCE)
    assert seen[-1].fraction == 1.0


def test_a_job_that_ends_while_it_is_looked_at_has_ended(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is found running, but its progress file is gone: its row is read again."""
    held = service.submit(people(), seed=doings.HELD)
    service.wait_until_held(held)
    running = service.get(held)
    service.open_gate(held)
    found = [service.end(held), running]

    async def get(job_id: str) -> Job:
        return found.pop()

    monkeypatch.setattr(service.jobs, "get", get)
    job, progress = service.loop.do(service.jobs.look(held.id))
    assert (job.state, progress.fraction) == ("succeeded", 1.0)
    # In a bucket, the progress is deleted at its next sending.
    until("its progress is gone", lambda: service.loop.do(service.jobs.progress(running)) == Progress())


def test_a_progress_file_that_does_not_respond_holds_up_nothing_else(service: Running) -> None:
    """A pipe that nobody writes to blocks a read as a share does that has gone away."""
    held = service.submit(people(), seed=doings.HELD)
    service.wait_until_held(held)
    path = service.jobs._stores.progress_path(service.get(held))
    moved = path.rename(path.with_suffix(".moved"))
    os.mkfifo(path)
    try:
        looking = [service.loop.start(service.jobs.look(held.id)) for _ in range(20)]
        assert service.run(people()).state == "succeeded"
        for look in looking:
            job, progress = look.result(PATIENCE)
            assert (job.state, progress.stage) == ("running", doings.STAGE_HELD)
    finally:
        writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # a waiting read ends when it is closed
        moved.rename(path)
        os.close(writer)
    service.open_gate(held)
    assert service.end(held).state == "succeeded"


@in_folder
def test_a_progress_file_that_cannot_be_deleted_keeps_no_job_from_its_end(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep deletes it."""
    held = service.submit(people(), seed=doings.HELD)
    service.wait_until_held(held)
    path, unlink = service.jobs._stores.progress_path(service.get(held)), Path.unlink

    def refused(file: Path, missing_ok: bool = False) -> None:
        if file == path:
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(file, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        service.open_gate(held)
        assert service.end(held).state == "succeeded"
    assert path.exists()
    assert service.jobs._stores.sweep()
    assert not path.exists()


def test_what_is_not_there_is_not_found(service: Running) -> None:
    jobs = service.jobs
    for call in (jobs.get, jobs.cancel, jobs.delete, jobs.rerun, jobs.destination, jobs.report):
        with pytest.raises(NotFound, match="no job 'nobody'"):
            service.loop.do(call("nobody"))
    with pytest.raises(NotFound, match="no buffer 'nobody'"):
        service.loop.do(jobs.buffers.get("nobody"))
    with pytest.raises(InvalidRequest, match="no buffer 'nobody'") as caught:
        service.submit("nobody")
    assert caught.value.pointer == "/source/buffer"


def test_a_listing_goes_page_by_page_newest_first(start: Callable[..., Running]) -> None:
    one = start(workers=1)
    jobs = [one.submit(people()) for _ in range(5)]
    for job in jobs:
        one.end(job)
    seen, token, pages = [], None, 0
    while pages == 0 or token is not None:
        page, token = one.loop.do(one.jobs.list(None, "DSWAP", 2, token))
        seen += [job.id for job in page]
        pages += 1
    assert (seen, pages) == ([job.id for job in reversed(jobs)], 3)
    assert one.loop.do(one.jobs.list("failed", None, 10)) == ([], None)
    with pytest.raises(InvalidRequest, match="page token"):
        one.loop.do(one.jobs.list(None, None, 2, "!!"))


def test_a_rerun_gives_the_same_bytes(service: Running) -> None:
    first = service.run(people(), retain_source=True)
    retained = service.end(service.loop.do(service.jobs.rerun(first.id)))
    given = service.end(service.loop.do(service.jobs.rerun(first.id, people())))
    for job in (retained, given):
        assert (job.state, job.rerun_of, job.reproduced) == ("succeeded", first.id, True)
        assert job.id != first.id
        assert service.rows(job).equals(service.rows(first))
        assert job.seed_fingerprint == first.seed_fingerprint
    assert first.reproduced is None
    signed = service.loop.do(service.jobs.manifest(given.id))
    assert signed["manifest"]["rerun_of"] == first.id


def test_a_rerun_is_refused_on_other_rows_and_without_any(service: Running) -> None:
    first = service.run(people())
    other = people().slice(1)
    with pytest.raises(Conflict, match=str(first.source_digest)) as caught:
        service.loop.do(service.jobs.rerun(first.id, other))
    assert table_digest(other) in caught.value.message
    with pytest.raises(Conflict, match="was not retained"):
        service.loop.do(service.jobs.rerun(first.id))


def test_a_rerun_waits_for_the_end_and_needs_the_same_revision(service: Running) -> None:
    held = service.submit(people(), seed=doings.HELD)
    with pytest.raises(StateConflict, match="when it has ended"):
        service.loop.do(service.jobs.rerun(held.id, people()))
    service.wait_until_held(held)
    service.open_gate(held)
    service.end(held)
    database = Database(service.settings)
    with database.write() as session:
        session.execute(sa.text("UPDATE jobs SET revision = 0 WHERE id = :id"), {"id": held.id})
    database.close()
    with pytest.raises(StateConflict, match="ran revision 0 of DSWAP"):
        service.loop.do(service.jobs.rerun(held.id, people()))


def test_the_digest_decides_whether_another_revision_reruns_a_job(service: Running) -> None:
    """Nothing of other rows is stored; before, every job of an older revision was refused."""
    first = as_of_revision_2(service, service.run(people(), report="full"))
    again = service.end(service.loop.do(service.jobs.rerun(first.id, people())))
    assert (again.state, again.reproduced, again.revision) == ("succeeded", True, PROVIDERS["DSWAP"].revision)
    assert service.rows(again).equals(service.rows(first))
    stated = {"revision": 2, "destination_digest": first.destination_digest}
    signed = service.loop.do(service.jobs.manifest(again.id))
    assert signed["manifest"]["options"]["first_release"] == stated

    other = table_digest(people().slice(1))
    first = as_of_revision_2(service, first, destination_digest=other)
    refused = service.end(service.loop.do(service.jobs.rerun(first.id, people())))
    assert (refused.state, refused.reproduced, refused.destination_digest) == ("failed", False, None)
    assert refused.error is not None
    assert refused.error["code"] == "revision_gone"
    assert "which ran revision 2 of DSWAP" in refused.error["detail"]


def test_another_revision_reruns_no_job_without_rows_to_compare(service: Running) -> None:
    held = service.submit(people(), seed=doings.HELD)
    service.wait_until_held(held)
    service.loop.do(service.jobs.cancel(held.id))
    first = as_of_revision_2(service, service.end(held))
    with pytest.raises(StateConflict, match="but it has none; submit it again"):
        service.loop.do(service.jobs.rerun(first.id, people()))
    first = as_of_revision_2(service, service.run(people()), parameters={"former": 1})
    with pytest.raises(StateConflict, match="revision 3 of DSWAP does not accept"):
        service.loop.do(service.jobs.rerun(first.id, people()))


@pytest.mark.parametrize("options", [{"candidates": {"count": 2}}, {"choice_revision": "1.1"}])
def test_the_digest_decides_whether_another_rule_keeps_the_same_candidate(
    service: Running, options: dict[str, object]
) -> None:
    """Another one might be kept; before, no such job was run again."""
    given = {"candidates": {"count": 2}, "measures": {}} | options
    # A job that is claimed as it is accepted runs by any rule; a queued one would wait for such a version.
    until("a worker is free", lambda: service.jobs._dispatcher._free_workers() > 0)
    first = service.end(service.submit(people(), options=given))
    again = service.end(service.loop.do(service.jobs.rerun(first.id, people())))
    assert (again.state, again.reproduced) == ("succeeded", True)
    assert again.options is not None
    assert again.options["choice_revision"] == CHOICE_REVISION


def test_a_running_job_is_not_deleted(service: Running) -> None:
    held = service.submit(people(), seed=doings.HELD)
    service.wait_until_held(held)
    with pytest.raises(StateConflict, match="cancel it before"):
        service.loop.do(service.jobs.delete(held.id))
    service.open_gate(held)
    service.end(held)
    service.loop.do(service.jobs.delete(held.id))
    with pytest.raises(NotFound):
        service.get(held)


def test_of_concurrent_deletions_of_a_job_one_finds_it(service: Running) -> None:
    job = service.run(people())
    found = service.loop.do(service.jobs.get(job.id))

    async def found_before(_: str) -> Job:
        return found

    late = service.jobs.on_behalf_of(THE_SERVICE)
    late._job_to_change = found_before  # type: ignore[method-assign, assignment]
    service.loop.do(service.jobs.delete(job.id))
    with pytest.raises(NotFound, match=job.id):
        service.loop.do(late.delete(job.id))


def test_a_plan_says_what_a_run_would_do_and_stores_nothing(service: Running) -> None:
    before = blobs_of(service.settings)
    provider = PROVIDERS["CDSWAP"]
    table = pa.table({"income": [1, 2, 3], "city": ["a", "a", "b"]})
    params = provider.check(
        provider.params.model_validate({"swap_fields": ["income"], "control_field": "city"}), table.schema
    )
    plan = service.loop.do(service.jobs.plan("CDSWAP", params, table))
    assert (plan["rows"], plan["groups"], plan["unswappable_rows"]) == (3, 2, 1)
    assert plan["estimated_memory_bytes"] > 0
    assert blobs_of(service.settings) == before


def test_a_plan_of_what_cannot_be_read_reports_why(service: Running) -> None:
    provider = PROVIDERS["CDSWAP"]
    numbers = pa.schema([("income", pa.int64()), ("city", pa.int64())])
    parameters = {"swap_fields": ["income"], "control_field": "city", "classifier": {"breaks": [1, 2]}}
    params = provider.check(provider.params.model_validate(parameters), numbers)
    text = pa.table({"income": [1, 2], "city": ["a", "b"]})
    with pytest.raises((ParameterError, AppError)):
        service.loop.do(service.jobs.plan("CDSWAP", params, text))


def test_what_has_had_its_time_goes(start: Callable[..., Running], tmp_path: Path) -> None:
    one = start(buffer_ttl=1e-6, result_retention=1e-6)
    buffer = upload(one)
    job = one.run(people(), retain_source=True)
    with pytest.raises(NotFound):
        one.loop.do(one.jobs.buffers.get(buffer.id))
    one.loop.do(one.jobs.purge())
    with pytest.raises(Gone, match="rerun the job"):
        one.rows(job)
    assert one.get(job).destination_digest == job.destination_digest
    assert not blobs_of(one.settings)
    assert one.end(one.loop.do(one.jobs.rerun(job.id, people()))).reproduced is True


def test_health_names_what_is_needed(service: Running) -> None:
    assert service.loop.do(service.jobs.health()) == {"database": "ok", "storage": "ok", "workers": "ok"}


def test_a_leftover_of_a_dead_service_is_swept(start: Callable[..., Running], tmp_path: Path) -> None:
    start().close()
    orphan = tmp_path / "home" / "blobs" / "aa" / ("aa" + "0" * 30)
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"x")
    one = start()
    assert not orphan.exists()
    assert one.run(people()).state == "succeeded"


@embedded
def test_an_idle_service_polls_by_single_queries(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction has several statements, up to three times in a second."""
    one, here, real = start(), get_ident(), Database.read

    def read(database: Database) -> Any:
        assert get_ident() != here, "a transaction"
        return real(database)

    lifecycle = one.jobs._lifecycle
    with monkeypatch.context() as patch:
        patch.setattr(Database, "read", read)
        assert lifecycle.heartbeat._read_changes() == ([], False, {})
        assert lifecycle.dispatcher._expire_overdue() == []
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    queued = one.submit(people())
    assert lifecycle.heartbeat._read_changes() == ([], True, {})
    one.loop.do(one.jobs.cancel(queued.id))
    with one.jobs._stores.database.write() as session:
        jobs.request_cancel(session, held.id)
    assert lifecycle.heartbeat._read_changes() == ([held.id], False, {})
    one.loop.do(one.jobs.cancel(held.id))
