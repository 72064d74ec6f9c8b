"""Map a task's failure to the error that its caller gets and to the problem document of its job."""

import logging
from typing import Any

from app.engine.engine import (
    ATTEMPTS_EXHAUSTED,
    BLOB_MISSING,
    CANCELLED,
    CLUSTER_LOST,
    DEADLINE_EXCEEDED,
    JOB_ALTERED,
    MEMORY_LIMIT,
    NOT_SENT,
    RELEASED_BEFORE,
    REVISION_GONE,
    STORAGE_AWAY,
    STORAGE_FULL,
    TIME_LIMIT,
    TOO_LARGE,
    WORKER_DIED,
    WORKER_LOST,
    Failure,
)
from app.errors import (
    AppError,
    AttemptsExhausted,
    DeadlineExceeded,
    DestinationNotSent,
    JobAltered,
    MemoryLimit,
    NotFound,
    ReleasedBefore,
    RevisionGone,
    StorageFull,
    TimeLimit,
    TooLarge,
    Unavailable,
    WorkerDied,
    invalid_request_problem,
)
from providers.errors import ParameterError, ProviderError, ReversibleError, SourceError, UnswappableError

_log = logging.getLogger("rowveil.jobs")

_APP_ERRORS: dict[str, type[AppError]] = {
    MEMORY_LIMIT: MemoryLimit,
    TOO_LARGE: TooLarge,
    STORAGE_FULL: StorageFull,
    STORAGE_AWAY: Unavailable,
    TIME_LIMIT: TimeLimit,
    WORKER_DIED: WorkerDied,
    WORKER_LOST: WorkerDied,
    CLUSTER_LOST: WorkerDied,
    CANCELLED: Unavailable,
    NOT_SENT: DestinationNotSent,
    ATTEMPTS_EXHAUSTED: AttemptsExhausted,
    DEADLINE_EXCEEDED: DeadlineExceeded,
    REVISION_GONE: RevisionGone,
    JOB_ALTERED: JobAltered,
    RELEASED_BEFORE: ReleasedBefore,
}

_PROVIDER_ERRORS: dict[str, type[ProviderError]] = {
    kind.code: kind
    for kind in (ProviderError, ParameterError, ReversibleError, SourceError, UnswappableError)
}


def error_of(failure: Failure) -> AppError | ProviderError:
    """Return the error of a failed task."""
    if failure.code in _PROVIDER_ERRORS:
        return _PROVIDER_ERRORS[failure.code](failure.message, failure.pointer)
    return _APP_ERRORS.get(failure.code, AppError)(failure.message, failure.pointer)


def request_error(failure: Failure, missing: AppError | None = None) -> AppError | ProviderError:
    """Return the error to raise for a task that a request waits for; log an unexpected failure.

    ``missing``: error to raise if a table was deleted before the task had read it.
    """
    if failure.code == BLOB_MISSING and missing is not None:
        return missing
    error = error_of(failure)
    if type(error) is not AppError:
        return error
    _log.error("a task of the request failed: %s", " < ".join(failure.trace) or failure.code)
    return AppError("the service failed at this request; its log has the cause under the request's id")


def problem_of(failure: Failure) -> dict[str, Any]:
    """Return the problem document (RFC 9457) of a job that failed."""
    error = error_of(failure)
    if isinstance(error, ProviderError):
        return invalid_request_problem(error.message, error.pointer, error.code)
    return error.problem()


def rows_gone() -> NotFound:
    """Return the error of a table that was deleted after its row had been read."""
    return NotFound("the rows were deleted or have expired just now")
