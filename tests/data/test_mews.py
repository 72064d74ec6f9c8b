"""MEWS on real tables: the grids of its section, equality with the twin, and the oracle."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers.binning.privacy import p_of_depths
from providers.services.cdswap import CdswapParams
from providers.services.ddswap import DdswapParams
from providers.services.mews import MewsParams
from providers.tables.numbers import is_numeric
from tests.bins_once import bins_made_once
from tests.data.test_real_tables import read
from tests.naive import cdswap, ddswap, mews
from tests.naive.agreement import assert_agree, swap
from tests.naive.bins import BinsOutcome, number
from tests.property.oracle import assert_as_expected

pytestmark = pytest.mark.realdata

GRIDS = [
    ("abalone", 100, (23, 103, 20, 279)),
    ("abalone", 500, (71, 500, 148, 76)),
    ("abalone", 1000, (118, 1000, 337, 30)),
    ("magic_gamma", 100, (14, 99, 15, 5900)),
    ("magic_gamma", 500, (41, 497, 130, 1878)),
    ("magic_gamma", 1000, (69, 1008, 365, 768)),
]


def numeric(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if is_numeric(field.type)]


@pytest.mark.parametrize(("name", "degree", "figures"), GRIDS)
def test_grid(data_dir: Path, name: str, degree: int, figures: tuple[int, int, int, int]) -> None:
    """Cells a field, bins, rows alone, largest bin."""
    table = read(data_dir / f"{name}.csv")
    fields = numeric(table)[:2]
    result = swap("MEWS", table, {"swap_fields": fields, "degree": degree, "singletons": "keep"})
    found = result.provider
    largest = result.summary.group_size.largest
    assert set(found["cells"].values()) == {figures[0]}
    assert (found["partition_degree"], found["singletons"], largest) == figures[1:]
    assert result.summary.unswapped == figures[2]


RUNS: list[tuple[str, dict[str, Any]]] = [
    ("abalone.csv", {"swap_fields": ["Length", "Diameter"], "degree": 500}),
    ("abalone.csv", {"swap_fields": ["Rings"], "bins": 10, "others": "univariate"}),
    ("magic_gamma.csv", {"swap_fields": ["fLength", "fWidth", "fSize"], "width": 0.5, "scale": "sd"}),
    ("adult.csv", {"swap_fields": ["age", "hours-per-week"], "width": [5, 10], "origin": 0}),
    ("wine_quality_white.csv", {"swap_fields": ["pH", "alcohol", "density"], "bins": [10, 20, 5]}),
    (
        "nycflights13_flights.parquet",
        {"swap_fields": ["dep_delay", "arr_delay"], "width": 15, "nulls": "keep", "singletons": "keep"},
    ),
]


@pytest.mark.parametrize(("file", "parameters"), RUNS)
def test_real_table(data_dir: Path, file: str, parameters: dict[str, Any]) -> None:
    """Equal to the twin in every value and figure."""
    table = read(data_dir / file)
    if parameters.get("others") != "univariate":
        fields = parameters["swap_fields"]
        bystander = next(name for name in table.column_names if name not in fields)
        table = table.select([*fields, bystander])
    fast, naive = assert_agree("MEWS", table, parameters)
    assert fast is not None
    assert isinstance(naive, BinsOutcome)
    assert {name: fast.provider[name] for name in naive.figures} == naive.figures
    assert fast.provider.get("others", {}) == naive.of_others


def test_chance_of_a_real_table(data_dir: Path) -> None:
    """The report's P is that of the twin, which tries the same partitionings."""
    table = read(data_dir / "testdata.csv")
    fields = ["age", "urbrur"]
    result = swap("MEWS", table, {"swap_fields": fields, "bins": 4})
    columns = [[number(value) for value in table[name].to_pylist()] for name in fields]
    found = result.measures["p_privacy"]
    assert found["p"] == mews.p_of(columns, 64, 0.5)
    one = p_of_depths([table.num_rows])
    assert one is not None
    assert one < found["p"] < 1
    depth = result.provider["minimal_depth"]
    assert (found["minimal_depth"], found["chance"]) == (depth, 1 / (depth - 1))


@pytest.mark.parametrize("widest", [1.0, 0.5, 0.1])
def test_chance_depends_on_the_widest_cell_that_is_admissible(data_dir: Path, widest: float) -> None:
    """At 1 the single cell counts as well; nothing but the figure depends on it."""
    table = read(data_dir / "abalone.csv")
    fields = ["Length", "Diameter"]
    parameters = {"swap_fields": fields, "bins": 10}
    columns = [[number(value) for value in table[name].to_pylist()] for name in fields]
    result = swap("MEWS", table, parameters | {"widest": widest})
    assert result.measures["p_privacy"]["p"] == mews.p_of(columns, 64, widest)
    other = swap("MEWS", table, parameters)
    assert result.table.equals(other.table)
    assert (result.provider, result.summary) == (other.provider, other.summary)


# ----------------------------------------------------------------------------------------- the oracle

S = ["Length", "Diameter", "Whole_weight"]
REST = ["Height", "Shell_weight", "Rings"]


def by_key(keys: Sequence[Any]) -> list[list[int]]:
    groups = defaultdict(list)
    for row, key in enumerate(keys):
        groups[key].append(row)
    return list(groups.values())


ORACLES: list[tuple[str, dict[str, Any]]] = [
    ("MEWS", {"bins": 12, "singletons": "merge"}),
    ("MEWS", {"degree": 100, "singletons": "keep"}),
    ("CDSWAP", {"control_field": "Rings", "locked": True, "suppression": {"policy": "keep"}}),
    ("DDSWAP", {"control_field": "Shell_weight", "block_size": 7, "locked": True}),
]


@pytest.mark.parametrize(("service", "parameters"), ORACLES)
def test_oracle(data_dir: Path, service: str, parameters: dict[str, Any]) -> None:
    """Correlations move as expected: not at all inside S and inside the rest, by the bins between them."""
    table = read(data_dir / "abalone.csv").select([*S, *REST])
    parameters = {"swap_fields": S, **parameters}
    rows = table.to_pydict()
    groups: list[list[int]]
    if service == "MEWS":
        columns = [[number(value) for value in rows[name]] for name in S]
        groups = mews.make_bins(MewsParams.model_validate(parameters), S, columns).rows
    elif service == "CDSWAP":
        groups = by_key(cdswap.classes(rows, CdswapParams.model_validate(parameters)))
    else:
        params = DdswapParams.model_validate(parameters)
        groups = [group.rows for group in ddswap.blocks(ddswap.ranked(rows, params), params.block_size)]
    with bins_made_once():
        assert_as_expected(lambda seed: swap(service, table, parameters, seed).table, table, S, REST, groups)
