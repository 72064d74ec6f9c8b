"""MEDS compared with a compiled naive implementation of the paper, and with a plain MDAV in numpy.

The naive implementation compares every pair of the remaining rows in every round, on all threads; its time is
extrapolated from its first round, allowing for the quadratic decrease of the rounds' cost. MDAV runs
completely if that is short, else its first rounds are extrapolated, with cost proportional to the remaining
rows. The provider is timed with all that a job does: standardisation, exchange, counts and report.
"""

import statistics
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, prange

from benchmarks.harness import in_turn, table
from benchmarks.methods.kernels import swap_work

FIELDS = 4
DEGREES = (100, 1000)
NAIVE_GOAL = 1 / 50
MDAV_GOAL = 1 / 20
_MDAV_ROUNDS = 50

Points = npt.NDArray[np.float64]


@njit(parallel=True)  # type: ignore[untyped-decorator] # numba's decorators carry no types
def _most_distant(points: Any) -> Any:
    """Find the most distant pair naively: for each row the farthest later row, then the largest distance."""
    rows, fields = points.shape
    far = np.zeros(rows)
    who = np.zeros(rows, np.int64)
    for row in prange(rows):
        for other in range(row + 1, rows):
            total = 0.0
            for field in range(fields):
                difference = points[row, field] - points[other, field]
                total += difference * difference
            if total > far[row]:
                far[row] = total
                who[row] = other
    row = np.argmax(far)
    return row, who[row]


def _naive_seconds(points: Points, degree: int) -> float:
    """Return the naive implementation's time, extrapolated from its first search to all rounds."""
    _most_distant(points[:100])
    started = time.perf_counter()
    _most_distant(points)
    first = time.perf_counter() - started
    rounds = degree // 2
    return first * sum((1 - at / rounds) ** 2 for at in range(rounds))


def _mdav(points: Points, size: int, most_rounds: int) -> int:
    """Run textbook MDAV; return the number of rounds."""
    rounds = 0
    while len(points) >= 2 * size and rounds < most_rounds:
        r = points[((points - points.mean(axis=0)) ** 2).sum(axis=1).argmax()]
        s = points[((points - r) ** 2).sum(axis=1).argmax()]
        for centre in (r, s):
            near = np.argpartition(((points - centre) ** 2).sum(axis=1), size - 1)[:size]
            points = np.delete(points, near, axis=0)
        rounds += 1
    return rounds


def _mdav_seconds(points: Points, degree: int) -> float:
    """Return the time of MDAV, extrapolated from its first rounds."""
    started = time.perf_counter()
    made = _mdav(points, len(points) // degree, _MDAV_ROUNDS)
    first = time.perf_counter() - started
    rounds = degree // 2
    share = sum(1 - at / rounds for at in range(made))
    return first / share * sum(1 - at / rounds for at in range(rounds))


def _people(rows: int) -> pa.Table:
    values = np.random.default_rng(rows).normal(size=(FIELDS, rows))
    return pa.table({**{f"x{at}": column for at, column in enumerate(values)}, "id": np.arange(rows)})


def measure(rounds: int) -> str:
    """Return the comparison as Markdown."""
    source = _people(100_000)
    fields = source.column_names[:FIELDS]
    points = np.column_stack([source[name].to_numpy() for name in fields])
    lines = []
    for degree in DEGREES:
        naive = _naive_seconds(points, degree)
        parameters = {"swap_fields": fields, "degree": degree}
        exact = swap_work(source, "MEDS", {**parameters, "method": "exact"})
        quick = swap_work(source, "MEDS", {**parameters, "method": "mdav"})
        timings = in_turn({"exact": exact, "mdav": quick}, rounds)
        mdav = statistics.median(_mdav_seconds(points, degree) for _ in range(min(3, rounds)))
        for name, timing in timings.items():
            mine = timing.median
            line = [f"100,000 x {FIELDS}, d = {degree}, {name}", f"{mine:.3f}"]
            line += [f"{naive:.0f}", f"{mine / naive:.5f}", "met" if mine <= NAIVE_GOAL * naive else "MISSED"]
            line += [f"{mdav:.2f}", f"{mine / mdav:.3f}", "met" if mine <= MDAV_GOAL * mdav else "MISSED"]
            lines.append(line if name == "exact" else [*line[:2], "-", "-", "-", *line[5:]])
            print(f"  MEDS {line[0]}: {mine:.3f} s", flush=True)
    large = _people(1_000_000)
    for degree in DEGREES:
        work = swap_work(large, "MEDS", {"swap_fields": fields, "degree": degree, "method": "exact"})
        timing = in_turn({"exact": work}, min(2, rounds))["exact"]
        lines.append([f"1,000,000 x {FIELDS}, d = {degree}, exact", f"{timing.median:.3f}", *["-"] * 6])
    header = ["", "rowveil s", "naive s", "ratio", "goal 1/50", "numpy MDAV s", "ratio", "goal 1/20"]
    copied = in_turn({"copy": points.copy}, rounds)["copy"]
    floor = f"Copying the fields of 100,000 rows takes {1000 * copied.median:.1f} ms."
    return f"### MEDS\n\n{table(header, lines)}\n\n{floor}\n"
