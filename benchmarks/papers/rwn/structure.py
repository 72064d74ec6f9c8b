"""Correlations, principal components, influence and scores of bodyfat by epsilon: 9.3.2, Figures 5 to 8."""

import numpy as np

from benchmarks.papers.experiments import Cell, Chart, Data, Experiment, Figures, Series, Table, Verdict
from benchmarks.papers.runs import Matrix, matrix, swap
from benchmarks.papers.rwn import statistics
from benchmarks.papers.rwn.bodyfat import LARGEST, TARGET, cleaned, mass_index, regressors

K = 5
EPSILONS = tuple(round(0.05 * step, 2) for step in range(25))
"""0 to 1.2; the paper has one release for each."""
SHOWN = (0.25, 0.5, 1.0)
"""Epsilons whose scores are drawn."""
TOP = 5
PAPER_TABLE_2 = (
    (37, 48.9, 46, 363.2, 72.3), (39, 39.1, 45, 262.8, 68.8), (205, 37.6, 51, 219.0, 64.0),
    (231, 33.9, 65, 224.5, 68.3), (168, 33.2, 37, 241.3, 71.5),
)  # fmt: skip
"""Observation, body mass index, age, weight and height."""


def run(data: Data) -> Figures:
    """Release bodyfat once for each epsilon and measure each release."""
    table = cleaned(data)
    source, fields = matrix(table), table.column_names
    correlations = statistics.upper_correlations(source)
    rows: list[list[Cell]] = []
    scree = [_scree("unperturbed", source)]
    scores = [_scores("unperturbed", source), _outlier("unperturbed, observation 37", source)]
    for epsilon in (None, *EPSILONS):
        released = source if epsilon is None else matrix(swap("RWN", table, _parameters(epsilon)).table)
        changed = statistics.upper_correlations(released)
        shares = statistics.components(released)[1]
        influence = statistics.fit(*regressors(released, fields)).influence
        first = np.abs(statistics.first_scores(released)[:, 0])
        rows.append(
            [
                "source" if epsilon is None else epsilon,
                float((np.sign(changed) == np.sign(correlations))[np.abs(correlations) > 0.2].mean()),
                float(np.abs(changed).mean()),
                float(shares[0]),
                float(shares[1]),
                float(influence.max()),
                float(influence[LARGEST]),
                int(first.argmax()) == LARGEST,
                float(first[LARGEST] / np.sort(first)[-2 if first.argmax() == LARGEST else -1]),
            ]
        )
        if epsilon in SHOWN:
            scree.append(_scree(f"epsilon {epsilon}", released))
        if epsilon == SHOWN[1]:
            scores += [
                _scores(f"epsilon {epsilon}", released),
                _outlier(f"epsilon {epsilon}, observation 37", released),
            ]
    columns = (
        "epsilon", "signs kept", "mean abs(correlation)", "share of PC1", "share of PC2", "largest Cook's "
        "distance",
        "that of 37", "37 is first on PC1", "score of 37 / largest other",
    )  # fmt: skip
    index = mass_index(source, fields)
    order = np.argsort(-index)[:TOP]
    largest: list[list[Cell]] = []
    for place, row in enumerate(order):
        ours = (int(row) + 1,  # observations are counted among the 241
             float(index[row]), *(float(source[row, fields.index(name)]) for name in
                ("age", "weight", "height")))  # fmt: skip
        largest.append([PAPER_TABLE_2[place][0], ours[0], PAPER_TABLE_2[place][1], *ours[1:]])
    return Figures(
        [
            Table("releases", "Signs kept are those of correlations above 0.2.", columns, rows),
            Table(
                "largest",
                "Table 2: the men of the largest body mass index.",
                ("observation, paper", "ours", "index, paper", "index", "age", "weight, lb", "height, in"),
                largest,
            ),
        ],
        [
            Chart("scree", "line", "Figure 6: shares of the principal components", "component",
                  "share of the variance", scree),
            Chart("influence", "line", "Figure 7: largest Cook's distance", "epsilon", "Cook's distance",
                  [Series("released", list(EPSILONS), [float(row[5] or 0) for row in rows[1:]]),
                   Series("unperturbed", [EPSILONS[0], EPSILONS[-1]], [float(rows[0][5] or 0)] * 2)]),
            Chart("scores", "points", "Figure 8: scores of the first two components", "PC1", "PC2", scores),
        ],
    )  # fmt: skip


def _parameters(epsilon: float) -> dict[str, float]:
    return {"k": K, "epsilon": epsilon}


def _scree(name: str, values: Matrix) -> Series:
    shares = statistics.components(values)[1]
    return Series(name, list(range(1, len(shares) + 1)), list(map(float, shares)))


def _scores(name: str, values: Matrix) -> Series:
    scores = np.delete(statistics.first_scores(values), LARGEST, axis=0)
    return Series(name, list(map(float, scores[:, 0])), list(map(float, scores[:, 1])))


def _outlier(name: str, values: Matrix) -> Series:
    scores = statistics.first_scores(values)[LARGEST]
    return Series(name, [float(scores[0])], [float(scores[1])])


def judge(figures: Figures) -> tuple[Verdict, str]:
    """Judge by the conclusions about signs, spread of the variance, influence and scores, and by Table 2."""
    table, largest = figures.table("releases"), figures.table("largest")
    signs, strength = table.numbers("signs kept"), table.numbers("mean abs(correlation)")
    share, influence = table.numbers("share of PC1"), table.numbers("largest Cook's distance")
    first = [bool(cell) for cell in table.column("37 is first on PC1")]
    lead = table.numbers("score of 37 / largest other")
    held = {
        "small epsilons (up to 0.5) keep all signs": min(signs[:12]) == 1.0,
        "large ones leave few correlations": strength[-1] < strength[0] / 2,
        "the variance spreads over more components": share[-1] < share[5] < share[0] * 1.05,
        "the largest influence falls even at epsilon 0": max(influence[1:]) < influence[0],
        "observation 37 keeps the largest score but stands out less": all(first) and max(lead[1:]) < lead[0],
        "the five men of Table 2 are found": largest.column("observation, paper") == largest.column("ours"),
    }
    lost = [text for text, holds in held.items() if not holds]
    reason = f"Of six conclusions {len(held) - len(lost)} hold"
    reason += f"; not so: {'; '.join(lost)}." if lost else "."
    reason += (
        f" The mean correlation falls from {strength[0]:.2f} to {strength[-1]:.2f}, the share of the first "
        "component "
        f"from {share[0]:.2f} to {share[-1]:.2f}, and the largest influence from {influence[0]:.2f} to "
        f"{np.median(influence[1:]):.2f} (median of {len(influence) - 1} releases, at most "
        f"{max(influence[1:]):.2f}). "
        f"Observation 37 has the largest score in {sum(first[1:])} of them, {lead[0]:.2f} times the next "
        "one's in the "
        f"source, {min(lead[1:]):.2f} to {max(lead[1:]):.2f} times in the releases, most at the largest "
        "epsilons."
    )
    return ("differs" if lost else "reproduced"), reason


FIGURES_5_TO_8 = Experiment(
    "figure-5",
    "Figures 5 to 8, Table 2",
    "correlations, components, influence and scores",
    ("RWN",),
    "small neighbourhoods keep the correlations and components of bodyfat, and hide its outlier",
    f"bodyfat, 241 men, k = {K}, one release for each epsilon from 0 to 1.2; regressions of {TARGET} on all "
    "other "
    "fields and the body mass index.",
    run,
    judge,
)
