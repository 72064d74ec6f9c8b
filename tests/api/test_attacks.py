"""``POST /v1/attacks`` and `attacks` of a run: attacks on a release, in a job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from app.callers import READ, RUN
from app.settings import Settings
from providers.tables.digest import DigestForm, table_digest
from tests.api.calls import ARROW, Api
from tests.api.test_identities import Keys, here

__all__ = ["here"]

Rows = list[dict[str, Any]]

SOURCE: Rows = [
    {
        "age": 20 + number * 7 % 61,
        "city": f"c{number * number % 5}",
        "hours": 10 + number * 13 % 47,
        "income": 1000 + 37 * (number * 11 % 241),
    }
    for number in range(240)
]
RELEASED: Rows = [row | {"income": SOURCE[(at + 77) % 240]["income"]} for at, row in enumerate(SOURCE)]
OTHERS: Rows = [
    {"age": 21 + n * 5 % 59, "city": f"c{n % 5}", "hours": 9 + n % 40, "income": 1010 + 41 * n}
    for n in range(60)
]
KNOWN = {"known": ["age", "city", "hours"], "secret": ["income"], "attacks": 60}
SWAP = {"swap_fields": ["income"], "rate": 0.5}


def call(**more: Any) -> dict[str, Any]:
    return {"source": {"rows": SOURCE}, **KNOWN, **more}


@pytest.fixture(scope="module")
def keys(service_home: Path, database: dict[str, str], address: str) -> Iterator[Keys]:
    made = Keys(service_home, database, address)
    yield made
    made.close()


@pytest.fixture(scope="module")
def swapped(api: Api) -> dict[str, Any]:
    """A run whose release is attacked; its source came in the request and was not retained."""
    return api.run("DSWAP", SOURCE, SWAP, seed="8f")


@pytest.fixture(scope="module")
def job(api: Api, swapped: dict[str, Any]) -> dict[str, Any]:
    return api.job(api.client.post("/v1/attacks", json=call(job=swapped["id"], seed="7a")))


def report_of(api: Api, job: dict[str, Any], accept: str = "application/json") -> Any:
    answer = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": accept}).raise_for_status()
    return answer.json() if "json" in accept else answer.text


def test_the_release_of_a_job_is_attacked_through_a_sister(
    api: Api, job: dict[str, Any], swapped: dict[str, Any]
) -> None:
    """The attack takes release, service and parameters from the job; a tenth of the source is the control."""
    assert (job["kind"], job["service"], job["state"]) == ("attacks", "attacks", "succeeded")
    assert job["destination"]["digest"] == swapped["destination"]["digest"]
    assert job["parameters"]["job"] == swapped["id"]
    assert job["parameters"]["method"] == {"service": "DSWAP", "parameters": swapped["parameters"]}
    report = job["report"]
    assert report["control"] == "sister"
    linkability = report["attacks"]["linkability"]
    assert linkability["control"]["tries"] == 24
    expected = (linkability["attack"]["rate"] - linkability["control"]["rate"]) / (
        1 - linkability["control"]["rate"]
    )
    assert linkability["risk"]["value"] == pytest.approx(max(0.0, expected))
    assert report["verdict"]["state"] in ("low", "elevated", "high")
    assert report["verdict"]["thresholds"] == {"elevated": 0.05, "high": 0.09, "attacks": {}}
    assert report_of(api, job) == report
    assert "sister release" in " ".join(report["limits"])


def test_it_gives_no_rows(api: Api, job: dict[str, Any]) -> None:
    problem = api.problem(api.client.get(f"/v1/jobs/{job['id']}/rows"), 404, "not_found")
    assert "its result is its report" in problem["detail"]
    assert problem["detail"].startswith("a job of attacks has no rows")


def test_a_table_of_any_tool_has_no_control_and_the_report_says_so(api: Api) -> None:
    found = api.job(api.client.post("/v1/attacks", json=call(destination={"rows": RELEASED})))
    report = found["report"]
    assert report["control"] == "none"
    assert "control" not in report["attacks"]["linkability"]
    assert {each["against"] for each in report["verdict"]["attacks"]} <= {"baseline", "nothing"}
    assert "no control rows" in report["limits"][0]


def test_given_control_rows_are_attacked(api: Api) -> None:
    """They are a table of the job, with a digest in its document and its manifest."""
    body = call(destination={"rows": RELEASED}, control={"rows": OTHERS})
    found = api.job(api.client.post("/v1/attacks", json=body))
    assert found["report"]["control"] == "given"
    assert found["report"]["attacks"]["linkability"]["control"]["tries"] == len(OTHERS)
    manifest = api.client.get(f"/v1/jobs/{found['id']}/manifest").json()["manifest"]
    assert manifest["control"]["digest"] == found["control"]["digest"]
    assert manifest["control"]["rows"] == len(OTHERS)
    assert manifest["destination"]["digest"] == found["destination"]["digest"]
    problem = api.problem(api.client.post(f"/v1/jobs/{found['id']}/rerun"), 409)
    assert "was not retained" in problem["detail"]
    tables = {"source": {"rows": SOURCE}, "destination": {"rows": RELEASED}}
    again = {**tables, "control": {"rows": OTHERS}}
    assert api.job(api.client.post(f"/v1/jobs/{found['id']}/rerun", json=again))["reproduced"] is True
    other = {**tables, "control": {"rows": OTHERS[1:]}}
    problem = api.problem(api.client.post(f"/v1/jobs/{found['id']}/rerun", json=other), 409)
    assert problem["errors"][0]["pointer"] == "/control"


def buffer(api: Api, rows: Rows) -> str:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content, headers = sink.getvalue().to_pybytes(), {"content-type": ARROW}
    made: str = api.client.post("/v1/buffers", content=content, headers=headers).json()["id"]
    return made


def test_buffers_give_the_figures_of_rows(api: Api) -> None:
    """Also as the retained tables of a rerun."""
    inline = call(destination={"rows": RELEASED}, control={"rows": OTHERS}, seed="8f")
    stored = {
        role: {"buffer": buffer(api, rows)}
        for role, rows in (("source", SOURCE), ("destination", RELEASED), ("control", OTHERS))
    }
    one, two = (
        api.job(api.client.post("/v1/attacks", json=body))
        for body in (inline, {**inline, **stored, "retain_source": True})
    )
    assert one["report"]["attacks"] == two["report"]["attacks"]
    assert one["control"]["digest"] == two["control"]["digest"]
    for each in stored.values():
        api.client.delete(f"/v1/buffers/{each['buffer']}").raise_for_status()
    assert api.job(api.client.post(f"/v1/jobs/{two['id']}/rerun"))["reproduced"] is True


def test_a_rerun_gives_equal_figures(api: Api, job: dict[str, Any]) -> None:
    """The release is still the first job's; only the source is needed again."""
    again = {"source": {"rows": SOURCE}}
    answer = api.job(api.client.post(f"/v1/jobs/{job['id']}/rerun", json=again))
    assert answer["reproduced"] is True
    assert answer["report"] == job["report"]


def test_a_run_that_kept_its_source_needs_none(api: Api) -> None:
    run = api.run("DSWAP", SOURCE, SWAP, seed="8f", retain_source=True)
    found = api.job(api.client.post("/v1/attacks", json={**KNOWN, "job": run["id"]}))
    assert found["source"]["digest"] == run["source"]["digest"]
    assert found["report"]["control"] == "sister"


def test_the_source_must_be_the_jobs_own(api: Api, swapped: dict[str, Any]) -> None:
    body = call(job=swapped["id"]) | {"source": {"rows": SOURCE[1:]}}
    problem = api.problem(api.client.post("/v1/attacks", json=body), 409)
    assert swapped["source"]["digest"] in problem["detail"]
    assert problem["errors"][0]["pointer"] == "/source"
    problem = api.problem(api.client.post("/v1/attacks", json={**KNOWN, "job": swapped["id"]}), 409)
    assert "its source was not retained" in problem["detail"]


def test_a_job_of_another_kind_or_without_rows_is_no_release(api: Api, job: dict[str, Any]) -> None:
    for other, reason in (
        (job["id"], "has no rows to attack; name a run of a service"),
        ("nobody", "there is no job 'nobody'"),
    ):
        problem = api.problem(api.client.post("/v1/attacks", json=call(job=other)), 422)
        assert problem["errors"][0]["pointer"] == "/job"
        assert reason in problem["errors"][0]["message"]
    run = api.run("DSWAP", SOURCE, SWAP, retain_source=True)
    api.client.delete(f"/v1/jobs/{run['id']}").raise_for_status()
    assert api.problem(api.client.post("/v1/attacks", json=call(job=run["id"])), 422)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"known": ["agee"]}, "/known/0", "unknown field 'agee'"),
    ({"secret": ["age"]}, "/secret/0", "also in 'known'"),
    ({"control": {"rows": [{"age": 3}]}}, "/control", "have no field"),
    ({"known": [], "secret": []}, "/known", "name the fields"),
    ({"aligned": True, "destination": {"rows": RELEASED[1:]}}, "/aligned", "row i cannot have become"),
    ({"advice": True}, "", "it needs 'job'"),
    ({"job": "x"}, "", "exactly one of 'job' and 'destination'"),
    ({"attacks": 0}, "/attacks", "greater than or equal to 1"),
    ({"confidence": 1}, "/confidence", "less than 1"),
]


@pytest.mark.parametrize(("more", "pointer", "message"), WRONG)
def test_what_does_not_fit_is_refused_with_its_place(
    api: Api, more: dict[str, Any], pointer: str, message: str
) -> None:
    body = call(destination={"rows": RELEASED}) | more
    first = api.problem(api.client.post("/v1/attacks", json=body), 422)["errors"][0]
    assert (first.get("pointer", ""), message in first["message"]) == (pointer, True), first


def test_a_release_needs_a_source(api: Api) -> None:
    body = {**KNOWN, "destination": {"rows": RELEASED}}
    first = api.problem(api.client.post("/v1/attacks", json=body), 422)["errors"][0]
    assert "'destination' needs 'source'" in first["message"]


def test_validate_only_checks_and_stores_nothing(api: Api, swapped: dict[str, Any]) -> None:
    body = call(job=swapped["id"], validate_only=True)
    found = api.job(api.client.post("/v1/attacks", json=body))
    assert (found["kind"], found["progress"]["stage"]) == ("attacks", "validated")
    assert "report" not in found
    assert api.client.get(f"/v1/jobs/{found['id']}").status_code == 404


def test_another_owners_release_cannot_be_attacked(
    api: Api, keys: Keys, swapped: dict[str, Any], job: dict[str, Any]
) -> None:
    """Neither the run, nor an attack on it, exists for a stranger; a member of the project may attack."""
    with keys.client(keys.make((RUN, READ), "attacker")) as stranger:
        answer = stranger.post("/v1/attacks", json=call(job=swapped["id"]))
        assert "there is no job" in api.problem(answer, 422)["errors"][0]["message"]
        assert stranger.get(f"/v1/jobs/{job['id']}").status_code == 404
        assert stranger.get(f"/v1/jobs/{job['id']}/report").status_code == 404
        problem = api.problem(stranger.post(f"/v1/jobs/{job['id']}/rerun"), 404)
        assert swapped["id"] not in str(problem)
    with (
        keys.client(keys.make((RUN, READ), "one", "attacks")) as one,
        keys.client(keys.make((RUN, READ), "two", "attacks")) as two,
    ):
        body = {"source": {"rows": SOURCE}, "parameters": SWAP}
        run = one.post("/v1/services/DSWAP", json=body).raise_for_status().json()
        found = two.post("/v1/attacks", json=call(job=run["id"])).raise_for_status().json()
        assert found["report"]["control"] == "sister"


def test_a_full_report_has_attacks_that_are_asked_for(api: Api) -> None:
    """Known and secret fields are named, or are those of the measures."""
    measures = {"only": ["mean_k"], "key_fields": ["age", "city"], "sensitive_fields": ["income"]}
    run = api.run("DSWAP", SOURCE, SWAP, report="full", measures=measures, attacks=True, seed="8f")
    assert run["options"]["attacks"] == {"known": ["age", "city"], "secret": ["income"]}
    report = report_of(api, run)
    assert report["control"] == "sister"
    assert report["verdict"]["state"] in ("low", "elevated", "high")
    assert "mean_k" in report["measures"]
    named = {"known": ["age", "city"], "secret": ["income"]}
    other = api.run("DSWAP", SOURCE, SWAP, report="full", attacks=named, measures=measures, seed="8f")
    assert report_of(api, other)["attacks"] == report["attacks"]
    page = report_of(api, run, "text/html")
    assert "Verdict on attacks" in page
    assert "sister release" in page
    assert report["headline"]["state"] == report["verdict"]["state"]
    plain = api.run("DSWAP", SOURCE, SWAP, report="full", measures=measures, attacks=False)
    assert "verdict" not in report_of(api, plain)


def test_a_report_without_attacks_has_a_headline(api: Api) -> None:
    """Judged by the thresholds that the job stores; a rerun gives the same, and a summary knows no risk."""
    measures = {
        "only": ["changed_share", "record_linkage"],
        "key_fields": ["age", "city"],
        "sensitive_fields": ["income"],
    }
    run = api.run("DSWAP", SOURCE, SWAP, report="full", measures=measures, seed="8f", retain_source=True)
    assert run["options"]["thresholds"] == {"elevated": 0.05, "high": 0.09, "attacks": {}}
    report = report_of(api, run)
    assert next(iter(report)) == "headline"
    headline = report["headline"]
    assert headline["thresholds"] == {"elevated": 0.05, "high": 0.09}
    assert len(headline["sentences"]) == 3
    assert {each["figure"] for each in headline["decided_by"]} == {"record_linkage", "true_values"}
    again = api.job(api.client.post(f"/v1/jobs/{run['id']}/rerun", json={}))
    assert report_of(api, again)["headline"] == headline
    summary = report_of(api, api.run("DSWAP", SOURCE, SWAP))
    assert summary["headline"]["state"] == "unknown"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"attacks": True}, '"report": "full"'),
        ({"attacks": True, "report": "full"}, "name the fields"),
        ({"attacks": {"known": ["nobody"]}, "report": "full"}, "unknown field 'nobody'"),
        ({"attacks": "yes", "report": "full"}, "give true, or an object"),
    ],
)
def test_attacks_of_a_run_that_do_not_fit_are_refused(api: Api, more: dict[str, Any], message: str) -> None:
    error = api.refused("DSWAP", {"source": {"rows": SOURCE}, "parameters": SWAP, **more})
    assert message in error["message"]


def test_advice_tries_other_parameters(api: Api, swapped: dict[str, Any]) -> None:
    body = call(job=swapped["id"], advice=True, attacks=20, secret=[])
    advice = api.job(api.client.post("/v1/attacks", json=body))["report"]["advice"]
    assert advice["rows"] + advice["control_rows"] == len(SOURCE)
    assert {"rate": 1.0} in [each["change"] for each in advice["tries"]]
    refuted = "in a second trial, too" in advice["sentence"]
    assert advice["parameters"] == ({} if refuted else advice.get("best", {}).get("change", {}))
    assert str(len(advice["tries"])) in advice["sentence"]


def test_its_page_begins_with_the_verdict(api: Api, job: dict[str, Any]) -> None:
    page = report_of(api, job, "text/html")
    assert page.index('<h2 id="verdict">') < page.index('<h2 id="attacks">') < page.index('<h2 id="done">')
    assert page.count("<svg viewBox") >= 1
    assert ">guessing<" in page
    assert "This report has no pictures" not in page


def test_the_source_of_an_older_job_is_compared_by_its_older_digest(api: Api, here: None) -> None:
    """The source comes as rows of the request, and as a buffer."""
    run = api.run("DSWAP", SOURCE, SWAP, seed="8e")
    older = table_digest(pa.Table.from_pylist(SOURCE), DigestForm.WHOLE)
    engine = sa.create_engine(Settings().database_url)
    with engine.begin() as connection:
        change = sa.text("UPDATE jobs SET source_digest = :digest WHERE id = :id")
        connection.execute(change, {"digest": older, "id": run["id"]})
    engine.dispose()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, (table := pa.Table.from_pylist(SOURCE)).schema) as writer:
        writer.write_table(table)
    headers = {"content-type": ARROW}
    made = api.client.post("/v1/buffers", content=sink.getvalue().to_pybytes(), headers=headers)
    buffer = made.raise_for_status().json()["id"]
    for source in ({"rows": SOURCE}, {"buffer": buffer}):
        body = call(job=run["id"], source=source, validate_only=True)
        api.client.post("/v1/attacks", json=body).raise_for_status()
    body = call(job=run["id"], source={"rows": SOURCE[1:]}, validate_only=True)
    problem = api.problem(api.client.post("/v1/attacks", json=body), 409)
    assert f"expected {older}" in problem["detail"]
