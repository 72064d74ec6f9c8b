"""Peak memory of a swap, in a process of its own: ``python -m benchmarks.methods.memory ROWS CASE``."""

import ctypes
import gc
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import table
from benchmarks.methods.kernels import SWAPPED, cases, people_table, swap_work

CASES = (
    "DSWAP unlocked",
    "DSWAP locked",
    "CDSWAP 100 classes",
    "DDSWAP blocks of 10",
    "DDSWAP blocks of 100",
)
GOAL = 3.0

_WARM_ROWS = (1000, 200_000)
"""Rows of runs whose kernels include all of a larger table: large tables have kernels of their own."""


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def peak(rows: int, case_name: str) -> float:
    """Return peak memory of the fields and of all that the swap adds, relative to the fields' bytes.

    The kernels are loaded by runs before, since loading takes memory once in a process, whatever the rows.
    """
    for warm_rows in _WARM_ROWS:
        warm = people_table(warm_rows)
        case = {case.name: case for case in cases(warm)}[case_name]
        swap_work(warm, case.service, case.parameters)()
    del warm
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that the run could use again would not count
    source = people_table(rows)
    involved = [*SWAPPED, *([case.parameters["control_field"]] if "control_field" in case.parameters else [])]
    fields = int(sum(source[name].nbytes for name in involved))
    work = swap_work(source, case.service, case.parameters)
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status_bytes("VmRSS")
    result = work()
    added = _status_bytes("VmHWM") - before
    del result
    return (fields + added) / fields


def measure(rows: int, wanted: Sequence[str] = ("",)) -> str:
    """Return the peaks at one size as Markdown, for cases whose names contain one of `wanted`."""
    lines = []
    for name in CASES:
        if not any(word in name for word in wanted):
            continue
        command = [sys.executable, "-m", "benchmarks.methods.memory", str(rows), name]
        figure = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        lines.append([name, f"{figure:.2f}", f"{GOAL:g}", "met" if figure <= GOAL else "MISSED"])
    header = [f"peak memory, {rows:,} rows", "times the fields involved", "goal", ""]
    return table(header, lines) + "\n"


if __name__ == "__main__":
    print(peak(int(sys.argv[1]), sys.argv[2]))
