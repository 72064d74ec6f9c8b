"""Progress of compiling: one bar in a terminal and lines elsewhere, counted by kernel over all processes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.preloaded.processes import kernel_script
from tests.terminal import ROOT, SIZES, in_terminal

pytestmark = pytest.mark.slow

BAR = re.compile(r"^  ([ \d]{3})%\|([^|]*)\| (\d+)/(\d+) kernels \d\d:\d\d(?:, (.*))?$")

SHARED = """
from numba import njit

@njit(cache=True)
def shared(number):
    return number * 2 + 1

@njit(cache=True, inline="always")
def written_into_its_callers(number):
    return number - 1

@njit
def not_kept(number):
    return number

def plain(number):
    return number
"""
KERNEL = """
from numba import njit
from sample.common import not_kept, shared, written_into_its_callers

@njit(cache=True)
def {0}(number):
    return not_kept(shared(number)) + written_into_its_callers(number)
"""
WORK = """
import gc, importlib, os, time
from pathlib import Path

folder = Path(__file__).parent

def work(services):
    for service in services:
        if service == "killed":
            os.kill(os.getpid(), 9)
        if service == "waiting":
            while not (folder / "begun").exists():
                time.sleep(0.01)
            (folder / "ended").touch()
        if service == "companion":
            (folder / "begun").touch()
        if service == "later":
            assert (folder / "ended").exists()
            assert not gc.isenabled()
        if service in ("waiting", "companion", "later"):
            continue
        kernel = getattr(importlib.import_module(f"sample.{service}"), service)
        kernel(1), kernel(1.5)
"""
SERVICES = ("first", "second", "third")
SCRIPT = """
import sys
import providers.kernel_progress
import sample
from sample.work import work

if __name__ == "__main__":
    providers.kernel_progress.compile_all(sample, work, sys.argv[1:], 2)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script that compiles a package of four kernels, of which three call the fourth, in a new cache."""
    (tmp_path / "sample").mkdir()
    files = {"__init__": "", "common": SHARED, "work": WORK, "unused": ""}
    for name, text in (files | {name: KERNEL.format(name) for name in SERVICES}).items():
        (tmp_path / "sample" / f"{name}.py").write_text(text)
    (tmp_path / "compile.py").write_text(SCRIPT)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return str(tmp_path / "compile.py")


def piped(script: str, *services: str) -> subprocess.CompletedProcess[str]:
    forked = kernel_script()
    return subprocess.run(
        [*forked.arguments, script, *services],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        pass_fds=(forked.descriptor,),
        capture_output=True,
        text=True,
        check=False,
    )


def without_seconds(text: str) -> list[str]:
    return re.sub(r"\d+ s\b", "n s", text).splitlines()


def test_lines_count_the_kernels_of_all_processes(script: str) -> None:
    """Each once, for however many types, and whichever processes compile it; the others are not counted."""
    done = piped(script, *SERVICES)
    assert (done.returncode, done.stderr) == (0, "")
    lines = without_seconds(done.stdout)
    counts = [line for line in lines[:-1] if "kernels" in line]
    assert counts == [f"  {count} of 4 kernels, n s" for count in range(1, 5)]
    assert {line for line in lines[:-1] if "kernels" not in line} == {f"  {name}: n s" for name in SERVICES}
    assert lines[-1] == "  4 of 4 kernels, 4 of them new, n s"


def test_the_second_service_is_compiled_next_to_the_first_and_the_third_after_it(script: str) -> None:
    """The first waits until the second has begun; the third fails if the first has not ended."""
    done = piped(script, "waiting", "companion", "later")
    assert (done.returncode, done.stderr) == (0, "")
    lines = without_seconds(done.stdout)
    assert sorted(lines[:-1]) == ["  companion: n s", "  later: n s", "  waiting: n s"]


def test_what_is_compiled_is_not_counted_again(script: str) -> None:
    """Nor is all counted that there is, where a service was left out."""
    assert without_seconds(piped(script, *SERVICES[:2]).stdout)[-1] == "  3 of 4 kernels, 3 of them new, n s"
    assert without_seconds(piped(script, *SERVICES).stdout)[-1] == "  4 of 4 kernels, 1 of them new, n s"
    again = without_seconds(piped(script, *SERVICES).stdout)
    assert sorted(again[:-1]) == [f"  {name}: n s" for name in SERVICES]
    assert again[-1] == "  4 of 4 kernels, 0 of them new, n s"


@pytest.mark.parametrize("size", ["narrow", "of no size"])
def test_the_bar_moves_and_names_the_kernel_that_is_compiled(script: str, size: str) -> None:
    forked = kernel_script()
    arguments = [*forked.arguments[1:], script, *SERVICES]
    ended = in_terminal(arguments, SIZES[size], stdout_too=True, pass_fds=(forked.descriptor,))
    assert ended.code == 0, ended.drawn
    assert ended.widest <= (SIZES[size][1] or 80)
    assert re.search(r"\r  4 of 4 kernels, 4 of them new, \d+ s\r\n$", ended.drawn)
    assert "first: " not in ended.drawn
    if size != "narrow":  # where the name is cut off
        shown = [bar for text in ended.drawn.split("\r") if (bar := BAR.match(text)) is not None]
        counts = [int(bar[3]) for bar in shown]
        assert counts == sorted(counts)
        assert set(counts) == {0, 1, 2, 3, 4}
        assert {bar[4] for bar in shown} == {"4"}
        assert [int(bar[1]) for bar in shown] == [25 * count for count in counts]
        assert [len(bar[2].rstrip()) for bar in shown] == [4 * count for count in counts]
        named = {name for bar in shown for name in re.findall(r"([\w.]+) \d+ s", bar[5] or "")}
        assert {"common.shared", "first.first", "second"} <= named
        kernels = {"common.shared", "common.not_kept", *(f"{name}.{name}" for name in SERVICES)}
        assert named <= kernels | set(SERVICES)


def test_a_process_that_is_killed_ends_it(script: str) -> None:
    """With what could not be compiled; nothing waits for it for ever."""
    done = piped(script, "first", "killed", "second")
    assert done.returncode == 1
    assert "the kernels of killed could not be compiled: its process failed or was killed" in done.stderr
