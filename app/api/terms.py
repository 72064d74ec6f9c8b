"""On what terms a call asks for something: its caller, its headers, and the part of its body that says so."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Annotated

from fastapi import Depends, Request
from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.api.context import ServiceSettings
from app.api.prefer import IdempotencyKey
from app.api.requests import fingerprint
from app.errors import InvalidRequest
from app.jobs.deliver import reach_of
from app.jobs.terms import Priority, Terms, Webhook
from app.jobs.webhook_addresses import MOST_CHARACTERS, AddressRefused
from app.jobs.webhooks import SecretUnusable, key_of_secret
from app.settings import Settings
from app.telemetry.tracing import current_parent
from providers.params import StrictModel

_LONGEST_SECONDS = 30 * 24 * 3600.0

KEY_EXPIRES = "Idempotency-Key-Expires"


class WebhookRequest(StrictModel):
    """Whom to tell when the job has ended: a POST by Standard Webhooks, which says how, and no value."""

    url: str = Field(max_length=MOST_CHARACTERS, examples=["https://hooks.example.com/rowveil"])
    """A public `https` address. Redirects are not followed."""
    secret: str = Field(max_length=200, examples=["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"])
    """Of your own making: `whsec_` and 24 to 64 random bytes in base64. Messages are signed with it; it is
    kept sealed, and never shown."""

    @field_validator("secret")
    @classmethod
    def _can_be_signed_with(cls, secret: str) -> str:
        try:
            key_of_secret(secret)
        except SecretUnusable as error:
            raise PydanticCustomError("webhook_secret", "{reason}", {"reason": str(error)}) from None
        return secret


class JobTerms(StrictModel):
    """What every call that makes a job may say of it besides."""

    priority: Priority = "normal"
    """A job of higher priority is started as if it had come some minutes earlier; none waits for ever."""
    deadline_seconds: Annotated[float, Field(gt=0, le=_LONGEST_SECONDS)] | SkipJsonSchema[None] = Field(
        default=None, examples=[600]
    )
    """A job that has not ended so many seconds after its acceptance fails with `deadline_exceeded`, whether
    it is queued or runs. [more than 0, at most 30 days]"""
    webhook: WebhookRequest | SkipJsonSchema[None] = None
    """Whom to tell when it has ended."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One call that makes something."""

    request: Request
    settings: Settings
    idempotency_key: str | None

    async def terms(self, body: JobTerms) -> Terms:
        """Those of a job. Raises InvalidRequest: the webhook's address may not be reached."""
        webhook = None
        if body.webhook is not None:
            try:
                reach_of(self.settings).check_url(body.webhook.url)
            except AddressRefused as error:
                raise InvalidRequest(str(error), "/webhook/url") from None
            webhook = Webhook(body.webhook.url, body.webhook.secret)
        return Terms(
            idempotency_key=self.idempotency_key,
            request_fingerprint=await fingerprint(self.request) if self.idempotency_key else None,
            priority=body.priority,
            deadline_seconds=body.deadline_seconds,
            webhook=webhook,
            trace_parent=current_parent(),
        )

    def upload_terms(self) -> Terms:
        """Those of an upload; its bytes are added to the fingerprint as they come."""
        url = self.request.url
        coding = self.request.headers.get("content-encoding", "")
        called = "\0".join((url.path, url.query, coding))
        return Terms(self.idempotency_key, called)

    def headers(self, made_at: datetime) -> dict[str, str]:
        """Until when the key stands for what was made then, where there is a key."""
        if self.idempotency_key is None:
            return {}
        until = made_at + timedelta(seconds=self.settings.idempotency_ttl)
        return {KEY_EXPIRES: format_datetime(until.astimezone(UTC), usegmt=True)}


async def _asking(
    request: Request, settings: ServiceSettings, idempotency_key: IdempotencyKey = None
) -> Asking:
    return Asking(request, settings, idempotency_key)


CallTerms = Annotated[Asking, Depends(_asking)]
