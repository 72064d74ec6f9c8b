"""A large body that is parsed in another process gives the table, the rest and the errors of a small one."""

import gc
import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from app.engine.engine import Failure
from app.engine.outcome_message import decode_outcome, encode_outcome
from app.formats.errors import FormatError
from app.formats.json_input import table_from_columns, table_from_rows
from app.requests.source import ParsedTable, Source
from app.worker import run_parse as module
from app.worker.run_parse import ParseTask, run_parse, tables_of

ROWS: list[dict[str, Any]] = [
    {"city": "Bern", "age": 31, "tags": ["a", None]},
    {"city": None, "age": 2**60, "tags": []},
]


def parsed(document: Any) -> Any:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    outcome = run_parse(ParseTask(body))
    assert not isinstance(outcome, Failure)
    assert decode_outcome(encode_outcome(outcome)) == outcome  # it crosses to the service as data
    return outcome


def test_tables_leave_the_document_and_the_rest_stays_exact() -> None:
    rest = {
        "parameters": {"large": 2**200, "share": 0.1, "text": "ä\u2028"},
        "destination": {"reference": "x"},
    }
    outcome = parsed({"source": {"rows": ROWS, "fields": {"age": "int64"}}} | rest)
    assert json.loads(outcome["document"]) == {"source": {"fields": {"age": "int64"}}} | rest
    ((member, form, stream, _, _),) = tables_of(outcome)
    assert (member, form) == ("source", "rows")
    assert ParsedTable(stream).table().equals(table_from_rows(ROWS, {"age": "int64"}))


def test_both_tables_of_a_request_are_taken() -> None:
    columns = {"age": [1, 2.5, None]}
    outcome = parsed({"source": {"columns": columns}, "destination": {"rows": ROWS}})
    assert json.loads(outcome["document"]) == {"source": {}, "destination": {}}
    tables = {(member, form): ParsedTable(stream).table() for member, form, stream, *_ in tables_of(outcome)}
    assert tables["source", "columns"].equals(table_from_columns(columns))
    assert tables["destination", "rows"].equals(table_from_rows(ROWS))


@pytest.mark.parametrize(
    "source",
    [
        {"rows": [{"a": 1}, 2]},
        {"rows": [{"a": 1}, {"a": "x"}]},
        {"rows": [[], []]},
        {"columns": {"a": [1], "b": [1, 2]}},
        {"rows": [{"a": 1}], "fields": {"a": "int65"}},
        {"rows": [{"a": 1}], "fields": {"b": "int64"}},
        {"rows": [{"a": 1.5}], "fields": [{"name": "a", "type": "int64"}]},
    ],
)
def test_the_error_of_a_table_is_the_one_of_a_small_body(source: dict[str, Any]) -> None:
    fields = Source.model_validate({"rows": [], "fields": source.get("fields")}).fields
    read: Any = table_from_rows if "rows" in source else table_from_columns
    with pytest.raises(FormatError) as expected:
        read(source.get("rows", source.get("columns")), fields)
    ((_, _, stream, message, pointer),) = tables_of(parsed({"source": source}))
    with pytest.raises(FormatError) as found:
        ParsedTable(stream, message, pointer).table()
    assert (found.value.message, found.value.pointer) == (expected.value.message, expected.value.pointer)


def test_a_table_that_another_process_forged_is_not_read() -> None:
    """Offsets beyond the text would give the caller memory of the service, such as keys, as rows."""
    ((_, _, stream, _, _),) = tables_of(parsed({"source": {"rows": [{"a": "x" * 10}, {"a": "y" * 10}]}}))
    assert stream is not None
    offsets = struct.pack("<3i", 0, 10, 20)
    assert stream.count(offsets) == 1
    forged = stream.replace(offsets, struct.pack("<3i", 0, 10, 1 << 20))
    with pytest.raises(pa.ArrowInvalid):
        ParsedTable(forged).table()
    for cut in (stream[: len(stream) // 2], b"", b"\xff" * 64):
        with pytest.raises((pa.ArrowInvalid, OSError)):
            ParsedTable(cut).table()


@pytest.mark.parametrize(
    "document", [[], 1, {"source": None}, {"source": {"rows": "x"}}, {"source": {"columns": []}}]
)
def test_what_is_no_table_stays_in_the_document(document: Any) -> None:
    outcome = parsed(document)
    assert (json.loads(outcome["document"]), outcome["tables"]) == (document, [])


def test_a_body_that_is_no_json_or_has_a_name_twice_is_refused() -> None:
    assert "invalid" in parsed(b'{"source": ')
    assert parsed(b'{"source": {"rows": [{"a": 1, "a": 2}]}}')["refused"][1] == "/source/rows/0/a"


def test_a_large_rest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REST_BYTES", 100)
    assert parsed({"source": {"rows": ROWS * 50}})["tables"]
    failure = run_parse(ParseTask(json.dumps({"parameters": [[]] * 50}).encode()))
    assert isinstance(failure, Failure)
    assert failure.code == "content_too_large"


def test_no_garbage_is_collected_meanwhile() -> None:
    """A body of many lists took five times as long."""
    phases: list[str] = []

    def record(phase: str, _: dict[str, int]) -> None:
        phases.append(phase)

    gc.callbacks.append(record)
    try:
        parsed({"source": {"rows": [[]] * 5000}})
    finally:
        gc.callbacks.remove(record)
    assert not phases
    assert gc.isenabled()


def test_a_rest_of_many_lists_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service parses the rest in its event loop: nested lists of a megabyte took half a second."""
    monkeypatch.setattr(module, "MOST_REST_OPENINGS", 60)
    assert parsed({"source": {"rows": ROWS * 50}, "parameters": [[]] * 50})["tables"]
    failure = run_parse(ParseTask(json.dumps({"parameters": [[]] * 60}).encode()))
    assert isinstance(failure, Failure)
    assert failure.code == "content_too_large"
    assert "has 62 lists and objects, and at most 60" in failure.message
