"""Caller of a request: identity, project and scopes."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

RUN: Final = "run"
READ: Final = "read"
SEEDS: Final = "seeds:read"
ADMIN: Final = "admin"
METRICS: Final = "metrics:read"
HIGH_PRIORITY: Final = "priority:high"

SCOPES = {
    RUN: "submit, annotate, cancel, rerun and delete jobs; upload, annotate and delete buffers; delete "
    "series",
    READ: "read services, jobs, rows, reports, manifests, buffers and series",
    SEEDS: "reveal the seed of a job; the reason is recorded in the audit log",
    ADMIN: "apply the other scopes to the jobs and buffers of all callers",
    METRICS: "read the metrics, which cover the jobs of all callers",
    HIGH_PRIORITY: "submit jobs of priority high, before those of other callers",
}
"""Scope -> operations that it allows. No scope implies another."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Identity on whose behalf an operation runs."""

    owner: str
    """Name of the identity: an API key's name, `token_owner`, or one of those below."""
    project: str | None = None
    """Project of the caller. Members of a project also see each other's jobs, but not their buffers."""
    scopes: frozenset[str] = frozenset()
    request: str = ""
    """Request id in the audit and in the log."""

    @property
    def sees_all(self) -> bool:
        """Whether jobs and buffers of all callers are visible to this one."""
        return ADMIN in self.scopes

    def may_change(self, owner: str) -> bool:
        """Return whether this caller may change or delete it: members of a project share only reading."""
        return self.sees_all or owner == self.owner


ANONYMOUS = Caller("anonymous", scopes=frozenset(SCOPES))
"""Caller of every request if authentication is off."""
SCRAPER = Caller("scraper", scopes=frozenset({METRICS}))
"""Caller with a key of `ROWVEIL_METRICS_KEY_FILE`."""
THE_SERVICE = Caller("service", scopes=frozenset(SCOPES))
"""The service itself, for example when it purges expired buffers."""
RESERVED = (ANONYMOUS.owner, THE_SERVICE.owner, "operator")
"""Names that no API key may have."""

OIDC_BEFORE: Final = "oidc:"
"""Start of the owners of tokens in older versions: the subject followed, without the issuer."""

_ISSUER_DIGITS = 16

ISSUER_PREFIX: Final = re.compile(rf"oidc-[0-9a-f]{{{_ISSUER_DIGITS}}}:")
"""Start of the owners of tokens."""


def issuer_prefix(issuer: str) -> str:
    """Return ``oidc-<16 hex digits of the SHA-256 of the issuer>:``, the start of the owners of its tokens.

    A subject is unique within its issuer only (OpenID Connect Core 1.0, section 2). No API key may have a
    name with a colon.
    """
    return f"oidc-{hashlib.sha256(issuer.encode()).hexdigest()[:_ISSUER_DIGITS]}:"


def token_owner(issuer: str, subject: str) -> str:
    """Return the owner that a token of the issuer stands for."""
    return issuer_prefix(issuer) + subject


def without_issuer(owner: str) -> str:
    """Return the owner as older versions wrote it."""
    found = ISSUER_PREFIX.match(owner)
    return owner if found is None else OIDC_BEFORE + owner[found.end() :]
