"""LOCALITY compared with a plain walk: same relations, compiled by numba, without use of their structure.

The plain walk is the paper's: starts at the data, Gaussian directions, one constraint per relation, and every
constraint's value and rate recomputed at each step. It uses numpy's generator, and does not prune, centre,
repair or verify. Both take 4000 steps per segment. The plain walk is timed on a sample of the segments,
interleaved with the provider on the same sample; then the provider runs once on the whole table. Steps per
second include all work on a segment.
"""

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import get_num_threads, njit, prange

from benchmarks.harness import in_turn, table
from benchmarks.methods.kernels import SEED
from providers import PROVIDERS
from providers.progress import no_progress

ROWS, FIELDS, SIZE, STEPS = 75_000, 3, 100, 4000
GOAL = 10.0
PART = {0.1: 40, 1.0: 20}
"""Number of segments of a field on which both are timed."""


def numbers_table(rows: int) -> pa.Table:
    """Create skewed numbers without duplicates, such as incomes."""
    random = np.random.default_rng(9)
    return pa.table({f"v{at}": np.exp(random.normal(size=rows)) for at in range(FIELDS)})


def work(source: pa.Table, sigma: float) -> Any:
    """Run the provider completely, including its report."""
    provider = PROVIDERS["LOCALITY"]
    parameters = {
        "fields": source.column_names,
        "segment_size": SIZE,
        "sigma": sigma,
        "iterations": {"total": STEPS},
    }
    params = provider.check(provider.params.model_validate(parameters), source.schema)
    stream = provider.stream(SEED)
    return lambda: provider.swap(source, params, stream, no_progress)


@njit(cache=True)
def _relations(values: Any, sigma: float, rows: Any) -> Any:
    """Collect a part of the relations, without pruning; return their number."""
    n, written = len(values), 0
    for j in range(1, n - 1):
        for i in range(j):
            k = j
            while k + 1 < n and values[k + 1] - values[j] < values[j] - values[i]:
                k += 1
            for sense, other in ((-1, k if k > j else n), (1, k + 1)):
                if other < n and np.random.random() < sigma:
                    rows[0, written], rows[1, written], rows[2, written] = i, j, other
                    rows[3, written] = sense
                    written += 1
    return written


@njit(cache=True, parallel=True)
def plain_walks(values: Any, sigma: float, steps: int) -> Any:
    """Walk as in the paper through each row of `values` (segments, sorted), bounds 0 and 1."""
    out = values.copy()
    for segment in prange(len(values)):
        x = out[segment]
        n = len(x)
        rows = np.empty((4, n * n), np.int32)
        written = _relations(x, sigma, rows)
        direction = np.empty(n)
        for _ in range(steps):
            for at in range(n):
                direction[at] = np.random.normal()
            ahead = np.inf
            for at in range(written):
                i, j, k, sense = rows[0, at], rows[1, at], rows[2, at], rows[3, at]
                slack = sense * (x[i] + x[k] - 2.0 * x[j])
                rate = sense * (direction[i] + direction[k] - 2.0 * direction[j])
                if rate < 0.0:
                    ahead = min(ahead, slack / -rate)
            for at in range(n - 1):
                rate = direction[at + 1] - direction[at]
                if rate < 0.0:
                    ahead = min(ahead, (x[at + 1] - x[at]) / -rate)
            if direction[0] < 0.0:
                ahead = min(ahead, x[0] / -direction[0])
            if direction[n - 1] > 0.0:
                ahead = min(ahead, (1.0 - x[n - 1]) / direction[n - 1])
            step = max(ahead, 0.0) * np.random.random()
            for at in range(n):
                x[at] += step * direction[at]
    return out


def _sorted_segments(source: pa.Table) -> npt.NDArray[np.float64]:
    columns = [np.sort(source[name].to_numpy().reshape(-1, SIZE), axis=1) for name in source.column_names]
    values = np.concatenate(columns)
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    scaled: npt.NDArray[np.float64] = (values - low) / (high - low) * 0.9 + 0.05
    return scaled


def measure(rounds: int) -> str:
    """Return ratios and steps per second as Markdown."""
    whole = numbers_table(ROWS)
    lines = []
    for sigma in (0.1, 1.0):
        part = whole.slice(0, PART[sigma] * SIZE)
        segments = _sorted_segments(part)

        def plain(segments: Any = segments, sigma: float = sigma) -> object:
            return plain_walks(segments, sigma, STEPS)

        timings = in_turn({"rowveil": work(part, sigma), "plain": plain}, rounds)
        ratio = timings["plain"].ratio_to(timings["rowveil"])
        started = time.perf_counter()
        work(whole, sigma)()
        seconds = time.perf_counter() - started
        steps = ROWS // SIZE * FIELDS * STEPS / seconds
        lines.append(
            [
                f"{sigma:.0%} of the relations",
                f"{timings['rowveil'].median:.3f}",
                f"{timings['plain'].median:.3f}",
                f"{ratio:.1f}",
                f"{GOAL:g}",
                "met" if ratio >= GOAL else "MISSED",
                f"{seconds:.1f}",
                f"{steps:,.0f}",
            ]
        )
    header = [
        f"LOCALITY, {get_num_threads()} threads", "rowveil s", "plain numba walk s", "times faster", "goal",
        "", f"{ROWS:,} x {FIELDS} s", "steps a second",
    ]  # fmt: skip
    return table(header, lines) + "\n"


if __name__ == "__main__":
    print(measure(3))
