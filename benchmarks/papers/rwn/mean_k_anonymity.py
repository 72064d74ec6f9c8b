"""Mean k-anonymity after rank swapping and after RWN, on svcensus: 9.1.2, Table 1."""

import itertools
from collections import Counter

import numpy as np

from benchmarks.papers.experiments import Cell, Data, Experiment, Figures, Table, Verdict
from benchmarks.papers.peers.mdav import microaggregate
from benchmarks.papers.peers.rank_swapping import TAIL, rank_swap
from benchmarks.papers.runs import Matrix, matrix, swap, table_of

FIELDS = ("age", "educ", "wkswrkd", "gender")
STEPS = (5, 25)
K = 10
RUNS = 5
MDAV = f"MDAV, clusters of {K}"
"""Microaggregation, of which the paper says that it has k-anonymity by itself; it is not in its table."""
TOLERANCE = 0.05
"""Largest relative difference from the paper's number that counts as reproduced."""
PAPER = {
    ("none", 5): 480.92, ("rank swapping, R0 = 0.10", 5): 451.79,
    ("rank swapping, R0 = 0.90", 5): 467.55, ("RWN", 5): 483.22,
    ("none", 25): 1699.84, ("rank swapping, R0 = 0.10", 25): 1566.30,
    ("rank swapping, R0 = 0.90", 25): 1603.99, ("RWN", 25): 1700.49,
}  # fmt: skip


def mean_k(values: Matrix) -> float:
    """Return the mean, over the rows of a matrix, of the number of rows equal to the row."""
    sizes = Counter(map(bytes, values))
    return sum(size * size for size in sizes.values()) / len(values)


def least_k(values: Matrix) -> int:
    """Return the least number of equal rows that a row of a matrix belongs to."""
    return min(Counter(map(bytes, values)).values())


def census(data: Data, step: int) -> Matrix:
    """Return the four fields as ordered codes, with ages rounded to multiples of a step, or not (0)."""
    table = data.read("svcensus")
    codes = {
        name: np.unique(table[name].to_numpy(zero_copy_only=False), return_inverse=True)[1]
        for name in ("educ", "gender")
    }
    fields = [table["age"].to_numpy(), codes["educ"], table["wkswrkd"].to_numpy(), codes["gender"]]
    values: Matrix = np.column_stack(fields).astype(np.float64)
    return rounded(values, step) if step else values


def rounded(values: Matrix, step: int) -> Matrix:
    """Return the fields with ages, the first of them, rounded to multiples of a step."""
    result = values.copy()
    result[:, 0] = np.floor(values[:, 0] / step + 0.5) * step
    return result


def variants(data: Data) -> list[list[Cell]]:
    """Return the mean k of rank swapping without coded tails, and with ages rounded after the swap."""
    rows: list[list[Cell]] = []
    for step, preservation in itertools.product(STEPS, (0.1, 0.9)):
        before = census(data, step)
        fine = census(data, 0)

        def swapped(values: Matrix, tail: float) -> Matrix:
            return rank_swap(values, np.random.default_rng(0), preservation=preservation, tail=tail)  # noqa: B023

        rows.append(
            [
                f"R0 = {preservation:.2f}", step, PAPER[f"rank swapping, R0 = {preservation:.2f}", step],
                mean_k(before), mean_k(swapped(before, 0.0)), mean_k(rounded(swapped(fine, TAIL), step)),
                mean_k(rounded(swapped(fine, 0.0), step)),
            ]
        )  # fmt: skip
    return rows


def run(data: Data) -> Figures:
    """Measure each method of Table 1, the mean of several runs."""
    rows: list[list[Cell]] = []
    for step in STEPS:
        source = census(data, step)
        table = table_of(source, FIELDS)
        found = {"none": [source]}
        for preservation in (0.1, 0.9):
            found[f"rank swapping, R0 = {preservation:.2f}"] = [
                rank_swap(source, np.random.default_rng(seed), preservation=preservation)
                for seed in range(RUNS)
            ]
        found["RWN"] = [
            matrix(swap("RWN", table, {"k": K, "categorical_fields": ["gender"]}, seed).table)
            for seed in range(RUNS)
        ]
        found[MDAV] = [microaggregate(source, K)]
        for method, releases in found.items():
            figures = [mean_k(each) for each in releases]
            mean, deviation = float(np.mean(figures)), float(np.std(figures))
            least = min(least_k(each) for each in releases)
            rows.append([method, step, PAPER.get((method, step)), mean, deviation, least])
    columns = ("method", "m", "paper", "ours", "standard deviation", "least k")
    other = Table(
        "variants",
        "Rank swapping done otherwise: without coded tails, and with ages rounded after the swap; one run.",
        ("rank swapping", "m", "paper", "source", "no tails", "rounded after", "no tails, rounded after"),
        variants(data),
    )
    caption = "Mean k-anonymity with ages rounded to multiples of m, and the least k of any row."
    return Figures([Table("mka", caption, columns, rows), other])


def judge(figures: Figures) -> tuple[Verdict, str]:
    """Judge: no method gains 5 %, rank swapping loses, and all numbers are within 5 % of the paper's."""
    table = figures.table("mka")
    unchanged = table.where(method="none")
    before = dict(zip(unchanged.column("m"), unchanged.numbers("ours"), strict=True))
    ratios = {
        (method, step): ours / before[step]
        for method, step, ours in zip(
            table.column("method"), table.column("m"), table.numbers("ours"), strict=True
        )
    }
    off = max(
        abs(ours / paper - 1)
        for ours, paper in zip(table.column("ours"), table.column("paper"), strict=True)
        if paper is not None
    )
    most = max(ratio for (method, _), ratio in ratios.items() if method not in ("none", MDAV))
    clustered = table.where(method=MDAV)
    least = min(clustered.column("least k"))
    automatic = least >= K
    swapped = [ratio for (method, _), ratio in ratios.items() if method.startswith("rank")]
    numbers = (
        f"The largest gain is {100 * (most - 1):.1f} %, rank swapping gives {100 * min(swapped):.0f} to "
        f"{100 * max(swapped):.0f} % of the source's figure, and the largest difference from the paper's "
        f"numbers is {100 * off:.1f} %. {_unexplained(figures.table('variants'))} Microaggregation "
        f"{'has' if automatic else 'has not'} k-anonymity by itself (k is {least} or more), and "
        f"{100 * min(_of(ratios, MDAV)):.0f} to {100 * max(_of(ratios, MDAV)):.0f} % of the source's mean."
    )
    if most < 1.05 and max(swapped) < 1 and off <= TOLERANCE and automatic:
        return "reproduced", numbers
    return "differs", numbers


def _unexplained(table: Table) -> str:
    """Return whether another reading of rank swapping gives numbers as low as the paper's."""
    paper = table.numbers("paper")
    ratios, near = [], 0
    for name in table.columns[4:]:
        ratios += [
            one / other for one, other in zip(table.numbers(name), table.numbers("source"), strict=True)
        ]
        near += all(
            abs(one / other - 1) <= TOLERANCE for one, other in zip(table.numbers(name), paper, strict=True)
        )
    return (
        f"Without coded tails, or with ages rounded after the swap, it gives {100 * min(ratios):.0f} to "
        f"{100 * max(ratios):.0f} %: {near} of {len(table.columns[4:])} such readings explain the paper's "
        "numbers."
    )


def _of(ratios: dict[tuple[str, float], float], method: str) -> list[float]:
    return [ratio for (each, _), ratio in ratios.items() if each == method]


TABLE_1 = Experiment(
    "table-1",
    "Table 1",
    "mean k-anonymity after rank swapping and RWN",
    ("RWN",),
    "neither RWN nor rank swapping raises the mean k-anonymity",
    f"svcensus, without income and occupation; RWN with k = {K}; rank swapping as in sdcMicro, written as "
    f"a plain peer, and MDAV microaggregation with clusters of {K}; means of {RUNS} runs.",
    run,
    judge,
)
