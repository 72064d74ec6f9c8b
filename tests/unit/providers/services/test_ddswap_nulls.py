"""DDSWAP with `nulls: keep`: each field has its own blocks, cut among the rows that take part."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.naive.agreement import assert_agree, swap
from tests.property.out_of_core import assert_same

ROWS = 2000


def table_of(share: float) -> pa.Table:
    """Table with a field of the given share of nulls, one of 20 % nulls, one without, and a control field."""
    random = np.random.default_rng(7)
    return pa.table(
        {
            "income": pa.array(np.arange(ROWS), mask=random.random(ROWS) < share),
            "savings": pa.array(np.arange(ROWS) * 3, mask=random.random(ROWS) < 0.2),
            "number": np.arange(ROWS),
            "age": random.permutation(ROWS) / 7,
            "city": np.arange(ROWS) % 5,
        }
    )


@pytest.mark.parametrize("block_size", [2, 3, 10])
@pytest.mark.parametrize("locked", [False, True])
def test_no_value_is_left_alone(block_size: int, locked: bool) -> None:
    """At 70 % nulls every value moves; blocks of all rows would leave half of them without a partner."""
    table = table_of(0.7)
    parameters = {
        "swap_fields": ["income", "savings", "number"],
        "control_field": "age",
        "block_size": block_size,
        "locked": locked,
        "nulls": "keep",
    }
    result, _ = assert_agree("DDSWAP", table, parameters)
    assert result is not None
    assert result.summary.suppressed == 0
    assert set(result.summary.unswapped_reasons) == {"null"}
    nulls = {name: np.asarray(table[name].is_null()) for name in ("income", "savings", "number")}
    any_null = np.logical_or.reduce(list(nulls.values()))
    for name, field_nulls in nulls.items():
        absent = any_null if locked else field_nulls
        assert result.summary.changed[name] == ROWS - absent.sum()
        kept = np.asarray(result.table[name].to_pandas())[absent]
        assert np.array_equal(kept, np.asarray(table[name].to_pandas())[absent], equal_nan=True)


def test_blocks_are_of_the_rows_that_take_part() -> None:
    """Blocks are full, and counted among the rows that take part; `groups` are those of the first field."""
    table = table_of(0.7)
    parameters = {
        "swap_fields": ["income", "number"],
        "control_field": "age",
        "block_size": 4,
        "nulls": "keep",
    }
    result = swap("DDSWAP", table, parameters)
    present = ROWS - table["income"].null_count
    assert result.provider["blocks_by_field"] == {"income": blocks(present, 4), "number": blocks(ROWS, 4)}
    assert result.provider["blocks"] == result.summary.groups == blocks(present, 4)
    assert result.provider["swapping_distance"]["ranks"]["largest"] <= 4
    reversed_fields = swap("DDSWAP", table, {**parameters, "swap_fields": ["number", "income"]})
    assert reversed_fields.summary.groups == blocks(ROWS, 4)
    assert reversed_fields.table.equals(result.table)


def blocks(rows: int, size: int) -> int:
    """Expected number of blocks: a remainder of one row joins the block before it."""
    return -(-rows // size) - (rows % size == 1)


def test_a_field_without_nulls_moves_as_with_nulls_swapped() -> None:
    """A field without nulls has the blocks of all rows, whatever the other fields hold."""
    parameters = {"swap_fields": ["number", "income"], "control_field": "age", "block_size": 5}
    keep = swap("DDSWAP", table_of(0.7), {**parameters, "nulls": "keep"}).table
    assert keep["number"].equals(swap("DDSWAP", table_of(0.7), parameters).table["number"])


@pytest.mark.parametrize(
    "more",
    [{}, {"locked": True}, {"rate": 0.97}, {"suppression": {"policy": "drop"}, "min_group_size": 4}],
    ids=str,
)
@pytest.mark.parametrize("units", [1, 2, 5])
def test_out_of_core_and_in_units(more: dict[str, Any], units: int) -> None:
    """Bytes and report are the same although each field has its own blocks, even a field of nulls only."""
    table = table_of(0.7).slice(0, 401).append_column("none", pa.nulls(401, pa.int32()))
    parameters = {
        "swap_fields": ["savings", "number", "income", "none"],
        "control_field": "age",
        "block_size": 5,
        "nulls": "keep",
        **more,
    }
    assert assert_same("DDSWAP", table, parameters, 4096, 97, units) is not None


def test_an_epsilon_of_two_fields_holds_for_people_in_one_block_of_each() -> None:
    """Rows 2 and 3 share a block of `a`; a null in row 0 cuts the blocks of `b` between them."""
    b = [None, 12, 13, 14, 15, 16]
    exchanged = {"a": [1, 2, 4, 3, 5, 6], "b": [None, 12, 14, 13, 15, 16]}
    tables = [pa.table({"z": range(6), **fields}) for fields in ({"a": range(1, 7), "b": b}, exchanged)]
    parameters = {"swap_fields": ["a", "b"], "control_field": "z", "block_size": 2, "nulls": "keep"}
    parameters |= {"mechanism": "permutation", "rate": 0.5}
    released = []
    for table in tables:
        results = [swap("DDSWAP", table, parameters, bytes([seed] * 32)) for seed in range(40)]
        released.append({tuple(each.table["b"].to_pylist()) for each in results})
    assert not released[0] & released[1]
    assert "are in one group in each field" in results[0].provider["guarantee"]["holds_for"]
