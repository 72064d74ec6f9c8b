"""Services and workers of clusters in tests: forked from a process that has imported their modules.

If their environment forbids that, they are started as a user starts them.
"""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from app.engine.worker_environment import worker_environment
from demo.service import Process, announced, environment_of
from tests.preloaded import server
from tests.preloaded.forks import received, request_fork
from tests.preloaded.shared import Connection, connection_to


class ForkedProcess:
    """Process that a server has forked; it has the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, status: int, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout: IO[str] | None = stdout
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit code; None if the process has not ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit code. Raises subprocess.TimeoutExpired."""
        code = self._ended(None if timeout is None else timeout * 1000)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, milliseconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if not poll.poll(milliseconds):
                return None
            self.returncode = received(self._status)
            os.close(self._status)
        return self.returncode


@cache
def own_environment() -> dict[str, str]:
    """Return the variables of this process that its servers have, as they were at the first call.

    `tests/conftest.py` calls it before the first test. Otherwise a test that sets a variable and starts the
    first service of its process would keep all later ones from being forked.
    """
    return server.bound(os.environ)


class Servers:
    """The processes from which services, workers of clusters, and the fork servers of both are forked."""

    def __init__(self, own: dict[str, str]) -> None:
        """Connect to the process of fork servers; ``own``: variables in addition to those of this process."""
        self._environment = own_environment() | own
        workers = worker_environment(self._environment, traces=False)
        self._fork_servers = connection_to(server.FORK_SERVER, workers)
        self._roles: dict[str, Connection] = {}

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a service with this environment can be forked."""
        return server.bound(environment) == self._environment

    def start(
        self, role: str, arguments: list[str], environment: Mapping[str, str], log: IO[bytes] | None
    ) -> Process:
        """Start ``python -m`` with these arguments, forked from the process of a role."""
        if role not in self._roles:
            self._roles[role] = connection_to(role, self._environment, self._fork_servers.path)
        given = {"folder": str(Path.cwd()), "environment": dict(environment), "arguments": arguments}
        readable, writable = os.pipe()
        try:
            files = [0, writable, 2 if log is None else log.fileno()]
            pid, status = request_fork(self._roles[role].requests, given, files)
        finally:
            os.close(writable)
        return ForkedProcess(pid, status, os.fdopen(readable))

    def fork_servers(self, service: int) -> list[int]:
        """Return the fork servers of a service that were forked."""
        found = []
        first = self._fork_servers.server
        for pid in map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split()):
            with suppress(FileNotFoundError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == server.comm_of(service):
                    found.append(pid)
        return found


_OWN_SERVERS = ("LD_PRELOAD", server.API_PROCESSES)
"""Variables of a service that must be those of its servers: each set of values has servers of its own."""


def servers(environment: Mapping[str, str]) -> Servers:
    """The servers of this process for services with an environment, started at the first call."""
    return _servers(frozenset((name, environment[name]) for name in _OWN_SERVERS if name in environment))


@cache
def _servers(own: frozenset[tuple[str, str]]) -> Servers:
    return Servers(dict(own))


@dataclass(frozen=True, slots=True)
class Command:
    """Command line whose process is forked: its first arguments, and what it inherits."""

    arguments: list[str]
    requests: socket.socket
    """Connection to the server, open as long as the command is used."""

    @property
    def descriptor(self) -> int:
        """Descriptor that the process of the command inherits."""
        return self.requests.fileno()


@cache
def command() -> Command:
    """Return the command ``rowveil``, to which arguments are added; starts the server at the first call.

    It needs the root of the checkout in ``PYTHONPATH``, and forwards no signals.
    """
    forked = _forked_from(server.COMMAND)
    return Command([*forked.arguments, "app"], forked.requests)


@cache
def kernel_script() -> Command:
    """Return a command that runs a script, whose path and arguments are added, like `command`.

    The script has numba as a process has it that has compiled a kernel, and kernels from none but its own
    ``NUMBA_CACHE_DIR``. A test in which the address of an object, or a variable that `providers` reads, must
    differ between processes starts them itself.
    """
    return _forked_from(server.KERNELS)


def _forked_from(role: str) -> Command:
    """Return the command that requests processes from the server of a role."""
    requests = connection_to(role, own_environment()).requests
    program = [sys.executable, "-S", "-m", "tests.preloaded.command"]
    return Command([*program, str(requests.fileno())], requests)


def start_command(
    arguments: list[str],
    environment: Mapping[str, str],
    log: IO[bytes] | None = None,
    role: str = server.SERVICE,
) -> Process:
    """Start ``python -m`` with these arguments, and a pipe as standard output.

    ``role``: process from which it is forked.
    """
    preloaded = servers(environment)
    if preloaded.fits(environment):
        return preloaded.start(role, arguments, environment, log)
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)


def start_service(environment: Mapping[str, str], log: IO[bytes] | None = None) -> Process:
    """Start ``python -m app serve`` with a pipe as standard output."""
    return start_command(["app", "serve"], environment, log)


def start_worker(environment: Mapping[str, str]) -> Process:
    """Start ``python -m app worker``, which prints nothing, with a pipe as standard output."""
    return start_command(["app", "worker"], environment, role=server.CLUSTER_WORKER)


def end(worker: Process) -> None:
    """Let a worker of a cluster end, and wait until it has."""
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(30)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()


def parent_of(pid: int) -> int:
    """Return the parent of a process; that of a fork server is the process that requested it."""
    words = Path(f"/proc/{pid}/comm").read_text().split()
    if len(words) == 2 and words[1].isdigit() and server.comm_of(int(words[1])).split() == words:
        return int(words[1])
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


def fork_servers(service: int, environment: Mapping[str, str]) -> list[int]:
    """Return the fork servers of a service that `start_service` has started."""
    return servers(environment).fork_servers(service)


@contextmanager
def service_process(
    home: Path, log: IO[bytes] | None = None, /, **settings: str
) -> Iterator[tuple[str, int]]:
    """Run a service, as `demo.service.service_process` does."""
    with announced(start_service(environment_of(home, settings), log)) as found:
        yield found


@contextmanager
def running_service(home: Path, log: IO[bytes] | None = None, /, **settings: str) -> Iterator[str]:
    """Run a service, as `demo.service.running_service` does."""
    with service_process(home, log, **settings) as (address, _):
        yield address
