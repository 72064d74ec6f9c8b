"""Sizes of neighbourhoods by epsilon on bodyfat: section 8, Figure 1."""

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.papers.experiments import Chart, Data, Experiment, Figures, Series, Table, Verdict
from benchmarks.papers.runs import Matrix, matrix
from benchmarks.papers.rwn.bodyfat import LARGEST, cleaned

K = 5
EPSILONS = (0.25, 0.40, 0.55, 0.80, 1.00)


def distances(values: Matrix) -> Matrix:
    """Return the distances of all pairs of rows, fields scaled to [0, 1], infinite to themselves."""
    points = (values - values.min(axis=0)) / np.ptp(values, axis=0)
    found: Matrix = cdist(points, points)
    np.fill_diagonal(found, np.inf)
    return found


def sizes(found: Matrix, k: int, epsilon: float) -> Matrix:
    """Return the size of each row's neighbourhood: the k nearest or all within epsilon, if they are more."""
    nearest = np.partition(found, k - 1, axis=1)[:, k - 1]
    count: Matrix = (found <= np.maximum(nearest, epsilon)[:, None]).sum(axis=1).astype(np.float64)
    return count


def run(data: Data) -> Figures:
    """Count the neighbours of every man for each epsilon."""
    found = distances(matrix(cleaned(data)))
    closest = found.min(axis=1)
    rows, series = [], []
    for epsilon in EPSILONS:
        count = sizes(found, K, epsilon)
        rows.append(
            [
                epsilon,
                float(np.median(count)),
                float(count.max()),
                float((count == K).mean()),
                int(count[LARGEST]),
            ]
        )
        series.append(
            Series(f"epsilon {epsilon}", [float(size) for size in count], list(map(float, closest)))
        )
    columns = ("epsilon", "median size", "largest size", "share with k neighbours", "size of observation 37")
    return Figures(
        [
            Table(
                "sizes",
                f"Sizes of the neighbourhoods with k = {K}; observation 37 is {closest[LARGEST]:.4f} from "
                "its "
                "closest row.",
                columns,
                rows,
            )
        ],
        [
            Chart(
                "sizes", "points", "Distance to the closest record and size of the neighbourhood",
                "size of the neighbourhood", "distance to the closest record", series,
            )
        ],
    )  # fmt: skip


def judge(figures: Figures) -> tuple[Verdict, str]:
    """Judge: sizes are k for most at the smallest epsilon, grow with it, and stay k for observation 37."""
    table = figures.table("sizes")
    medians, shares = table.numbers("median size"), table.numbers("share with k neighbours")
    outlier = set(table.column("size of observation 37"))
    holds = shares[0] > 0.5 and medians == sorted(medians) and medians[-1] > 2 * K and outlier == {K}
    return ("reproduced" if holds else "differs"), (
        f"At epsilon {EPSILONS[0]} k decides the size for {100 * shares[0]:.0f} % of the men; the median "
        "grows from "
        f"{medians[0]:.0f} to {medians[-1]:.0f}, and observation 37 has "
        f"{' or '.join(map(str, sorted(outlier)))} "
        "neighbours throughout."
    )


FIGURE_1 = Experiment(
    "figure-1",
    "Figure 1",
    "sizes of neighbourhoods",
    ("RWN",),
    "epsilon sets the size for typical rows and k that for outliers",
    f"bodyfat, 241 men, k = {K}, distances as in section 4.1.",
    run,
    judge,
)
