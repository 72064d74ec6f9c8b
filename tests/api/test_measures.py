"""``POST /v1/measures``: measures of two tables, in a job."""

from typing import Any

import pytest

from tests.api.calls import Api

Rows = list[dict[str, Any]]

SOURCE: Rows = [
    {"age": 20 + number % 17, "income": 1000.0 + 37 * (number % 29), "city": f"c{number % 3}"}
    for number in range(60)
]
RELEASED: Rows = [row | {"income": SOURCE[(at + 7) % 60]["income"]} for at, row in enumerate(SOURCE)]


def call(**more: Any) -> dict[str, Any]:
    return {"source": {"rows": SOURCE}, "destination": {"rows": RELEASED}, **more}


@pytest.fixture(scope="module")
def job(api: Api) -> dict[str, Any]:
    answer = api.client.post("/v1/measures", json=call(seed="8f"))
    assert answer.status_code == 200, answer.text
    return api.job(answer)


def test_a_call_that_waits_has_the_report(api: Api, job: dict[str, Any]) -> None:
    """The response includes the report that is also stored."""
    assert (job["kind"], job["service"], job["state"], job["outcome"]) == (
        "measures",
        "measures",
        "succeeded",
        "SUCCESS",
    )
    assert job["parameters"] == {"aligned": True}
    assert "rows" not in job["destination"]
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    assert report == job["report"]
    assert report["summary"] == {"rows": 60, "destination_rows": 60, "aligned": True}
    moved = sum(a["income"] != b["income"] for a, b in zip(SOURCE, RELEASED, strict=True)) / 60
    assert report["measures"]["changed_share"]["value"] == {"age": 0, "income": moved, "city": 0}
    assert "phi" in report["left_out"]
    assert "report" not in api.job(api.client.get(f"/v1/jobs/{job['id']}"))


def test_it_gives_no_rows(api: Api, job: dict[str, Any]) -> None:
    """The error refers to the report."""
    problem = api.problem(api.client.get(f"/v1/jobs/{job['id']}/rows"), 404, "not_found")
    assert "its result is its report" in problem["detail"]


def test_a_foreign_table_says_what_a_swaps_own_report_says(api: Api) -> None:
    """The same two tables give the same figures, whatever tool made the second."""
    swapped = api.run(
        "DSWAP", SOURCE, {"swap_fields": ["income"]}, seed="8f", report="full", measures={"sample": 40}
    )
    own = api.client.get(f"/v1/jobs/{swapped['id']}/report").json()["measures"]
    body = {
        "source": {"rows": SOURCE},
        "destination": {"rows": swapped["destination"]["rows"]},
        "measures": {"sample": 40},
        "seed": "8f",
    }
    foreign = api.job(api.client.post("/v1/measures", json=body))["report"]["measures"]
    assert foreign["pscr"] == own["pscr"]
    assert foreign["dcr"] == own["dcr"]
    assert foreign["pscr"]["sample"] == 40


def test_tables_of_other_lengths_and_fields(api: Api) -> None:
    """Unmeasurable fields are listed by name; row-by-row measures are left out too."""
    destination = {"columns": {"age": list(range(20, 50)), "city": list(range(30)), "extra": [1] * 30}}
    body = call() | {"destination": destination}
    job = api.job(api.client.post("/v1/measures", json=body))
    report = job["report"]
    assert job["parameters"] == {"aligned": False}
    assert {"fields.income", "fields.extra", "fields.city", "pscr", "changed_share"} <= set(
        report["left_out"]
    )
    assert report["measures"]["dcr"]["fields"] == ["age"]
    assert any("not known which row" in limit for limit in report["limits"])


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        (
            {"destination": {"rows": RELEASED[:9]}, "aligned": True},
            "/aligned",
            "the destination 9",
        ),
        ({"destination": {"rows": [{"Age": 1}]}}, "/destination", "no field of a name"),
        ({"destination": {"rows": [{"age": 1}, 2]}}, "/destination/rows/1", ""),
        ({"destination": {"buffer": "nobody"}}, "/destination/buffer", "no buffer 'nobody'"),
        ({"source": {"buffer": "nobody"}}, "/source/buffer", "no buffer 'nobody'"),
        ({"measures": {"key_fields": ["agee"]}}, "/measures/key_fields/0", "did you mean 'age'?"),
        ({"measures": {"only": ["pscrr"]}}, "/measures/only/0", "did you mean 'pscr'?"),
        ({"measures": {"sample": 1}}, "/measures/sample", ""),
        ({"parameters": {}}, "/parameters", "unknown name"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    api: Api, change: dict[str, Any], pointer: str, message: str
) -> None:
    """The request is rejected before a job is created."""
    problem = api.problem(api.client.post("/v1/measures", json=call() | change), 422)
    assert problem["errors"][0]["pointer"] == pointer
    assert message in problem["errors"][0]["message"]


def test_validate_only_checks_and_stores_nothing(api: Api) -> None:
    """The job in the response does not exist."""
    job = api.job(api.client.post("/v1/measures", json=call(validate_only=True)))
    assert (job["kind"], job["progress"]["stage"]) == ("measures", "validated")
    api.problem(api.client.get(f"/v1/jobs/{job['id']}"), 404)
    refused = call(validate_only=True, measures={"target": "nobody"})
    api.problem(api.client.post("/v1/measures", json=refused), 422)


def test_it_is_listed_and_purged_like_any_job(api: Api) -> None:
    """Listing filters by service and state."""
    job = api.job(api.client.post("/v1/measures", json=call()))
    listed = api.client.get("/v1/jobs", params={"service": "measures"}).json()["jobs"]
    assert listed[0]["id"] == job["id"]
    assert all(other["kind"] == "measures" for other in listed)
    assert api.client.delete(f"/v1/jobs/{job['id']}").status_code == 204
    api.problem(api.client.get(f"/v1/jobs/{job['id']}/report"), 404)


def test_respond_async_and_idempotency_key(api: Api) -> None:
    """Both headers work as for every request that creates a job."""
    headers = {"prefer": "respond-async", "idempotency-key": "measures-1"}
    first = api.client.post("/v1/measures", json=call(), headers=headers)
    assert first.status_code == 202
    second = api.client.post("/v1/measures", json=call(), headers={"idempotency-key": "measures-1"})
    assert api.job(second)["id"] == api.job(first)["id"]
    assert api.job(second)["report"]["summary"]["rows"] == 60
    api.problem(api.client.post("/v1/measures", json=call(seed=1), headers=headers), 422)


def test_a_rerun_needs_both_tables_and_gives_the_same_report(api: Api, job: dict[str, Any]) -> None:
    """Rows that differ from the job's are rejected, and so is a subset of them."""
    path = f"/v1/jobs/{job['id']}/rerun"
    missing = api.problem(api.client.post(path, json={"source": {"rows": SOURCE}}), 409)
    assert "the job's destination was not retained" in missing["detail"]
    other = {"source": {"rows": SOURCE}, "destination": {"rows": SOURCE}}
    refused = api.problem(api.client.post(path, json=other), 409)
    assert refused["errors"][0]["pointer"] == "/destination"
    assert job["destination"]["digest"] in refused["detail"]
    again = api.job(api.client.post(path, json=call()))
    assert (again["reproduced"], again["report"]) == (True, job["report"])


def test_a_rerun_of_retained_tables_needs_none(api: Api) -> None:
    """`retain_source` keeps both."""
    kept = api.job(api.client.post("/v1/measures", json=call(retain_source=True)))
    assert api.job(api.client.post(f"/v1/jobs/{kept['id']}/rerun"))["reproduced"] is True


def test_a_destination_is_no_part_of_other_reruns(api: Api) -> None:
    """A swap creates its own destination."""
    swapped = api.run("DSWAP", SOURCE, {"swap_fields": ["income"]})
    answer = api.client.post(f"/v1/jobs/{swapped['id']}/rerun", json=call())
    assert api.problem(answer, 422)["errors"][0]["pointer"] == "/destination"


def test_buffers_are_judged_like_rows(api: Api, job: dict[str, Any]) -> None:
    """Tables too large for JSON give the same report as buffers."""
    ids = {}
    for name, rows in (("source", SOURCE), ("destination", RELEASED)):
        text = "age,income,city\n" + "".join(f"{r['age']},{r['income']},{r['city']}\n" for r in rows)
        headers = {"content-type": "text/csv"}
        answer = api.client.post("/v1/buffers", content=text.encode(), headers=headers)
        ids[name] = {"buffer": answer.raise_for_status().json()["id"]}
    judged = api.job(api.client.post("/v1/measures", json=ids | {"seed": "8f"}))
    assert judged["report"] == job["report"]
    again = api.job(api.client.post(f"/v1/jobs/{judged['id']}/rerun"))
    assert again["reproduced"] is True


def test_the_manifest_holds_both_digests_and_the_reports(api: Api, job: dict[str, Any]) -> None:
    """The manifest has everything that a rerun needs except the seed, and the expected result."""
    manifest = api.client.get(f"/v1/jobs/{job['id']}/manifest").raise_for_status().json()["manifest"]
    assert manifest["source"]["digest"] == job["source"]["digest"]
    assert manifest["destination"]["digest"] == job["destination"]["digest"]
    assert manifest["report_digest"].startswith("sha256:")
    assert manifest["service"] == "measures"
