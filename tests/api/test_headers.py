"""Security and cache headers of every response, and contents that no response has."""

from pathlib import Path

import httpx
import pytest

from tests.api.calls import Api

CALL = {"source": {"rows": [{"a": 1}, {"a": 2}]}, "parameters": {"swap_fields": ["a"]}, "seed": "0b"}
DESK = "https://desk.example"


def answers(client: httpx.Client, address: str) -> dict[str, httpx.Response]:
    """Responses of every kind."""
    job = client.post("/v1/services/DSWAP", json=CALL)
    path = f"/v1/jobs/{job.json()['id']}"
    return {
        "run": job,
        "rows": client.get(f"{path}/rows"),
        "report": client.get(f"{path}/report"),
        "page": client.get(f"{path}/report", headers={"accept": "text/html"}),
        "seed": client.get(f"{path}/seed", params={"reason": "to look at its head"}),
        "events": client.get(f"{path}/events"),
        "head": client.head(path),
        "not found": client.get("/v1/jobs/nothing"),
        "no route": client.get("/nothing"),
        "no method": client.put("/v1/jobs"),
        "invalid": client.post("/v1/services/DSWAP", json={}),
        "broken": client.post("/v1/services/DSWAP", content=b"{"),
        "unauthenticated": httpx.get(f"{address}/v1/jobs"),
        "health": client.get("/livez"),
        "document": client.get("/openapi.json"),
        "docs": client.get("/docs"),
        "script": client.get("/swagger/swagger-ui-bundle.js"),
    }


def test_every_answer_is_safe_for_browsers_and_caches(
    client: httpx.Client, address: str, service_home: Path
) -> None:
    """No response reveals the server's software, one of its paths, or a line of its code."""
    for name, answer in answers(client, address).items():
        said = answer.headers
        assert said["x-content-type-options"] == "nosniff", name
        assert said["referrer-policy"] == "no-referrer", name
        assert said["x-frame-options"] == "DENY", name
        assert "frame-ancestors 'none'" in said["content-security-policy"], name
        assert "default-src 'none'" in said["content-security-policy"], name
        assert "server" not in said, name
        assert not [header for header in said if header.startswith("access-control-")], name
        if answer.request.url.path.startswith("/v1/"):
            assert "no-store" in said["cache-control"] or name == "events", name
        if name != "script":
            for path in (str(service_home), str(Path.cwd()), "site-packages", "Traceback", 'File "'):
                assert path not in answer.text, name


def test_there_is_no_route_to_look_inside(client: httpx.Client) -> None:
    """Every path is in the API, or part of Swagger UI."""
    for path in ("/debug", "/env", "/v1/debug", "/redoc", "/docs/oauth2-redirect", "/static", "/.git/config"):
        assert client.get(path).status_code == 404
    assert client.request("TRACE", "/v1/jobs").status_code == 405


def test_pages_of_named_origins_alone_may_call(client: httpx.Client) -> None:
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    asked = client.options("/v1/services/DSWAP", headers={"origin": DESK, **wanted})
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == DESK
    assert "access-control-allow-credentials" not in asked.headers
    others = client.options("/v1/services/DSWAP", headers={"origin": "https://evil.example", **wanted})
    assert "access-control-allow-origin" not in others.headers
    assert "because of its origin;" in Api.problem(others, 400, "bad_request")["detail"]
    wanted["access-control-request-method"] = "PUT"
    put = client.options("/v1/services/DSWAP", headers={"origin": DESK, **wanted})
    assert "because of its method;" in Api.problem(put, 400, "bad_request")["detail"]
    assert put.headers["access-control-allow-methods"] == "GET, HEAD, POST, PATCH, DELETE"
    wanted["access-control-request-method"] = "HEAD"
    assert client.options("/v1/services", headers={"origin": DESK, **wanted}).status_code == 200
    answer = client.get("/v1/jobs", headers={"origin": DESK})
    assert answer.headers["access-control-allow-origin"] == DESK
    assert "access-control-allow-origin" not in client.get("/v1/jobs", headers={"origin": "null"}).headers


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_json_that_is_deep_is_refused(api: Api, depth: int) -> None:
    """The request is rejected before it can exhaust the stack."""
    nested = b'{"source": ' + b"[" * depth + b"]" * depth + b"}"
    api.problem(api.client.post("/v1/services/DSWAP", content=nested), 400)


def test_json_with_a_great_many_fields_is_refused(api: Api) -> None:
    names = [f"f{number}" for number in range(100_001)]
    call = {"source": {"columns": {name: [1] for name in names}}, "parameters": {"swap_fields": ["f1"]}}
    answer = api.client.post("/v1/services/DSWAP", json=call)
    assert answer.status_code == 422
    assert "at most 100000" in api.problem(answer, 422)["detail"]


def test_rows_with_a_field_each_are_refused(api: Api) -> None:
    """A table as wide as it is long: 2 MB would become 30 GB."""
    rows = [{f"f{number}": 1} for number in range(60_000)]
    problem = api.refused("DSWAP", {"source": {"rows": rows}, "parameters": {"swap_fields": ["f1"]}})
    assert (problem["pointer"], "60000 different fields" in problem["message"]) == ("/source/rows", True)


def test_a_head_that_is_too_large_is_refused(address: str) -> None:
    """A head of 64 KiB is rejected and the connection closed."""
    try:
        answer = httpx.get(f"{address}/livez", headers={"x-padding": "x" * 200_000})
        assert answer.status_code == 400
    except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
        pass
    assert httpx.get(f"{address}/livez").status_code == 200
