"""Experiments on the manual's claims, on small tables, against counts by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from benchmarks.papers.experiments import Cell, Data, Figures, Table
from benchmarks.papers.optim import claims

random = np.random.default_rng(11)


def written(folder: Path, name: str, columns: dict[str, Any]) -> Data:
    pyarrow.csv.write_csv(pa.table(columns), folder / f"{name}.csv")
    return Data(folder)


def test_masked_shares_by_hand() -> None:
    before = np.array(["a", "b", "a", "a"], object)
    after = [np.array(release, object) for release in (["b", "a", "a", "a"], ["a", "a", "b", "a"])]
    assert claims.masked_shares(before, after) == {"b": (1, 1.0), "a": (3, pytest.approx(1 / 3))}


def test_masking_of_a_small_table(tmp_path: Path) -> None:
    """A rare value is masked nearly always, a frequent one as the linear law says."""
    education = ["rare"] * 20 + ["middle"] * 480 + ["frequent"] * 1500
    figures = claims.run_masking(written(tmp_path, "adult", {"education": education}))
    table = figures.table("masked")
    assert table.column("rows") == [20, 480, 1500]
    assert table.numbers("masked") == pytest.approx([0.99, 0.76, 0.25], abs=0.05)
    assert claims.judge_masking(figures)[0] == "differs"


@pytest.mark.parametrize(("masked", "verdict"), [((0.8, 0.2), "reproduced"), ((0.9, 0.6), "differs")])
def test_verdict_on_masking(masked: tuple[float, float], verdict: str) -> None:
    rows = [("a", 100, masked[0], 0.9), ("b", 400, masked[1], 0.6)]
    table = Table("masked", "", ("value", "rows", "masked", "linear law"), rows)
    assert claims.judge_masking(Figures([table]))[0] == verdict


def test_locked_swaps_of_a_small_table(tmp_path: Path) -> None:
    """Combinations of the locked fields stay; the other correlations go."""
    age = random.normal(size=4000)
    columns = {"age": age, "wageinc": age + 1, "wkswrkd": -age, "occ": age}
    figures = claims.run_locked(written(tmp_path, "svcensus", columns))
    source, independent, locked = figures.table("correlations").rows
    assert source[1:] == pytest.approx((1, -1, -1, 1))
    assert locked[1:4] == pytest.approx((1, -1, -1))
    assert [abs(float(str(cell))) < 0.1 for cell in (*independent[1:], locked[4])] == [True] * 5
    assert figures.table("combinations").rows == [["same combinations", 1]]


@pytest.mark.parametrize(
    ("independent", "locked", "same", "verdict"),
    [
        (0.0, 0.5, 1, "reproduced"),
        (0.3, 0.5, 1, "differs"),
        (0.0, 0.4, 1, "differs"),
        (0.0, 0.5, 0, "differs"),
    ],
)
def test_verdict_on_locked_swaps(independent: float, locked: float, same: int, verdict: str) -> None:
    rows: list[list[Cell]] = [
        [name, *[correlation] * 3, 0.0]
        for name, correlation in (("source", 0.5), ("independent", independent), ("locked", locked))
    ]
    correlations = Table("correlations", "", ("release", "1", "2", "3", "4"), rows)
    combinations = Table("combinations", "", ("property", "holds"), [["same combinations", same]])
    assert claims.judge_locked(Figures([correlations, combinations]))[0] == verdict


def test_classes_of_a_small_table(tmp_path: Path) -> None:
    """Values stay in their country; the only row of a country is suppressed."""
    countries = ["one"] * 50 + ["two"] * 50 + ["three"]
    education = [f"{country}-{row % 5}" for row, country in enumerate(countries)]
    figures = claims.run_classes(
        written(tmp_path, "adult", {"native-country": countries, "education": education})
    )
    assert [row[1] for row in figures.table("classes").rows] == [3, 1, 0, 1, 0]
    assert claims.judge_classes(figures)[0] == "reproduced"


@pytest.mark.parametrize("broken", ["values that left their class", "singletons that keep their value"])
def test_verdict_on_classes(broken: str) -> None:
    numbers = {
        "classes": 3, "classes of one row": 1, "values that left their class": 0, "rows suppressed": 1,
        "singletons that keep their value": 0,
    }  # fmt: skip
    rows: list[list[Cell]] = [[name, number] for name, number in (numbers | {broken: 1}).items()]
    assert claims.judge_classes(Figures([Table("classes", "", ("figure", "number"), rows)]))[0] == "differs"


def test_distances_of_a_small_table(tmp_path: Path) -> None:
    """Blocks of two are the closest pairs; larger blocks are between these and a random swap."""
    age = random.permutation(400).astype(float)
    figures = claims.run_distances(written(tmp_path, "svcensus", {"age": age}))
    table = figures.table("distances")
    assert claims.least_distance(age) == 1
    by_block = table.where(method="DDSWAP").numbers("distance")
    assert by_block[0] == 1
    assert by_block == sorted(by_block)
    assert by_block[-1] < table.where(method="DSWAP").numbers("distance")[0]
    assert claims.judge_distances(figures)[0] == "differs"
