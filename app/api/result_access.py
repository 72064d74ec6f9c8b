"""Access to the results of a request: without the scope `read`, only of the caller's own tables."""

from typing import Final

from app.callers import READ
from app.errors import NotFound, ScopeMissing
from app.job_kinds import kind_of
from app.jobs.service import JobService
from app.requests.rerun import RerunRequest
from app.requests.source import Source

_REFERENCE_MAY_BE_READABLE: Final = (
    "without it, a destination is written to a reference only if the request gives every table: inline, by "
    "reference, or as a buffer of your own that has not expired"
)


async def may_have_results(jobs: JobService, *tables: Source | None, job_id: str | None = None) -> bool:
    """Return whether the caller may have the results of a request: report, plan and destination.

    A caller with the scope `read` may, since it could read the tables and the result. Without this scope,
    every table must be inline, a reference, or an existing buffer of the caller's.

    Parameters
    ----------
    jobs : JobService
    tables : Source or None
        Tables of the request; None: not given.
    job_id : str or None
        Job whose tables are read as well; the caller must have given all of them.
    """
    if jobs.may_read:
        return True
    for table in tables:
        if table is not None and table.buffer is not None and not await jobs.owns_buffer(table.buffer):
            return False
    return job_id is None or await jobs.gave_tables_of(job_id)


async def may_have_results_of_rerun(jobs: JobService, job_id: str, body: RerunRequest) -> bool:
    """Return `may_have_results` of a rerun: a table that the request leaves out is the first job's."""
    if jobs.may_read:
        return True
    try:
        first = await jobs.get(job_id)
    except NotFound:
        return False
    given = {"source": body.source}
    if kind_of(first.service).reads_destination:
        given["destination"] = body.destination
    if first.control_digest is not None:
        given["control"] = body.control
    return None not in given.values() and await may_have_results(jobs, *given.values())


def check_may_write(with_results: bool) -> None:
    """Raise ScopeMissing if the caller may not have the destination that a request writes to a reference."""
    if not with_results:
        raise ScopeMissing(READ, _REFERENCE_MAY_BE_READABLE)
