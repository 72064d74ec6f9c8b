"""Submission options in the body of a request: name, label, notes, priority, deadline and webhook."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.jobs.requests import Priority
from app.requests.annotations import AnnotationsBody
from app.webhooks.addresses import MOST_CHARACTERS
from app.webhooks.messages import SecretUnusable, key_of_secret
from providers.params import StrictModel

_LONGEST_SECONDS = 30 * 24 * 3600.0


class WebhookRequest(StrictModel):
    """Webhook to notify when the job has ended.

    The notification is a POST as in Standard Webhooks, with the outcome and no table value.
    """

    url: str = Field(max_length=MOST_CHARACTERS, examples=["https://hooks.example.com/rowveil"])
    """Public `https` URL. Redirects are not followed."""
    secret: str = Field(max_length=200, examples=["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"])
    """Secret chosen by the caller: `whsec_` and 24 to 64 random bytes in base64. It signs the messages, is
    stored sealed and is never shown."""

    @field_validator("secret")
    @classmethod
    def _can_be_signed_with(cls, secret: str) -> str:
        try:
            key_of_secret(secret)
        except SecretUnusable as error:
            raise PydanticCustomError("webhook_secret", "{reason}", {"reason": str(error)}) from None
        return secret


class SubmissionBody(AnnotationsBody):
    """Submission options in the body of every request that creates a job."""

    priority: Priority = "normal"
    """Scheduling priority. Callers take turns within a priority; a priority gets several turns for each turn
    of the next lower one. No job waits forever. `high` needs the scope `priority:high`."""
    deadline_seconds: Annotated[float, Field(gt=0, le=_LONGEST_SECONDS)] | SkipJsonSchema[None] = Field(
        default=None, examples=[600]
    )
    """Seconds after acceptance by which the job must have ended. After that it fails with
    `deadline_exceeded`, whether it is queued or running. [more than 0, at most 30 days]"""
    webhook: WebhookRequest | SkipJsonSchema[None] = None
    """Webhook to notify when the job has ended."""
