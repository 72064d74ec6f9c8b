"""``/v1/jobs``: a job's documents, its rows in every type, cancel, purge and rerun."""

import io
import json
from base64 import b64decode
from datetime import datetime, timedelta
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from providers.tables.digest import table_digest
from tests.api.calls import ARROW, PARQUET, Api, slow_call

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def job(api: Api) -> dict[str, Any]:
    rows = [
        {"age": 20 + number % 50, "income": number * 1.5, "name": f"p, {number}"} for number in range(400)
    ]
    rows[3]["income"] = None
    rows[4]["name"] = ""
    return api.run(
        "DDSWAP", rows, {"swap_fields": ["income", "name"], "control_field": "age", "block_size": 7}
    )


def test_get_answers_the_same_job_without_rows(api: Api, job: dict[str, Any]) -> None:
    found = api.job(api.client.get(f"/v1/jobs/{job['id']}"))
    assert "rows" not in found["destination"]
    expected = job | {"destination": {key: job["destination"][key] for key in ("digest", "fields")}}
    assert found == expected


def test_a_job_says_when_its_rows_and_its_report_are_deleted(job: dict[str, Any]) -> None:
    ended = datetime.fromisoformat(job["finished_at"])
    rows_kept = datetime.fromisoformat(job["rows_expire_at"]) - ended
    assert (rows_kept, datetime.fromisoformat(job["expires_at"]) - ended) == (
        timedelta(days=7),
        timedelta(days=90),
    )


def test_unknown_job_is_not_found(api: Api) -> None:
    for method, path in [
        ("GET", ""),
        ("GET", "/rows"),
        ("GET", "/report"),
        ("GET", "/manifest"),
        ("GET", "/events"),
        ("POST", "/cancel"),
        ("POST", "/rerun"),
        ("DELETE", ""),
    ]:
        api.problem(api.client.request(method, f"/v1/jobs/no-such-job{path}"), 404, "not_found")


def test_rows_in_every_type_are_the_same_table(client: httpx.Client, job: dict[str, Any]) -> None:
    path = f"/v1/jobs/{job['id']}/rows"

    def get(accept: str) -> httpx.Response:
        answer = client.get(path, headers={"accept": accept}).raise_for_status()
        assert answer.headers["content-type"].split(";")[0] == accept
        return answer

    as_json = get("application/json").json()
    assert as_json["rows"] == job["destination"]["rows"]
    arrow = pa.ipc.open_stream(get(ARROW).content).read_all()
    parquet = pa.parquet.read_table(io.BytesIO(get(PARQUET).content))
    assert table_digest(arrow) == table_digest(parquet) == job["destination"]["digest"]
    assert arrow.to_pylist() == as_json["rows"]
    options = pa.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    csv = pa.csv.read_csv(io.BytesIO(get("text/csv").content), convert_options=options)
    assert csv.to_pylist() == as_json["rows"]


def test_rows_posted_back_have_the_same_digest(api: Api, job: dict[str, Any]) -> None:
    rows = api.client.get(f"/v1/jobs/{job['id']}/rows").json()
    source = {"rows": rows["rows"], "fields": {field["name"]: field["type"] for field in rows["fields"]}}
    body = {"source": source, "parameters": {"swap_fields": ["age"]}}
    again = api.job(api.client.post("/v1/services/DSWAP", json=body))
    assert again["source"]["digest"] == job["destination"]["digest"]


def test_rows_in_no_wanted_type_are_not_acceptable(api: Api, job: dict[str, Any]) -> None:
    answer = api.client.get(f"/v1/jobs/{job['id']}/rows", headers={"accept": "image/png"})
    detail = api.problem(answer, 406, "not_acceptable")["detail"]
    assert "text/csv" in detail
    assert detail.startswith("Accept takes none of the types")


def test_report_says_what_every_report_says(client: httpx.Client, job: dict[str, Any]) -> None:
    report = client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    summary = report["summary"]
    assert summary["rows"] == 400
    assert summary["groups"] == 57  # 57 blocks of 7 and one row that joins the last
    assert summary["took_part"] == 400
    assert set(summary["changed"]) == {"income", "name"}
    assert (summary["suppressed"], summary["unswapped"]) == (0, 0)
    share = report["measures"]["changed_share"]
    assert share["goal"] == "high"
    assert share["value"] == {field: rows / 400 for field, rows in summary["changed"].items()}
    assert report["measures"]["inversion_bits"]["value"] == 128  # of the seed that was drawn
    distance = report["provider"]["swapping_distance"]
    assert 1 <= distance["ranks"]["mean"] <= distance["ranks"]["largest"] <= 7


def _number(text: str) -> float:
    """Return a float in the form of RFC 8785: 1, not 1.0."""
    number = float(text)
    return int(number) if number.is_integer() else number


def test_manifest_is_signed_and_agrees_with_the_job(client: httpx.Client, job: dict[str, Any]) -> None:
    answer = client.get(f"/v1/jobs/{job['id']}/manifest").raise_for_status()
    signed = json.loads(answer.text, parse_float=_number)
    manifest, signature = signed["manifest"], signed["signature"]
    assert manifest["service"] == "DDSWAP"
    assert manifest["parameters"] == job["parameters"]
    assert manifest["seed_fingerprint"] == job["seed_fingerprint"]
    assert manifest["source"]["digest"] == job["source"]["digest"]
    assert manifest["destination"]["digest"] == job["destination"]["digest"]
    assert {"numpy", "numba", "pyarrow", "rowveil"} <= set(manifest["libraries"])
    message = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    key = Ed25519PublicKey.from_public_bytes(b64decode(signature["public_key"]))
    key.verify(b64decode(signature["value"]), message)  # raises where it is not this key's


def test_events_stream_ends_with_the_job(client: httpx.Client, job: dict[str, Any]) -> None:
    with client.stream("GET", f"/v1/jobs/{job['id']}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[0] == "event: end"
    data = json.loads(lines[1].removeprefix("data: "))
    assert data == {"state": "succeeded", "progress": {"fraction": 1, "stage": "succeeded"}}


def test_jobs_are_listed_newest_first_in_pages(api: Api) -> None:
    ids = [api.run("DSWAP", [{"a": 1}, {"a": 2}], {"swap_fields": ["a"]})["id"] for _ in range(3)]
    first = api.client.get("/v1/jobs", params={"page_size": 2}).raise_for_status()
    assert [job["id"] for job in first.json()["jobs"]] == [ids[2], ids[1]]
    token = first.json()["next_page_token"]
    assert first.links["next"]["url"].endswith(f"page_token={token}")
    second = api.client.get("/v1/jobs", params={"page_size": 1, "page_token": token}).json()
    assert [job["id"] for job in second["jobs"]] == [ids[0]]
    failed = api.client.get("/v1/jobs", params={"state": "failed", "service": "DSWAP"}).json()
    assert all(job["state"] == "failed" and job["service"] == "DSWAP" for job in failed["jobs"])
    problem = api.problem(api.client.get("/v1/jobs", params={"page_size": -1}), 422)
    assert problem["errors"][0]["parameter"] == "page_size"
    problem = api.problem(api.client.get("/v1/jobs", params={"page_token": "?"}), 422)
    assert problem["errors"] == [{"parameter": "page_token", "message": problem["detail"]}]


@pytest.mark.parametrize("path", ["jobs", "buffers", "ledger", "series"])
def test_a_page_of_no_or_of_too_many_entries_is_one_that_there_is(api: Api, path: str) -> None:
    """AIP-158: 0 asks for the default, and a number over the most is no error."""
    usual = api.client.get(f"/v1/{path}").raise_for_status().json()
    assert api.client.get(f"/v1/{path}", params={"page_size": 0}).raise_for_status().json() == usual
    largest, more = (
        api.client.get(f"/v1/{path}", params={"page_size": size}).raise_for_status().json()
        for size in (200, 10**30)
    )
    assert more == largest


@pytest.mark.parametrize("path", ["jobs", "buffers", "ledger", "series"])
def test_an_empty_page_token_is_that_of_the_first_page(api: Api, path: str) -> None:
    """AIP-158, where an empty token is the same as none."""
    first = api.client.get(f"/v1/{path}").raise_for_status().json()
    assert api.client.get(f"/v1/{path}", params={"page_token": ""}).raise_for_status().json() == first


def test_purged_job_is_gone(api: Api) -> None:
    job = api.run("DSWAP", [{"a": 1}, {"a": 2}], {"swap_fields": ["a"]})
    deleted = api.client.delete(f"/v1/jobs/{job['id']}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert "content-type" not in deleted.headers
    api.problem(api.client.get(f"/v1/jobs/{job['id']}"), 404)
    api.problem(api.client.delete(f"/v1/jobs/{job['id']}"), 404)


def test_ended_job_cannot_be_cancelled(api: Api, job: dict[str, Any]) -> None:
    api.problem(api.client.post(f"/v1/jobs/{job['id']}/cancel"), 409)


def test_report_of_none_is_not_there(api: Api) -> None:
    job = api.run("DSWAP", [{"a": 1}, {"a": 2}], {"swap_fields": ["a"]}, report="none")
    api.problem(api.client.get(f"/v1/jobs/{job['id']}/report"), 404)


# ---------------------------------------------------------------------------------------- rerun


def test_rerun_reproduces_the_bytes(api: Api, people: Rows) -> None:
    first = api.run("CDSWAP", people, {"swap_fields": ["income", "age"], "control_field": "city"})
    answer = api.client.post(f"/v1/jobs/{first['id']}/rerun", json={"source": {"rows": people}})
    again = api.job(answer)
    assert (again["rerun_of"], again["reproduced"]) == (first["id"], True)
    assert again["id"] != first["id"]
    for same in ("destination", "parameters", "seed_fingerprint", "events"):
        assert again[same] == first[same]


def test_rerun_of_other_rows_is_refused_with_the_expected_digest(api: Api, people: Rows) -> None:
    first = api.run("DSWAP", people, {"swap_fields": ["income"]})
    other = [*people[1:], people[0]]
    answer = api.client.post(f"/v1/jobs/{first['id']}/rerun", json={"source": {"rows": other}})
    assert first["source"]["digest"] in api.problem(answer, 409)["detail"]


def test_rerun_needs_the_source_unless_it_was_retained(api: Api, people: Rows) -> None:
    forgotten = api.run("DSWAP", people, {"swap_fields": ["income"]})
    answer = api.client.post(f"/v1/jobs/{forgotten['id']}/rerun")
    assert "not retained" in api.problem(answer, 409)["detail"]
    retained = api.run("DSWAP", people, {"swap_fields": ["income"]}, retain_source=True)
    again = api.job(api.client.post(f"/v1/jobs/{retained['id']}/rerun"))
    assert again["reproduced"] is True


# --------------------------------------------------------------------------------------- cancel


def test_cancel_stops_running_and_queued_jobs_and_others_go_on(api: Api, people: Rows) -> None:
    call = slow_call(api.client)
    asynchronous = {"prefer": "respond-async"}
    jobs = [api.client.post("/v1/services/DDSWAP", json=call, headers=asynchronous).json() for _ in range(4)]
    with api.client.stream("GET", f"/v1/jobs/{jobs[0]['id']}/events") as events:
        next(line for line in events.iter_lines() if '"running"' in line)
    refused = api.client.delete(f"/v1/jobs/{jobs[0]['id']}")
    api.problem(refused, 409)
    for job in jobs:
        cancelled = api.job(api.client.post(f"/v1/jobs/{job['id']}/cancel"))
        assert (cancelled["state"], cancelled["outcome"]) == ("cancelled", "FAILURE")
        again = api.job(api.client.post(f"/v1/jobs/{job['id']}/cancel"))
        assert again["state"] == "cancelled"
        api.problem(api.client.get(f"/v1/jobs/{job['id']}/rows"), 409)
    assert api.run("DSWAP", people, {"swap_fields": ["age"]})["state"] == "succeeded"
