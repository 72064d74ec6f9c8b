"""``/v1/jobs``: state, rows, report, manifest, seed and reruns of jobs."""

from collections.abc import AsyncIterator
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import ValidationError
from pydantic.json_schema import SkipJsonSchema

from app.api.dependencies import Jobs, PageSize, PageToken, ServiceSettings
from app.api.job_options import RequestSubmission
from app.api.job_response import (
    document_response,
    job_document,
    job_documents,
    job_response,
    looked_up_document,
    page_response,
    previous_response,
)
from app.api.json_request import JsonRoute, direct
from app.api.openapi_responses import accepted, listed, problems, rows_content
from app.api.report_response import REPORT_CONTENT, report_response
from app.api.request_headers import PreferHeaders, combined, preference_of
from app.api.request_tables import RequestTables, checked_destination
from app.api.result_access import check_may_write, may_have_results_of_rerun
from app.api.schemas import (
    Job,
    JobPage,
    ProgressDescription,
    ProgressUpdate,
    RevealedSeed,
    SignedManifest,
)
from app.api.table_response import Accept, RequestedRepresentation, table_response
from app.api.table_schemas import RowComparison
from app.engine.engine import Progress
from app.errors import InvalidParameter, InvalidRequest, NotFound
from app.job_kinds import ATTACKS, FRONTIER, MEASURES, kind_of, revision_of
from app.jobs.tables.views import ComparisonOptions
from app.requests.annotations import AnnotationChange, Line, without_controls
from app.requests.rerun import RerunRequest
from app.requests.source import SentTo, Source
from app.requests.uploads import UPLOADED
from app.requests.validation_errors import NOT_BLANK
from providers import PROVIDERS
from providers.errors import did_you_mean

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=JsonRoute)

_NOTHING = RerunRequest()


async def _known_job(job_id: str, jobs: Jobs) -> tuple[str, bool, Progress]:
    """Return the job's state, whether it has ended, and its progress, before its event stream begins.

    Raises NotFound: after the beginning the status can no longer change.
    """
    job = await jobs.get(job_id)
    return job.state, job.ended, await jobs.progress(job)


@router.get(
    "",
    operation_id="listJobs",
    summary="List jobs, newest first",
    response_model=JobPage,
    responses=listed() | problems(422),
)
async def list_jobs(
    jobs: Jobs,
    request: Request,
    state: Annotated[
        Literal["queued", "running", "succeeded", "failed", "cancelled"] | SkipJsonSchema[None],
        Query(description="Only jobs in this state."),
    ] = None,
    service: Annotated[str | SkipJsonSchema[None], Query(description="Only jobs of this service.")] = None,
    name: Annotated[
        Line | SkipJsonSchema[None],
        Query(
            description="Only jobs whose name contains this text; upper and lower case are equal. "
            "[up to 120 characters]"
        ),
    ] = None,
    label: Annotated[
        Line | SkipJsonSchema[None],
        Query(description="Only jobs with exactly this label. [up to 120 characters]"),
    ] = None,
    page_size: PageSize = 20,
    page_token: PageToken = None,
) -> Any:
    """Get one page of jobs. The `Link` header points to the next page too (RFC 8288)."""
    if service is not None and revision_of(service) is None:
        known = [*PROVIDERS, MEASURES, FRONTIER, ATTACKS]
        message = f"unknown service '{service}'{did_you_mean(service, known)}"
        raise RequestValidationError([{"type": "query", "loc": ("query", "service"), "msg": message}])
    found, next_token = await jobs.list(state, service, page_size, page_token, name, label)
    return page_response(request, "jobs", await job_documents(jobs, found), next_token)


@router.get(
    "/{job_id}",
    operation_id="getJob",
    summary="Get one job",
    response_model=Job,
    responses=problems(404),
)
@direct
async def get_job(job_id: str, jobs: Jobs) -> Response:
    """Get the job's state, figures and events, without its seed and rows."""
    return document_response(await looked_up_document(jobs, job_id))


@router.patch(
    "/{job_id}",
    operation_id="annotateJob",
    summary="Change a job's name, label or notes",
    response_model=Job,
    responses=problems(400, 403, 404, 413, 415, 422, 507),
)
async def annotate_job(job_id: str, body: AnnotationChange, jobs: Jobs) -> Response:
    """Set or remove the name, the label or the notes, in any state; members that are left out stay.

    Only the job's submitter may do so. The audit log has a line without the texts. Report and manifest do not
    contain them.
    """
    return document_response(await job_document(jobs, await jobs.annotate(job_id, body.changes)))


@router.post(
    "/{job_id}/cancel",
    operation_id="cancelJob",
    summary="Cancel a job",
    response_model=Job,
    responses=problems(404, 409, 507),
)
async def cancel_job(job_id: str, jobs: Jobs) -> Response:
    """Stop the job and its task in the worker.

    Cancelling a job that has succeeded or failed is a conflict.
    """
    return document_response(await job_document(jobs, await jobs.cancel(job_id)))


@router.delete(
    "/{job_id}",
    operation_id="deleteJob",
    summary="Delete a job",
    status_code=204,
    responses=problems(404, 409, 507),
)
async def delete_job(job_id: str, jobs: Jobs) -> None:
    """Delete a job that has ended, with its buffers and its seed; an audit entry remains."""
    await jobs.delete(job_id)


@router.get(
    "/{job_id}/events",
    operation_id="watchJob",
    summary="Watch a job",
    response_class=EventSourceResponse,
    responses=problems(404),
)
async def watch_job(
    job_id: str, jobs: Jobs, known: Annotated[tuple[str, bool, Progress], Depends(_known_job)]
) -> AsyncIterator[ServerSentEvent]:
    """Stream server-sent events: `progress` while the job runs, then one `end`, each a ProgressUpdate.

    If the job is deleted, the stream closes; it has no `end` if the job was deleted before the stream saw its
    end.
    """
    try:
        async for job, progress in jobs.updates(job_id):
            yield _event(job.state, job.ended, progress.fraction, progress.stage)
    except NotFound:  # deleted since the request was accepted
        state, ended, progress = known
        if ended:
            yield _event(state, ended, progress.fraction, progress.stage)


@lru_cache(maxsize=256)
def _event(state: str, ended: bool, fraction: float, stage: str) -> ServerSentEvent:
    """Return the event, which many streams of one job send at the same time."""
    update = ProgressUpdate(state=state, progress=ProgressDescription(fraction=fraction, stage=stage))
    return ServerSentEvent(event="end" if ended else "progress", raw_data=update.model_dump_json())


@router.get(
    "/{job_id}/rows",
    operation_id="getJobRows",
    summary="Get the destination buffer",
    responses=rows_content("The destination buffer.") | problems(404, 406, 409, 410, 412, 422, 507),
)
async def get_rows(job_id: str, jobs: Jobs, wanted: RequestedRepresentation) -> Response:
    """Get the rows in the media type that `Accept` requests.

    Offered are application/json, text/csv, application/vnd.apache.arrow.stream and
    application/vnd.apache.parquet.
    """
    job = await jobs.with_destination(job_id)
    return await table_response(partial(jobs.open_destination, job), job.destination_digest or "", wanted)


@router.get(
    "/{job_id}/comparison",
    operation_id="compareJobRows",
    summary="Compare the destination buffer with its source",
    responses=problems(404, 409, 410, 422, 429, 507),
)
async def compare_job_rows(
    job_id: str,
    jobs: Jobs,
    source: Annotated[
        str, Query(description="Buffer with the rows that the job ran on, which the caller may read.")
    ],
    rows: Annotated[int, Query(ge=0, le=50, description="Number of rows to return. [0 to 50]")] = 20,
    only_changed: Annotated[
        bool,
        Query(description="true: the first rows in which a value differs, instead of the first rows."),
    ] = False,
    field: Annotated[
        str | SkipJsonSchema[None],
        Query(description="First field of a cross table; it needs `by`. At most 24 different values."),
    ] = None,
    by: Annotated[
        str | SkipJsonSchema[None], Query(description="Second field of the cross table; it needs `field`.")
    ] = None,
) -> RowComparison:
    """Get rows before and after the run, the number of changed values of each field, and a cross table.

    The source is a buffer that the caller may read, and must have the digest of the job's source. So the
    response shows nothing that the rows of both tables do not show. A worker compares up to 100 million
    cells. The call counts as a read of both tables, also in the audit log.
    """
    if (field is None) != (by is None):
        missing = "by" if by is None else "field"
        raise InvalidParameter("a cross table needs both 'field' and 'by'; give both or neither", missing)
    options = ComparisonOptions(rows, only_changed, field, by)
    return RowComparison.model_validate(await jobs.compare_rows(job_id, source, options))


@router.get(
    "/{job_id}/report",
    operation_id="getJobReport",
    summary="Get the report",
    response_class=Response,
    responses=REPORT_CONTENT | problems(404, 406, 409, 507),
)
async def get_report(job_id: str, jobs: Jobs, accept: Accept = None) -> Response:
    """Get the figures that justify a release, as JSON or as a page to read, print and archive.

    Offered are application/json and text/html: one self-contained page with pictures and their
    tables. The page loads and runs nothing, and masks row counts below the disclosure threshold.
    """
    report = await jobs.report(job_id)
    return await report_response(await job_document(jobs, await jobs.get(job_id)), report, combined(accept))


@router.get(
    "/{job_id}/manifest",
    operation_id="getJobManifest",
    summary="Get the signed manifest",
    responses=problems(404, 409, 507),
)
async def get_manifest(job_id: str, jobs: Jobs) -> SignedManifest:
    """Get the data that a rerun needs except the seed: service, revision, parameters, digests, versions."""
    return SignedManifest.model_validate(await jobs.manifest(job_id))


@router.get(
    "/{job_id}/seed",
    operation_id="revealSeed",
    summary="Reveal the seed",
    responses=problems(404, 422, 507),
)
async def reveal_seed(
    job_id: str,
    jobs: Jobs,
    reason: Annotated[
        str,
        Query(
            min_length=8,
            max_length=500,
            pattern=NOT_BLANK,
            description="Reason for the audit log. [8 to 500]",
        ),
        without_controls,
    ],
) -> RevealedSeed:
    """Get the job's seed, which undoes its swap. Caller, time and reason are recorded in the audit log."""
    job, seed = await jobs.seed(job_id, reason)
    return RevealedSeed(seed=seed, bits=job.seed_bits, seed_fingerprint=job.seed_fingerprint)


@router.post(
    "/{job_id}/rerun",
    operation_id="rerunJob",
    summary="Rerun a job",
    response_model=Job,
    response_description="The new job has ended.",
    responses=accepted() | problems(400, 404, 409, 413, 415, 422, 429, 507),
)
async def rerun_job(
    job_id: str,
    jobs: Jobs,
    settings: ServiceSettings,
    tables: RequestTables,
    submission: RequestSubmission,
    body: RerunRequest = _NOTHING,
    prefer: PreferHeaders = None,
) -> Any:
    """Create a new job with the same parameters and the same seed, which must give the same bytes.

    The source is needed again unless the job retained it. The same holds for the destination that a job
    measured or attacked, and for the control rows of an attack. Rows that differ from the job's rows are
    rejected. The new destination is written to a reference only if the request gives one. Without the scope
    `read` the response has neither rows nor report, and nothing is written to a reference, unless the request
    gives every table: inline, by reference, or as a buffer of your own.
    """
    preference = preference_of(prefer, settings)
    terms = await submission.job_options(body)
    with_results = await may_have_results_of_rerun(jobs, job_id, body)
    if before := await previous_response(jobs, terms, preference, submission, with_results):
        return before
    source = destination = control = send_to = None
    if body.destination is not None and kind_of((await jobs.get(job_id)).service).has_rows:
        check_may_write(with_results)
        send_to = await checked_destination(_sent_to(body.destination), jobs)
    elif body.destination is not None:
        for name in SentTo.model_fields:
            if name in body.destination.model_fields_set and name not in Source.model_fields:
                raise InvalidRequest(
                    f"the job wrote no destination: leave '{name}' out", f"/destination/{name}"
                )
        destination = (await tables.read(body.destination, "/destination")).table
    if body.source is not None:
        source = (await tables.read(body.source)).table
    if body.control is not None:
        control = (await tables.read(body.control, "/control")).table
    job = await jobs.rerun(job_id, source, destination, control, send_to, terms)
    return await job_response(jobs, job, preference, submission, with_results)


def _sent_to(given: Source) -> SentTo:
    """Return the reference to write a run's destination to. Raises InvalidRequest."""
    if given.reference is None:
        raise InvalidRequest(
            "the job made its own destination: give its source alone, or a 'reference' to write to",
            "/destination",
        )
    try:
        return SentTo.model_validate(given.model_dump(exclude_unset=True))
    except ValidationError as error:
        place = "".join(f"/{part}" for part in error.errors()[0]["loc"])
        raise InvalidRequest(
            f"the 'destination' of this rerun may only have {', '.join(map(repr, SentTo.model_fields))}; its "
            f"'media_type' is one of {', '.join(UPLOADED)}",
            f"/destination{place}",
        ) from None
