"""``report: "full"``: measured by the worker; unsuitable options are rejected with location and reason."""

from typing import Any

import pytest

from providers.measures import MEASURES
from tests.api.calls import Api

Rows = list[dict[str, Any]]
SWAP = {"swap_fields": ["income"]}


def measured(api: Api, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a request that creates a job; the first one in a worker waits for libraries."""
    answer = api.client.post(path, json=body, headers={"Prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    job = api.job(answer)
    report: dict[str, Any] = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    return {"job": job["id"], **report}


def test_full_report_holds_what_applies_and_says_why_the_rest_does_not(api: Api, people: Rows) -> None:
    body = {"source": {"rows": people}, "parameters": SWAP, "report": "full"}
    report = measured(api, "/v1/services/DSWAP", {**body, "measures": {"key_fields": ["city"]}})
    assert set(report["measures"]) | set(report["left_out"]) >= set(MEASURES)
    assert not set(report["measures"]) & set(report["left_out"])
    assert report["measures"]["changed_share"]["value"]["city"] == 0
    assert report["measures"]["unique_combinations"]["value"] == {"before": 1 / 6, "after": 1 / 6}
    assert report["measures"]["pscr"]["fields"] == ["age", "income", "city"]
    assert report["left_out"]["phi"] == "DSWAP does not give it"
    assert report["pictures"]["threshold"] == 5
    assert "42000.5" not in str(report)


def test_a_rerun_measures_the_same(api: Api, people: Rows) -> None:
    body = {"source": {"rows": people}, "parameters": {"k": 2}, "retain_source": True, "report": "full"}
    one = measured(api, "/v1/services/RWN", {**body, "measures": {"sample": 4, "target": "age"}})
    two = measured(api, f"/v1/jobs/{one.pop('job')}/rerun", {})
    del two["job"]
    assert one == two
    assert one["measures"]["pscr"]["sample"] == 4


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"key_fields": ["ctiy"]}, "/measures/key_fields/0", "did you mean 'city'?"),
    ({"fields": ["age", "age"]}, "/measures/fields/1", "named twice"),
    ({"target": "agee"}, "/measures/target", "did you mean 'age'?"),
    ({"fields": ["city"], "target": "age"}, "/measures/target", "must be one of 'fields'"),
    ({"only": ["prscr"]}, "/measures/only/0", "did you mean 'pscr'?"),
    ({"sample": 1}, "/measures/sample", "2"),
    ({"key_fields": ["age"], "rounding": {"age": 0}}, "/measures/rounding/age", "greater than 0"),
    ({"rounding": {"age": 5}}, "/measures/rounding/age", "no key field"),
    ({"key_fields": ["city"], "rounding": {"city": 5}}, "/measures/rounding/city", "only numbers"),
    ({"keyfields": ["age"]}, "/measures/keyfields", "did you mean 'key_fields'?"),
]


@pytest.mark.parametrize(("measures", "pointer", "words"), REFUSED)
def test_options_that_do_not_fit_are_refused(
    api: Api, people: Rows, measures: dict[str, Any], pointer: str, words: str
) -> None:
    body = {"source": {"rows": people}, "parameters": SWAP, "report": "full", "measures": measures}
    error = api.refused("DSWAP", body)
    assert error["pointer"] == pointer
    assert words in error["message"]


def test_options_without_the_full_report_are_refused(api: Api, people: Rows) -> None:
    body = {"source": {"rows": people}, "parameters": SWAP, "measures": {"sample": 100}}
    assert '"report": "full"' in api.refused("DSWAP", body)["message"]
