"""Start: two commands from an empty home and empty caches, then what an installed service takes to start.

Each figure is of whole processes. Wall time depends on what else the machine does; the processor time of a
command and of all its children is given next to it.
"""

import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx

from benchmarks.harness import table
from benchmarks.http.server import free_port
from demo.people import SEED, TYPES, people
from demo.service import own_key

ROOT = Path(__file__).parents[1]
PATIENCE = 3600.0
WORKERS = 2
_LOOK_SECONDS = 0.005
_SETTLE_SECONDS = 3.0
_OWN = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
"""Variables that would lead a fresh start to existing caches, or to this checkout."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value with its goal."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    processor: float | None = None
    """Processor seconds, of all processes involved."""

    def cells(self) -> list[str]:
        """Return the cells of its row."""
        verdict = "" if self.goal is None else "met" if self.value <= self.goal else "MISSED"
        goal = "-" if self.goal is None else f"{self.goal:g}"
        processor = "-" if self.processor is None else f"{self.processor:.2f}"
        return [self.name, f"{self.value:.2f}", self.unit, goal, verdict, processor]


def measure(rounds: int) -> str:
    """Return the table of all figures; each of a warm start is the median of `rounds` starts."""
    figures = [*_fresh(), *_warm(rounds)]
    load = os.getloadavg()[1]
    head = f"## Start, {os.cpu_count()} cores, load average {load:.1f} at the end\n"
    header = ["", "measured", "unit", "goal", "", "processor s"]
    return head + table(header, [figure.cells() for figure in figures])


def _fresh() -> Iterator[Figure]:
    """Measure both commands of a fresh clone, and the compilation of all kernels."""
    with tempfile.TemporaryDirectory(prefix="rowveil-start-") as name:
        folder = Path(name)
        with _clone(folder / "demo") as (checkout, environment):
            lines = _Lines(["make", "demo"], checkout, environment)
            first = lines.until(lambda line: line.startswith("DSWAP:"))
            lines.to_end()
            yield Figure("make demo: first service", first, "s")
            yield Figure("make demo: last line", lines.seconds, "s", 120, lines.processor)
        with _clone(folder / "serve") as (checkout, environment):
            lines = _Lines(["make", "serve"], checkout, environment | {"ROWVEIL_PORT": str(free_port())})
            ready = lines.until(lambda line: line.startswith("Rowveil is ready"))
            lines.stop()
            yield Figure("make serve: ready", ready, "s", 90, lines.processor)
        cache = folder / "kernels"
        lines = _Lines(
            [sys.executable, "-m", "providers.warm"],
            ROOT,
            _environment(folder) | {"XDG_CACHE_HOME": str(cache)},
        )
        lines.to_end()
        yield Figure("compile all kernels", lines.seconds, "s", 50, lines.processor)


def _warm(rounds: int) -> Iterator[Figure]:
    """Measure the starts of an installed service whose kernels are compiled."""
    subprocess.run([sys.executable, "-m", "providers.warm"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    helps = []
    for _ in range(rounds):
        lines = _Lines([sys.executable, "-m", "app", "--help"], ROOT, os.environ)
        lines.to_end()
        helps.append((lines.seconds, lines.processor))
    yield _median("rowveil --help", helps, 0.5)
    starts = [_Start.measured() for _ in range(rounds)]
    yield _median("/livez answers", [(each.live, each.live_processor) for each in starts], 1.5)
    yield _median(
        f"/readyz is 200, {WORKERS} workers", [(each.ready, each.ready_processor) for each in starts], 3
    )
    yield _median("first job, from its turn to its end", [(each.first_job, None) for each in starts], 0.3)
    yield _median("second job", [(each.second_job, None) for each in starts])
    for name, goal in (("service", 150), ("fork server", None), ("worker", 150)):
        for kind in ("RSS", "PSS"):
            megabytes = statistics.median(each.memory[name, kind] for each in starts)
            yield Figure(f"idle {name}, {kind}", megabytes, "MB", goal if kind == "RSS" else None)
    total = statistics.median(each.memory["all", "PSS"] for each in starts)
    yield Figure("idle, all processes together, PSS", total, "MB")


def _median(name: str, taken: Sequence[tuple[float, float | None]], goal: float | None = None) -> Figure:
    processor = [seconds for _, seconds in taken if seconds is not None]
    return Figure(
        name,
        statistics.median(seconds for seconds, _ in taken),
        "s",
        goal,
        statistics.median(processor) if processor else None,
    )


@contextmanager
def _clone(checkout: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Clone this repository as it is committed, with an empty home next to it."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)  # noqa: S607 - of the path
    home = checkout.with_name(f"{checkout.name}-home")
    home.mkdir()
    yield checkout, _environment(home)
    shutil.rmtree(checkout)
    shutil.rmtree(home)


def _environment(home: Path) -> dict[str, str]:
    """Return this process's environment with an empty home and empty caches; the package index stays."""
    kept = {name: value for name, value in os.environ.items() if name not in _OWN}
    own = {name: value for name, value in kept.items() if not name.startswith(("ROWVEIL_", "NUMBA_"))}
    return own | {"HOME": str(home), "UV_CACHE_DIR": str(home / "uv"), "PIP_NO_CACHE_DIR": "1"}


class _Lines:
    """A command whose output is read line by line, with the time since its start."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._before = _children_processor()
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.seconds = self.processor = 0.0

    def until(self, is_wanted: Callable[[str], bool]) -> float:
        """Return the seconds until a line; raises RuntimeError if the command ends before it."""
        assert self._process.stdout is not None  # noqa: S101 - it was requested as a pipe
        read = []
        for line in self._process.stdout:
            read.append(line)
            if is_wanted(line):
                return time.perf_counter() - self._started
        raise RuntimeError(f"the command ended early: {''.join(read[-20:])}")

    def to_end(self) -> None:
        """Wait for the end of the command, which must succeed."""
        assert self._process.stdout is not None  # noqa: S101 - it was requested as a pipe
        read = self._process.stdout.readlines()
        if self._process.wait(PATIENCE):
            raise RuntimeError(f"the command failed: {''.join(read[-20:])}")
        self._end()

    def stop(self) -> None:
        """Stop the command as Ctrl-C in a terminal does."""
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.communicate(timeout=PATIENCE)
        self._end()

    def _end(self) -> None:
        self.seconds = time.perf_counter() - self._started
        self.processor = _children_processor() - self._before


def _children_processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True, slots=True)
class _Start:
    """One start of the service."""

    live: float
    live_processor: float
    ready: float
    ready_processor: float
    first_job: float
    second_job: float
    memory: Mapping[tuple[str, str], float]
    """Megabytes by process (``service``, ``fork server``, ``worker`` the largest one, ``all``) and kind."""

    @classmethod
    def measured(cls) -> "_Start":
        with tempfile.TemporaryDirectory(prefix="rowveil-start-") as name:
            home, port = Path(name), free_port()
            key = own_key(home)
            given = {"home": name, "port": str(port), "workers": str(WORKERS), "auth": "on"}
            environment = os.environ | {f"ROWVEIL_{name.upper()}": value for name, value in given.items()}
            started = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
            )
            address = f"http://127.0.0.1:{port}"
            try:
                with httpx.Client(base_url=address, headers={"authorization": f"Bearer {key}"}) as client:
                    _poll(client, "/livez", process)
                    live, live_processor = time.perf_counter() - started, _processor_of(process.pid)
                    _poll(client, "/readyz", process)
                    ready, ready_processor = time.perf_counter() - started, _processor_of(process.pid)
                    time.sleep(_SETTLE_SECONDS)
                    memory = _memory(process.pid)
                    jobs = [_job_seconds(client) for _ in range(2)]
            finally:
                process.terminate()
                process.wait(PATIENCE)
        return cls(live, live_processor, ready, ready_processor, jobs[0], jobs[1], memory)


def _poll(client: httpx.Client, path: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.perf_counter() + PATIENCE
    while time.perf_counter() < deadline:
        try:
            if client.get(path).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            if process.poll() is not None:
                raise RuntimeError("the service ended early") from None
        time.sleep(_LOOK_SECONDS)
    raise RuntimeError(f"{path} did not become ready")


def _job_seconds(client: httpx.Client) -> float:
    """Return the seconds that a small job takes from its turn to its recorded end."""
    body = {
        "source": {"rows": people(), "fields": TYPES},
        "parameters": {"swap_fields": ["income"], "control_field": "town"},
        "seed": f"{SEED:x}",
    }
    response = client.post(
        "/v1/services/CDSWAP", content=json.dumps(body), headers={"prefer": "wait=60"}, timeout=PATIENCE
    )
    job = response.raise_for_status().json()
    started, finished = (datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at"))
    return (finished - started).total_seconds()


def _children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _tree(process: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [process]
    for parent in found:
        found += _children(parent)
    return found


def _processor_of(process: int) -> float:
    """Return the processor seconds of a process and of its descendants, ended ones included."""
    ticks = 0
    for each in _tree(process):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory(process: int) -> dict[tuple[str, str], float]:
    """Return the memory of the processes; the child that has children is the fork server of the workers."""
    service, everything = _smaps(process), sum(_smaps(each)["Pss"] for each in _tree(process))
    (server,) = (child for child in _children(process) if _children(child))
    worker = max((_smaps(each) for each in _children(server)), key=lambda each: each["Rss"])
    named = {"service": service, "fork server": _smaps(server), "worker": worker}
    found = {(name, kind.upper()): each[kind] for name, each in named.items() for kind in ("Rss", "Pss")}
    return found | {("all", "PSS"): everything}


def _smaps(process: int) -> dict[str, float]:
    """Return resident and proportional memory in megabytes."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    found = dict(line.split()[:2] for line in lines[1:])
    return {name: int(found[f"{name}:"]) * 1024 / 10**6 for name in ("Rss", "Pss")}
