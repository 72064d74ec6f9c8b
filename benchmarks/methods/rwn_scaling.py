"""Scalable variants of RWN (section 10.3 of its paper) compared with the exact search: time and loss.

Time is measured on svcensus and on a synthetic table of a million rows, interleaved. The loss is measured on
svcensus, as mean and standard deviation over seeds: IL1 (`delta_rho`), IL2 of the first two components, IL3
with wage income as target, and PSCR (share of rows closest to their own released row), which is a risk.
"""

import os
import statistics
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from benchmarks.harness import in_turn, table
from benchmarks.methods.rwn import points_table, swap_work
from providers import PROVIDERS
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream

K = 5
ROWS, FIELDS = 1_000_000, 6
SEEDS = 5
_CODES: dict[str, Any] = {"categorical_fields": ["occ"]}  # codes that look like numbers


def _partition(parts: int, within: str, size: int = 0) -> dict[str, Any]:
    return {"neighbours": "partition", "parts": parts, "within": within, "sample_size": size}


def _sampled(neighbours: str, size: int) -> dict[str, Any]:
    return {"neighbours": neighbours, "sample_size": size}


CONTENDERS: dict[str, dict[str, Any]] = {
    "exact": {},
    **{
        f"{neighbours}, m = {size}": _sampled(neighbours, size)
        for size in (1000, 100)
        for neighbours in ("sample", "own_sample", "pairs")
    },
    "partition, u = 10": _partition(10, "exact"),
    **{
        f"partition, u = 10, within {within}, m = 100": _partition(10, within, 100)
        for within in ("sample", "own_sample", "pairs")
    },
}

_LONG = ("own_sample, m = 1000", "pairs, m = 1000")
"""Contenders without a run of a million rows, which would take 10**9 distances each."""


def _census() -> pa.Table | None:
    """Return svcensus with its categories unchanged; None if it is not available."""
    path = Path(os.environ.get("ROWVEIL_DATA", "../shared/data")) / "svcensus.csv"
    return pyarrow.csv.read_csv(path) if path.is_file() else None


def _lost(source: pa.Table, parameters: dict[str, Any]) -> list[str]:
    """Return mean and standard deviation of IL1, IL2 (two components), IL3 and PSCR over the seeds."""
    provider = PROVIDERS["RWN"]
    params = provider.check(provider.params.model_validate({"k": K, **_CODES, **parameters}), source.schema)
    options = MeasureOptions(
        categorical_fields=("occ",), target="wageinc",
        only=("delta_rho", "il2", "il3", "pscr"), sample=source.num_rows,
    )  # fmt: skip
    found: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        stream = provider.stream(seed.to_bytes(32, "big"))
        moved = provider.swap(source, params, stream, no_progress).table
        assessed = assess(
            Release(source, moved), options, Stream(bytes(32), "measures", 1), pictures=False
        ).measures
        values = {
            "IL1": assessed["delta_rho"]["value"]["mean"],
            "IL2, 1": assessed["il2"]["value"]["pc1"],
            "IL2, 2": assessed["il2"]["value"]["pc2"],
            "IL3": assessed["il3"]["value"],
            "PSCR": assessed["pscr"]["value"],
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return [f"{statistics.mean(values):.4f} ({statistics.stdev(values):.4f})" for values in found.values()]


def measure(rounds: int = 5) -> str:
    """Return both comparisons as Markdown."""
    parts = [f"### RWN: ways to scale up, k = {K}"]
    people = _census()
    if people is not None:
        timings = in_turn(
            {name: swap_work(people, k=K, **_CODES, **given) for name, given in CONTENDERS.items()}, rounds
        )
        lines = []
        for name, given in CONTENDERS.items():
            ratio = timings[name].ratio_to(timings["exact"])
            lines.append([name, f"{timings[name].median:.3f}", f"{ratio:.1f}", *_lost(people, given)])
            print(f"  RWN svcensus {name}: {ratio:.1f} times exact", flush=True)
        header = [f"svcensus, {people.num_rows:,} x {people.num_columns}", "s", "times exact"]
        parts.append(table([*header, "IL1", "IL2, PC1", "IL2, PC2", "IL3", "PSCR"], lines))
    large = points_table(ROWS, FIELDS)
    contenders = {name: given for name, given in CONTENDERS.items() if name not in _LONG}
    timings = in_turn({name: swap_work(large, k=K, **given) for name, given in contenders.items()}, rounds)
    lines = [
        [name, f"{timing.median:.2f}", f"{timing.ratio_to(timings['exact']):.2f}"]
        for name, timing in timings.items()
    ]
    parts.append(table([f"{ROWS:,} x {FIELDS}", "s", "times exact"], lines))
    return "\n\n".join(parts) + "\n"
