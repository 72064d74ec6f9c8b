"""Memory and processor time of whole runs by rows, for docs/sizing.md: ``python -m benchmarks.sizing``.

Each run is a process of its own, ``rowveil run`` from a Parquet file to a Parquet file with the report
"summary". The figures of a run of 100 rows, which are those of the process itself, are subtracted.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import table

_SWAPPED = ["--swap-fields", "income,savings"]

_RUNS = {
    "DSWAP": _SWAPPED,
    "CDSWAP": [*_SWAPPED, "--control-field", "town"],
    "DDSWAP": [*_SWAPPED, "--control-field", "age", "--block-size", "20"],
    "MEWS": [*_SWAPPED, "--degree", "1000"],
    "MEDS": [*_SWAPPED, "--k", "20"],
    "RWN": ["--distance-fields", "income,savings,age", "--perturb-fields", "income,savings", "--k", "10"],
    "PABIDOT": ["--fields", "income,savings,age,hours"],
    "LOCALITY": ["--fields", "income,savings"],
}
"""Service -> its parameters on the table of `_people`."""

_ROWS = (10_000, 100_000, 1_000_000, 10_000_000)

_MOST = {"RWN": 1_000_000, "LOCALITY": 100_000, "MEDS": 1_000_000}
"""Largest number of rows of services that take long; no other has a limit."""


def _people(rows: int) -> pa.Table:
    """Return a table of five fields of 8 bytes a row."""
    draw = np.random.default_rng(7)
    return pa.table(
        {
            "age": draw.normal(45.0, 15.0, rows),
            "town": draw.integers(0, 500, rows),
            "hours": draw.normal(38.0, 8.0, rows),
            "income": draw.lognormal(10.0, 0.6, rows),
            "savings": draw.lognormal(9.0, 1.2, rows),
        }
    )


def _run(source: Path, service: str) -> tuple[float, float]:
    """Run the service in a process; return its peak memory in MB and its processor time in seconds."""
    target = source.with_suffix(f".{service}.parquet")
    command = [sys.executable, "-m", "app", "run", service, str(source), str(target), *_RUNS[service]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None  # noqa: S101 - it was requested as a pipe
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{service}: {said.decode()}")
    target.unlink()
    return used.ru_maxrss / 1000, used.ru_utime + used.ru_stime


def main() -> None:
    """Measure every service at every size, and print a table in Markdown."""
    figures: dict[str, dict[int, tuple[float, float]]] = {service: {} for service in _RUNS}
    with tempfile.TemporaryDirectory() as folder:
        for rows in (100, *_ROWS):
            source = Path(folder) / f"{rows}.parquet"
            pq.write_table(_people(rows), source)
            for service in _RUNS:
                if rows <= _MOST.get(service, rows):
                    figures[service][rows] = _run(source, service)
                    print(json.dumps([service, rows, figures[service][rows]]), file=sys.stderr)
    lines = []
    for service, measured in figures.items():
        own_memory, own_time = measured[100]
        cells = []
        for rows in _ROWS:
            memory, seconds = measured.get(rows, (0.0, 0.0))
            added = f"{max(0.0, memory - own_memory):.0f} MB, {max(0.0, seconds - own_time):.1f} s"
            cells.append(added if rows in measured else "")
        lines.append([service, *cells])
    print(table(["service", *(f"{rows:,} rows" for rows in _ROWS)], lines))


if __name__ == "__main__":
    main()
