"""Submission options of a request: idempotency key, annotations, priority, deadline and webhook."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError

from app.api.content_encoding import content_encoding
from app.api.dependencies import ServiceSettings
from app.api.json_request import fingerprint, repeated_parameter
from app.api.request_headers import IdempotencyKey
from app.callers import HIGH_PRIORITY, Caller
from app.errors import InvalidRequest, ScopeMissing
from app.jobs.requests import SubmissionOptions
from app.requests.submission import SubmissionBody
from app.settings import Settings
from app.telemetry.tracing import current_parent
from app.webhooks.addresses import AddressRefused
from app.webhooks.delivery import reach_of
from app.webhooks.messages import Webhook

KEY_EXPIRES = "Idempotency-Key-Expires"


@dataclass(frozen=True, slots=True)
class Submission:
    """One request that creates a job or a buffer."""

    request: Request
    settings: Settings
    idempotency_key: str | None

    async def job_options(self, body: SubmissionBody) -> SubmissionOptions:
        """Return the submission options of a job.

        Raises
        ------
        InvalidRequest
            The webhook's address is not allowed.
        ScopeMissing
            The caller may not submit jobs of priority `high`.
        """
        caller: Caller = self.request.state.caller
        if body.priority == "high" and HIGH_PRIORITY not in caller.scopes:
            raise ScopeMissing(HIGH_PRIORITY)
        webhook = None
        if body.webhook is not None:
            try:
                reach_of(self.settings).check_url(body.webhook.url)
            except AddressRefused as error:
                raise InvalidRequest(str(error), "/webhook/url") from None
            webhook = Webhook(body.webhook.url, body.webhook.secret)
        return SubmissionOptions(
            idempotency_key=self.idempotency_key,
            request_fingerprint=await self._fingerprint(),
            priority=body.priority,
            deadline_seconds=body.deadline_seconds,
            webhook=webhook,
            annotations=body.annotations,
            trace_parent=current_parent(),
        )

    async def copy_options(self) -> SubmissionOptions:
        """Return the options of a request to copy a buffer."""
        return SubmissionOptions(self.idempotency_key, await self._fingerprint())

    async def _fingerprint(self) -> str | None:
        return await fingerprint(self.request) if self.idempotency_key else None

    def upload_options(self) -> SubmissionOptions:
        """Return the options of an upload; its bytes are added to the fingerprint as they arrive."""
        url = self.request.url
        encoding = content_encoding(self.request)
        request_line = "\0".join((url.path, url.query, encoding or ""))
        return SubmissionOptions(self.idempotency_key, request_line)

    def headers(self, created_at: datetime) -> dict[str, str]:
        """Return the header with the expiry of the idempotency key; no header without a key."""
        if self.idempotency_key is None:
            return {}
        expires_at = created_at + timedelta(seconds=self.settings.idempotency_ttl)
        return {KEY_EXPIRES: format_datetime(expires_at.astimezone(UTC), usegmt=True)}


async def _submission(
    request: Request, settings: ServiceSettings, idempotency_key: IdempotencyKey = None
) -> Submission:
    if (count := len(request.headers.getlist("idempotency-key"))) > 1:
        raise RequestValidationError([repeated_parameter("header", "Idempotency-Key", count)])
    return Submission(request, settings, idempotency_key)


RequestSubmission = Annotated[Submission, Depends(_submission)]
