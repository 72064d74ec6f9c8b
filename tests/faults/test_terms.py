"""Submission options of jobs and buffers with real workers: keys, deadlines, priorities, limits."""

import os
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from starlette.requests import ClientDisconnect

from app.callers import Caller
from app.errors import IdempotencyKeyReused, LimitReached, NotFound, TooLarge
from app.jobs.requests import SubmissionOptions
from app.store.sql.db import Database
from app.store.sql.models import AuditLine, Buffer, Job
from tests.faults import doings
from tests.faults.conftest import Running, blobs_of, new_job, people
from tests.faults.running import PATIENCE
from tests.faults.uploads import CSV, pieces

pytestmark = pytest.mark.faults

Start = Callable[..., Running]


def upload(service: Running, data: bytes = CSV, owner: str = "service", **terms: Any) -> Buffer:
    given = SubmissionOptions(request_fingerprint="call", **terms)
    jobs = service.jobs.on_behalf_of(Caller(owner))
    return service.loop.do(jobs.buffers.create(pieces(data), "text/csv", None, given))


def audited(service: Running) -> list[tuple[str, str]]:
    database = Database(service.settings)
    with database.read() as session:
        lines = [(line.action, line.subject) for line in session.scalars(sa.select(AuditLine))]
    database.close()
    return lines


# -------------------------------------------------------------------------------------- idempotency keys


def test_a_rerun_under_a_key_is_made_once(service: Running) -> None:
    first = service.run(people(), retain_source=True)
    terms = SubmissionOptions(idempotency_key="again", request_fingerprint="rerun")
    runs = [service.loop.do(service.jobs.rerun(first.id, submission=terms)) for _ in range(3)]
    assert len({run.id for run in runs}) == 1
    assert runs[0].id != first.id
    with pytest.raises(IdempotencyKeyReused):
        service.submit(people(), idempotency_key="again", request_fingerprint="other")


def test_a_key_is_used_again_when_its_job_was_deleted(service: Running) -> None:
    call = {"idempotency_key": "deleted", "request_fingerprint": "aaaa"}
    first = service.run(people(), **call)
    service.loop.do(service.jobs.delete(first.id))
    assert service.run(people(), **call).id != first.id


def test_a_key_is_used_again_when_its_time_is_over(start: Start) -> None:
    """With the same request or another one; two at once still make one job."""
    one = start(idempotency_ttl=0.3)
    first = one.run(people(), idempotency_key="k", request_fingerprint="aaaa")
    until = first.created_at + timedelta(seconds=0.3)
    while one.run(people()).created_at < until:
        """A job's time passes."""
    call = {"idempotency_key": "k", "request_fingerprint": "bbbb"}
    started = [one.loop.start(one.jobs.submit(new_job(people(), **call))) for _ in range(4)]
    ids = {future.result(PATIENCE).id for future in started}
    assert first.id not in ids


def test_an_upload_under_a_key_is_kept_once(service: Running) -> None:
    """The same bytes give the same buffer, others are refused, and nothing is left behind of either."""
    before = len(blobs_of(service.settings))
    first = upload(service, idempotency_key="upload")
    assert upload(service, idempotency_key="upload").id == first.id
    with pytest.raises(IdempotencyKeyReused):
        upload(service, CSV[:-8], idempotency_key="upload")
    assert upload(service, idempotency_key="another").id != first.id
    assert upload(service, idempotency_key="upload", owner="somebody else").id != first.id
    assert len(blobs_of(service.settings)) == before + 3
    service.loop.do(service.jobs.buffers.delete(first.id))
    assert upload(service, idempotency_key="upload").id != first.id


def test_a_key_is_used_again_when_its_buffer_has_expired(start: Start) -> None:
    """Also before the buffer is purged, and by another request."""
    one = start(buffer_ttl=0.5, purge_interval=3600)
    first = upload(one, idempotency_key="k")
    while first.expires_at > upload(one).created_at:
        """A buffer's time passes."""
    second = upload(one, CSV[:-8], idempotency_key="k")
    assert second.id != first.id


def test_uploads_at_once_under_one_key_make_one_buffer(service: Running) -> None:
    terms = SubmissionOptions(idempotency_key="at once", request_fingerprint="call")
    before = len(blobs_of(service.settings))
    started = [
        service.loop.start(service.jobs.buffers.create(pieces(CSV), "text/csv", None, terms))
        for _ in range(4)
    ]
    assert len({future.result(PATIENCE).id for future in started}) == 1
    assert len(blobs_of(service.settings)) == before + 1


def test_an_upload_that_broke_off_leaves_its_key_free(service: Running) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield CSV[:100]
        raise ClientDisconnect

    terms = SubmissionOptions(idempotency_key="broken", request_fingerprint="call")
    with pytest.raises(ClientDisconnect):
        service.loop.do(service.jobs.buffers.create(broken(), "text/csv", None, terms))
    assert upload(service, idempotency_key="broken").row_count == 500


# ------------------------------------------------------------------------------- deadlines and priorities


def test_a_job_that_runs_past_its_deadline_is_stopped(service: Running) -> None:
    """Its worker is gone, its error says why, and the next job runs."""
    service.run(people())  # a worker is up
    job = service.submit(people(), seed=doings.HELD, deadline_seconds=8.0)
    pid = service.wait_until_held(job).pid
    failed = service.end(job)
    assert failed.error is not None
    assert (failed.state, failed.error["code"], failed.error["status"]) == (
        "failed",
        "deadline_exceeded",
        504,
    )
    assert "stopped" in failed.error["detail"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert failed.source_blob is None
    assert service.run(people(), deadline_seconds=600).state == "succeeded"


def test_a_job_does_not_succeed_after_its_deadline(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the timer of the deadline is late."""
    one = start(workers=2, small_table_bytes=0)
    monkeypatch.setattr(one.jobs._dispatcher, "_stop_at_deadline", lambda *_: None)
    job = one.submit(people(), seed=doings.HELD, deadline_seconds=8.0)
    one.wait_until_held(job)
    assert job.deadline is not None
    while one.run(people()).created_at <= job.deadline:
        """The deadline passes."""
    one.open_gate(job)
    failed = one.end(job)
    assert failed.error is not None
    assert (failed.state, failed.error["code"]) == ("failed", "deadline_exceeded")
    assert "discarded" in failed.error["detail"]
    assert (failed.destination_blob, failed.source_blob) == (None, None)


def test_a_job_still_queued_at_its_deadline_does_not_run(start: Start) -> None:
    one = start(workers=1)
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    late = one.end(one.submit(people(), deadline_seconds=0.2))
    assert late.error is not None
    assert (late.state, late.started_at, late.error["code"]) == ("failed", None, "deadline_exceeded")
    assert "queued" in late.error["detail"]
    one.open_gate(held)
    assert one.end(held).state == "succeeded"


def test_a_job_of_higher_priority_goes_first(start: Start) -> None:
    """And so do two of the same in the order in which they came."""
    one = start(workers=1)
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    asked = ["low", "normal", "high", "high"]
    queued = [one.submit(people(), priority=priority) for priority in asked]
    one.open_gate(held)
    ended = [one.end(job) for job in queued]
    moments = {job.started_at: job.priority for job in ended if job.started_at is not None}
    assert [moments[moment] for moment in sorted(moments)] == ["high", "high", "normal", "low"]
    assert ended[2].started_at < ended[3].started_at  # type: ignore[operator]  # both have started


def test_priorities_of_equal_weight_make_no_difference(start: Start) -> None:
    one = start(workers=1, priority_weight=1)
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    low, high = one.submit(people(), priority="low"), one.submit(people(), priority="high")
    one.open_gate(held)
    first, second = one.end(low), one.end(high)
    assert first.started_at is not None
    assert second.started_at is not None
    assert first.started_at < second.started_at


# ------------------------------------------------------------------------------------------------ limits


def test_no_more_jobs_at_a_time_than_allowed_whatever_comes_at_once(start: Start) -> None:
    one = start(workers=1, caller_jobs=3)
    held = one.submit(people(), seed=doings.HELD)
    one.wait_until_held(held)
    started = [one.loop.start(one.jobs.submit(new_job(people()))) for _ in range(8)]
    errors = [future.exception(PATIENCE) for future in started]
    refused = [error for error in errors if error is not None]
    assert len(refused) == 6
    assert all(isinstance(error, LimitReached) for error in refused)
    assert isinstance(refused[0], LimitReached)
    assert refused[0].headers() == {
        "Retry-After": "5",
        "RateLimit-Policy": '"jobs";q=3',
        "RateLimit": '"jobs";r=0;t=5',
    }
    another = one.jobs.on_behalf_of(Caller("somebody else"))
    assert one.loop.do(another.submit(new_job(people()))).owner == "somebody else"
    one.open_gate(held)
    one.end(held)
    accepted: list[Job] = [future.result() for future in started if future.exception() is None]
    assert [one.end(job).state for job in accepted] == ["succeeded", "succeeded"]
    assert one.run(people()).state == "succeeded"
    assert 'rowveil_limited_total{limit="jobs"} 6.0' in one.loop.do(one.jobs.metrics_text()).decode()


def test_rows_and_bytes_of_jobs_are_limited_together(start: Start) -> None:
    """A job that would not fit even as the only one is too large; a rerun counts like its first run."""
    table = people()
    one = start(workers=1, small_table_bytes=0, caller_rows=2500, caller_bytes=int(2.5 * table.nbytes))
    first = one.run(table, retain_source=True)
    held = one.submit(table, seed=doings.HELD)
    one.wait_until_held(held)
    again = one.loop.do(one.jobs.rerun(first.id))
    assert (again.row_count, again.byte_size) == (1000, table.nbytes)
    with pytest.raises(LimitReached, match=r"the rows .* to 2500 .* there are 2000, and this request"):
        one.submit(table)
    with pytest.raises(TooLarge, match="ROWVEIL_CALLER_ROWS"):
        one.submit(people(2501))
    assert len(blobs_of(one.settings)) == 3  # first's, which is again's too, and held's
    one.open_gate(held)
    one.end(held)
    one.end(again)


def test_the_bytes_of_buffers_are_limited_together(start: Start) -> None:
    one = start(caller_buffer_bytes=20_000)
    kept = [upload(one), upload(one)]
    assert sum(buffer.byte_size for buffer in kept) <= 20_000
    with pytest.raises(LimitReached, match="ROWVEIL_CALLER_BUFFER_BYTES") as caught:
        upload(one)
    assert 86_000 < caught.value.seconds <= 86_400  # until the first goes
    assert caught.value.left == 20_000 - sum(buffer.byte_size for buffer in kept)
    assert len(blobs_of(one.settings)) == 2
    one.loop.do(one.jobs.buffers.delete(kept[0].id))
    upload(one)
    with pytest.raises(TooLarge):
        upload(one, CSV[:11] + CSV[11:] * 9)


# ----------------------------------------------------------------------------------------------- purging


def test_everything_goes_at_the_end_of_its_time_and_the_audit_says_so(start: Start) -> None:
    one = start(
        buffer_ttl=0.01, result_retention=0.01, job_retention=0.01, idempotency_ttl=0.01, purge_interval=3600
    )
    job = one.run(people(), retain_source=True, idempotency_key="k", request_fingerprint="a")
    buffer = upload(one, idempotency_key="b")
    one.run(people())  # which takes longer than all of them are kept
    one.loop.do(one.jobs.purge())
    with pytest.raises(NotFound):
        one.get(job)
    assert {("buffer.purge", buffer.id), ("result.purge", job.id), ("job.purge", job.id)} <= set(audited(one))
    text = one.loop.do(one.jobs.metrics_text()).decode()
    assert 'rowveil_purged_total{what="buffer"} 1.0' in text
    assert "rowveil_buffers 0.0" in text
