"""Workers are killed or stopped in the middle of divided jobs: only their units are done again.

Each test runs with its tables in a folder, and with its tables in a bucket.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest

from app.engine.dask_engine import DaskEngine
from app.engine.engine import Failure, Outcome, Progress
from app.engine.local_engine import EmbeddedEngine
from app.engine.progress_file import read_progress
from app.jobs.units import unit_runner
from app.jobs.units.repeated_tasks import LOST, SLOW, RepeatPolicy
from app.jobs.units.spools import BucketSpools
from app.jobs.units.unit_runner import JobRuns
from app.store.blobs.bucket import Bucket
from app.store.blobs.bucket_blobs import BucketBlobs
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.worker.run_job import run_job
from app.worker.run_units import GATHERED
from app.worker.staging import StagingSetup, spool_key
from app.worker.tasks import SwapTask
from providers.tables.digest import table_digest
from tests.faults.running import PATIENCE, Loop, wait_until_gone
from tests.faults.test_units import (
    ATTEMPTS,
    CALLS,
    LITTLE,
    LONG,
    SETUP,
    Workers,
    digests,
    stopped_in_unit,
    table,
    wait_for_units,
)
from tests.naive.agreement import swap
from tests.swap_tasks import swap_task

__all__ = ["digests", "table"]

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("UNIT_ROUNDS", "50"))
BUCKET_ROUNDS = int(os.environ.get("UNIT_ROUNDS", "22"))
"""Two of each call: with a bucket on the workers' machine nothing but the tables' files is different."""
CLUSTER_ROUNDS = int(os.environ.get("CLUSTER_ROUNDS", "6"))
WORKERS = 3
UNITS = 4
POLICY = RepeatPolicy(repeats=3, slow_factor=3.0, slow_seconds=0.2)


class Home:
    """Workers of this machine, and what was started again on them."""

    def __init__(self, folder: Path, bucket: Bucket | None) -> None:
        self.rounds = ROUNDS if bucket is None else BUCKET_ROUNDS
        self.store = store_in(folder, bucket)
        files = None if bucket is None else StagingSetup(bucket, str(folder), remote=False)
        self.loop = Loop()
        self.engine = EmbeddedEngine(WORKERS, SETUP, LONG, files)
        self.repeated: Counter[str] = Counter()
        self.runs = JobRuns(self.engine, run_job, LONG, POLICY, self._count)
        self.loop.do(self.engine.start())

    def _count(self, reason: str) -> None:
        self.repeated[reason] += 1

    def start(self, task: SwapTask) -> Future[Outcome]:
        """A future of the outcome of a job."""

        async def run() -> Outcome:
            return await self.runs.run(task.job_id, task, "ann")

        return self.loop.start(run())

    def kill_at(self, task: SwapTask, reached: Callable[[], bool], draw: random.Random) -> bool:
        """Kill a busy worker as soon as a moment is reached. Return False if no worker was busy any more."""

        async def kill() -> bool:
            while not reached():
                await asyncio.sleep(0.001)
            busy = sorted(worker.pid for worker in self.engine._busy)
            if busy:
                os.kill(draw.choice(busy), signal.SIGKILL)
            return bool(busy)

        return self.loop.do(kill())

    def wait_until_all_are_free(self) -> None:
        async def free() -> None:
            async with asyncio.timeout(PATIENCE):
                while self.engine.capacity() < WORKERS:
                    await asyncio.sleep(0.001)

        self.loop.do(free())

    def close(self) -> None:
        self.loop.do(self.engine.close())
        self.runs.close()
        self.loop.close()


def store_in(folder: Path, bucket: Bucket | None) -> BlobStore | BucketBlobs:
    """Return the tables below a folder, or those in a bucket."""
    sealer = Sealer([bytes(32)])
    if bucket is None:
        return BlobStore(folder / "blobs", sealer)
    return BucketBlobs(bucket, folder / "blobs", sealer)


@pytest.fixture(scope="module", params=["folder", "bucket"])
def bucket(request: pytest.FixtureRequest, new_bucket: Callable[[], Bucket]) -> Bucket | None:
    """Return the bucket that holds the tables; None: they are in a folder."""
    return new_bucket() if request.param == "bucket" else None


@pytest.fixture(scope="module")
def home(bucket: Bucket | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("home"), bucket)
    yield made
    made.close()


def moment(
    task: SwapTask, place: int, ended: Future[Outcome], bucket: Bucket | None = None
) -> Callable[[], bool]:
    """Test for a job that has begun (0), has begun a number of units, or is assembled (`UNITS` + 1).

    Where spools are in a bucket, a unit's appears when the unit has ended.
    """

    def reached() -> bool:
        if ended.done():
            return True
        progress = read_progress(Path(task.progress_path)) or Progress()
        if place > UNITS:
            return progress.fraction >= GATHERED
        if bucket is not None:
            return place == 0 or len(list(bucket.objects(spool_key(task, "").rstrip("/")))) >= min(place, 3)
        if place == 0:
            return progress.pid != 0
        return task.spool_folder.exists() and len(list(task.spool_folder.iterdir())) >= place

    return reached


def test_a_job_whose_workers_are_killed_has_the_same_bytes(
    home: Home,
    table: pa.Table,
    digests: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One worker in each round, at any moment of a job: division, units, or assembly."""
    draw = random.Random(50)
    home.repeated.clear()
    killed: Counter[int] = Counter()
    for number in range(home.rounds):
        home.wait_until_all_are_free()
        folder = tmp_path / str(number)
        folder.mkdir()
        call = number % len(CALLS)
        service, parameters = CALLS[call]
        task = swap_task(home.store, folder, service, table, parameters, LITTLE, units=UNITS)
        outcome = home.start(task)
        place = draw.randint(0, UNITS + 1)
        killed[place] += home.kill_at(task, moment(task, place, outcome), draw)
        found = outcome.result(LONG)
        assert not isinstance(found, Failure), (number, service, place, found)
        assert found["destination"]["digest"] == digests[call], (number, service, place)
        assert (read_progress(Path(task.progress_path)) or Progress()).fraction == 1.0
        assert not list(Path(task.scratch_folder).iterdir())
    with capsys.disabled():
        print(
            f"\n{killed.total()} workers killed in {home.rounds} rounds at {dict(killed)}: "
            f"{dict(home.repeated)}"
        )
    assert killed.total() > home.rounds / 2
    assert 0 < home.repeated[LOST] <= killed.total()


def test_progress_that_is_written_late_takes_nothing_back(
    home: Home, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service reports that all units are done before the worker that assembles their rows starts."""
    write, ended = unit_runner._write_progress, Event()

    def write_late(progress_path: str, fraction: float, stage: str) -> None:
        ended.wait(0.5)
        write(progress_path, fraction, stage)

    monkeypatch.setattr(unit_runner, "_write_progress", write_late)
    service, parameters = CALLS[0]
    task = swap_task(home.store, tmp_path, service, table, parameters, LITTLE, units=2)
    outcome = home.start(task)
    outcome.add_done_callback(lambda _: ended.set())
    found = outcome.result(LONG)
    assert not isinstance(found, Failure), found
    home.runs._reports.submit(int).result(LONG)  # all reports are written
    assert read_progress(Path(task.progress_path)) == Progress(1.0, "written", ANY)


def test_a_unit_that_stands_still_is_done_by_another_worker(
    home: Home, table: pa.Table, tmp_path: Path
) -> None:
    """It starts when the unit takes three times as long as the others; the process is gone at the end.

    A process may end its unit before it is stopped: then a longer job is tried.
    """
    for attempt in range(ATTEMPTS):
        parameters = {"fields": ["x", "y"], "iterations": 200 << attempt}
        home.wait_until_all_are_free()
        home.repeated.clear()
        folder = tmp_path / str(attempt)
        folder.mkdir()
        task = swap_task(home.store, folder, "LOCALITY", table, parameters, LITTLE, units=UNITS)
        outcome = home.start(task)
        if not (processes := wait_for_units(task, 3, outcome)):
            continue
        process = processes.pop()
        in_unit = stopped_in_unit(process, process, task)
        if not in_unit:
            os.kill(process, signal.SIGCONT)
        found = outcome.result(LONG)
        assert not isinstance(found, Failure), found
        expected = swap("LOCALITY", table, parameters).table
        assert found["destination"]["digest"] == table_digest(expected)
        if in_unit:
            wait_until_gone(process)
            assert home.repeated[SLOW] >= 1
            assert home.repeated.keys() == {SLOW}
            assert not list(Path(task.scratch_folder).iterdir())
            return
    pytest.fail("no process was stopped in its unit")


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT"])
def test_a_unit_that_crashes_is_not_repeated(home: Home, table: pa.Table, tmp_path: Path, name: str) -> None:
    """Another worker would crash in the same way: the job fails, and its other units are stopped."""
    home.wait_until_all_are_free()
    home.repeated.clear()
    parameters = {"fields": ["x", "y"], "iterations": 100_000}
    task = swap_task(home.store, tmp_path, "LOCALITY", table, parameters, LITTLE, units=2)
    outcome = home.start(task)
    crashed, other = wait_for_units(task, 2)
    os.kill(crashed, getattr(signal, name))
    ended = outcome.result(PATIENCE)
    assert isinstance(ended, Failure)
    assert (ended.code, name in ended.message, ended.lost) == ("worker_died", True, False)
    wait_until_gone(other)
    assert not home.repeated
    assert not list(Path(task.scratch_folder).iterdir())


def test_a_unit_is_repeated_a_limited_number_of_times(home: Home, table: pa.Table, tmp_path: Path) -> None:
    """Then its job fails like one of a dead worker."""
    home.repeated.clear()
    parameters: dict[str, Any] = {"fields": ["x", "y"], "iterations": 100_000}
    task = swap_task(home.store, tmp_path, "LOCALITY", table, parameters, LITTLE, units=2)
    outcome = home.start(task)
    victims: set[int] = set()
    for _ in range(POLICY.repeats + 1):
        pids = wait_for_units(task, 2)
        victim = next(pid for pid in pids if unit_of(pid, task) == 0)
        os.kill(victim, signal.SIGKILL)
        wait_until_gone(victim)
        victims.add(victim)
    ended = outcome.result(PATIENCE)
    assert isinstance(ended, Failure)
    assert (ended.code, "SIGKILL" in ended.message) == ("worker_died", True)
    assert len(victims) == POLICY.repeats + 1
    assert home.repeated == {LOST: POLICY.repeats}
    assert not list(Path(task.scratch_folder).iterdir())


def unit_of(pid: int, task: SwapTask) -> int:
    """Number of the unit whose spool the process has open."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it has been closed meanwhile
            links.append(link.readlink())
    return next(int(link.name.split("-")[0]) for link in links if link.parent == task.spool_folder)


def test_jobs_whose_cluster_workers_are_killed_have_the_same_bytes(
    bucket: Bucket | None,
    table: pa.Table,
    digests: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One worker dies with its child in each round, and another one takes its place."""
    draw = random.Random(7)
    workers = Workers(tmp_path_factory.mktemp("cluster"))
    store = store_in(tmp_path, bucket)
    with ExitStack() as opened:
        opened.callback(workers.close)
        workers.grow(3)
        runs = workers.runs if bucket is None else apart_runs(workers, bucket, tmp_path, opened)
        for number in range(CLUSTER_ROUNDS):
            folder = tmp_path / str(number)
            folder.mkdir()
            call = draw.randrange(len(CALLS))
            service, parameters = CALLS[call]
            task = swap_task(store, folder, service, table, parameters, LITTLE, units=UNITS)
            outcome = workers.start(task, runs)
            reached = moment(task, draw.randint(0, UNITS + 1), outcome, bucket)

            async def wait(reached: Callable[[], bool] = reached) -> None:
                while not reached():
                    await asyncio.sleep(0.001 if bucket is None else 0.02)

            workers.loop.do(wait())
            workers.kill(workers.processes.pop(draw.randrange(len(workers.processes))))
            found = outcome.result(LONG)
            assert not isinstance(found, Failure), (number, service, found)
            assert found["destination"]["digest"] == digests[call], (number, service)
            assert not list(folder.glob("scratch/*"))
            workers.grow(3)
    if bucket is not None:
        assert not list(bucket.objects("scratch"))
    with capsys.disabled():
        print(f"\n{CLUSTER_ROUNDS} rounds on a cluster: {dict(workers.repeated)}")


def apart_runs(workers: Workers, bucket: Bucket, folder: Path, opened: ExitStack) -> JobRuns:
    """Return the runs of a service that shares nothing with the workers but a bucket."""
    files = StagingSetup(bucket, str(folder), remote=True)
    engine = DaskEngine(workers.cluster, SETUP, LONG, files=files)
    workers.loop.do(engine.start())
    opened.callback(lambda: workers.loop.do(engine.close()))
    workers.wait_until_all_are_free(engine)
    return JobRuns(engine, run_job, LONG, on_repeat=workers.count, spools=BucketSpools(bucket))
