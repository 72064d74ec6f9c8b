"""Idempotency keys and the jobs or buffers made under them, until the keys expire.

Each owner has separate keys. A key is stored in the transaction that creates its job or buffer. So no key
exists without its resource, and an aborted request leaves no key behind.
"""

from datetime import datetime, timedelta

from app.errors import IdempotencyKeyReused
from app.jobs.requests import SubmissionOptions
from app.store.crypto.sealing import Sealer
from app.store.sql import idempotency
from app.store.sql.db import Transaction
from app.store.sql.models import IdempotencyKey

REUSED = "this Idempotency-Key was used for another request; a new request needs a new key"


class Idempotency:
    """Finds and stores keys within the caller's transaction."""

    def __init__(self, sealer: Sealer, seconds: float) -> None:
        """Keep each key for ``seconds``."""
        self._sealer = sealer
        self._lifetime = timedelta(seconds=seconds)

    def resource(
        self, session: Transaction, owner: str, submission: SubmissionOptions, moment: datetime
    ) -> str | None:
        """Return the id of the job or buffer made under the key; None if there is none, or no key is given.

        Raises IdempotencyKeyReused (a different request used the key).
        """
        if submission.idempotency_key is None:
            return None
        known = idempotency.find(session, owner, submission.idempotency_key, moment)
        if known is None:
            return None
        if known.fingerprint != self._fingerprint(submission):
            raise IdempotencyKeyReused(REUSED)
        return known.resource

    def resource_of_any_request(
        self, session: Transaction, owner: str, submission: SubmissionOptions, moment: datetime
    ) -> str | None:
        """Return the id of the job or buffer made under the key, also by a different request."""
        key = submission.idempotency_key
        known = None if key is None else idempotency.find(session, owner, key, moment)
        return None if known is None else known.resource

    def keep(
        self, session: Transaction, owner: str, submission: SubmissionOptions, resource: str, moment: datetime
    ) -> None:
        """Store the key with the resource made under it. The caller holds the owner's lock."""
        if submission.idempotency_key is None:
            return
        key = IdempotencyKey(
            owner=owner,
            key=submission.idempotency_key,
            fingerprint=self._fingerprint(submission),
            resource=resource,
            expires_at=moment + self._lifetime,
        )
        idempotency.keep(session, key)

    def _fingerprint(self, submission: SubmissionOptions) -> str:
        return self._sealer.request_fingerprint((submission.request_fingerprint or "").encode())
