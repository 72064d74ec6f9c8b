"""Audit log: every operation on a job, buffer or key, as append-only chains of lines.

Each process that serves has a chain of its own, so that replicas do not wait for each other. Each line has an
HMAC-SHA256 over itself and the HMAC of the line before, under a key that is stored sealed. Checkpoints, which
are signed and form a chain, contain the last lines of all chains (`app.store.sql.audit.checkpoints`), and
`app.store.sql.audit.verification` checks everything.

Versions before the chains per replica appended to one chain, the shared one, in tables of its own. It stays
as it is, and replicas of such a version go on with it during an upgrade.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.callers import Caller
from app.store.sql.connection.quick_statements import execute
from app.store.sql.models import AuditChain, AuditLine, SharedAuditHead, SharedAuditLine

Line: TypeAlias = Mapping[str, Any] | sa.RowMapping
"""Columns of a line of any chain."""

SHARED = "shared"
"""Name of the chain of older versions."""

OPERATOR = "operator"
"""Name of the chain of administration commands."""

# Built once: every operation adds a line, and building these statements takes longer than running them.
LINES = cast(sa.Table, AuditLine.__table__)

CHAINS = cast(sa.Table, AuditChain.__table__)

SHARED_LINES = cast(sa.Table, SharedAuditLine.__table__)

SHARED_HEADS = cast(sa.Table, SharedAuditHead.__table__)

_HEAD = (
    sa.select(CHAINS.c.number, CHAINS.c.mac).where(CHAINS.c.chain == sa.bindparam("name")).with_for_update()
)

_ADD = sa.insert(LINES)

_MOVE = (
    sa.update(CHAINS)
    .where(CHAINS.c.chain == sa.bindparam("name"))
    .values(number=sa.bindparam("to_number"), mac=sa.bindparam("to_mac"))
)

_ADD_AND_MOVE = sa.select(sa.true()).add_cte(
    sa.insert(LINES).values({column.name: sa.bindparam(column.name) for column in LINES.c}).cte("added"),
    _MOVE.cte("moved"),
)
"""Both changes in one statement, which SQLite cannot run: each statement costs a message to the server."""


_canonical_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
"""Serialise a line as `canonical_json` does, in C: its names are ASCII, and no value is a float."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Operation to record."""

    caller: Caller
    action: str
    subject: str
    """Id of the job, buffer or key."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Appends lines to one chain of the audit log."""

    key: bytes = field(repr=False)
    chain: str = OPERATOR
    """Name of the chain, 1 to 16 characters."""

    def append(
        self,
        session: Session,
        caller: Caller,
        action: str,
        subject: str,
        at: datetime,
        reason: str | None = None,
    ) -> None:
        """Append a line, at the end of the caller's transaction, because it locks the head of the chain."""
        self.append_all(session, [Entry(caller, action, subject, reason)], at)

    def append_all(self, session: Session, entries: Sequence[Entry], at: datetime) -> None:
        """Append a line for each entry, as `append` does."""
        if not entries:
            return
        name = {"name": self.chain}
        heads, _ = execute(session, _HEAD, name)
        if not heads:
            _open(session.connection(), self.chain)
            heads, _ = execute(session, _HEAD, name)
        ((number, previous),) = heads
        lines = []
        for count, entry in enumerate(entries, 1):
            line = {"chain": self.chain, "number": number + count, "at": at} | columns(entry)
            line["mac"] = previous = line_mac(self.key, line, previous)
            lines.append(line)
        head = {**name, "to_number": number + len(lines), "to_mac": previous}
        if len(lines) > 1:
            session.connection().execute(_ADD, lines)
        elif session.get_bind().dialect.name == "sqlite":
            execute(session, _ADD, lines[0])
        else:
            execute(session, _ADD_AND_MOVE, {**lines[0], **head})
            return
        execute(session, _MOVE, head)


def columns(entry: Entry) -> dict[str, Any]:
    """Return the columns of a line that an entry sets."""
    return {
        "action": entry.action,
        "subject": entry.subject,
        "who": entry.caller.owner,
        "project": entry.caller.project,
        "request": entry.caller.request or None,
        "reason": entry.reason,
    }


def line_mac(key: bytes, line: Line, previous: str) -> str:
    """Return the HMAC of a line after a line with the HMAC ``previous``; both are hexadecimal."""
    return hmac.new(key, _written(line, previous), hashlib.sha256).hexdigest()


def same_mac(expected: str, found: Any) -> bool:
    """Whether a value of the database is the expected HMAC, in constant time. It may be of any type."""
    return isinstance(found, str) and hmac.compare_digest(expected.encode(), found.encode())


def early_digest(lines: Iterable[Line]) -> str:
    """Return the digest of the shared chain's first lines, which have no HMAC; it stands for an HMAC."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(_written(line, ""))
    return digest.hexdigest()


def shared_lines() -> sa.Select[Any]:
    """Return the query of the shared chain's lines, in order, with the columns of a line."""
    named = [column.label("number") if column.name == "id" else column for column in SHARED_LINES.c]
    return sa.select(*named, sa.literal(SHARED).label("chain")).order_by(SHARED_LINES.c.id)


def _open(connection: sa.Connection, chain: str) -> None:
    """Insert a chain without lines, unless another process has just done so."""
    row = {"chain": chain, "number": 0, "mac": ""}
    # The other database's dialect is not imported: it would stay in memory for nothing.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        connection.execute(postgresql.insert(CHAINS).values(row).on_conflict_do_nothing())
    else:
        from sqlalchemy.dialects import sqlite

        connection.execute(sqlite.insert(CHAINS).values(row).on_conflict_do_nothing())


def _written(line: Line, previous: str) -> bytes:
    texts = {name: line[name] for name in ("action", "subject", "who", "project", "request", "reason")}
    at = line["at"].astimezone(UTC).isoformat(timespec="microseconds")
    place = {"number": line["number"], "at": at, "previous": previous}
    if line["chain"] != SHARED:  # whose lines had no chain to name
        place["chain"] = line["chain"]
    return _canonical_text(place | texts).encode()
