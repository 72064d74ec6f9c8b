"""End of a job while other replicas end its replica's lease, on a real PostgreSQL."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from app.jobs.job_metrics import JobMetrics
from app.jobs.recorder import DeadlinePassed, Recorder
from app.jobs.states import Step
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.blobs.arrow_stream import write_table
from app.store.sql import jobs, replicas
from app.store.sql.db import Transaction
from app.store.sql.models import Job
from tests.conftest import settings_on
from tests.unit.app.store.sql.test_replicas import PATIENCE, TwoAtOnce, run_out
from tests.unit.app.store.stored_rows import NOW, add, found, job

pytestmark = pytest.mark.slow

NOBODY = cast(JobMetrics, None)
"""Metrics of an end that is not committed yet: none."""


@pytest.fixture
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """The one that runs a job."""
    stores = Stores.open(settings_on("postgresql", request, tmp_path))
    yield stores
    stores.close()


@pytest.fixture
def other(replica: Stores, tmp_path: Path) -> Iterator[Stores]:
    """The one that takes up what the first has left."""
    address = replica.database.engine.url.render_as_string(hide_password=False)
    stores = Stores.open(Settings(home=tmp_path, database_url=address))
    yield stores
    stores.close()


def made(stores: Stores) -> tuple[Job, str]:
    """A job that the replica has claimed, and the table that came out."""
    add(stores.database, job())
    with stores.database.write() as session:
        claimed = jobs.claim_first(session, stores.lease.replica, NOW)
    assert claimed is not None
    blob = stores.new_blob()
    write_table(blob, pa.table({"income": [1, 2, 3]}))
    return claimed, blob.id


def is_there(stores: Stores, blob: str) -> bool:
    return blob in {path.name for path in stores.blobs.files()}


def test_a_table_that_is_being_named_is_not_swept(replica: Stores, other: Stores) -> None:
    """The lease has run out, and the end is written but not committed: it counts, and all of it."""
    claimed, blob = made(replica)
    run_out(replica.database, replica.lease.replica)
    recorder = Recorder(replica, NOBODY)

    def take_up(session: Transaction) -> list[str]:
        replicas.remove_expired(session, other.lease.replica)
        stalled = [row.id for row in replicas.stalled_jobs(session)]
        session.commit()
        other.sweep()
        return stalled

    two = TwoAtOnce(replica.database)
    named = two.first(
        lambda session: recorder.end(session, claimed, Step.SUCCEED, destination_blob=blob, manifest={})
    )
    taken_up = two.second(take_up)
    assert named.result(PATIENCE) is not None
    assert taken_up.result(PATIENCE) == []
    ended = found(replica.database, claimed.id)
    assert (ended.state, ended.destination_blob) == ("succeeded", blob)
    assert is_there(replica, blob)


def test_an_attempt_whose_lease_expired_records_no_table(replica: Stores, other: Stores) -> None:
    claimed, blob = made(replica)
    run_out(replica.database, replica.lease.replica)
    with other.database.write() as session:
        replicas.remove_expired(session, other.lease.replica)
    other.sweep()
    kept = Recorder(replica, NOBODY).record_end(claimed, Step.SUCCEED, destination_blob=blob, manifest={})
    assert not kept
    assert found(replica.database, claimed.id).state == "running"  # for the other to take up
    assert not is_there(replica, blob)


@pytest.mark.parametrize("reference", [None, "s3://bucket/released.csv"])
def test_a_success_after_the_deadline_counts_only_if_the_rows_are_released(
    replica: Stores, reference: str | None
) -> None:
    claimed, blob = made(replica)
    claimed.deadline, claimed.destination_reference = NOW, reference
    recorder = Recorder(replica, NOBODY)
    with replica.database.write() as session:
        late = pytest.raises(DeadlinePassed) if reference is None else nullcontext()
        with late:
            recorder.end(session, claimed, Step.SUCCEED, destination_blob=blob, manifest={})
    assert found(replica.database, claimed.id).state == ("running" if reference is None else "succeeded")
