"""Checks and repairs of DSWAP, CDSWAP and DDSWAP are their twin's over random tables and expressions."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive.agreement import assert_agree
from tests.property.tables import from_pool

SEEDS = st.binary(min_size=32, max_size=32)

NUMBERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "a": (pa.int8(), [0, 1, 2, 3, None]),
    "b": (pa.float64(), [0.0, 1.5, 2.0, float("nan"), None]),
    "c": (pa.uint64(), [0, 1, 2, 2**64 - 1]),
}
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Numbers, text in a dictionary, and a group."""
    rows = draw(st.integers(0, 30))
    columns = {name: pa.array(draw(from_pool(pool, rows)), kind) for name, (kind, pool) in NUMBERS.items()}
    for name in ("text", "other text"):
        values = draw(from_pool(["x", "y", "é", None], rows))
        columns[name] = pa.array(values, pa.string())
    columns["text"] = columns["text"].dictionary_encode()
    columns["group"] = pa.array(draw(from_pool(range(3), rows)), pa.int64())
    return pa.table(columns)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """A comparison that fits the tables."""
    names = st.sampled_from(["a", "b", "c"])
    compare = draw(OPERATORS)
    return draw(
        st.sampled_from(
            [
                f"{draw(names)} {compare} {draw(names)}",
                f"{draw(names)} {compare} {draw(st.integers(0, 3))}",
                f"{draw(st.integers(0, 3))} {compare} {draw(names)} {draw(OPERATORS)} {draw(names)}",
                f'text {compare} field("other text")',
                f'text {compare} "y"',
                f"b {compare} -0.5",
            ]
        )
    )


def expressions() -> st.SearchStrategy[str]:
    """Comparisons joined by `and`, `or`, `not` and parentheses."""
    return st.recursive(
        comparisons(),
        lambda inner: st.one_of(
            inner.map(lambda one: f"not ({one})"),
            st.tuples(inner, inner).map(lambda two: f"({two[0]}) or {two[1]}"),
            st.tuples(inner, inner).map(lambda two: f"({two[0]}) and {two[1]}"),
        ),
        max_leaves=3,
    ).filter(lambda text: len(text) <= 200)


@given(st.data(), SEEDS)
@pytest.mark.parametrize("service", ["DSWAP", "CDSWAP", "DDSWAP"])
def test_checks(service: str, data: st.DataObject, seed: bytes) -> None:
    """Counts before and after, values and figures; after a repair no exchange has broken a check."""
    policy = data.draw(st.sampled_from(["suppress", "keep", "drop"]))
    parameters: dict[str, Any] = {
        "swap_fields": data.draw(st.permutations(["a", "b", "text"])),
        "locked": data.draw(st.booleans()),
        "rate": data.draw(st.sampled_from([1.0, 1.0, 0.5])),
        "nulls": data.draw(st.sampled_from(["swap", "keep"])),
        "min_group_size": data.draw(st.sampled_from([2, 3])),
        "suppression": {"policy": policy},
        "checks": data.draw(st.lists(expressions(), min_size=1, max_size=3, unique=True)),
        "on_broken": data.draw(st.sampled_from(["report", "repair", "repair"])),
    }
    if service != "DSWAP":
        parameters["control_field"] = "group"
    if service == "DDSWAP":
        parameters["block_size"] = data.draw(st.integers(3, 9))
    fast, _ = assert_agree(service, data.draw(tables()), parameters, seed)
    assert fast is not None
    if parameters["on_broken"] == "repair":
        assert fast.provider["checks"]["rows_newly_broken"] == 0
