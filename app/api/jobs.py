"""``/v1/jobs``: what became of a run, and what it gave."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import ValidationError
from pydantic.json_schema import SkipJsonSchema

from app.api.context import Jobs, ServiceSettings
from app.api.job_documents import answer, answered_before, document_of, job_document
from app.api.prefer import PreferHeaders, preference_of
from app.api.report_pages import REPORT_CONTENT, report_response
from app.api.requests import JsonRoute
from app.api.responses import accepted, problems, rows_content
from app.api.schemas import (
    Job,
    JobPage,
    ProgressDescription,
    ProgressUpdate,
    RerunRequest,
    RevealedSeed,
    SentTo,
    SignedManifest,
    Source,
)
from app.api.sources import RequestTables, checked_destination
from app.api.tables import Accept, WantedRows, table_response
from app.api.terms import CallTerms
from app.api.uploads import UPLOADED
from app.errors import InvalidRequest
from app.jobs.kinds import kind_of

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=JsonRoute)

_NOTHING = RerunRequest()


async def _known_job(job_id: str, jobs: Jobs) -> None:
    """Raises NotFound, which a stream that has begun could not tell any more."""
    await jobs.get(job_id)


@router.get("", operation_id="listJobs", summary="List jobs, newest first", responses=problems(422))
async def list_jobs(
    jobs: Jobs,
    response: Response,
    request: Request,
    state: Annotated[
        Literal["queued", "running", "succeeded", "failed", "cancelled"] | SkipJsonSchema[None],
        Query(description="Only jobs in this state."),
    ] = None,
    service: Annotated[str | SkipJsonSchema[None], Query(description="Only jobs of this service.")] = None,
    page_size: Annotated[int, Query(ge=1, le=200, description="Jobs on a page. [1 to 200]")] = 20,
    page_token: Annotated[
        str | SkipJsonSchema[None], Query(description="`next_page_token` of the page before.")
    ] = None,
) -> JobPage:
    """One page of jobs. The `Link` header names the next one too (RFC 8288)."""
    found, next_token = await jobs.list(state, service, page_size, page_token)
    if next_token is not None:
        following = request.url.include_query_params(page_token=next_token)
        response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    page = [Job.model_validate(job_document(jobs, job)) for job in found]
    return JobPage(jobs=page, next_page_token=next_token)


@router.get("/{job_id}", operation_id="getJob", summary="Get one job", responses=problems(404))
async def get_job(job_id: str, jobs: Jobs) -> Job:
    """The job's state, figures and events; never its seed, nor a row."""
    return Job.model_validate(document_of(*await jobs.look(job_id)))


@router.post(
    "/{job_id}/cancel", operation_id="cancelJob", summary="Cancel a job", responses=problems(404, 409)
)
async def cancel_job(job_id: str, jobs: Jobs) -> Job:
    """Stop the job, and the worker that runs it. A job that has ended otherwise is a conflict."""
    return Job.model_validate(job_document(jobs, await jobs.cancel(job_id)))


@router.delete(
    "/{job_id}",
    operation_id="deleteJob",
    summary="Purge a job",
    status_code=204,
    responses=problems(404, 409),
)
async def delete_job(job_id: str, jobs: Jobs) -> None:
    """Remove the job, its buffers and its seed; an audit line stays. It must have ended."""
    await jobs.delete(job_id)


@router.get(
    "/{job_id}/events",
    operation_id="watchJob",
    summary="Watch a job",
    response_class=EventSourceResponse,
    responses=problems(404),
)
async def watch_job(
    job_id: str, jobs: Jobs, known: Annotated[None, Depends(_known_job)]
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: `progress` while it runs, then one `end`, each a ProgressUpdate."""
    async for job, progress in jobs.updates(job_id):
        update = ProgressUpdate(
            state=job.state,
            progress=ProgressDescription(fraction=progress.fraction, stage=progress.stage),
        )
        yield ServerSentEvent(event="end" if job.ended else "progress", data=update.document())


@router.get(
    "/{job_id}/rows",
    operation_id="getJobRows",
    summary="Get the destination buffer",
    responses=rows_content("The destination buffer.") | problems(404, 406, 409, 410),
)
async def get_rows(job_id: str, jobs: Jobs, wanted: WantedRows) -> Response:
    """The rows in the type that `Accept` asks for.

    Offered are application/json, text/csv, application/vnd.apache.arrow.stream and
    application/vnd.apache.parquet.
    """
    job = await jobs.with_destination(job_id)
    return await table_response(partial(jobs.open_destination, job), job.destination_digest or "", wanted)


@router.get(
    "/{job_id}/report",
    operation_id="getJobReport",
    summary="Get the report",
    response_class=Response,
    responses=REPORT_CONTENT | problems(404, 406, 409),
)
async def get_report(job_id: str, jobs: Jobs, accept: Accept = None) -> Response:
    """The figures that a release is defended with, as JSON or as a page to read, print and file.

    Offered are application/json and text/html: one self-contained page with pictures and the tables
    behind them, which loads nothing, runs nothing, and tells no number of rows below the threshold.
    """
    report = await jobs.report(job_id)
    return await report_response(job_document(jobs, await jobs.get(job_id)), report, accept)


@router.get(
    "/{job_id}/manifest",
    operation_id="getJobManifest",
    summary="Get the signed manifest",
    responses=problems(404, 409),
)
async def get_manifest(job_id: str, jobs: Jobs) -> SignedManifest:
    """All that a rerun needs but the seed: service, revision, parameters, digests, versions."""
    return SignedManifest.model_validate(await jobs.manifest(job_id))


@router.get(
    "/{job_id}/seed",
    operation_id="revealSeed",
    summary="Reveal the seed",
    responses=problems(404, 422),
)
async def reveal_seed(
    job_id: str,
    jobs: Jobs,
    reason: Annotated[
        str,
        Query(
            min_length=8,
            max_length=500,
            pattern=r"\S",
            description="Why it is needed, for the audit. [8 to 500]",
        ),
    ],
) -> RevealedSeed:
    """The job's seed, which undoes its swap. Who asked, when and why stays in the audit."""
    job, seed = await jobs.seed(job_id, reason)
    return RevealedSeed(seed=seed, bits=job.seed_bits, seed_fingerprint=job.seed_fingerprint)


@router.post(
    "/{job_id}/rerun",
    operation_id="rerunJob",
    summary="Rerun a job",
    response_model=Job,
    response_description="The new job has ended.",
    responses=accepted() | problems(400, 404, 409, 413, 415, 422, 429, 503),
)
async def rerun_job(
    job_id: str,
    jobs: Jobs,
    settings: ServiceSettings,
    tables: RequestTables,
    asking: CallTerms,
    body: RerunRequest = _NOTHING,
    prefer: PreferHeaders = None,
) -> Any:
    """A new job with the same parameters and the same seed, which must give the same bytes.

    The source is needed again unless the job retained it, and so is the destination that a job judged;
    other rows than the job's are refused. What comes out is written to a reference only where one is given
    again.
    """
    preference = preference_of(prefer, settings)
    terms = await asking.terms(body)
    if before := await answered_before(jobs, terms, preference, asking):
        return before
    source = destination = send_to = None
    if body.destination is not None and kind_of((await jobs.get(job_id)).service).has_rows:
        send_to = await checked_destination(_sent_to(body.destination), jobs)
    elif body.destination is not None:
        destination = (await tables.read(body.destination, "/destination")).table
    if body.source is not None:
        source = (await tables.read(body.source)).table
    job = await jobs.rerun(job_id, source, destination, send_to, terms)
    return await answer(jobs, job, preference, asking)


def _sent_to(given: Source) -> SentTo:
    """Where a run's destination is to be written. Raises InvalidRequest."""
    if given.reference is None:
        raise InvalidRequest(
            "the job made its destination itself: give its source, or a 'reference' to write to",
            "/destination",
        )
    try:
        return SentTo.model_validate(given.model_dump(exclude_unset=True))
    except ValidationError as error:
        place = "".join(f"/{part}" for part in error.errors()[0]["loc"])
        raise InvalidRequest(
            "a destination to be written has a 'reference' and a 'media_type' alone, "
            f"which is one of {', '.join(UPLOADED)}",
            f"/destination{place}",
        ) from None
