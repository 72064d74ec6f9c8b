"""Two replicas that share a database and a bucket, and no folder."""

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.store.blobs.bucket import Bucket
from app.store.blobs.bucket_blobs import BucketBlobs
from providers.tables.digest import table_digest
from tests.conftest import new_address
from tests.faults import doings
from tests.faults.conftest import Running, people, settings_of
from tests.faults.running import PATIENCE

pytestmark = pytest.mark.faults


@pytest.fixture
def replicas(
    request: pytest.FixtureRequest, tmp_path: Path, new_bucket: Callable[[], Bucket]
) -> Iterator[list[Running]]:
    shared = {
        "database_url": new_address("postgresql", request),
        "storage": str(new_bucket()),
        "small_table_bytes": 0,
        "key": secrets.token_hex(32),
        "signing_key_file": tmp_path / "signing.key",
    }
    running = [Running(settings_of(tmp_path / name, 1, **shared)) for name in ("one", "other")]
    yield running
    for replica in running:
        if replica.loop.running:
            replica.close()


def test_each_replica_shows_and_takes_over_the_jobs_of_the_other(replicas: list[Running]) -> None:
    """Progress of a running job, its rows after its end, and the job of a replica that has left."""
    one, other = replicas
    job = one.submit(people(), seed=doings.HELD)
    ran, looked = one, other
    deadline = time.monotonic() + PATIENCE
    while not (doings.gate_of(one.settings.home, job.id).exists()
               or doings.gate_of(other.settings.home, job.id).exists()):  # fmt: skip
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if doings.gate_of(other.settings.home, job.id).exists():
        ran, looked = other, one
    while looked.loop.do(looked.jobs.look(job.id))[1].stage != doings.STAGE_HELD:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ran.open_gate(job)
    ended = looked.end(job)
    assert ended.state == "succeeded"
    assert table_digest(looked.rows(ended)) == ended.destination_digest

    held = ran.submit(people(), seed=doings.HELD)
    ran.wait_until_held(held)
    ran.close()
    looked.wait_until_held(held)
    looked.open_gate(held)
    again = looked.end(held)
    assert (again.state, again.destination_digest) == ("succeeded", ended.destination_digest)
    blobs = looked.jobs._stores.blobs
    assert isinstance(blobs, BucketBlobs)
    deadline = time.monotonic() + PATIENCE
    while blobs.bucket.objects("progress"):
        assert time.monotonic() < deadline
        looked.jobs._stores.sweep()
        time.sleep(0.5)
