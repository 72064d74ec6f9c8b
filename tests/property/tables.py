"""Random tables, types and parameters."""

import datetime
import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

DAYS = [datetime.date(1969, 12, 31), datetime.date(2000, 1, 1), datetime.date(2024, 2, 29)]
MOMENTS = [datetime.datetime(1969, 7, 20, 20, 17, 40, 1), datetime.datetime(2024, 2, 29, 8, 30)]
UTC_MOMENTS = [moment.replace(tzinfo=datetime.UTC) for moment in MOMENTS]

# A few values of each type, so that classes hold several rows; names are for the reports of failures.
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, -1, 0, 7, 127]),
    "int64": (pa.int64(), [-(2**63), -250, -25, 0, 25, 251, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "float16": (pa.float16(), [-1.5, -0.0, 0.0, 0.25, 2.25, math.inf, math.nan]),
    "float32": (pa.float32(), [-1.5, -0.0, 0.0, 2.25, math.inf, math.nan]),
    "float64": (pa.float64(), [-math.inf, -1e300, -0.0, 0.0, 5e-324, 1.5, 30.0, math.nan]),
    "bool": (pa.bool_(), [False, True]),
    "string": (pa.string(), ["", "a", "ab", "abc", "b", "Ünï", "Üx", "🦊", "\U0010ffff", "\uffff"]),
    "large_string": (pa.large_string(), ["x", "xy", "y"]),
    "string_view": (pa.string_view(), ["x", "xy", "longer than twelve bytes"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["low", "lower", "high"]),
    "dictionary of int": (pa.dictionary(pa.int32(), pa.int64()), [30, -3, 300]),
    "dictionary of float16": (pa.dictionary(pa.int8(), pa.float16()), [1.5, -4.0, 2.25, 0.0, math.inf]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\x00", b"\xff"]),
    "fixed": (pa.binary(2), [b"\x00\x01", b"\xff\x00"]),
    "date32": (pa.date32(), DAYS),
    "timestamp": (pa.timestamp("us"), MOMENTS),
    "zoned": (pa.timestamp("us", "UTC"), UTC_MOMENTS),
    "time64": (pa.time64("us"), [datetime.time(0), datetime.time(8, 30), datetime.time(23, 59, 59, 1)]),
    "duration": (pa.duration("s"), [datetime.timedelta(seconds=s) for s in (-1, 0, 90)]),
    "decimal64": (pa.decimal64(9, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("18.25")]),
    "tenths": (pa.decimal128(25, 5), [Decimal("0.30000"), Decimal("0.60000"), Decimal("0.70000")]),
    "decimal128": (
        pa.decimal128(38, 2),
        [Decimal("-1.50"), Decimal("30.00"), Decimal(f"{10**35}.25"), Decimal(f"-{10**30}.25")],
    ),
    "list": (pa.list_(pa.float64()), [[], [1.0], [1.0, None], [math.nan], [-0.0], [0.0]]),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"a": None, "b": "x"}],
    ),
}

NESTED = ("list", "struct")
NUMERIC = (
    *("int8", "int64", "uint64", "float16", "float32", "float64"),
    *("dictionary of int", "dictionary of float16", "decimal64", "tenths", "decimal128"),
)
BREAKABLE: dict[str, list[list[Any]]] = {
    **{kind: [[0], [-0.5, 0.25, 30], [-(2**70), 18.25, 2**63, 2**64]] for kind in NUMERIC},
    "date32": [["2000-01-01"], ["1969-12-31", "2001-01-01"]],
    "timestamp": [["2000-01-01"], ["1969-07-20T20:17:40.000001", "2024-02-29 08:30"]],
    "zoned": [["2000-01-01T00:00:00Z"], ["1969-07-20", "2024-02-29T10:30+02:00"]],
}
GROUPABLE: dict[str, list[list[Any]]] = {
    "int64": [[-25, 25, 0], [251, 7]],
    "float16": [[-1.5, 0.25], [2.25]],
    "dictionary of float16": [[1.5, 2.25], [-4.0]],
    "float64": [[5e-324, 1.5], [30.0]],  # zero, of either sign, is in no group
    "bool": [[True], [False]],
    "string": [["a", "b", "nowhere"], ["🦊"]],
    "dictionary": [["low", "lower"], ["high"]],
    "dictionary of int": [[30], [-3, 5]],
    "date32": [["2000-01-01"], ["2024-02-29", "1969-12-31"]],
    "decimal128": [["30.00"], [-1.5]],
}
PREFIXABLE = ("int8", "int64", "uint64", "string", "large_string", "string_view", "dictionary")


def array(kind: str, values: Sequence[Any]) -> pa.Array:
    """The values in the type, a dictionary's in one that holds all of them."""
    data_type = KINDS[kind][0]
    if pa.types.is_dictionary(data_type):
        return pa.array(values, data_type.value_type).dictionary_encode().cast(data_type)
    return pa.array(values, data_type)


def from_pool(pool: Sequence[Any], rows: int) -> st.SearchStrategy[list[Any]]:
    """Draw `rows` values of a pool at once: `st.lists(st.sampled_from(pool))` takes many times as long."""
    assert len(pool) < 256 // 4
    drawn = st.binary(min_size=rows, max_size=rows)
    return drawn.map(lambda places: [pool[place % len(pool)] for place in places])


@st.composite
def columns(draw: st.DrawFn, kind: str, rows: int) -> pa.ChunkedArray:
    """A column of this kind, in one to three chunks; of a dictionary, each chunk may have its own."""
    values = draw(from_pool([*KINDS[kind][1], None], rows))
    cut = sorted(draw(st.lists(st.integers(0, rows), max_size=2)))
    whole = array(kind, values)
    spans = list(itertools.pairwise([0, *cut, rows]))
    if pa.types.is_dictionary(KINDS[kind][0]) and draw(st.booleans()):
        chunks = [array(kind, values[start:end]) for start, end in spans]
    else:
        chunks = [whole.slice(start, end - start) for start, end in spans]
    return pa.chunked_array(chunks, type=KINDS[kind][0])


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, tuple[str, ...]]:
    """A table of swap fields s0, s1, ..., control fields c0, c1 and one that stays; the kinds of c0, c1."""
    rows = draw(st.one_of(st.integers(0, 6), st.integers(0, 60)))
    swap_kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    orderable = sorted(set(KINDS) - set(NESTED))
    control_kinds = draw(st.lists(st.sampled_from(orderable), min_size=1, max_size=2))
    table = {f"s{at}": draw(columns(kind, rows)) for at, kind in enumerate(swap_kinds)}
    table |= {f"c{at}": draw(columns(kind, rows)) for at, kind in enumerate(control_kinds)}
    table["rest"] = pa.chunked_array([pa.array(range(1, rows + 1), pa.int16())])
    return pa.table(table), tuple(control_kinds)


@st.composite
def classifiers(draw: st.DrawFn, kind: str, in_memory: bool = True) -> Any:
    """A classifier that fits the kind; `in_memory` for those that need the whole table, too."""
    fitting: list[Any] = ["identity"]
    fitting += [{"breaks": breaks} for breaks in BREAKABLE.get(kind, [])]
    if kind in GROUPABLE:
        one, two = GROUPABLE[kind]
        others = ("identity", "one_class")
        fitting += [{"groups": {"one": one, "two": two}, "other": other} for other in others]
    if kind in PREFIXABLE:
        fitting += [{"prefix": 1}, {"prefix": 2}]
    if kind in BREAKABLE and in_memory:
        fitting += [{"quantiles": 2}, {"quantiles": 5}]
    return draw(st.sampled_from(fitting))


@st.composite
def risk_selections(draw: st.DrawFn, table: pa.Table) -> dict[str, Any]:
    """A parameter `risk` that fits the table: key fields of any type, weights, or given risks."""
    k = draw(st.sampled_from([0, 1, 2, 3, 5]))
    if draw(st.integers(0, 3)) == 0:
        return {"field": "rest", "k": k}
    names = st.sampled_from([name for name in table.column_names if name != "rest"])
    found = {"key_fields": draw(st.lists(names, min_size=1, max_size=2, unique=True)), "k": k}
    return found | ({"weight": "rest"} if draw(st.booleans()) else {})


@st.composite
def swap_parameters(
    draw: st.DrawFn, table: pa.Table, targets: bool = False, risks: bool = False
) -> dict[str, Any]:
    """Parameters that all swaps share.

    `targets`: also targets of epsilon, which some tables cannot meet; `risks`: rows are selected by risk.
    """
    swap_fields = [name for name in table.column_names if name.startswith("s")]
    policy = draw(st.sampled_from(["suppress", "keep", "drop", "fail"]))
    suppression: dict[str, Any] = {"policy": policy}
    if policy == "suppress" and draw(st.booleans()):
        names = st.sampled_from(table.column_names)
        suppression["fields"] = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    mechanisms: list[dict[str, Any]] = [{"rate": rate} for rate in (1.0, 1.0, 0.99, 0.5, 0.1)] + [
        {"mechanism": "permutation", "rate": 0.5},
        {"mechanism": "permutation", "rate": 0.93},
        *([{"mechanism": "permutation", "target_epsilon": 4}] if targets else []),
    ]
    if risks:
        mechanisms = [{"rate": rate, "risk": draw(risk_selections(table))} for rate in (0.05, 0.3, 0.7, 0.99)]
    return {
        "swap_fields": draw(st.permutations(swap_fields)),
        "locked": draw(st.booleans()),
        **draw(st.sampled_from(mechanisms)),
        "nulls": draw(st.sampled_from(["swap", "keep"])),
        "min_group_size": draw(st.sampled_from([2, 2, 3, 5])),
        "suppression": suppression,
        "on_reversible": draw(st.sampled_from(["warn", "warn", "warn", "fail"])),
    }
