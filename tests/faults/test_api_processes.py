"""One service with two API processes, on each kind of database, under one fault after the other."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import httpx
import pytest

from tests.api.calls import slow_call
from tests.conftest import new_address
from tests.faults.replicas import LEASE_SECONDS, Replica, cancel, children_of, command_of, started, until
from tests.faults.rounds import Rounds
from tests.postgres import Postgres
from tests.preloaded.processes import fork_servers

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("PROCESS_ROUNDS", "20"))

ASYNC = {"prefer": "respond-async"}

_FAULTS = {
    "kill_api_process": 5,
    "kill_service": 1,
    "terminate_service": 1,
    "kill_worker": 2,
    "kill_fork_server": 1,
    "freeze_api_process": 2,
    "cancel": 2,
}

_WRITE_DOWN_ENDS = """
CREATE TABLE ends (job text NOT NULL, state text NOT NULL);
CREATE TRIGGER write_down_end AFTER UPDATE ON jobs
WHEN NEW.finished_at IS NOT NULL AND (OLD.finished_at IS NULL OR OLD.state <> NEW.state)
BEGIN
    INSERT INTO ends VALUES (NEW.id, NEW.state);
END;
"""


@dataclass
class ProcessRounds(Rounds):
    """A service with two API processes."""

    @property
    def service(self) -> Replica:
        """The service."""
        return self.pair[0]

    def api_processes(self) -> list[int]:
        """Return the API processes: forks of the supervisor with its command line."""
        supervisor = self.service.pid
        return [pid for pid in children_of(supervisor) if command_of(pid) == command_of(supervisor)]

    def fork_server(self) -> int:
        """Return the fork server that the supervisor has started."""
        return fork_servers(self.service.pid, self.service.environment)[0]

    def _kill_api_process(self, draw: random.Random, _: list[str]) -> set[str]:
        os.kill(draw.choice(self.api_processes()), signal.SIGKILL)
        until("there are two again", lambda: len(self.api_processes()) == 2)
        return set()

    def _kill_fork_server(self, _draw: random.Random, _: list[str]) -> set[str]:
        with contextlib.suppress(IndexError, ProcessLookupError):  # a round before has killed it
            os.kill(self.fork_server(), signal.SIGKILL)
        return set()

    def _freeze_api_process(self, draw: random.Random, _: list[str]) -> set[str]:
        """For less than its lease, or for more."""
        pid = draw.choice(self.api_processes())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(draw.choice([0.2, LEASE_SECONDS * 1.5]))
        os.kill(pid, signal.SIGCONT)
        return set()


@dataclass
class EmbeddedRounds(ProcessRounds):
    """The same on a SQLite file."""

    def write_down_ends(self) -> None:
        """Have the database write down every end of a job."""
        with contextlib.closing(self._connected()) as connection:
            connection.executescript(_WRITE_DOWN_ENDS)

    def query(self, text: LiteralString, *parameters: str) -> list[tuple[Any, ...]]:
        """Return what the database answers now."""
        with contextlib.closing(self._connected()) as connection:
            return connection.execute(text.replace("%s", "?"), parameters).fetchall()

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self.home / "rowveil.db", timeout=60)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def rounds(
    request: pytest.FixtureRequest, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProcessRounds]:
    home = tmp_path_factory.mktemp("processes") / "home"
    database = new_address(request.param, request) or f"sqlite:///{home / 'rowveil.db'}"
    service = Replica("several", home, database, library=None)
    service.environment |= {"ROWVEIL_API_PROCESSES": "2", "ROWVEIL_WORKERS": "2"}
    kind = EmbeddedRounds if request.param == "sqlite" else ProcessRounds
    with started([service]):
        made = kind([service], postgres, database, home, _FAULTS)
        made.prepare()
        yield made
        made.close()


@contextlib.contextmanager
def clients(rounds: ProcessRounds) -> Iterator[list[httpx.Client]]:
    """Clients of each process: every connection goes to the process with the fewest."""
    service = rounds.service
    address = service.client.base_url
    with contextlib.ExitStack() as opened:
        found = [opened.enter_context(httpx.Client(base_url=address, timeout=60)) for _ in range(2)]
        service.client.close()  # its connection would count until its process has reported the end
        until("it has no connection", lambda: not any(connections(rounds, ESTABLISHED, CLOSED_BY_CLIENT)))
        service.client = opened.enter_context(httpx.Client(base_url=address, timeout=60))
        for client in found:
            assert client.get("/livez").status_code == 200
        yield found
        service.client = httpx.Client(base_url=address, timeout=60)


ESTABLISHED, CLOSED_BY_CLIENT = "01", "08"
"""States of a connection in `/proc/net/tcp`."""


def connections(rounds: ProcessRounds, *states: str) -> list[int]:
    """Return the number of each API process's connections with callers that are in one of the states."""
    port = rounds.service.client.base_url.port
    listing = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    counted = {line[9] for line in listing if line[1].endswith(f":{port:04X}") and line[3] in states}
    found = []
    for pid in rounds.api_processes():
        links = []
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has been closed meanwhile
                links.append(str(file.readlink()))
        found.append(sum(link.removeprefix("socket:[").removesuffix("]") in counted for link in links))
    return found


def test_connections_are_spread_over_the_processes(rounds: ProcessRounds) -> None:
    with clients(rounds):
        assert connections(rounds, ESTABLISHED) == [1, 1]


def test_a_job_is_watched_cancelled_and_awaited_at_any_process(rounds: ProcessRounds) -> None:
    """Each process has one worker; all is asked of the first."""
    slow = slow_call(rounds.service.client)
    body = {"source": {"rows": [{"age": 1}, {"age": 2}]}, "parameters": {"swap_fields": ["age"]}}
    with clients(rounds) as (one, other):
        busy = [one.post("/v1/services/DDSWAP", json=slow, headers=ASYNC).json()["id"] for _ in range(2)]
        for job in busy:
            until("it runs", lambda job=job: rounds.column(job, "state") == "running")  # type: ignore[misc]
        assert len({rounds.column(job, "claimed_by") for job in busy}) == 2
        with one.stream("GET", f"/v1/jobs/{busy[1]}/events") as events:
            assert cancel(one, busy[0]).json()["state"] == "cancelled"
            assert cancel(other, busy[1]).json()["state"] == "cancelled"
            assert any('"cancelled"' in line for line in events.iter_lines())
        running = one.post("/v1/services/DDSWAP", json=slow, headers=ASYNC).json()["id"]
        until("it runs", lambda: rounds.column(running, "state") == "running")
        for client in (one, other):  # one of them has no free worker
            answer = client.post("/v1/services/DSWAP", json=body, headers={"prefer": "wait=60"})
            assert (answer.status_code, answer.json()["state"]) == (200, "succeeded")
            assert rounds.column(answer.json()["id"], "claimed_by") != rounds.column(running, "claimed_by")
        assert cancel(other, running).json()["state"] == "cancelled"


def test_each_process_shows_the_metrics_of_both(rounds: ProcessRounds) -> None:
    def value(client: httpx.Client, name: str) -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    accepted = "rowveil_jobs_accepted_total"
    body = {"source": {"rows": [{"age": 1}, {"age": 2}]}, "parameters": {"swap_fields": ["age"]}}
    with clients(rounds) as both:
        before = value(both[0], accepted)
        for client in both:
            assert client.post("/v1/services/DSWAP", json=body).json()["state"] == "succeeded"
        for client in both:
            assert value(client, accepted) == before + 2
            assert value(client, "rowveil_workers ") == 2
            until(
                "both have a free worker",
                lambda client=client: value(client, "rowveil_workers_free") == 2,  # type: ignore[misc]
            )
            assert value(client, "process_open_fds") > 20
        os.kill(rounds.api_processes()[0], signal.SIGKILL)
    until("it is replaced", lambda: len(rounds.api_processes()) == 2)
    until("both have a worker", lambda: value(rounds.service.client, "rowveil_workers ") == 2)
    assert value(rounds.service.client, accepted) == before + 2  # what the dead process counted


def test_every_job_ends_once_and_right_whatever_dies(
    rounds: ProcessRounds, capsys: pytest.CaptureFixture[str]
) -> None:
    """And when all is over, no file is there that nobody names, and the audit log is whole."""
    began = time.monotonic()
    rounds.run_all(ROUNDS)
    seconds = time.monotonic() - began
    service = rounds.service
    service.end(signal.SIGTERM)
    service.start()
    until("it is up", lambda: service.up)
    assert rounds.files() == rounds.named()
    assert rounds.progress_files() == []
    assert not list((rounds.home / "scratch").glob("*"))
    command = [sys.executable, "-m", "app", "audit", "verify"]
    audit = subprocess.run(command, env=service.environment, capture_output=True, text=True)
    assert audit.returncode == 0, audit.stderr + audit.stdout
    with capsys.disabled():
        print(
            f"\n{sum(rounds.done.values())} rounds of faults in {seconds:.0f} s: {dict(rounds.done)}; "
            f"jobs met in {dict(rounds.moments)}, ended {dict(rounds.states)}"
        )


def test_a_supervisor_that_is_killed_takes_its_processes_with_it(rounds: ProcessRounds) -> None:
    """The next start finds home and port free, without waiting for a lease."""
    service, before = rounds.service, rounds.api_processes()
    service.end(signal.SIGKILL)
    until("they have ended", lambda: not any(Path(f"/proc/{pid}").exists() for pid in before))
    service.start()
    until("it is up", lambda: service.up)
    assert not set(rounds.api_processes()) & set(before)
