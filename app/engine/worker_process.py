"""Worker process: set-up, resource limits, the loop of its tasks, and the conversion of errors to data.

Imports nothing heavy: the number of threads is set before numba and Arrow are first imported.
"""

import ctypes
import gc
import importlib
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
from dataclasses import dataclass, replace
from multiprocessing import connection, parent_process
from typing import Any

from app.engine.core_dumps import disable_core_dumps
from app.engine.data_limit import limit_memory, private_bytes, renew_limit
from app.engine.engine import (
    CANCELLED,
    INTERNAL_ERROR,
    MEMORY_LIMIT,
    STORAGE_FULL,
    Failure,
    Outcome,
    TaskFunction,
)
from app.engine.oom_kills import open_statistics
from app.engine.outcome_message import encode_outcome
from app.engine.progress_file import note_end_of_service
from app.engine.sandbox import Confinement, confine
from app.engine.stop_request import TaskStopped, listen
from app.engine.worker_environment import clear_environment
from app.errors import NO_ROOM
from app.telemetry import tracing

THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
"""Variables that libraries read when they are loaded."""

_MOST_GROWTH = 1 << 27
"""Bytes by which the first uses of libraries may raise the limit of a worker's memory."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_OUT_OF_MEMORY = Failure(
    MEMORY_LIMIT,
    "the job needed more memory than a worker may take (ROWVEIL_WORKER_MEMORY_BYTES); "
    "raise the limit, use fewer workers, or run the table in parts",
)

_NO_ROOM = Failure(STORAGE_FULL, "the storage is full; delete buffers and jobs, or try again later")


_STOPPED = Failure(CANCELLED, "the job was cancelled")

LENGTH = struct.Struct("=Q")
"""Length of a message, before it. A message of length 0 requests the stop of the current task."""

PROCESS_ID = struct.Struct("=Q")
"""First message of a worker."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """Configuration of a worker process."""

    threads: int
    memory_bytes: int
    """Memory budget of a task in bytes, in addition to the memory of the idle worker."""
    preload: tuple[str, ...] = ()
    """Modules to import before the first task."""
    warm: str = ""
    """``module:function`` that compiles the kernels of tasks, or loads them from the cache.

    It is a name, because the function itself would import numba before the threads are set."""
    confinement: Confinement | None = None
    """Limits of the worker's rights; None: it has the rights of the service."""
    one_owner: bool = False
    """Whether a process runs tasks of one owner only, and is replaced before it gets those of another one."""


def serve_tasks(setup: WorkerSetup, connection: socket.socket) -> None:
    """Set this process up, send its id, and run the tasks that come, until the service closes the socket."""
    # Terminals and process managers send them to all processes. The service decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    clear_environment(tracing.wanted())  # where no fork server has done so
    open_statistics()
    disable_core_dumps()  # a Dask worker process may allow them
    if setup.confinement is not None:
        confine(setup.confinement)
    set_up(setup)
    out_of_memory = encode_outcome(_OUT_OF_MEMORY)  # made while there is memory for it
    _send(connection, PROCESS_ID.pack(os.getpid()))
    listen(connection)
    most = (private_bytes() or 0) + setup.memory_bytes + _MOST_GROWTH
    while (message := _received(connection)) is not None:
        if not message:  # a request to stop that came after the end of its task
            continue
        try:
            outcome = call(*pickle.loads(message))  # noqa: S301 - the service sent it
            del message
            answer = encode_outcome(outcome)
            if isinstance(outcome, Failure):
                gc.collect()  # the error's stack may have its tables in cycles
            del outcome
        except MemoryError:
            answer = out_of_memory
        except Exception as error:  # the task or its outcome cannot be sent
            answer = encode_outcome(failure_of(error))
        _send(connection, answer)
        renew_limit(setup.memory_bytes, most)


def _send(connection: socket.socket, message: bytes) -> None:
    """Send length and message together: each by itself would wake the service up."""
    head = LENGTH.pack(len(message))
    sent = connection.sendmsg([head, message])
    if sent < len(head):
        connection.sendall(head[sent:])
        sent = len(head)
    connection.sendall(memoryview(message)[sent - len(head) :])


def _received(connection: socket.socket) -> bytearray | None:
    """Return the next message; None if the other end was closed."""
    head = _read(connection, LENGTH.size)
    return None if head is None else _read(connection, LENGTH.unpack(head)[0])


def _read(connection: socket.socket, size: int) -> bytearray | None:
    message = bytearray(size)
    view, taken = memoryview(message), 0
    while taken < size:
        try:
            count = connection.recv_into(view[taken:])
        except ConnectionResetError:  # the other end died before it had read everything
            return None
        if not count:
            return None
        taken += count
    return message


def set_up(setup: WorkerSetup) -> None:
    """Make this process a worker."""
    threading.Thread(target=_exit_with_the_service, daemon=True).start()
    _exit_with_the_fork_server()
    multiprocessing.set_start_method("spawn", force=True)  # with "fork..." numba makes a semaphore that stays
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(setup.threads)
    for module in setup.preload:
        importlib.import_module(module)
    _limit_library_threads(setup.threads)
    if setup.warm:
        module, _, function = setup.warm.partition(":")
        getattr(importlib.import_module(module), function)()
    limit_memory(setup.memory_bytes)
    importlib.import_module("app.engine.kernel_memory").exempt_kernels()


def call(function: TaskFunction, task: Any) -> Outcome:
    """Run a task; every exception is returned as a Failure."""
    try:
        return function(task)
    except TaskStopped:
        return _STOPPED
    except MemoryError:  # pyarrow.ArrowMemoryError is a subclass
        return _OUT_OF_MEMORY
    except OSError as error:
        return _NO_ROOM if error.errno in NO_ROOM else failure_of(error)
    except Exception as error:
        return failure_of(error)


def failure_of(error: Exception) -> Failure:
    """Convert an unexpected error: a neutral message for the caller, the stack for the log.

    An error for lack of space has the code `STORAGE_FULL`.
    """
    frames = traceback.extract_tb(error.__traceback__)
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    stack = tuple(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return replace(_NO_ROOM, trace=(kind, *stack))
    message = "the service failed at this job; its log has the cause under the job's id"
    return Failure(INTERNAL_ERROR, message, trace=(kind, *stack))


def _limit_library_threads(threads: int) -> None:
    """Limit the threads of libraries that were imported before the environment variables were set."""
    numba = importlib.import_module("numba")
    numba.config.reload_config()
    parallel: Any = importlib.import_module("numba.np.ufunc.parallel")
    # numba reads the number when it is imported, which the fork server may have done.
    parallel.NUM_THREADS, parallel.snt_check = parallel.get_thread_count(), parallel.gen_snt_check()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    if threads > 1:  # BLAS may have been loaded with one thread, by the fork server
        importlib.import_module("threadpoolctl").threadpool_limits(threads, user_api="blas")
    arrow = importlib.import_module("pyarrow")
    arrow.set_cpu_count(threads)
    # Arrow's default allocator reserves a gigabyte at once, which would count as memory of the idle worker.
    arrow.set_memory_pool(arrow.system_memory_pool())


def _exit_with_the_service() -> None:
    """End this process when the service's process has ended: nothing would read its result.

    Before, note in the progress file that the task did not end the service.
    """
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        note_end_of_service()
        os._exit(1)


def _exit_with_the_fork_server() -> None:
    """Let the system kill this process when the fork server ends, which reports the ends of its workers."""
    service, server = parent_process(), os.getppid()
    if service is None or service.pid == server or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it ended before the call
        os._exit(1)
