"""Responses with a job: its document, and its rows if the source was inline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from app.api.job_options import Submission
from app.api.report_schemas import Report
from app.api.request_headers import Preference
from app.api.schemas import (
    EventDescription,
    Job,
    PlanDescription,
    Problem,
    ProgressDescription,
    TableDescription,
)
from app.api.table_response import prefetched
from app.callers import READ
from app.engine.engine import Progress
from app.errors import ScopeMissing, problem_type
from app.formats.json_output import SMALL_BYTES, encoded_size, fields_of, json_with_rows
from app.job_kinds import kind_of, revision_of
from app.jobs.maintenance.retention import Lifetimes
from app.jobs.requests import SubmissionOptions
from app.jobs.service import JobService, NewJob
from app.requests.source import SourceTable
from app.store.sql import models
from app.store.sql.jobs import JobRow
from app.store.sql.webhook_outbox import DeliveryRow
from providers import PROVIDERS
from providers.results import Event

RETRY_AFTER_SECONDS = 1

Headers = dict[str, str]

_ROWS = b"\0"
"""Placeholder of the rows. JSON always escapes this character, so no value can contain it."""


async def job_document(jobs: JobService, job: models.Job) -> dict[str, Any]:
    """Return the Job resource as plain JSON values, without rows."""
    messages = await jobs.deliveries([job])
    return document_of(job, await jobs.progress(job), messages.get(job.id), jobs.lifetimes)


async def looked_up_document(jobs: JobService, job_id: str) -> dict[str, Any]:
    """Return the Job resource as `job_document` does, by the quicker `JobService.look`. Raises NotFound."""
    job, progress = await jobs.look(job_id)
    messages = await jobs.deliveries([job])
    return document_of(job, progress, messages.get(job_id), jobs.lifetimes)


async def job_documents(jobs: JobService, found: Sequence[models.Job]) -> list[dict[str, Any]]:
    """Return several Job resources; the progress of running ones is read at the same time."""
    progress = await asyncio.gather(*map(jobs.progress, found))
    messages = await jobs.deliveries(found)
    return [
        document_of(job, each, messages.get(job.id), jobs.lifetimes)
        for job, each in zip(found, progress, strict=True)
    ]


def document_of(
    job: models.Job | JobRow,
    progress: Progress,
    message: DeliveryRow | None = None,
    lifetimes: Lifetimes | None = None,
) -> dict[str, Any]:
    """Return the Job resource with this progress, equal to the JSON of `app.api.schemas.Job`.

    ``message``: the message about the job's end, if there is one. ``lifetimes``: times after which the
    service deletes the job and its tables; None for a job that it does not store.
    """
    expires_at = rows_expire_at = None
    if lifetimes is not None and job.finished_at is not None:
        expires_at = job.finished_at + lifetimes.job
        if job.destination_digest and kind_of(job.service).has_rows and not job.destination_reference:
            rows_expire_at = job.finished_at + lifetimes.tables
    destination = None
    if job.destination_digest is not None:
        destination = _described(job.destination_digest, job.destination_fields, job.destination_reference)
    control = None
    if job.control_digest is not None:
        control = _described(job.control_digest, job.control_fields, job.control_reference)
    document = {
        "id": job.id,
        "kind": kind_of(job.service),
        "service": job.service,
        "revision": job.revision,
        "name": job.name,
        "label": job.label,
        "notes": job.notes,
        "state": job.state,
        "outcome": job.outcome,
        "parameters": job.parameters,
        "options": job.options,
        "seed_fingerprint": job.seed_fingerprint,
        "row_count": job.row_count,
        "priority": job.priority,
        "deadline": utc_time(job.deadline),
        "created_at": utc_time(job.created_at),
        "started_at": utc_time(job.started_at),
        "finished_at": utc_time(job.finished_at),
        "expires_at": utc_time(expires_at),
        "rows_expire_at": utc_time(rows_expire_at),
        "progress": {"fraction": progress.fraction, "stage": progress.stage},
        "source": _described(job.source_digest, job.source_fields, job.source_reference),
        "destination": destination,
        "control": control,
        "events": [_present(event) for event in job.events or ()],
        "event_counts": job.event_counts or {},
        "rerun_of": job.rerun_of,
        "reproduced": job.reproduced,
        "webhook": _delivery(job, message),
        # Earlier versions stored the type of any invalid request.
        "error": job.error
        and Problem.model_validate(job.error | {"type": problem_type(job.error["code"])}).document(),
    }
    return _present(document)


def _delivery(job: models.Job | JobRow, message: DeliveryRow | None) -> dict[str, Any] | None:
    """Return the delivery of the job's message; None without a webhook, or if the message is deleted."""
    if job.sealed_webhook is None:
        return None
    if message is None:
        return None if job.finished_at is not None else {"state": "pending", "attempts": 0}
    next_attempt_at = message.due_at if message.state == "pending" else None
    problem = message.problem if message.state != "delivered" else None  # an older replica leaves it
    return _present(
        {
            "state": message.state,
            "attempts": message.attempts,
            "problem": problem,
            "next_attempt_at": utc_time(next_attempt_at),
            "ended_at": utc_time(message.ended_at),
        }
    )


def _described(digest: str, fields: list[dict[str, Any]] | None, reference: str | None) -> dict[str, Any]:
    return _present({"digest": digest, "fields": fields, "reference": reference})


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def utc_time(moment: datetime | None) -> str | None:
    """Return a moment in UTC with the suffix Z (RFC 3339), as the times of jobs, buffers and series."""
    return None if moment is None else moment.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def document_response(
    document: dict[str, Any], status: int = 200, headers: Headers | None = None
) -> Response:
    """Return the response with a resource, given as plain JSON values."""
    return Response(_encoded(document), status, headers, "application/json")


def page_response(request: Request, name: str, items: list[Any], next_token: str | None) -> Response:
    """Return the response with one page of a listing.

    Parameters
    ----------
    request : Request
        Its URL with the next page's token is in the `Link` header (RFC 8288).
    name : str
        Member of the document that has the items.
    items : list
        Plain JSON values.
    next_token : str or None
        Token of the next page; None: this page is the last one.
    """
    if next_token is None:
        return document_response({name: items})
    next_url = request.url.include_query_params(page_token=next_token)
    link = f'<{next_url.path}?{next_url.query}>; rel="next"'
    return document_response({name: items, "next_page_token": next_token}, 200, {"Link": link})


def _encoded(value: Any) -> bytes:
    """Encode a document as JSON; a value in it may be an integer beyond the 64 bits that orjson supports."""
    try:
        return orjson.dumps(value)
    except TypeError:
        if isinstance(value, dict):
            return orjson.dumps({name: orjson.Fragment(_encoded(each)) for name, each in value.items()})
        if isinstance(value, list | tuple):
            return orjson.dumps([orjson.Fragment(_encoded(each)) for each in value])
        return to_json(value)


def _with_rows(document: dict[str, Any], table: pa.Table) -> Iterator[bytes]:
    document["destination"]["rows"] = orjson.Fragment(_ROWS)
    before, after = _encoded(document).split(_ROWS)
    return json_with_rows(before, table.schema, table.to_batches(), after)


async def plan_response(
    jobs: JobService, new: NewJob, source: SourceTable, preview_rows: int = 0, with_results: bool = True
) -> Response:
    """Return the response to `validate_only` for a run: a job that is not stored, with its plan.

    With ``preview_rows`` the plan has that many rows of a trial run; the caller needs the scope to read rows.
    Without ``with_results`` there is no plan, whose figures describe the source.
    """
    notices = PROVIDERS[new.service].notices(new.parameters, source.schema)
    if preview_rows and not jobs.may_read:
        raise ScopeMissing(READ)
    if not with_results:
        return validated_response(new, source, None, notices)
    planned = await jobs.plan(new.service, new.parameters, new.source)
    if preview_rows:
        planned["trial"] = await jobs.trial(new.service, new.parameters, new.source, preview_rows)
    plan = PlanDescription.model_validate(planned)
    return validated_response(new, source, plan, notices)


def validated_response(
    new: NewJob, source: SourceTable, plan: PlanDescription | None = None, notices: Sequence[Event] = ()
) -> Response:
    """Return the response to `validate_only`: a job that is not stored."""
    revision = revision_of(new.service)
    assert revision is not None
    now = datetime.now(UTC)
    job = Job(
        id=str(uuid4()),
        kind=kind_of(new.service),
        service=new.service,
        revision=revision,
        **new.submission.annotations.columns(),
        state="succeeded",
        outcome="SUCCESS_WITH_INFO" if notices or (plan is not None and plan.notable_rows) else "SUCCESS",
        events=[EventDescription(code=event.code, message=event.message) for event in notices],
        event_counts={event.code: 1 for event in notices},
        parameters=new.parameters.model_dump(mode="json"),
        options=new.options or None,
        row_count=source.rows,
        priority=new.submission.priority,
        created_at=now,
        finished_at=now,
        progress=ProgressDescription(fraction=1, stage="validated"),
        source=TableDescription(digest=source.digest, fields=[], reference=source.reference),
        plan=plan,
    )
    document = job.document()
    document["source"]["fields"] = fields_of(source.schema)  # models of 100,000 fields take a second
    return document_response(document)


async def previous_response(
    jobs: JobService,
    terms: SubmissionOptions,
    preference: Preference,
    submission: Submission,
    with_results: bool,
) -> Response | None:
    """Return the response with the job that this very request created before, if it did.

    Called before a source is read, because a referenced table may have changed or gone since.
    Raises IdempotencyKeyReused.
    """
    job = await jobs.accepted_before(terms)
    return None if job is None else await job_response(jobs, job, preference, submission, with_results)


async def submit_job(
    jobs: JobService,
    new: NewJob,
    preference: Preference,
    submission: Submission,
    with_results: bool,
) -> Response:
    """Submit a new job and return its response; see `job_response`. Raises as `JobService.submit`."""
    job = await jobs.submit(new)
    return await job_response(jobs, job, preference, submission, with_results)


async def job_response(
    jobs: JobService,
    accepted: models.Job,
    preference: Preference,
    submission: Submission,
    with_results: bool,
) -> Response:
    """Wait as long as the caller wants, then return the response of a request that created a job.

    200 with the job if it has ended: with its rows if the source was inline, or with its report if the
    kind of job produces only a report. Neither is in it without ``with_results``. Otherwise 202.
    """
    # Without a wait a new job is returned as it was accepted: 202, however fast it ends.
    pending = preference.wait_seconds == 0 and not accepted.ended
    job = accepted if pending else await jobs.wait(accepted.id, preference.wait_seconds)
    document = await job_document(jobs, job)
    headers = {"Location": f"/v1/jobs/{job.id}"} | submission.headers(job.created_at)
    if preference.applied:
        headers["Preference-Applied"] = preference.applied
    if not job.ended:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        return document_response(document, 202, headers)
    if not with_results:
        return document_response(document, 200, headers)
    if job.state == "succeeded" and not kind_of(job.service).has_rows:
        document["report"] = Report.model_validate(await jobs.report(job.id)).document()
    if job.state == "succeeded" and job.inline and (rows := job.encoded_rows) is not None:
        document["destination"]["rows"] = orjson.Fragment(rows)
        return Response(_encoded(document), 200, headers, "application/json")
    if job.state == "succeeded" and job.inline:
        table = await jobs.destination_of(job)
        chunks = _with_rows(document, table)
        if encoded_size(table) <= SMALL_BYTES:
            return Response(b"".join(chunks), 200, headers, "application/json")
        return StreamingResponse(prefetched(chunks), 200, headers, "application/json")
    return document_response(document, 200, headers)
