"""The units of one job on the workers of a cluster: the same digest, and nothing left when it is stopped."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.engine import dask_engine
from app.engine.dask_address import Cluster
from app.engine.dask_engine import DaskEngine
from app.engine.engine import Failure, Outcome, Progress, TaskFunction
from app.engine.progress_file import read_progress
from app.engine.sandbox import Confinement
from app.engine.worker_process import WorkerSetup
from app.jobs.units.repeated_tasks import LOST, SLOW
from app.jobs.units.spools import BucketSpools
from app.jobs.units.unit_runner import JobRuns
from app.settings import Settings
from app.store.blobs.arrow_stream import read_table
from app.store.blobs.bucket import Bucket
from app.store.blobs.bucket_blobs import BucketBlobs
from app.store.blobs.reading import parts_of
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.worker.run_job import run_job
from app.worker.staging import StagingSetup
from app.worker.tasks import SwapTask
from demo.service import Process
from providers.tables.digest import CHUNK_ROWS, table_digest
from tests.faults import doings
from tests.faults.clusters import LocalCluster, certified
from tests.faults.conftest import Running
from tests.faults.running import PATIENCE, Loop, wait_until_gone
from tests.naive.agreement import SEED, swap
from tests.preloaded.processes import end, parent_of, start_worker
from tests.swap_tasks import swap_task

pytestmark = pytest.mark.faults

PRELOAD = ("app.worker.run_job", "tests.faults.doings")
SETUP = WorkerSetup(threads=1, memory_bytes=512 * 2**20, preload=PRELOAD)
ROWS = 12_000
LITTLE = 10**6
"""Memory budget in which no run of the table fits."""
LONG = 3 * PATIENCE
"""Eleven jobs of six or seven tasks each, and workers that start, on a machine that may be busy."""
ATTEMPTS = 6
"""Jobs that are tried until a process is stopped in its unit."""


class Workers:
    """A scheduler over TLS, and workers that are processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self._cluster = self.loop.do(LocalCluster.start(1, certified(folder), workers=0))
        self._folder = folder
        self.processes: list[Process] = []
        self.engine = DaskEngine(self._cluster.cluster, SETUP, LONG)
        self._free = asyncio.Event()
        self.engine.on_capacity = self._free.set
        self.loop.do(self.engine.start())
        self.repeated: Counter[str] = Counter()
        self.runs = JobRuns(self.engine, run_job, LONG, on_repeat=self.count)

    def count(self, reason: str) -> None:
        """Count a task that was started again."""
        self.repeated[reason] += 1

    def grow(self, workers: int) -> None:
        """Start at least a given number of workers."""
        reached = self._cluster.cluster
        settings = {
            "ROWVEIL_ENGINE": "dask",
            "ROWVEIL_SCHEDULER_ADDRESS": reached.address,
            "ROWVEIL_TLS_CA_FILE": str(reached.ca_file),
            "ROWVEIL_TLS_CERT_FILE": str(reached.cert_file),
            "ROWVEIL_TLS_KEY_FILE": str(reached.key_file),
            "ROWVEIL_HOME": str(self._folder),
            "ROWVEIL_WORKERS": "1",
        }
        while len(self.processes) < workers:
            own = {"ROWVEIL_SHARED_FOLDER": str(self._folder / f"machine-{len(self.processes)}")}
            self.processes.append(start_worker(os.environ | settings | own))

        async def up() -> None:
            while self.engine.capacity() < workers:
                self._free.clear()
                await self._free.wait()

        self.loop.do(up(), LONG)

    def wait_until_all_are_free(self, engine: DaskEngine | None = None) -> None:
        """Return when no worker runs a task, and all answer."""
        self.wait_for_capacity(len(self.processes), engine)

    def wait_for_capacity(self, count: int, engine: DaskEngine | None = None) -> None:
        """Return when that number of workers could start a task."""
        asked = engine or self.engine

        async def reached() -> None:
            async with asyncio.timeout(PATIENCE):
                while asked.capacity() != count:
                    await asyncio.sleep(0.05)

        self.loop.do(reached())

    async def run(self, task_id: str, function: TaskFunction) -> Outcome:
        """Run a function in a worker."""
        return await self.engine.run(task_id, function, None)

    def start(self, task: SwapTask, runs: JobRuns | None = None) -> Future[Outcome]:
        """A future of the outcome of a job."""

        async def run() -> Outcome:
            return await (runs or self.runs).run(task.job_id, task, "ann")

        return self.loop.start(run())

    def parent_of(self, child: int) -> Process:
        """Return the worker whose child this is."""
        known = {process.pid: process for process in self.processes}
        while child not in known:  # the fork server is between them
            child = parent_of(child)
        return known[child]

    def kill_parent_of(self, child: int) -> None:
        """Kill the worker whose child this is, at once."""
        killed = self.parent_of(child)
        self.processes.remove(killed)
        self.kill(killed)

    @staticmethod
    def kill(worker: Process) -> None:
        """Kill a worker at once."""
        worker.kill()
        end(worker)

    @property
    def cluster(self) -> Cluster:
        """Address and certificates of the cluster."""
        return self._cluster.cluster

    def close(self) -> None:
        self.loop.do(self.engine.close())
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            end(process)
        self.loop.do(self._cluster.close())
        self.loop.close()


@pytest.fixture(scope="module")
def workers(new_bucket: Callable[[], Bucket], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Workers that know the S3 server, which `new_bucket` has put into the environment."""
    assert os.environ["AWS_ENDPOINT_URL"]
    made = Workers(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


class Apart:
    """Another service on the workers, which shares no folder with them: its tables are in a bucket.

    Its worker processes are confined, to the folders of their machine and not to those of the service.
    """

    def __init__(self, workers: Workers, bucket: Bucket, folder: Path) -> None:
        self.workers = workers
        self.folder = folder
        self.store = BucketBlobs(bucket, folder / "blobs", Sealer([bytes(32)]))
        files = StagingSetup(bucket, str(folder), remote=True)
        confined = replace(SETUP, confinement=Confinement((str(folder),), compiles=True))
        self.engine = DaskEngine(workers.cluster, confined, LONG, files=files)
        deletion = self.store.delete_parts
        spools = BucketSpools(bucket)
        self.runs = JobRuns(self.engine, run_job, LONG, spools=spools, delete_other_parts=deletion)
        workers.loop.do(self.engine.start())
        workers.wait_until_all_are_free(self.engine)

    def task(self, service: str, table: pa.Table, parameters: dict[str, Any], units: int) -> SwapTask:
        """A job whose progress file is named by its attempt."""
        task = swap_task(self.store, self.folder, service, table, parameters, LITTLE, units)
        path = Path(task.progress_path).rename(self.folder / f"{task.job_id}.1")
        return replace(task, progress_path=str(path))

    def start(self, task: SwapTask) -> Future[Outcome]:
        return self.workers.start(task, self.runs)

    def scratch(self) -> list[str]:
        """Keys of the objects of running jobs."""
        return [found.key for found in self.store.bucket.objects("scratch")]


@pytest.fixture(scope="module")
def apart(
    workers: Workers, new_bucket: Callable[[], Bucket], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Apart]:
    workers.grow(2)
    made = Apart(workers, new_bucket(), tmp_path_factory.mktemp("apart"))
    yield made
    workers.loop.do(made.engine.close())


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))


@pytest.fixture(scope="module")
def table() -> pa.Table:
    number = np.arange(ROWS)
    return pa.table(
        {
            "name": number.astype(str),
            "x": number % 1009 / 8,
            "class": np.where(number % 5000 == 0, number, number % 70),
            "y": number * 7919 % ROWS / 4,
        }
    )


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("DSWAP", {"swap_fields": ["y", "x"]}),
    ("DSWAP", {"swap_fields": ["y", "x"], "locked": True}),
    ("CDSWAP", {"swap_fields": ["y"], "control_field": "class"}),
    ("DDSWAP", {"swap_fields": ["y", "name"], "control_field": "x", "block_size": 7}),
    ("MEWS", {"swap_fields": ["x", "y"], "bins": 20}),
    ("PABIDOT", {"fields": ["x", "y"]}),
    ("PABIDOT", {"fields": ["x", "y"], "shuffle": False}),
    ("LOCALITY", {"fields": ["x", "y"], "iterations": 1}),
    ("RWN", {"distance_fields": ["x", "y"], "perturb_fields": ["y", "name"]}),
    ("RWN", {"distance_fields": ["x", "class"], "neighbours": "partition", "parts": 5, "epsilon": 0.02}),
    ("MEDS", {"swap_fields": ["x", "y"], "k": 20, "method": "partitioned", "parts": 12}),
]


@pytest.fixture(scope="module")
def digests(table: pa.Table) -> list[str]:
    """Digest of each call's destination, made by one run in memory."""
    return [table_digest(swap(service, table, parameters).table) for service, parameters in CALLS]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_job_in_units_has_the_same_digest(
    count: int, workers: Workers, store: BlobStore, table: pa.Table, digests: list[str], tmp_path: Path
) -> None:
    """The bytes do not depend on the number of workers or the order of units, and no scratch file remains."""
    workers.grow(count)
    running: list[tuple[str, str, SwapTask, Future[Outcome]]] = []
    for (service, parameters), digest in zip(CALLS, digests, strict=True):
        folder = tmp_path / f"{len(running)}"
        folder.mkdir()
        task = swap_task(store, folder, service, table, parameters, LITTLE, units=4)
        running.append((service, digest, task, workers.start(task)))
    for service, digest, task, outcome in running:
        found = outcome.result(LONG)
        assert not isinstance(found, Failure), (service, found)
        assert (read_progress(Path(task.progress_path)) or Progress()).fraction == 1.0
        assert found["destination"]["digest"] == digest, service
        assert not list(Path(task.scratch_folder).iterdir())


def test_a_job_on_machines_without_a_common_folder_has_the_same_digest(
    apart: Apart, table: pa.Table, digests: list[str]
) -> None:
    """Tables and spools go through a bucket. The table there has the digest too, and nothing else is left."""
    calls = [
        (*call, digest)
        for call, digest in zip(CALLS, digests, strict=True)
        if call[0] not in ("DSWAP", "LOCALITY")
    ]
    tasks = [
        (service, digest, apart.task(service, table, parameters, units=4))
        for service, parameters, digest in calls
    ]
    outcomes = [apart.start(task) for _, _, task in tasks]
    for (service, expected, task), outcome in zip(tasks, outcomes, strict=True):
        found = outcome.result(LONG)
        assert not isinstance(found, Failure), (service, found)
        assert found["destination"]["digest"] == expected
        assert table_digest(read_table(task.destination)) == expected
        assert not Path(task.destination.path).exists()
    assert not list(apart.folder.glob("scratch/*"))
    assert (apart.scratch(), apart.store.bucket.uploads("blobs")) == ([], [])


def test_machines_without_a_common_folder_write_one_destination(apart: Apart) -> None:
    """Each section is an object next to that of the table, and the next job, which drops rows, reads it."""
    rows = CHUNK_ROWS + 1000
    number = np.arange(rows)
    large = pa.table({"x": number % 1009 / 8, "class": np.where(number % 50_000 == 1, number, number % 70)})
    parameters: dict[str, Any] = {"swap_fields": ["x"]}
    task = replace(apart.task("DSWAP", large, parameters, units=2), memory_bytes=8 * 10**6)
    found = apart.start(task).result(LONG)
    assert not isinstance(found, Failure), found
    expected = swap("DSWAP", large, parameters).table
    assert found["destination"]["digest"] == table_digest(expected)
    stored = [found.key for found in apart.store.bucket.objects(f"parts/{task.destination.id}")]
    assert len(stored) == len(parts_of(task.destination)) == 2
    parameters = {**parameters, "control_field": "class", "suppression": {"policy": "drop"}}
    again = apart.task("CDSWAP", large, parameters, units=2)
    again = replace(again, source=task.destination, memory_bytes=8 * 10**6)
    found = apart.start(again).result(LONG)
    assert not isinstance(found, Failure), found
    kept = swap("CDSWAP", expected, parameters).table
    assert rows - 1000 < kept.num_rows < rows
    assert found["destination"]["digest"] == table_digest(kept)
    assert len(parts_of(again.destination)) == 2
    assert apart.scratch() == []
    for done in (task, again):
        apart.store.delete(done.destination.id)
    assert not apart.store.bucket.objects("parts")


def test_progress_comes_over_the_cluster_and_a_cancelled_job_leaves_no_object(
    workers: Workers, apart: Apart, table: pa.Table
) -> None:
    """The worker cannot write the service's progress file; its process id means nothing here."""
    stored = apart.store.names()
    alone = apart.task("LOCALITY", table, {"fields": ["x", "y"], "iterations": 100_000}, units=1)
    shared = apart.task("LOCALITY", table, {"fields": ["x", "y"], "iterations": 100_000}, units=2)
    for task in (alone, shared):
        outcome = apart.start(task)
        deadline = time.monotonic() + PATIENCE
        seen = Progress()
        while not 0 < seen.fraction < 1:
            assert time.monotonic() < deadline, (seen, outcome)
            time.sleep(0.05)
            seen = read_progress(Path(task.progress_path)) or Progress()
        assert (bool(seen.stage), seen.pid if task is alone else 0) == (True, 0)
        workers.loop.do(apart.runs.cancel(task.job_id))
        ended = outcome.result(PATIENCE)
        assert isinstance(ended, Failure)
        assert ended.code == "cancelled"
    workers.wait_until_all_are_free(apart.engine)
    assert apart.store.names() == stored | {alone.source.id, shared.source.id}
    assert apart.scratch() == []


def test_a_job_whose_table_is_gone_fails_with_the_cause(apart: Apart, table: pa.Table) -> None:
    task = apart.task("DSWAP", table, {"swap_fields": ["x"]}, units=1)
    apart.store.delete(task.source.id)
    found = apart.start(task).result(LONG)
    assert isinstance(found, Failure)
    assert (found.code, "deleted before" in found.message) == ("blob_missing", True), found


def long_job(store: BlobStore, folder: Path, table: pa.Table, iterations: int) -> SwapTask:
    """A job whose units compute for a while."""
    parameters = {"fields": ["x", "y"], "iterations": iterations}
    return swap_task(store, folder, "LOCALITY", table, parameters, LITTLE, units=2)


def wait_for_units(task: SwapTask, count: int, job: "Future[Any] | None" = None) -> set[int]:
    """Wait until a number of units run; return their processes, each of which writes its spool.

    On a busy machine a short unit may end before the others begin. So the result is empty if ``job`` ends
    without that number of them at once.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ended = job is not None and job.done()
        found = processes_with_units(task)
        if len(found) == count:
            return found
        if ended:
            return set()
        time.sleep(0.01)
    raise AssertionError("the units do not run")


def stopped_in_unit(process: int, child: int, task: SwapTask) -> bool:
    """Stop a process. Return whether its child, or itself, still writes the spool of a unit.

    If so, the unit's result has not been sent. The worker that assembles the rows reads the spools.
    """
    os.kill(process, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, f"process {process} does not stop"
        time.sleep(0.001)
    return child in processes_with_units(task)


def processes_with_units(task: SwapTask) -> set[int]:
    """Return the processes that write the spool of a unit."""
    links = [link for link in _open_files() if _leads_into(link, task.spool_folder)]
    return {int(link.parts[2]) for link in links if _is_written(link)}


def _open_files() -> Iterator[Path]:
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield from list(folder.iterdir())


def _is_written(link: Path) -> bool:
    """Whether the process of an open file may write it."""
    try:
        about = (link.parent.parent / "fdinfo" / link.name).read_text(encoding="ascii")
    except OSError:  # it has been closed meanwhile
        return False
    return int(about.partition("flags:")[2].split()[0], 8) & os.O_ACCMODE != os.O_RDONLY


def _leads_into(link: Path, folder: Path) -> bool:
    try:
        return link.readlink().parent == folder
    except OSError:
        return False


def test_a_cancelled_job_takes_its_units_along(
    workers: Workers, store: BlobStore, table: pa.Table, tmp_path: Path
) -> None:
    """The processes of both units are gone when the call returns, and so are their spools."""
    workers.grow(2)
    task = long_job(store, tmp_path, table, 100_000)
    outcome = workers.start(task)
    pids = wait_for_units(task, 2)
    workers.loop.do(workers.runs.cancel(task.job_id))
    ended = outcome.result(PATIENCE)
    assert isinstance(ended, Failure)
    assert ended.code == "cancelled"
    for pid in pids:
        wait_until_gone(pid)
    assert not list(Path(task.scratch_folder).iterdir())
    assert not Path(task.destination.path).exists()


def test_units_over_their_time_are_stopped(
    workers: Workers, store: BlobStore, table: pa.Table, tmp_path: Path
) -> None:
    """All of them together have the time that a job has."""
    workers.grow(2)
    task = long_job(store, tmp_path, table, 100_000)
    runs = JobRuns(workers.engine, run_job, 0.5)

    async def run() -> Outcome:
        return await runs.run(task.job_id, task, "ann")

    ended = workers.loop.do(run())
    assert isinstance(ended, Failure)
    assert (ended.code, "0.5 seconds" in ended.message) == ("time_limit", True)
    assert not list(Path(task.scratch_folder).iterdir())


def test_a_unit_that_crashes_fails_its_job_and_ends_the_others(
    workers: Workers, store: BlobStore, table: pa.Table, tmp_path: Path
) -> None:
    """With the reason; the worker is there for the next job."""
    workers.grow(2)
    task = long_job(store, tmp_path, table, 100_000)
    outcome = workers.start(task)
    crashed, other = wait_for_units(task, 2)
    os.kill(crashed, signal.SIGSEGV)
    ended = outcome.result(PATIENCE)
    assert isinstance(ended, Failure)
    assert (ended.code, "SIGSEGV" in ended.message) == ("worker_died", True)
    wait_until_gone(other)
    assert not list(Path(task.scratch_folder).iterdir())


def test_no_task_is_given_to_a_worker_that_stands_still(workers: Workers) -> None:
    """Both workers are idle for the scheduler, which does not know that one of them does not answer."""
    workers.grow(2)
    workers.wait_until_all_are_free()
    stopped = workers.processes[0]
    stopped.send_signal(signal.SIGSTOP)
    try:
        workers.wait_for_capacity(len(workers.processes) - 1)
        for number in range(3 * len(workers.processes)):
            outcome = workers.loop.do(workers.run(f"alone {number}", doings.who), PATIENCE)
            assert not isinstance(outcome, Failure), outcome
    finally:
        stopped.send_signal(signal.SIGCONT)
    workers.wait_until_all_are_free()


def test_a_silent_worker_that_has_been_removed_stops_no_unit(
    workers: Workers,
    store: BlobStore,
    table: pa.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The scheduler removes it between two questions of the service.

    A job may end before the second question: then a longer one is tried.
    """
    workers.grow(2)
    look = workers.engine._look
    looks: list[int] = []

    async def look_with_one_more(client: Any) -> Any:
        answered = await look(client)
        workers.engine._silent.add("tls://127.0.0.1:1")
        looks.append(len(answered))
        return answered

    async def looked() -> None:
        async with asyncio.timeout(PATIENCE):
            while len(looks) < 2:
                await asyncio.sleep(0.01)

    in_unit = False
    for attempt in range(ATTEMPTS):
        workers.wait_until_all_are_free()
        workers.repeated.clear()
        looks.clear()
        folder = tmp_path / str(attempt)
        folder.mkdir()
        task = long_job(store, folder, table, 1000 << attempt)
        outcome = workers.start(task)
        with monkeypatch.context() as patch:
            if wait_for_units(task, 2, outcome):
                patch.setattr(dask_engine, "_LOOK_SECONDS", 0.05)
                patch.setattr(workers.engine, "_look", look_with_one_more)
                workers.loop.do(looked())
                in_unit = not outcome.done()
            found = outcome.result(PATIENCE)
        assert not isinstance(found, Failure), found
        assert not workers.repeated
        assert "not reachable" not in caplog.text
        if in_unit:
            return
    pytest.fail("each job ended before the second question")


def test_units_of_a_lost_worker_are_done_elsewhere(
    workers: Workers, store: BlobStore, table: pa.Table, tmp_path: Path
) -> None:
    """The worker dies with its child in the middle of a unit; the digest is that of an undisturbed run."""
    workers.grow(2)
    workers.repeated.clear()
    task = long_job(store, tmp_path, table, 2000)
    outcome = workers.start(task)
    lost = wait_for_units(task, 2).pop()
    workers.kill_parent_of(lost)
    found = outcome.result(PATIENCE)
    wait_until_gone(lost)
    assert not isinstance(found, Failure), found
    parameters = {"fields": ["x", "y"], "iterations": 2000}
    assert found["destination"]["digest"] == table_digest(swap("LOCALITY", table, parameters).table)
    assert not list(Path(task.scratch_folder).iterdir())
    assert workers.repeated[LOST] == 1


def test_a_worker_that_stands_still_holds_up_neither_its_units_nor_other_jobs(
    workers: Workers, store: BlobStore, table: pa.Table, tmp_path: Path
) -> None:
    """Another worker does its unit; when it goes on, it stops what nobody needs any more.

    A unit may end before its worker is stopped: then a longer job is tried.
    """
    workers.grow(2)
    in_unit = False
    for attempt in range(ATTEMPTS):
        iterations = 170 << attempt
        workers.wait_until_all_are_free()
        workers.repeated.clear()
        folder = tmp_path / str(attempt)
        folder.mkdir()
        task = long_job(store, folder, table, iterations)
        outcome = workers.start(task)
        if not (children := wait_for_units(task, 2, outcome)):
            continue
        child = children.pop()
        stopped = workers.parent_of(child)
        in_unit = stopped_in_unit(stopped.pid, child, task)
        if not in_unit:
            stopped.send_signal(signal.SIGCONT)
        try:
            found = outcome.result(PATIENCE)
            assert not isinstance(found, Failure), found
            expected = swap("LOCALITY", table, {"fields": ["x", "y"], "iterations": iterations}).table
            assert found["destination"]["digest"] == table_digest(expected)
            assert not in_unit or workers.repeated[SLOW] == 1
            assert not list(Path(task.scratch_folder).iterdir())
        finally:
            stopped.send_signal(signal.SIGCONT)
        if in_unit:
            break
    assert in_unit, "no worker was stopped in its unit"
    workers.wait_until_all_are_free()


def test_a_job_of_the_service_is_shared_out_at_home_as_well(tmp_path: Path) -> None:
    """Between two workers of this machine, each held to a memory that the table's fields do not fit."""
    memory = 112 * 2**20
    settings = Settings(
        home=tmp_path,
        workers=2,
        worker_threads=1,
        worker_memory_bytes=memory,
        units_per_job=2,
        warm_workers=False,
    )
    service = Running(settings, run_job)
    number = np.arange(2_000_000)
    table = pa.table({"income": number * 7919 % 1_999_993, "city": number % 1000})
    job = service.submit(table, service="CDSWAP", parameters={"control_field": "city"}, seed=SEED)

    async def stages() -> set[str]:
        return {progress.stage async for _, progress in service.jobs.updates(job.id)}

    reported = service.loop.do(stages())
    ended = service.end(job)
    assert ended.state == "succeeded", ended.error
    assert "working on its units" in reported
    parameters = {"swap_fields": ["income"], "control_field": "city"}
    assert ended.destination_digest == table_digest(swap("CDSWAP", table, parameters).table)
    assert not list((tmp_path / "scratch").iterdir())
    service.close()


def test_what_a_dead_service_left_of_its_units_is_cleared_away(tmp_path: Path) -> None:
    """At the next start, before any job."""
    left = tmp_path / "scratch" / "a job"
    left.mkdir(parents=True)
    (left / "a spool").write_bytes(b"sealed")
    service = Running(Settings(home=tmp_path, workers=1, warm_workers=False), run_job)
    assert not list((tmp_path / "scratch").iterdir())
    service.close()
