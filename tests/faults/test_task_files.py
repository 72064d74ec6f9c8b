"""Files of tasks are moved before and after a task; a cancelled or slow transfer gives its worker back."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from app.engine.engine import Failure, Outcome
from app.engine.local_engine import EmbeddedEngine
from app.engine.worker_process import WorkerSetup
from tests.faults import doings
from tests.faults.running import PATIENCE, Loop

pytestmark = pytest.mark.faults

SETUP = WorkerSetup(threads=1, memory_bytes=256 * 2**20, preload=("tests.faults.doings",))

LIMIT = 3.0


class Files:
    """Moves nothing, and notes its calls; the methods in ``slow`` last until they are stopped."""

    writable = ()

    def __init__(self) -> None:
        self.slow: set[str] = set()
        self.calls: list[str] = []
        self.begun = threading.Event()

    def on_this_machine(self) -> Self:
        return self

    def open(self) -> Self:
        return self

    def fetch(self, task: Any, stopped: Callable[[], bool]) -> Any:
        return self._moved("fetch", stopped) or ("fetched", task)

    def send(self, task: Any, outcome: Outcome, stopped: Callable[[], bool]) -> Outcome:
        assert task == ("fetched", "task")
        return self._moved("send", stopped) or outcome

    def release(self, task: Any) -> None:
        self.calls.append("release")

    def close(self) -> None:
        self.calls.append("close")

    def _moved(self, name: str, stopped: Callable[[], bool]) -> Failure | None:
        self.calls.append(name)
        self.begun.set()
        while name in self.slow and not stopped():
            time.sleep(0.01)
        return Failure("storage_unavailable", "stopped") if name in self.slow else None


class Engine:
    """An engine of one worker."""

    def __init__(self, files: Files, time_limit: float) -> None:
        self.loop = Loop()
        self.engine = EmbeddedEngine(1, SETUP, time_limit, files)
        self.loop.do(self.engine.start())

    def start(self) -> Any:
        async def run() -> Outcome:
            return await self.engine.run("one", doings.who, "task")

        return self.loop.start(run())

    def close(self) -> None:
        self.loop.do(self.engine.close())
        self.loop.close()


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture(scope="module")
def engines() -> Iterator[Callable[[Files, float], Engine]]:
    made: list[Engine] = []

    def make(files: Files, time_limit: float) -> Engine:
        made.append(Engine(files, time_limit))
        return made[-1]

    yield make
    for engine in made:
        if engine.loop.running:
            engine.close()


def test_files_are_fetched_before_the_task_and_sent_after_it(
    files: Files, engines: Callable[[Files, float], Engine]
) -> None:
    engine = engines(files, PATIENCE)
    outcome = engine.start().result(PATIENCE)
    assert outcome["pid"] == engine.engine._workers[0].pid
    assert files.calls == ["fetch", "send", "release"]
    engine.close()
    assert files.calls[-1] == "close"


@pytest.mark.parametrize(("slow", "calls"), [("fetch", ["fetch"]), ("send", ["fetch", "send", "release"])])
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_transfer_that_is_cancelled_or_too_slow_gives_the_worker_back(
    files: Files, engines: Callable[[Files, float], Engine], slow: str, calls: list[str], cancelled: bool
) -> None:
    engine = engines(files, PATIENCE if cancelled else LIMIT)
    files.slow = {slow}
    running = engine.start()
    while slow not in files.calls:
        assert files.begun.wait(PATIENCE)
        time.sleep(0.01)
    if cancelled:
        engine.loop.do(engine.engine.cancel("one"))
    ended = running.result(PATIENCE)
    assert isinstance(ended, Failure)
    assert ended.code == ("cancelled" if cancelled else "time_limit")
    assert files.calls == calls
    assert engine.engine.capacity() == 1
    files.slow = set()
    engine.engine._time_limit = PATIENCE
    assert not isinstance(engine.start().result(PATIENCE), Failure)
