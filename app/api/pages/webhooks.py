"""Webhooks of the OpenAPI document: the message that the service posts when a job has ended."""

from datetime import datetime
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import SkipJsonSchema

from app.api.report_schemas import ResponseModel

_REFERENCE = "#/components/schemas/{model}"


class JobEnd(ResponseModel):
    """End of a job, without a value, a field name, a seed or an error: request the job for these."""

    job: str
    """Id of the job."""
    service: str
    """Identifier of the service; `measures`, `frontier` or `attacks` for a job that runs none."""
    state: Literal["succeeded", "failed", "cancelled"]
    outcome: Literal["SUCCESS", "SUCCESS_WITH_INFO", "FAILURE"] | SkipJsonSchema[None] = None
    finished_at: datetime


class WebhookMessage(ResponseModel):
    """Message that is posted to the webhook of a job when the job has ended (Standard Webhooks 1.0)."""

    type: Literal["job.succeeded", "job.failed", "job.cancelled"]
    timestamp: datetime
    """Time at which the job ended."""
    data: JobEnd


EXAMPLE = {
    "type": "job.succeeded",
    "timestamp": "2026-11-24T10:00:03.250000+00:00",
    "data": {
        "job": "00000000-0000-7000-8000-000000000001",
        "service": "CDSWAP",
        "state": "succeeded",
        "outcome": "SUCCESS",
        "finished_at": "2026-11-24T10:00:03.250000+00:00",
    },
}

_HEADERS = {
    "webhook-id": (
        "Identifier of the message, the same at every attempt. Ignore a message that was processed before.",
        "msg_00000000-0000-7000-8000-000000000003",
    ),
    "webhook-timestamp": (
        "Time of the attempt in seconds since 1970. Refuse a time that is minutes off.",
        "1795514403",
    ),
    "webhook-signature": (
        "`v1,` and, in base64, the HMAC-SHA256 of `webhook-id.webhook-timestamp.body` under the bytes of the "
        "secret, which is the base64 part of `whsec_...`. Compare it in constant time.",
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
    ),
}

_ANSWERS = {
    "2XX": "The message is delivered.",
    "410": "The receiver is gone: the message is given up at once.",
    "4XX": "The message is sent again later, as after a 5xx or without a response.",
}


def webhooks(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the webhooks of the document, and add their models to ``schemas``."""
    for model in (WebhookMessage, JobEnd):
        schema = TypeAdapter(model).json_schema(ref_template=_REFERENCE)
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    parameters = [
        {
            "name": name,
            "in": "header",
            "required": True,
            "description": description,
            "schema": {"type": "string"},
            "example": example,
        }
        for name, (description, example) in _HEADERS.items()
    ]
    message = {"$ref": _REFERENCE.format(model=WebhookMessage.__name__)}
    operation = {
        "operationId": "jobEnded",
        "tags": ["webhooks"],
        "summary": "Receive the end of a job",
        "description": "The service posts this to the `webhook` of a call when its job has ended, at least "
        "once, until a 2xx confirms it. The order of messages is not defined.",
        "security": [],
        "x-internal": True,  # OpenAPI Generator makes no class that callers would call: the service does
        "parameters": parameters,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": message, "example": EXAMPLE}},
        },
        "responses": {status: {"description": meaning} for status, meaning in _ANSWERS.items()},
    }
    return {"jobEnded": {"post": operation}}
