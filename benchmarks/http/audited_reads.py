"""Reads of rows a second with two replicas on one PostgreSQL, and the audit lines that they write.

The server flushes every commit to its disk. A read of rows is one HTTP request, whose audit line is committed
before the first row is sent. The second figure leaves HTTP away: two processes with eight threads each, as a
replica has them, append one audit line per transaction.
"""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast
from urllib.parse import urlsplit

import httpx

from app.callers import Caller
from app.jobs.stores import open_keys
from app.jobs.transactions import JobTransactions
from app.settings import Settings
from app.store.sql.db import Database
from app.store.sql.migration import migrate
from benchmarks.harness import table
from demo.service import running_service
from tests.postgres import running_postgres

REPLICAS = 2
THREADS = 8
"""Simultaneous readers of each replica."""
SECONDS = 6.0
_CALL = {
    "source": {"rows": [{"town": "Bern", "income": 1}, {"town": "Bern", "income": 2}]},
    "parameters": {"control_field": "town", "swap_fields": ["income"]},
}


def measure(rounds: int) -> str:
    """Return reads and lines a second, the medians of the rounds."""
    with tempfile.TemporaryDirectory() as folder, running_postgres(durable=True) as server:
        reads = list(_reads(Path(folder), server.new_database(), rounds))
        lines = [_lines(Path(folder), server.new_database()) for _ in range(rounds)]
    head = f"## Audited reads a second, {REPLICAS} replicas with {THREADS} readers each, PostgreSQL\n"
    rows = [
        ["reads of rows by HTTP", f"{statistics.median(reads):,.0f}"],
        ["audit lines, each a transaction of its caller", f"{statistics.median(lines):,.0f}"],
    ]
    return head + table(["of both replicas together", "a second"], rows)


def _reads(folder: Path, url: str, rounds: int) -> Iterator[float]:
    with ExitStack() as stack:
        addresses = [
            stack.enter_context(
                running_service(
                    folder / f"home-{number}",
                    workers="1",
                    database_url=url,
                    shared_folder=str(folder / "shared"),
                    key_file=str(folder / "master.key"),
                    signing_key_file=str(folder / "signing.key"),
                )
            )
            for number in range(REPLICAS)
        ]
        done = httpx.post(f"{addresses[0]}/v1/services/CDSWAP", json=_CALL, timeout=120)
        path = f"/v1/jobs/{done.raise_for_status().json()['id']}/rows"
        readers = [_reader(address, path) for address in addresses for _ in range(THREADS)]
        for _ in range(rounds):
            yield _rate(readers)


def _reader(address: str, path: str) -> Callable[[], None]:
    """Return a function that reads the rows over its own connection; httpx would take longer than both."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)

    def read() -> None:
        connection.request("GET", path, headers={"accept": "text/csv"})
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise RuntimeError(f"the service answered {response.status}")

    return read


def _lines(folder: Path, url: str) -> float:
    """Return the lines a second of processes that append at the same time."""
    migrate(_settings(url, str(folder)))
    command = [sys.executable, "-m", "benchmarks.http.audited_reads", url, str(folder)]
    with ExitStack() as stack:
        running = [stack.enter_context(_line_writer(command)) for _ in range(REPLICAS)]
        for process in running:  # each says when it is ready, and starts at the answer
            _stream(process.stdout).readline()
        for process in running:
            _stream(process.stdin).write("\n")
            _stream(process.stdin).flush()
        return sum(float(_stream(process.stdout).readline()) for process in running)


def _stream(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise RuntimeError("the process was started without the stream")
    return stream


@contextmanager
def _line_writer(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _rate(works: list[Callable[[], Any]]) -> float:
    """Repeat each work in a thread of its own; return the number of repetitions a second."""
    counts, stop = [0] * len(works), threading.Event()

    def repeat(number: int) -> None:
        while not stop.is_set():
            works[number]()
            counts[number] += 1

    with ThreadPoolExecutor(len(works)) as threads:
        running = [threads.submit(repeat, number) for number in range(len(works))]
        time.sleep(1.0)  # until all are connected
        started, before = time.perf_counter(), sum(counts)
        time.sleep(SECONDS)
        rate = (sum(counts) - before) / (time.perf_counter() - started)
        stop.set()
        for each in running:
            each.result()
    return rate


def _settings(url: str, folder: str) -> Settings:
    return Settings(home=Path(folder), database_url=url)


def main() -> None:
    """Append lines as a replica does and print their number a second."""
    url, folder = sys.argv[1:]
    settings = _settings(url, folder)
    database = Database(settings)
    _, audit = open_keys(settings, database)
    stores = cast(Any, SimpleNamespace(database=database, audit=audit))
    transactions = JobTransactions(stores, cast(Any, None))
    print("ready", flush=True)
    sys.stdin.readline()
    ada = Caller("ada", request="r")
    print(_rate([lambda: transactions.audit(ada, "rows.read", "some-job")] * THREADS), flush=True)


if __name__ == "__main__":
    main()
