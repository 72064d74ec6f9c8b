"""Servers of preloaded processes that all test processes of a run share.

The first process that needs a server starts it. It ends when nobody is connected to it any more.
"""

import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.preloaded.forks import received

_RUN = "PYTEST_XDIST_TESTRUNUID"
"""Variable that pytest-xdist sets to the same value in all test processes of a run."""

_PROGRAM = "from tests.preloaded.server import main; main({!r}, {}, {!r})"
_BACKLOG = 64
_TRIES = 3

_started: list["subprocess.Popen[bytes]"] = []
"""Servers that this process has started; they may outlive it."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Connection to a server."""

    requests: socket.socket
    server: int
    """Process id of the server."""
    path: str
    """Path of the server's socket."""


def connection_to(role: str, environment: Mapping[str, str], fork_servers: str = "") -> Connection:
    """Connect to the server of a role with an environment, which is started if there is none.

    Waits until the server has imported its modules.

    Parameters
    ----------
    role
        Role of the server: see `tests.preloaded.server.main`.
    environment
        All variables of the server.
    fork_servers
        Path of the socket of the server from which fork servers are forked, for roles that need it.
    """
    key = json.dumps([role, sorted(environment.items())])
    path = str(_folder() / hashlib.sha256(key.encode()).hexdigest()[:16])
    for _ in range(_TRIES):
        requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with suppress(OSError, RuntimeError):  # the server has ended since, as nobody was connected
            _connect(requests, path, role, environment, fork_servers)
            return Connection(requests, received(requests.fileno()), path)
        requests.close()
    raise RuntimeError(f"the server of preloaded processes for '{role}' does not start")


def _connect(
    requests: socket.socket, path: str, role: str, environment: Mapping[str, str], fork_servers: str
) -> None:
    """Connect to the socket at a path; if nobody listens, start the server. Raises OSError."""
    folder = Path(path).parent
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError, ConnectionRefusedError):
            requests.connect(path)
            return
        Path(path).unlink(missing_ok=True)
        _start(path, role, environment, fork_servers)
        requests.connect(path)
    finally:
        os.close(lock)


def _start(path: str, role: str, environment: Mapping[str, str], fork_servers: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(_BACKLOG)
        number = listening.fileno()
        program = _PROGRAM.format(role, number, fork_servers)
        _started.append(
            subprocess.Popen(
                [sys.executable, "-c", program],
                env=environment,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a reader of this process's output must not wait for the server
            )
        )


@cache
def _folder() -> Path:
    """Return the folder of the run's sockets."""
    run = os.environ.get(_RUN) or uuid.uuid4().hex
    return Path("/tmp") / f"rowveil-{run[:12]}"  # noqa: S108 - a path of a socket is short, and this one random
