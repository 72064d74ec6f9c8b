"""Releases on a new source that are recorded at one time."""

from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.releases.recording import record_release
from app.store.sql.db import Database
from app.store.sql.models import Job, Release
from tests.unit.app.jobs.ledgers import START, emptied, entry, insert, opened
from tests.unit.app.jobs.sketching import document


class NoAudit:
    """Audit log that nobody reads."""

    def append(self, *line: Any) -> None: ...


def new_job(number: int, digest: str = "sha256t:new", rows: int = 12) -> Job:
    return Job(
        id=f"job {number}", owner="me", project=None, service="DSWAP", revision=1, source_digest=digest,
        row_count=rows, options=None,
    )  # fmt: skip


def record(session: Session, job: Job, seen: str, sketched: int) -> None:
    """Record a release whose source was new when its job began."""
    values = {"finished_at": START, "destination_digest": f"sha256t:{job.id[4:]:0>64}"}
    found = {"family": None, "match": None, "risk": None, "sketch": document(sketched), "seen": seen}
    record_release(session, NoAudit(), job, values, found)  # type: ignore[arg-type]


def recorded(database: Database) -> list[tuple[str, str | None]]:
    with database.read() as session:
        return [(each.family, each.match) for each in session.scalars(sa.select(Release).order_by("id"))]


def test_jobs_on_a_new_source_at_one_time_have_one_family(database: Database) -> None:
    """Two families of one source would leave out the releases of one of them for good."""
    releases = emptied(database)
    seen = releases.find(database, new_job(0))[0].seen
    for number, digest in enumerate(["sha256t:new", "sha256t:another", "sha256t:new"]):
        with database.write() as session:
            record(session, new_job(number, digest), seen, sketched=number)
    assert recorded(database) == [("job 0", None), ("job 1", None), ("job 0", "digest")]
    sent, _ = releases.find(
        database, Job(owner="me", project=None, row_count=12, source_digest="sha256t:new")
    )
    assert [source.releases for source, _, _ in opened(sent)] == [2]


def test_jobs_on_tables_of_a_new_source_at_one_time_have_one_family(database: Database) -> None:
    """Such as two of its waves. Neither a table of another size nor an entry of before is compared."""
    releases = emptied(database)
    insert(database, entry(0, (0, 0, 0, "me", None, False)))
    seen = releases.find(database, new_job(1))[0].seen
    for number, (rows, sketched) in enumerate([(12, 7), (13, 7), (12, 8), (500, 7), (12, 0)], 1):
        with database.write() as session:
            record(session, new_job(number, f"sha256t:{number}", rows), seen, sketched)
    assert recorded(database)[1:] == [
        ("job 1", None),
        ("job 1", "fields"),
        ("job 3", None),
        ("job 4", None),
        ("job 5", None),
    ]


def test_two_transactions_record_a_new_source_one_after_the_other(server: Database) -> None:
    """PostgreSQL would let neither see the other's entry."""
    seen = emptied(server).find(server, new_job(0))[0].seen

    def second() -> None:
        with server.write() as session:
            record(session, new_job(1, "sha256t:another"), seen, sketched=7)

    with ThreadPoolExecutor(1) as pool:
        with server.write() as session:
            record(session, new_job(0), seen, sketched=7)
            later = pool.submit(second)
            waiting = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            while not later.done() and not session.scalar(waiting):
                sleep(0.01)
        later.result()
    assert recorded(server) == [("job 0", None), ("job 0", "fields")]
