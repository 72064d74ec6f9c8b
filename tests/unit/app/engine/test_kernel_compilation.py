"""Kernels are compiled by a child process, whose progress is reported, and which ends with the service."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.engine.kernel_compilation import KernelCompilation
from providers import PROVIDERS
from providers.compiled_services import MEASURES_NAME, compiling, record
from providers.kernel_display import CompilationProgress

pytestmark = pytest.mark.slow

PATIENCE = 120.0

RECORD = '{"compiled": %d, "kernels": 4, "running": [["grouping.shuffle.exchange", 1.5]]}'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def child(*lines: str) -> tuple[str, ...]:
    """The command of a child that runs these lines of Python."""
    return (sys.executable, "-c", "\n".join(("import os, sys, time", *lines)))


def printing(compiled: int) -> str:
    return f"print('{RECORD % compiled}', flush=True)"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def test_progress_is_that_of_the_child(caplog: pytest.LogCaptureFixture) -> None:
    """It is known from the start, and gone when the child has ended."""
    caplog.set_level(logging.INFO, "rowveil.engine")

    async def run() -> None:
        lines = (
            printing(1),
            "print('a warning of a library', flush=True)",
            "sys.stdin.readline()",
            printing(3),
        )
        kernels = KernelCompilation(child(*lines))
        kernels.start()
        await until(lambda: kernels.progress is not None)
        await until(lambda: kernels.progress is None)
        await kernels.stop()

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records[:-1]] == [
        "compiling kernels in the background; a job waits for those of its own service",
        "1 of 4 kernels are compiled",
        "3 of 4 kernels are compiled",
    ]
    assert caplog.records[-1].getMessage().startswith("all kernels are compiled, after ")


def test_stop_ends_the_child_and_its_own_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fork = "own = os.fork()", f"own and open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{own}}')"

    async def run() -> CompilationProgress | None:
        kernels = KernelCompilation(child(*fork, f"own and {printing(2)}", "time.sleep(3600)"))
        kernels.start()
        await until(lambda: kernels.progress is not None and kernels.progress.kernels == 4 and pids.exists())
        progress = kernels.progress
        await kernels.stop()
        assert kernels.progress is None
        return progress

    assert asyncio.run(run()) == CompilationProgress(2, 4, [("grouping.shuffle.exchange", 1.5)])
    for pid in pids.read_text().split():
        asyncio.run(until(lambda pid=int(pid): not is_running(pid)))  # type: ignore[misc]


def test_a_child_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        kernels = KernelCompilation(child("sys.exit(1)"))
        kernels.start()
        await until(lambda: bool(caplog.records))
        await kernels.stop()

    asyncio.run(run())
    assert caplog.messages == ["compiling kernels in advance failed; a job compiles those it needs"]


def test_nothing_is_started_if_all_is_compiled(tmp_path: Path) -> None:
    for name in (*PROVIDERS, MEASURES_NAME):
        record(name)

    async def run() -> None:
        kernels = KernelCompilation(child(f"open({str(tmp_path / 'started')!r}, 'w')"))
        kernels.start()
        assert kernels._task is not None
        async with asyncio.timeout(PATIENCE):
            await kernels._task
        assert kernels.progress is None

    asyncio.run(run())
    assert not (tmp_path / "started").exists()


def test_the_child_keeps_the_lock(tmp_path: Path) -> None:
    """Workers go on waiting for the child if the service is killed."""

    async def run() -> None:
        kernels = KernelCompilation(child(printing(0), "time.sleep(3600)"))
        kernels.start()
        await until(lambda: kernels.progress is not None and kernels.progress.kernels == 4)
        with compiling(wait=False) as lock:
            assert lock is None
        await kernels.stop()

    asyncio.run(run())
