"""Workers are forked with their modules; what a job may use does not depend on what ran before it."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.engine.engine import WORKER_LOST, Failure
from app.engine.local_engine import EmbeddedEngine
from app.engine.worker_process import WorkerSetup
from tests.faults import doings, worker_state
from tests.faults.replicas import until
from tests.faults.running import PATIENCE, Loop, wait_until_gone

pytestmark = pytest.mark.faults

LITTLE = 32 * 2**20


class OneWorker:
    """An engine with one worker."""

    def __init__(self, threads: int, memory_bytes: int = LITTLE) -> None:
        self._loop = Loop()
        setup = WorkerSetup(threads, memory_bytes, preload=("tests.faults.worker_state",))
        self._engine = EmbeddedEngine(1, setup, PATIENCE)
        self._loop.do(self._engine.start())

    def run(self, function: Callable[[Any], dict[str, Any]], task: Any) -> dict[str, Any]:
        """Run a function in the worker; it must not fail."""
        found = self._loop.do(self._outcome(function, task))
        assert not isinstance(found, Failure), found
        assert isinstance(found, dict)
        return found

    def failure(self, function: Callable[[Any], dict[str, Any]], task: Any) -> Failure:
        """Run a function in the worker that fails."""
        found = self._loop.do(self._outcome(function, task))
        assert isinstance(found, Failure)
        return found

    async def _outcome(self, function: Callable[[Any], dict[str, Any]], task: Any) -> object:
        return await self._engine.run("task", function, task)

    def close(self) -> None:
        self._loop.do(self._engine.close())
        self._loop.close()


@pytest.fixture
def new_worker() -> Iterator[Callable[..., OneWorker]]:
    workers: list[OneWorker] = []

    def make(threads: int = 1, memory_bytes: int = LITTLE) -> OneWorker:
        workers.append(OneWorker(threads, memory_bytes))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def test_a_worker_has_its_modules_when_it_starts_and_no_others(new_worker: Callable[..., OneWorker]) -> None:
    first = new_worker().run(worker_state.modules, None)
    assert first["loaded"] == ["numba", "pyarrow.parquet"]
    assert first["parent"] != os.getpid()
    assert new_worker().run(worker_state.modules, None)["parent"] == first["parent"]  # one fork server


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_library_uses_the_threads_of_its_worker(
    new_worker: Callable[..., OneWorker], threads: int
) -> None:
    """The fork server has loaded the libraries with one thread, or with as many as there are cores."""
    found = new_worker(threads).run(worker_state.threads, None)
    assert found == {
        "numba": threads, "launched": threads, "arrow": threads, "blas": [threads], "variables": str(threads),
    }  # fmt: skip


@pytest.mark.parametrize("service", worker_state.SWAPS)
def test_a_new_worker_needs_no_memory_of_the_job_for_kernels(
    new_worker: Callable[..., OneWorker], service: str
) -> None:
    """A worker without kernels runs a small job within 32 MiB, which the kernels of some services exceed."""
    assert new_worker(threads=2).run(worker_state.swap, service) == {"rows": 1000}


def test_kernels_leave_a_job_the_memory_that_it_had(new_worker: Callable[..., OneWorker]) -> None:
    worker = new_worker(memory_bytes=256 * 2**20)
    before = worker.run(worker_state.memory_left, None)["bytes"]
    assert 200 * 2**20 < before <= 256 * 2**20
    for service in worker_state.SWAPS:
        worker.run(worker_state.swap, service)
    after = worker.run(worker_state.memory_left, None)["bytes"]
    assert before - after < 32 * 2**20  # the kernels take twice as much


def test_workers_end_with_the_fork_server_and_are_replaced(new_worker: Callable[..., OneWorker]) -> None:
    """Nobody would learn how such a worker ended, so it must not go on."""
    worker = new_worker()
    pid = worker.run(worker_state.pid, None)["pid"]
    server = worker.run(worker_state.modules, None)["parent"]
    os.kill(server, signal.SIGKILL)
    wait_until_gone(pid)
    assert worker.run(worker_state.modules, None)["parent"] != server
    assert worker.run(worker_state.swap, "DSWAP") == {"rows": 1000}


def test_killed_workers_leave_no_process_and_no_file_descriptor(new_worker: Callable[..., OneWorker]) -> None:
    worker = new_worker()
    server = worker.run(worker_state.modules, None)["parent"]
    gc.collect()  # sockets of earlier tests

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    for _ in range(4):
        failure = worker.failure(doings.end_by, "SIGKILL")
        assert failure.code == "worker_died"
        assert "SIGKILL" in failure.message
        worker.run(worker_state.pid, None)
    until("those of dead workers are closed", lambda: descriptors() == before)
    assert worker_state.ended_children(server) == []


def test_a_job_of_a_dead_fork_server_fails_as_lost(new_worker: Callable[..., OneWorker]) -> None:
    """Its exit code is unknown, and the process does not stay as a zombie."""
    worker = new_worker()
    failure = worker.failure(worker_state.kill_the_parent, None)
    assert failure.message == "the worker that ran the job was lost with its fork server"
    assert (failure.code, failure.lost) == (WORKER_LOST, True)
    worker.run(worker_state.swap, "DSWAP")
    assert worker_state.ended_children(os.getpid()) == []


SERVICE = """
import asyncio, sys
from app.engine.local_engine import EmbeddedEngine
from app.engine.worker_process import WorkerSetup
from tests.faults import worker_state

async def serve():
    engine = EmbeddedEngine(1, WorkerSetup(1, 2**25, preload=("tests.faults.worker_state",)), 90.0)
    await engine.start()
    while await asyncio.to_thread(sys.stdin.readline):
        worker = await engine.run("pid", worker_state.pid, None)
        found = await engine.run("modules", worker_state.modules, None)
        print(worker["pid"], found["parent"], flush=True)
    await engine.close()

if __name__ == "__main__":
    asyncio.run(serve())
"""


class Service:
    """A process with one worker and the folder for temporary files."""

    def __init__(self, temporary: Path, folder: Path) -> None:
        script = folder / "service.py"
        script.write_text(SERVICE)
        environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
        piped = subprocess.PIPE
        command = [sys.executable, str(script)]
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=piped, stdout=piped)

    def worker_and_parent(self) -> list[int]:
        """Process ids of the worker and of what started it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return list(map(int, self.process.stdout.readline().split()))

    def end(self) -> None:
        """Let it end in its own time."""
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        """Kill it."""
        with self.process:
            self.process.kill()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """An empty folder whose path, unlike that of `tmp_path`, is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def new_service(tmp_path: Path) -> Iterator[Callable[[Path], Service]]:
    services: list[Service] = []

    def make(temporary: Path) -> Service:
        services.append(Service(temporary, tmp_path))
        return services[-1]

    yield make
    for service in services:
        service.kill()


@pytest.mark.parametrize("end", [Service.end, Service.kill])
def test_a_service_that_ends_leaves_no_process_and_no_file(
    new_service: Callable[[Path], Service], temporary: Path, end: Callable[[Service], None]
) -> None:
    service = new_service(temporary)
    worker, server = service.worker_and_parent()
    assert server != service.process.pid
    end(service)
    wait_until_gone(worker)
    wait_until_gone(server)
    assert list(temporary.iterdir()) == []


def test_an_interrupt_from_the_terminal_leaves_workers_to_the_service(
    new_service: Callable[[Path], Service], temporary: Path
) -> None:
    service = new_service(temporary)
    processes = service.worker_and_parent()
    for pid in processes:
        os.kill(pid, signal.SIGINT)
    assert service.worker_and_parent() == processes
    service.end()


def test_workers_are_spawned_where_no_fork_server_can_listen(
    new_service: Callable[[Path], Service], tmp_path: Path
) -> None:
    temporary = tmp_path / ("t" * 120)
    temporary.mkdir()
    service = new_service(temporary)
    assert service.worker_and_parent()[1] == service.process.pid
    service.end()
