"""Frontier, candidates and attacks with the parameters that surveys need."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.calls import Api
from tests.conftest import Service
from tests.survey_runs import KNOWN, RUNS, WEIGHTED, survey

ROWS = survey()
METHOD_ATTACKS = {
    "DSWAP": "reidentification",
    "CDSWAP": "reidentification",
    "DDSWAP": "reidentification",
    "MEWS": "reidentification",
    "MEDS": "reidentification",
    "RSWAP": "area_linkage",
}
"""Service -> the attack that uses its rule."""
WAIT = {"prefer": "wait=60"}


@pytest.fixture(scope="module")
def api(service_on: Callable[[str], Service]) -> Api:
    """Client of one service; another database would change no result."""
    return Api(service_on("sqlite").client)


def as_stored(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with a single control field as a list."""
    return {
        key: [value] if key == "control_field" and isinstance(value, str) else value
        for key, value in parameters.items()
    }


def test_a_frontier_compares_them_all(api: Api) -> None:
    """Each is a point with its parameters as given, its figures and without an error; weights take part."""
    services = [{"service": service, "parameters": parameters} for service, parameters in RUNS.values()]
    body = {
        "source": {"rows": ROWS},
        "services": services,
        "risk": "changed_share",
        "utility": "domain_totals.change_in_errors",
        "measures": WEIGHTED,
        "seed": "8f",
    }
    answer = api.client.post("/v1/frontier", json=body, headers=WAIT)
    assert answer.status_code == 200, answer.text
    found = api.job(answer)["report"]["frontier"]
    assert len(found["points"]) == len(RUNS)
    for (name, (service, parameters)), point in zip(RUNS.items(), found["points"], strict=True):
        assert "error" not in point, (name, point)
        assert point["service"] == service
        assert {key: point["parameters"][key] for key in parameters} == parameters, name
        assert point["utility"] >= 0
        assert ("guarantee" in point) == ("mechanism" in parameters)


@pytest.fixture(scope="module", params=RUNS)
def chosen(request: pytest.FixtureRequest, api: Api) -> tuple[str, dict[str, Any]]:
    """The better one of two candidates of a run."""
    service, parameters = RUNS[request.param]
    options = {"candidates": {"count": 2, "rank_by": ["changed_share"]}, "seed": "8f"}
    return request.param, api.run(service, ROWS, parameters, **options)


def test_candidates_are_ranked(api: Api, chosen: tuple[str, dict[str, Any]]) -> None:
    name, job = chosen
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    table = report["candidates"]["table"]
    assert len(table) == 2
    assert all(line["values"]["changed_share"] > 0 for line in table)
    assert ("guarantee" in table[0]) == ("mechanism" in RUNS[name][1])
    parameters = RUNS[name][1]
    assert {key: job["parameters"][key] for key in parameters} == as_stored(parameters)


def test_the_release_is_attacked_by_the_rule_of_its_run(api: Api, chosen: tuple[str, dict[str, Any]]) -> None:
    """The attack of the service's rule runs with the selection by risk, and says what it does not use."""
    name, released = chosen
    service, parameters = RUNS[name]
    moved = parameters.get("swap_fields", ["income"])[0]
    body = {
        "source": {"rows": ROWS},
        "job": released["id"],
        "known": [each for each in [*KNOWN, "area", "weight"] if each != moved],
        "secret": [moved],
        "attacks": 30,
        "seed": "7a",
    }
    answer = api.client.post("/v1/attacks", json=body, headers=WAIT)
    assert answer.status_code == 200, answer.text
    report = api.job(answer)["report"]
    attack = METHOD_ATTACKS[service]
    assert attack in report["attacks"], report["left_out"]
    assert report["control"] == "sister"
    if attack != "reidentification":
        return
    (found,) = report["attacks"][attack].values()
    assert found["details"]["selection_by_risk"] == ("risk" in parameters)
    assert found["details"]["mechanism"] == parameters.get("mechanism", "pairs")
    assert ("excluded exchanges that break a check" in found["note"]) == ("on_broken" in parameters)
