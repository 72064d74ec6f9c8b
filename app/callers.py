"""Who calls, what they may do, and what is theirs."""

from dataclasses import dataclass
from typing import Final

RUN: Final = "run"
READ: Final = "read"
SEEDS: Final = "seeds:read"
ADMIN: Final = "admin"

SCOPES = {
    RUN: "submit, cancel, rerun and delete jobs; upload and delete buffers",
    READ: "see services, jobs, rows, reports, manifests and buffers",
    SEEDS: "reveal the seed of a job, with a reason, under audit",
    ADMIN: "the other scopes for everybody's jobs and buffers, not the caller's own alone",
}
"""Scope -> what it allows. None implies another."""


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf something is done."""

    owner: str
    """Names the identity. The name of an API key, ``oidc:`` and a token's subject, or one of those below."""
    project: str | None = None
    """Whoever is of the same project sees what is made on its behalf too."""
    scopes: frozenset[str] = frozenset()
    request: str = ""
    """Names the request in the audit and in the log."""

    @property
    def sees_all(self) -> bool:
        """Whether others' jobs and buffers are there for this caller."""
        return ADMIN in self.scopes

    def may_change(self, owner: str) -> bool:
        """Whether this caller may cancel or delete what it sees: a project shares reading alone."""
        return self.sees_all or owner == self.owner


ANONYMOUS = Caller("anonymous", scopes=frozenset(SCOPES))
"""Everybody, where authentication is off."""
THE_SERVICE = Caller("service", scopes=frozenset(SCOPES))
"""The service itself, such as when it purges what has expired."""
RESERVED = (ANONYMOUS.owner, THE_SERVICE.owner, "operator")
"""Names that no key may have."""
