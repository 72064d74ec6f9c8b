"""The ledger is verified by lines of the audit log that the service wrote, and by no others."""

import argparse
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.callers import OIDC_BEFORE, Caller
from app.cli.admin import administer
from app.ids import new_id
from app.jobs.stores import open_keys
from app.settings import Settings
from app.store.sql import ledger
from app.store.sql.audit.trail import CHAINS, LINES, SHARED_HEADS, SHARED_LINES, AuditTrail
from app.store.sql.db import Database
from app.store.sql.migration import migrate
from app.store.sql.models import Release
from app.store.sql.reseal import REOWNED
from tests.conftest import DATABASES, settings_on
from tests.unit.app.store.sql.audit_logs import KEY, NOW

ISSUED = "oidc-0123456789abcdef:"


@pytest.fixture(params=DATABASES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    settings = settings_on(request.param, request, tmp_path)
    migrate(settings)
    return settings


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    database = Database(settings)
    yield database
    database.close()


def entry(job: str, **values: Any) -> Release:
    known = {
        "id": new_id(), "job_id": job, "family": job, "released_at": NOW, "owner": "ada", "project": None,
        "service": "DSWAP", "revision": 1, "source_digest": "sha256:1", "destination_digest": "sha256:2",
        "row_count": 10, "match": None, "risk": None, "epsilon": None, "reason": None, "sketch": {},
    }  # fmt: skip
    return Release(**known | values)


def release(database: Database, job: str, key: bytes = KEY, **values: Any) -> None:
    """Add an entry and its line, as a job's end does."""
    with database.write() as session:
        added = entry(job, **values)
        reason = ledger.insert(session, added)
        AuditTrail(key, "service").append(session, Caller(added.owner), ledger.RELEASED, job, NOW, reason)


def change(database: Database, job: str, **values: Any) -> str:
    """Change the entry of a job; return what an attacker computes as the reason of its line."""
    with database.write() as session:
        session.execute(sa.update(Release).where(Release.job_id == job).values(**values))
        session.flush()
        found = session.scalars(sa.select(Release).where(Release.job_id == job)).one()
        return ledger.audited_as(found)


def forge(database: Database, chain: str, number: int, job: str, reason: str, **values: Any) -> None:
    """Add a line without the key."""
    line = {
        "chain": chain, "number": number, "at": NOW, "action": ledger.RELEASED, "subject": job,
        "who": "ada", "project": None, "request": None, "reason": reason, "mac": "00",
    }  # fmt: skip
    with database.write() as session:
        session.execute(sa.insert(LINES).values(line | values))


def faulty(database: Database) -> list[str]:
    with database.read() as session:
        return ledger.unrecorded(session)


def test_what_the_service_wrote_holds(database: Database) -> None:
    release(database, "job-1")
    release(database, "job-2", epsilon={"epsilon": 1.5}, reason="corrected")
    assert faulty(database) == []


@pytest.mark.parametrize("chain", ["shared", "unknown"])
def test_a_line_that_is_in_no_chain_does_not_vouch_for_a_changed_entry(
    database: Database, chain: str
) -> None:
    """The digest of an entry needs no key, so that only a line with an HMAC says what the entry was."""
    release(database, "job-1")
    reason = change(database, "job-1", reason="approved by the data protection officer")
    assert faulty(database) == ["job-1"]
    forge(database, chain, 1, "job-1", reason)
    assert faulty(database) == ["job-1"]


def test_a_line_after_the_head_of_its_chain_does_not_count(database: Database) -> None:
    release(database, "job-1")
    forge(database, "service", 2, "job-1", change(database, "job-1", row_count=7))
    assert faulty(database) == ["job-1"]


def test_a_job_with_two_different_lines_is_reported(database: Database) -> None:
    """Whichever is read last."""
    release(database, "job-1")
    was = change(database, "job-1", row_count=10)
    reason = change(database, "job-1", row_count=7)
    forge(database, "service", 2, "job-1", reason)
    with database.write() as session:
        session.execute(sa.update(CHAINS).values(number=2, mac="00"))
    assert faulty(database) == ["job-1"]
    assert change(database, "job-1", row_count=10) == was
    assert faulty(database) == ["job-1"]


@pytest.mark.parametrize("first", [True, False])
def test_a_second_entry_of_a_job_is_reported(database: Database, first: bool) -> None:
    """The entry that was recorded is there, too."""
    release(database, "job-1")
    with database.write() as session:
        session.add(entry("job-1", id=("0" if first else "f") * 36, row_count=7))
    assert faulty(database) == ["job-1"]


def test_an_entry_without_a_line_and_a_line_without_an_entry_are_reported(database: Database) -> None:
    release(database, "job-1")
    with database.write() as session:
        session.execute(sa.delete(Release))
        session.add(entry("job-2"))
    assert faulty(database) == ["job-1", "job-2"]


def test_a_forged_renaming_gives_no_entry_to_another_owner(database: Database) -> None:
    release(database, "job-1", owner=f"{OIDC_BEFORE}ada")
    change(database, "job-1", owner=f"{ISSUED}ada")
    at = NOW + timedelta(days=1)
    forge(database, "shared", 1, ISSUED, "owners of older versions get their issuer", action=REOWNED, at=at)
    assert faulty(database) == ["job-1"]
    with database.write() as session:
        AuditTrail(KEY, "operator").append(session, Caller("operator"), REOWNED, ISSUED, at)
    assert faulty(database) == []


def test_lines_that_were_copied_to_the_shared_chain_are_read_there(database: Database) -> None:
    """An older version got them; its ledger went with its table."""
    line = {"id": 1, "at": NOW, "action": ledger.RELEASED, "subject": "job-1", "who": "ada", "mac": "00"}
    with database.write() as session:
        session.execute(sa.insert(SHARED_LINES).values(line))
        session.execute(sa.update(SHARED_HEADS).values(number=1, mac="00"))
    assert faulty(database) == ["job-1"]


def test_the_command_verifies_the_log_that_it_relies_on(
    settings: Settings, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that was put into a chain, with its head, shows only there."""
    _, audit = open_keys(settings, database)
    release(database, "job-1", key=audit.key)
    given = argparse.Namespace(command="ledger", verify=True, source=None)
    assert administer(settings, given) == 0
    assert "every entry of the ledger matches the audit log" in capsys.readouterr().out
    with database.write() as session:
        session.add(forged := entry("job-2"))
        session.flush()
        reason = ledger.audited_as(forged)
    forge(database, "service", 2, "job-2", reason)
    with database.write() as session:
        session.execute(sa.update(CHAINS).values(number=2, mac="00"))
    assert faulty(database) == []
    assert administer(settings, given) == 1
    shown = capsys.readouterr()
    assert "the audit is not intact: line 2 of chain service was altered" in shown.err
    assert "every entry" not in shown.out
