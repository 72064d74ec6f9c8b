"""Earlier releases in memory: what a worker is sent is always what the database has."""

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from app.jobs.releases.earlier import EarlierReleases
from app.jobs.releases.known_family import KnownFamily
from app.jobs.releases.views import View
from app.settings import Settings
from app.store.sql import ledger
from app.store.sql.db import Database
from app.store.sql.models import Base, Job, Release
from app.worker.digest_sets import packed_digest
from app.worker.tasks import EarlierSource, EarlierSources
from providers.swapping.composition import RunEpsilon
from providers.tables.digest import form_of
from providers.tables.sketches import TableSketch, packed
from tests.postgres import running_postgres
from tests.unit.app.jobs.ledgers import LEDGER, digest_of, emptied, entry, insert, opened
from tests.unit.app.jobs.sketching import document

ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 2),  # family
        st.integers(0, 2),  # source
        st.integers(0, 2),  # destination
        st.sampled_from(["me", "colleague", "stranger"]),
        st.sampled_from(  # epsilon, its draws, and the fields of its orders, which older versions do not name
            [
                None,
                (1.5, None, None),
                (2.5, "0" * 32, None),
                (2.5, "0" * 32, [["income"], ["a", "b"]]),
                (None, "1" * 32, None),
                (3.0, "2" * 32, [["income"]]),
            ]
        ),
        st.booleans(),  # whether its id is smaller than the ids before
        st.integers(0, 2),  # questions that are asked before it is committed, if the database can
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}")
    Base.metadata.create_all(made, tables=[LEDGER])
    yield made
    made.dispose()


def epsilons_of(entries: list[Release]) -> list[RunEpsilon | None]:
    """One epsilon for each run that is known to be another one, and for each destination without any.

    The fields are those of any entry of the run that names them.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for one in entries:
        known = one.epsilon or {}
        unknown = one.id if known else one.destination_digest
        found.setdefault(known.get("draw", unknown), []).append(known)
    return [run_of(max(of_run, key=lambda known: "orders" in known)) for of_run in found.values()]


def run_of(known: dict[str, Any]) -> RunEpsilon | None:
    if known.get("epsilon") is None:
        return None
    if "orders" not in known:
        return RunEpsilon((), ())
    fields = tuple(tuple(each["fields"]) for each in known["orders"])
    return RunEpsilon(fields, tuple(each["epsilon"] for each in known["orders"]), known["unit"])


def expected(entries: list[Release], job: Job) -> Any:
    """The same from all visible entries, one after the other."""
    seen = [
        each
        for each in sorted(entries, key=lambda one: one.id)
        if each.owner == job.owner or (job.project is not None and each.project == job.project)
    ]
    same = [each for each in seen if each.source_digest == job.source_digest]
    near = [each for each in seen if job.row_count // 2 <= each.row_count <= job.row_count * 2]
    newest_first = sorted(seen, key=lambda one: one.id, reverse=True)
    compared = {each.family for each in (same[-1:] or near)}
    families = dict.fromkeys(each.family for each in newest_first if each.family in compared)
    found = {}
    for name in families:
        of_family = [each for each in seen if each.family == name]
        found[name] = (
            set() if same else {packed(each.sketch) for each in of_family},
            list(dict.fromkeys(each.destination_digest for each in of_family)),
            epsilons_of(of_family),
            of_family[-1].released_at.isoformat(timespec="seconds"),
            {
                each.source_digest
                for each in of_family
                if not same
                and each.row_count == job.row_count
                and form_of(each.source_digest) != form_of(job.source_digest)
            },
        )
    return found, same[-1].sketch if same else None


@given(
    ENTRIES, st.lists(st.integers(0, 8), min_size=1, max_size=6), st.sampled_from([0, 2, 1000]), st.booleans()
)
def test_a_worker_is_sent_what_the_database_has(
    database: Database, drawn: list[tuple[Any, ...]], sources: list[int], behind: int, threads: bool
) -> None:
    """Entries are added between the questions, also with smaller ids; some are not visible.

    On PostgreSQL some are committed after entries that were added later. ``threads``: others ask as well.
    """
    releases, added = emptied(database), 0
    committed: list[Release] = []
    begun: set[str] = set()
    open_sessions: list[tuple[int, Release, ExitStack]] = []
    with pytest.MonkeyPatch.context() as patch, ExitStack() as rest:
        patch.setattr("app.jobs.releases.numbered_ledger._MOST_BEHIND", behind)
        patch.setattr("app.jobs.releases.server_ledger.MOST_NEWS", behind)
        for number, source in enumerate(sources):
            for each in drawn[added:] if number == len(sources) - 1 else drawn[added : number + 2]:
                made = entry(added, each)
                if database.shared and each[-1]:
                    opened_now = rest.enter_context(ExitStack())
                    ledger.insert(opened_now.enter_context(database.write()), made)
                    open_sessions.append((number + each[-1], made, opened_now))
                else:
                    if made.family not in begun:  # the job of the first release names the family
                        made.job_id = made.family
                        begun.add(made.family)
                    insert(database, made)
                    committed.append(made)
                added += 1
            for ready in [each for each in open_sessions if each[0] <= number]:
                open_sessions.remove(ready)
                ready[2].close()
                committed.append(ready[1])
            project = "p" if source % 2 else None
            digest = digest_of(source // 3, source % 3)
            job = Job(owner="me", project=project, row_count=12, source_digest=digest)
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(partial(releases.find, database), [job] * (4 if threads else 1)))
            for sent, sketch in answers:
                check(sent, sketch, committed, job)


def check(sent: EarlierSources, sketch: Any, entries: list[Release], job: Job) -> None:
    """A worker is sent what the entries say, one after the other."""
    families, known_sketch = expected(entries, job)
    assert sketch == known_sketch
    found = opened(sent)
    assert [each.family for each, _, _ in found] == list(families)
    for each, of_each, other_of_each in found:
        sketches, destinations, epsilons, last, other = families[each.family]
        assert set(of_each) == sketches
        assert each.destinations == b"".join(map(packed_digest, destinations))
        assert each.releases == len(destinations)
        assert each.last_released_at == last
        assert other_of_each == other
        finite = any(value is not None for value in epsilons)
        assert list(each.epsilons) == (epsilons if finite else [])


@pytest.mark.parametrize("kept", [True, False], ids=["kept in memory", "forgotten"])
def test_the_newest_entries_in_memory_are_those_of_the_database(
    database: Database, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """More entries than are compared, of several owners and sizes."""
    if not kept:
        monkeypatch.setattr("app.jobs.releases.views._MOST_SIZES", 1)
    releases, chance = emptied(database), np.random.default_rng(4)
    sizes, owners = (10, 12, 40, 500), ("me", "colleague", "stranger")
    entries: list[Release] = []
    waiting: list[Release] = []
    begun: set[int] = set()
    for number in range(1500):
        family, size, owner = chance.integers((400, len(sizes), len(owners))).tolist()
        waiting.append(entry(number, (family, 0, number % 3, owners[owner], None, False)))
        waiting[-1].row_count = sizes[size]
        if family not in begun:
            waiting[-1].job_id = waiting[-1].family
            begun.add(family)
        if number % 150 > 3:
            continue
        entries += waiting
        insert(database, *waiting)
        waiting.clear()
        for job in (
            Job(owner="me", project=project, row_count=rows, source_digest="sha256t:another")
            for project in (None, "p")
            for rows in sizes
        ):
            sent, _ = releases.find(database, job)
            found = [each.family for each, _, _ in opened(sent)]
            assert found == near_families(entries, job)
            if job.project and job.row_count < 30 and number > 1300:
                assert len(found) > 100


def near_families(entries: list[Release], job: Job) -> list[str]:
    """Families of the newest entries with about as many rows, newest first."""
    near = [each for each in entries if job.row_count // 2 <= each.row_count <= job.row_count * 2]
    own = [each for each in near if each.owner == job.owner][-ledger.MOST_CANDIDATES :]
    if job.project is not None:
        own += [each for each in near if each.project == job.project][-ledger.MOST_CANDIDATES :]
    newest = sorted({each.id: each.family for each in own}.items(), reverse=True)[: ledger.MOST_CANDIDATES]
    families = {family for _, family in newest}
    visible = [
        each
        for each in sorted(entries, key=lambda one: one.id, reverse=True)
        if each.owner == job.owner or (job.project is not None and each.project == job.project)
    ]
    return list(dict.fromkeys(each.family for each in visible if each.family in families))


def test_an_older_snapshot_reads_nothing_again(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another transaction has seen more of the family: its entries are enough."""
    releases = EarlierReleases()
    first, second = ((0, 0, number, "me", None, False) for number in (0, 1))
    job = Job(owner="me", project=None, row_count=10, source_digest=digest_of(0, 0))
    with Session(engine) as session:
        ledger.insert(session, entry(0, first))
        before = ledger.newest_row(session)
        ledger.insert(session, entry(1, second))
        releases.of(session, job)
        monkeypatch.setattr(ledger, "newest_row", lambda _: before)
        monkeypatch.setattr(ledger, "members", None)
        monkeypatch.setattr(ledger, "added_after", None)
        sent, _ = releases.of(session, job)
        assert sent.source(0).releases == 2
        session.rollback()


def test_what_an_older_snapshot_reads_is_not_kept(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would lack the entries that were added since, and nobody would read them."""
    releases = EarlierReleases()
    job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
    with Session(engine) as session:
        before = ledger.newest_row(session)
        releases.of(session, job)
        ledger.insert(session, entry(0, (0, 0, 0, "me", None, False)))
        assert len(releases.of(session, job)[0].sources) == 1
        ledger.insert(session, entry(1, (1, 1, 0, "me", None, False)))
        same = Job(owner="me", project=None, row_count=12, source_digest=digest_of(1, 1))
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "newest_row", lambda _: before)
            assert len(releases.of(session, same)[0].sources) == 1
        (view,) = releases._numbered._views.kept.values()
        assert list(view.families) == ["family 0"]
        session.rollback()


def test_new_entries_of_many_families_are_read_at_once(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all but one of the families have no new entry."""
    releases = EarlierReleases()
    read: list[int] = []
    real = ledger.added_after

    def noted(session: Session, job: Job, mark: int) -> Any:
        read.append(mark)
        return real(session, job, mark)

    job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
    with Session(engine) as session:
        for number in range(20):
            ledger.insert(session, entry(number, (number, 0, number % 3, "me", None, False)))
        releases.of(session, job)
        monkeypatch.setattr(ledger, "members", None)
        monkeypatch.setattr(ledger, "added_after", noted)
        ledger.insert(session, entry(20, (7, 0, 2, "me", None, False)))
        sent, _ = releases.of(session, job)
        assert [each.releases for each, _, _ in opened(sent) if each.family == "family 7"] == [2]
        assert (len(sent.sources), len(read)) == (20, 1)
        releases.of(session, job)
        assert len(read) == 1
        session.rollback()


def kept(releases: EarlierReleases) -> dict[tuple[str, str | None], View]:
    return {**releases._numbered._views.kept, **releases._server._views.kept}


def test_families_used_longest_ago_are_forgotten(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.jobs.releases.views.MOST_FAMILIES", 2)
    releases = emptied(database)
    for number in range(3):
        insert(database, entry(number, (number, 0, number, "me", None, False)))
    job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
    for _ in range(2):
        assert len(releases.find(database, job)[0].sources) == 3
    assert sum(len(view.families) for view in kept(releases).values()) == 2


def test_owners_who_asked_longest_ago_are_forgotten(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.releases.views._MOST_VIEWS", 2)
    releases = emptied(database)
    insert(database, entry(0, (0, 0, 0, "me", None, False)))
    for owner in ("stranger", "me", "colleague", "me", "stranger"):
        job = Job(owner=owner, project=None, row_count=10, source_digest="sha256t:another")
        assert len(releases.find(database, job)[0].sources) == (owner == "me")
    assert [owner for owner, _ in kept(releases)] == ["me", "stranger"]


def test_runs_with_one_seed_are_counted() -> None:
    """The same run again is none of them, nor is an entry without the fingerprint of its seed."""
    family = KnownFamily("family 0")
    for number, (draw, stream) in enumerate([("0", "a"), ("0", "a"), ("1", "b"), ("2", "a"), ("3", None)]):
        made = entry(number, (0, 0, number % 3, "me", (1.5, draw * 32, [["income"]]), False))
        if stream is not None:
            made.epsilon = {**(made.epsilon or {}), "stream": stream * 32}
        family.add([made])
    sent: EarlierSource = pickle.loads(family.sent()[0])  # noqa: S301 - made above
    assert (sent.dependent, sent.streams.hex()) == (1, "a" * 32 + "b" * 32)
    assert len(sent.epsilons) == 4


class TestOnAServer:
    """PostgreSQL is asked for what is new; what it answers is kept if nothing is missing."""

    def test_one_query_shows_that_memory_has_everything(
        self, server: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        releases = emptied(server)
        insert(server, *(entry(number, (number, 0, 0, "me", None, False)) for number in range(20)))
        new = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        known = Job(owner="me", project=None, row_count=10, source_digest=digest_of(7, 0))
        releases.find(server, new)
        monkeypatch.setattr(server, "read", None)
        insert(server, entry(20, (7, 0, 2, "me", None, False)))
        sent, _ = releases.find(server, new)
        assert [each.releases for each, _, _ in opened(sent) if each.family == "family 7"] == [2]
        assert len(sent.sources) == 20
        insert(server, entry(21, (7, 0, 1, "me", None, False)))
        sent, sketch = releases.find(server, known)
        assert (len(sent.sources), sent.source(0).releases, sketch is None) == (1, 3, False)

    def test_the_first_release_of_a_family_is_read_once(
        self, server: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pipeline that sends new tables begins a family with each call."""
        releases = emptied(server)
        job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        assert releases.find(server, job)[0].sources == ()
        monkeypatch.setattr(server, "read", None)
        for number in range(5):
            first = entry(number, (number, 0, 0, "me", None, False))
            first.job_id = first.family
            insert(server, first)
            sent, _ = releases.find(server, job)
            assert [each.releases for each, _, _ in opened(sent)] == [1] * (number + 1)

    def test_what_an_older_snapshot_reads_is_not_kept(self, server: Database) -> None:
        """It would lack the entries that were added since, and nobody would read them."""
        releases = emptied(server)
        job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        releases.find(server, Job(owner="me", project=None, row_count=900, source_digest="sha256t:another"))
        with server.read() as session:
            session.execute(sa.text("SELECT 1"))  # takes the snapshot
            insert(server, entry(0, (0, 0, 0, "me", None, False)))
            releases.find(server, Job(owner="me", project=None, row_count=5, source_digest="sha256t:0"))
            assert releases._server.read(session, job).families == []
        (view,) = releases._server._views.kept.values()
        assert view.newest(job) is None
        assert len(releases.find(server, job)[0].sources) == 1

    def test_entries_of_a_transaction_that_stays_open_are_read_when_it_ends(self, server: Database) -> None:
        """Whatever was committed meanwhile, also by a later transaction."""
        releases = emptied(server)
        job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        assert releases.find(server, job)[0].sources == ()
        with server.write() as session:
            ledger.insert(session, entry(0, (0, 0, 0, "me", None, False)))
            for number in range(1, 6):
                insert(server, entry(number, (number, 0, 0, "me", None, False)))
                assert len(releases.find(server, job)[0].sources) == number
        assert len(releases.find(server, job)[0].sources) == 6

    def test_entries_with_numbers_of_another_server_are_read(self, server: Database) -> None:
        """Entries of versions that had no number, too."""
        releases = emptied(server)
        job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        for number, written_in in enumerate((None, 1, 2**40)):
            insert(server, entry(number, (number, 0, 0, "me", None, False)))
            with server.write() as session:
                session.execute(
                    sa.update(Release)
                    .where(Release.family == f"family {number}")
                    .values(written_in=written_in)
                )
        for _ in range(2):
            assert len(releases.find(server, job)[0].sources) == 3
            assert len(EarlierReleases().find(server, job)[0].sources) == 3

    @pytest.mark.parametrize("kept", [True, False], ids=["kept in memory", "forgotten"])
    def test_an_entry_that_a_snapshot_comes_to_later_is_counted_once(
        self, server: Database, monkeypatch: pytest.MonkeyPatch, kept: bool
    ) -> None:
        """Its number is that of a transaction of another server, which this one has not reached yet."""
        if not kept:
            monkeypatch.setattr("app.jobs.releases.views.MOST_FAMILIES", 0)
        releases = emptied(server)
        first, second = (entry(number, (0, 0, number, "me", None, False)) for number in (0, 1))
        first.job_id = first.family
        insert(server, first)
        with server.write() as session:
            now = session.scalar(sa.text("SELECT pg_current_xact_id()::text::bigint"))
            assert now is not None
            session.execute(sa.update(Release).values(written_in=now + 4))
        insert(server, second)
        job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        for number in range(8):
            sent, _ = releases.find(server, job)
            assert sorted(each.releases for each, _, _ in opened(sent)) == [1] * number + [2]
            insert(server, entry(number + 2, (number + 1, 0, 0, "me", None, False)))

    def test_another_server_is_read_from_the_start(self, server: Database) -> None:
        """A copy that takes the place of the server has transactions with the numbers of earlier ones."""
        releases = emptied(server)
        job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        for number in range(100):
            insert(server, entry(number, (number, 0, 0, "me", None, False)))
        assert len(releases.find(server, job)[0].sources) == 100
        with running_postgres() as process:
            other = Database(Settings(database_url=process.empty_database()))
            LEDGER.create(other.engine)
            insert(other, entry(100, (100, 0, 0, "me", None, False)))
            sent, _ = releases.find(other, job)
            assert [each.family for each, _, _ in opened(sent)] == ["family 100"]
            other.close()

    def test_a_table_that_was_restored_is_read_from_the_start(self, server: Database) -> None:
        releases = emptied(server)
        job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        insert(server, entry(0, (0, 0, 0, "me", None, False)))
        assert len(releases.find(server, job)[0].sources) == 1
        LEDGER.drop(server.engine)
        LEDGER.create(server.engine)
        for number in (1, 2):
            restored = entry(number, (number, 0, 0, "me", None, False))
            with server.write() as session:
                ledger.insert(session, restored)
                session.execute(sa.update(Release).where(Release.id == restored.id).values(written_in=number))
        sent, _ = releases.find(server, job)
        assert {each.family for each, _, _ in opened(sent)} == {"family 1", "family 2"}

    def test_an_entry_that_was_restored_into_a_family_in_memory_is_recognised_by_its_digest(
        self, server: Database
    ) -> None:
        releases = emptied(server)
        insert(server, entry(0, (0, 0, 0, "me", None, False)))
        releases.find(server, Job(owner="me", project=None, row_count=10, source_digest=digest_of(0, 0)))
        insert(server, restored := entry(1, (0, 1, 0, "me", None, False)))
        with server.write() as session:
            session.execute(sa.update(Release).where(Release.id == restored.id).values(written_in=1))
        for _ in range(2):
            job = Job(owner="me", project=None, row_count=500, source_digest=digest_of(0, 1))
            sent, sketch = releases.find(server, job)
            assert (len(sent.sources), sketch) == (1, restored.sketch)

    def test_the_text_of_a_snapshot_is_that_of_the_server(self, server: Database) -> None:
        with server.write() as older, server.write() as newer:
            for session in (older, newer):
                session.execute(sa.text("SELECT pg_current_xact_id()"))
            with server.write() as session:
                session.execute(sa.text("SELECT pg_current_xact_id()"))
            with server.read() as session:
                text = session.scalar(sa.text("SELECT pg_current_snapshot()::text"))
        assert text is not None
        assert text.count(",") == 1
        assert str(ledger.Snapshot.parse(text, "")) == text
        assert str(ledger.Snapshot.parse("7:7:", "")) == "7:7:"


def test_sketches_of_the_tests_are_sketches() -> None:
    assert TableSketch.from_document(document(4)).document() == document(4)
