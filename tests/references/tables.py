"""Tables of these tests, as files and as requests."""

import gzip
import io
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

PARAMETERS = {"swap_fields": ["income"]}


def people(rows: int = 400) -> pa.Table:
    """A table of three fields that every media type carries."""
    return pa.table(
        {
            "income": [20_000 + 7 * row for row in range(rows)],
            "share": [row / 8 for row in range(rows)],
            "town": [f"Town-{row % 9}" for row in range(rows)],
        }
    )


def as_file(table: pa.Table, suffix: str) -> bytes:
    """The table as a file of that suffix would have it."""
    sink = io.BytesIO()
    if suffix.startswith(".arrow"):
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    elif suffix == ".parquet":
        pyarrow.parquet.write_table(table, sink)
    else:
        pyarrow.csv.write_csv(table, sink)
    return gzip.compress(sink.getvalue()) if suffix.endswith(".gz") else sink.getvalue()


def of_file(content: bytes, suffix: str) -> pa.Table:
    """The table of such a file."""
    if suffix.startswith(".arrow"):
        return pa.ipc.open_stream(content).read_all()
    if suffix == ".parquet":
        return pyarrow.parquet.read_table(io.BytesIO(content))
    return pyarrow.csv.read_csv(io.BytesIO(content))


def call(reference: str, to: str | None = None, **more: Any) -> dict[str, Any]:
    """A run of DSWAP from a reference, and to one."""
    body: dict[str, Any] = {"source": {"reference": reference}, "parameters": PARAMETERS, "seed": "2a"}
    return body | ({"destination": {"reference": to}} if to else {}) | more
