"""The audit: who did what to which job, buffer or key, as a chain of lines that is only ever added to.

Each line has an HMAC-SHA256 over itself and the HMAC of the line before, under a key that is kept
sealed. Whoever has the database alone can neither alter a line, nor take one out, nor add one,
without `verify` finding the first that does not hold. An end cut off together with the head is an
older state of the database, which only somebody who remembers a newer one can tell: `verify` takes
such an anchor, and the service leaves one outside of the database now and then.

Lines from before there was a chain hold as one: its first line stands on the digest of them all. How many
they are `verify` tells: whoever takes the HMACs off makes all lines such ones; only an anchor shows that.
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
from app.store.canonical import canonical_json
from app.store.models import AuditHead, AuditLine

_Line: TypeAlias = Mapping[str, Any] | sa.RowMapping
_AT_ONCE = 1000

# Made once: a line is added at every act, and to build these takes longer than to run them.
_LINES = cast(sa.Table, AuditLine.__table__)
_HEADS = cast(sa.Table, AuditHead.__table__)
_HEAD = sa.select(_HEADS.c.number, _HEADS.c.mac).where(_HEADS.c.id == 1).with_for_update()
_ADD = sa.insert(_LINES)
_MOVE = sa.update(_HEADS).where(_HEADS.c.id == 1)
_MOVE = _MOVE.values(number=sa.bindparam("to_number"), mac=sa.bindparam("to_mac"))


@dataclass(frozen=True, slots=True)
class Anchor:
    """A line that was there at some moment: its number, and its HMAC."""

    number: int
    mac: str

    def __str__(self) -> str:
        return f"{self.number}:{self.mac}"

    @classmethod
    def parse(cls, text: str) -> "Anchor":
        """From ``<number>:<mac>``. Raises ValueError."""
        number, _, mac = text.strip().partition(":")
        if not number.isdecimal() or len(mac) not in (0, 64):
            raise ValueError("an anchor is '<number>:<mac>', as `audit verify` prints it")
        return cls(int(number), mac)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `verify` found."""

    head: Anchor
    fault: str = ""
    """The first thing that is wrong; empty where all holds."""
    unchained: int = 0
    """How many lines have no HMAC of their own: they are as they were when the first that has one came."""


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Writes lines, and tells whether they are as they were written."""

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
        """Add a line within the caller's transaction, in its last statements: others wait from here on."""
        connection = session.connection()
        number, previous = connection.execute(_HEAD).one()
        line: dict[str, Any] = {
            "id": number + 1,
            "at": at,
            "action": action,
            "subject": subject,
            "who": caller.owner,
            "project": caller.project,
            "request": caller.request or None,
            "reason": reason,
        }
        line["mac"] = self._mac(line, previous or _digest(_unchained(session)))
        connection.execute(_ADD, line)
        connection.execute(_MOVE, {"to_number": line["id"], "to_mac": line["mac"]})

    def verify(self, session: Session, *anchors: Anchor) -> Verdict:
        """Whether every line holds, and the anchors' among them."""
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
                return Verdict(head, f"line {line['id']} is not the one that an anchor is of")
            before = line["id"]
        if before != head.number or previous != head.mac:
            return Verdict(head, f"the audit ends at line {before}, and its head says line {head.number}")
        if early and not previous:
            return Verdict(head, "no line has an HMAC: nothing shows that any is as it was written")
        if expected:
            cut = f"the end was cut off: line {max(expected)} was there, and {before} are left"
            return Verdict(head, cut)
        beyond = session.scalar(sa.select(sa.func.max(AuditLine.id))) or 0
        newest = head_of(session)  # after the other: lines may be added meanwhile
        if newest is None or beyond > newest.number:
            return Verdict(head, f"line {head.number + 1} was added by something else than the service")
        return Verdict(head, unchained=len(early))

    def _mac(self, line: _Line, previous: str) -> str:
        return hmac.new(self.key, _written(line, previous), hashlib.sha256).hexdigest()


def head_of(session: Session) -> Anchor | None:
    """The last line; None where nothing says which it is."""
    row = session.execute(sa.select(AuditHead.number, AuditHead.mac).where(AuditHead.id == 1)).one_or_none()
    return None if row is None else Anchor(row.number, row.mac)


def _written(line: _Line, previous: str) -> bytes:
    said = {name: line[name] for name in ("action", "subject", "who", "project", "request", "reason")}
    at = line["at"].astimezone(UTC).isoformat(timespec="microseconds")
    return canonical_json({"number": line["id"], "at": at, "previous": previous, **said})


def _digest(lines: Iterable[_Line]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(_written(line, ""))
    return digest.hexdigest()


def _unchained(session: Session) -> Sequence[_Line]:
    """The lines from before the chain, which are asked for once: when its first line is written."""
    return [dict(line) for line in session.execute(sa.select(_LINES).order_by(_LINES.c.id)).mappings()]


def _lines(session: Session, last: int) -> Iterator[_Line]:
    query = sa.select(_LINES).where(_LINES.c.id <= last).order_by(_LINES.c.id)
    for line in session.execute(query.execution_options(yield_per=_AT_ONCE)).mappings():
        yield dict(line)
