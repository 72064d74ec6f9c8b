"""Time of MEWS and MEDS by number of rows: sections 3.1 and 3.2."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.papers.experiments import Cell, Chart, Data, Experiment, Figures, Series, Table, Verdict
from benchmarks.papers.mews.correlations import synthetic
from benchmarks.papers.peers.literal_meds import literal_meds
from benchmarks.papers.runs import matrix, swap

FIELDS = ["x1", "x2"]
K = 10
BINS = 40
METHODS: dict[str, tuple[int, ...]] = {
    "MEWS": (500_000, 1_000_000, 2_000_000, 4_000_000),
    "MEDS": (25_000, 50_000, 100_000, 200_000),
    "MEDS, literal": (500, 1000, 2000, 4000),
}
"""Method -> numbers of rows."""
ROUNDS = 5
CLAIMED = {"MEWS": (0.5, 1.5), "MEDS, literal": (2.5, 3.5)}
"""Method -> range of the exponent that counts as the paper's: nearer to it than to the next whole power."""


def work(method: str, rows: int) -> Callable[[], object]:
    """Return what is timed: one run of a method on a synthetic table."""
    table = synthetic(rows)
    if method == "MEDS, literal":
        points = matrix(table, FIELDS)
        return lambda: literal_meds(points, K)
    parameters = {"bins": BINS} if method == "MEWS" else {"k": K}
    return lambda: swap(method, table, {"swap_fields": FIELDS, **parameters})


def exponent(rows: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of the logarithm of the time over that of the rows, by least squares."""
    return float(np.polyfit(np.log(rows), np.log(seconds), 1)[0])


def processor_seconds(action: Callable[[], object], rounds: int) -> float:
    """Return the least processor time of some rounds."""
    found = []
    for _ in range(rounds):
        started = time.process_time()
        action()
        found.append(time.process_time() - started)
    return min(found)


def run(_: Data) -> Figures:
    """Time each method on growing tables."""
    rows: list[list[Cell]] = []
    for method, sizes in METHODS.items():
        literal = method == "MEDS, literal"
        processor_seconds(work(method, sizes[0]), 1)
        rounds = 1 if literal else ROUNDS
        rows += [[method, size, processor_seconds(work(method, size), rounds)] for size in sizes]
    table = Table("seconds", "Processor time.", ("method", "rows", "seconds"), rows, ("seconds",))
    parts = {method: table.where(method=method) for method in METHODS}
    series = [Series(name, part.column("rows"), part.numbers("seconds")) for name, part in parts.items()]
    chart = Chart(
        "time", "line", "Time by number of rows", "rows", "seconds", series, True, True, varies=True
    )
    exponents: list[list[Cell]] = [
        [name, exponent(part.numbers("rows"), part.numbers("seconds"))] for name, part in parts.items()
    ]
    caption = "Exponent of the rows in the time, by least squares on logarithms."
    return Figures(
        [Table("exponents", caption, ("method", "exponent"), exponents, ("exponent",)), table], [chart]
    )


def judge(figures: Figures) -> tuple[Verdict, str]:
    """Judge: MEWS is linear and Algorithm 1 as it stands cubic."""
    table = figures.table("exponents")
    found = dict(zip(table.column("method"), table.numbers("exponent"), strict=True))
    holds = all(low <= found[method] <= high for method, (low, high) in CLAIMED.items())
    return ("reproduced" if holds else "differs"), (
        f"The time grows with the power {found['MEWS']:.2f} of the rows for MEWS and "
        f"{found['MEDS, literal']:.2f} for "
        "Algorithm 1 as it stands; the service's MEDS, which forms the same kind of bins with search trees, "
        "has "
        f"{found['MEDS']:.2f}."
    )


SCALING = Experiment(
    "scaling",
    "Sections 3.1 and 3.2",
    "time by number of rows",
    ("MEWS", "MEDS"),
    "MEWS takes linear time and MEDS cubic time",
    f"Two binormal fields; MEWS with {BINS} cells a field, MEDS with k = {K}; least processor time of "
    f"{ROUNDS} rounds. "
    "The paper has no measured times.",
    run,
    judge,
)
