"""HTTP features around the services: problems, preferences, media types, health, the OpenAPI document."""

import re
import socket
from typing import Any

import httpx
import orjson
import pytest

from tests.api.calls import Api

Rows = list[dict[str, Any]]
CALL = {"source": {"rows": [{"a": 1}, {"a": 2}]}, "parameters": {"swap_fields": ["a"]}}


def test_unknown_path_is_a_problem(api: Api) -> None:
    api.problem(api.client.get("/v1/nothing"), 404, "not_found")


def test_wrong_method_is_a_problem_with_allow(api: Api) -> None:
    answer = api.client.put("/v1/services/DSWAP", json=CALL)
    api.problem(answer, 405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize("path", ["", "/rows", "/report", "/events"])
def test_head_is_get_without_content(api: Api, path: str) -> None:
    """Same status and headers, no content; also for a stream."""
    job = api.job(api.client.post("/v1/services/DSWAP", json=CALL))
    url = f"/v1/jobs/{job['id']}{path}"
    head, got = api.client.head(url), api.client.get(url)
    assert head.content == b""
    assert head.status_code == got.status_code == 200
    differing = {"date", "transfer-encoding"}
    assert {name for name in got.headers if name not in differing} <= set(head.headers)
    assert head.headers["content-type"] == got.headers["content-type"]


def test_a_kind_of_problem_has_one_title(api: Api) -> None:
    """Also where the framework finds the error (RFC 9457, section 3.1.3)."""
    client = api.client
    titles = {
        "Not found": [client.get("/v1/nothing"), client.get("/v1/jobs/none"), client.get("/v1/services/X")],
        "Content too large": [client.post("/v1/services/DSWAP", json=["x" * 2**23])],
        "Method not allowed": [client.put("/v1/jobs")],
    }
    for title, responses in titles.items():
        assert {response.json()["title"] for response in responses} == {title}


@pytest.mark.parametrize(
    ("path", "instance"),
    [
        ("/v1/jobs/a%20b%C3%A9", "/v1/jobs/a%20b%C3%A9"),
        ("/v1/jobs/%22%25zz%3C", "/v1/jobs/%22%25zz%3C"),
        ("/v1/jobs/a:b@c", "/v1/jobs/a:b@c"),
        ("//v1/jobs", "/.//v1/jobs"),
    ],
)
def test_the_instance_of_a_problem_is_a_uri_reference(api: Api, path: str, instance: str) -> None:
    answer = api.client.get(f"{str(api.client.base_url).rstrip('/')}{path}")
    assert (answer.status_code, answer.json()["instance"]) == (404, instance)


def test_head_where_get_is_none(api: Api) -> None:
    """404 for unknown paths, 405 for paths with only POST."""
    assert api.client.head("/v1/jobs/nothing").status_code == 404
    assert api.client.head("/v1/jobs/nothing/cancel").status_code == 405


def test_broken_json_is_a_bad_request(api: Api) -> None:
    headers = {"content-type": "application/json"}
    answer = api.client.post("/v1/services/DSWAP", content=b'{"source": {', headers=headers)
    problem = api.problem(answer, 400, "bad_request")
    assert problem["detail"].endswith("line 1 column 12; the text ends too early: send all of it")
    assert problem["errors"] == [{"pointer": "", "message": problem["detail"]}]


@pytest.mark.parametrize("token", [b"NaN", b"Infinity"])
def test_json_has_no_nan(api: Api, token: bytes) -> None:
    content = orjson.dumps(CALL).replace(b'"a":2', b'"a":' + token)
    answer = api.client.post(
        "/v1/services/DSWAP", content=content, headers={"content-type": "application/json"}
    )
    api.problem(answer, 400, "bad_request")


def test_other_media_types_are_refused(api: Api) -> None:
    answer = api.client.post("/v1/services/DSWAP", content=b"a,b", headers={"content-type": "text/csv"})
    problem = api.problem(answer, 415, "unsupported_media_type")
    assert problem["detail"] == "the body was sent as 'text/csv'; this operation takes application/json"


@pytest.mark.parametrize("path", ["/v1/services/", "/v1/jobs/", "/v1/buffers/", "/livez/"])
def test_a_slash_too_many_is_a_clear_404(api: Api, path: str) -> None:
    """No redirect: it would name another host behind a proxy."""
    problem = api.problem(api.client.get(path), 404, "not_found")
    assert f"did you mean {path.removesuffix('/')}?" in problem["detail"]


def test_missing_body_is_a_problem(api: Api) -> None:
    api.problem(api.client.post("/v1/services/DSWAP"), 422)


def test_too_large_a_body_is_refused_with_advice(api: Api) -> None:
    content = orjson.dumps(CALL | {"padding": "x" * (5 * 2**20)})
    answer = api.client.post(
        "/v1/services/DSWAP", content=content, headers={"content-type": "application/json"}
    )
    problem = api.problem(answer, 413)
    assert "/v1/buffers" in problem["detail"]
    assert "is larger than 4194304 bytes (ROWVEIL_MAX_BODY_BYTES)" in problem["detail"]


def test_respond_async_answers_202_at_once(api: Api) -> None:
    answer = api.client.post("/v1/services/DSWAP", json=CALL, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "respond-async"
    assert int(answer.headers["retry-after"]) >= 1
    job = api.job(answer)
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert "rows" not in job.get("destination", {})
    watched = api.client.get(f"/v1/jobs/{job['id']}/events", timeout=60)
    assert '"state": "succeeded"' in watched.text or '"state":"succeeded"' in watched.text


def test_wait_is_applied(api: Api) -> None:
    answer = api.client.post("/v1/services/DSWAP", json=CALL, headers={"Prefer": "wait=20"})
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=20"


def test_idempotency_key_gives_the_same_job(api: Api) -> None:
    headers = {"Idempotency-Key": "test-key-1"}
    first = api.client.post("/v1/services/DSWAP", json=CALL, headers=headers)
    again = api.client.post("/v1/services/DSWAP", json=CALL, headers=headers)
    assert api.job(first)["id"] == api.job(again)["id"]
    other = CALL | {"report": "none"}
    answer = api.client.post("/v1/services/DSWAP", json=other, headers=headers)
    assert answer.status_code in (409, 422)
    problem = api.problem(answer, answer.status_code)
    assert problem["errors"] == [{"parameter": "Idempotency-Key", "message": problem["detail"]}]


@pytest.mark.parametrize("keys", [("key-1", "key-2"), ("key-1", "key-1")])
def test_an_idempotency_key_is_given_once(api: Api, keys: tuple[str, str]) -> None:
    headers = httpx.Headers([("idempotency-key", key) for key in keys])
    for path in ("/v1/services/DSWAP", "/v1/measures"):
        answer = api.client.post(path, json=CALL, headers=headers)
        (error,) = api.problem(answer, 422, "invalid_request")["errors"]
        assert error == {
            "parameter": "Idempotency-Key", "message": "'Idempotency-Key' is given 2 times; give it once",
        }  # fmt: skip


def test_health(client: httpx.Client) -> None:
    assert client.get("/livez").json()["status"] == "ok"
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert set(ready.json()["checks"]) == {"database", "storage", "workers"}


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_probe_that_is_not_http_is_answered_as_described(client: httpx.Client, path: str) -> None:
    described = client.get("/openapi.json").json()["paths"][path]["get"]["responses"]["400"]["content"]
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), 60) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nno header\r\n\r\n".encode())
        head = connection.makefile("rb").read().partition(b"\r\n\r\n")[0].decode().lower()
    assert head.startswith("http/1.1 400")
    assert all(f"content-type: {media_type}" in head for media_type in described)


def test_openapi_has_a_typed_operation_for_each_service(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for service in ("DSWAP", "CDSWAP", "DDSWAP"):
        operation = document["paths"][f"/v1/services/{service}"]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema["$ref"].endswith(f"/{service.title()}Request")
    text = client.get("/openapi.json").text
    assert "HTTPValidationError" not in text
    assert '"type":"null"' not in text.replace(" ", "")


def test_every_operation_has_an_id_and_a_description(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert all(operation.get("operationId") and operation.get("description") for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


def test_swagger_ui_needs_no_other_host(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert "cdn." not in page.text
    assert "http://" not in page.text  # relative, whatever the Host header is
    assert client.get("/swagger/swagger-ui-bundle.js").status_code == 200
    assert client.get("/", follow_redirects=True).status_code == 200


def test_openapi_holds_together(client: httpx.Client) -> None:
    text = client.get("/openapi.json").text
    document = orjson.loads(text)
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert references <= set(document["components"]["schemas"])
    assert "itemSchema" not in text  # an OpenAPI 3.2 keyword


def test_openapi_declares_the_headers_and_the_timeout_of_a_body(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    operations = [operation for path in paths.values() for operation in path.values()]
    assert {bool(each.get("requestBody")) == ("408" in each["responses"]) for each in operations} == {True}
    for path in ("jobs", "buffers", "ledger", "series"):
        assert set(paths[f"/v1/{path}"]["get"]["responses"]["200"]["headers"]) == {"Link"}
    sent = {"Location", "Idempotency-Key-Expires", "Preference-Applied"}
    for path in ("services/DSWAP", "measures", "frontier", "attacks", "jobs/{job_id}/rerun"):
        answers = paths[f"/v1/{path}"]["post"]["responses"]
        assert set(answers["200"]["headers"]) == sent
        assert set(answers["202"]["headers"]) == {*sent, "Retry-After"}
    for path in ("buffers", "buffers/form", "buffers/{buffer_id}/copies"):
        answers = paths[f"/v1/{path}"]["post"]["responses"]
        assert set(answers["201"]["headers"]) == {"Location", "Idempotency-Key-Expires"}


def test_openapi_declares_503_for_each_operation_with_a_key(client: httpx.Client) -> None:
    """Clients would return nothing for a status that is not declared; its answer asks for a retry."""
    for path in client.get("/openapi.json").json()["paths"].values():
        for operation in path.values():
            if operation["security"]:
                assert set(operation["responses"]["503"]["headers"]) == {"Retry-After"}


def test_a_webhook_shares_its_tag_with_no_operation(client: httpx.Client) -> None:
    """OpenAPI Generator writes a file for each tag; that of a webhook would overwrite that of operations."""
    document = client.get("/openapi.json").json()
    tags = [
        {tag for path in document[part].values() for operation in path.values() for tag in operation["tags"]}
        for part in ("paths", "webhooks")
    ]
    assert not tags[0] & tags[1]
    assert tags[0] | tags[1] == {tag["name"] for tag in document["tags"]}


def test_a_webhook_is_no_call_of_a_client(client: httpx.Client) -> None:
    """OpenAPI Generator makes no class of what is internal, which callers cannot call."""
    document = client.get("/openapi.json").json()
    webhooks, paths = (
        [operation for path in document[part].values() for operation in path.values()]
        for part in ("webhooks", "paths")
    )
    assert all(operation["x-internal"] for operation in webhooks)
    assert not any("x-internal" in operation for operation in paths)


def test_a_body_without_a_type_is_read_as_json(api: Api) -> None:
    request = api.client.build_request("POST", "/v1/services/DSWAP", content=orjson.dumps(CALL))
    request.headers.pop("content-type", None)
    assert api.job(api.client.send(request))["state"] == "succeeded"


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (
            {"content-type": "text/csv; charset=utf-7"},
            "sent as 'text/csv; charset=utf-7'; a CSV's charset is",
        ),
        (
            {"content-type": "text/csv", "content-encoding": "zstd"},
            "Content-Encoding 'zstd'; send it without",
        ),
        ({"content-type": "application/zip"}, "sent as 'application/zip'; a buffer is uploaded as"),
        ({"content-type": ""}, "sent without a media type; a buffer is uploaded as"),
        (
            {"content-type": 'text/csv; a="' + ";" * 1100},
            "the media type has 1113 characters, and at most 1024",
        ),
        ({"content-type": "multipart/form-data; " + "a;" * 600}, "at most 1024 are read"),
        ({"content-type": "application/vnd.apache.parquet; " + "a;" * 600}, "at most 1024 are read"),
    ],
)
def test_uploads_that_would_be_misread_are_refused(api: Api, headers: dict[str, str], words: str) -> None:
    """The message names what was sent and what is taken."""
    answer = api.client.post("/v1/buffers", content=b"a,b\r\n1,2\r\n", headers=headers)
    assert words in api.problem(answer, 415, "unsupported_media_type")["detail"]
