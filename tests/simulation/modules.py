"""Put the simulation in place of everything around the life of a job: database, files, clock and threads."""

import asyncio
import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from app.jobs.maintenance.audit_anchors import AuditAnchors
from tests.simulation.database import SimulatedDatabase
from tests.simulation.scheduler import Executor, Loop, Scheduler, Thread, end_idle_threads
from tests.simulation.statements import STATEMENTS, moment

POLL_SECONDS = 4.0
"""Interval of the polls of a shared database: fewer than the service's, so that schedules run faster."""

DEADLINE_SECONDS = 5.0

MOST_FILES = 20
"""Blobs that a sweep takes in any case, a fifth of the service's."""

BLOB_ROWS = MOST_FILES // 2
"""Rows that one transaction purges; each names one blob. The server has room for a few more blob locks."""


class _NoAnchors(AuditAnchors):
    """Audit log that is no part of the simulation. A subclass: the signature of `run` is checked."""

    def __init__(self, *args: Any) -> None:
        pass

    async def run(self, within: float | None = None) -> None:
        """Anchor nothing."""


PATCHES: dict[str, Any] = {
    "app.jobs.acceptance.digested": lambda table, form: ("sha256:0", None),
    "app.jobs.acceptance.other_source_digest": lambda *args: None,
    "app.jobs.acceptance.described": lambda table: {"fields": [], "rows": table.num_rows},
    "app.jobs.acceptance.moment": moment,
    "app.jobs.acceptance.check_released": lambda *args: None,
    "app.jobs.task_builder.question_of": lambda *args: None,
    "app.jobs.transactions.moment": moment,
    "app.jobs.maintenance.retention.moment": moment,
    "app.jobs.maintenance.retention.uptime": lambda: current_scheduler().now,
    "app.jobs.maintenance.sweep.moment": moment,
    "app.jobs.maintenance.sweep.uptime": lambda: current_scheduler().now,
    "app.jobs.maintenance.sweep.FolderMark": lambda folder: SimpleNamespace(read=lambda: "deployment"),
    "app.jobs.maintenance.retention.BLOB_ROWS": BLOB_ROWS,
    "app.jobs.maintenance.sweep.MOST_FILES": MOST_FILES,
    "app.jobs.maintenance.loop.AuditAnchors": _NoAnchors,
    "app.jobs.maintenance.heartbeat._POLL_SECONDS": POLL_SECONDS,
    "app.jobs.dispatcher._DEADLINE_SECONDS": DEADLINE_SECONDS,
    "app.jobs.recorder.signed_manifest": lambda *args: {},
}


class Nothing:
    """An object for which every operation is possible, and does nothing: metrics, audit, signer."""

    def __getattr__(self, name: str) -> "Nothing":
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> "Nothing":
        return self


class SimulatedEvent:
    """`threading.Event` of a simulated process."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = current_scheduler()

        def resume(wake: Callable[[], None]) -> None:
            self._waiting.append(wake)
            if timeout is not None:
                scheduler.later(timeout, wake)

        if not self._is_set:
            scheduler.wait(resume)
        return self._is_set


class SimulatedThread:
    """`threading.Thread` of a simulated process."""

    def __init__(self, target: Callable[[], None], name: str = "", daemon: bool = False) -> None:
        self._target = target
        self._ended = SimulatedEvent()

    def start(self) -> None:
        scheduler = current_scheduler()
        process = scheduler.current_process()
        scheduler.start_thread(process, self._run)

    def join(self) -> None:
        self._ended.wait()

    def _run(self) -> None:
        self._target()
        self._ended.set()


_current: list[Scheduler] = []


def current_scheduler() -> Scheduler:
    """Return the scheduler of the simulation that runs."""
    return _current[-1]


def _executor(workers: int, name: str = "") -> Executor:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    return Executor(loop, workers)


def _own_database(settings: Any, connections: int | None = None) -> SimulatedDatabase:
    thread = current_scheduler().current_thread()
    return SimulatedDatabase(settings.server, thread.process)


def _make_progress_file(path: Any) -> None:
    path.folder.step()
    path.folder.files.add(path.text)


def _has_outlived_service(path: Any) -> bool:
    path.folder.step()
    return path.text in path.folder.notes and path.text in path.folder.files


def _name(digits: int) -> str:
    return f"{current_scheduler().random.getrandbits(4 * 2 * digits):0{2 * digits}x}"


def _all_patches() -> Iterator[tuple[Any, str, Any]]:
    for module, functions in STATEMENTS.items():
        for name, function in functions.items():
            yield import_module(module), name, function
    own = {
        "app.jobs.maintenance.heartbeat.ThreadPoolExecutor": _executor,
        "app.jobs.maintenance.lease.Database": _own_database,
        "app.jobs.maintenance.lease.threading": SimpleNamespace(Thread=SimulatedThread, Event=SimulatedEvent),
        "app.jobs.maintenance.lease.secrets": SimpleNamespace(token_hex=_name),
        "app.jobs.dispatcher.make_progress_file": _make_progress_file,
        "app.jobs.task_builder.make_progress_file": _make_progress_file,
        "app.jobs.maintenance.takeover.has_outlived_service": _has_outlived_service,
    }
    for place, value in (PATCHES | own).items():
        module, _, name = place.rpartition(".")
        yield import_module(module), name, value


@contextmanager
def simulated(*defects: tuple[str, Any]) -> Iterator[None]:
    """Replace the modules' names within the block; ``defects`` are further places and what to put there."""
    patches = list(_all_patches())
    for place, value in defects:
        owner, _, name = place.rpartition(".")
        try:
            patches.append((import_module(owner), name, value))
        except ModuleNotFoundError:  # a class of a module
            module, _, kind = owner.rpartition(".")
            patches.append((getattr(import_module(module), kind), name, value))
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        with warnings.catch_warnings():
            # Coroutines of a killed process are never awaited.
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
            gc.collect()
    finally:
        end_idle_threads()
        for owner, name, value in reversed(before):
            setattr(owner, name, value)
        logging.disable(disabled)


@contextmanager
def running(scheduler: Scheduler) -> Iterator[None]:
    """Make this the simulation that runs."""
    _current.append(scheduler)
    try:
        yield
    finally:
        _current.pop()


__all__ = ["PATCHES", "Nothing", "Thread", "running", "simulated"]
