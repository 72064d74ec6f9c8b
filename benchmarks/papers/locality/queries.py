"""Queries on redrawn values against Mondrian's groups of equal distortion: section 5.3, Figure 5."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.papers.experiments import Cell, Chart, Data, Experiment, Figures, Series, Table, Verdict
from benchmarks.papers.locality.tables import QUASI_IDENTIFIERS, adult
from benchmarks.papers.peers.additive_noise import distortion
from benchmarks.papers.peers.mondrian import boxes
from benchmarks.papers.runs import Matrix, matrix, swap

DIVERSITIES = (4, 6, 8, 10, 12)
INSTANCES = 2000
STEPS = 40_000
TUNING_ROWS = 3000
LEAST_SHARE = 0.001
SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {"profile": "paper", "segment_size": 20, "iterations": {"total": STEPS}},
    "service": {"segment_size": 20},
}
"""Setting -> parameters of LOCALITY."""
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Query:
    """SELECT AVG(averaged) WHERE one > t AND other > u AND occupation IN a set."""

    averaged: int
    """Column of the average: 0 age, 1 final weight, 2 years of education."""
    thresholds: tuple[tuple[int, float], tuple[int, float]]
    """The two other columns and their thresholds."""
    occupations: npt.NDArray[np.bool_]
    """Mask of the occupations in the set; shape (occupations,)."""


def queries(table: Matrix, occupations: int, averaged: int, count: int = INSTANCES) -> list[Query]:
    """Draw instances of a query.

    Parameters
    ----------
    table : ndarray of float64, shape (rows, 3)
    occupations : int
        Number of occupations; a set has 1 to all of them, of a random size.
    averaged : int
        Column of the average. Thresholds are uniform on the ranges of the two others.
    count : int
    """
    generator = np.random.default_rng(averaged)
    low, high = table.min(axis=0), table.max(axis=0)
    drawn = []
    for _ in range(count):
        first, second = (
            (column, float(generator.uniform(low[column], high[column])))
            for column in range(3)
            if column != averaged
        )
        members = np.zeros(occupations, np.bool_)
        members[generator.permutation(occupations)[: generator.integers(1, occupations + 1)]] = True
        drawn.append(Query(averaged, (first, second), members))
    return drawn


def answer(table: Matrix, occupations: Codes, query: Query) -> float:
    """Answer a query on exact values; NaN if no row satisfies it."""
    within = query.occupations[occupations]
    for column, threshold in query.thresholds:
        within &= table[:, column] > threshold
    return float(table[within, query.averaged].mean()) if within.any() else float("nan")


def answer_of_boxes(low: Matrix, high: Matrix, occupations: Codes, query: Query) -> float:
    """Answer a query on groups, whose rows are spread evenly over their box; NaN without any weight.

    Parameters
    ----------
    low, high : ndarray of float64, shape (rows, 3)
        Ends of each row's box.
    occupations : ndarray of int64, shape (rows,)
        Published exactly.
    query : Query
    """
    weight = query.occupations[occupations].astype(np.float64)
    for column, threshold in query.thresholds:
        width = high[:, column] - low[:, column]
        above = high[:, column] - threshold
        inside = np.clip(above / np.where(width > 0, width, 1), 0, 1)
        weight *= np.where(width > 0, inside, above > 0)
    total = weight.sum()
    centres = (low[:, query.averaged] + high[:, query.averaged]) / 2
    return float((weight * centres).sum() / total) if total > 0 else float("nan")


def mean_error(truths: list[float], answers: list[float]) -> float:
    """Return the mean of |answer - truth| / truth over queries with a truth; 1 if there is no answer."""
    errors = []
    for truth, found in zip(truths, answers, strict=True):
        if not np.isnan(truth):
            errors.append(1.0 if np.isnan(found) else abs(found - truth) / abs(truth))
    return float(np.mean(errors))


def tuned_share(target: float, measured: Callable[[float], float], rounds: int = 6) -> float:
    """Return the largest share of localities whose distortion is the target or just above it.

    Parameters
    ----------
    target : float
        Distortion to reach.
    measured : callable
        Share of localities -> distortion, which falls with the share.
    rounds : int
        Bisections between `LEAST_SHARE` and 1, on a logarithmic scale.

    Returns
    -------
    float
        1 if even all localities distort more; `LEAST_SHARE` if none reaches the target.
    """
    if measured(1.0) >= target:
        return 1.0
    low, high = np.log(LEAST_SHARE), 0.0
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if measured(float(np.exp(middle))) >= target else (low, middle)
    return float(np.exp(low))


def run(
    data: Data,
    instances: int = INSTANCES,
    rows: int = 30_000,
    diversities: tuple[int, ...] = DIVERSITIES,
    tuning_rows: int = TUNING_ROWS,
) -> Figures:
    """Ask the three queries of LOCALITY's releases and of Mondrian's."""
    table, occupations = adult(data, rows)
    source = matrix(table)
    count = int(occupations.max()) + 1
    asked = [queries(source, count, averaged, instances) for averaged in range(3)]
    truths = [[answer(source, occupations, query) for query in kind] for kind in asked]
    released: dict[tuple[str, float], tuple[float, list[float]]] = {}

    def redrawn(setting: str, share: float, part: pa.Table) -> Matrix:
        given = {"fields": list(QUASI_IDENTIFIERS), "sigma": share, **SETTINGS[setting]}
        return matrix(swap("LOCALITY", part, given).table)

    def errors_of(setting: str, share: float) -> tuple[float, list[float]]:
        if (setting, share) not in released:
            destination = redrawn(setting, share, table)
            errors = [
                mean_error(truth, [answer(destination, occupations, query) for query in kind])
                for truth, kind in zip(truths, asked, strict=True)
            ]
            released[setting, share] = distortion(source, destination), errors
        return released[setting, share]

    def distortion_by_share(setting: str) -> Callable[[float], float]:
        part = table.slice(0, tuning_rows) if setting == "paper" else table
        before = matrix(part)
        return lru_cache(lambda share: distortion(before, redrawn(setting, share, part)))

    distorted = {setting: distortion_by_share(setting) for setting in SETTINGS}
    lines = []
    for diversity in diversities:
        low, high = boxes(source, occupations, diversity)
        amount = distortion(source, (low + high) / 2)
        theirs = [
            mean_error(truth, [answer_of_boxes(low, high, occupations, query) for query in kind])
            for truth, kind in zip(truths, asked, strict=True)
        ]
        ours = []
        for setting in SETTINGS:
            share = tuned_share(amount, distorted[setting])
            ours.append((share, *errors_of(setting, share)))
        for kind in range(3):
            line: list[Cell] = [kind + 1, diversity, amount, theirs[kind]]
            for share, reached, errors in ours:
                line += [share, reached, errors[kind]]
            lines.append(line)
    lines.sort(key=lambda line: (line[0], line[1]))
    found = Table(
        "errors",
        f"Mean relative error of {instances:,} instances of each query at equal distortion (equation 6).",
        (
            "query", "l", "distortion, Mondrian", "error, Mondrian", "share, paper's walk",
            "distortion, paper's walk", "error, paper's walk", "share, service", "distortion, service",
            "error, service",
        ),
        lines,
    )  # fmt: skip
    return Figures([found], [_chart(found, kind) for kind in (1, 2, 3)])


def _chart(table: Table, kind: int) -> Chart:
    rows = table.where(query=kind)
    methods = ("Mondrian", "paper's walk", "service")
    lines = [Series(method, rows.column("l"), rows.numbers(f"error, {method}")) for method in methods]
    return Chart(f"query-{kind}", "line", f"Error of query {kind}", "l", "mean relative error", lines)


def judge(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if the paper's walk errs less than Mondrian in all cases, at equal distortion (10 %)."""
    table = figures.table("errors")
    parts, reproduced = [], {}
    for setting, title in (
        ("paper's walk", "The paper's walk"),
        ("service", "The service with its own walk"),
    ):
        comparable: list[bool] = []
        others: list[bool] = []
        excess: list[float] = []
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=True))
            error, theirs, reached, wanted = (
                float(str(cells[name]))
                for name in (
                    f"error, {setting}", "error, Mondrian", f"distortion, {setting}", "distortion, Mondrian",
                )
            )  # fmt: skip
            (comparable if reached <= 1.1 * wanted else others).append(error < theirs)
            excess.append(reached / wanted)
        reproduced[setting] = all(comparable) and not others
        parts.append(
            f"{title} errs less than Mondrian in {sum(comparable)} of {len(comparable)} cases of equal "
            "distortion"
        )
        if others:
            parts[-1] += (
                f"; in the other {len(others)} all localities together distort up to {max(excess):.1f} times "
                f"as much as Mondrian, and it errs less in {sum(others)}"
            )
    return ("reproduced" if reproduced["paper's walk"] else "differs"), f"{'. '.join(parts)}."


FIGURE_5 = Experiment(
    "figure-5",
    "Figure 5",
    "three aggregate queries at equal distortion",
    ("LOCALITY",),
    "averages under two thresholds and a set of occupations are more accurate on redrawn values than on "
    "Mondrian's groups of equal distortion",
    f"The first 30,000 complete rows of adult. Segments of 20 and {STEPS:,} steps; the share of "
    f"localities of the paper's walk is tuned on the first {TUNING_ROWS:,} rows. If all "
    "localities distort more than Mondrian, all are kept. Mondrian is the strict one, with distinct "
    "l-diversity. The figure's values are not in the text at hand.",
    run,
    judge,
)
