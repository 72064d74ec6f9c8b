"""What operations answer besides success, said once for the OpenAPI document."""

from typing import Any

from app.api.formats import ARROW_STREAM, JSON
from app.api.problems import MEDIA_TYPE
from app.api.schemas import Job

_DESCRIPTIONS = {
    400: "The request cannot be understood.",
    401: "The caller did not say who it is, or its key or token is not good.",
    403: "The key or token lacks the scope, or only who made it may do this.",
    404: "There is nothing of that name that the caller may know of.",
    406: "None of the media types offered is acceptable.",
    410: "It was there, and its time is over.",
    409: "The request does not fit the state of the thing it is about.",
    413: "The body is larger than this operation takes.",
    415: "The body is of a type this operation does not take.",
    422: "Something in the request is not right; `errors` says what and where.",
    429: "The caller has as much going, or keeps as much, as one caller may.",
    500: "The service failed.",
    507: "The service has no room for it.",
    503: "The service cannot do it just now.",
}

_LIMIT_HEADERS = {
    "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."},
    "RateLimit-Policy": {"schema": {"type": "string"}, "description": 'The limit, such as `"jobs";q=1000`.'},
    "RateLimit": {
        "schema": {"type": "string"},
        "description": 'What is left of it, and in how many seconds to look again, such as `"jobs";r=0;t=5`.',
    },
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for these statuses, each a problem document."""
    schema = {"$ref": "#/components/schemas/Problem"}
    described: dict[int | str, dict[str, Any]] = {
        status: {"description": _DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in (*statuses, 500)
    }
    if 429 in described:
        described[429]["headers"] = _LIMIT_HEADERS
    return described


def rows_content(description: str) -> dict[int | str, dict[str, Any]]:
    """The 200 of an operation that answers a table in the type that Accept asks for.

    One binary type stands in the document, since client generators take the last of several.
    """
    content = {
        JSON: {"schema": {"$ref": "#/components/schemas/Rows"}},
        ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}},
    }
    return {
        200: {
            "description": description,
            "content": content,
            "headers": {
                "ETag": {"schema": {"type": "string"}, "description": "Names these rows in this type."}
            },
        },
        304: {"description": "The caller has the rows already, as `If-None-Match` says."},
    }


def accepted() -> dict[int | str, dict[str, Any]]:
    """The 202 of an operation that makes a job."""
    return {
        202: {
            "model": Job,
            "description": "The job goes on; see it at `Location`.",
            "headers": {
                "Location": {"schema": {"type": "string"}, "description": "The job."},
                "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."},
                "Idempotency-Key-Expires": {
                    "schema": {"type": "string"},
                    "description": "Until when the key stands for this job, where one was sent.",
                },
            },
        }
    }
