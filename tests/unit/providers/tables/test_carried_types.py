"""Every type in every format: the same table is returned, or an error states that it is impossible."""

from datetime import date, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from app.formats.errors import FormatError
from app.formats.media_types import ARROW_STREAM, CSV, JSON, MEDIA_TYPES, PARQUET
from providers.tables.digest import table_digest
from providers.tables.type_names import parse_type
from tests.whole_tables import read_table, write_table

VALUES: dict[str, list[Any]] = {
    "null": [None, None],
    "bool": [True, None, False],
    **{f"int{bits}": [-(2 ** (bits - 1)), None, 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": [0, None, 2**bits - 1] for bits in (8, 16, 32, 64)},
    **{f"float{bits}": [0.5, None, -0.0, float("nan"), float("-inf"), 5.0] for bits in (16, 32, 64)},
    "decimal(9,2)": [Decimal("1.50"), None, Decimal("-9999999.99")],
    "decimal(76,0)": [Decimal(10) ** 75, None],
    "decimal(5,-2)": [Decimal("12300"), None],
    "string": ["", None, 'a"b,c\r\n', "NA", "Zoë 😀", " 007"],
    "binary": [b"", None, b"\x00\xff"],
    "fixed_binary(3)": [b"abc", None],
    "fixed_binary(0)": [b"", None],
    "date": [date(2024, 2, 29), None, date(1, 1, 1)],
    **{f"time[{unit}]": [time(12, 30), None] for unit in ("s", "ms", "us", "ns")},
    **{f"timestamp[{unit}]": [1_700_000_000, None, -1] for unit in ("s", "ms", "us", "ns")},
    "timestamp[us, Europe/Dublin]": [1_700_000_000_000_000, None, -(10**15)],
    **{f"duration[{unit}]": [90, None, -1] for unit in ("s", "ms", "us", "ns")},
    "interval": [(1, 2, 3), None],
    "list<int64>": [[1, None], None, []],
    "list<list<string>>": [[["a"], None], None, []],
    "struct<a: int64, b: list<string>>": [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}],
    "struct<>": [{}, None],
    "map<string, decimal(5,2)>": [[("k", Decimal("1.25"))], None, []],
}

_NESTED = {name for name in VALUES if "<" in name}
CANNOT = {
    JSON: {"interval"},
    CSV: _NESTED | {"interval"},
    ARROW_STREAM: set[str](),
    PARQUET: {"interval", "struct<>", "fixed_binary(0)", "decimal(5,-2)"},
}


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@pytest.mark.parametrize("name", VALUES)
def test_a_type_comes_back_or_is_said_not_to_be_carried(name: str, media_type: str) -> None:
    table = pa.table({"other": [1] * len(VALUES[name]), "field": pa.array(VALUES[name], parse_type(name))})
    if name in CANNOT[media_type]:
        with pytest.raises(FormatError, match=r"field 'field' .*; use |'field' holds intervals"):
            b"".join(write_table(media_type, table))
        return
    body = b"".join(write_table(media_type, table))
    fields = {"field": name} if media_type == CSV else None
    assert table_digest(read_table(media_type, body, fields)) == table_digest(table)
