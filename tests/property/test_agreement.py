"""Fast and naive agree exactly, in values and figures, over random tables, types and parameters."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive.agreement import assert_agree
from tests.property.tables import classifiers, swap_parameters, tables

SEEDS = st.binary(min_size=32, max_size=32)


@given(st.data(), SEEDS)
def test_dswap(data: st.DataObject, seed: bytes) -> None:
    """DSWAP is its twin."""
    table, _ = data.draw(tables())
    assert_agree("DSWAP", table, data.draw(swap_parameters(table)), seed)


@given(st.data(), SEEDS)
def test_cdswap(data: st.DataObject, seed: bytes) -> None:
    """CDSWAP is its twin, under every classifier."""
    table, kinds = data.draw(tables())
    parameters = data.draw(swap_parameters(table))
    parameters["control_field"] = [f"c{at}" for at in range(len(kinds))]
    parameters["classifier"] = [data.draw(classifiers(kind)) for kind in kinds]
    assert_agree("CDSWAP", table, parameters, seed)


@given(st.data(), SEEDS)
def test_ddswap(data: st.DataObject, seed: bytes) -> None:
    """DDSWAP is its twin."""
    table, kinds = data.draw(tables())
    parameters = data.draw(swap_parameters(table))
    parameters["control_field"] = data.draw(st.permutations([f"c{at}" for at in range(len(kinds))]))
    parameters["block_size"] = data.draw(st.integers(parameters["min_group_size"], 9))
    assert_agree("DDSWAP", table, parameters, seed)


@pytest.mark.parametrize("rows", [8191, 8192, 8193, 20011])
@pytest.mark.parametrize("rate", [1.0, 0.37])
def test_across_the_sizes_of_buckets(rows: int, rate: float) -> None:
    """Groups around the size from which they are put in order by buckets, beside small ones."""
    random = np.random.default_rng(rows)
    table = pa.table(
        {
            "n": pa.array(np.arange(rows + 50)),
            "t": pa.array(random.integers(0, 9, rows + 50).astype(str)),
            "class": pa.array(random.permutation(np.repeat([0, 1, 2], [rows, 49, 1]))),
        }
    )
    shared = {"swap_fields": ["n", "t"], "rate": rate}
    assert_agree("DSWAP", table.slice(0, rows), shared)
    assert_agree("CDSWAP", table, {**shared, "control_field": "class", "locked": True})
    assert_agree("DDSWAP", table, {**shared, "control_field": "class", "block_size": rows})
