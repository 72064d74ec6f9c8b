"""Worker functions of these tests. A task carries no code, so it names one of these functions.

`swap_as_instructed` is given to `JobService` in place of `run_job` and does as the job's seed says, so
that a test can hold a real job at a known place, in a real worker, and let it go on. It waits by
opening a pipe, which returns when the test opens the other end.
"""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit, types

from app.engine.engine import Outcome
from app.engine.progress_file import ProgressFile
from app.worker.run_job import run_job
from app.worker.tasks import JobTask

HELD = (1).to_bytes(32, "big")
"""The seed of a job that waits for the gate, then runs."""
GREEDY = (2).to_bytes(32, "big")
"""The seed of a job that takes memory until it gets no more."""
BROKEN = (3).to_bytes(32, "big")
"""The seed of a job that fails as nobody foresaw, its message quoting a value."""

STAGE_HELD = "held"


def gate_of(home: Path, job_id: str) -> Path:
    """The pipe that a held job waits at."""
    return home / f"gate-{job_id}"


def gates_in(home: Path) -> list[Path]:
    """All pipes of jobs that are or were held."""
    return sorted(home.glob("gate-*"))


def swap_as_instructed(task: JobTask) -> Outcome:
    """`run_job`, with what the seed says before it."""
    if task.seed == HELD:
        gate = gate_of(Path(task.progress_path).parent.parent, task.job_id)
        with contextlib.suppress(FileExistsError):  # made by an attempt before
            os.mkfifo(gate)
        with ProgressFile(task.progress_path) as progress:
            progress(0.01, STAGE_HELD)
            wait_at(str(gate))
    elif task.seed == GREEDY:
        take_memory("arrow")
    elif task.seed == BROKEN:
        raise ValueError("the income 98765.4321 of Ada cannot be read")
    return run_job(task)


def who(_: Any) -> dict[str, Any]:
    """The worker's process id."""
    return {"pid": os.getpid()}


def wait_at(gate: str) -> dict[str, Any]:
    """Return when somebody opens the pipe for writing and closes it."""
    with Path(gate).open("rb") as pipe:
        pipe.read()
    return {"pid": os.getpid()}


def signal_and_wait(pipes: tuple[str, str]) -> dict[str, Any]:
    """Send the process id through the first pipe, then wait at the second."""
    _signal(pipes[0])
    return wait_at(pipes[1])


def signal_and_compute(pipe: str) -> dict[str, Any]:
    """Send the process id, then compute without end, never returning to Python."""
    _endless.compile((types.int64,))
    _signal(pipe)
    return {"never": _endless(1)}


def _signal(pipe: str) -> None:
    with Path(pipe).open("w") as started:
        started.write(str(os.getpid()))


def report_until_stopped(task: tuple[str, str]) -> dict[str, Any]:
    """Send the process id through the pipe, then report progress without end."""
    started, progress_path = task
    _signal(started)
    with ProgressFile(progress_path) as progress:
        while True:
            progress(0.5, "working")
            time.sleep(0.001)


@njit  # type: ignore[untyped-decorator]
def _endless(step: int) -> int:
    total = 1
    while total != 0:
        total = (total + 2 * step) | 1
    return total


def take_memory(how: str) -> dict[str, Any]:
    """Take memory of one kind until there is no more."""
    taken: Any = []
    match how:
        case "python":
            while True:
                taken.append(bytearray(1_000_000))
        case "numpy":
            while True:
                taken.append(np.ones(10_000_000))
        case _:
            taken = pa.array(np.ones(1000))
            while True:
                taken = pa.concat_arrays([taken, taken])


def take_half(rounds: int) -> dict[str, Any]:
    """Take half of 256 MiB in pieces of 16 MiB, next to small ones that stay between them, and free it.

    The last round fails with all of it in a cycle.
    """
    from app.engine.data_limit import private_bytes

    for left in reversed(range(rounds)):
        cycle: list[Any] = [[np.ones(1 << 21), bytes(100_000)] for _ in range(8)]
        cycle.append(cycle)
        if not left:
            raise ValueError("enough")
        cycle.clear()
    return {"private": private_bytes()}


def end_by(name: str) -> dict[str, Any]:
    """End this process by a signal."""
    os.kill(os.getpid(), getattr(signal, name))
    return {}


def fail(message: str) -> dict[str, Any]:
    """Fail as nobody foresaw."""
    raise ValueError(message)


def give_back(sent: bytes) -> dict[str, Any]:
    """Return what was sent."""
    return {"back": sent}


def give_a_lock(_: Any) -> dict[str, Any]:
    """Return what no pickle can hold."""
    return {"lock": threading.Lock()}
