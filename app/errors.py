"""Errors of the service as HTTP problem details (RFC 9457).

Each error class has its status; `app.api.problems` renders all of them. Arguments are positional, so that
an error can be pickled on its way back from another process.
"""

import errno
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from providers.errors import ProviderError, SourceError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers that mean that a storage is full."""


def problem_type(code: str) -> str:
    """Return the URI of a problem's type. Code and type always agree."""
    return f"urn:rowveil:problem:{code}"


class AppError(Exception):
    """Error whose message is meant for the caller."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Internal error"

    def __init__(self, message: str, pointer: str = "") -> None:
        """``message``: the error, its place and the remedy; never a value of a row.

        ``pointer``: JSON pointer into the request body, empty if the error is not in the body.
        """
        super().__init__(message, pointer)
        self.message = message
        self.pointer = pointer

    def headers(self) -> dict[str, str]:
        """Return the response headers of the error."""
        return {}

    def problem(self) -> dict[str, Any]:
        """Return the problem document, without its ``instance``."""
        document: dict[str, Any] = {
            "type": problem_type(self.code),
            "title": self.title,
            "status": self.status,
            "detail": self.message,
            "code": self.code,
        }
        if self.pointer:
            document["errors"] = [{"pointer": self.pointer, "message": self.message}]
        return document


class BadRequest(AppError):
    """The request cannot be understood."""

    status = 400
    code = "bad_request"
    title = "Bad request"


class DigestMismatch(BadRequest):
    """The content of the request is not the one whose digest the request states (RFC 9530)."""

    code = "digest_mismatch"
    title = "Digest does not match the content"


class Unauthenticated(AppError):
    """The request has no credentials, or they cannot be read."""

    status = 401
    code = "unauthenticated"
    title = "Not authenticated"

    def headers(self) -> dict[str, str]:
        """Return the challenge (RFC 6750, section 3)."""
        return {"WWW-Authenticate": 'Bearer realm="rowveil"'}


class InvalidToken(Unauthenticated):
    """The API key or token is unknown, expired or revoked."""

    code = "invalid_token"

    def headers(self) -> dict[str, str]:
        """Return the challenge for a credential that was checked and rejected."""
        return {"WWW-Authenticate": 'Bearer realm="rowveil", error="invalid_token"'}


class Forbidden(AppError):
    """The caller is authenticated, but not allowed to do this."""

    status = 403
    code = "forbidden"
    title = "Forbidden"


class ScopeMissing(Forbidden):
    """The caller's key or token lacks the required scope."""

    code = "insufficient_scope"

    def __init__(self, scope: str, reason: str = "") -> None:
        """``reason``: what needs the scope, if the operation needs it only in some cases."""
        message = f"this needs the scope '{scope}', which your key or token does not have"
        super().__init__(f"{message}: {reason}" if reason else message)
        self.args = (scope, reason)
        self.scope = scope

    def headers(self) -> dict[str, str]:
        """Return the challenge with the required scope."""
        challenge = f'Bearer realm="rowveil", error="insufficient_scope", scope="{self.scope}"'
        return {"WWW-Authenticate": challenge}


class NotFound(AppError):
    """The resource does not exist, or is not visible to this caller."""

    status = 404
    code = "not_found"
    title = "Not found"


def job_not_found(job_id: str) -> NotFound:
    """Return the error for a job that does not exist, or that the caller may not see."""
    return NotFound(f"there is no job '{job_id}'; a job is deleted at its expiry")


class MethodNotAllowed(AppError):
    """The resource exists, but does not have this method."""

    status = 405
    code = "method_not_allowed"
    title = "Method not allowed"


class NotAcceptable(AppError):
    """None of the offered media types is acceptable."""

    status = 406
    code = "not_acceptable"
    title = "Not acceptable"


class RequestTimeout(AppError):
    """The body was sent too slowly."""

    status = 408
    code = "request_timeout"
    title = "Request timeout"


class Conflict(AppError):
    """The request conflicts with the current state of the resource."""

    status = 409
    code = "conflict"
    title = "Conflict"


class PreconditionFailed(AppError):
    """The rows in this media type do not have an entity tag of `If-Match`."""

    status = 412
    code = "precondition_failed"
    title = "Precondition failed"


class TooLarge(AppError):
    """The body is larger than the limit."""

    status = 413
    code = "content_too_large"
    title = "Content too large"


class UnsupportedMediaType(AppError):
    """The body has a media type that this operation does not support."""

    status = 415
    code = "unsupported_media_type"
    title = "Unsupported media type"


class UnsupportedCoding(UnsupportedMediaType):
    """The body has a content encoding that this operation does not decode."""

    def headers(self) -> dict[str, str]:
        """List the supported content encodings (RFC 9110, section 15.5.16)."""
        return {"Accept-Encoding": "gzip, identity"}


class InvalidRequest(AppError):
    """The request is well formed, but invalid."""

    status = 422
    code = "invalid_request"
    title = "Invalid request"


class InvalidParameter(InvalidRequest):
    """A path, query or header parameter has an invalid value."""

    def __init__(self, message: str, parameter: str) -> None:
        """``message``: as of any error. ``parameter``: name of the parameter."""
        super().__init__(message)
        self.args = (message, parameter)
        self.parameter = parameter

    def problem(self) -> dict[str, Any]:
        """Return the problem document, which names the parameter."""
        return super().problem() | {"errors": [{"parameter": self.parameter, "message": self.message}]}


class InvalidFields(InvalidParameter):
    """The source table cannot be used as it is.

    Error of the parameter `fields` of an upload, with the code of `SourceError`.
    """

    code = SourceError.code


FRAMEWORK_ERRORS: dict[int, type[AppError]] = {
    kind.status: kind for kind in (NotFound, MethodNotAllowed, RequestTimeout, TooLarge)
}
"""Classes of errors that the HTTP framework raises, by status."""

E = TypeVar("E", type[AppError], type[ProviderError])


def problem_codes() -> list[str]:
    """Return the codes of all problem documents of this version, sorted."""
    return sorted({kind.code for kind in _kinds(AppError)} | {kind.code for kind in _kinds(ProviderError)})


def _kinds(kind: E) -> Iterator[E]:
    yield kind
    for special in kind.__subclasses__():
        yield from _kinds(special)


def invalid_request_problem(message: str, pointer: str, code: str) -> dict[str, Any]:
    """Return the problem document of an invalid request with a specific code, such as ``invalid_source``.

    A type of problem has one title (RFC 9457, section 3.1.3), also where a class of another status has it.
    """
    title = next((kind.title for kind in _kinds(AppError) if kind.code == code), InvalidRequest.title)
    return InvalidRequest(message, pointer).problem() | {
        "type": problem_type(code),
        "title": title,
        "code": code,
    }


class Unavailable(AppError):
    """The service is temporarily unavailable; a retry may succeed."""

    status = 503
    code = "unavailable"
    title = "Service unavailable"

    def headers(self) -> dict[str, str]:
        """Return the delay of a retry."""
        return {"Retry-After": "5"}


class StorageFull(AppError):
    """The storage has no space left for the data."""

    status = 507
    code = "storage_full"
    title = "Insufficient storage"


def storage_error(error: OSError) -> AppError:
    """Return the error for a storage that refuses a write."""
    if error.errno in NO_ROOM:
        return StorageFull("the storage is full; delete buffers and jobs, or try again later")
    return Unavailable("the storage is temporarily not available; try again")


class StateConflict(Conflict):
    """The state of the job does not allow the operation."""

    code = "state_conflict"


class Gone(AppError):
    """The resource existed and has expired."""

    status = 410
    code = "gone"
    title = "Gone"


class IdempotencyKeyReused(InvalidRequest):
    """An idempotency key was reused with a different request."""

    code = "idempotency_key_reused"

    def problem(self) -> dict[str, Any]:
        """Return the problem document, which names the header."""
        return super().problem() | {"errors": [{"parameter": "Idempotency-Key", "message": self.message}]}


class MemoryLimit(TooLarge):
    """The work needed more memory than a worker may use."""

    code = "memory_limit"
    title = "Too large for a worker's memory"


class TimeLimit(Unavailable):
    """The work ran longer than the time limit of a job."""

    code = "time_limit"
    title = "Time limit reached"

    def headers(self) -> dict[str, str]:
        """Return no delay of a retry, which would take as long, and clients retry by themselves."""
        return {}


class DeadlineExceeded(AppError):
    """The deadline of the job passed before it ended."""

    status = 504
    code = "deadline_exceeded"
    title = "Deadline exceeded"


class LimitReached(AppError):
    """The caller has reached a limit on active jobs, stored buffers or requests."""

    status = 429
    code = "limit_reached"
    title = "Too many requests"

    def __init__(
        self,
        message: str,
        policy: str,
        quota: int,
        left: int = 0,
        seconds: int = 1,
        window: int = 0,
        closes: bool = False,
    ) -> None:
        """``policy``: the limit's name; ``left`` of ``quota``; ``seconds``: delay of a retry.

        ``window``: seconds in which the whole quota returns; 0: it does not return by time. ``closes``:
        whether the connection is closed after the response.
        """
        super().__init__(message)
        self.args = (message, policy, quota, left, seconds, window, closes)
        self.policy = policy
        self.quota = quota
        self.left = left
        self.seconds = seconds
        self.window = window
        self.closes = closes

    def headers(self) -> dict[str, str]:
        """Return the headers of draft-ietf-httpapi-ratelimit-headers-10."""
        return {
            "Retry-After": str(self.seconds),
            "RateLimit-Policy": f'"{self.policy}";q={self.quota}'
            + (f";w={self.window}" if self.window else ""),
            "RateLimit": f'"{self.policy}";r={self.left};t={self.seconds}',
            **({"Connection": "close"} if self.closes else {}),
        }


class WorkerDied(Unavailable):
    """The worker process ended before its work was done."""

    code = "worker_died"
    title = "The worker died"


class ReferenceUnavailable(Unavailable):
    """The storage of a reference does not respond, or fails."""

    code = "reference_unavailable"
    title = "The storage of a reference is not available"


class DestinationNotSent(AppError):
    """The destination was computed, but could not be written to its reference."""

    status = 502
    code = "destination_not_sent"
    title = "The destination was not written"


class RevisionGone(AppError):
    """No running version has the revision that the job needs, and no other can take its place."""

    status = 409
    code = "revision_gone"
    title = "Revision gone"


class JobAltered(AppError):
    """The job's row was changed outside of the service after its acceptance, so that it did not run."""

    status = 500
    code = "job_altered"
    title = "Job altered"


class ReleasedBefore(AppError):
    """The source has been released before, and the policy of the project allows no other release."""

    status = 409
    code = "released_before"
    title = "Released before"


class AttemptsExhausted(AppError):
    """The service ended unexpectedly on every attempt to run the job."""

    code = "attempts_exhausted"
    title = "Given up"
