"""Rows that a worker encodes for the response are those that the service would encode itself."""

import math
from datetime import date
from decimal import Decimal

import orjson
import pyarrow as pa
import pytest

from app.formats.json_output import json_chunks
from app.store.blobs.arrow_stream import table_bytes
from app.worker.run_swap import _encoded_rows

TABLES = {
    "types": pa.table(
        {
            "number": [0.1, math.nan, None, -math.inf],
            'a "name"': [1, None, -(2**63), 2**63 - 1],
            "text": ['"', "\\ü\n", "", None],
            "day": [date(2026, 1, 1), None, date(1, 1, 1), date(9999, 12, 31)],
            "exact": pa.array([Decimal("1.10"), None, Decimal(0), Decimal("-9.99")], pa.decimal128(5, 2)),
            "nested": [[1, 2], [], None, [3]],
        }
    ),
    "no rows": pa.table({"a": pa.array([], pa.int64())}),
    "no fields": pa.table({}),
}


@pytest.mark.parametrize("name", TABLES)
def test_they_are_those_of_the_service(name: str) -> None:
    table = TABLES[name]
    encoded = _encoded_rows(table_bytes(table.schema, table.to_batches()))
    assert encoded is not None
    whole = b"".join(json_chunks(table.schema, table.to_batches()))
    assert whole.endswith(b',"rows":' + encoded + b"}")
    assert len(orjson.loads(encoded)) == table.num_rows


def test_a_table_that_is_small_only_in_arrow_has_none() -> None:
    """Its rows would be megabytes of text in one message, and in the event loop."""
    table = pa.table({"nothing": pa.nulls(200_000)})
    content = table_bytes(table.schema, table.to_batches())
    assert len(content) < 2**17
    assert _encoded_rows(content) is None


def test_a_table_that_json_cannot_represent_has_none() -> None:
    table = pa.table({"span": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    assert _encoded_rows(table_bytes(table.schema, table.to_batches())) is None
