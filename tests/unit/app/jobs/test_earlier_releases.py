"""Earlier releases in memory: what a worker is sent is always what the database has."""

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from app.jobs.releases.counted_ledger import CountedLedger
from app.jobs.releases.earlier import EarlierReleases
from app.jobs.releases.numbered_ledger import NumberedLedger
from app.store.sql import ledger
from app.store.sql.models import Base, Job, Release
from app.worker.digest_sets import packed_digest
from app.worker.tasks import EarlierSource, EarlierSources
from providers.tables.digest import form_of
from providers.tables.sketches import TableSketch, packed
from tests.unit.app.jobs.sketching import document

ROWS = (12, 500, 12)
"""Rows of each source of a family."""

START = datetime(2026, 1, 1, tzinfo=UTC)

ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 2),  # family
        st.integers(0, 2),  # source
        st.integers(0, 2),  # destination
        st.sampled_from(["me", "colleague", "stranger"]),
        st.sampled_from([None, (1.5, None), (2.5, "0" * 32), (None, "1" * 32)]),  # epsilon, and its draws
        st.booleans(),  # whether its id is smaller than the ids before
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}")
    Base.metadata.create_all(made, tables=[Base.metadata.tables["ledger"]])
    yield made
    made.dispose()


def digest_of(family: int, source: int) -> str:
    """Digest of a source, in one of the two forms."""
    return f"{'sha256' if source == 2 else 'sha256t'}:{family}{source}"


def entry(number: int, drawn: tuple[Any, ...]) -> Release:
    family, source, destination, owner, epsilon, early = drawn
    return Release(
        id=f"{(100 - number) if early else (1000 + number):036d}",
        job_id=f"job {number}",
        family=f"family {family}",
        released_at=START + timedelta(seconds=number),
        owner=owner,
        project="p" if owner == "colleague" else None,
        service="DSWAP",
        revision=1,
        source_digest=digest_of(family, source),
        destination_digest=f"sha256:{destination}{'0' * 63}",
        row_count=ROWS[source],
        epsilon=stated(epsilon),
        sketch=document(family * 3 + source),
    )


def stated(epsilon: tuple[float | None, str | None] | None) -> dict[str, Any] | None:
    """Epsilon of an entry; those of older versions have no fingerprint of the draws."""
    if epsilon is None:
        return None
    value, draw = epsilon
    return {"epsilon": value} if draw is None else {"epsilon": value, "draw": draw}


def epsilons_of(entries: list[Release]) -> list[float | None]:
    """One epsilon for each run that is known to be another one, and for each destination without any."""
    found: dict[str, float | None] = {}
    for one in entries:
        known = one.epsilon or {}
        unknown = one.id if known else one.destination_digest
        found.setdefault(known.get("draw", unknown), known.get("epsilon"))
    return list(found.values())


def opened(sent: EarlierSources) -> list[tuple[EarlierSource, list[bytes], set[str]]]:
    """Each source, with its sketches and its digests of the other form."""
    sizes = array("q", sent.sizes).tolist()
    sketches = iter(
        [sent.sketches[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]
    )
    counts = array("q", sent.counts).tolist() or [0] * len(sent.sources)
    return [
        (
            sent.source(number),
            list(islice(sketches, count)),
            {digest for digest, owner in sent.other_digests.items() if owner == number},
        )
        for number, count in enumerate(counts)
    ]


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
                if each.row_count == job.row_count
                and form_of(each.source_digest) != form_of(job.source_digest)
            },
        )
    return found, same[-1].sketch if same else None


@given(
    ENTRIES, st.lists(st.integers(0, 8), min_size=1, max_size=6), st.booleans(), st.sampled_from([0, 2, 1000])
)
def test_a_worker_is_sent_what_the_database_has(
    engine: sa.Engine, drawn: list[tuple[Any, ...]], sources: list[int], numbered: bool, behind: int
) -> None:
    """Entries are added between the questions, also with smaller ids; some are not visible.

    The database numbers its rows or, as PostgreSQL, does not.
    """
    releases = EarlierReleases()
    added: list[Release] = []
    with pytest.MonkeyPatch.context() as patch, Session(engine) as session:
        patch.setattr(ledger, "numbers_rows", lambda _: numbered)
        patch.setattr("app.jobs.releases.numbered_ledger._MOST_BEHIND", behind)
        for number, source in enumerate(sources):
            for each in drawn[len(added) :] if number == len(sources) - 1 else drawn[len(added) : number + 2]:
                ledger.insert(session, entry(len(added), each))
                added.append(entry(len(added), each))
            project = "p" if source % 2 else None
            digest = digest_of(source // 3, source % 3)
            job = Job(owner="me", project=project, row_count=12, source_digest=digest)
            sent, sketch = releases.of(session, job)
            families, known_sketch = expected(added, job)
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
        session.rollback()


@pytest.mark.parametrize("kept", [True, False], ids=["kept in memory", "forgotten"])
def test_the_newest_entries_in_memory_are_those_of_the_database(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """More entries than are compared, of several owners and sizes; the twin asks the database each time."""
    if not kept:
        monkeypatch.setattr("app.jobs.releases.numbered_ledger._MOST_SIZES", 1)
    chance = np.random.default_rng(4)
    numbered, counted = NumberedLedger(), CountedLedger()
    sizes, owners = (10, 12, 40, 500), ("me", "colleague", "stranger")
    with Session(engine) as session:
        for number in range(1500):
            family, size, owner = chance.integers((400, len(sizes), len(owners))).tolist()
            added = entry(number, (family, 0, number % 3, owners[owner], None, False))
            added.row_count = sizes[size]
            ledger.insert(session, added)
            if number % 150 > 3:
                continue
            for job in (
                Job(owner="me", project=project, row_count=rows, source_digest="sha256t:another")
                for project in (None, "p")
                for rows in sizes
            ):
                found = [family.id for family in numbered.near_families(session, job)]
                expected = counted.families(session, job, ledger.near_families(session, job))
                assert found == [family.id for family in expected]
                if job.project and job.row_count < 30 and number > 1400:
                    assert len(found) > 100
        session.rollback()


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
        (view,) = releases._numbered._views.values()
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


@pytest.mark.parametrize("numbered", [True, False])
def test_families_used_longest_ago_are_forgotten(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, numbered: bool
) -> None:
    for module in ("numbered_ledger", "counted_ledger"):
        monkeypatch.setattr(f"app.jobs.releases.{module}.MOST_FAMILIES", 2)
    monkeypatch.setattr(ledger, "numbers_rows", lambda _: numbered)
    releases = EarlierReleases()
    with Session(engine) as session:
        for number in range(3):
            ledger.insert(session, entry(number, (number, 0, number, "me", None, False)))
        job = Job(owner="me", project=None, row_count=10, source_digest="sha256t:another")
        for _ in range(2):
            assert len(releases.of(session, job)[0].sources) == 3
        views = releases._numbered._views.values()
        assert len(releases._counted._known) + sum(len(view.families) for view in views) == 2
        session.rollback()


def test_owners_who_asked_longest_ago_are_forgotten(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.releases.numbered_ledger._MOST_VIEWS", 2)
    releases = EarlierReleases()
    with Session(engine) as session:
        ledger.insert(session, entry(0, (0, 0, 0, "me", None, False)))
        for owner in ("stranger", "me", "colleague", "me", "stranger"):
            job = Job(owner=owner, project=None, row_count=10, source_digest="sha256t:another")
            assert len(releases.of(session, job)[0].sources) == (owner == "me")
        assert [owner for owner, _ in releases._numbered._views] == ["me", "stranger"]
        session.rollback()


def test_sketches_of_the_tests_are_sketches() -> None:
    assert TableSketch.from_document(document(4)).document() == document(4)
