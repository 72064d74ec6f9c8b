"""Databases with a ledger alone, and their entries."""

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app.jobs.releases.earlier import EarlierReleases
from app.settings import Settings
from app.store.sql import ledger
from app.store.sql.db import Database
from app.store.sql.models import Base, Release
from app.worker.tasks import EarlierSource, EarlierSources
from tests.unit.app.jobs.sketching import document

LEDGER = Base.metadata.tables["ledger"]

ROWS = (12, 500, 12)
"""Rows of each source of a family."""

START = datetime(2026, 1, 1, tzinfo=UTC)


def opened_database(home: Path, **given: str) -> Iterator[Database]:
    made = Database(Settings(home=home, **given))  # type: ignore[arg-type]
    LEDGER.create(made.engine)
    yield made
    made.close()


def emptied(database: Database) -> EarlierReleases:
    with database.write() as session:
        session.execute(sa.delete(Release))
    return EarlierReleases()


def insert(database: Database, *entries: Release) -> None:
    with database.write() as session:
        for each in entries:
            ledger.insert(session, each)


def digest_of(family: int, source: int) -> str:
    """Digest of a source, in one of the two forms."""
    return f"{'sha256' if source == 2 else 'sha256t'}:{family}{source}"


def entry(number: int, drawn: tuple[Any, ...]) -> Release:
    family, source, destination, owner, epsilon, early, *_ = drawn
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


def stated(epsilon: tuple[Any, ...] | None) -> dict[str, Any] | None:
    """Epsilon of an entry; those of older versions have no fingerprint of the draws, or no fields."""
    if epsilon is None:
        return None
    value, draw, blocks = epsilon
    found = {"epsilon": value} if draw is None else {"epsilon": value, "draw": draw}
    if blocks is not None:
        found["orders"] = [{"fields": fields, "epsilon": value / len(blocks)} for fields in blocks]
        found["unit"] = "home"
    return found


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
