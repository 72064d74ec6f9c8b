"""Checkpoints of the audit log: signed documents that join all chains into one log.

A checkpoint contains the last line of each chain that has grown since the checkpoint before, and the HMAC of
that checkpoint. So the newest one stands for the whole log up to its time. Its number and HMAC are an anchor,
which is kept outside of the database. Anybody who has the service's public key can check a checkpoint's
signature.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.crypto.canonical_json import canonical_json
from app.store.crypto.sealing import Signer
from app.store.sql.audit.trail import (
    CHAINS,
    SHARED,
    SHARED_HEADS,
    SHARED_LINES,
    early_digest,
    line_mac,
    same_mac,
    shared_lines,
)
from app.store.sql.models import AuditCheckpoint, AuditCheckpointHead

CHECKPOINTS = cast(sa.Table, AuditCheckpoint.__table__)

CHECKPOINT_HEADS = cast(sa.Table, AuditCheckpointHead.__table__)

_HEX_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Anchor:
    """Number and HMAC of a checkpoint or, in logs of older versions, of a line of the shared chain."""

    number: int
    mac: str
    of_line: bool = False
    """Whether it is the anchor of a line."""

    def __str__(self) -> str:
        return f"{self.number}:{self.mac}" if self.of_line else f"c{self.number}:{self.mac}"

    @classmethod
    def parse(cls, text: str) -> "Anchor":
        """Parse ``c<number>:<mac>``, or ``<number>:<mac>`` of an older version. Raises ValueError."""
        number, _, mac = text.strip().removeprefix("c").partition(":")
        of_line = not text.strip().startswith("c")
        if not number.isdecimal() or len(mac) not in ((0, _HEX_DIGITS) if of_line else (_HEX_DIGITS,)):
            raise ValueError("an anchor is 'c<number>:<mac>', as `audit verify` prints it")
        return cls(int(number), mac, of_line)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Checkpoint as it is stored."""

    number: int
    at: datetime
    previous: str
    """HMAC of the checkpoint before; empty for the first one."""
    heads: dict[str, tuple[int, str]]
    """Chain -> number and HMAC of its last line."""
    mac: str
    signature: dict[str, str]
    """Signature over `signed`, in the form of `Signer.sign`."""

    @property
    def anchor(self) -> Anchor:
        """Return number and HMAC."""
        return Anchor(self.number, self.mac)

    @property
    def signed(self) -> dict[str, Any]:
        """Return the document that the signature is over."""
        return self._document | {"mac": self.mac}

    @property
    def published(self) -> dict[str, Any]:
        """Return the document that leaves the machine."""
        return self.signed | {"anchor": str(self.anchor), "signature": self.signature}

    def expected_mac(self, key: bytes) -> str:
        """Return the HMAC of the content."""
        return hmac.new(key, canonical_json(self._document), hashlib.sha256).hexdigest()

    @property
    def _document(self) -> dict[str, Any]:
        return {
            "checkpoint": self.number,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds"),
            "previous": self.previous,
            "heads": {chain: list(head) for chain, head in self.heads.items()},
        }


def add_checkpoint(session: Session, key: bytes, signer: Signer, at: datetime) -> Checkpoint | None:
    """Add a checkpoint if a chain has grown. Return the newest one; None for a log without lines.

    ``key`` is the key of the audit's HMACs. Checkpoints of several replicas wait for each other. Lines
    without an HMAC are not part of one, because anyone with the database could have added them:
    see `vouch_for_early_lines`.
    """
    connection = session.connection()
    shared = _lock_shared_head(connection)
    heads = _grown(connection)
    if (
        shared is not None
        and shared.number > (_marked(connection, SHARED) or 0)
        and _last_has_hmac(connection, key, shared)
    ):
        heads[SHARED] = (shared.number, shared.mac)
    return _add(session, key, signer, at, heads)


def vouch_for_early_lines(session: Session, key: bytes, signer: Signer, at: datetime) -> int:
    """Add a checkpoint with the shared chain's lines if none has an HMAC; return the number of such lines.

    Lines of a version before HMACs are protected from then on. The caller decides that the lines are as that
    version wrote them: at the first start after the upgrade, or when the operator says so. Nothing is added
    if a checkpoint has lines of the chain already.
    """
    connection = session.connection()
    shared = _lock_shared_head(connection)
    if shared is None or shared.mac or _marked(connection, SHARED) is not None:
        return 0
    lines = connection.execute(shared_lines()).mappings().all()
    if len(lines) != shared.number or any(line["mac"] is not None for line in lines):
        return 0
    if lines:
        _add(session, key, signer, at, _grown(connection) | {SHARED: (len(lines), early_digest(lines))})
    return len(lines)


def _add(
    session: Session, key: bytes, signer: Signer, at: datetime, heads: dict[str, tuple[int, str]]
) -> Checkpoint | None:
    """Add a checkpoint with these heads, unless there are none; return the newest one."""
    before = newest_checkpoint(session)
    if not heads:
        return before
    connection = session.connection()
    number, previous = (before.number + 1, before.mac) if before is not None else (1, "")
    draft = Checkpoint(number, at, previous, heads, "", {})
    sealed = Checkpoint(number, at, previous, heads, draft.expected_mac(key), {})
    made = Checkpoint(number, at, previous, heads, sealed.mac, signer.sign(sealed.signed))
    row = {"number": number, "at": at, "mac": made.mac, "signature": json.dumps(made.signature)}
    connection.execute(sa.insert(CHECKPOINTS), row)
    rows = [
        {"checkpoint": number, "chain": chain, "number": line, "mac": mac}
        for chain, (line, mac) in heads.items()
    ]
    connection.execute(sa.insert(CHECKPOINT_HEADS), rows)
    return made


def newest_checkpoint(session: Session) -> Checkpoint | None:
    """Return the newest checkpoint; None if there is none."""
    newest = sa.select(CHECKPOINTS).order_by(CHECKPOINTS.c.number.desc()).limit(2)
    rows = session.execute(newest).all()
    if not rows:
        return None
    heads = sa.select(CHECKPOINT_HEADS).where(CHECKPOINT_HEADS.c.checkpoint == rows[0].number)
    found = {row.chain: (row.number, row.mac) for row in session.execute(heads)}
    previous = rows[1].mac if len(rows) > 1 else ""
    return from_row(rows[0], previous, found)


def from_row(row: sa.Row[Any], previous: str, heads: dict[str, tuple[int, str]]) -> Checkpoint:
    """Build the checkpoint of a row of the table."""
    signature = json.loads(row.signature)
    return Checkpoint(row.number, row.at, previous, heads, row.mac, signature)


def _lock_shared_head(connection: sa.Connection) -> sa.Row[int, str] | None:
    head = sa.select(SHARED_HEADS.c.number, SHARED_HEADS.c.mac).where(SHARED_HEADS.c.id == 1)
    return connection.execute(head.with_for_update()).one_or_none()


def _last_has_hmac(connection: sa.Connection, key: bytes, head: sa.Row[int, str]) -> bool:
    """Whether the shared chain's last line has the HMAC of its head, by the key of the audit.

    Without the check a head could have the digest of lines without an HMAC, which needs no key.
    """
    last = shared_lines().where(SHARED_LINES.c.id.in_((head.number - 1, head.number)))
    found = {line["number"]: line for line in connection.execute(last).mappings()}
    line = found.get(head.number)
    if line is None or line["mac"] is None or line["mac"] != head.mac:
        return False
    previous: str | None = found[head.number - 1]["mac"] if head.number - 1 in found else None
    if previous is None:  # the first line with an HMAC
        early = shared_lines().where(SHARED_LINES.c.id < head.number)
        previous = early_digest(connection.execute(early).mappings())
    return same_mac(line_mac(key, line, previous), line["mac"])


def _grown(connection: sa.Connection) -> dict[str, tuple[int, str]]:
    marked = (
        sa.select(sa.func.max(CHECKPOINT_HEADS.c.number))
        .where(CHECKPOINT_HEADS.c.chain == CHAINS.c.chain)
        .scalar_subquery()
    )
    grown = sa.select(CHAINS).where(CHAINS.c.number > sa.func.coalesce(marked, 0)).order_by(CHAINS.c.chain)
    return {row.chain: (row.number, row.mac) for row in connection.execute(grown)}


def _marked(connection: sa.Connection, chain: str) -> int | None:
    """Return the number of the chain's last line in any checkpoint."""
    number: int | None = connection.scalar(
        sa.select(sa.func.max(CHECKPOINT_HEADS.c.number)).where(CHECKPOINT_HEADS.c.chain == chain)
    )
    return number
