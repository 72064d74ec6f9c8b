"""Server process that imports the modules of workers once and forks the workers.

A worker is then up in milliseconds, also when it replaces one that was stopped, and shares the memory of
imported modules with the others. The server is multiprocessing's: a process of its own, which only imports.
So a fork copies no lock that a thread holds, unlike a fork of the service:

- `app.engine.fork_server_setup`, its first module, lets the libraries start no thread.
- It runs no kernel, and loads none: numba's threads would not survive a fork.
- Arrow's only thread that a mere import starts belongs to its allocator, which locks itself around a fork.

On other systems than Linux, whose libraries do not allow this, workers are spawned. So they are where the
server cannot start, for example because the path of its socket in ``TMPDIR`` is too long.
"""

import logging
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import connection, forkserver
from multiprocessing.process import BaseProcess
from typing import Any

from app.telemetry import tracing

_log = logging.getLogger("rowveil.engine")

_SERVER: Any = forkserver._forkserver
"""The fork server of this process, as multiprocessing knows it."""

_FIRST = "app.engine.fork_server_setup"

UNKNOWN_EXIT = 255
"""Exit code that multiprocessing reports for a worker whose fork server has died before it."""


def worker_modules() -> tuple[str, ...]:
    """Return the modules that a worker imports before its first task."""
    return ("app.worker.preload", *(tracing.PRELOAD if tracing.wanted() else ()))


def start() -> bool:
    """Start the server if it does not run, and return; it imports the modules meanwhile.

    Return whether workers are forked.
    """
    if sys.platform != "linux":
        return False
    forkserver.set_forkserver_preload([_FIRST, *worker_modules()])
    try:
        _SERVER.ensure_running()
    except OSError as error:
        _log.warning("the fork server does not start (%s); workers are spawned", error.strerror or error)
        return False
    return True


def inherit() -> None:
    """Let this process, a fork of the process that has started the server, use the server as long as it runs.

    Then this process starts one of its own. multiprocessing asks for the exit code of the server, which only
    its parent may.
    """
    pid = _SERVER._forkserver_pid
    if pid is None:
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        _SERVER._forkserver_pid = None
        return

    def ensure_running() -> None:
        if not connection.wait([handle], timeout=0):
            return
        del _SERVER.ensure_running  # the method of its class from now on
        os.close(handle)
        _SERVER._forkserver_pid = None
        _SERVER.ensure_running()

    _SERVER.ensure_running = ensure_running


def new_process(target: Callable[..., None], arguments: tuple[Any, ...]) -> BaseProcess:
    """Make a worker process, which the caller starts. A service has one fork server for all its workers."""
    if not start():
        spawned = multiprocessing.get_context("spawn")
        return spawned.Process(target=target, args=arguments, daemon=True)
    forked = multiprocessing.get_context("forkserver")
    return forked.Process(target=target, args=arguments, daemon=True)
