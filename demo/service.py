"""Local Rowveil process, started as a user would, for the duration of a block."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol


class Process(Protocol):
    """Process of a service: a `subprocess.Popen` or one that has the same methods."""

    pid: int
    stdout: IO[str] | None
    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code; None if the process has not ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit code. Raises subprocess.TimeoutExpired."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal, unless the process has ended."""

    def kill(self) -> None:
        """End the process at once."""


class StartError(RuntimeError):
    """The service ended before it was ready."""


@contextmanager
def running_service(home: Path, log: IO[bytes] | None = None, /, **settings: str) -> Iterator[str]:
    """Start the service on a free port with all its state below `home`; yield its address.

    `log` receives its standard error; by default that is this process's own. `settings` are environment
    variables without ``ROWVEIL_``, in lower case. Authentication is off unless they have ``auth="on"``, in
    which case `own_key` creates a key.
    """
    with service_process(home, log, **settings) as (address, _):
        yield address


@contextmanager
def service_process(
    home: Path, log: IO[bytes] | None = None, /, **settings: str
) -> Iterator[tuple[str, int]]:
    """Start the service; yield its address and its process id."""
    environment = environment_of(home, settings)
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve"], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
    )
    with announced(process) as found:
        yield found


@contextmanager
def announced(process: Process) -> Iterator[tuple[str, int]]:
    """Wait until a service is ready; yield its address and its process id, and end it with the block."""
    try:
        assert process.stdout is not None  # noqa: S101 - it was requested as a pipe
        ready = process.stdout.readline()
        address = re.search(r"http://\S+", ready)
        if address is None:
            raise StartError(f"the service did not start: {ready.strip() or 'see above'}")
        yield address[0].rstrip("/"), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def own_key(home: Path, **settings: str) -> str:
    """Return the key of this machine's user for the service on this home."""
    command = [sys.executable, "-m", "app", "keys", "own"]
    environment = environment_of(home, {"auth": "on"} | settings)
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return printed.stdout.split()[-1]


def environment_of(home: Path, settings: dict[str, str]) -> dict[str, str]:
    """Return the environment of a service with these settings; see `running_service`."""
    given = {"home": str(home), "port": "0", "auth": "off"} | settings
    return os.environ | {f"ROWVEIL_{name.upper()}": value for name, value in given.items()}
