"""A service that is stopped before it is ready ends at once, with status 0, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.service import environment_of
from tests.faults.replicas import until
from tests.faults.running import PATIENCE

pytestmark = pytest.mark.faults


def started(home: Path, temporary: str, **settings: str) -> subprocess.Popen[str]:
    """A service in a session of its own, with its own folder of temporary files."""
    return subprocess.Popen(
        [sys.executable, "-m", "app", "serve"],
        env=environment_of(home, settings) | {"TMPDIR": temporary},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def temporary() -> Iterator[str]:
    """A folder with a short path, since a socket's path is short."""
    with tempfile.TemporaryDirectory(prefix="rv-", dir="/tmp") as folder:
        yield folder


@pytest.fixture
def services() -> Iterator[list[subprocess.Popen[str]]]:
    """Services that are killed, if they still run, when the test has ended."""
    made: list[subprocess.Popen[str]] = []
    yield made
    for service in made:
        service.kill()
        service.communicate()


def test_a_signal_to_all_processes_while_modules_are_imported(
    tmp_path: Path, temporary: str, services: list[subprocess.Popen[str]]
) -> None:
    """Such as from systemd. The fork server may die of it; its folder is the service's to remove."""
    service = started(tmp_path, temporary)
    services.append(service)
    until("the fork server listens", lambda: any(Path(temporary).glob("*/listener-*")))
    os.killpg(service.pid, signal.SIGTERM)
    assert service.wait(PATIENCE) == 0
    assert list(Path(temporary).iterdir()) == []


def test_a_start_that_waits_for_the_database_gives_up(
    tmp_path: Path, temporary: str, services: list[subprocess.Popen[str]]
) -> None:
    """It would wait for 30 seconds."""
    service = started(tmp_path, temporary, database_url=f"postgresql:///rowveil?host={tmp_path}/nowhere")
    services.append(service)
    assert service.stderr is not None
    assert any("it is tried again" in line for line in service.stderr)
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=15)
    assert service.returncode == 0
    assert "Traceback" not in log
