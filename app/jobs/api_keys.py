"""API keys: creation, format and authentication.

A key is ``rv_<id, 10>_<secret, 43><checksum, 6>``, with all three fields in base 62. A secret scanner finds
keys by ``rv_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}``. The checksum separates keys from random words without a
database, and lets the service reject a mistyped key at once.

The database stores an HMAC-SHA256 over the key and its permissions. Password hashes are slow because
passwords can be guessed; 256 random bits cannot, so a fast hash protects them as well. Read access to the
table does not allow a call. Write access does not allow to add a key or to extend one, because the HMAC's
own key is stored sealed.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Thread
from typing import Final

from app.callers import RESERVED, SCOPES, Caller
from app.errors import InvalidRequest, StorageFull, Unavailable
from app.store.crypto.canonical_json import canonical_json
from app.store.crypto.key_files import subkey
from app.store.sql import api_keys
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.db import Database
from app.store.sql.models import ApiKey
from app.store.sql.replicas import moment
from providers.errors import did_you_mean

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(r"rv_([0-9A-Za-z]{10})_[0-9A-Za-z]{43}[0-9A-Za-z]{6}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_USE_RECORDED_EVERY = timedelta(hours=1)

_MOST_LASTS = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class NewKey:
    """Request for a key. Raises InvalidRequest."""

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
        if not timedelta() < self.lasts <= _MOST_LASTS:
            raise InvalidRequest(
                f"a key's time to its expiry must be positive, and at most {_MOST_LASTS.days} days"
            )


class ApiKeys:
    """The keys of this installation. Blocking: called in a thread, but for `find_caller`."""

    def __init__(self, database: Database, audit: AuditTrail) -> None:
        self._database = database
        self._audit = audit
        self._mac_key = subkey(audit.key, "api-keys/1")
        self._recording: set[str] = set()
        """Keys whose use a thread is recording."""

    def create(self, new: NewKey, by: Caller) -> tuple[str, ApiKey]:
        """Create a key. Return its text, which cannot be shown again, and its stored row.

        Raises StorageFull.
        """
        self._database.check_space()
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
            api_keys.insert(session, kept)
            self._audit.append(session, by, "key.create", key_id, now, f"{kept.name}: {kept.scopes}")
        return text, kept

    def list_all(self) -> Sequence[ApiKey]:
        """Return all keys, newest first."""
        with self._database.read() as session:
            return api_keys.list_all(session)

    def revoke(self, key_id: str, by: Caller) -> bool:
        """Revoke the key at once; False if there is no such key, or it was revoked before."""
        with self._database.write() as session:
            revoked = api_keys.revoke(session, key_id, moment(session))
            if revoked:
                self._audit.append(session, by, "key.revoke", key_id, moment(session))
        return revoked

    async def find_caller(self, text: str) -> Caller | None:
        """Return the caller as `caller`, without a thread."""
        return await self._database.looking(self.caller, text)

    def caller(self, text: str) -> Caller | None:
        """Return the caller whose key this is; None if it is unknown, revoked or expired.

        Nothing is cached between calls, so a revocation takes effect with its commit.
        """
        match = _KEY.fullmatch(text)
        if match is None or with_checksum(text[:-6]) != text:
            return None
        key, now = api_keys.find(self._database, match[1])
        if key is None or not hmac.compare_digest(key.mac, self._mac(text, key)):
            return None
        if key.revoked_at is not None or key.expires_at <= now:
            return None
        if key.last_used_at is None or now - key.last_used_at >= _USE_RECORDED_EVERY:
            self._record_use(key.id, now)
        return Caller(key.name, key.project, frozenset(key.scopes.split()))

    def _record_use(self, key_id: str, now: datetime) -> None:
        if key_id not in self._recording:  # a write waits for other writers: not in the event loop
            self._recording.add(key_id)
            Thread(target=self._try_write_use, args=(key_id, now), name="rowveil-key-use").start()

    def _try_write_use(self, key_id: str, now: datetime) -> None:
        try:
            self._write_use(key_id, now)
        except (Unavailable, StorageFull):  # logged; the next call tries again
            pass
        finally:
            self._recording.discard(key_id)

    def _write_use(self, key_id: str, now: datetime) -> None:
        with self._database.write() as session:
            api_keys.record_use(session, key_id, now)

    def _mac(self, text: str, key: ApiKey | api_keys.KeyRow) -> str:
        allowed = [text, key.name, key.project, key.scopes, key.expires_at.isoformat(timespec="microseconds")]
        return hmac.new(self._mac_key, canonical_json(allowed), hashlib.sha256).hexdigest()


def with_checksum(text: str) -> str:
    """Append the text's CRC-32 as six base-62 digits."""
    rest, digits = zlib.crc32(text.encode()), ""
    for _ in range(6):
        rest, digit = divmod(rest, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return text + digits


def _random(length: int) -> str:
    return "".join(secrets.choice(_DIGITS) for _ in range(length))
