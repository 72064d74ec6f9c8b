"""Rows of jobs, buffers and messages for tests of the store."""

from datetime import UTC, datetime, timedelta
from typing import Any

from app.ids import new_id
from app.job_kinds import revision_of
from app.store.sql import jobs
from app.store.sql.db import Database
from app.store.sql.models import Buffer, Delivery, Job

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def job(**values: Any) -> Job:
    known = {
        "id": new_id(),
        "service": "DSWAP",
        "revision": revision_of(values.get("service", "DSWAP")) or 1,
        "state": "queued",
        "parameters": {"swap_fields": ["income"]},
        "sealed_seed": b"sealed",
        "seed_fingerprint": "0" * 16,
        "seed_bits": 128,
        "created_at": NOW,
        "ranked_at": NOW,
        "row_count": 3,
        "source_digest": "sha256:1",
        "source_fields": [{"name": "income", "type": "int64"}],
        "inline": True,
        "retain_source": False,
        "report_level": "summary",
    }
    return Job(**known | values)


def buffer(**values: Any) -> Buffer:
    known = {
        "id": new_id(),
        "digest": "sha256:1",
        "fields": [],
        "row_count": 0,
        "byte_size": 0,
        "blob": "b" * 32,
        "created_at": NOW,
        "expires_at": NOW + timedelta(hours=1),
    }
    return Buffer(**known | values)


def delivery(**values: Any) -> Delivery:
    known = {"id": new_id(), "job_id": new_id(), "body": "{}", "state": "pending", "due_at": NOW}
    return Delivery(**known | values)


def add(database: Database, *rows: Job | Buffer) -> list[str]:
    with database.write() as session:
        session.add_all(rows)
    return [row.id for row in rows]


def found(database: Database, job_id: str, *deferred: str) -> Job:
    with database.read() as session:
        row = jobs.find(session, job_id, *deferred)
    assert row is not None
    return row
