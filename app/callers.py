"""Caller of a request: identity, project and scopes."""

from dataclasses import dataclass
from typing import Final

RUN: Final = "run"
READ: Final = "read"
SEEDS: Final = "seeds:read"
ADMIN: Final = "admin"
METRICS: Final = "metrics:read"

SCOPES = {
    RUN: "submit, cancel, rerun and delete jobs; upload and delete buffers",
    READ: "read services, jobs, rows, reports, manifests and buffers",
    SEEDS: "reveal the seed of a job; the reason is recorded in the audit log",
    ADMIN: "apply the other scopes to the jobs and buffers of all callers",
    METRICS: "read the metrics, which cover the jobs of all callers",
}
"""Scope -> operations that it allows. No scope implies another."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Identity on whose behalf an operation runs."""

    owner: str
    """Name of the identity: an API key's name, ``oidc:`` and a token's subject, or one of those below."""
    project: str | None = None
    """Project of the caller. Members of a project also see each other's jobs and buffers."""
    scopes: frozenset[str] = frozenset()
    request: str = ""
    """Request id in the audit and in the log."""

    @property
    def sees_all(self) -> bool:
        """Whether jobs and buffers of all callers are visible to this one."""
        return ADMIN in self.scopes

    def may_change(self, owner: str) -> bool:
        """Return whether this caller may cancel or delete it: members of a project share only reading."""
        return self.sees_all or owner == self.owner


ANONYMOUS = Caller("anonymous", scopes=frozenset(SCOPES))
"""Caller of every request if authentication is off."""
THE_SERVICE = Caller("service", scopes=frozenset(SCOPES))
"""The service itself, for example when it purges expired buffers."""
RESERVED = (ANONYMOUS.owner, THE_SERVICE.owner, "operator")
"""Names that no API key may have."""
