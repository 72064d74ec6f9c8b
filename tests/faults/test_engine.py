"""Workers are killed, starved, stopped and crashed; nothing of it reaches another worker."""

import asyncio
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from app.engine import local_engine, progress_file
from app.engine.dask_engine import DaskEngine
from app.engine.engine import Failure, Outcome, Progress
from app.engine.local_engine import EmbeddedEngine
from app.engine.oom_kills import oom_kills, open_statistics
from app.engine.progress_file import (
    ProgressFile,
    has_outlived_service,
    make_progress_file,
    parse_progress,
    read_progress,
)
from app.engine.worker_process import WorkerSetup
from app.jobs.units.unit_runner import _write_progress
from app.store.blobs.bucket import Bucket
from app.worker.staging import StagingSetup
from tests.faults import doings
from tests.faults.clusters import LocalCluster, certified
from tests.faults.replicas import until
from tests.faults.running import PATIENCE, Loop, parent_of, wait_until_gone
from tests.order import ROOT

pytestmark = pytest.mark.faults

SETUP = WorkerSetup(threads=1, memory_bytes=256 * 2**20, preload=("tests.faults.doings",))


EACH_KIND = pytest.mark.parametrize("kind", ["local", "dask"])


class Engine:
    """An engine of some kind, its loop, and the moments at which a worker came free."""

    def __init__(self, kind: str, workers: int, time_limit: float, files: StagingSetup | None = None) -> None:
        self.loop = Loop()
        self.engine: EmbeddedEngine | DaskEngine
        self.cluster: LocalCluster | None = None
        if kind == "dask":
            self.cluster = self.loop.do(LocalCluster.start(workers))
            self.engine = DaskEngine(self.cluster.cluster, SETUP, time_limit, files=files)
        else:
            self.engine = EmbeddedEngine(workers, SETUP, time_limit, files)
        self.workers = workers
        self._free = threading.Condition()
        self.engine.on_capacity = self._came_free
        self.loop.do(self.engine.start())

    def start(self, name: str, function: Callable[[Any], Any], task: Any = None) -> Any:
        """A future of the outcome."""

        async def run() -> Outcome:
            return await self.engine.run(name, function, task)

        return self.loop.start(run())

    def run(self, function: Callable[[Any], Any], task: Any = None) -> Outcome:
        """The outcome."""
        outcome: Outcome = self.start(function.__name__, function, task).result(PATIENCE)
        return outcome

    def failure(self, function: Callable[[Any], Any], task: Any = None) -> Failure:
        """The failure that the task ends with."""
        outcome = self.run(function, task)
        assert isinstance(outcome, Failure)
        return outcome

    def pid(self) -> int:
        """The process of the next free worker."""
        outcome = self.run(doings.who)
        assert not isinstance(outcome, Failure)
        return int(outcome["pid"])

    def wait_until_all_are_free(self) -> None:
        with self._free:
            assert self._free.wait_for(lambda: self.engine.capacity() == self.workers, PATIENCE)

    def close(self) -> None:
        self.loop.do(self.engine.close())
        if self.cluster is not None:
            self.loop.do(self.cluster.close())
        self.loop.close()

    def _came_free(self) -> None:
        with self._free:
            self._free.notify_all()


@pytest.fixture(scope="module", params=["local", "dask", "local-bucket", "dask-bucket"])
def engine_of_kind(
    request: pytest.FixtureRequest,
    new_bucket: Callable[[], Bucket],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    """An engine; one with a bucket moves the files of each task."""
    kind, _, storage = request.param.partition("-")
    folder = tmp_path_factory.mktemp("work")
    files = StagingSetup(new_bucket(), str(folder), remote=kind == "dask") if storage else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWVEIL_SHARED_FOLDER", str(folder))  # of the Dask workers, which are in this process
        engine = Engine(kind, workers=2, time_limit=PATIENCE, files=files)
        engine.wait_until_all_are_free()
        yield engine
        engine.close()


@pytest.fixture
def engine(engine_of_kind: Engine) -> Iterator[Engine]:
    """After each test both workers are up again, which is a test by itself."""
    yield engine_of_kind
    engine_of_kind.wait_until_all_are_free()


@pytest.fixture
def pipe(tmp_path: Path) -> Callable[[], str]:
    """Makes pipes."""
    made: list[Path] = []

    def make() -> str:
        path = tmp_path / f"pipe{len(made)}"
        os.mkfifo(path)
        made.append(path)
        return str(path)

    return make


def test_two_tasks_run_at_once_in_two_processes(engine: Engine, pipe: Callable[[], str]) -> None:
    started, gate, other_started, other_gate = (pipe() for _ in range(4))
    first = engine.start("first", doings.signal_and_wait, (started, gate))
    second = engine.start("second", doings.signal_and_wait, (other_started, other_gate))
    pids = {int(Path(started).read_text()), int(Path(other_started).read_text())}
    assert len(pids | {os.getpid()}) == 3
    Path(gate).write_text("")
    Path(other_gate).write_text("")
    assert {first.result(PATIENCE)["pid"], second.result(PATIENCE)["pid"]} == pids


def test_a_killed_worker_fails_its_own_task_alone(engine: Engine, pipe: Callable[[], str]) -> None:
    started, gate, other_started, other_gate = (pipe() for _ in range(4))
    first = engine.start("first", doings.signal_and_wait, (started, gate))
    second = engine.start("second", doings.signal_and_wait, (other_started, other_gate))
    killed, other = int(Path(started).read_text()), int(Path(other_started).read_text())
    os.kill(killed, signal.SIGKILL)
    failure = first.result(PATIENCE)
    assert isinstance(failure, Failure)
    assert (failure.code, "SIGKILL" in failure.message) == ("worker_died", True)
    assert not second.done()
    Path(other_gate).write_text("")
    assert second.result(PATIENCE) == {"pid": other}
    assert engine.pid() != killed


@pytest.mark.parametrize("engine_of_kind", ["local"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_process_group_ends_no_task(
    engine: Engine, pipe: Callable[[], str], number: signal.Signals
) -> None:
    """Terminals and process managers send it to workers and fork server too: the job keeps its grace time."""
    started, gate = pipe(), pipe()
    task = engine.start("task", doings.signal_and_wait, (started, gate))
    worker = int(Path(started).read_text())
    for pid in (worker, parent_of(worker)):
        os.kill(pid, number)
    Path(gate).write_text("")
    assert task.result(PATIENCE) == {"pid": worker}
    assert engine.pid() == worker


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV"])
def test_a_worker_that_crashes_says_by_which_signal(engine: Engine, name: str) -> None:
    failure = engine.failure(doings.end_by, name)
    assert (failure.code, failure.message) == (
        "worker_died",
        f"the worker that ran the job was ended by {name}",
    )


@pytest.mark.parametrize("how", ["python", "numpy", "arrow"])
def test_memory_is_held_and_the_worker_goes_on(engine: Engine, how: str) -> None:
    failure = engine.failure(doings.take_memory, how)
    assert failure.code == "memory_limit"
    assert "ROWVEIL_WORKER_MEMORY_BYTES" in failure.message
    assert engine.pid()


def test_memory_of_failed_tasks_is_free_for_the_next_one(engine: Engine) -> None:
    """Each task has half of the limit in a cycle when it fails: two of them would exceed it."""
    for _ in range(5):
        failure = engine.failure(doings.take_half, 3)
        assert failure.code == "internal_error"


def test_an_idle_worker_that_is_killed_is_replaced(engine: Engine) -> None:
    pid = engine.pid()
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    pids = {engine.pid() for _ in range(4)}
    assert pids
    assert pid not in pids


@pytest.mark.parametrize("most", [0, 1])
def test_a_task_that_a_killed_worker_had_not_read_is_taken_by_another(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The worker is stopped, so that it reads nothing before it is killed. Repeats are limited."""
    monkeypatch.setattr(local_engine, "_MOST_UNREAD", most)
    engine = Engine("local", workers=1, time_limit=PATIENCE)
    assert isinstance(engine.engine, EmbeddedEngine)
    killed = engine.pid()
    os.kill(killed, signal.SIGSTOP)
    outcome = engine.start("unread", doings.who)
    deadline = time.monotonic() + PATIENCE
    while "unread" not in engine.engine.running():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(killed, signal.SIGKILL)
    ended = outcome.result(PATIENCE)
    if most:
        assert ended["pid"] != killed
    else:
        assert (ended.code, ended.lost) == ("worker_died", True)
    engine.wait_until_all_are_free()
    assert not engine.engine._busy
    engine.close()


@pytest.mark.parametrize("size", [0, 2**23], ids=["small", "larger than a socket"])
def test_a_worker_that_stands_still_and_does_not_read_its_task_is_replaced(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(local_engine, "_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(local_engine, "_MOST_LOOKS", 3)
    engine = Engine("local", workers=1, time_limit=PATIENCE)
    still = engine.pid()
    os.kill(still, signal.SIGSTOP)
    outcome = engine.start("unread", doings.who, bytes(size)).result(PATIENCE)
    assert outcome["pid"] != still
    wait_until_gone(still)
    engine.wait_until_all_are_free()
    engine.close()


def test_a_worker_that_stands_still_in_its_task_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, pipe: Callable[[], str]
) -> None:
    """Its task may have had an effect: the limit of its time, or the repetition of a slow unit, ends it."""
    monkeypatch.setattr(local_engine, "_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(local_engine, "_MOST_LOOKS", 1)
    engine = Engine("local", workers=1, time_limit=PATIENCE)
    assert isinstance(engine.engine, EmbeddedEngine)
    started, gate = pipe(), pipe()
    outcome = engine.start("read", doings.signal_and_wait, (started, gate))
    still = int(Path(started).read_text())
    os.kill(still, signal.SIGSTOP)
    looks: list[int] = []
    (worker,) = engine.engine._busy
    look = worker.look_for_unread

    def recorded() -> int:
        looks.append(look())
        return looks[-1]

    monkeypatch.setattr(worker, "look_for_unread", recorded)
    deadline = time.monotonic() + PATIENCE
    while len(looks) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert set(looks) == {0}
    os.kill(still, signal.SIGCONT)
    Path(gate).write_text("")
    assert outcome.result(PATIENCE)["pid"] == still
    engine.close()


def test_cancel_stops_a_worker_within_a_kernel(engine: Engine, pipe: Callable[[], str]) -> None:
    started = pipe()
    running = engine.start("endless", doings.signal_and_compute, started)
    pid = int(Path(started).read_text())
    engine.loop.do(engine.engine.cancel("endless"))
    wait_until_gone(pid, 0)
    assert running.result(PATIENCE).code == "cancelled"


def test_a_task_that_reports_progress_stops_by_itself_and_its_worker_stays(
    engine: Engine, pipe: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Dask worker has its own limit of a second, which a busy machine can exceed: three of ten suffice."""
    monkeypatch.setattr(local_engine, "_STOP_SECONDS", PATIENCE)  # it stops within milliseconds
    make_progress_file(tmp_path / "progress")
    stayed = 0
    for attempt in range(10):
        started = pipe()
        running = engine.start("patient", doings.report_until_stopped, (started, str(tmp_path / "progress")))
        pid = int(Path(started).read_text())
        engine.loop.do(engine.engine.cancel("patient"))
        assert running.result(PATIENCE).code == "cancelled"
        stayed += pid in {engine.pid() for _ in range(4)}
        if stayed == 3:
            break
        assert isinstance(engine.engine, DaskEngine) or stayed == attempt + 1
    assert stayed == 3


def test_cancelling_twice_at_once_is_cancelling_once(engine: Engine, pipe: Callable[[], str]) -> None:
    started = pipe()
    running = engine.start("endless", doings.signal_and_compute, started)
    Path(started).read_text()

    async def twice() -> None:
        await asyncio.gather(*(engine.engine.cancel("endless") for _ in range(2)))

    engine.loop.do(twice())
    assert running.result(PATIENCE).code == "cancelled"


def test_a_task_that_waits_for_a_worker_is_cancelled_at_once(engine: Engine, pipe: Callable[[], str]) -> None:
    pipes = [(pipe(), pipe()) for _ in range(2)]
    holding = [engine.start(started, doings.signal_and_wait, (started, gate)) for started, gate in pipes]
    pids = {int(Path(started).read_text()) for started, _ in pipes}
    waiting = engine.start("waiting", doings.who)
    engine.loop.do(engine.engine.cancel("waiting"))
    assert waiting.result(PATIENCE).code == "cancelled"
    for _, gate in pipes:
        Path(gate).write_text("")
    assert {held.result(PATIENCE)["pid"] for held in holding} == pids


def test_cancelling_what_has_ended_does_nothing(engine: Engine) -> None:
    engine.loop.do(engine.engine.cancel("who"))
    assert engine.pid()


def test_what_nobody_foresaw_reports_its_place_and_no_value(engine: Engine) -> None:
    failure = engine.failure(doings.fail, "the income 98765.4321 of Ada")
    assert failure.code == "internal_error"
    assert failure.trace[0] == "builtins.ValueError"
    assert failure.trace[-1].endswith(" fail")
    assert "Ada" not in repr(failure)


@EACH_KIND
def test_a_task_over_its_time_is_stopped(kind: str, pipe: Callable[[], str]) -> None:
    impatient = Engine(kind, workers=1, time_limit=5.0)
    impatient.wait_until_all_are_free()
    gate = pipe()
    pid = impatient.pid()
    failure = impatient.failure(doings.wait_at, gate)
    assert (failure.code, "5 seconds" in failure.message) == ("time_limit", True)
    wait_until_gone(pid)
    assert impatient.pid() != pid
    impatient.close()


@EACH_KIND
def test_closing_stops_what_runs(kind: str, pipe: Callable[[], str]) -> None:
    closed = Engine(kind, workers=1, time_limit=PATIENCE)
    started = pipe()
    running = closed.start("endless", doings.signal_and_compute, started)
    pid = int(Path(started).read_text())
    closed.close()
    wait_until_gone(pid)
    assert running.result(PATIENCE).code == "cancelled"


def test_a_dask_worker_that_closes_ends_the_calls_of_its_sockets(pipe: Callable[[], str]) -> None:
    """A reader left in the loop takes the events of the next connection with the same file descriptor."""
    closed = Engine("dask", workers=1, time_limit=PATIENCE)
    started = pipe()
    closed.start("endless", doings.signal_and_compute, started)
    pid = int(Path(started).read_text())

    async def close_worker() -> list[bool]:
        calls = [task for task in asyncio.all_tasks() if "WorkerLink._finish_call" in repr(task.get_coro())]
        assert closed.cluster is not None
        for worker in closed.cluster.dask_workers():
            await worker.close()
        return [call.cancelled() for call in calls]

    assert closed.loop.do(close_worker()) == [True]
    wait_until_gone(pid)
    closed.close()


def test_an_engine_is_ready_when_a_worker_is_up(engine: Engine) -> None:
    assert engine.engine.ready()
    assert not EmbeddedEngine(1, SETUP, 1.0).ready()


def test_progress_is_read_as_it_was_reported(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    assert read_progress(path) is None
    make_progress_file(path)
    assert read_progress(path) == Progress(0.0, "")
    with ProgressFile(str(path)) as progress:
        progress(0.25, "exchanging income")
        started = read_progress(path)
        assert started is not None
        assert (started.fraction, started.stage, started.pid) == (0.25, "exchanging income", os.getpid())
        progress(7.0, "ä" * 200)
        started = read_progress(path)
        assert started is not None
        assert started.fraction == 1.0
        assert set(started.stage) == {"ä"}
    path.write_bytes(b"torn")
    assert read_progress(path) is None
    path.unlink()
    path.mkdir()
    assert read_progress(path) is None


@pytest.mark.parametrize("size", [0, 127, 129, 1 << 40])
def test_a_progress_file_of_another_length_is_read_in_constant_memory(tmp_path: Path, size: int) -> None:
    """Its worker can give it any length, up to that of a sparse file larger than memory."""
    path = tmp_path / "progress"
    make_progress_file(path)
    os.truncate(path, size)
    tracemalloc.start()
    try:
        assert read_progress(path) is None
        assert not has_outlived_service(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


def test_the_service_writes_no_map_of_a_file_that_a_worker_truncates(tmp_path: Path) -> None:
    """A process ends with SIGBUS if it writes to the map of a file that has become shorter."""
    path = tmp_path / "progress"
    make_progress_file(path)
    _write_progress(str(path), 0.5, "gathering")
    assert read_progress(path) == Progress(0.5, "gathering", os.getpid())
    os.truncate(path, 0)
    _write_progress(str(path), 0.75, "gathering")
    assert read_progress(path) is None
    path.unlink()
    _write_progress(str(path), 1.0, "gathering")
    assert not path.exists()


WRITE = """
import itertools
import sys

from app.engine.progress_file import ProgressFile

with ProgressFile(sys.argv[1]) as progress:
    for step in itertools.cycle([(0.25, "reading " + "a" * 80), (0.75, "exchanging income")]):
        progress(*step)
"""
"""Process that writes progress until it is killed."""


def test_progress_that_is_being_written_is_read_whole(tmp_path: Path) -> None:
    """A reader never sees a fraction of 0, or half a stage, while a worker replaces its record."""
    path = tmp_path / "progress"
    make_progress_file(path)
    with subprocess.Popen([sys.executable, "-c", WRITE, str(path)], cwd=ROOT) as writer:
        try:
            until("the process writes", lambda: (read_progress(path) or Progress()).fraction > 0)
            found = [read_progress(path) for _ in range(20_000)]
        finally:
            writer.kill()
    whole = {(progress.fraction, progress.stage) for progress in found if progress is not None}
    assert whole == {(0.25, "reading " + "a" * 80), (0.75, "exchanging income")}
    assert found.count(None) <= len(found) / 100


def test_half_a_record_of_progress_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    make_progress_file(path)
    with ProgressFile(str(path)) as progress:
        progress(0.1, "reading")
    before = path.read_bytes()
    with ProgressFile(str(path)) as progress:
        progress(0.7, "exchanging income")
    after = path.read_bytes()
    assert parse_progress(after) == Progress(0.7, "exchanging income")
    for written in (4, 8, 20, 30, 118):
        assert parse_progress(after[:written] + before[written:]) is None


def test_progress_of_an_earlier_version_is_read() -> None:
    """Two versions share the files during an upgrade: an earlier one wrote no checksum."""
    content = struct.pack("=dq104pq", 0.5, 12, b"swapping", 0)
    assert parse_progress(content) == Progress(0.5, "swapping", 12)


def test_a_worker_creates_a_progress_file_that_is_gone(tmp_path: Path) -> None:
    """A sweep may have deleted it; the service creates none for a job that has ended."""
    path = tmp_path / "progress"
    with pytest.raises(FileNotFoundError):
        ProgressFile(str(path))
    with ProgressFile(str(path), create=True) as progress:
        progress(0.25, "exchanging income")
        assert read_progress(path) == Progress(0.25, "exchanging income", os.getpid())
    with ProgressFile(str(path), create=True):
        assert read_progress(path) == Progress(0.25, "exchanging income", os.getpid())


@pytest.mark.parametrize(
    ("at_begin", "at_end", "noted"), [(4, 4, True), (4, 5, False), (None, None, False), (None, 4, False)]
)
def test_a_worker_notes_the_end_of_the_service_unless_memory_ran_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_begin: int | None, at_end: int | None, noted: bool
) -> None:
    path = tmp_path / "progress"
    make_progress_file(path)
    monkeypatch.setattr(progress_file, "oom_kills", lambda: at_begin)
    with ProgressFile(str(path)) as progress:
        progress(0.25, "s" * 200)
        assert not has_outlived_service(path)  # a long stage is no note
        monkeypatch.setattr(progress_file, "oom_kills", lambda: at_end)
        progress_file.note_end_of_service()
        assert has_outlived_service(path) is noted
    progress_file.note_end_of_service()  # between two tasks there is no file
    with ProgressFile(str(path)):  # another worker repeats the task
        assert not has_outlived_service(path)


def test_the_kernel_says_how_many_processes_it_killed() -> None:
    vmstat = Path("/proc/vmstat")
    lines = dict(line.split() for line in vmstat.read_text().splitlines()) if vmstat.exists() else {}
    if "oom_kill" not in lines:
        pytest.skip("this kernel does not count them")
    open_statistics()
    known = oom_kills()
    assert known is not None
    assert known >= int(lines["oom_kill"])


def test_a_task_cancelled_at_once_gives_its_worker_back(engine: Engine) -> None:
    """Before its first step, at it, or when it has ended already: nothing is lost, no worker either."""

    async def race() -> list[Outcome]:
        outcomes = []
        for turn in range(24):
            running = engine.engine.run(f"turn {turn}", doings.who, None)
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            if turn % 8 < 4:
                await engine.engine.cancel(f"turn {turn}")
            outcomes.append(await running)
        return outcomes

    outcomes = engine.loop.do(race())
    for turn, outcome in enumerate(outcomes):
        if turn % 8 >= 4:
            assert not isinstance(outcome, Failure)
        else:
            assert not isinstance(outcome, Failure) or outcome.code == "cancelled"


def test_a_cluster_is_reached_over_tls(tmp_path: Path) -> None:
    """With certificates a task runs; who shows none is not let in."""
    loop = Loop()
    cluster = loop.do(LocalCluster.start(1, certified(tmp_path)))
    assert cluster.cluster.address.startswith("tls://")
    engine = DaskEngine(cluster.cluster, SETUP, PATIENCE)

    async def run() -> Outcome:
        await engine.start()
        return await engine.run("who", doings.who, None)

    outcome = loop.do(run())
    assert not isinstance(outcome, Failure)

    async def knock() -> None:
        host, port = cluster.cluster.address.removeprefix("tls://").split(":")
        plain = Client(f"tcp://{host}:{port}", asynchronous=True, timeout="2s", set_as_default=False)
        try:
            await plain
        finally:
            await plain.close()

    with pytest.raises(OSError, match=r"Timed out|timed out|refused|closed"):
        loop.do(knock())
    loop.do(engine.close())
    loop.do(cluster.close())
    loop.close()


def test_a_task_meets_a_client_that_has_given_the_scheduler_up() -> None:
    """It is lost and can run again, which an internal error cannot; the next look connects once more."""
    with ExitStack() as opened:
        loop = opened.enter_context(closing(Loop()))
        cluster = loop.do(LocalCluster.start(1))
        opened.callback(lambda: loop.do(cluster.close()))
        engine = DaskEngine(cluster.cluster, SETUP, PATIENCE)
        opened.callback(lambda: loop.do(engine.close()))

        async def run() -> list[Outcome]:
            await engine.start()
            first = await engine.run("first", doings.who, None)
            client = engine._client
            assert client is not None
            await client.close()
            return [
                first,
                await engine.run("lost", doings.who, None),
                await engine.run("next", doings.who, None),
            ]

        first, lost, following = loop.do(run())
    assert not isinstance(first, Failure)
    assert isinstance(lost, Failure)
    assert (lost.code, lost.lost) == ("cluster_lost", True)
    assert not isinstance(following, Failure)


def test_large_tasks_and_outcomes_come_whole(engine: Engine) -> None:
    """Larger than what a socket holds at once, in both directions."""
    sent = bytes(range(256)) * 8192
    outcome = engine.run(doings.give_back, sent)
    assert outcome == {"back": sent}


def test_an_outcome_that_cannot_be_sent_is_a_failure_and_the_worker_goes_on(engine: Engine) -> None:
    pid = engine.pid()
    assert engine.failure(doings.give_a_lock).code == "internal_error"
    assert pid in {engine.pid() for _ in range(4)}
