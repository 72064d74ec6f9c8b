"""The audit holds line by line; every change that the service did not make is found."""

import argparse
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.callers import Caller
from app.cli.admin import administer
from app.settings import Settings
from app.store.sql.audit import Anchor, AuditTrail, head_of
from app.store.sql.audit_anchor import AnchorUnreadable, keep_anchor, kept_anchor
from app.store.sql.db import Database, migrate

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
ADA = Caller("ada", "census", request="r-1")
KEY = bytes(range(32))
LINES = 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    settings = Settings(home=home)
    migrate(settings)
    database = Database(settings)
    yield database
    database.close()


def add(database: Database, lines: int = LINES, key: bytes = KEY, what: str = "job") -> None:
    for number in range(lines):
        with database.write() as session:
            AuditTrail(key).append(session, ADA, "seed.read", f"{what}-{number}", NOW, "why: ünïcode")


def fault(database: Database, *anchors: Anchor, key: bytes = KEY) -> str:
    with database.read() as session:
        return AuditTrail(key).verify(session, *anchors).fault


def head(database: Database) -> Anchor:
    with database.read() as session:
        found = head_of(session)
    assert found is not None
    return found


def tamper(home: Path, *statements: str) -> None:
    """Changes by an attacker with the database alone: the triggers do not stop its owner."""
    with closing(sqlite3.connect(home / "rowveil.db")) as connection, connection:
        for change in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS audit_refuses_{change}")
        for statement in statements:
            connection.execute(statement)


def test_what_the_service_wrote_holds(database: Database) -> None:
    assert fault(database) == ""
    assert head(database) == Anchor(0, "")
    add(database)
    assert fault(database, head(database)) == ""


TAMPERED = {
    "a line altered": ("UPDATE audit SET reason = 'none' WHERE id = 7", "line 7 was altered"),
    "who it was": ("UPDATE audit SET who = 'bob' WHERE id = 1", "line 1 was altered"),
    "when it was": (
        "UPDATE audit SET at = '2026-03-02 12:00:00.123456' WHERE id = 20",
        "line 20 was altered",
    ),
    "an HMAC altered": (f"UPDATE audit SET mac = '{'0' * 64}' WHERE id = 7", "line 7 was altered"),
    "an HMAC gone": ("UPDATE audit SET mac = NULL WHERE id = 7", "line 7 was altered"),
    "all HMACs gone": ("UPDATE audit SET mac = NULL", "its head says"),
    "a line taken out": ("DELETE FROM audit WHERE id = 7", "line 7 is gone"),
    "the first line taken out": ("DELETE FROM audit WHERE id = 1", "line 1 is gone"),
    "the end taken out": ("DELETE FROM audit WHERE id > 15", "ends at line 15"),
    "all taken out": ("DELETE FROM audit", "ends at line 0"),
    "two lines changed about": (
        "UPDATE audit SET subject = CASE id WHEN 3 THEN 'job-3' ELSE 'job-2' END WHERE id IN (3, 4)",
        "line 3 was altered",
    ),
    "a line added": (
        "INSERT INTO audit (at, action, subject, who, mac) "
        f"VALUES ('2026-03-01 12:00:00.000000', 'seed.read', 'x', 'bob', '{'0' * 64}')",
        "line 21 was not added",
    ),
    "the head gone": ("DELETE FROM audit_head", "head is gone"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_the_first_line_that_does_not_hold_is_named(database: Database, home: Path, what: str) -> None:
    statement, said = TAMPERED[what]
    add(database)
    tamper(home, statement)
    assert said in fault(database)


def test_a_chain_made_again_without_the_key_does_not_hold(database: Database, home: Path) -> None:
    """An attacker who can write to the database, and knows the algorithm, still lacks the key."""
    tamper(home, "DELETE FROM audit", "UPDATE audit_head SET number = 0, mac = ''")
    add(database, key=bytes(32))
    assert "line 1 was altered" in fault(database)
    assert fault(database, key=bytes(32)) == ""


def test_an_end_cut_off_with_its_head_is_found_by_an_anchor(database: Database, home: Path) -> None:
    """An older state holds by itself; a line that is remembered elsewhere shows that it is older."""
    add(database, 5)
    older = head(database)
    add(database, 5)
    newer = head(database)
    back = f"UPDATE audit_head SET number = {older.number}, mac = '{older.mac}'"
    tamper(home, "DELETE FROM audit WHERE id > 5", back)
    assert fault(database) == ""
    assert fault(database, older) == ""
    assert "line 10 was there, and 5 are left" in fault(database, newer)
    add(database, 5, what="other")  # the service goes on, and knows nothing of it
    assert "line 10 is not the line of the anchor" in fault(database, newer)


def test_an_anchor_is_never_moved_back(tmp_path: Path) -> None:
    """It would hide what it is there to show."""
    newer, older = Anchor(10, "a" * 64), Anchor(5, "b" * 64)
    assert kept_anchor(tmp_path) is None
    assert keep_anchor(tmp_path, newer)
    assert not keep_anchor(tmp_path, older)
    assert keep_anchor(tmp_path, newer)
    assert kept_anchor(tmp_path) == newer
    assert Anchor.parse(str(newer)) == newer
    with pytest.raises(ValueError, match="as `audit verify` prints it"):
        Anchor.parse("10 lines")


def test_lines_from_before_the_chain_hold_with_it(database: Database, home: Path) -> None:
    """They cannot be altered any more once the first line stands on them."""
    early = (
        "INSERT INTO audit (at, action, subject) VALUES ('2026-03-01 12:00:00.000000', 'job.submit', '{}')"
    )
    tamper(home, *(early.format(name) for name in "abc"), "UPDATE audit_head SET number = 3")
    add(database, 2)
    assert fault(database) == ""
    tamper(home, "UPDATE audit SET subject = 'd' WHERE id = 2")
    assert "line 4 was altered, or the line before it" in fault(database)


def test_a_chain_taken_off_is_no_audit_from_before_the_chain(database: Database, home: Path) -> None:
    """Without an HMAC there is nothing that lines hold by, whatever the head says; the report says so."""
    add(database)
    tamper(home, "UPDATE audit SET mac = NULL, who = 'bob'", "UPDATE audit_head SET mac = ''")
    assert "no line has an HMAC" in fault(database)
    add(database, 1)  # the service goes on, and seals what it found
    with database.read() as session:
        verdict = AuditTrail(KEY).verify(session)
    assert (verdict.fault, verdict.unchained) == ("", LINES)


def test_an_anchor_that_was_cut_off_is_said_to_be_one(database: Database, home: Path) -> None:
    """The command reports it, too, and does not end with a traceback."""
    (home / "keys").mkdir(exist_ok=True)
    (home / "keys" / "audit.anchor").write_text("")
    with pytest.raises(AnchorUnreadable, match=r"audit\.anchor"):
        kept_anchor(home)
    assert administer(Settings(home=home), argparse.Namespace(command="audit", anchor=None)) == 1


def test_lines_written_at_once_follow_one_another(database: Database) -> None:
    writers: list[Callable[[], None]] = [lambda: add(database, 25)] * 4
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write) for write in writers]:
            done.result()
    assert fault(database) == ""
    assert head(database).number == 100
