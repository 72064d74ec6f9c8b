"""A job as it is answered: its document, and the rows along with it where the source was inline."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
from fastapi import Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from app.api.formats import fields_of, json_with_rows
from app.api.prefer import Preference
from app.api.schemas import (
    FieldDescription,
    Job,
    PlanDescription,
    ProgressDescription,
    TableDescription,
)
from app.api.sources import SourceTable
from app.api.tables import made_ahead
from app.api.terms import Asking
from app.engine.engine import Progress
from app.jobs.kinds import kind_of, revision_of
from app.jobs.service import JobService, NewJob
from app.jobs.terms import Terms
from app.store import models

RETRY_AFTER_SECONDS = 1

_ROWS = b"\0"
"""Stands where the rows will: JSON has it escaped."""


def job_document(jobs: JobService, job: models.Job) -> dict[str, Any]:
    """The Job resource as plain JSON values, without rows."""
    return document_of(job, jobs.progress(job))


def document_of(job: models.Job, progress: Progress) -> dict[str, Any]:
    """The same of a job that is known to be so far."""
    destination = None
    if job.destination_digest is not None:
        destination = {
            "digest": job.destination_digest,
            "fields": job.destination_fields,
            "reference": job.destination_reference,
        }
    known = {
        "id": job.id,
        "kind": kind_of(job.service),
        "service": job.service,
        "revision": job.revision,
        "state": job.state,
        "outcome": job.outcome,
        "parameters": job.parameters,
        "options": job.options,
        "seed_fingerprint": job.seed_fingerprint,
        "row_count": job.row_count,
        "priority": job.priority,
        "deadline": job.deadline,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "progress": {"fraction": progress.fraction, "stage": progress.stage},
        "source": {
            "digest": job.source_digest,
            "fields": job.source_fields,
            "reference": job.source_reference,
        },
        "destination": destination,
        "events": job.events or [],
        "event_counts": job.event_counts or {},
        "rerun_of": job.rerun_of,
        "reproduced": job.reproduced,
        "error": job.error,
    }
    return Job.model_validate(known).document()


def _encoded(document: dict[str, Any]) -> bytes:
    """The document as JSON; a parameter may be an integer beyond the 64 bits that orjson can write."""
    try:
        return orjson.dumps(document)
    except TypeError:
        own = {name: document[name] for name in ("parameters", "options", "report") if name in document}
        return orjson.dumps(document | {name: orjson.Fragment(to_json(value)) for name, value in own.items()})


def _with_rows(document: dict[str, Any], table: pa.Table) -> Iterator[bytes]:
    document["destination"]["rows"] = orjson.Fragment(_ROWS)
    before, after = _encoded(document).split(_ROWS)
    return json_with_rows(before, table.schema, table.to_batches(), after)


async def answer_with_plan(jobs: JobService, new: NewJob, source: SourceTable) -> Response:
    """What `validate_only` answers for a run: a job that was never stored, with the plan in it."""
    plan = PlanDescription.model_validate(await jobs.plan(new.service, new.parameters, new.source))
    return answer_validated(new, source, plan)


def answer_validated(new: NewJob, source: SourceTable, plan: PlanDescription | None = None) -> Response:
    """What `validate_only` answers: a job that was never stored."""
    revision = revision_of(new.service)
    assert revision is not None
    moment = datetime.now(UTC)
    job = Job(
        id=str(uuid4()),
        kind=kind_of(new.service),
        service=new.service,
        revision=revision,
        state="succeeded",
        outcome="SUCCESS_WITH_INFO" if plan is not None and plan.unswappable_rows else "SUCCESS",
        parameters=new.parameters.model_dump(mode="json"),
        options=new.options or None,
        row_count=source.rows,
        priority=new.terms.priority,
        created_at=moment,
        finished_at=moment,
        progress=ProgressDescription(fraction=1, stage="validated"),
        source=TableDescription(
            digest=source.digest,
            fields=[FieldDescription(**field) for field in fields_of(source.schema)],
            reference=source.reference,
        ),
        plan=plan,
    )
    return Response(_encoded(job.document()), 200, media_type="application/json")


async def answered_before(
    jobs: JobService, terms: Terms, preference: Preference, asking: Asking
) -> Response | None:
    """The answer with the job that this very call made before, if it did.

    Asked before a source is read: what a reference names may have gone since, or be another table.
    Raises IdempotencyKeyReused.
    """
    job = await jobs.accepted_before(terms)
    return None if job is None else await answer(jobs, job, preference, asking)


async def submitted(jobs: JobService, new: NewJob, preference: Preference, asking: Asking) -> Response:
    """What a call that asks for a new job answers: see `answer`. Raises as `JobService.submit`."""
    job = await jobs.submit(new)
    return await answer(jobs, job, preference, asking)


async def answer(jobs: JobService, accepted: models.Job, preference: Preference, asking: Asking) -> Response:
    """What a call that made a job answers once it has waited as long as the caller wants to.

    200 with the job if it has ended, and with its rows where the source was inline, or its report where
    that is all it gives; else 202.
    """
    job = await jobs.wait(accepted.id, preference.wait_seconds)
    document = job_document(jobs, job)
    headers = {"Location": f"/v1/jobs/{job.id}"} | asking.headers(job.created_at)
    if preference.applied:
        headers["Preference-Applied"] = preference.applied
    if not job.ended:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        return Response(_encoded(document), 202, headers, "application/json")
    if job.state == "succeeded" and not kind_of(job.service).has_rows:
        document["report"] = await jobs.report(job.id)
    if job.state == "succeeded" and job.inline:
        chunks = _with_rows(document, await jobs.destination_of(job))
        return StreamingResponse(made_ahead(chunks), 200, headers, "application/json")
    return Response(_encoded(document), 200, headers, "application/json")
