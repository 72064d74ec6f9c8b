"""Audit logs for the tests: a home with a database, lines, and changes by an attacker."""

import hashlib
import hmac
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.callers import Caller
from app.store.crypto.sealing import Signer
from app.store.sql.audit.checkpoints import Anchor, add_checkpoint, vouch_for_early_lines
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.audit.verification import Verdict, verify
from app.store.sql.db import Database

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
ADA = Caller("ada", "census", request="r-1")
KEY = bytes(range(32))
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))
LINES = 20
CHAIN = "service"


def add(
    database: Database, lines: int = LINES, key: bytes = KEY, what: str = "job", chain: str = CHAIN
) -> None:
    """Append lines, each in a transaction."""
    for number in range(lines):
        with database.write() as session:
            trail = AuditTrail(key, chain)
            trail.append(session, ADA, "seed.read", f"{what}-{number}", NOW, "why: ünïcode")


def checkpoint(database: Database, key: bytes = KEY, signer: Signer = SIGNER) -> Anchor:
    """Add a checkpoint and return its anchor."""
    with database.write() as session:
        made = add_checkpoint(session, key, signer, NOW)
    assert made is not None
    return made.anchor


def vouch(database: Database) -> int:
    """Add a checkpoint for lines without an HMAC, as at a first start; return their number."""
    with database.write() as session:
        return vouch_for_early_lines(session, KEY, SIGNER, NOW)


def verdict(database: Database, *anchors: Anchor, key: bytes = KEY) -> Verdict:
    """Verify the log."""
    with database.read() as session:
        return verify(session, key, SIGNER, *anchors)


def fault(database: Database, *anchors: Anchor, key: bytes = KEY) -> str:
    """Verify the log; return the first fault."""
    return verdict(database, *anchors, key=key).fault


def tamper(home: Path, *statements: str) -> None:
    """Change the database as its owner, whom the triggers do not stop."""
    with closing(sqlite3.connect(home / "rowveil.db")) as connection, connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)


def write_shared_chain(home: Path, lines: int, early: int = 0, key: bytes = KEY) -> Anchor:
    """Write a log as older versions did, from their description, and return the anchor of its last line.

    ``early`` lines have no HMAC. Each other line has HMAC-SHA256 over canonical JSON of itself and the HMAC
    before, of which the first is the SHA-256 of the early lines.
    """
    digest, mac = hashlib.sha256(), ""
    at = NOW.isoformat(timespec="microseconds")
    with closing(sqlite3.connect(home / "rowveil.db")) as connection, connection:
        for number in range(1, lines + 1):
            texts = {
                "action": "seed.read", "subject": f"old-{number}", "who": None if number <= early else "ada",
                "project": None, "request": None, "reason": None,
            }  # fmt: skip
            previous = "" if number <= early else mac or digest.hexdigest()
            document = {"number": number, "at": at, "previous": previous, **texts}
            written = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
            if number <= early:
                digest.update(written)
            else:
                mac = hmac.new(key, written, hashlib.sha256).hexdigest()
            row = {**texts, "number": number, "at": at[:26].replace("T", " "), "mac": mac or None}
            connection.execute(
                "INSERT INTO audit (id, at, action, subject, who, project, request, reason, mac) VALUES "
                "(:number, :at, :action, :subject, :who, :project, :request, :reason, :mac)",
                row,
            )
        connection.execute("UPDATE audit_head SET number = ?, mac = ?", (lines, mac))
    return Anchor(lines, mac, of_line=True)
