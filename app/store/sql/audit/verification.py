"""Verification of the audit log: every line, every checkpoint, and the anchors that were kept elsewhere.

With access to the database alone nobody can alter, remove or add a line unnoticed. If the end of the log is
removed together with its heads and checkpoints, the result is an older state of the database; and somebody
who has the keys, too, can write another log that is consistent. Only an anchor that is newer than the older
state, or of the log before it was rewritten, shows these.

Lines of the shared chain from before there were HMACs are protected together: the first line with an HMAC,
or the checkpoint that vouches for them, contains the digest of them all. Each row of each table of the log is
a part of what is checked: a row that nothing accounts for is a fault.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.crypto.sealing import Signer, signature_holds
from app.store.sql.audit.checkpoints import CHECKPOINT_HEADS, CHECKPOINTS, Anchor, Checkpoint, from_row
from app.store.sql.audit.trail import (
    CHAINS,
    LINES,
    SHARED,
    SHARED_HEADS,
    Line,
    early_digest,
    line_mac,
    same_mac,
    shared_lines,
)

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of `verify`."""

    fault: str = ""
    """First fault that was found; empty if the log is intact."""
    lines: int = 0
    chains: int = 0
    checkpoints: int = 0
    unchained: int = 0
    """Number of lines without an HMAC of their own, which are protected by the first line with one."""
    signed_by_others: int = 0
    """Number of checkpoints that another key than the current one has signed."""


class AuditNotIntact(Exception):
    """The audit log is not intact, and a command relies on it."""


class _Fault(Exception):
    """The log is not intact; the message names the place."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Line of a chain that a checkpoint or an anchor contains."""

    number: int
    mac: str
    name: str
    """Checkpoint or anchor, as a message names it."""


def verify(session: Session, key: bytes, signer: Signer, *anchors: Anchor) -> Verdict:
    """Check every line and checkpoint, and that the anchors' lines and checkpoints are among them.

    Parameters
    ----------
    session
        Transaction that sees one snapshot of the database.
    key
        Key of the audit's HMACs.
    signer
        Current key of signatures.
    anchors
        Anchors that were kept elsewhere.
    """
    try:
        return _verdict(session, key, signer, anchors)
    except _Fault as fault:
        return Verdict(str(fault))
    except (TypeError, ValueError) as error:  # such as a time in SQLite that is none
        return Verdict(f"a value in its tables has another type than the service writes: {error}")


def _verdict(session: Session, key: bytes, signer: Signer, anchors: Iterable[Anchor]) -> Verdict:
    anchors = [anchor for anchor in anchors if anchor.number]
    checkpoints, others = _check_checkpoints(session, key, signer, anchors)
    _check_chains_are_there(session)
    unchained = _check_shared(session, key, [anchor for anchor in anchors if anchor.of_line])
    lines, chains = _shared_head(session)[0], 1
    for chain in session.execute(sa.select(CHAINS).order_by(CHAINS.c.chain)).all():
        checked = _Chain(f"of chain {chain.chain}", key)
        checked.check(_lines(session, chain.chain), _marks(session, chain.chain))
        checked.check_head(chain.number, chain.mac)
        if not chain.number:  # the first line is committed with its head
            raise _Fault(f"chain {chain.chain} has a head and no line")
        lines, chains = lines + chain.number, chains + 1
    return Verdict("", lines, chains, checkpoints, unchained, others)


class _Chain:
    """Check of one chain."""

    def __init__(self, name: str, key: bytes, mac_of_early: str = "") -> None:
        self._name, self._key = name, key
        self.last, self.mac = 0, mac_of_early

    def check(self, lines: Iterable[Line], marks: Iterator[_Mark]) -> None:
        """Check each line, and that the marks' lines are among them. Raises _Fault."""
        mark = next(marks, None)
        for line in lines:
            self._check_line(line)
            while mark is not None and mark.number <= self.last:
                if (mark.number, mark.mac) != (self.last, self.mac):
                    raise _Fault(f"line {mark.number} {self._name} is not the line of {mark.name}")
                mark = next(marks, None)
        if mark is not None:
            raise _Fault(
                f"the end {self._name} was cut off: {mark.name} has line {mark.number}, and {self.last} are "
                "left"
            )

    def check_head(self, number: int, mac: str) -> None:
        """Check that the chain ends at the line of its head. Raises _Fault."""
        if number < self.last:
            raise _Fault(f"line {number + 1} {self._name} was not added by the service")
        if (self.last, self.mac) != (number, mac):
            raise _Fault(f"the lines {self._name} end at line {self.last}, and its head says line {number}")

    def _check_line(self, line: Line) -> None:
        number = line["number"]
        if number != self.last + 1:
            raise _Fault(f"line {self.last + 1} {self._name} is gone: line {number} follows line {self.last}")
        if not same_mac(line_mac(self._key, line, self.mac), line["mac"]):
            raise _Fault(f"line {number} {self._name} was altered, or the line before it")
        self.last, self.mac = number, line["mac"]


def _check_checkpoints(
    session: Session, key: bytes, signer: Signer, anchors: Iterable[Anchor]
) -> tuple[int, int]:
    """Return the number of checkpoints, and of checkpoints that another key has signed. Raises _Fault."""
    expected = {anchor.number: anchor.mac for anchor in anchors if not anchor.of_line}
    last, others = 0, 0
    reached: dict[str, int] = {}
    for checkpoint in _checkpoints(session):
        number = checkpoint.number
        if number != last + 1:
            raise _Fault(f"checkpoint {last + 1} is gone: checkpoint {number} follows checkpoint {last}")
        if not same_mac(checkpoint.expected_mac(key), checkpoint.mac):
            raise _Fault(f"checkpoint {number} was altered, or the checkpoint before it")
        if not signature_holds(checkpoint.signed, checkpoint.signature):
            raise _Fault(f"the signature of checkpoint {number} does not hold")
        others += not signer.verify(checkpoint.signed, checkpoint.signature)
        if expected.pop(number, checkpoint.mac) != checkpoint.mac:
            raise _Fault(f"checkpoint {number} is not the checkpoint of the anchor")
        for chain, (line, _) in checkpoint.heads.items():
            if line <= reached.get(chain, 0):
                raise _Fault(f"checkpoint {number} goes back in chain {chain}")
            reached[chain] = line
        last = number
    stray = session.scalar(
        sa.select(sa.func.min(CHECKPOINT_HEADS.c.checkpoint)).where(
            CHECKPOINT_HEADS.c.checkpoint.not_in(sa.select(CHECKPOINTS.c.number))
        )
    )
    if stray is not None:
        raise _Fault(f"checkpoint {stray} is gone, and its heads are left")
    if expected:
        raise _Fault(f"the end was cut off: checkpoint {max(expected)} was there, and {last} are left")
    return last, others


def _check_chains_are_there(session: Session) -> None:
    """Check that lines and checkpoints name chains that have a head. Raises _Fault.

    The shared chain has tables of its own, where `_check_shared` reads it: a row of that name among the lines
    or the heads of the other chains would be read by nothing.
    """
    for table, what in ((LINES, "line"), (CHAINS, "head")):
        number = session.scalar(sa.select(sa.func.min(table.c.number)).where(table.c.chain == SHARED))
        if number is not None:
            raise _Fault(
                f"{what} {number} of a chain '{SHARED}' was not added by the service: the chain of older "
                "versions has tables of its own"
            )
    known = sa.select(CHAINS.c.chain)
    for table, what, others in (
        (LINES, "lines are", sa.true()),
        (CHECKPOINT_HEADS, "checkpoints are", CHECKPOINT_HEADS.c.chain != SHARED),
    ):
        named = table.c.chain
        unknown = sa.select(named).where(named.not_in(known), others)
        lost = session.scalar(unknown.order_by(named).limit(1))
        if lost is not None:
            raise _Fault(f"the head of chain {lost} is gone, and its {what} left")
        if session.scalar(sa.select(sa.literal(1)).where(named.is_(None)).limit(1)) is not None:
            raise _Fault("a line or a checkpoint names no chain")


def _check_shared(session: Session, key: bytes, anchors: list[Anchor]) -> int:
    """Check the chain of older versions; return the number of lines before HMACs. Raises _Fault."""
    number, mac = _shared_head(session)
    lines = _streamed(session, shared_lines())
    early: list[Line] = []
    first = next(lines, None)
    while first is not None and first["mac"] is None:
        if first["number"] != len(early) + 1:
            raise _Fault(
                f"line {len(early) + 1} of the shared chain is gone: line {first['number']} follows line "
                f"{len(early)}"
            )
        early.append(first)
        first = next(lines, None)
    checked = _Chain("of the shared chain", key, early_digest(early) if first is not None else "")
    checked.last = len(early)
    kept = [_Mark(anchor.number, anchor.mac, "the anchor") for anchor in anchors]
    marks = sorted([*_marks(session, SHARED), *kept], key=lambda mark: mark.number)
    chained = [mark for mark in marks if mark.number > len(early)]
    checked.check(_with_first(first, lines), iter(chained))
    checked.check_head(number, mac)
    covered = [mark for mark in marks if mark.number <= len(early) and mark.mac]
    for mark in covered:
        if early_digest(early[: mark.number]) != mark.mac:
            raise _Fault(f"line {mark.number} of the shared chain is not the line of {mark.name}")
    if early and first is None and not covered:
        raise _Fault("no line has an HMAC, so that no change can be detected")
    if early and first is None and covered[-1].number != len(early):
        raise _Fault(
            f"line {covered[-1].number + 1} of the shared chain was not added by the service: it has no "
            f"HMAC, and {covered[-1].name} has only the lines before"
        )
    return len(early)


def _with_first(first: Line | None, others: Iterator[Line]) -> Iterator[Line]:
    if first is not None:
        yield first
        yield from others


def _shared_head(session: Session) -> tuple[int, str]:
    query = sa.select(SHARED_HEADS.c.number, SHARED_HEADS.c.mac).where(SHARED_HEADS.c.id == 1)
    row = session.execute(query).one_or_none()
    if row is None:
        raise _Fault("the shared chain's head is gone")
    if session.scalar(sa.select(sa.func.count()).select_from(SHARED_HEADS)) != 1:
        raise _Fault("the shared chain has more than one head")
    return row.number, row.mac


def _lines(session: Session, chain: str) -> Iterator[Line]:
    return _streamed(session, sa.select(LINES).where(LINES.c.chain == chain).order_by(LINES.c.number))


def _streamed(session: Session, query: sa.Select[Any]) -> Iterator[Line]:
    with _stream(session, query) as found:
        for line in found.mappings():
            yield dict(line)


def _stream(session: Session, query: sa.Select[Any]) -> sa.Result[Any]:
    """Run a query whose rows are fetched in parts. A fault ends the reading early, so that it is closed."""
    return session.execute(query.execution_options(yield_per=_AT_ONCE))


def _marks(session: Session, chain: str) -> Iterator[_Mark]:
    heads = sa.select(CHECKPOINT_HEADS).where(CHECKPOINT_HEADS.c.chain == chain)
    with _stream(session, heads.order_by(CHECKPOINT_HEADS.c.number)) as found:
        for head in found:
            yield _Mark(head.number, head.mac, f"checkpoint {head.checkpoint}")


def _checkpoints(session: Session) -> Iterator[Checkpoint]:
    """Yield the checkpoints with their heads, in order. Raises _Fault for a signature that is no document."""
    query = sa.select(CHECKPOINTS).order_by(CHECKPOINTS.c.number)
    heads = sa.select(CHECKPOINT_HEADS).order_by(CHECKPOINT_HEADS.c.checkpoint, CHECKPOINT_HEADS.c.chain)
    with _stream(session, heads) as all_heads, _stream(session, query) as rows:
        stream = iter(all_heads)
        head, previous = next(stream, None), ""
        for row in rows:
            found: dict[str, tuple[int, str]] = {}
            while head is not None and head.checkpoint <= row.number:
                if head.checkpoint == row.number:
                    found[head.chain] = (head.number, head.mac)
                head = next(stream, None)
            try:
                checkpoint = from_row(row, previous, found)
            except json.JSONDecodeError:
                raise _Fault(f"the signature of checkpoint {row.number} does not hold") from None
            if not isinstance(checkpoint.signature, dict):
                raise _Fault(f"the signature of checkpoint {row.number} does not hold")
            yield checkpoint
            previous = row.mac
