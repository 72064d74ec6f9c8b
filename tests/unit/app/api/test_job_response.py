"""The Job resource is put together without its model, and is what the model would make of it."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from app.api.job_response import document_of
from app.api.schemas import Job as JobModel
from app.engine.engine import Progress
from app.errors import Unavailable
from app.formats.json_output import SMALL_BYTES, encoded_size
from app.jobs.maintenance.retention import Lifetimes
from app.store.sql.models import Job

NOW = datetime(2026, 11, 23, 9, 5, 0, 120_000, UTC)
FIELDS = [{"name": "income", "type": "int64"}]
ENDED: dict[str, Any] = {
    "state": "succeeded",
    "outcome": "SUCCESS_WITH_INFO",
    "finished_at": NOW + timedelta(seconds=1),
    "destination_digest": "sha256:2",
    "destination_fields": FIELDS,
    "events": [
        {"code": "suppressed", "message": "row 2 is alone", "row": 2, "field": "income"},
        {"code": "reversible_groups", "message": "three groups are small"},
    ],
    "event_counts": {"suppressed": 1, "reversible_groups": 1},
}


def job(**values: Any) -> Job:
    known = {
        "id": "01a20815-3606-7018-8264-ae9461f76105",
        "service": "CDSWAP",
        "revision": 3,
        "state": "queued",
        "parameters": {"swap_fields": ["income"], "control_field": None, "rate": 1.0},
        "seed_fingerprint": "0" * 16,
        "row_count": 3,
        "priority": "normal",
        "created_at": NOW,
        "source_digest": "sha256:1",
        "source_fields": FIELDS,
    }
    return Job(**known | values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"state": "running", "started_at": NOW, "deadline": NOW.replace(microsecond=0)},
        ENDED,
        ENDED | {"rerun_of": "01a20815-3606", "reproduced": False, "options": {"measures": {"sample": 5}}},
        ENDED | {"destination_reference": "s3://a/b.csv", "source_reference": "file:///a.csv"},
        {"state": "failed", "outcome": "FAILURE", "error": Unavailable("the worker is away").problem()},
        {"service": "measures", "state": "cancelled", "outcome": "FAILURE"},
    ],
)
def test_the_document_is_what_the_model_makes_of_it(values: dict[str, Any]) -> None:
    document = document_of(job(**values), Progress(0.25, "swapping"))
    assert JobModel.model_validate(document).document() == document


LIFETIMES = Lifetimes(job=timedelta(days=90), tables=timedelta(days=7))


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        (ENDED, "2026-11-30T09:05:01.120000Z"),
        (ENDED | {"destination_reference": "s3://a/b.csv"}, None),
        (ENDED | {"service": "measures"}, None),
        ({"state": "failed", "finished_at": ENDED["finished_at"]}, None),
    ],
)
def test_a_job_that_ended_says_when_it_and_its_rows_are_deleted(
    values: dict[str, Any], rows: str | None
) -> None:
    """The service deletes no destination at a reference, and stores none of a measurement."""
    document = document_of(job(**values), Progress(), lifetimes=LIFETIMES)
    assert document["expires_at"] == "2027-02-21T09:05:01.120000Z"
    assert document.get("rows_expire_at") == rows
    assert JobModel.model_validate(document).document() == document


def test_a_job_that_is_not_ended_or_not_stored_has_no_expiry() -> None:
    running = document_of(job(state="running"), Progress(), lifetimes=LIFETIMES)
    not_stored = document_of(job(**ENDED), Progress())
    assert not (running.keys() | not_stored.keys()) & {"expires_at", "rows_expire_at"}


def test_moments_are_in_utc() -> None:
    document = document_of(job(created_at=NOW, started_at=NOW), Progress())
    assert document["created_at"] == "2026-11-23T09:05:00.120000Z"
    local = NOW.astimezone(timezone(timedelta(hours=2)))
    assert document_of(job(created_at=local), Progress())["created_at"] == document["created_at"]


def test_rows_that_repeat_long_names_are_not_small() -> None:
    """They must not be encoded in the event loop, although the table itself is small."""
    table = pa.table({"n" * 10_000: pa.array([True] * 10_000)})
    assert table.nbytes < SMALL_BYTES < encoded_size(table)
    assert encoded_size(pa.table({"income": range(1000), "city": ["Dublin"] * 1000})) < SMALL_BYTES
