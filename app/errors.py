"""What the service answers when it cannot do what was asked (RFC 9457 problem details).

The status sits on the error; `app.api.problems` renders every one of them in one place. Arguments
are positional, so that an error survives the way back from another process.
"""

import errno
from typing import Any, ClassVar

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a storage that is full."""


class AppError(Exception):
    """Something the caller must be told."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Internal error"

    def __init__(self, message: str, pointer: str = "") -> None:
        """``message``: what is wrong, where, and what would be right; never a value of a row.

        ``pointer``: JSON pointer into the request body, empty where no part of it is at fault.
        """
        super().__init__(message, pointer)
        self.message = message
        self.pointer = pointer

    def headers(self) -> dict[str, str]:
        """Response headers that belong to the error."""
        return {}

    def problem(self) -> dict[str, Any]:
        """The problem document, without its ``instance``."""
        document: dict[str, Any] = {
            "type": f"urn:rowveil:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.message,
            "code": self.code,
        }
        if self.pointer:
            document["errors"] = [{"pointer": self.pointer, "message": self.message}]
        return document


class BadRequest(AppError):
    """The request cannot be understood at all."""

    status = 400
    code = "bad_request"
    title = "Bad request"


class Unauthenticated(AppError):
    """The caller did not say who it is, or not so that it can be believed."""

    status = 401
    code = "unauthenticated"
    title = "Not authenticated"

    def headers(self) -> dict[str, str]:
        """What to send (RFC 6750, section 3)."""
        return {"WWW-Authenticate": 'Bearer realm="rowveil"'}


class InvalidToken(Unauthenticated):
    """What the caller showed is no key or token of this service, or not any more."""

    code = "invalid_token"

    def headers(self) -> dict[str, str]:
        """That it was looked at, and is not good."""
        return {"WWW-Authenticate": 'Bearer realm="rowveil", error="invalid_token"'}


class Forbidden(AppError):
    """The caller is known, and may not do this."""

    status = 403
    code = "forbidden"
    title = "Forbidden"


class ScopeMissing(Forbidden):
    """The caller's key or token lacks the scope for it."""

    code = "insufficient_scope"

    def __init__(self, scope: str) -> None:
        super().__init__(f"this needs the scope '{scope}', which your key or token does not have")
        self.args = (scope,)
        self.scope = scope

    def headers(self) -> dict[str, str]:
        """Which scope it would take."""
        challenge = f'Bearer realm="rowveil", error="insufficient_scope", scope="{self.scope}"'
        return {"WWW-Authenticate": challenge}


class NotFound(AppError):
    """There is nothing of that name (or not for this caller)."""

    status = 404
    code = "not_found"
    title = "Not found"


class NotAcceptable(AppError):
    """None of the offered media types is acceptable."""

    status = 406
    code = "not_acceptable"
    title = "Not acceptable"


class Conflict(AppError):
    """The request does not fit the state of the thing it is about."""

    status = 409
    code = "conflict"
    title = "Conflict"


class TooLarge(AppError):
    """The body is larger than the service takes."""

    status = 413
    code = "content_too_large"
    title = "Content too large"


class UnsupportedMediaType(AppError):
    """The body is of a type this operation does not take."""

    status = 415
    code = "unsupported_media_type"
    title = "Unsupported media type"


class UnsupportedCoding(UnsupportedMediaType):
    """The body comes in a content coding that this operation does not decode."""

    def headers(self) -> dict[str, str]:
        """Which it does (RFC 9110, section 15.5.16)."""
        return {"Accept-Encoding": "gzip, identity"}


class InvalidRequest(AppError):
    """The request is well formed, but something in it is not right."""

    status = 422
    code = "invalid_request"
    title = "Invalid request"


class Unavailable(AppError):
    """The service cannot do it just now; trying again may help."""

    status = 503
    code = "unavailable"
    title = "Service unavailable"

    def headers(self) -> dict[str, str]:
        """When to try again."""
        return {"Retry-After": "5"}


class StorageFull(AppError):
    """There is no room for what was sent."""

    status = 507
    code = "storage_full"
    title = "Insufficient storage"


def storage_error(error: OSError) -> AppError:
    """What the caller is told of a storage that does not take something."""
    if error.errno in NO_ROOM:
        return StorageFull("the storage is full; delete buffers and jobs, or try again later")
    return Unavailable("the storage does not work just now; try again")


class StateConflict(Conflict):
    """The job's state does not allow it."""

    code = "state_conflict"


class Gone(AppError):
    """It was there, and its time is over."""

    status = 410
    code = "gone"
    title = "Gone"


class IdempotencyKeyReused(InvalidRequest):
    """An idempotency key came with another request than the first time."""

    code = "idempotency_key_reused"


class MemoryLimit(TooLarge):
    """It needed more memory than a worker may take."""

    code = "memory_limit"
    title = "Too large for a worker's memory"


class TimeLimit(Unavailable):
    """It ran longer than a job may."""

    code = "time_limit"
    title = "Time limit reached"


class DeadlineExceeded(AppError):
    """The job's own deadline passed before it had ended."""

    status = 504
    code = "deadline_exceeded"
    title = "Deadline exceeded"


class LimitReached(AppError):
    """The caller has as much going, or keeps as much, as one caller may."""

    status = 429
    code = "limit_reached"
    title = "Too many requests"

    def __init__(
        self, message: str, policy: str = "", quota: int = 0, left: int = 0, seconds: int = 1
    ) -> None:
        """``policy``: the limit's name; ``left`` of ``quota``; ``seconds``: when to try again."""
        super().__init__(message)
        self.args = (message, policy, quota, left, seconds)
        self.policy = policy
        self.quota = quota
        self.left = left
        self.seconds = seconds

    def headers(self) -> dict[str, str]:
        """As draft-ietf-httpapi-ratelimit-headers-10 has them."""
        return {
            "Retry-After": str(self.seconds),
            "RateLimit-Policy": f'"{self.policy}";q={self.quota}',
            "RateLimit": f'"{self.policy}";r={self.left};t={self.seconds}',
        }


class WorkerDied(Unavailable):
    """The worker process ended before the work did."""

    code = "worker_died"
    title = "The worker died"


class ReferenceUnavailable(Unavailable):
    """The storage that a reference names does not answer, or fails."""

    code = "reference_unavailable"
    title = "The storage of a reference is not available"


class DestinationNotSent(AppError):
    """The destination was made, and could not be put where its reference says."""

    status = 502
    code = "destination_not_sent"
    title = "The destination was not written"


class AttemptsExhausted(AppError):
    """The service itself ended too often while it was worked on."""

    code = "attempts_exhausted"
    title = "Given up"
