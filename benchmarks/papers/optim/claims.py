"""Claims of the manual's module Data Swapping on DSWAP, CDSWAP and DDSWAP, measured."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.papers.experiments import Cell, Chart, Data, Experiment, Figures, Series, Table, Verdict
from benchmarks.papers.runs import Matrix, matrix, swap

SEEDS = 5
BLOCKS = (2, 3, 10, 50)
_CENSUS_FIELDS = ["age", "wageinc", "wkswrkd"]


def masked_shares(
    before: npt.NDArray[np.object_], after: list[npt.NDArray[np.object_]]
) -> dict[str, tuple[int, float]]:
    """Return for each value its frequency, and the share of its rows whose value differs in a release."""
    found = {}
    for value, frequency in sorted(Counter(before.tolist()).items(), key=lambda item: item[1]):
        rows = before == value
        found[str(value)] = frequency, float(np.mean([(release[rows] != value).mean() for release in after]))
    return found


def run_masking(data: Data) -> Figures:
    """Measure how often a swap of adult's education changes a row, by the frequency of its value."""
    table = data.read("adult").select(["education"])
    before = np.array(table["education"].to_pylist(), object)
    after = [
        np.array(
            swap("DSWAP", table, {"swap_fields": ["education"]}, seed).table["education"].to_pylist(), object
        )
        for seed in range(SEEDS)
    ]
    rows: list[list[Cell]] = [
        [value, frequency, share, 1 - (frequency - 1) / (len(before) - 1)]
        for value, (frequency, share) in masked_shares(before, after).items()
    ]
    found = Table(
        "masked",
        "Share of a value's rows that show another value.",
        ("value", "rows", "masked", "linear law"),
        rows,
    )
    chart = Chart(
        "masked", "points", "Masked share by frequency", "rows with the value", "masked share",
        [
            Series("measured", found.column("rows"), found.numbers("masked")),
            Series("1 - (f - 1) / (n - 1)", found.column("rows"), found.numbers("linear law")),
        ],
    )  # fmt: skip
    return Figures([found], [chart])


def judge_masking(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if masked share times frequency is constant (a factor of 2)."""
    table = figures.table("masked")
    frequency, masked = table.numbers("rows"), table.numbers("masked")
    products = [one * other for one, other in zip(frequency, masked, strict=True)]
    error = max(abs(one - other) for one, other in zip(masked, table.numbers("linear law"), strict=True))
    reason = (
        f"Values of {frequency[0]:.0f} rows are masked in {100 * masked[0]:.1f} %, those of "
        f"{frequency[-1]:,.0f} rows in {100 * masked[-1]:.1f} %. The share falls, but linearly: it is 1 - (f "
        f"- 1) / (n - 1) for a value of f of n rows, to {error:.3f}. In inverse proportion the product of "
        "share and frequency would be constant; it varies by a factor of "
        f"{max(products) / min(products):.0f}."
    )
    return ("reproduced" if max(products) <= 2 * min(products) else "differs"), reason


MASKING = Experiment(
    "masking",
    "Data Swapping",
    "masking by frequency",
    ("DSWAP",),
    "the probability that a swap masks a row is inversely proportional to the frequency of its value",
    f"adult, education (16 values), all rows, {SEEDS} seeds.",
    run_masking,
    judge_masking,
)


def run_locked(data: Data) -> Figures:
    """Compare correlations of swap fields after a swap of each field and after a locked swap."""
    table = data.read("svcensus").select([*_CENSUS_FIELDS, "occ"])
    rows: list[list[Cell]] = []
    releases = {"source": table}
    for name, locked in (("independent", False), ("locked", True)):
        parameters = {"swap_fields": _CENSUS_FIELDS, "locked": locked}
        releases[name] = swap("DSWAP", table, parameters).table
    for name, release in releases.items():
        correlations: Matrix = np.asarray(np.corrcoef(matrix(release).T))
        rows.append([name, *(float(correlations[pair]) for pair in ((0, 1), (0, 2), (1, 2), (0, 3)))])
    kept = _combinations(releases["locked"]) == _combinations(table)
    found = Table(
        "correlations",
        "Correlations; the first three are between swap fields.",
        ("release", "age, wageinc", "age, wkswrkd", "wageinc, wkswrkd", "age, occ"),
        rows,
    )
    combined = Table(
        "combinations", "After the locked swap.", ("property", "holds"), [["same combinations", int(kept)]]
    )
    return Figures([found, combined])


def _combinations(table: pa.Table) -> Counter[tuple[float, ...]]:
    """Count the combinations of values of the swap fields."""
    return Counter(tuple(row) for row in matrix(table, _CENSUS_FIELDS).tolist())


def judge_locked(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if locked swaps keep correlations (0.001) and combinations, and others none (0.05)."""
    source, independent, locked = (
        np.array([float(str(cell)) for cell in row[1:4]]) for row in figures.table("correlations").rows
    )
    kept, left = float(np.abs(locked - source).max()), float(np.abs(independent).max())
    same = figures.table("combinations").column("holds") == [1]
    return ("reproduced" if kept <= 0.001 and left <= 0.05 and same else "differs"), (
        f"A locked swap changes the correlations of its fields by at most {kept:.1g}, and "
        f"{'keeps' if same else 'does not keep'} every combination of their values; after independent swaps "
        f"the largest correlation is {left:.3f}. Correlations of swap fields with other fields are lost in "
        "either case. The manual notes that locking all fields only reorders the rows: the service refuses "
        "that."
    )


LOCKED = Experiment(
    "locked",
    "Data Swapping, locked swap",
    "correlations of locked and independent swaps",
    ("DSWAP",),
    "a locked swap keeps the correlations between its fields, and independent swaps lose them",
    "svcensus, age, wageinc and wkswrkd swapped, one seed.",
    run_locked,
    judge_locked,
)


def run_classes(data: Data) -> Figures:
    """Swap adult's education within countries, suppressing singletons, and compare the classes."""
    table = data.read("adult").select(["native-country", "education"])
    given = {"swap_fields": ["education"], "control_field": "native-country"}
    result = swap("CDSWAP", table, given)
    countries = np.array(table["native-country"].to_pylist(), object)
    sizes = Counter(countries.tolist())
    before, after = table["education"].to_pylist(), result.table["education"].to_pylist()
    alone = [row for row, country in enumerate(countries) if sizes[country] == 1]
    others = [row for row, country in enumerate(countries) if sizes[country] > 1]
    moved = Counter((countries[row], before[row]) for row in others)
    moved.subtract((countries[row], after[row]) for row in others)
    rows: list[list[Cell]] = [
        ["classes", len(sizes)],
        ["classes of one row", len(alone)],
        ["values that left their class", sum(abs(count) for count in moved.values())],
        ["rows suppressed", sum(value is None for value in after)],
        ["singletons that keep their value", sum(before[row] == after[row] for row in alone)],
    ]
    return Figures(
        [Table("classes", "Swap within the classes of native-country.", ("figure", "number"), rows)]
    )


def judge_classes(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if no value leaves its class, and exactly the singletons are suppressed."""
    rows = figures.table("classes")
    number = dict(zip(rows.column("figure"), rows.column("number"), strict=True))
    left, alone = number["values that left their class"], number["classes of one row"]
    suppressed, kept = number["rows suppressed"], number["singletons that keep their value"]
    return ("reproduced" if left == 0 and suppressed == alone and kept == 0 else "differs"), (
        f"Of {number['classes']} classes {left} values left theirs; {alone} class has one row, and "
        f"{suppressed} row was suppressed."
    )


CLASSES = Experiment(
    "classes",
    "Class-based Data Swapping",
    "swaps within classes",
    ("CDSWAP",),
    "values are exchanged only within the classes of the control field, and rows without a partner can be "
    "suppressed",
    "adult, education swapped within native-country, suppression by default.",
    run_classes,
    judge_classes,
)


def least_distance(control: Matrix) -> float:
    """Return the least mean distance of a pairing of all rows: neighbours in ascending order.

    Parameters
    ----------
    control : ndarray of float64, shape (rows,)
        An even number of values.
    """
    ordered = np.sort(control)
    return float((ordered[1::2] - ordered[::2]).mean())


def run_distances(data: Data) -> Figures:
    """Measure the distance in age between the rows that exchange their values."""
    source = data.read("svcensus")
    rows = source.num_rows - source.num_rows % 2
    age = matrix(source.select(["age"]))[:rows, 0]
    table = pa.table({"age": age, "row": np.arange(rows)})

    def distance(service: str, parameters: dict[str, object]) -> float:
        donors = swap(service, table, {"swap_fields": ["row"], **parameters}).table["row"].to_numpy()
        return float(np.abs(age[donors] - age).mean())

    lines: list[list[Cell]] = [["DSWAP", None, distance("DSWAP", {})]]
    lines += [
        ["DDSWAP", size, distance("DDSWAP", {"control_field": "age", "block_size": size})] for size in BLOCKS
    ]
    lines.append(["least possible", None, least_distance(age)])
    return Figures(
        [
            Table(
                "distances",
                "Mean difference of age between a row and the row whose value it shows, in years.",
                ("method", "block size", "distance"),
                lines,
            )
        ]
    )


def judge_distances(figures: Figures) -> tuple[Verdict, str]:
    """Reproduced if the distance is the least possible (10 %) at each block size."""
    table = figures.table("distances")
    swapped = table.where(method="DDSWAP")
    least = table.where(method="least possible").numbers("distance")[0]
    apart = table.where(method="DSWAP").numbers("distance")[0]
    ratios = [distance / least for distance in swapped.numbers("distance")]
    listed = ", ".join(
        f"{ratio:.1f} ({size})" for ratio, size in zip(ratios, swapped.column("block size"), strict=True)
    )
    return ("reproduced" if max(ratios) <= 1.1 else "differs"), (
        f"Partners differ by {swapped.numbers('distance')[-1]:.4f} years in blocks of "
        f"{swapped.column('block size')[-1]}, against {apart:.1f} with DSWAP, so that the block size limits "
        "the distance. It is minimised only in blocks of 2: pairs are random within a block, and their "
        f"distance is as many times the least possible: {listed}."
    )


DISTANCES = Experiment(
    "distances",
    "Distance-based Data Swapping",
    "distance between partners",
    ("DDSWAP",),
    "the swap minimises the distance between paired rows in the control field",
    "svcensus, control field age; the swapped field numbers the rows, which shows the partners.",
    run_distances,
    judge_distances,
)
