"""The service on a Dask cluster: a job comes out as it does at home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.settings import Settings
from providers.digest import table_digest
from tests.faults import doings
from tests.faults.clusters import LocalCluster
from tests.faults.conftest import Running, people, settings_of
from tests.faults.running import Loop
from tests.naive.agreement import swap

pytestmark = pytest.mark.faults


@pytest.fixture
def on_a_cluster(tmp_path: Path) -> Iterator[Running]:
    """A service whose jobs run on a cluster of one worker, its blobs in a folder that they share."""
    loop = Loop()
    cluster = loop.do(LocalCluster.start(1))
    here: Settings = settings_of(
        tmp_path / "home",
        engine="dask",
        scheduler_address=cluster.cluster.address,
        scheduler_insecure=True,
        shared_folder=tmp_path / "shared",
        worker_memory_bytes=300 * 2**20,
    )
    running = Running(here)
    yield running
    running.close()
    loop.do(cluster.close())
    loop.close()


def test_a_job_runs_on_a_cluster_and_another_is_cancelled(on_a_cluster: Running) -> None:
    """The digest is that of the same swap in this process; progress and cancel reach the worker."""
    table = people()
    job = on_a_cluster.run(table, seed=bytes(range(32)))
    assert job.state == "succeeded", job.error
    expected = swap("DSWAP", table, {"swap_fields": ["income"]}).table
    assert job.destination_digest == table_digest(expected)
    assert on_a_cluster.rows(job).equals(expected)
    held = on_a_cluster.submit(table, seed=doings.HELD)
    assert on_a_cluster.wait_until_held(held).stage == doings.STAGE_HELD
    cancelled = on_a_cluster.loop.do(on_a_cluster.jobs.cancel(held.id))
    assert cancelled.state == "cancelled"
    assert on_a_cluster.run(table).state == "succeeded"
