"""What was made under an idempotency key, for as long as the key stands.

A key is its owner's alone. It is kept in the transaction that makes what it stands for, so there is no
key without its job or buffer, and none that a request which never ended has left behind.
"""

from datetime import datetime, timedelta

from app.errors import IdempotencyKeyReused
from app.jobs.terms import Terms
from app.store import idempotency
from app.store.db import Session
from app.store.models import IdempotencyKey
from app.store.seal import Sealer


class MadeBefore(Exception):
    """A request under the same key was first, by a moment."""


class Idempotency:
    """Finds and keeps keys within the caller's transaction."""

    def __init__(self, sealer: Sealer, seconds: float) -> None:
        """``seconds``: how long a key stands."""
        self._sealer = sealer
        self._time = timedelta(seconds=seconds)

    def resource(self, session: Session, owner: str, terms: Terms, moment: datetime) -> str | None:
        """The id of what was made under the key; None where nothing was, or no key is given.

        Raises IdempotencyKeyReused (by another request).
        """
        if terms.idempotency_key is None:
            return None
        known = idempotency.find(session, owner, terms.idempotency_key, moment)
        if known is None:
            return None
        if known.fingerprint != self._fingerprint(terms):
            raise IdempotencyKeyReused(
                "this Idempotency-Key came with another request before; a new request needs a new key"
            )
        return known.resource

    def is_known(self, session: Session, owner: str, terms: Terms, moment: datetime) -> bool:
        """Whether something was made under the key, by whatever request."""
        key = terms.idempotency_key
        return key is not None and idempotency.find(session, owner, key, moment) is not None

    def keep(self, session: Session, owner: str, terms: Terms, resource: str, moment: datetime) -> None:
        """Keep what was made; the owner's row is locked by now."""
        if terms.idempotency_key is None:
            return
        key = IdempotencyKey(
            owner=owner,
            key=terms.idempotency_key,
            fingerprint=self._fingerprint(terms),
            resource=resource,
            expires_at=moment + self._time,
        )
        idempotency.keep(session, key)

    def _fingerprint(self, terms: Terms) -> str:
        return self._sealer.request_fingerprint((terms.request_fingerprint or "").encode())
