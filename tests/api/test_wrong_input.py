"""Wrong input over a real socket: each mistake has its status, its code, its place and the real cause."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.errors import problem_codes
from tests.api.calls import ARROW, PARQUET, Api
from tests.conftest import Service

ROWS = [{"age": 31, "city": "x", "born": "1990-05-17"}, {"age": 32, "city": "x", "born": "1991-06-18"}]
PARAMETERS: dict[str, Any] = {"swap_fields": ["age"], "control_field": "city"}
CALL: dict[str, Any] = {"source": {"rows": ROWS}, "parameters": PARAMETERS}
TEXT = json.dumps(CALL).encode()
GZIP = {"content-encoding": "gzip"}
NO_CSV = "save a workbook such as .xlsx as CSV"
SEPARATED = "the header's names seem to be separated by {}, and the delimiter is ','"


def run(more: dict[str, Any] | None = None, service: str = "CDSWAP") -> dict[str, Any]:
    """A call of a service, with changed members."""
    return {"url": f"/v1/services/{service}", "json": CALL | (more or {})}


def parameters(more: dict[str, Any], service: str = "CDSWAP") -> dict[str, Any]:
    return run({"parameters": PARAMETERS | more}, service)


def body(content: bytes, **headers: str) -> dict[str, Any]:
    """A call whose body is sent as it is."""
    sent = {"content-type": "application/json"} | {name.replace("_", "-"): headers[name] for name in headers}
    return {"url": "/v1/services/CDSWAP", "content": content, "headers": sent}


def dated(text: str, data_type: str = "date") -> dict[str, Any]:
    """A call with a date in this form."""
    return run({"source": {"rows": [{**ROWS[0], "born": text}], "fields": {"born": data_type}}})


def stated(name: str, data_type: str = "int64") -> dict[str, str]:
    """A field with its type, as in a list of `fields`."""
    return {"name": name, "type": data_type}


def upload(content: bytes, media_type: str = "text/csv", **query: str) -> dict[str, Any]:
    headers = {"content-type": media_type}
    return {"url": "/v1/buffers", "content": content, "headers": headers, "params": query}


def get(url: str) -> dict[str, Any]:
    return {"url": url, "method": "GET"}


MISTAKES: dict[str, tuple[dict[str, Any], int, str, str, str]] = {
    # name: request, status, code, place of the first error, cause
    # -- numbers of rows that a service refuses
    "PABIDOT of one row": (
        run({"source": {"rows": [{"x": 1.5, "y": 2.5}]}, "parameters": {}}, "PABIDOT"),
        *(422, "invalid_source", "", "PABIDOT needs two rows or more; there are 1"),
    ),
    "more parts than rows": (
        run({"parameters": {"neighbours": "partition", "parts": 2}}, "RWN"),
        *(422, "invalid_source", "/parameters/parts", "use at most 1 parts"),
    ),
    # -- values of another type, and names given twice
    "text for an integer": (
        parameters({"min_group_size": "5"}),
        *(422, "invalid_request", "/parameters/min_group_size", 'send the number 5, not the text "5"'),
    ),
    "yes for true": (
        run({"validate_only": "yes"}),
        *(422, "invalid_request", "/validate_only", "must be true or false; a text was sent"),
    ),
    "a name twice": (
        body(TEXT.replace(b'"city": "x"', b'"city": "x", "city": "y"', 1)),
        *(422, "invalid_request", "/source/rows/0/city", "the name 'city' is given twice"),
    ),
    "a list for an object": (
        run({"source": ROWS}),
        *(422, "invalid_request", "/source", "must be an object; a list was sent"),
    ),
    "another case of an option": (
        run({"report": "Full"}),
        *(422, "invalid_request", "/report", "did you mean 'full'?"),
    ),
    "a field stated twice": (
        run({"source": {"rows": ROWS, "fields": [stated("age"), stated("age", "string")]}}),
        *(422, "invalid_request", "/source/fields/1/name", "field 'age' is listed twice; name each once"),
    ),
    "a field stated twice in a large body": (
        run({"source": {"rows": ROWS * 20_000, "fields": [stated("age"), stated("age", "string")]}}),
        *(422, "invalid_request", "/source/fields/1/name", "field 'age' is listed twice; name each once"),
    ),
    "a field stated without a type": (
        run({"source": {"rows": ROWS, "fields": [{"name": "age"}]}}),
        *(422, "invalid_request", "/source/fields/0", "a list of objects with name and type"),
    ),
    # -- names of other places
    "a parameter of another service": (
        parameters({"block_size": 5}),
        *(422, "invalid_request", "/parameters/block_size", "it is a parameter of DDSWAP, and CDSWAP has"),
    ),
    "a parameter of two other services": (
        parameters({"k": 5}),
        *(422, "invalid_request", "/parameters/k", "it is a parameter of MEDS and RWN"),
    ),
    "Optim's operand of another service": (
        parameters({"SWAP_BLOCK_SIZE": 5}),
        *(422, "invalid_request", "/parameters/SWAP_BLOCK_SIZE", "it is a parameter of DDSWAP"),
    ),
    "a parameter of another service in a comparison": (
        {
            "url": "/v1/frontier",
            "json": {
                "source": {"rows": ROWS},
                "services": [{"service": "CDSWAP", "parameters": PARAMETERS | {"k": 3}}],
            },
        },
        *(422, "invalid_parameter", "/services/0/parameters/k", "it is a parameter of MEDS and RWN"),
    ),
    "an unknown field by Optim's operand": (
        run({"parameters": {"SWAP_FIELD_NAMES": ["agee"], "SWAP_CONTROL_ATTR": "city"}}),
        *(422, "invalid_parameter", "/parameters/SWAP_FIELD_NAMES/0", "did you mean 'age'?"),
    ),
    "no digest for the ledger": (
        get("/v1/ledger?source=sha256t:12"),
        *(422, "invalid_request", "source", "a digest is 'sha256t:' or 'sha256:' and 64 hexadecimal digits"),
    ),
    "a blank reason for a seed": (
        get("/v1/jobs/none/seed?reason=%20%20%20%20%20%20%20%20%20"),
        *(422, "invalid_request", "reason", "the text has only white space; write it out"),
    ),
    "a job that there is not": (
        get("/v1/jobs/none"),
        *(404, "not_found", "", "there is no job 'none'; a job is deleted at its expiry"),
    ),
    "a series that there is not": (
        get("/v1/series/none"),
        *(404, "not_found", "", "there is no series 'none'; GET /v1/series lists those that you may see"),
    ),
    "a misspelt parameter": (
        parameters({"lockd": True}),
        *(422, "invalid_request", "/parameters/lockd", "did you mean 'locked'?"),
    ),
    "the seed among the parameters": (
        parameters({"seed": 5}),
        *(422, "invalid_request", "/parameters/seed", "put it next to 'parameters'"),
    ),
    "a parameter next to the parameters": (
        run({"swap_fields": ["age"]}),
        *(422, "invalid_request", "/swap_fields", "it belongs in 'parameters'"),
    ),
    "rows outside the source": (
        run({"rows": []}),
        *(422, "invalid_request", "/rows", "it belongs in 'source'"),
    ),
    "a wrong classifier": (
        parameters({"classifier": "SOUNDEX"}),
        *(422, "invalid_request", "/parameters/classifier", "a classifier is 'identity', {\"breaks\""),
    ),
    # -- services, paths and query parameters
    "an unknown service": (
        run(service="CDSWAPP"),
        *(404, "not_found", "", "there is no service 'CDSWAPP'; did you mean 'CDSWAP'?"),
    ),
    "a service in lower case": (
        run(service="cdswap"),
        *(404, "not_found", "", "there is no service 'cdswap'; did you mean 'CDSWAP'?"),
    ),
    "a service that resembles none": (
        get("/v1/services/xyz"),
        *(404, "not_found", "", "there is no service 'xyz'; known are 'DSWAP', 'CDSWAP'"),
    ),
    "jobs of a service in lower case": (
        get("/v1/jobs?service=cdswap"),
        *(422, "invalid_request", "service", "unknown service 'cdswap'; did you mean 'CDSWAP'?"),
    ),
    "a misspelt path": (get("/v1/job"), 404, "not_found", "", "did you mean /v1/jobs?"),
    "another method": (get("/v1/frontier"), 405, "method_not_allowed", "", "GET is not allowed here"),
    "an unknown query parameter": (
        get("/v1/jobs?pagesize=3"),
        *(422, "invalid_request", "pagesize", "did you mean 'page_size'?"),
    ),
    "an unknown state": (
        get("/v1/jobs?state=queue"),
        *(422, "invalid_request", "state", "did you mean 'queued'?"),
    ),
    # -- bodies that are no JSON object
    "an empty body": (body(b""), 422, "invalid_request", "", "nothing was sent; send a JSON object"),
    "a list": (body(b"[]"), 422, "invalid_request", "", "must be an object; a list was sent"),
    "null": (body(b"null"), 422, "invalid_request", "", "must be an object; null was sent"),
    "UTF-16": (body(TEXT.decode().encode("utf-16")), 400, "bad_request", "", "it is UTF-16 or UTF-32"),
    "UTF-16 without a mark": (
        body(TEXT.decode().encode("utf-16-le")),
        *(400, "bad_request", "", "JSON is sent as UTF-8"),
    ),
    "Latin-1": (body(TEXT.replace(b'"x"', b'"\xe9"')), 400, "bad_request", "", "it is not UTF-8"),
    "a CSV": (body(b"age,city\n31,x\n"), 400, "bad_request", "", "a JSON object, which begins with {"),
    "not a number": (body(TEXT.replace(b"31", b"NaN")), 400, "bad_request", "", "send null"),
    "half of a surrogate pair": (
        body(TEXT.replace(b'"x"', b'"\\ud83d"')),
        *(400, "bad_request", "", "a half of a surrogate pair alone is no character"),
    ),
    "a number that loses digits": (
        body(TEXT.replace(b"31", b"9007199254740993.0")),
        *(422, "invalid_request", "/source/rows/0/age", "the number loses digits as float64"),
    ),
    "single quotes": (body(str(CALL).encode()), 400, "bad_request", "", "stand in double quotes"),
    "gzip that is not announced": (
        body(gzip.compress(TEXT)),
        *(400, "bad_request", "", "send it with the header 'Content-Encoding: gzip'"),
    ),
    "gzip that is none": (
        body(TEXT, **GZIP),
        *(
            400,
            "bad_request",
            "",
            "not complete gzip data, as its Content-Encoding requires; compress it, or",
        ),
    ),
    "gzip that unpacks to too much": (
        body(gzip.compress(b" " * (70 << 20), compresslevel=1), **GZIP),
        *(413, "content_too_large", "", "upload a table in POST /v1/buffers"),
    ),
    "a form": (
        body(b"a=1", content_type="application/x-www-form-urlencoded"),
        *(415, "unsupported_media_type", "", "this operation takes application/json"),
    ),
    # -- tables
    "no rows": (
        run({"source": {"rows": []}}),
        *(422, "invalid_source", "/source/rows", "'rows' is empty, so the table has no fields"),
    ),
    "no columns": (
        run({"source": {"columns": {}}}),
        *(422, "invalid_source", "/source/columns", "'columns' is empty, so the table has no fields"),
    ),
    "a row without fields": (
        run({"source": {"rows": [{}]}}),
        *(422, "invalid_source", "/source/rows", "the rows have no fields"),
    ),
    "day first": (
        dated("17/05/1990"),
        *(422, "invalid_source", "/source/rows/0/born", "this one has another order or other separators"),
    ),
    "day first, with points": (
        dated("17.5.1990"),
        *(422, "invalid_source", "/source/rows/0/born", "2024-02-29 (year-month-day)"),
    ),
    "day first, with a time": (
        dated("17/05/1990 10:00", "timestamp"),
        *(422, "invalid_source", "/source/rows/0/born", "this one has another order or other separators"),
    ),
    "a reference where references are off": (
        run({"source": {"reference": "s3://bucket/people.csv"}}),
        *(422, "invalid_request", "/source/reference", "has not set ROWVEIL_SOURCE_PREFIXES; upload"),
    ),
    "a destination where references are off": (
        run({"destination": {"reference": "s3://bucket/people.csv"}}),
        *(422, "invalid_request", "/destination/reference", "has not set ROWVEIL_DESTINATION_PREFIXES"),
    ),
    # -- uploads
    "a CSV with ;": (upload(b"age;city\n31;x\n"), 422, "invalid_source", "", SEPARATED.format("';'")),
    "a CSV with ; and decimal commas": (
        upload(b"age;income\n31;1,5\n"),
        *(422, "invalid_source", "", SEPARATED.format("';'")),
    ),
    "a CSV with tabs": (upload(b"age\tcity\n31\tx\n"), 422, "invalid_source", "", SEPARATED.format("'tab'")),
    "a CSV with quotes after backslashes": (
        upload(b'age,city\n31,"x \\"y\\""\n'),
        *(422, "invalid_source", "", "line 2 of the CSV has text after the closing quote of a cell"),
    ),
    "a CSV in UTF-16": (
        upload("age,city\n31,x\n".encode("utf-16")),
        *(422, "invalid_source", "", "the CSV is UTF-16; state it as 'encoding'"),
    ),
    "a CSV in gzip that is not announced": (
        upload(gzip.compress(b"age\n31\n")),
        *(422, "invalid_source", "", "send it with the header 'Content-Encoding: gzip'"),
    ),
    "a workbook as CSV": (
        upload(b"PK\x03\x04\x14\x00"),
        *(422, "invalid_source", "", "a workbook such as .xlsx; save the sheet as CSV"),
    ),
    "Parquet as CSV": (upload(b"PAR1\x15\x04"), 422, "invalid_source", "", f"send it as {PARQUET}"),
    "an Arrow stream as CSV": (
        upload(b"\xff\xff\xff\xff\x10"),
        422,
        "invalid_source",
        "",
        f"send it as {ARROW}",
    ),
    "CSV as Parquet": (
        upload(b"age\n31\n", PARQUET),
        422,
        "invalid_source",
        "",
        "the body is text; if it is CSV, send it as text/csv",
    ),
    "a workbook": (upload(b"PK\x03\x04", "application/zip"), 415, "unsupported_media_type", "", NO_CSV),
    "day first in a CSV": (
        upload(b"age,born\n31,17/05/1990\n", fields='{"born": "date"}'),
        *(422, "invalid_source", "", "this one has another order or other separators"),
    ),
    "a misspelt option of a CSV": (
        upload(b"age\n31\n", delimeter=";"),
        *(422, "invalid_request", "delimeter", "did you mean 'delimiter'?"),
    ),
}


@pytest.fixture(scope="module")
def api(service_on: Callable[[str], Service]) -> Api:
    """Service on one kind of database: none of these requests gets as far as that."""
    return Api(service_on("sqlite").client)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_a_clear_answer(api: Api, name: str) -> None:
    request, status, code, place, cause = MISTAKES[name]
    answer = api.client.request(**{"method": "POST", **request})
    problem = api.problem(answer, status, code)
    assert cause in problem["detail"]
    if place:
        first = problem["errors"][0]
        assert first.get("pointer", first.get("parameter")) == place
    for value in ("1990", "SOUNDEX", "age;city"):
        assert value not in problem["detail"]


@pytest.mark.parametrize(
    "request_of_it",
    {
        "a byte order mark": body(b"\xef\xbb\xbf" + TEXT),
        "gzip": body(gzip.compress(TEXT), **GZIP),
        "a zone of no rows with types": run(
            {"source": {"rows": [], "fields": {"age": "int64", "city": "string"}}}
        ),
        "a quoted name with ;": upload(b'"age;city"\n31\n'),
        "a stated delimiter": upload(b"age;income\n31;1,5\n", delimiter=";"),
        "a stated encoding": upload("age,city\n31,x\n".encode("utf-16"), encoding="utf-16"),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_only_looks_wrong_is_accepted(api: Api, request_of_it: tuple[str, dict[str, Any]]) -> None:
    answer = api.client.request(**{"method": "POST", **request_of_it[1]})
    assert answer.is_success, answer.text


def test_codes_and_types_of_problems_are_enumerated(api: Api) -> None:
    """The document lists those of this version; clients made from it accept later ones."""
    document = api.client.get("/openapi.json").json()["components"]["schemas"]["Problem"]["properties"]
    codes, any_text = document["code"]["anyOf"]
    types, _ = document["type"]["anyOf"]
    assert codes["enum"] == problem_codes()
    assert types["enum"] == [f"urn:rowveil:problem:{code}" for code in problem_codes()]
    assert any_text == {"type": "string"}
    assert {code for _, _, code, _, _ in MISTAKES.values()} <= set(codes["enum"])
    assert {"worker_died", "limit_reached", "unswappable_rows"} <= set(codes["enum"])


def test_a_table_whose_names_have_other_delimiters_comes_back(api: Api) -> None:
    """The writer quotes what the reader would refuse."""
    body_of_it = {"source": {"rows": [{"a;b": 1}, {"a;b": 2}]}, "parameters": {"swap_fields": ["a;b"]}}
    job = api.job(api.client.post("/v1/services/DSWAP", json=body_of_it))
    rows: httpx.Response = api.client.get(f"/v1/jobs/{job['id']}/rows", headers={"accept": "text/csv"})
    assert rows.content.startswith(b'"a;b"')
    answer = api.client.post("/v1/buffers", content=rows.content, headers={"content-type": "text/csv"})
    assert [field["name"] for field in answer.json()["fields"]] == ["a;b"]
