"""Parse the JSON body of a large or dense request in a process of its own, whose memory is limited.

A parsed document may take thirty times its text. So the service gets the tables of the request as Arrow
streams, and the rest, which must be small, as JSON text again.
"""

import gc
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pydantic_core import from_json

from app.engine.engine import MEMORY_LIMIT, TOO_LARGE, Failure, Outcome
from app.formats.errors import FormatError
from app.formats.json_input import named_types, table_from_columns, table_from_rows
from app.formats.json_text import check_text, is_doubtful, openings_in
from app.store.blobs.arrow_stream import table_bytes

MOST_REST_BYTES = 1 << 20
"""Largest JSON text of a request without the rows of its tables."""

MOST_REST_OPENINGS = 1 << 17
"""Most lists and objects in it: the service parses this text in its event loop."""

_TABLES = ("source", "destination", "control")
"""Members of a request that may hold a table."""


@dataclass(frozen=True, slots=True)
class ParseTask:
    """Body of a request."""

    body: bytes = field(repr=False)


def run_parse(task: ParseTask) -> Outcome:
    """Parse the body.

    Returns
    -------
    dict
        ``document``: JSON text without the rows and columns of tables. ``tables``: those as
        ``[member of the request, "rows" or "columns", message, pointer]``; a message says what is wrong with
        one. ``table 0``, ``table 1``, ...: Arrow stream of each table without a message. Or only ``invalid``:
        reason that the body is not JSON. Or only ``refused``: message and pointer of an object with a
        duplicate name, or of a number that loses digits.
    """
    os.environ["RUST_BACKTRACE"] = "0"  # a panic without memory would hang while it collects its stack
    try:
        with _without_collections():
            return _parsed(task.body)
    except FormatError as error:
        return {"refused": [error.message, error.pointer]}
    except ValueError as error:
        return {"invalid": str(error)}
    except (MemoryError, Exception):
        raise
    except BaseException as error:  # the parser's extension panics when it gets no memory
        return Failure(MEMORY_LIMIT, type(error).__qualname__)


def tables_of(outcome: dict[str, Any]) -> Iterator[tuple[str, str, bytes | None, str, str]]:
    """Yield member, form, stream, message and pointer of each table in the result of `run_parse`."""
    for number, (member, form, message, pointer) in enumerate(outcome["tables"]):
        yield member, form, outcome.get(f"table {number}"), message, pointer


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage: each collection visits all values of the document, which has no cycles.

    The rows of 5 MiB take a third of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _parsed(body: bytes) -> Outcome:
    document = from_json(body, allow_inf_nan=False, cache_strings="keys")
    if is_doubtful(body, document):
        check_text(body)
    tables: list[list[str]] = []
    streams: dict[str, bytes] = {}
    for member in _TABLES if type(document) is dict else ():
        given = document.get(member)
        if type(given) is dict:
            for form, kind in (("rows", list), ("columns", dict)):
                if type(given.get(form)) is kind:
                    stream, *fault = _table(form, given.pop(form), given.get("fields"))
                    if stream is not None:
                        streams[f"table {len(tables)}"] = stream
                    tables.append([member, form, *fault])
    rest = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    if len(rest) > MOST_REST_BYTES:
        return Failure(
            TOO_LARGE,
            f"without the rows of its tables, the request takes {len(rest)} bytes, and at most "
            f"{MOST_REST_BYTES} are read",
        )
    if (openings := openings_in(rest)) > MOST_REST_OPENINGS:
        return Failure(
            TOO_LARGE,
            f"without the rows of its tables, the request has {openings} lists and objects, and at most "
            f"{MOST_REST_OPENINGS} are read",
        )
    return {"document": rest, "tables": tables} | streams


def _table(form: str, values: Any, fields: Any) -> tuple[bytes | None, str, str]:
    """Return the stream of the table, or what is wrong with it and where."""
    try:
        fields = named_types(fields)
    except FormatError as error:
        return None, error.message, error.pointer
    if fields is not None and not (
        type(fields) is dict and all(type(type_text) is str for type_text in fields.values())
    ):
        return None, "'fields' is invalid", "/fields"  # the validation of the request says so before
    try:
        table: pa.Table = (table_from_rows if form == "rows" else table_from_columns)(values, fields)
    except FormatError as error:
        return None, error.message, error.pointer
    return table_bytes(table.schema, table.to_batches()), "", ""
