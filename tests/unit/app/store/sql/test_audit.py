"""The audit holds line by line; every change that the service did not make is found."""

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.callers import Caller
from app.cli.admin import administer
from app.errors import InvalidRequest
from app.jobs.maintenance.binding import bind_once
from app.jobs.stores import open_keys
from app.settings import Settings
from app.store.blobs.places import open_blobs, place_of
from app.store.crypto.canonical_json import canonical_json
from app.store.crypto.key_files import load_signing_key
from app.store.crypto.sealing import Signer, signature_holds
from app.store.sql.audit.anchor import AnchorUnreadable, keep_anchor, kept_anchors
from app.store.sql.audit.checkpoints import Anchor, newest_checkpoint
from app.store.sql.audit.fold import fold
from app.store.sql.audit.queue import AuditQueue
from app.store.sql.audit.trail import (
    SHARED,
    AuditTrail,
    Entry,
    _written,
    columns,
    early_digest,
    shared_lines,
)
from app.store.sql.db import Database
from app.store.sql.migration import migrate
from app.store.sql.models import AuditChain, AuditLine
from tests.unit.app.store.sql.audit_logs import (
    ADA,
    CHAIN,
    KEY,
    LINES,
    add,
    checkpoint,
    fault,
    tamper,
    verdict,
    vouch,
    write_shared_chain,
)


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


@pytest.mark.parametrize("who", ["ada", 'quoted "Ünï"\\', "\u0000\n\u007f\u2028🦊\uffff"])
@pytest.mark.parametrize("chain", [CHAIN, SHARED])
def test_the_hmac_is_taken_over_canonical_json(who: str, chain: str) -> None:
    caller = Caller(who, project=None)
    line = {"chain": chain, "number": 2**60, "at": datetime(2026, 1, 2, tzinfo=UTC)}
    written = _written(line | columns(Entry(caller, "job.create", "job-1", "é")), "00ff")
    assert written == canonical_json(json.loads(written))


def test_what_the_service_wrote_holds(database: Database) -> None:
    assert fault(database) == ""
    add(database)
    add(database, 3, chain="other")
    first = checkpoint(database)
    assert checkpoint(database) == first  # nothing was added since
    add(database, 2)
    second = checkpoint(database)
    assert (first.number, second.number) == (1, 2)
    found = verdict(database, first, second)
    assert (found.fault, found.lines, found.chains, found.checkpoints) == ("", LINES + 5, 3, 2)


TAMPERED = {
    "a line altered": (
        "UPDATE audit_lines SET reason = 'none' WHERE number = 7",
        "line 7 of chain service was",
    ),
    "who it was": (
        "UPDATE audit_lines SET who = 'bob' WHERE number = 1",
        "line 1 of chain service was altered",
    ),
    "when it was": (
        "UPDATE audit_lines SET at = '2026-03-02 12:00:00.123456' WHERE number = 20",
        "line 20 of chain service was altered",
    ),
    "an HMAC altered": (
        f"UPDATE audit_lines SET mac = '{'0' * 64}' WHERE number = 7",
        "line 7 of chain service",
    ),
    "all HMACs gone": ("UPDATE audit_lines SET mac = ''", "line 1 of chain service was altered"),
    "a line taken out": ("DELETE FROM audit_lines WHERE number = 7", "line 7 of chain service is gone"),
    "the first line taken out": (
        "DELETE FROM audit_lines WHERE number = 1",
        "line 1 of chain service is gone",
    ),
    "the end taken out": ("DELETE FROM audit_lines WHERE number > 15", "end at line 15, and its head says"),
    "all taken out": ("DELETE FROM audit_lines", "end at line 0, and its head says line 20"),
    "two lines changed about": (
        "UPDATE audit_lines SET subject = CASE number WHEN 3 THEN 'job-3' ELSE 'job-2' END "
        "WHERE number IN (3, 4)",
        "line 3 of chain service was altered",
    ),
    "a line added": (
        "INSERT INTO audit_lines (chain, number, at, action, subject, who, mac) VALUES "
        f"('service', 21, '2026-03-01 12:00:00.000000', 'seed.read', 'x', 'bob', '{'0' * 64}')",
        "line 21 of chain service was altered",
    ),
    "a line moved to another chain": (
        "UPDATE audit_lines SET chain = 'x' WHERE number = 20",
        "the head of chain x is gone, and its lines are left",
    ),
    "the head gone": ("DELETE FROM audit_chains", "the head of chain service is gone"),
    "a line of a chain that has other tables": (
        "INSERT INTO audit_lines (chain, number, at, action, subject, who, mac) VALUES "
        "('shared', 1, '2026-03-01 12:00:00.000000', 'job.release', 'x', 'bob', '00')",
        "line 1 of a chain 'shared' was not added by the service",
    ),
    "a head of a chain that has other tables": (
        "INSERT INTO audit_chains (chain, number, mac) VALUES ('shared', 0, '')",
        "head 0 of a chain 'shared' was not added by the service",
    ),
    "a head without lines": (
        "INSERT INTO audit_chains (chain, number, mac) VALUES ('x', 0, '')",
        "chain x has a head and no line",
    ),
    "a head of lines that are not there": (
        "INSERT INTO audit_chains (chain, number, mac) VALUES ('x', 1, '00')",
        "the lines of chain x end at line 0, and its head says line 1",
    ),
    "a second shared head": (
        "INSERT INTO audit_head (id, number, mac) VALUES (2, 0, '')",
        "the shared chain has more than one head",
    ),
    "a shared line without an HMAC": (
        "INSERT INTO audit (id, at, action, subject) VALUES "
        "(1, '2026-03-01 12:00:00.000000', 'seed.read', 'x')",
        "line 1 of the shared chain was not added by the service",
    ),
    "an HMAC of other characters": (
        "UPDATE audit_lines SET mac = 'é' WHERE number = 7",
        "line 7 of chain service was altered",
    ),
    "an HMAC of another type": (
        "UPDATE audit_lines SET mac = x'00' WHERE number = 7",
        "line 7 of chain service was altered",
    ),
    "a time that is none": (
        "UPDATE audit_lines SET at = 'yesterday' WHERE number = 7",
        "a value in its tables has another type than the service writes",
    ),
    "the shared head gone": ("DELETE FROM audit_head", "the shared chain's head is gone"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_the_first_line_that_does_not_hold_is_named(database: Database, home: Path, what: str) -> None:
    statement, said = TAMPERED[what]
    add(database)
    tamper(home, statement)
    assert said in fault(database)


TAMPERED_CHECKPOINTS = {
    "altered": (
        "UPDATE audit_checkpoints SET at = '2026-03-02 12:00:00.123456' WHERE number = 2",
        "2 was altered",
    ),
    "taken out": (
        "DELETE FROM audit_checkpoints WHERE number = 2",
        "checkpoint 2 is gone: checkpoint 3 follows",
    ),
    "its heads taken out": ("DELETE FROM audit_checkpoint_heads WHERE checkpoint = 2", "2 was altered"),
    "the last one taken out": ("DELETE FROM audit_checkpoints WHERE number = 3", "3 is gone, and its heads"),
    "a head altered": ("UPDATE audit_checkpoint_heads SET number = 9 WHERE checkpoint = 2", "2 was altered"),
    "signature altered": (
        'UPDATE audit_checkpoints SET signature = replace(signature, \'"value": "\', \'"value": "A\')',
        "the signature of checkpoint 1 does not hold",
    ),
    "signature of another form": (
        "UPDATE audit_checkpoints SET signature = '[]'",
        "the signature of checkpoint 1 does not hold",
    ),
    "signature gone": (
        "UPDATE audit_checkpoints SET signature = ''",
        "the signature of checkpoint 1 does not hold",
    ),
}


@pytest.mark.parametrize("what", TAMPERED_CHECKPOINTS)
def test_the_first_checkpoint_that_does_not_hold_is_named(database: Database, home: Path, what: str) -> None:
    statement, said = TAMPERED_CHECKPOINTS[what]
    for _ in range(3):
        add(database, 5)
        checkpoint(database)
    tamper(home, statement)
    assert said in fault(database)


CUT = {
    "the end of a chain": (
        "DELETE FROM audit_lines WHERE number > 15",
        "UPDATE audit_chains SET number = 15, mac = (SELECT mac FROM audit_lines WHERE number = 15)",
    ),
    "a whole chain": ("DELETE FROM audit_lines", "DELETE FROM audit_chains"),
    "the lines of a chain": ("DELETE FROM audit_lines", "UPDATE audit_chains SET number = 0, mac = ''"),
}


@pytest.mark.parametrize("what", CUT)
def test_a_chain_cut_off_with_its_head_is_found_by_a_checkpoint(
    database: Database, home: Path, what: str
) -> None:
    """The database alone shows it, where before only an anchor did."""
    add(database)
    checkpoint(database)
    tamper(home, *CUT[what])
    assert "the end of chain service was cut off: checkpoint 1" in fault(database) or (
        "the head of chain service is gone" in fault(database)
    )


def test_an_end_cut_off_with_heads_and_checkpoints_is_found_by_the_anchored_head(
    database: Database, home: Path
) -> None:
    """An older state holds by itself; a checkpoint that is remembered elsewhere shows that it is older."""
    add(database, 5)
    older = checkpoint(database)
    add(database, 5)
    newer = checkpoint(database)
    tamper(
        home,
        "DELETE FROM audit_lines WHERE number > 5",
        "UPDATE audit_chains SET number = 5, mac = (SELECT mac FROM audit_lines WHERE number = 5)",
        "DELETE FROM audit_checkpoints WHERE number > 1",
        "DELETE FROM audit_checkpoint_heads WHERE checkpoint > 1",
    )
    assert fault(database) == ""
    assert fault(database, older) == ""
    assert "the end was cut off: checkpoint 2 was there, and 1 are left" in fault(database, newer)
    add(database, 5, what="other")  # the service goes on, and knows nothing of it
    checkpoint(database)
    assert "checkpoint 2 is not the checkpoint of the anchor" in fault(database, newer)


def test_a_log_written_again_with_the_keys_is_found_by_the_anchored_head(
    database: Database, home: Path
) -> None:
    """An operator has the keys, and can write another log that holds; what left the machine shows it."""
    add(database)
    anchored = checkpoint(database)
    tamper(
        home,
        *(f"DELETE FROM {name}" for name in ("audit_lines", "audit_chains", "audit_checkpoints")),
        "DELETE FROM audit_checkpoint_heads",
    )
    add(database, what="nothing")
    checkpoint(database)
    assert fault(database) == ""
    assert "checkpoint 1 is not the checkpoint of the anchor" in fault(database, anchored)


def test_a_chain_made_again_without_the_key_does_not_hold(database: Database, home: Path) -> None:
    """An attacker who can write to the database, and knows the algorithm, still lacks the key."""
    add(database, key=bytes(32))
    checkpoint(database, key=bytes(32))
    assert "checkpoint 1 was altered" in fault(database)
    assert fault(database, key=bytes(32)) == ""


def test_checkpoints_of_another_signing_key_are_counted(database: Database) -> None:
    add(database)
    checkpoint(database, signer=Signer(Ed25519PrivateKey.generate()))
    found = verdict(database)
    assert (found.fault, found.signed_by_others) == ("", 1)


def test_a_published_checkpoint_is_checked_with_the_public_key_alone(database: Database) -> None:
    add(database)
    checkpoint(database)
    with database.read() as session:
        newest = newest_checkpoint(session)
    assert newest is not None
    published = newest.published
    anchor, signature = published.pop("anchor"), published.pop("signature")
    assert Anchor.parse(anchor) == newest.anchor
    assert signature_holds(published, signature)
    assert not signature_holds(published | {"heads": {CHAIN: [1, "0" * 64]}}, signature)


def test_an_anchor_is_never_moved_back(tmp_path: Path) -> None:
    """It would hide what it is there to show."""
    newer, older = Anchor(10, "a" * 64), Anchor(5, "b" * 64)
    assert kept_anchors(tmp_path) == []
    assert keep_anchor(tmp_path, newer)
    assert not keep_anchor(tmp_path, older)
    assert not keep_anchor(tmp_path, Anchor(10, "c" * 64))
    assert keep_anchor(tmp_path, newer)
    assert kept_anchors(tmp_path) == [newer]
    assert Anchor.parse(str(newer)) == newer
    for text in ("10 lines", "c10:", "c10:abc", "10:abc"):
        with pytest.raises(ValueError, match="as `audit verify` prints it"):
            Anchor.parse(text)


def test_a_log_of_an_older_version_holds_and_its_anchor_is_read(database: Database, home: Path) -> None:
    old = write_shared_chain(home, 12)
    (home / "keys").mkdir(exist_ok=True)
    (home / "keys" / "audit.anchor").write_text(f"{old}\n")
    add(database, 3)
    anchor = checkpoint(database)
    assert kept_anchors(home) == [old]
    found = verdict(database, old, anchor)
    assert (found.fault, found.lines, found.chains, found.unchained) == ("", 15, 2, 0)


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (("UPDATE audit SET who = 'bob' WHERE id = 7",), "line 7 of the shared chain was altered"),
        (("UPDATE audit SET mac = NULL WHERE id = 7",), "line 7 of the shared chain was altered"),
        (("DELETE FROM audit WHERE id = 7",), "line 7 of the shared chain is gone"),
        (
            ("UPDATE audit SET mac = NULL", "UPDATE audit_head SET mac = ''"),
            "line 12 of the shared chain is not",
        ),
        (
            (
                "DELETE FROM audit WHERE id > 9",
                "UPDATE audit_head SET number = 9, mac = (SELECT mac FROM audit WHERE id = 9)",
            ),
            "the end of the shared chain was cut off",
        ),
    ],
)
@pytest.mark.parametrize("by", ["checkpoint", "anchor"])
def test_a_log_of_an_older_version_stays_protected(
    database: Database, home: Path, statements: tuple[str, ...], said: str, by: str
) -> None:
    """Its lines were not written again; a checkpoint, or an anchor that was kept before, protects its end."""
    old = write_shared_chain(home, 12)
    if by == "checkpoint":
        checkpoint(database)
    tamper(home, *statements)
    assert said in fault(database, *([old] if by == "anchor" else []))


@pytest.mark.parametrize("chained", [0, 2])
def test_lines_from_before_the_chain_hold_with_it(database: Database, home: Path, chained: int) -> None:
    """They cannot be altered any more once a line or a checkpoint stands on them."""
    write_shared_chain(home, 3 + chained, early=3)
    assert vouch(database) == (0 if chained else 3)
    checkpoint(database)
    found = verdict(database)
    assert (found.fault, found.unchained) == ("", 3)
    tamper(home, "UPDATE audit SET subject = 'd' WHERE id = 2")
    assert f"line {4 if chained else 3} of the shared chain" in fault(database)


FORGED = (
    "INSERT INTO audit (id, at, action, subject, who, reason) VALUES "
    "({}, '2026-03-01 12:00:00.123456', 'seed.read', 'job-1', 'eve', 'forged')",
    "UPDATE audit_head SET number = {}",
)
"""A line without an HMAC, which needs no key, and the head of the shared chain."""


@pytest.mark.parametrize("checkpoints_before", [0, 1])
@pytest.mark.parametrize("with_digest", [False, True])
def test_a_checkpoint_does_not_vouch_for_a_line_that_has_no_hmac(
    database: Database, home: Path, checkpoints_before: int, with_digest: bool
) -> None:
    """The next checkpoint would seal what anyone with the database has added. The digest needs no key."""
    add(database)
    for _ in range(checkpoints_before):
        checkpoint(database)
    tamper(home, *(statement.format(1) for statement in FORGED))
    assert fault(database)
    if with_digest:
        with database.read() as session:
            digest = early_digest(session.execute(shared_lines()).mappings())
        tamper(home, f"UPDATE audit_head SET mac = '{digest}'", f"UPDATE audit SET mac = '{digest}'")
    add(database, 1)
    checkpoint(database)
    with database.read() as session:
        newest = newest_checkpoint(session)
    assert newest is not None
    assert set(newest.heads) == {CHAIN}
    if with_digest:
        assert "line 1 of the shared chain was altered" in fault(database)
        tamper(home, "UPDATE audit_head SET mac = ''", "UPDATE audit SET mac = NULL")
    assert "no line has an HMAC" in fault(database)


def test_lines_without_an_hmac_are_not_added_to_those_that_a_checkpoint_has(
    database: Database, home: Path
) -> None:
    write_shared_chain(home, 3, early=3)
    assert vouch(database) == 3
    tamper(home, *(statement.format(4) for statement in FORGED))
    assert vouch(database) == 0
    add(database, 1)
    checkpoint(database)
    assert "line 4 of the shared chain was not added by the service" in fault(database)


def test_a_checkpoint_has_the_line_that_an_older_replica_adds_to_lines_without_an_hmac(
    database: Database, home: Path
) -> None:
    """During an upgrade replicas of an older version go on with the shared chain."""
    write_shared_chain(home, 4, early=3)
    made = checkpoint(database)
    with database.read() as session:
        newest = newest_checkpoint(session)
    assert newest is not None
    assert (newest.anchor, newest.heads[SHARED][0]) == (made, 4)
    assert verdict(database).unchained == 3


def test_lines_of_the_shared_chain_are_not_repeated_in_another_table(database: Database, home: Path) -> None:
    """They have HMACs that hold, so that a copy of them would hold as a chain of the same name."""
    write_shared_chain(home, 3)
    columns = "at, action, subject, who, project, request, reason, mac"
    tamper(
        home,
        f"INSERT INTO audit_lines (chain, number, {columns}) SELECT 'shared', id, {columns} FROM audit",
        "INSERT INTO audit_chains (chain, number, mac) SELECT 'shared', number, mac FROM audit_head",
    )
    assert "line 1 of a chain 'shared' was not added by the service" in fault(database)


def test_only_a_first_start_vouches_for_lines_of_a_version_before_hmacs(
    database: Database, home: Path
) -> None:
    """The folder knows that there was one, not the database; the operator can vouch later, by a command."""
    write_shared_chain(home, 3, early=3)
    settings = Settings(home=home)
    sealer, audit = open_keys(settings, database)
    blobs, place = open_blobs(settings, sealer), place_of(settings)
    signer = Signer(load_signing_key(settings))
    bind_once(database, sealer, signer, blobs, audit, place)
    assert verdict(database, key=audit.key).unchained == 3
    assert fault(database, key=audit.key) == ""
    tamper(home, *(f"DELETE FROM {name}" for name in ("audit_checkpoints", "audit_checkpoint_heads")))
    bind_once(database, sealer, signer, blobs, audit, place)
    assert "no line has an HMAC" in fault(database, key=audit.key)
    assert administer(settings, argparse.Namespace(command="reseal")) == 0
    assert fault(database, key=audit.key) == ""


def test_an_altered_log_is_not_copied_with_new_hmacs(
    database: Database, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An older version would take every line for one that the service has written."""
    settings = Settings(home=home)
    create = argparse.Namespace(
        command="keys", action="create", name="ada", scopes="run", project=None, expires="1d"
    )
    assert administer(settings, create) == 0
    tamper(home, *(statement.format(1) for statement in FORGED))
    back = argparse.Namespace(command="migrate", to="2026_11_23_version_support")
    assert administer(settings, back) == 1
    assert "the audit is not intact: no line has an HMAC" in capsys.readouterr().err
    tamper(home, "DELETE FROM audit", "UPDATE audit_head SET number = 0")
    assert administer(settings, back) == 0


def test_a_chain_taken_off_is_no_audit_from_before_the_chain(database: Database, home: Path) -> None:
    """Without an HMAC there is nothing that lines hold by, whatever the head says."""
    write_shared_chain(home, 5)
    tamper(home, "UPDATE audit SET mac = NULL, who = 'bob'", "UPDATE audit_head SET mac = ''")
    assert "no line has an HMAC" in fault(database)


def test_an_older_version_gets_all_lines_in_its_own_chain(database: Database, home: Path) -> None:
    """The chain holds there by itself, without the tables of this version."""
    write_shared_chain(home, 5, early=2)
    add(database, 4)
    add(database, 3, chain="other")
    with database.write() as session:
        assert fold(session, KEY) == 7
    tamper(home, *(f"DELETE FROM {table}" for table in ("audit_lines", "audit_chains")))
    found = verdict(database)
    assert (found.fault, found.lines, found.chains) == ("", 12, 1)


def test_an_anchor_that_was_cut_off_is_said_to_be_one(database: Database, home: Path) -> None:
    """The command reports it, too, and does not end with a traceback."""
    (home / "keys").mkdir(exist_ok=True)
    (home / "keys" / "audit.checkpoint").write_text("")
    with pytest.raises(AnchorUnreadable, match=r"audit\.checkpoint"):
        kept_anchors(home)
    assert administer(Settings(home=home), argparse.Namespace(command="audit", anchor=None)) == 1


def test_verify_prints_an_anchor_of_all_lines(
    database: Database, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = argparse.Namespace(command="audit", anchor=None)
    settings = Settings(home=home)
    open_keys(settings, database, create=True)  # as the first start does
    load_signing_key(settings)
    assert administer(settings, given) == 0
    assert "0 lines" in capsys.readouterr().out
    create = argparse.Namespace(
        command="keys", action="create", name="ada", scopes="run", project=None, expires="1d"
    )
    assert administer(settings, create) == 0
    capsys.readouterr()
    assert administer(settings, given) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "the audit is intact: 1 lines in 2 chains."
    anchor = Anchor.parse(shown[-1])
    assert anchor.number == 1
    tamper(home, *(f"DELETE FROM {name}" for name in ("audit_lines", "audit_chains", "audit_checkpoints")))
    tamper(home, "DELETE FROM audit_checkpoint_heads")
    assert administer(settings, given) == 0
    given = argparse.Namespace(command="audit", anchor=[anchor])
    assert administer(settings, given) == 1
    assert "checkpoint 1 was there, and 0 are left" in capsys.readouterr().err


def test_lines_written_at_once_follow_one_another(database: Database) -> None:
    writers: list[Callable[[], None]] = [lambda: add(database, 25)] * 4
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(write) for write in writers]:
            done.result()
    assert fault(database) == ""
    with database.read() as session:
        assert session.scalar(sa.select(AuditChain.number)) == 100


def test_lines_that_wait_are_committed_together(database: Database) -> None:
    """Every line is there when its thread goes on, with fewer transactions than lines."""
    commits = 0

    def count(_: object) -> None:
        nonlocal commits
        commits += 1

    queue = AuditQueue(database, AuditTrail(KEY, CHAIN))
    sa.event.listen(database.engine, "commit", count)
    with ThreadPoolExecutor(8) as threads, queue._committing:
        running = [threads.submit(queue.append, Entry(ADA, "rows.read", str(n))) for n in range(8)]
        while len(queue._waiting) < 8:
            assert not any(each.done() for each in running)
    for each in running:
        each.result()
    with database.read() as session:
        assert sorted(session.scalars(sa.select(AuditLine.subject))) == [str(n) for n in range(8)]
    assert fault(database) == ""
    assert commits == 1


def test_a_line_that_the_database_rejects_fails_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_all = AuditTrail.append_all

    def reject(self: AuditTrail, session: object, entries: list[Entry], at: object) -> None:
        if any(entry.subject == "bad" for entry in entries):
            raise InvalidRequest("a name holds the character U+0000")
        append_all(self, session, entries, at)  # type: ignore[arg-type]

    monkeypatch.setattr(AuditTrail, "append_all", reject)
    queue = AuditQueue(database, AuditTrail(KEY, CHAIN))
    queue._committing.acquire()
    with ThreadPoolExecutor(3) as threads:
        running = {
            name: threads.submit(queue.append, Entry(ADA, "rows.read", name)) for name in ("a", "bad", "b")
        }
        while len(queue._waiting) < 3:
            assert not any(each.done() for each in running.values())
        queue._committing.release()
        with pytest.raises(InvalidRequest):
            running["bad"].result()
        running["a"].result()
        running["b"].result()
    with database.read() as session:
        assert sorted(session.scalars(sa.select(AuditLine.subject))) == ["a", "b"]
