"""A worker waits for kernels that another process compiles, and for no longer than that process lives."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers import compiled_services
from providers.compiled_services import are_compiled, compiling, record, wait_until_compiled

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow

PATIENCE = 120.0

HOLDER = """
import sys
from providers.compiled_services import compiling

with compiling(wait=True) as lock:
    print("compiling", lock is not None, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def other_process() -> Iterator["subprocess.Popen[str]"]:
    """Another process that compiles kernels until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "compiling True\n"
    yield process
    process.kill()
    process.communicate()


def waiting(name: str) -> threading.Thread:
    """A thread that waits for a service's kernels."""
    thread = threading.Thread(target=wait_until_compiled, args=(name,), daemon=True)
    thread.start()
    return thread


def test_services_are_recorded_one_by_one() -> None:
    assert not are_compiled(["DSWAP"])
    record("DSWAP")
    assert are_compiled(["DSWAP"])
    assert not are_compiled(["DSWAP", "RWN"])


def test_a_record_holds_for_these_sources_and_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an edit, or on another processor, the kernels are others."""
    record("DSWAP")
    for name, other in (("state_of_texts", lambda package: "edited"), ("_processor", lambda: ["flags : x"])):
        with monkeypatch.context() as changed:
            changed.setattr(compiled_services, name, other)
            compiled_services.key.cache_clear()
            assert not are_compiled(["DSWAP"])
        compiled_services.key.cache_clear()
    assert are_compiled(["DSWAP"])


def test_nobody_waits_if_nobody_compiles() -> None:
    wait_until_compiled("DSWAP")
    with compiling(wait=False):
        pass
    wait_until_compiled("DSWAP")


def test_one_process_compiles_at_a_time(other_process: "subprocess.Popen[str]") -> None:
    with compiling(wait=False) as lock:
        assert lock is None
    other_process.kill()
    other_process.wait(PATIENCE)
    with compiling(wait=False) as lock:
        assert lock is not None


def test_a_worker_waits_for_its_own_service_alone(other_process: "subprocess.Popen[str]") -> None:
    thread = waiting("RWN")
    record("DSWAP")
    wait_until_compiled("DSWAP")
    assert thread.is_alive()
    record("RWN")
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert other_process.poll() is None


def test_a_worker_does_not_wait_for_a_dead_process(other_process: "subprocess.Popen[str]") -> None:
    """The kernels are then compiled by the worker."""
    thread = waiting("RWN")
    time.sleep(5 * compiled_services._LOOK_SECONDS)
    assert thread.is_alive()
    other_process.kill()
    thread.join(PATIENCE)
    assert not thread.is_alive()
