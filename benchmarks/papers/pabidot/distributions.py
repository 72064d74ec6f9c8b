"""Distributions before and after PABIDOT: Table 6 (Kolmogorov-Smirnov) and Table 8 (entropy)."""

import numpy as np
import numpy.typing as npt

from benchmarks.papers.experiments import Cell, Data, Experiment, Figures, Table, Verdict
from benchmarks.papers.kolmogorov import accepted
from benchmarks.papers.pabidot.tables import FILES, NOT_AT_HAND, labelled
from benchmarks.papers.runs import Matrix

LIKE_RECORDS = {"LRDS": (16090, 80.45), "PBDS": (1928, 35.23), "WCDS": (434, 98.64), "WQDS": (4897, 99.98)}
"""Table -> records whose test accepts equality, and their percentage (Table 6)."""
SEEDS = 10
"""Releases of each table: translation and noise move the percentage."""
INCREASE = {"LRDS": 11.1933, "PBDS": 4.1284, "WCDS": 1.1671, "WQDS": 5.9415}
"""Table -> mean increase of entropy in bits (Table 8)."""


def like_records(source: Matrix, released: Matrix) -> float:
    """Return the percentage of rows whose values have one distribution by a test at 5 %."""
    return 100 * accepted(source, released) / len(source)


def like_fields(source: Matrix, released: Matrix) -> int:
    """Return the number of fields whose distribution is the same by a test at 5 %."""
    return accepted(np.ascontiguousarray(source.T), np.ascontiguousarray(released.T))


def run_tests(data: Data) -> Figures:
    """Test records with their own, with another's, and with permuted source records; and fields."""
    rows: list[list[Cell]] = []
    for name in FILES:
        table = labelled(data, name)
        source = table.values
        order = np.random.default_rng(0).permutation(len(source))
        releases = [table.pabidot(seed) for seed in range(SEEDS)]
        own = [like_records(source, released) for released in releases]
        others = [like_records(source, released[order]) for released in releases]
        rows.append(
            [
                name, len(source), LIKE_RECORDS[name][1], float(np.mean(own)), min(own), max(own),
                float(np.mean(others)), like_records(source, source[order]),
                max(like_fields(source, released) for released in releases), source.shape[1],
            ]
        )  # fmt: skip
    found = Table(
        "like",
        "Percentage of records whose values are accepted as one distribution at 5 %, and largest number of "
        f"such fields; mean, least and greatest of {SEEDS} releases.",
        (
            "table", "rows", "paper, own record", "ours, own record", "least", "greatest", "another's record",
            "source's, another's record",
            "like fields", "fields",
        ),
        rows,
    )  # fmt: skip
    return Figures([found])


def judge_tests(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if the paper's percentages are among ours (5 points), and records of others are rejected."""
    table = figures.table("like")
    paper, own = table.numbers("paper, own record"), table.numbers("ours, own record")
    others = table.numbers("another's record")
    near = sum(
        least - 5 <= one <= greatest + 5
        for one, least, greatest in zip(paper, table.numbers("least"), table.numbers("greatest"), strict=True)
    )
    widest = max(
        greatest - least
        for least, greatest in zip(table.numbers("least"), table.numbers("greatest"), strict=True)
    )
    blind = sum(abs(one - other) <= 5 for one, other in zip(own, others, strict=True))
    like, fields = sum(table.column("like fields")), sum(table.column("fields"))
    reason = (
        f"In {near} of {len(paper)} tables the paper's percentage is among those of our {SEEDS} releases, "
        f"to 5 points; they differ by up to {widest:.0f} points, since the random translation moves them. "
        f"The test sees no record, however: in {blind} of {len(paper)} tables it accepts the perturbed "
        f"values of another row as often, within 5 points. Of {fields} fields {fields - like} change their "
        "distribution, as the paper finds."
    )
    return ("reproduced" if near == len(paper) and blind == 0 else "differs"), reason


TABLE_6 = Experiment(
    "table-6",
    "Table 6",
    "Kolmogorov-Smirnov tests of records and fields",
    ("PABIDOT",),
    "perturbed records keep the distribution of their values, so that records stay intact, while fields do "
    "not",
    f"Two-sample tests at 5 % as Matlab's kstest2, in the source's units, at sigma 0.3. {NOT_AT_HAND}",
    run_tests,
    judge_tests,
)


def entropy(values: npt.NDArray[np.float64]) -> float:
    """Shannon entropy of the distinct values of a field, in bits (equation 43)."""
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def mean_entropy(values: Matrix) -> float:
    """Return the mean entropy of the fields, in bits."""
    return float(np.mean([entropy(column) for column in values.T]))


def run_entropy(data: Data) -> Figures:
    """Compute the mean entropy before and after, and that of values that are all distinct."""
    rows: list[list[Cell]] = []
    for name in FILES:
        table = labelled(data, name)
        before, after = mean_entropy(table.values), mean_entropy(table.pabidot())
        ideal = float(np.log2(table.table.num_rows))
        rows.append([name, before, after, INCREASE[name], after - before, ideal - before])
    found = Table(
        "entropy",
        "Mean entropy of the fields in bits.",
        ("table", "before", "after", "paper, increase", "ours, increase", "increase by any distinct numbers"),
        rows,
    )
    return Figures([found])


def judge_entropy(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if each increase is within 1 % of the paper's, or 0.05 bits."""
    table = figures.table("entropy")
    paper, ours = table.numbers("paper, increase"), table.numbers("ours, increase")
    distinct = table.numbers("increase by any distinct numbers")
    near = [abs(one - other) <= max(0.05, 0.01 * one) for one, other in zip(paper, ours, strict=True)]
    same = sum(abs(one - other) <= 0.001 for one, other in zip(ours, distinct, strict=True))
    far = ", ".join(name for name, each in zip(table.column("table"), near, strict=True) if not each)
    reason = (
        f"{sum(near)} of {len(near)} increases are the paper's to 1 % or 0.05 "
        f"bits{f' (not {far})' if far else ''}. In {same} of {len(ours)} tables the figure is log2(rows) "
        "less the entropy of the source: perturbed numbers are all distinct, and any other distinct numbers "
        "have the same entropy."
    )
    return ("reproduced" if all(near) else "differs"), reason


TABLE_8 = Experiment(
    "table-8",
    "Table 8",
    "increase of entropy",
    ("PABIDOT",),
    "perturbed fields have more entropy than the source's, which makes reconstruction harder",
    f"Entropy of the distinct values, equations 43 and 44, at sigma 0.3. {NOT_AT_HAND}",
    run_entropy,
    judge_entropy,
)
