"""Fast and naive agree exactly, in values and figures, over random tables, types and parameters."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.results import SwapResult
from providers.services.ddswap import DdswapParams
from tests.naive import ddswap
from tests.naive.agreement import assert_agree, swap
from tests.naive.swapping import Outcome
from tests.property.tables import classifiers, swap_parameters, tables

SEEDS = st.binary(min_size=32, max_size=32)


@given(st.data(), SEEDS)
def test_dswap(data: st.DataObject, seed: bytes) -> None:
    """DSWAP is its twin."""
    table, _ = data.draw(tables())
    assert_agree("DSWAP", table, data.draw(swap_parameters(table, targets=True)), seed)


@given(st.data(), SEEDS)
@pytest.mark.parametrize("service", ["DSWAP", "CDSWAP", "DDSWAP"])
def test_selection_by_risk(service: str, data: st.DataObject, seed: bytes) -> None:
    """Rows selected by risk, their partners and the report by decile are those of the twin."""
    table, kinds = data.draw(tables())
    parameters = data.draw(swap_parameters(table, risks=True))
    if service != "DSWAP":
        parameters["control_field"] = [f"c{at}" for at in range(len(kinds))]
    if service == "DDSWAP":
        parameters["block_size"] = data.draw(st.integers(parameters["min_group_size"], 9))
    fast, naive = assert_agree(service, table, parameters, seed)
    if fast is not None and service == "DDSWAP":
        assert_distances_agree(fast, naive, table, parameters)


@given(st.data(), SEEDS)
def test_cdswap(data: st.DataObject, seed: bytes) -> None:
    """CDSWAP is its twin, under every classifier."""
    table, kinds = data.draw(tables())
    parameters = data.draw(swap_parameters(table, targets=True))
    parameters["control_field"] = [f"c{at}" for at in range(len(kinds))]
    parameters["classifier"] = [data.draw(classifiers(kind)) for kind in kinds]
    assert_agree("CDSWAP", table, parameters, seed)


@given(st.data(), SEEDS)
def test_ddswap(data: st.DataObject, seed: bytes) -> None:
    """DDSWAP is its twin."""
    table, kinds = data.draw(tables())
    parameters = data.draw(swap_parameters(table, targets=True))
    parameters["control_field"] = data.draw(st.permutations([f"c{at}" for at in range(len(kinds))]))
    parameters["block_size"] = data.draw(st.integers(parameters["min_group_size"], 9))
    fast, naive = assert_agree("DDSWAP", table, parameters, seed)
    if fast is not None:
        assert_distances_agree(fast, naive, table, parameters)


def assert_distances_agree(
    fast: SwapResult, naive: Outcome, table: pa.Table, parameters: dict[str, Any]
) -> None:
    """Assert that the report's swapping distances are those of the twin."""
    params = DdswapParams.model_validate(parameters)
    ranks, units = ddswap.distances(table.to_pydict(), params, naive)
    figures = fast.provider["swapping_distance"]
    assert figures["ranks"] == summarised(ranks)
    unit = unit_of(table.schema.field(params.control_field[0]).type)
    if len(params.control_field) > 1 or unit is None:
        assert "units" not in figures
    else:
        assert figures["units"] == {**summarised(units), "unit": unit}


def summarised(distances: list[float]) -> dict[str, Any]:
    """Mean and largest, None of none."""
    if not distances:
        return {"mean": None, "largest": None}
    mean = sum(distances) / len(distances)
    return {"mean": pytest.approx(mean, rel=1e-9), "largest": pytest.approx(max(distances), rel=1e-9)}


def unit_of(kind: pa.DataType) -> str | None:
    """Unit in which distances on a field of this type are measured."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_date(kind):
        return "days"
    if pa.types.is_temporal(kind):
        return "seconds"
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "field" if numeric else None


def test_distances_over_many_blocks() -> None:
    """More blocks than are summed together, locked or not, some rows left aside."""
    random = np.random.default_rng(1)
    table = pa.table({"v": np.arange(5003), "w": np.arange(5003), "c": random.normal(size=5003)})
    for locked, rate in ((True, 1.0), (False, 1.0), (False, 0.5)):
        parameters = {"swap_fields": ["v", "w"], "control_field": "c", "block_size": 3}
        parameters |= {"locked": locked, "rate": rate}
        fast, naive = assert_agree("DDSWAP", table, parameters)
        assert fast is not None
        assert_distances_agree(fast, naive, table, parameters)


@pytest.mark.parametrize(
    ("kind", "in_a_unit"),
    [
        (pa.int64(), 1),
        (pa.timestamp("ns"), 10**9),
        (pa.duration("us"), 10**6),
        (pa.timestamp("s", "Europe/Zurich"), 1),
    ],
)
def test_near_values_are_distinguished_next_to_extremes(kind: pa.DataType, in_a_unit: int) -> None:
    """Distances of 3, 25 and 2, and one of 2**64 - 3: exact, however far the field reaches."""
    least, most = -(2**63), 2**63 - 1
    stored = [least, least + 3, 10, 35, most - 2, most]
    table = pa.table({"v": range(6), "c": pa.array(stored, pa.int64()).cast(kind)})
    swapped: dict[int, dict[str, Any]] = {}
    for block_size in (2, 6):
        parameters = {"swap_fields": ["v"], "control_field": "c", "block_size": block_size}
        result = swap("DDSWAP", table, parameters)
        swapped[block_size] = result.provider["swapping_distance"]["units"]
    assert swapped[2]["mean"] == 10 / in_a_unit
    assert swapped[2]["largest"] == 25 / in_a_unit
    assert swapped[6]["largest"] in {float(here - there) / in_a_unit for here in stored for there in stored}


@pytest.mark.parametrize("rows", [8191, 8192, 8193, 20011])
@pytest.mark.parametrize("rate", [1.0, 0.37])
def test_across_the_sizes_of_buckets(rows: int, rate: float) -> None:
    """Groups around the size from which buckets order them, together with small groups."""
    random = np.random.default_rng(rows)
    table = pa.table(
        {
            "n": pa.array(np.arange(rows + 50)),
            "t": pa.array(random.integers(0, 9, rows + 50).astype(str)),
            "class": pa.array(random.permutation(np.repeat([0, 1, 2], [rows, 49, 1]))),
            "rest": pa.array(np.arange(rows + 50)),
        }
    )
    shared = {"swap_fields": ["n", "t"], "rate": rate}
    assert_agree("DSWAP", table.slice(0, rows), shared)
    assert_agree("CDSWAP", table, {**shared, "control_field": "class", "locked": True})
    assert_agree("DDSWAP", table, {**shared, "control_field": "class", "block_size": rows})


@pytest.mark.parametrize("locked", [False, True])
def test_a_large_class_among_many_small_ones(locked: bool) -> None:
    """It is put in order by its buckets, however few rows a class has on average."""
    number = np.arange(9_200)
    control = np.where(number % 46 == 0, number // 92, -1)
    table = pa.table({"v": number, "w": number * 3, "c": control, "rest": number})
    parameters = {"swap_fields": ["v", "w"], "control_field": "c", "locked": locked}
    result, _ = assert_agree("CDSWAP", table, parameters)
    assert result is not None
    assert result.summary.group_size.largest > 8192
