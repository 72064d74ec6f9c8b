"""Run all benchmarks and write the result to var/benchmarks.md: ``python -m benchmarks``."""

import argparse
import platform
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from benchmarks import measures, start, waiting
from benchmarks.harness import BUSY, busy_processes
from benchmarks.http import audited_reads, buffers, calls, formats, large_table, processes, streams
from benchmarks.http.databases import DATABASES
from benchmarks.methods import (
    kernels,
    locality,
    meds,
    memory,
    mews,
    out_of_core,
    pabidot,
    rswap,
    rwn,
    rwn_scaling,
)
from benchmarks.scale import measure as scale

RESULT = Path("var/benchmarks.md")


def _swaps(given: argparse.Namespace) -> list[str]:
    parts = [kernels.measure(rows, given.rounds, given.cases) for rows in given.rows]
    return [*parts, memory.measure(max(given.rows), given.cases)]


SECTIONS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "swaps": _swaps,
    "mews": lambda given: [mews.measure(rows, given.rounds) for rows in given.rows],
    "meds": lambda given: [meds.measure(given.rounds)],
    "rwn": lambda given: [rwn.measure(given.rounds)],
    "rwn-scaling": lambda given: [rwn_scaling.measure(given.rounds)],
    "pabidot": lambda given: [pabidot.measure(given.rounds)],
    "locality": lambda given: [locality.measure(given.rounds)],
    "rswap": lambda given: [rswap.measure(given.rounds)],
    "out-of-core": lambda given: [out_of_core.measure(max(given.rows), min(2, given.rounds))],
    "jobs": lambda given: [out_of_core.measure_jobs(rows, given.rounds) for rows in given.rows],
    "http": lambda given: [formats.measure(2 * given.rounds), formats.measure_small(4)],
    "calls": lambda given: [calls.measure(given.rounds, database) for database in DATABASES],
    "processes": lambda given: [processes.measure(min(3, given.rounds))],
    "streams": lambda given: [streams.measure(min(3, given.rounds), database) for database in DATABASES],
    "http-large": lambda given: [large_table.measure(max(given.rows), given.rounds)],
    "buffers": lambda given: [buffers.measure(int(given.gigabytes * 10**9))],
    "measures": lambda given: [measures.measure(given.rounds)],
    "reads": lambda given: [audited_reads.measure(min(3, given.rounds))],
    "start": lambda given: [start.measure(given.rounds)],
    "scale": lambda given: [*scale.sections(max(given.rows), 10 * max(given.rows), 10**9)],
    "waiting": lambda given: [waiting.measure(min(3, given.rounds))],
}
"""Available benchmarks, in order of execution."""

_ALONE = ("waiting", "scale")
"""Sections without a second measurement: one makes its own busy processes, one takes hours."""


def main() -> None:
    """Run the benchmarks, print and store the result."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of the buffers that go up and down")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--cases", nargs="*", default=[""], help="swaps whose names hold one of these words")
    parser.add_argument(
        "--busy",
        type=int,
        nargs="*",
        default=[0, BUSY],
        help="busy processes next to each section",
    )
    given = parser.parse_args()
    parts = [
        f"{platform.machine()}, {numba.get_num_threads()} threads, Python {platform.python_version()}, "
        f"polars {pl.__version__}, numpy {np.__version__}, pandas {pd.__version__}, "
        f"pyarrow {pa.__version__}, numba {numba.__version__}. "
        "Medians of rounds taken in turn; a ratio is the median over rounds of ours by theirs.\n"
    ]
    for section, measure in SECTIONS.items():
        if section not in given.only:
            continue
        for busy in given.busy if section not in _ALONE else [0]:
            condition = f" next to {busy} busy processes" if busy else ""
            print(f"{section}{condition} ...", flush=True)
            with busy_processes(busy):
                measured = measure(given)
            parts += [f"\n# Section {section}{condition}\n", *measured]
            RESULT.parent.mkdir(parents=True, exist_ok=True)
            RESULT.write_text("\n".join(parts))
    print("\n".join(["", *parts, f"written to {RESULT}"]))


if __name__ == "__main__":
    main()
