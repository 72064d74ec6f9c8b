"""Two replicas of the real service on one PostgreSQL, and everything that can be done to them."""

import contextlib
import mmap
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from demo.service import Process
from tests.preloaded.processes import fork_servers, start_service

PATIENCE = 240.0
LEASE_SECONDS = 3.0
GRACE_SECONDS = 2.0
_FAULTS = struct.Struct("=qii")
_LOOK_SECONDS = 0.05


def until(what: str, holds: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Return when it holds."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"it never came about that {what}"
        time.sleep(_LOOK_SECONDS)


def cancel(client: httpx.Client, job: str) -> httpx.Response:
    """Cancel a job, and return the answer. A busy machine may take longer than a request waits."""
    answer = client.post(f"/v1/jobs/{job}/cancel", timeout=30)
    deadline = time.monotonic() + PATIENCE
    while answer.status_code == 503 and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        answer = client.post(f"/v1/jobs/{job}/cancel", timeout=30)
    return answer


def compiled_faults(folder: Path) -> Path:
    """The library that makes the clock jump and the blobs fail; skips where nothing can compile it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def children_of(pid: int) -> list[int]:
    """The child processes of any of its threads."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found += map(int, (thread / "children").read_text().split())
    return found


def command_of(pid: int) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Replica:
    """One service process, which can be ended in any way and started again."""

    def __init__(self, name: str, home: Path, database: str, library: Path | None) -> None:
        home.parent.mkdir(exist_ok=True)
        faults = home.parent / f"faults-{name}"
        faults.write_bytes(bytes(_FAULTS.size))
        with faults.open("r+b") as file:
            self._faults = mmap.mmap(file.fileno(), _FAULTS.size)
        self.log = home.parent / f"log-{name}"
        self.module = "app"
        """Module whose command line it runs."""
        self.environment = os.environ | {
            "ROWVEIL_HOME": str(home),
            "ROWVEIL_PORT": "0",
            "ROWVEIL_AUTH": "off",
            "ROWVEIL_DATABASE_URL": database,
            "ROWVEIL_WORKERS": "1",
            "ROWVEIL_WORKER_THREADS": "1",
            "ROWVEIL_WORKER_MEMORY_BYTES": str(512 * 2**20),
            "ROWVEIL_LEASE_SECONDS": str(LEASE_SECONDS),
            "ROWVEIL_SHUTDOWN_GRACE": str(GRACE_SECONDS),
        }
        if name == "one":  # small tables are files for one replica, and in rows for the other
            self.environment["ROWVEIL_SMALL_TABLE_BYTES"] = "0"
        if library is not None:
            self.environment |= {"LD_PRELOAD": str(library), "FAULTS_FILE": str(faults)}
            # The library reads its file in workers, too, which confined ones must not.
            self.environment |= {"ROWVEIL_WORKER_ENVIRONMENT": "FAULTS_FILE", "ROWVEIL_CONFINE_WORKERS": "0"}
        self._address: str | None = None
        self._process: Process | None = None
        self.client = httpx.Client()

    def start(self) -> None:
        """Begin to start; `up` says when it has."""
        assert self._process is None
        self._address = None
        self.fail()
        with self.log.open("ab") as log:
            if self.module == "app":
                self._process = start_service(self.environment, log)
            else:
                command = [sys.executable, "-m", self.module, "serve"]
                self._process = subprocess.Popen(
                    command, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True
                )

    @property
    def up(self) -> bool:
        """Whether it has said that it is ready, and has not been ended."""
        if self._process is None:
            return False
        assert self._process.stdout is not None
        if self._address is None and select.select([self._process.stdout], [], [], 0)[0]:
            ready = self._process.stdout.readline()
            found = re.search(r"http://\S+", ready)
            assert found, f"it did not start; {self.log} says why"
            self._address = found[0].rstrip("/")
            self.client.close()
            self.client = httpx.Client(base_url=self._address, timeout=60)
        return self._address is not None

    @property
    def pid(self) -> int:
        """The service process."""
        assert self._process is not None
        return self._process.pid

    def workers(self) -> list[int]:
        """Its worker processes: children of its fork server."""
        servers = [pid for pid in children_of(self.pid) if b"forkserver" in command_of(pid)]
        if self.module == "app":
            servers += fork_servers(self.pid, self.environment)
        return [worker for server in servers for worker in children_of(server)]

    def ready(self) -> dict[str, str]:
        """Return the checks of `/readyz` by dependency."""
        answer = self.client.get("/readyz")
        document: dict[str, dict[str, str]] = answer.json()
        assert (answer.status_code == 200) == all(said == "ok" for said in document["checks"].values())
        return document["checks"]

    def send(self, number: signal.Signals) -> None:
        """Send the service process a signal."""
        os.kill(self.pid, number)

    def end(self, number: signal.Signals) -> float:
        """End it, and say how many seconds that took."""
        began = time.monotonic()
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process, self._address = None, None
        return time.monotonic() - began

    def fail(self, error: int = 0, spared: int = 0, clock_seconds: int = 0) -> None:
        """Set the faults of the process from now on; none by default."""
        self._faults[:] = _FAULTS.pack(clock_seconds, error, spared)

    def close(self) -> None:
        """End it, if it is not."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGCONT)
            self.end(signal.SIGTERM)
        self.client.close()


def starts_before(stop: Callable[[], None], replica: Replica, start: Callable[[], None]) -> None:
    """Start a replica while what it needs is stopped: it asks again until that is back, then is ready."""
    replica.end(signal.SIGTERM)
    stop()
    try:
        logged = replica.log.stat().st_size
        replica.start()
        until("it has asked for it", lambda: "it is tried again" in replica.log.read_text()[logged:])
    finally:
        start()
    until("it is up", lambda: replica.up)
    until("it is ready", lambda: set(replica.ready().values()) == {"ok"})


@contextlib.contextmanager
def running_pair(folder: Path, database: str, library: Path | None) -> Iterator[list[Replica]]:
    """Two replicas that are up, for as long as a block lasts."""
    pair = [Replica(name, folder / "home", database, library) for name in ("one", "two")]
    with started(pair):
        yield pair


@contextlib.contextmanager
def started(pair: list[Replica]) -> Iterator[None]:
    """Start replicas, wait until they are up, and end them with the block."""
    try:
        for replica in pair:
            replica.start()
        for replica in pair:
            until("a replica is up", lambda replica=replica: replica.up)  # type: ignore[misc]
        yield
    finally:
        for replica in pair:
            replica.close()
