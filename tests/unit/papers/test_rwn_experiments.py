"""Experiments of source 002 on small tables."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from benchmarks.papers.experiments import Cell, Data, Figures, Table
from benchmarks.papers.runs import table_of
from benchmarks.papers.rwn import comparison, forests, mean_k_anonymity
from benchmarks.papers.rwn.source import RWN
from providers.measures.risk.mean_k import mean_k

ROOT = Path(__file__).parents[3]


def test_mean_k_is_that_of_the_measure() -> None:
    """Means over rows of a small table of repeated values."""
    values = np.random.default_rng(5).integers(0, 3, (50, 3)).astype(float)
    found = mean_k_anonymity.mean_k(values)
    assert found == pytest.approx(mean_k(table_of(values, "abc"), ["a", "b", "c"]))
    assert found > 1


@pytest.mark.parametrize(
    ("swapped", "least", "verdict"),
    [(470.0, 10, "reproduced"), (490.0, 10, "differs"), (440.0, 10, "differs"), (470.0, 9, "differs")],
)
def test_verdict_of_table_1(swapped: float, least: int, verdict: str) -> None:
    """Rank swapping has to lose, near the paper's number; clusters have to be of the wanted size."""
    rows: list[list[Cell]] = [
        ["none", 5, 480.9, 480.9, 1],
        ["rank swapping, R0 = 0.90", 5, 467.6, swapped, 1],
        ["RWN", 5, 483.2, 484, 1],
        [mean_k_anonymity.MDAV, 5, None, 700.0, least],
    ]
    table = Table("mka", "", ("method", "m", "paper", "ours", "least k"), rows)
    columns = ("rank swapping", "m", "paper", "source", "no tails")
    other = Table("variants", "", columns, [["R0 = 0.90", 5, 467.6, 480.9, 468.0]])
    found, reason = mean_k_anonymity.judge(Figures([table, other]))
    assert found == verdict
    assert "gives 97 to 97 %: 1 of 1 such readings" in reason


def test_methods_of_table_1(data_of_census: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters of ten rows or more are equal rows; ages are rounded before or after the swap."""
    monkeypatch.setattr(mean_k_anonymity, "RUNS", 1)
    figures = mean_k_anonymity.run(data_of_census)
    table = figures.table("mka")
    clustered = table.where(method=mean_k_anonymity.MDAV)
    assert min(clustered.column("least k")) >= 10 > min(table.where(method="none").column("least k"))
    assert [row[:2] for row in figures.table("variants").rows] == [
        ["R0 = 0.10", 5], ["R0 = 0.90", 5], ["R0 = 0.10", 25], ["R0 = 0.90", 25]
    ]  # fmt: skip
    source = mean_k_anonymity.census(data_of_census, 0)
    assert mean_k_anonymity.rounded(source, 25)[:, 0] == pytest.approx([0, 25] * 60)
    assert (mean_k_anonymity.census(data_of_census, 25)[:, 0] == [0, 25] * 60).all()


@pytest.fixture
def data_of_census(tmp_path: Path) -> Data:
    """A table with the fields of svcensus, of 120 persons of 12 or 13 years."""
    random = np.random.default_rng(7)
    table = {
        "age": [12, 13] * 60,
        "educ": random.choice(["14", "16"], 120),
        "wkswrkd": np.arange(120),
        "gender": random.choice(["female", "male"], 120),
    }
    pyarrow.csv.write_csv(pa.table(table), tmp_path / "svcensus.csv")
    return Data(tmp_path)


def test_methods_are_compared_at_equal_distances() -> None:
    """Measures between releases, on the line from one to the next."""
    rows = [
        [method, index, shift + 2.0 * index, 10.0 * index]
        for method, shift in zip(comparison.METHODS, (0, 1, 2), strict=True)
        for index in (1, 2, 3)
    ]
    table = Table("comparison", "", ("method", "index", "DCR", "IL1"), rows)
    found = comparison.at_equal_dcr(Figures([table]), "IL1", [4.0, 5.0, 6.0])
    assert {method: values.tolist() for method, values in found.items()} == {
        "RWN": [20, 25, 30], "rank swapping": [15, 20, 25], "microaggregation": [10, 15, 20]
    }  # fmt: skip


def altered(identifier: str, table: str, column: str, change: Callable[[float], float], **cells: Cell) -> str:
    """Return the verdict of a stored experiment after a change of some rows' numbers."""
    content = json.loads((ROOT / "docs/papers/002.json").read_text(encoding="utf-8"))
    (entry,) = (each for each in content["experiments"] if each["identifier"] == identifier)
    (found,) = (each for each in entry["tables"] if each["name"] == table)
    place = found["columns"].index(column)
    for row in found["rows"]:
        if all(row[found["columns"].index(name)] == value for name, value in cells.items()):
            row[place] = change(row[place])
    (experiment,) = (each for each in RWN.experiments if each.identifier == identifier)
    return experiment.judge(Figures.of_json(entry))[0]


@pytest.mark.parametrize(
    ("identifier", "table", "column", "cells"),
    [
        ("figure-1", "sizes", "size of observation 37", {"epsilon": 1}),
        ("standard-errors", "errors", "released / source error", {"q": 0.01}),
        ("figure-2", "tradeoff", "PSCR", {"k": 75}),
        ("figure-2", "source", "ours", {}),
        ("figure-9", "comparison", "SD interval", {"method": "RWN"}),
        ("figure-9", "comparison", "DCR", {"method": "rank swapping"}),
        ("figure-11", "comparison", "IL1", {"method": "RWN"}),
        ("figure-11", "comparison", "IL3", {"method": "RWN"}),
    ],
)
def test_verdicts_depend_on_the_numbers(
    identifier: str, table: str, column: str, cells: dict[str, Cell]
) -> None:
    """A reproduced experiment differs if its numbers are eight times as large; unchanged it does not."""
    assert altered(identifier, table, column, float) == "reproduced"
    assert altered(identifier, table, column, lambda number: 8 * number + 0.1, **cells) == "differs"


def test_forests_are_reproduced_near_the_papers_rates() -> None:
    """A rate that is off by 0.03 or more differs."""
    rates: list[list[Cell]] = [
        [name, place, paper, paper] for name in ("pef", "pima") for place, paper in enumerate((0.63, 0.64))
    ]
    total = Table("total", "", ("paper", "ours"), [[1.133, 1.134]])
    columns = ("table", "release", "paper", "ours")
    assert forests.judge(Figures([Table("rates", "", columns, rates), total]))[0] == "reproduced"
    rates[1][3] = 0.68
    assert forests.judge(Figures([Table("rates", "", columns, rates), total]))[0] == "differs"


def test_epsilons_of_table_3() -> None:
    """First and last tuning parameters, and the methods' releases of a small table."""
    assert [comparison.EPSILON[index] for index in (1, 15)] == [0.25, 0.95]
    assert [comparison.REACH[index] for index in (1, 15)] == [0.12, 0.54]
    assert [comparison.SIZE[index] for index in (1, 15)] == [2, 16]
    fields = ["siri", "weight", "height", "age"]
    source = np.random.default_rng(8).uniform(1, 9, (60, 4))
    for method, release in comparison.releases(source, fields).items():
        released = release(15, 1)
        found = comparison.measured(source, released, fields)
        assert found.dcr > 0
        assert found.il1 > 0
        assert np.array_equal(release(15, 2), released) == (method == "microaggregation")
    same = comparison.measured(source, source, fields)
    assert (same.dcr, same.pscr, same.interval_sd, same.il1, same.il3) == (0, 1, 1, 0, 0)
