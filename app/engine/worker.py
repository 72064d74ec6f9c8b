"""A worker process: how it is set up, its limits, and how what goes wrong in it becomes data.

Imports nothing heavy: the number of threads is settled before numba and Arrow are first imported.
"""

import importlib
import os
import resource
import signal
import threading
import traceback
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

from app.engine.engine import INTERNAL_ERROR, MEMORY_LIMIT, STORAGE_FULL, Failure, Outcome, TaskFunction
from app.errors import NO_ROOM

_THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
_OUT_OF_MEMORY = Failure(
    MEMORY_LIMIT,
    "the job needed more memory than a worker may take (ROWVEIL_WORKER_MEMORY_BYTES); "
    "raise the limit, use fewer workers, or run the table in parts",
)

_NO_ROOM = Failure(STORAGE_FULL, "the storage is full; delete buffers and jobs, or try again later")


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker is told once, at its start."""

    threads: int
    memory_bytes: int
    """What a task may take beyond the idle worker's own."""
    preload: tuple[str, ...] = ()
    """Modules to import before the first task."""
    warm: str = ""
    """``module:function`` that compiles, or loads from their cache, the kernels that tasks use.

    By name: the function itself would bring numba along before the threads are settled."""


def set_up(setup: WorkerSetup) -> None:
    """Make this process a worker. Called by the pool before the first task."""
    # A kernel does not come back to Python until it ends: only the default action stops it at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with_the_service, daemon=True).start()
    for variable in _THREAD_VARIABLES:
        os.environ[variable] = str(setup.threads)
    for module in setup.preload:
        importlib.import_module(module)
    _hold_libraries(setup.threads)
    if setup.warm:
        module, _, function = setup.warm.partition(":")
        getattr(importlib.import_module(module), function)()
    limit_memory(setup.memory_bytes)


def call(function: TaskFunction, task: Any) -> Outcome:
    """Run a task; whatever it raises comes back as a Failure."""
    try:
        return function(task)
    except MemoryError:  # Arrow's own is one too
        return _OUT_OF_MEMORY
    except OSError as error:
        return _NO_ROOM if error.errno in NO_ROOM else failure_of(error)
    except Exception as error:
        return failure_of(error)


def failure_of(error: Exception) -> Failure:
    """What the caller may know of an error that nobody foresaw, and where it arose for the log."""
    frames = traceback.extract_tb(error.__traceback__)
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    places = tuple(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    message = "the service failed at this job; its log has where, under the job's id"
    return Failure(INTERNAL_ERROR, message, trace=(kind, *places))


def answer() -> int:
    """The process id of a worker that is up."""
    return os.getpid()


def _hold_libraries(threads: int) -> None:
    """For those that the service's own main module had imported before the variables were set."""
    numba = importlib.import_module("numba")
    numba.config.reload_config()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    arrow = importlib.import_module("pyarrow")
    arrow.set_cpu_count(threads)
    # Arrow's usual allocator reserves a gigabyte at once, which would count as the idle worker's own.
    arrow.set_memory_pool(arrow.system_memory_pool())


def limit_memory(extra: int) -> None:
    """Hold the process's private writable memory to what it has now and so much more (Linux).

    RLIMIT_DATA counts what is mapped, used or not, and no file: unlike the address space, it is
    what a job asks for.
    """
    try:
        with Path("/proc/self/status").open() as status:
            own = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    except (OSError, StopIteration):
        return  # not Linux: the setting is a plan's figure alone
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = own + extra if most == resource.RLIM_INFINITY else min(own + extra, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def _leave_with_the_service() -> None:
    """End this process when the service's has ended: nobody would take its result."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
