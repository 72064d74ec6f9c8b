"""Calls that the service carries out, for what is made from the document alone is refused nearly always.

The document cannot say that a swap field is one of the source's: a request that is right by it and knows
nothing of the rows ends at the first check of names. So a share of the calls keep what was made for them in
numbers, words and flags, and get rows, and the names of their fields, that belong together.
"""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.marks import NUMBER, TEXT

ROWS = [
    {"name": f"{TEXT}-{row}", "city": ("Cork", "Dublin", "Galway")[row % 3], "age": 20 + row * 7 % 50,
     "income": NUMBER + row * 37 % 100, "hours": float(row * 5 % 13)}
    for row in range(24)
]  # fmt: skip
_SWAP = {"swap_fields": ["income", "name"], "min_group_size": 2}
_NUMERIC = ["age", "hours"]
PARAMETERS: dict[str, dict[str, Any]] = {
    "DSWAP": _SWAP,
    "CDSWAP": _SWAP | {"control_field": "city"},
    "DDSWAP": _SWAP | {"control_field": "age", "block_size": 6},
    "MEWS": {"swap_fields": _NUMERIC, "bins": 3},
    "MEDS": {"swap_fields": _NUMERIC, "k": 6},
    "RWN": {"perturb_fields": ["income"], "distance_fields": _NUMERIC, "k": 3},
    "PABIDOT": {"fields": ["age", "hours", "income"]},
    "LOCALITY": {"fields": _NUMERIC, "segment_size": 12},
    "RSWAP": {"hierarchy": ["city"], "risk_fields": ["age"], "swap_rate": 0.5},
}
"""Service -> parameters that fit those rows."""
_OF_ROWS = {
    "source",
    "destination",
    "parameters",
    "services",
    "measures",
    "webhook",
    "reference",
    "validate_only",
}


def grounded(operation: str, body: dict[str, Any]) -> dict[str, Any]:
    """Adapt the body to existing rows, for the operation of this id; unchanged for any other operation."""
    kept = {name: value for name, value in body.items() if name not in _OF_ROWS}
    kept.pop("candidates", None)  # up to 100 runs of a service
    kept.pop("deadline_seconds", None)  # mostly short ones
    source = {"rows": ROWS}
    if operation == "measure":
        swapped = [row | {"age": ROWS[number - 1]["age"]} for number, row in enumerate(ROWS)]
        return kept | {"source": source, "destination": {"rows": swapped}}
    if operation == "compareServices":
        named = {"risk", "utility", "key_fields", "runs"}
        kept = {name: value for name, value in kept.items() if name not in named}
        return kept | {"source": source, "services": [{"service": "DSWAP", "parameters": _SWAP}]}
    service = operation.removeprefix("run").upper()
    if service not in PARAMETERS:
        return body
    made = body.get("parameters")
    plain = (
        {name: value for name, value in made.items() if isinstance(value, bool | int | float)}
        if isinstance(made, dict)
        else {}
    )
    return kept | {"source": source, "parameters": plain | PARAMETERS[service]}


def arrow_stream() -> bytes:
    """Encode the rows as an Arrow stream."""
    sink = io.BytesIO()
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet_file() -> bytes:
    """Encode the rows as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def csv_file() -> bytes:
    """Encode the rows as a CSV."""
    lines = [",".join(ROWS[0]), *(",".join(map(str, row.values())) for row in ROWS)]
    return "\n".join(lines).encode()
