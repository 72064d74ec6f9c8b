"""``python -m benchmarks``: everything, in one run; the result also goes to var/benchmarks.md."""

import argparse
import platform
from pathlib import Path

import numba
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from benchmarks import http, kernels, memory, mews

RESULT = Path("var/benchmarks.md")


def main() -> None:
    """Measure, print, and keep the result."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-http", action="store_true")
    given = parser.parse_args()
    parts = [
        f"{platform.machine()}, {numba.get_num_threads()} threads, Python {platform.python_version()}, "
        f"polars {pl.__version__}, numpy {np.__version__}, pandas {pd.__version__}, "
        f"pyarrow {pa.__version__}, numba {numba.__version__}. "
        "Medians of rounds taken in turn; a ratio is the median over rounds of ours by theirs.\n"
    ]
    for rows in given.rows:
        print(f"{rows:,} rows ...", flush=True)
        parts.append(kernels.measure(rows, given.rounds))
        parts.append(mews.measure(rows, given.rounds))
    parts.append(memory.measure(max(given.rows)))
    if not given.skip_http:
        print("HTTP ...", flush=True)
        parts.append(http.measure(2 * given.rounds))
    text = "\n".join(parts)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(text)
    print(f"\n{text}\nwritten to {RESULT}")


if __name__ == "__main__":
    main()
