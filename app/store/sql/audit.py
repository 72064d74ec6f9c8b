"""Audit log: every operation on a job, buffer or key, as an append-only chain of lines.

Each line has an HMAC-SHA256 over itself and the HMAC of the line before, under a key that is stored sealed.
With access to the database alone nobody can alter, remove or add a line unnoticed: `verify` reports the first
line that does not match. If the end of the log is removed together with the head, the result is an older
state of the database. Only a newer anchor shows that: `verify` accepts anchors, and the service stores one
outside of the database regularly.

Lines from before the chain existed are protected together: the first chained line contains the digest of
them all. `verify` reports their number, because somebody who removes all HMACs turns every line into such a
line; only an anchor shows that.
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.callers import Caller
from app.store.crypto.canonical_json import canonical_json
from app.store.sql.models import AuditHead, AuditLine

_Line: TypeAlias = Mapping[str, Any] | sa.RowMapping

_AT_ONCE = 1000

# Built once: every operation adds a line, and building these statements takes longer than running them.
_LINES = cast(sa.Table, AuditLine.__table__)

_HEADS = cast(sa.Table, AuditHead.__table__)

_HEAD = sa.select(_HEADS.c.number, _HEADS.c.mac).where(_HEADS.c.id == 1).with_for_update()

_ADD = sa.insert(_LINES)

_MOVE = sa.update(_HEADS).where(_HEADS.c.id == 1)

_MOVE = _MOVE.values(number=sa.bindparam("to_number"), mac=sa.bindparam("to_mac"))


@dataclass(frozen=True, slots=True)
class Anchor:
    """Number and HMAC of a line that the log contained at some time."""

    number: int
    mac: str

    def __str__(self) -> str:
        return f"{self.number}:{self.mac}"

    @classmethod
    def parse(cls, text: str) -> "Anchor":
        """Parse ``<number>:<mac>``. Raises ValueError."""
        number, _, mac = text.strip().partition(":")
        if not number.isdecimal() or len(mac) not in (0, 64):
            raise ValueError("an anchor is '<number>:<mac>', as `audit verify` prints it")
        return cls(int(number), mac)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of `AuditTrail.verify`."""

    head: Anchor
    fault: str = ""
    """First fault that was found; empty if the log is intact."""
    unchained: int = 0
    """Number of lines without an HMAC of their own, which are protected by the first line with one."""


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Appends lines to the audit log and verifies it."""

    key: bytes = field(repr=False)

    def append(
        self,
        session: Session,
        caller: Caller,
        action: str,
        subject: str,
        at: datetime,
        reason: str | None = None,
    ) -> None:
        """Append a line, at the end of the caller's transaction, because it locks the head for all others."""
        self.append_all(session, caller, action, [subject], at, reason)

    def append_all(
        self,
        session: Session,
        caller: Caller,
        action: str,
        subjects: Sequence[str],
        at: datetime,
        reason: str | None = None,
    ) -> None:
        """Append a line for each subject, as `append` does."""
        if not subjects:
            return
        connection = session.connection()
        number, previous = connection.execute(_HEAD).one()
        previous = previous or _digest(_unchained(session))
        lines = []
        for count, subject in enumerate(subjects, 1):
            line: dict[str, Any] = {
                "id": number + count,
                "at": at,
                "action": action,
                "subject": subject,
                "who": caller.owner,
                "project": caller.project,
                "request": caller.request or None,
                "reason": reason,
            }
            line["mac"] = previous = self._mac(line, previous)
            lines.append(line)
        connection.execute(_ADD, lines if len(lines) > 1 else lines[0])
        connection.execute(_MOVE, {"to_number": number + len(lines), "to_mac": previous})

    def verify(self, session: Session, *anchors: Anchor) -> Verdict:
        """Check every line, and that the lines of the anchors are among them."""
        head = head_of(session)
        if head is None:
            return Verdict(Anchor(0, ""), "the audit's head is gone")
        expected = {anchor.number: anchor.mac for anchor in anchors if anchor.number}
        before, previous = 0, ""
        early: list[_Line] = []
        for line in _lines(session, head.number):
            if line["id"] != before + 1:
                return Verdict(head, f"line {before + 1} is gone: line {line['id']} follows line {before}")
            if line["mac"] is None and not previous:
                early.append(line)
            else:
                previous = previous or _digest(early)
                if not hmac.compare_digest(self._mac(line, previous), line["mac"] or ""):
                    return Verdict(head, f"line {line['id']} was altered, or the line before it")
                previous = line["mac"] or ""
            if expected.pop(line["id"], line["mac"]) != line["mac"]:
                return Verdict(head, f"line {line['id']} is not the line of the anchor")
            before = line["id"]
        if before != head.number or previous != head.mac:
            return Verdict(head, f"the audit ends at line {before}, and its head says line {head.number}")
        if early and not previous:
            return Verdict(head, "no line has an HMAC, so that no change can be detected")
        if expected:
            cut = f"the end was cut off: line {max(expected)} was there, and {before} are left"
            return Verdict(head, cut)
        beyond = session.scalar(sa.select(sa.func.max(AuditLine.id))) or 0
        newest = head_of(session)  # read last: lines may be added meanwhile
        if newest is None or beyond > newest.number:
            return Verdict(head, f"line {head.number + 1} was not added by the service")
        return Verdict(head, unchained=len(early))

    def _mac(self, line: _Line, previous: str) -> str:
        return hmac.new(self.key, _written(line, previous), hashlib.sha256).hexdigest()


def head_of(session: Session) -> Anchor | None:
    """Return the anchor of the last line; None if the head is missing."""
    row = session.execute(sa.select(AuditHead.number, AuditHead.mac).where(AuditHead.id == 1)).one_or_none()
    return None if row is None else Anchor(row.number, row.mac)


def _written(line: _Line, previous: str) -> bytes:
    texts = {name: line[name] for name in ("action", "subject", "who", "project", "request", "reason")}
    at = line["at"].astimezone(UTC).isoformat(timespec="microseconds")
    return canonical_json({"number": line["id"], "at": at, "previous": previous, **texts})


def _digest(lines: Iterable[_Line]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(_written(line, ""))
    return digest.hexdigest()


def _unchained(session: Session) -> Sequence[_Line]:
    """Return the lines from before the chain; called once, when its first line is written."""
    return [dict(line) for line in session.execute(sa.select(_LINES).order_by(_LINES.c.id)).mappings()]


def _lines(session: Session, last: int) -> Iterator[_Line]:
    query = sa.select(_LINES).where(_LINES.c.id <= last).order_by(_LINES.c.id)
    for line in session.execute(query.execution_options(yield_per=_AT_ONCE)).mappings():
        yield dict(line)
