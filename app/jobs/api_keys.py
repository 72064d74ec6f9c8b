"""API keys: how one is made, what it looks like, and who it says is calling.

A key is ``rv_<id, 10>_<secret, 43><checksum, 6>``, each part in base 62: a secret scanner finds it
by ``rv_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}`` and needs no database to tell it from a random word by its
checksum, nor does the service to refuse one that was mistyped.

Kept is an HMAC-SHA256 over the key and what it allows. A password's hash is slow because passwords
can be guessed; of 256 random bits nobody guesses one, so a fast hash protects them as well and costs
every call nothing. Whoever reads the table cannot call; whoever writes to it can neither add a key
nor give one more than it had, since the HMAC's key is kept sealed.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from app.callers import RESERVED, SCOPES, Caller
from app.errors import InvalidRequest
from app.store import identities
from app.store.audit import AuditTrail
from app.store.canonical import canonical_json
from app.store.db import Database
from app.store.keys import subkey
from app.store.models import ApiKey
from app.store.replicas import moment
from providers.errors import did_you_mean

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(r"rv_([0-9A-Za-z]{10})_[0-9A-Za-z]{43}[0-9A-Za-z]{6}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_USE_IS_NOTED = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class NewKey:
    """What is asked for. Raises InvalidRequest."""

    name: str
    scopes: Collection[str]
    project: str | None
    lasts: timedelta

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in RESERVED:
            raise InvalidRequest(
                "a key's name is 1 to 64 letters, digits and . _ @ -, starts with a letter or a digit, "
                f"and is none of {', '.join(RESERVED)}"
            )
        if self.project is not None and not _NAME.fullmatch(self.project):
            raise InvalidRequest("a project's name is 1 to 64 letters, digits and . _ @ -")
        for scope in self.scopes:
            if scope not in SCOPES:
                raise InvalidRequest(f"unknown scope '{scope}'{did_you_mean(scope, SCOPES)}")
        if not self.scopes:
            raise InvalidRequest(f"a key has at least one scope of {', '.join(SCOPES)}")
        if self.lasts <= timedelta():
            raise InvalidRequest("a key must last a while")


class ApiKeys:
    """The keys that there are. Blocking: called in a thread."""

    def __init__(self, database: Database, audit: AuditTrail) -> None:
        self._database = database
        self._audit = audit
        self._mac_key = subkey(audit.key, "api-keys/1")

    def create(self, new: NewKey, by: Caller) -> tuple[str, ApiKey]:
        """The key, which nothing can show again, and what is kept of it."""
        key_id = _random(10)
        text = with_checksum(f"rv_{key_id}_{_random(43)}")
        with self._database.write() as session:
            now = moment(session)
            kept = ApiKey(
                id=key_id,
                name=new.name,
                project=new.project,
                scopes=" ".join(scope for scope in SCOPES if scope in new.scopes),
                created_at=now,
                expires_at=now + new.lasts,
            )
            kept.mac = self._mac(text, kept)
            identities.insert(session, kept)
            self._audit.append(session, by, "key.create", key_id, now, f"{kept.name}: {kept.scopes}")
        return text, kept

    def every(self) -> Sequence[ApiKey]:
        """All of them, newest first."""
        with self._database.read() as session:
            return identities.every(session)

    def revoke(self, key_id: str, by: Caller) -> bool:
        """Refuse the key from now on; whether there was one to refuse."""
        with self._database.write() as session:
            revoked = identities.revoke(session, key_id, moment(session))
            if revoked:
                self._audit.append(session, by, "key.revoke", key_id, moment(session))
        return revoked

    def caller(self, text: str) -> Caller | None:
        """Who shows this key; None where it is none, was revoked, or its time is over.

        Nothing is remembered from call to call: a revocation holds from its commit on.
        """
        found = _KEY.fullmatch(text)
        if found is None or with_checksum(text[:-6]) != text:
            return None
        with self._database.read() as session:
            key, now = identities.find(session, found[1]), moment(session)
        if key is None or not hmac.compare_digest(key.mac, self._mac(text, key)):
            return None
        if key.revoked_at is not None or key.expires_at <= now:
            return None
        if key.last_used_at is None or now - key.last_used_at >= _USE_IS_NOTED:
            with self._database.write() as session:
                identities.note_use(session, key.id, now)
        return Caller(key.name, key.project, frozenset(key.scopes.split()))

    def _mac(self, text: str, key: ApiKey) -> str:
        allowed = [text, key.name, key.project, key.scopes, key.expires_at.isoformat(timespec="microseconds")]
        return hmac.new(self._mac_key, canonical_json(allowed), hashlib.sha256).hexdigest()


def with_checksum(text: str) -> str:
    """The text and its CRC-32 in six digits."""
    rest, digits = zlib.crc32(text.encode()), ""
    for _ in range(6):
        rest, digit = divmod(rest, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return text + digits


def _random(length: int) -> str:
    return "".join(secrets.choice(_DIGITS) for _ in range(length))
