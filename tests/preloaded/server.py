"""Process that imports modules once and forks a process for each request.

``python -c "from tests.preloaded.server import main; main('service', ...)"``: see `main`.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import forkserver, util
from pathlib import Path
from typing import Any, NoReturn

from app.engine.worker_environment import ADDITIONAL, worker_environment
from app.telemetry import tracing
from tests.preloaded.forks import MOST_BYTES, connected, number_bytes, request_fork

FORK_SERVER = "forkserver"
"""Role of the process from which fork servers are forked; it is also in the command line of real ones."""

SERVICE = "service"
"""Role of the process from which services are forked."""

CLUSTER_WORKER = "cluster worker"
"""Role of the process from which workers of a cluster are forked."""

COMMAND = "command"
"""Role of the process from which commands of the command line are forked."""

KERNELS = "kernels"
"""Role of the process from which scripts that compile kernels are forked."""

FREE_PREFIXES = ("ROWVEIL_", "AWS_", "PYTEST_XDIST_")
"""Variables that a service reads after its imports or not at all, so that each may have others."""

_LINGER_SECONDS = 5.0
"""Seconds after which a server ends to which nobody is connected."""

FAULTS = "FAULTS_FILE"
"""File of the library of faults (``tests/faults/faults.c``), if this process has loaded it."""

API_PROCESSES = "ROWVEIL_API_PROCESSES"
"""Number of a service's API processes, on which its imports depend."""

_FREE = frozenset({"PYTEST_CURRENT_TEST", FAULTS, "_RJEM_MALLOC_CONF"})
"""Other such variables. polars sets the last one when it is imported."""

_BOUND = frozenset({API_PROCESSES, "ROWVEIL_KERNEL_CPU"})


def bound(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a forked service must share with its server."""
    return {
        name: value
        for name, value in environment.items()
        if name in _BOUND or (name not in _FREE and not name.startswith(FREE_PREFIXES))
    }


def comm_of(service: int) -> str:
    """Return the name, in ``/proc/PID/comm``, of the fork server of a service."""
    return f"forks {service}"


@dataclass(frozen=True)
class Request:
    """A process to be forked, with its files."""

    given: dict[str, Any]
    files: tuple[int, ...]


def main(role: str, listener: int, fork_servers: str) -> None:
    """Import the modules of a role, and fork a process for each request until nobody is connected.

    Parameters
    ----------
    role
        `SERVICE`, `CLUSTER_WORKER`, `FORK_SERVER`, `COMMAND` or `KERNELS`.
    listener
        Descriptor of the socket to which test processes connect.
    fork_servers
        Path of the socket through which a service, or a worker of a cluster, requests its fork server.
    """
    given = dict(os.environ)
    _IMPORTS[role]()
    if role in (SERVICE, CLUSTER_WORKER):
        _borrow_fork_servers(connected(fork_servers))
    with socket.socket(fileno=listener) as listening:
        request = _forked(listening)
    if role == FORK_SERVER:
        _run_fork_server(request)
    else:
        _run_command(request, dict(os.environ.items() - given.items()))


def _import_service() -> None:
    """Import what `app.__main__` imports for the command ``serve``, in its order."""
    from app.lean import collection_paused, defer, leave_out
    from app.telemetry.metrics_folder import make_folder, remove_folder
    from providers import numba

    several = os.environ.get(API_PROCESSES, "1") != "1"
    if several:
        make_folder()  # before prometheus_client is imported; each service makes its own
    with collection_paused():
        numba.leave_out()
        leave_out("pandas")
        importlib.import_module("app.engine.fork_server")
        defer("pyarrow", "pyarrow.compute", "pyarrow.csv")
        leave_out("pydantic.v1")
        for module in _SERVICE_MODULES:
            importlib.import_module(module)
        _make_tables_once()
    if several:
        remove_folder()


def _make_tables_once() -> None:
    """Migrate an empty SQLite database, so that forked services make their tables by the same statements."""
    from app.settings import Settings
    from app.store.sql import schema
    from app.store.sql.migration import migrate
    from tests.new_tables import NewTables

    schema.upgrade = NewTables().upgrade
    with tempfile.TemporaryDirectory() as home:
        migrate(Settings.model_validate({"home": home, "database_url": f"sqlite:///{home}/rowveil.db"}))


_SERVICE_MODULES = ("app.__main__", "app.server")


def _import_cluster_worker() -> None:
    """Import what `app.__main__` imports for the command ``worker``, in its order."""
    from app.lean import leave_out

    leave_out("pandas")
    for module in _CLUSTER_WORKER_MODULES:
        importlib.import_module(module)


_CLUSTER_WORKER_MODULES = ("app.__main__", "app.engine.fork_server", "app.server", "app.engine.dask_engine")


def _import_fork_server() -> None:
    from app.engine.fork_server import _FIRST, worker_modules

    for module in (_FIRST, *worker_modules(), *_LEARNERS):
        importlib.import_module(module)


def _import_commands() -> None:
    """Import what `app.__main__` imports for commands on tables and of administration, and start numba."""
    from app.lean import leave_out

    leave_out("pandas")
    leave_out("pydantic.v1")
    for module in _COMMAND_MODULES:
        importlib.import_module(module)


_LEARNERS = ("sklearn.cluster", "sklearn.ensemble")
"""Modules that a worker or a command would import for its first full report or attacks, in a second."""

_COMMAND_MODULES = ("app.cli.commands", "app.cli.admin", "app.worker.preload", *_LEARNERS)


def _import_kernels() -> None:
    """Import numba as kernels have it, and compile one: numba then knows its types and LLVM its target."""
    for module in _KERNEL_MODULES:
        importlib.import_module(module)
    njit = importlib.import_module("providers.numba").njit
    njit()(lambda numbers: numbers.sum())(importlib.import_module("numpy").zeros(2))


_KERNEL_MODULES = ("providers.kernel_cache", "providers.kernel_progress", "providers.kernels.parallel")

_IMPORTS = {
    SERVICE: _import_service,
    CLUSTER_WORKER: _import_cluster_worker,
    FORK_SERVER: _import_fork_server,
    COMMAND: _import_commands,
    KERNELS: _import_kernels,
}


def _forked(listening: socket.socket) -> Request:
    """Serve requests; return in each forked process, and only there."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(writable)
    gc.collect()
    gc.freeze()
    statuses: dict[int, int] = {}
    clients: set[socket.socket] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(readable, selectors.EVENT_READ)
        selector.register(listening, selectors.EVENT_READ)
        request = None
        while request is None:
            ready = {key.fileobj for key, _ in selector.select(None if clients else _LINGER_SECONDS)}
            if not ready and not clients:
                _end(listening)
            if readable in ready:
                os.read(readable, 4096)
                _report_ended(statuses)
            if listening in ready:
                client, _ = listening.accept()
                client.send(number_bytes(os.getpid()))
                clients.add(client)
                selector.register(client, selectors.EVENT_READ)
            for caller in list(clients & ready)[:1]:  # others stay ready
                message, files = _received(caller)
                if message:
                    request = _fork(message, files, statuses)
                else:
                    selector.unregister(caller)
                    clients.remove(caller)
                    caller.close()
    for file in (readable, writable, *statuses.values()):
        os.close(file)
    for client in clients:
        client.close()
    return request


def _end(listening: socket.socket) -> NoReturn:
    """End this process; one that connects at this moment starts another server."""
    path = Path(listening.getsockname())
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other servers have sockets there
        path.parent.rmdir()
    os._exit(0)


def _received(client: socket.socket) -> tuple[bytes, list[int]]:
    """Return a request and its files; an empty one if the client has ended."""
    try:
        message, files, _, _ = socket.recv_fds(client, MOST_BYTES, 8)
    except ConnectionResetError:
        return b"", []
    return message, files


def _fork(message: bytes, files: list[int], statuses: dict[int, int]) -> Request | None:
    """Fork a process; return its request in that process, and None in the server."""
    status, *others = files
    assert threading.active_count() == 1, threading.enumerate()
    pid = os.fork()
    if pid == 0:
        os.close(status)
        return Request(json.loads(message), tuple(others))
    for file in others:
        os.close(file)
    statuses[pid] = status
    _report(status, pid)
    return None


def _report_ended(statuses: dict[int, int]) -> None:
    """Send the exit codes of processes that have ended."""
    while statuses:
        pid, code = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        status = statuses.pop(pid)
        _report(status, os.waitstatus_to_exitcode(code))
        os.close(status)


def _report(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the process that requested it has ended
        os.write(status, number_bytes(number))


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _run_command(request: Request, added: dict[str, str]) -> None:
    """Become the process of a command: its files, folder, environment and arguments.

    Imports have set the variables `added`, which they would set in a process of its own.
    """
    _reset_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, file in enumerate(request.files):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request.given["folder"])
    os.environ.clear()
    os.environ.update(added | request.given["environment"])
    _map_faults()
    if "numba" in sys.modules:  # it has read its variables at import
        sys.modules["numba"].config.reload_config()
    name, *arguments = request.given["arguments"]
    sys.argv = [name, *arguments]
    if name.endswith(".py"):
        sys.path[:1] = [str(Path(name).parent), *os.environ["PYTHONPATH"].split(os.pathsep)]
        runpy.run_path(name, run_name="__main__")
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)


def _map_faults() -> None:
    """Let the library of faults, if it is loaded, read its file, which it did not know when it was loaded."""
    if FAULTS in os.environ:
        ctypes.CDLL(None).map_faults()


def _run_fork_server(request: Request) -> None:
    """Become multiprocessing's fork server of a service."""
    from app.engine import fork_server_setup

    _reset_signals()
    Path("/proc/self/comm").write_text(comm_of(request.given["service"]))
    atexit.register(fork_server_setup._remove_listener, os.getpid())
    listener, alive, *standard = request.files
    for target, file in enumerate(standard):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request.given["folder"])
    os.environ.update(request.given["environment"])
    _map_faults()
    forkserver.main(listener, alive, request.given["modules"])


class _BorrowedFork:
    """Fork servers of this process that are another one's children."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._environment = worker_environment(os.environ, traces=False)
        self._handles: dict[int, int] = {}
        self._spawn = util.spawnv_passfds

    def __getattr__(self, name: str) -> Any:
        """Return a member of `os`, as which `multiprocessing.forkserver` uses this."""
        return getattr(os, name)

    def start(self, program: bytes, arguments: list[str], files: list[int]) -> int:
        """Start a process as `multiprocessing.util.spawnv_passfds` does, and return its id."""
        wanted = worker_environment(os.environ, tracing.wanted())
        own = {name: wanted.pop(name) for name in (FAULTS, ADDITIONAL) if name in wanted}
        if wanted != self._environment or "multiprocessing.forkserver" not in arguments[-1]:
            return int(self._spawn(program, arguments, files))
        modules = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
        given = {"service": os.getpid(), "folder": str(Path.cwd()), "environment": own, "modules": modules}
        pid, status = request_fork(self._requests, given, [*files, 0, 1, 2])
        os.close(status)
        self._handles[pid] = os.pidfd_open(pid)
        return pid

    def waitpid(self, pid: int, flags: int) -> tuple[int, int]:
        """Return whether one has ended; of this process's children, as `os.waitpid` does."""
        if pid not in self._handles:
            return os.waitpid(pid, flags)
        with selectors.DefaultSelector() as selector:
            selector.register(self._handles[pid], selectors.EVENT_READ)
            if not selector.select(0 if flags & os.WNOHANG else None):
                return 0, 0
        os.close(self._handles.pop(pid))
        return pid, 0


def _borrow_fork_servers(requests: socket.socket) -> None:
    """Let the services that are forked from this process request their fork servers."""
    borrowed: Any = _BorrowedFork(requests)
    util.spawnv_passfds = borrowed.start
    forkserver.os = borrowed  # type: ignore[attr-defined]
