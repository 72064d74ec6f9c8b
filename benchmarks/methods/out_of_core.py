"""Complete worker task on a table in a sealed blob: in memory, and with a memory budget below its size.

Each task runs in a process of its own, which gets the task on standard input. Measured are the time from
source blob to destination blob, and the peak memory of the process above its initial value.
"""

import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from app.engine.data_limit import limit_memory
from app.engine.engine import Failure
from app.engine.progress_file import make_progress_file
from app.formats.media_types import ARROW_STREAM
from app.store.blobs.sealed_files import BlobAccess, BlobStore, SealedWriter
from app.store.crypto.sealing import Sealer
from app.worker.run_ingest import run_ingest
from app.worker.run_swap import run_swap
from app.worker.tasks import IngestTask, SwapTask
from benchmarks.harness import table
from benchmarks.methods.kernels import SEED, people_table
from providers import PROVIDERS

FIELDS = ("a", "b", "class10000", "age")
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "DSWAP unlocked": ("DSWAP", {"swap_fields": ["a", "b"]}),
    "DSWAP three of four fields, locked": ("DSWAP", {"swap_fields": list(FIELDS[:3]), "locked": True}),
    "CDSWAP 10000 classes": ("CDSWAP", {"swap_fields": ["a", "b"], "control_field": "class10000"}),
    "DDSWAP blocks of 10": ("DDSWAP", {"swap_fields": ["a", "b"], "control_field": "age", "block_size": 10}),
    "MEWS 10 cells a field": ("MEWS", {"swap_fields": ["a", "b"], "bins": 10}),
    "RWN k = 10": ("RWN", {"k": 10, "distance_fields": ["a", "b"], "perturb_fields": ["a", "b"]}),
    "PABIDOT 4 fields": ("PABIDOT", {}),
}
JOBS = ("DSWAP unlocked", "CDSWAP 10000 classes", "DDSWAP blocks of 10")
"""Cases of which two fields of four are swapped."""
PLENTY = 8 * 10**9
LITTLE = 200 * 10**6
GOAL = 4.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of one task."""

    seconds: float
    peak: int
    """Peak memory in bytes above the initial value of the process."""
    digest: str


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def _uploaded(store: BlobStore, source: pa.Table) -> BlobAccess:
    """Store the table as the worker of an upload does, with the digests of its fields."""
    raw, access = store.allocate(), store.allocate()
    with SealedWriter(raw, durable=False) as sink, pa.ipc.new_stream(sink, source.schema) as writer:
        writer.write_table(source)
    stored = run_ingest(IngestTask(raw, ARROW_STREAM, {}, access, 2**40))
    if isinstance(stored, Failure):
        raise RuntimeError(stored.message)
    store.delete(raw.id)
    return access


def _task(store: BlobStore, folder: Path, source: pa.Table, case: str, memory: int) -> SwapTask:
    service, parameters = CASES[case]
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), source.schema)
    access = _uploaded(store, source)
    progress = folder / "progress" / access.id
    make_progress_file(progress)
    return SwapTask(
        job_id=access.id,
        service=service,
        revision=provider.revision,
        parameters=params.model_dump(mode="json", by_alias=True),
        seed=SEED,
        seed_bits=256,
        source=access,
        destination=store.allocate(),
        rows=source.num_rows,
        report="summary",
        options={},
        progress_path=str(progress),
        memory_bytes=memory,
        scratch_folder=str(folder / "scratch"),
    )


def _in_a_process(tasks: list[SwapTask]) -> Measured:
    """Run tasks in a new process; measure the last one, the others load compiled code."""
    command = [sys.executable, "-m", "benchmarks.methods.out_of_core"]
    done = subprocess.run(command, input=pickle.dumps(tasks), capture_output=True, check=True)
    return Measured(*orjson.loads(done.stdout))


def _work(tasks: list[SwapTask]) -> Measured:
    pa.set_memory_pool(pa.system_memory_pool())  # as a worker does
    for task in tasks[:-1]:
        run_swap(task)
    task = tasks[-1]
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status_bytes("VmRSS")
    limit_memory(task.memory_bytes)
    started = time.perf_counter()
    outcome = run_swap(task)
    seconds = time.perf_counter() - started
    if isinstance(outcome, Failure):
        raise RuntimeError(f"{outcome.message} {outcome.trace}")
    return Measured(seconds, _status_bytes("VmHWM") - before, outcome["destination"]["digest"])


def measure(rows: int, rounds: int) -> str:
    """Return the comparison as Markdown."""
    lines = []
    source = people_table(rows).select(FIELDS)
    small = source.slice(0, min(rows, 70_000)).combine_chunks()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = BlobStore(folder / "blobs", Sealer([bytes(32)]))
        for case in CASES:
            pairs = []
            tasks = {memory: _task(store, folder, source, case, memory) for memory in (PLENTY, LITTLE)}
            first = [_task(store, folder, small, case, memory) for memory in (PLENTY, 2 * 10**6)]
            for _ in range(rounds):
                pair = []
                for task in tasks.values():
                    again = [replace(each, destination=store.allocate()) for each in (*first, task)]
                    pair.append(_in_a_process(again))
                    for each in again:
                        store.delete(each.destination.id)
                pairs.append(pair)
                assert pair[0].digest == pair[1].digest, case  # noqa: S101 - otherwise the comparison would be meaningless
            for task in (*tasks.values(), *first):
                store.delete(task.source.id)
            inside, outside = (statistics.median(pair[which].seconds for pair in pairs) for which in (0, 1))
            ratio = statistics.median(pair[1].seconds / pair[0].seconds for pair in pairs)
            peaks = [max(pair[which].peak for pair in pairs) / 10**6 for which in (0, 1)]
            figures = [
                f"{inside:.2f}",
                f"{peaks[0]:.0f}",
                f"{outside:.2f}",
                f"{peaks[1]:.0f}",
                f"{ratio:.2f}",
            ]
            lines.append([case, *figures, "met" if ratio <= GOAL else "MISSED"])
    header = [
        f"{rows:,} x 4 ({source.nbytes / 10**6:.0f} MB)", "in memory s", "peak MB",
        f"within {LITTLE / 10**6:.0f} MB s", "peak MB", "ratio", f"goal {GOAL:g}",
    ]  # fmt: skip
    return table(header, lines) + "\n"


@dataclass(frozen=True, slots=True)
class Spent:
    """Wall and processor seconds of a job and of its kernel."""

    job: float
    job_processor: float
    kernel: float
    kernel_processor: float


def _spent(task: SwapTask, source: pa.Table) -> Spent:
    """Run the job and, on the fields that it reads, its kernel alone."""
    provider = PROVIDERS[task.service]
    params = provider.params.model_validate(task.parameters)
    read = provider.scaling.reads(params, source.schema)
    fields = source.select([name for name in source.column_names if name in read])

    def kernel() -> None:
        provider.swap(fields, params, provider.stream(task.seed), lambda *_: None)

    spent: list[float] = []
    for work in (lambda: run_swap(task), kernel):
        started, processor = time.perf_counter(), time.process_time()
        work()
        spent += [time.perf_counter() - started, time.process_time() - processor]
    return Spent(*spent)


def measure_jobs(rows: int, rounds: int) -> str:
    """Return the times of whole jobs in memory by those of their kernels, as Markdown."""
    source = people_table(rows).select(FIELDS).combine_chunks()
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = BlobStore(folder / "blobs", Sealer([bytes(32)]))
        for case in JOBS:
            task = _task(store, folder, source, case, PLENTY)
            found = []
            for _ in range(rounds + 1):  # the first round compiles
                again = replace(task, destination=store.allocate())
                found.append(_spent(again, source))
                store.delete(again.destination.id)
            del found[0]
            store.delete(task.source.id)
            figures = [statistics.median(values) for values in zip(*map(astuple, found), strict=True)]
            ratio = statistics.median(each.job / each.kernel for each in found)
            figures += [
                ratio,
                statistics.median(each.job_processor / each.kernel_processor for each in found),
            ]
            verdict = "met" if ratio <= GOAL else "MISSED"
            lines.append([case, *(f"{figure:.2f}" for figure in figures), verdict])
    header = [
        f"{rows:,} x 4 ({source.nbytes / 10**6:.0f} MB)", "job s", "processor s", "kernel s", "processor s",
        "ratio", "of processor s", f"goal {GOAL:g}",
    ]  # fmt: skip
    return table(header, lines) + "\n"


if __name__ == "__main__":
    tasks = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - written by our own process
    sys.stdout.buffer.write(orjson.dumps(astuple(_work(tasks))))
