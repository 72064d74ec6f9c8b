"""No value leaves its class or its block, over random tables, types and classifiers."""

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from providers import PROVIDERS
from providers.services.cdswap import CdswapParams
from providers.services.ddswap import DdswapParams
from tests.naive import cdswap, ddswap
from tests.naive.agreement import swap
from tests.property.tables import classifiers, swap_parameters, tables


def counted(values: list[Any], keys: list[Any]) -> Counter[tuple[str, str]]:
    """Number of occurrences of each value under each key."""
    return Counter((repr(value), repr(key)) for value, key in zip(values, keys, strict=True))


def assert_stay(
    source: pa.Table, destination: pa.Table, fields: list[str], keys: list[Any] | dict[str, list[Any]]
) -> None:
    """Each value occurs as often under each key (of its field) as before, and other fields are untouched."""
    for name in source.column_names:
        before, after = source[name].to_pylist(), destination[name].to_pylist()
        if name in fields:
            of_rows = keys[name] if isinstance(keys, dict) else keys
            assert counted(before, of_rows) == counted(after, of_rows), name
        else:
            assert repr(before) == repr(after), name
    assert destination.schema == source.schema


@given(st.data())
def test_no_value_leaves_its_class(data: st.DataObject) -> None:
    """CDSWAP, values kept: by class every swap field holds what it held."""
    table, kinds = data.draw(tables())
    parameters = data.draw(swap_parameters(table)) | {
        "suppression": {"policy": "keep"},
        "on_reversible": "warn",
        "control_field": [f"c{at}" for at in range(len(kinds))],
        "classifier": [data.draw(classifiers(kind)) for kind in kinds],
    }
    params = PROVIDERS["CDSWAP"].params.model_validate(parameters)
    assert isinstance(params, CdswapParams)
    numbers: dict[Any, int] = {}  # of equal keys one, also of 0.0 and -0.0
    keys = [numbers.setdefault(key, len(numbers)) for key in cdswap.classes(table.to_pydict(), params)]
    assert_stay(table, swap("CDSWAP", table, parameters).table, parameters["swap_fields"], keys)


@given(st.data())
def test_no_value_leaves_its_block(data: st.DataObject) -> None:
    """DDSWAP, values kept: by block every swap field holds what it held, and no value travels further.

    Blocks are of the rows that take part; every other row is one of its own, as it keeps its value.
    """
    table, kinds = data.draw(tables())
    parameters = data.draw(swap_parameters(table)) | {
        "suppression": {"policy": "keep"},
        "on_reversible": "warn",
        "control_field": [f"c{at}" for at in range(len(kinds))],
        "block_size": data.draw(st.integers(5, 12)),
    }
    params = PROVIDERS["DDSWAP"].params.model_validate(parameters)
    assert isinstance(params, DdswapParams)
    order = ddswap.ranked(table.to_pydict(), params)
    absent = ddswap.absent_rows(table.to_pydict(), params)
    result = swap("DDSWAP", table, parameters)
    keys: dict[str, list[Any]] = {}
    for name in parameters["swap_fields"]:
        blocks = ddswap.blocks([row for row in order if row not in absent[name]], params.block_size)
        key_of = {row: block.identity for block in blocks for row in block.rows}
        keys[name] = [key_of.get(row, -1 - row) for row in range(table.num_rows)]
    assert_stay(table, result.table, parameters["swap_fields"], keys)
    largest = result.provider["swapping_distance"]["ranks"]["largest"]
    assert largest is None or largest <= params.block_size


@given(st.data())
def test_marginals_are_untouched(data: st.DataObject) -> None:
    """DSWAP, values kept: every field holds the values that it held."""
    table, _ = data.draw(tables())
    parameters = data.draw(swap_parameters(table)) | {"suppression": {"policy": "keep"}}
    parameters["on_reversible"] = "warn"
    result = swap("DSWAP", table, parameters)
    assert_stay(table, result.table, parameters["swap_fields"], [0] * table.num_rows)


@given(st.data())
def test_locked_fields_keep_together(data: st.DataObject) -> None:
    """Locked, the swap fields' values of a row come from one row."""
    table, _ = data.draw(tables())
    parameters = data.draw(swap_parameters(table)) | {"suppression": {"policy": "keep"}, "locked": True}
    parameters["on_reversible"] = "warn"
    found = swap("DSWAP", table, parameters).table
    names = parameters["swap_fields"]

    def combinations(of: pa.Table) -> Counter[str]:
        return Counter(map(repr, zip(*(of[name].to_pylist() for name in names), strict=True)))

    assert combinations(found) == combinations(table)
