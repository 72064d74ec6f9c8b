"""Strict requests: no duplicate names, no wrong types, no unknown parameters."""

import gzip
from typing import Any

import httpx
import orjson
import pytest

from tests.api.calls import Api

JSON = {"content-type": "application/json"}
SOURCE = {"rows": [{"age": 31, "city": "x"}, {"age": 32, "city": "x"}]}
PARAMETERS = {"swap_fields": ["age"], "control_field": "city"}
CALL: dict[str, Any] = {"source": SOURCE, "parameters": PARAMETERS}
TEXT = orjson.dumps(CALL)


@pytest.mark.parametrize(
    ("once", "twice", "pointer"),
    [
        (b'"parameters":', b'"parameters":{},"parameters":', "/parameters"),
        (b'"swap_fields":', b'"swap_fields":["city"],"swap_fields":', "/parameters/swap_fields"),
        (b'"age":32', b'"age":32,"age":987654321', "/source/rows/1/age"),
        (b'"source":', b'"webhook": {"url" : "u", "url" : "u"}, "source":', "/webhook/url"),
    ],
)
def test_a_name_twice_is_refused(api: Api, once: bytes, twice: bytes, pointer: str) -> None:
    answer = api.client.post("/v1/services/CDSWAP", content=TEXT.replace(once, twice, 1), headers=JSON)
    problem = api.problem(answer, 422, "invalid_request")
    name = pointer.rpartition("/")[2]
    message = f"the name '{name}' is given twice in one object; give it once"
    assert problem["errors"] == [{"pointer": pointer, "message": message}]
    assert "987654321" not in answer.text


@pytest.mark.parametrize(
    ("more", "pointer", "message"),
    [
        ({"validate_only": "yes"}, "/validate_only", "must be true or false; a text was sent"),
        ({"validate_only": "true"}, "/validate_only", 'send true, not the text "true"'),
        ({"retain_source": 1}, "/retain_source", "must be true or false; a number was sent"),
        ({"deadline_seconds": "60"}, "/deadline_seconds", 'send the number 60, not the text "60"'),
        ({"candidates": "5"}, "/candidates", "give the number of candidates"),
        ({"candidates": {"count": "5"}}, "/candidates/count", 'send the number 5, not the text "5"'),
        ({"report": "full", "measures": {"sample": "9"}}, "/measures/sample", "send the number 9"),
        ({"report": "full", "measures": {"target": 5}}, "/measures/target", "must be a text in quotes"),
        ({"webhook": {"url": 5, "secret": "x"}}, "/webhook/url", "must be a text in quotes"),
        ({"destination": {"reference": 5}}, "/destination/reference", "must be a text in quotes"),
        ({"seed": True}, "/seed", "a seed is"),
        ({"parameters": {**PARAMETERS, "locked": "no"}}, "/parameters/locked", "must be true or false"),
        ({"parameters": {**PARAMETERS, "rate": "0.5"}}, "/parameters/rate", "send the number 0.5"),
        ({"parameters": {**PARAMETERS, "rate": True}}, "/parameters/rate", "must be a number; true or"),
        ({"parameters": {**PARAMETERS, "SWAP_RATE": "1"}}, "/parameters/SWAP_RATE", "send the number 1"),
        ({"parameters": {**PARAMETERS, "min_group_size": 2.5}}, "/parameters/min_group_size", "an integer"),
        ({"parameters": {**PARAMETERS, "swap_fields": [1]}}, "/parameters/swap_fields/0", "a text in quotes"),
        ({"source": {**SOURCE, "fields": {"age": 64}}}, "/source/fields/age", "must be a text in quotes"),
    ],
)
def test_no_type_stands_for_another(api: Api, more: dict[str, Any], pointer: str, message: str) -> None:
    error = api.refused("CDSWAP", CALL | more)
    assert error["pointer"] == pointer
    assert message in error["message"]


def test_the_parameters_of_a_comparison_have_types_too(api: Api) -> None:
    variation = {"service": "CDSWAP", "parameters": PARAMETERS, "vary": {"rate": [1, "0.5"]}}
    answer = api.client.post("/v1/frontier", json={"source": SOURCE, "services": [variation]})
    errors = api.problem(answer, 422)["errors"]
    assert errors == [
        {"pointer": "/services/0/vary/rate/1", "message": 'send the number 0.5, not the text "0.5"'}
    ]


def test_a_number_is_what_it_is_however_it_is_written(api: Api) -> None:
    """5.0 is an integer in JSON Schema, 1 a number, and a seed in hex digits a text."""
    more = {"candidates": 2.0, "seed": "5", "priority": "high", "deadline_seconds": 600}
    parameters = PARAMETERS | {"min_group_size": 2.0, "rate": 1}
    job = api.run("CDSWAP", SOURCE["rows"], parameters, **more)
    assert job["parameters"]["min_group_size"] == 2
    assert job["options"]["candidates"]["count"] == 2
    same = [api.run("CDSWAP", SOURCE["rows"], PARAMETERS, seed=seed) for seed in (7, 7.0)]
    assert same[0]["seed_fingerprint"] == same[1]["seed_fingerprint"]


def test_a_float_in_a_row_is_no_integer(api: Api) -> None:
    source = {"rows": [{"a": 5.0}], "fields": {"a": "int64"}}
    problem = api.refused("DSWAP", {"source": source, "parameters": {"swap_fields": ["a"]}})
    assert "as JSON numbers without a point" in problem["message"]


@pytest.mark.parametrize(
    ("url", "parameter", "message"),
    [
        ("/v1/jobs?pagesize=3", "pagesize", "unknown query parameter 'pagesize'; did you mean 'page_size'?"),
        ("/v1/jobs?page_size=3&page_size=4", "page_size", "'page_size' is given 2 times; give it once"),
        ("/v1/services?state=queued", "state", "unknown query parameter 'state'"),
        ("/v1/services/CDSWAP?validate_only=true", "validate_only", "unknown query parameter"),
        ("/v1/buffers/none/rows?format=csv", "format", "unknown query parameter 'format'"),
    ],
)
def test_unknown_query_parameters_are_refused(api: Api, url: str, parameter: str, message: str) -> None:
    error = api.problem(api.client.get(url), 422, "invalid_request")["errors"][0]
    assert error["parameter"] == parameter
    assert message in error["message"]


@pytest.mark.parametrize(
    ("method", "url", "headers", "parameter", "most"),
    [
        ("POST", "/v1/services/CDSWAP", {"idempotency-key": "k" * 256}, "Idempotency-Key", 255),
        ("GET", f"/v1/ledger?source={'0' * 81}", {}, "source", 80),
        ("GET", f"/v1/series/x?owner={'o' * 301}", {}, "owner", 300),
    ],
)
def test_the_length_of_a_text_is_in_characters(
    api: Api, method: str, url: str, headers: dict[str, str], parameter: str, most: int
) -> None:
    answer = api.client.request(method, url, headers=headers, json=CALL if method == "POST" else None)
    (error,) = api.problem(answer, 422, "invalid_request")["errors"]
    assert error == {"parameter": parameter, "message": f"string should have at most {most} characters"}


def test_an_option_of_a_form_is_given_once(api: Api) -> None:
    files = {"file": ("a.csv", b"a\r\n1\r\n", "text/csv")}
    data = {"delimiter": [";", ","], "name": ["x", "y"], "null_tokens": ["-", "x"]}
    problem = api.problem(api.client.post("/v1/buffers/form", files=files, data=data), 422, "invalid_request")
    assert sorted(error["message"] for error in problem["errors"]) == [
        "'delimiter' is given 2 times; give it once",
        "'name' is given 2 times; give it once",
    ]


def test_only_the_first_errors_of_many_are_listed(api: Api) -> None:
    query = "&".join(f"a{index}" for index in range(4000))
    parameters = {"swap_fields": [[1]] * 8000}
    for answer in (
        api.client.get(f"/v1/jobs?{query}"),
        api.client.post("/v1/services/CDSWAP", json=CALL | {"parameters": parameters}),
    ):
        problem = api.problem(answer, 422, "invalid_request")
        assert problem["detail"].endswith(" (and at least 99 more)")
        errors = problem["errors"]
        assert len(errors) == 100
        assert errors[-1]["message"].endswith(" (only the first 100 errors are listed)")


def test_unknown_query_parameters_of_calls_that_make_something(api: Api) -> None:
    for url in ("/v1/services/CDSWAP?dry_run=1", "/v1/buffers?delimeter=tab", "/v1/buffers/form?fields={}"):
        answer = api.client.post(url, json=CALL)
        assert api.problem(answer, 422)["errors"][0]["parameter"] == url.partition("?")[2].partition("=")[0]


def test_probes_may_add_what_they_like(api: Api) -> None:
    assert api.client.get("/livez?verbose=1").status_code == 200


def test_a_body_may_be_packed(api: Api) -> None:
    headers = JSON | {"content-encoding": "gzip"}
    answer = api.client.post("/v1/services/CDSWAP", content=gzip.compress(TEXT), headers=headers)
    assert api.job(answer)["state"] == "succeeded"


def test_a_packed_body_is_limited_by_what_it_unpacks_to(api: Api) -> None:
    """64 MiB is the limit; 70 MiB of spaces compress to 70 KB."""
    packed = gzip.compress(b" " * (70 * 2**20))
    answer = api.client.post(
        "/v1/services/CDSWAP", content=packed, headers=JSON | {"content-encoding": "gzip"}
    )
    api.problem(answer, 413)


@pytest.mark.parametrize(
    ("coding", "content", "status", "code"),
    [
        ("gzip", TEXT, 400, "bad_request"),
        ("gzip", gzip.compress(TEXT)[:-5], 400, "bad_request"),
        ("br", TEXT, 415, "unsupported_media_type"),
    ],
)
def test_a_body_that_is_not_packed_as_it_says(
    api: Api, coding: str, content: bytes, status: int, code: str
) -> None:
    headers = JSON | {"content-encoding": coding}
    answer = api.client.post("/v1/services/CDSWAP", content=content, headers=headers)
    api.problem(answer, status, code)


@pytest.mark.parametrize(
    ("codings", "statuses"), [(("identity", "gzip"), (200, 201)), (("gzip", "zstd"), (415, 415))]
)
def test_the_lines_of_the_coding_are_one_list(
    api: Api, codings: tuple[str, str], statuses: tuple[int, int]
) -> None:
    """Only the first line was read: a body of two codings was taken for one of the first."""
    lines = [("content-encoding", coding) for coding in codings]
    calls = (("/v1/services/CDSWAP", JSON, TEXT), ("/v1/buffers", {"content-type": "text/csv"}, b"a\n1\n"))
    for (path, kind, content), status in zip(calls, statuses, strict=True):
        headers = httpx.Headers([*kind.items(), *lines])
        answer = api.client.post(path, content=gzip.compress(content), headers=headers)
        assert answer.status_code == status, answer.text
