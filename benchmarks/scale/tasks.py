"""Steps of a job in worker processes of one thread, each measured: seconds, processor time, bytes, memory."""

import multiprocessing
import resource
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import pyarrow as pa

from app.capacity.costs import SINGLETONS
from app.engine.engine import Failure
from app.engine.progress_file import make_progress_file
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.worker.run_units import (
    DIVISION,
    PIECE_FILES,
    PIECES,
    PREPARED,
    PREPARES,
    SECTION,
    SECTIONS,
    UNIT,
    UNITS,
    WHOLE_PIECES,
    done_units,
    file_key,
    run_finish,
    run_gather,
    run_or_divide,
    run_piece,
    run_prepare,
    run_section,
    run_unit,
)
from app.worker.tasks import FinishTask, GatherTask, PieceTask, PrepareTask, SectionTask, SwapTask, UnitTask
from benchmarks.methods import rswap
from benchmarks.methods.kernels import SEED
from benchmarks.scale.source import StoredSource
from providers import PROVIDERS
from providers.params import Params

CASES: dict[str, dict[str, Any]] = {
    "DSWAP": {"swap_fields": ["a", "b"]},
    "CDSWAP": {"swap_fields": ["a", "b"], "control_field": "class10000"},
    "DDSWAP": {"swap_fields": ["a", "b"], "control_field": "age", "block_size": 10},
    "MEWS": {"swap_fields": ["a", "b"], "bins": 10},
    "MEDS": {"swap_fields": ["a", "b"], "k": 20, "method": "partitioned"},
    "RWN": {"k": 10, "distance_fields": ["a", "b"], "perturb_fields": ["a", "b"]},
    "PABIDOT": {},
    "LOCALITY": {"fields": ["age"]},
    "RSWAP": rswap.PARAMETERS,
}
"""Parameters of each service on the table of `benchmarks.scale.source`."""

_ROWS_OF_A_PART = 2_000
"""Rows of a part of MEDS: a part takes more than proportionally longer with its rows."""

PLENTY = 10**11
"""Memory budget under which every job runs in memory."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one task."""

    began: float
    ended: float
    """Monotonic seconds, comparable between the processes of a machine."""
    processor: float
    read: int
    written: int
    peak: int
    """Peak resident bytes above those at the beginning."""

    @property
    def seconds(self) -> float:
        """Elapsed seconds."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one job."""

    rows: float
    """Rows of `ROW_BYTES` bytes that take as much as the table."""
    units: int
    steps: dict[str, list[Figures]]
    """Figures of the tasks of each step."""
    seconds: float
    """Elapsed seconds from the start of the first task to the end of the last one."""
    digest: str


def _prepare() -> None:
    pa.set_memory_pool(pa.system_memory_pool())  # as a worker does
    pa.set_cpu_count(1)
    numba.set_num_threads(1)


def _io() -> tuple[int, int]:
    text = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    found = dict(line.split(": ") for line in text)
    return int(found["rchar"]), int(found["wchar"])


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def _measured(function: Callable[[Any], Any], task: Any) -> tuple[dict[str, Any], Figures]:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the high-water mark
    resident, (read, written) = _resident("VmRSS"), _io()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    outcome = function(task)
    ended = time.monotonic()
    after, (read_after, written_after) = resource.getrusage(resource.RUSAGE_SELF), _io()
    if isinstance(outcome, Failure):
        raise RuntimeError(f"{outcome.message} {outcome.trace}")
    processor = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    figures = Figures(
        began, ended, processor, read_after - read, written_after - written, _resident("VmHWM") - resident
    )
    return outcome, figures


class Workers:
    """Processes of one thread each, which run the steps of jobs on one table."""

    def __init__(self, number: int, folder: Path, store: BlobStore) -> None:
        self._number = number
        self._folder = folder
        self._store = store
        spawn = multiprocessing.get_context("spawn")
        # A pool for each: one of all would give a second task to a worker while another one still starts.
        self._pools = [ProcessPoolExecutor(1, spawn, _prepare) for _ in range(number)]

    def _start(
        self, function: Callable[[Any], Any], task: Any, worker: int = 0
    ) -> Future[tuple[dict[str, Any], Figures]]:
        """Start a task on a worker: the first one has all tasks that a job has once."""
        return self._pools[worker].submit(_measured, function, task)

    def run(self, service: str, source: StoredSource, memory: int, units: int) -> Measured:
        """Run a job and delete its destination.

        Parameters
        ----------
        service, source
            Service, which gets the parameters of `CASES`, and its table.
        memory
            Memory budget of a task in bytes.
        units
            Most units; 1: the job is not divided.

        Raises RuntimeError if a step fails.
        """
        job = self._task(service, source, memory, units)
        began = time.monotonic()
        outcome, first = self._start(run_or_divide, job).result()
        if DIVISION not in outcome:
            steps = {"whole": [first]}
        else:
            steps = {"divide": [first]}
            outcome = self._divided(job, outcome, steps)
        seconds = time.monotonic() - began
        self._store.delete(job.destination.id)
        shutil.rmtree(job.spool_folder, ignore_errors=True)
        number = len(steps.get("unit", [first]))
        return Measured(source.reference_rows, number, steps, seconds, outcome["destination"]["digest"])

    def run_together(self, service: str, source: StoredSource, memory: int) -> float:
        """Run a whole job on each worker, all at the same time; return the seconds until all have ended.

        Parameters are those of `run`. Raises RuntimeError if a job fails.
        """
        jobs = [self._task(service, source, memory, 1) for _ in range(self._number)]
        began = time.monotonic()
        waiting = [self._start(run_or_divide, job, worker) for worker, job in enumerate(jobs)]
        for each in waiting:
            each.result()
        seconds = time.monotonic() - began
        for job in jobs:
            self._store.delete(job.destination.id)
        return seconds

    def _divided(
        self, job: SwapTask, outcome: dict[str, Any], steps: dict[str, list[Figures]]
    ) -> dict[str, Any]:
        division = outcome[DIVISION]
        job.spool_folder.mkdir(parents=True, exist_ok=True)
        prepared, number = None, outcome[PIECES]
        if outcome[PREPARES]:
            made, figures = self._start(run_prepare, PrepareTask(job, division)).result()
            prepared, number, steps["prepare"] = made[PREPARED], made[PIECES], [figures]
        pieces: list[dict[str, Any]] = []
        if number:
            tasks = [PieceTask(job, division, prepared, each) for each in range(number)]
            pieces = self._each("piece", run_piece, tasks, steps)
            if outcome[WHOLE_PIECES]:
                each, first = steps.pop("piece"), outcome[WHOLE_PIECES]
                steps |= {SINGLETONS: each[:first], "piece": each[first:]}
        own = [file_key(each if outcome[PIECE_FILES] > 1 else 0) for each in range(outcome[UNITS])]
        unit_tasks = [
            UnitTask(job, division, prepared, each, pieces=tuple(piece[own[each]] for piece in pieces))
            for each in range(outcome[UNITS])
        ]
        units = self._each("unit", run_unit, unit_tasks, steps)
        if len(outcome[SECTIONS]) == 1:
            gather = GatherTask(job, division, prepared, done_units(units, None))
            gathered, figures = self._start(run_gather, gather).result()
            steps["gather"] = [figures]
            return gathered
        section_tasks = [
            SectionTask(job, division, done_units(units, files), number)
            for number, files in enumerate(outcome[SECTIONS])
        ]
        sections = self._each("section", run_section, section_tasks, steps)
        finish = FinishTask(
            job,
            division,
            prepared,
            tuple(unit[UNIT] for unit in units),
            tuple(section[SECTION] for section in sections),
        )
        finished, figures = self._start(run_finish, finish).result()
        steps["finish"] = [figures]
        return finished

    def _each(
        self,
        name: str,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        steps: dict[str, list[Figures]],
    ) -> list[dict[str, Any]]:
        """Run the tasks of a step side by side. Return their outcomes, and note their figures.

        A worker takes the next task when it is free.
        """
        waiting: dict[Future[tuple[dict[str, Any], Figures]], tuple[int, int]] = {}
        done: dict[int, tuple[dict[str, Any], Figures]] = {}
        free = list(range(self._number))
        for number, task in enumerate(tasks):
            if not free:
                free += self._wait(waiting, done)
            worker = free.pop(0)
            waiting[self._start(function, task, worker)] = worker, number
        while waiting:
            self._wait(waiting, done)
        steps[name] = [done[number][1] for number in range(len(tasks))]
        return [done[number][0] for number in range(len(tasks))]

    @staticmethod
    def _wait(
        waiting: dict[Future[tuple[dict[str, Any], Figures]], tuple[int, int]],
        done: dict[int, tuple[dict[str, Any], Figures]],
    ) -> list[int]:
        """Move the tasks that have ended from ``waiting`` to ``done``; return their workers."""
        ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
        workers = []
        for future in ended:
            worker, number = waiting.pop(future)
            done[number] = future.result()
            workers.append(worker)
        return workers

    def _task(self, service: str, source: StoredSource, memory: int, units: int) -> SwapTask:
        provider, params = PROVIDERS[service], checked(service, source.schema, source.rows)
        name = secrets.token_hex(16)
        progress = self._folder / "progress" / name
        make_progress_file(progress)
        return SwapTask(
            job_id=name,
            service=service,
            revision=provider.revision,
            parameters=params.model_dump(mode="json", by_alias=True),
            seed=SEED,
            seed_bits=256,
            source=source.access,
            destination=self._store.allocate(),
            rows=source.rows,
            report="summary",
            options={},
            progress_path=str(progress),
            memory_bytes=memory,
            scratch_folder=str(self._folder / "scratch"),
            units=units,
        )

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown()


def checked(service: str, schema: pa.Schema, rows: int) -> Params:
    """Return the checked parameters of the service's case for a table of ``rows`` rows."""
    provider = PROVIDERS[service]
    more = {"parts": max(2, rows // _ROWS_OF_A_PART)} if service == "MEDS" else {}
    params: Params = provider.check(provider.params.model_validate(CASES[service] | more), schema)
    return params


@contextmanager
def store() -> Iterator[tuple[Path, BlobStore]]:
    """Yield a temporary folder and a store of sealed blobs in it."""
    with tempfile.TemporaryDirectory(prefix="rowveil-scale-") as name:
        folder = Path(name)
        yield folder, BlobStore(folder / "blobs", Sealer([bytes(32)]))
