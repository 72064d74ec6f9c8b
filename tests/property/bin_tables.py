"""Random tables of numbers for swapping within bins: ties, lattices, duplicates, outliers, huge and tiny."""

import itertools
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.property.tables import from_pool

NUMBERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "lattice": (pa.int8(), list(range(-3, 9))),
    "integers": (pa.int64(), [0, 1, 2, 3, 7, 20, 21, 100]),
    "beyond 2**53": (pa.int64(), [2**53 + 1, 2**53 + 2, 2**53 + 9, 2**60, -(2**55) - 1]),
    "unsigned": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "reals": (pa.float64(), [-0.0, 0.0, 0.1, 0.25, 0.3, 1.0, 2.5, 3.7, 9.9, 10.0]),
    "floats": (pa.float32(), [0.1, 0.25, 1.5, 1.75, -3.125]),
    "outliers": (pa.float64(), [0.0, 0.5, 1.0, 1.5, 40.0]),
    "huge": (pa.float64(), [-1e300, 1e290, 3e299, 1e300]),
    "tiny": (pa.float64(), [0.0, 5e-324, 1e-323, 1e-322]),
    "decimals": (pa.decimal128(20, 2), [Decimal("-1.50"), Decimal("0.25"), Decimal("18.75")]),
    "tenths": (pa.decimal128(25, 5), [Decimal(f"{tenth}e-1") for tenth in (3, 6, 7, 12, 35, 47, -3)]),
    "encoded": (pa.dictionary(pa.int8(), pa.int64()), [30, -3, 0, 31]),
    "constant": (pa.float64(), [2.5]),
}
NAMES = ["x", "net income (€)", "🦊", "a/b~c", "é y"]


def array(kind: str, values: list[Any]) -> pa.Array:
    """The values in the type."""
    data_type = NUMBERS[kind][0]
    if pa.types.is_dictionary(data_type):
        return pa.array(values, data_type.value_type).dictionary_encode().cast(data_type)
    return pa.array(values, data_type)


@st.composite
def number_tables(draw: st.DrawFn) -> tuple[pa.Table, list[str], bool]:
    """A table, its fields to swap, and whether one of their values is null or not finite."""
    rows = draw(st.one_of(st.integers(0, 5), st.integers(0, 50)))
    kinds = draw(st.lists(st.sampled_from(sorted(NUMBERS)), min_size=2, max_size=5))
    swapped = draw(st.integers(1, len(kinds) - 1))
    gaps = draw(st.booleans())
    columns: dict[str, pa.ChunkedArray] = {}
    unusable = False
    for name, kind in itertools.zip_longest(NAMES[: len(kinds)], kinds):
        pool = list(NUMBERS[kind][1])
        if gaps:
            pool.append(None)
            pool += [math.nan, math.inf] if pa.types.is_floating(NUMBERS[kind][0]) else []
        values = draw(from_pool(pool, rows))
        unusable |= any(value is None or not math.isfinite(value) for value in values)
        whole = array(kind, values)
        cut = draw(st.integers(0, rows))
        columns[name] = pa.chunked_array([whole[:cut], whole[cut:]], type=NUMBERS[kind][0])
    table = pa.table({**columns, "label": pa.array(range(rows)).cast(pa.string())})
    return table, NAMES[:swapped], unusable


@st.composite
def selected_by_risk(draw: st.DrawFn, table: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    """The table with a field of weights, and the parameters `risk` and `rate`."""
    names = draw(st.lists(st.sampled_from(table.column_names), min_size=1, max_size=2, unique=True))
    table = table.append_column("rest", pa.array(range(1, table.num_rows + 1), pa.int16()))
    k = draw(st.sampled_from([0, 1, 2, 3, 5]))
    risks: list[dict[str, Any]] = [
        {"key_fields": names, "k": k},
        {"key_fields": names, "weight": "rest", "k": k},
        {"field": "rest", "k": k},
    ]
    rate = draw(st.sampled_from([0.05, 0.3, 0.7, 0.99]))
    return table, {"risk": draw(st.sampled_from(risks)), "rate": rate}


@st.composite
def bin_parameters(
    draw: st.DrawFn, table: pa.Table, swap_fields: list[str], unusable: bool
) -> dict[str, Any]:
    """Parameters that MEWS and MEDS share."""
    policy = draw(st.sampled_from(["suppress", "keep", "drop", "fail"]))
    suppression: dict[str, Any] = {"policy": policy}
    if policy == "suppress" and draw(st.booleans()):
        suppression["fields"] = draw(st.lists(st.sampled_from(["label", "x"]), min_size=1, unique=True))
    return {
        "swap_fields": draw(st.permutations(swap_fields)),
        "others": draw(st.sampled_from(["keep", "univariate"])) if table.num_rows else "keep",
        "nulls": "keep" if unusable else draw(st.sampled_from(["fail", "keep"])),
        "suppression": suppression,
    }
