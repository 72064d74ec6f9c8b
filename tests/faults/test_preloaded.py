"""Forked services behave as those that a user starts: settings, output, signals, exit codes, workers."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from demo.service import Process, environment_of
from tests.faults.replicas import until
from tests.faults.running import wait_until_gone
from tests.preloaded.processes import fork_servers, servers, start_service

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start services below the test's folder, with their standard error in the file ``log``."""
    started: list[Process] = []

    def begin(**settings: str) -> Process:
        environment = environment_of(tmp_path / "home", {"workers": "1", "warm_workers": "false"} | settings)
        with (tmp_path / "log").open("ab") as log:
            started.append(start_service(environment, log))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def address_of(service: Process) -> str:
    assert service.stdout is not None
    found = re.search(r"http://\S+", service.stdout.readline())
    assert found is not None
    return found[0].rstrip("/")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_service_has_its_own_settings_and_ends_with_zero(start: Start, tmp_path: Path) -> None:
    service = start()
    address = address_of(service)
    rows = {"source": {"rows": [{"a": 1}, {"a": 2}]}, "parameters": {"swap_fields": ["a"]}}
    answer = httpx.post(f"{address}/v1/services/DSWAP", json=rows, headers={"prefer": "wait=60"}, timeout=70)
    assert answer.json()["state"] == "succeeded", answer.text
    assert (tmp_path / "home" / "rowveil.db").is_file()
    assert "authentication is OFF" in (tmp_path / "log").read_text()
    assert service.poll() is None
    service.send_signal(signal.SIGTERM)
    assert service.wait(60) == 0


def test_ctrl_c_ends_several_api_processes_with_zero(start: Start) -> None:
    """A terminal sends it to the supervisor and to each of its processes."""
    service = start(api_processes="2", workers="2")
    address_of(service)
    for pid in (*children(service.pid), service.pid):
        os.kill(pid, signal.SIGINT)
    assert service.wait(60) == 0


@pytest.mark.parametrize("api_processes", ["1", "2"])
def test_a_second_service_on_the_same_home_is_refused(
    start: Start, tmp_path: Path, api_processes: str
) -> None:
    """Its exit code and its message are those of a process of its own, with any number of API processes."""
    address_of(start())
    second = start(api_processes=api_processes, workers=api_processes)
    assert second.wait(60) == 1
    assert "another service uses" in (tmp_path / "log").read_text()


def test_workers_end_with_a_service_that_is_killed(start: Start) -> None:
    service = start()
    address_of(service)
    (server,) = fork_servers(service.pid, os.environ)
    until("a worker runs", lambda: bool(children(server)))
    workers = children(server)
    service.kill()
    assert service.wait(30) == -signal.SIGKILL
    for pid in (*workers, server):
        wait_until_gone(pid)


def test_a_fork_server_that_is_killed_is_replaced(start: Start) -> None:
    service = start()
    address = address_of(service)
    (first,) = fork_servers(service.pid, os.environ)
    os.kill(first, signal.SIGKILL)
    wait_until_gone(first)
    until("there is another one", lambda: bool(fork_servers(service.pid, os.environ)))
    until("it is ready", lambda: httpx.get(f"{address}/readyz").status_code == 200)


def test_a_variable_that_a_test_sets_is_none_of_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the services of all later tests in this process would not be forked."""
    before = dict(os.environ)
    monkeypatch.setenv("VARIABLE_OF_THIS_TEST", "1")
    assert servers(os.environ).fits(before)
    assert not servers(os.environ).fits(os.environ)


CONNECT = """
import os
from tests.preloaded import server
from tests.preloaded.shared import connection_to

connection = connection_to(server.FORK_SERVER, server.bound(os.environ))
print(connection.server, connection.path, flush=True)
input()
"""


def test_processes_of_a_run_share_a_server_until_the_last_has_ended() -> None:
    environment = os.environ | {"PYTEST_XDIST_TESTRUNUID": uuid4().hex, "PYTHONPATH": str(ROOT)}
    with ExitStack() as running:
        processes = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", CONNECT],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(3)
        ]
        found = {process.stdout.readline() for process in processes if process.stdout is not None}
        assert len(found) == 1
        server, path = found.pop().split()
        processes[0].communicate("")  # perhaps the one that has started it
        assert Path(f"/proc/{server}").exists()
        for process in processes[1:]:
            process.communicate("")
    wait_until_gone(int(server))
    assert not Path(path).parent.exists()
