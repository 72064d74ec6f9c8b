"""A Dask scheduler is killed and started again at the same address: jobs return to the queue and run."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow as pa
import pytest

from app.engine.dask_address import Cluster
from app.engine.dask_engine import DaskEngine
from app.engine.engine import Failure, Outcome
from app.jobs.units.repeated_tasks import LOST
from app.jobs.units.unit_runner import JobRuns
from app.settings import Settings
from app.store.blobs.sealed_files import BlobStore
from app.worker.run_job import run_job
from app.worker.tasks import SwapTask
from providers.tables.digest import table_digest
from tests.faults import doings
from tests.faults.conftest import Running, people, settings_of
from tests.faults.running import PATIENCE, Loop, wait_until_gone
from tests.faults.test_units import ATTEMPTS, LONG, SETUP, long_job, store, table, wait_for_units
from tests.free_port import free_port
from tests.naive.agreement import swap
from tests.preloaded.processes import end, start_worker

__all__ = ["store", "table"]

pytestmark = pytest.mark.faults


class Processes:
    """A scheduler and a worker, each a process of its own."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self.cluster = Cluster(f"tcp://127.0.0.1:{self.port}")
        self._scheduler: subprocess.Popen[bytes]
        self.start_scheduler()
        self.environment = os.environ | {
            "ROWVEIL_ENGINE": "dask",
            "ROWVEIL_SCHEDULER_ADDRESS": self.cluster.address,
            "ROWVEIL_SCHEDULER_INSECURE": "true",
            "ROWVEIL_HOME": str(home),
            "ROWVEIL_WORKERS": "2",
        }
        """Variables of a worker of the cluster."""
        self.worker = start_worker(self.environment)

    def start_scheduler(self) -> None:
        """Start a scheduler at the cluster's address."""
        module = [sys.executable, "-m", "app.engine.checked_scheduler"]
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        self._scheduler = subprocess.Popen([*module, *options])

    def kill_scheduler(self) -> None:
        """Kill the scheduler, and return when it is gone."""
        self._scheduler.kill()
        self._scheduler.wait(PATIENCE)

    @property
    def exit_codes(self) -> list[int | None]:
        """Exit codes of the scheduler and of the worker; None while they run."""
        return [self._scheduler.poll(), self.worker.poll()]

    def close(self) -> None:
        end(self.worker)
        self._scheduler.terminate()
        self._scheduler.wait(PATIENCE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    made = Processes(tmp_path_factory.mktemp("worker"))
    yield made
    made.close()


@pytest.fixture
def service(cluster: Processes, tmp_path: Path) -> Iterator[Running]:
    """A service of the cluster. It ends with its test: it would disturb others in this process."""
    settings: Settings = settings_of(
        tmp_path / "home",
        engine="dask",
        scheduler_address=cluster.cluster.address,
        scheduler_insecure=True,
        units_per_job=1,
    )
    with closing(Running(settings)) as running:
        yield running


def test_running_and_queued_jobs_survive_the_death_of_the_scheduler(
    cluster: Processes, service: Running
) -> None:
    """Two jobs run and one waits. All succeed under the next scheduler, with the same worker process."""
    running = [service.submit(people(), seed=doings.HELD) for _ in range(2)]
    pids = [service.wait_until_held(job).pid for job in running]
    queued = service.submit(people())
    cluster.kill_scheduler()
    for pid in pids:
        wait_until_gone(pid)  # the worker stops what nobody waits for
    for job in running:
        service.wait_until(job, "queued")
    assert service.get(queued).state == "queued"
    cluster.start_scheduler()
    for job in running:
        assert service.wait_until_held(job).pid not in pids
        assert service.get(job).attempt == 2
        service.open_gate(job)
    for job in (*running, queued):
        assert service.end(job).state == "succeeded"
    assert cluster.worker.poll() is None


def test_a_divided_job_goes_on_with_its_units_under_the_next_scheduler(
    cluster: Processes, store: BlobStore, table: pa.Table, tmp_path: Path
) -> None:
    """Its units start again without the job; the bytes are those of an undisturbed run.

    A unit may end before the scheduler is killed: then a longer job is tried.
    """
    repeated: list[str] = []
    with ExitStack() as opened:
        loop = opened.enter_context(closing(Loop()))
        engine = DaskEngine(cluster.cluster, SETUP, LONG)
        runs = opened.enter_context(closing(JobRuns(engine, run_job, LONG, on_repeat=repeated.append)))
        loop.do(engine.start())
        opened.callback(lambda: loop.do(engine.close()))

        async def run(task: SwapTask) -> Outcome:
            return await runs.run(task.job_id, task, "ann")

        for attempt in range(ATTEMPTS):
            parameters = {"fields": ["x", "y"], "iterations": 330 << attempt}
            folder = tmp_path / str(attempt)
            folder.mkdir()
            task = long_job(store, folder, table, 330 << attempt)
            repeated.clear()
            outcome = loop.start(run(task))
            if wait_for_units(task, 2, outcome):
                cluster.kill_scheduler()
                cluster.start_scheduler()
            found = outcome.result(LONG)
            assert not isinstance(found, Failure), (found, engine.capacity(), cluster.exit_codes)
            digest = table_digest(swap("LOCALITY", table, parameters).table)
            assert found["destination"]["digest"] == digest
            assert not list(Path(task.scratch_folder).iterdir())
            if repeated == [LOST, LOST]:
                return
        pytest.fail("no scheduler was killed while two units ran")
