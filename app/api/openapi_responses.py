"""OpenAPI declarations of responses: error statuses, tables and accepted jobs."""

from typing import Any

from app.api.problems import MEDIA_TYPE
from app.api.schemas import Job
from app.formats.media_types import ARROW_STREAM, CSV, JSON, PARQUET

_DESCRIPTIONS = {
    400: "The request cannot be understood.",
    401: "The request has no credentials, or its API key or token is not valid.",
    403: "The key or token lacks the scope, or only the owner may make this call.",
    404: "No resource with that id is visible to the caller.",
    408: "The body was sent too slowly.",
    406: "None of the offered media types is acceptable.",
    410: "The resource has expired.",
    409: "The request conflicts with the current state of the resource.",
    412: "The rows do not match `If-Match`.",
    413: "The body is larger than the limit of this operation.",
    415: "The body has a media type that this operation does not support.",
    422: "The request is invalid; `errors` lists each error with its location.",
    429: "The caller has reached a limit on requests, active jobs or stored buffers.",
    500: "Internal error of the service.",
    507: "The service has no storage space left.",
    503: "The service is temporarily unavailable.",
}

_RETRY_AFTER = {"schema": {"type": "integer"}, "description": "Seconds to wait."}

_HEADERS = {
    429: {
        "Retry-After": _RETRY_AFTER,
        "RateLimit-Policy": {
            "schema": {"type": "string"},
            "description": 'The limit, such as `"jobs";q=1000`.',
        },
        "RateLimit": {
            "schema": {"type": "string"},
            "description": 'Remaining quota, and seconds after which to retry, such as `"jobs";r=0;t=5`.',
        },
    },
    503: {"Retry-After": _RETRY_AFTER},
}
"""Headers of problem documents: status -> name -> header."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI responses for these statuses, each a problem document."""
    schema = {"$ref": "#/components/schemas/Problem"}
    described: dict[int | str, dict[str, Any]] = {
        status: {"description": _DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in (*statuses, 500)
    }
    for status, headers in _HEADERS.items():
        if status in described:
            described[status]["headers"] = headers
    return described


FILE_SCHEMA = {"type": "string", "format": "binary"}
"""Schema of a body that is a file.

OpenAPI 3.1 has `contentMediaType` for it, but client generators make a file of `format: binary` alone.
"""

TABLE_FILES: dict[str, dict[str, Any]] = {
    media_type: {"schema": FILE_SCHEMA} for media_type in (ARROW_STREAM, PARQUET, CSV)
}
"""Content of a body that is a table in a file. Swagger UI offers the first type by default."""


def rows_content(description: str) -> dict[int | str, dict[str, Any]]:
    """Return the 200 response of an operation that returns a table in the type requested by Accept."""
    content = {JSON: {"schema": {"$ref": "#/components/schemas/Rows"}}, **TABLE_FILES}
    return {
        200: {
            "description": description,
            "content": content,
            "headers": {
                "ETag": {
                    "schema": {"type": "string"},
                    "description": "Identifies these rows in this media type.",
                }
            },
        },
        304: {"description": "Not modified: the rows match `If-None-Match`."},
    }


def _header(description: str) -> dict[str, Any]:
    return {"schema": {"type": "string"}, "description": description}


_KEY_EXPIRES = _header("Time at which the idempotency key expires, if one was sent.")

_JOB_HEADERS = {
    "Location": _header("URL of the job."),
    "Idempotency-Key-Expires": _KEY_EXPIRES,
    "Preference-Applied": _header("The preferences of `Prefer` that were applied, if any."),
}


def accepted() -> dict[int | str, dict[str, Any]]:
    """Return the headers of 200, and the 202 response, of an operation that creates a job."""
    return {
        200: {"headers": _JOB_HEADERS},
        202: {
            "model": Job,
            "description": "The job has not ended yet; poll it at `Location`.",
            "headers": {**_JOB_HEADERS, "Retry-After": _RETRY_AFTER},
        },
    }


def stored() -> dict[int | str, dict[str, Any]]:
    """Return the headers of 201 of an operation that creates a buffer."""
    headers = {"Location": _header("URL of the buffer."), "Idempotency-Key-Expires": _KEY_EXPIRES}
    return {201: {"headers": headers}}


def listed() -> dict[int | str, dict[str, Any]]:
    """Return the header of 200 of an operation that lists resources."""
    return {200: {"headers": {"Link": _header('URL of the next page (`rel="next"`), if there is one.')}}}
