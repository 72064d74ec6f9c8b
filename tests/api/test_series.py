"""Series of tables over HTTP: a unit keeps its partner in every table and wave."""

from typing import Any

import pytest

from app.ids import new_id
from tests.api.calls import Api

PARAMETERS: dict[str, Any] = {"swap_fields": ["income"], "unit_id": "person"}


def rows(persons: list[int], of: int = 1) -> list[dict[str, Any]]:
    """Rows of persons, `of` each, whose values show whose they are and in which row."""
    return [
        {"person": person, "income": 100 * person + number, "town": "x"}
        for number in range(of)
        for person in persons
    ]


def partners(job: dict[str, Any]) -> dict[int, int | None]:
    """The person whose values each person has in the release."""
    found: dict[int, set[int | None]] = {}
    for row in job["destination"]["rows"]:
        income = row["income"]
        found.setdefault(row["person"], set()).add(None if income is None else income // 100)
    assert all(len(of) == 1 for of in found.values())
    return {person: of.pop() for person, of in found.items()}


@pytest.fixture
def name() -> str:
    return f"panel-{new_id()}"


def run(api: Api, name: str, persons: list[int], of: int = 1, **more: Any) -> dict[str, Any]:
    return api.run("DSWAP", rows(persons, of), PARAMETERS | {"series": name} | more)


def test_a_unit_keeps_its_partner(api: Api, name: str) -> None:
    """A second table has another order and several rows each; arrivals are paired among themselves."""
    first = run(api, name, list(range(10)))
    paired = partners(first)
    assert set(paired.values()) == set(range(10))
    assert all(person != partner for person, partner in paired.items())
    assert first["event_counts"]["series_started"] == 1
    second = run(api, name, [*range(14, -1, -1)], of=3)
    again = partners(second)
    assert {person: again[person] for person in range(10)} == paired
    assert {again[person] for person in range(10, 15)} == set(range(10, 15))
    report = api.client.get(f"/v1/jobs/{second['id']}/report").json()
    assert report["provider"]["series"] == {
        "name": name,
        "wave": 2,
        "known": 10,
        "kept_partner": 10,
        "partner_missing": 0,
        "partner_size_differs": 0,
        "partner_class_differs": 0,
        "arrivals": 5,
        "new_pairs": 5,
    }
    assert "series_started" not in second["event_counts"]
    found = api.client.get(f"/v1/series/{name}").json()
    assert (found["waves"], found["units"]) == (2, 15)


def test_a_unit_whose_partner_left_is_suppressed(api: Api, name: str) -> None:
    """The report and the events say why; the unit keeps its partner for later tables."""
    paired = partners(run(api, name, list(range(10))))
    gone = paired[0]
    present = [person for person in range(10) if person != gone]
    second = run(api, name, present)
    found = partners(second)
    assert found.pop(0) is None
    assert found == {person: paired[person] for person in present if person != 0}
    assert second["event_counts"] == {"partner_missing": 1, "suppressed": 1}
    report = api.client.get(f"/v1/jobs/{second['id']}/report").json()
    assert report["summary"]["unswapped_reasons"] == {"partner_missing": 1}
    assert report["provider"]["series"]["partner_missing"] == 1
    kept = run(api, name, present, suppression={"policy": "keep"})
    assert partners(kept)[0] == 0
    assert partners(run(api, name, list(range(10)))) == paired


def test_units_of_any_size_keep_their_partner(api: Api, name: str) -> None:
    """Visits with different numbers of rows show the partner's value in all rows of a person."""
    paired = partners(run(api, name, list(range(6))))
    visits = [{"person": person, "income": 100 * person} for person in range(6) for _ in range(person + 1)]
    ended = api.run("DSWAP", visits, PARAMETERS | {"series": name, "unit_sizes": "any"})
    assert partners(ended) == paired
    refused = api.client.post(
        "/v1/services/DSWAP",
        json={"source": {"rows": rows([1, 2], 2)}, "parameters": PARAMETERS | {"unit_sizes": "any"}},
    )
    assert "field 'income' differs within 2 units, first in row 2" in refused.json()["error"]["detail"]


def test_list_and_delete(api: Api, name: str) -> None:
    """Pages are in the order of creation; a deleted series is gone, and the name is free again."""
    for number in range(3):
        run(api, f"{name}-{number}", [1, 2, 3, 4])
    found: list[dict[str, Any]] = []
    address = "/v1/series?page_size=2"
    while address:
        answer = api.client.get(address)
        assert answer.status_code == 200, answer.text
        found += answer.json()["series"]
        assert len(answer.json()["series"]) <= 2
        address = answer.links["next"]["url"] if "next" in answer.links else ""
        assert bool(address) == ("next_page_token" in answer.json())
    mine = [each for each in found if each["name"].startswith(name)]
    assert [each["name"] for each in mine] == [f"{name}-{number}" for number in range(3)]
    assert [(each["waves"], each["units"]) for each in mine] == [(1, 4)] * 3
    assert all(each["created_at"] <= each["last_used_at"] for each in mine)
    assert api.client.get(f"/v1/series/{name}-1").json() == mine[1]
    assert api.client.delete(f"/v1/series/{name}-1").status_code == 204
    api.problem(api.client.get(f"/v1/series/{name}-1"), 404, "not_found")
    api.problem(api.client.delete(f"/v1/series/{name}-1"), 404, "not_found")
    for unknown in ("/v1/series/%00", f"/v1/series/{name}-0?owner=%00", f"/v1/series/{name}-0?owner=nobody"):
        api.problem(api.client.get(unknown), 404, "not_found")
        api.problem(api.client.delete(unknown), 404, "not_found")
    assert run(api, f"{name}-1", [1, 2, 3, 4])["event_counts"]["series_started"] == 1


def test_the_manifest_names_the_pairs(api: Api, name: str) -> None:
    first, second = (run(api, name, list(range(10))) for _ in range(2))
    stated = [
        api.client.get(f"/v1/jobs/{job['id']}/manifest").json()["manifest"]["series"]
        for job in (first, second)
    ]
    assert [(each["name"], each["wave"]) for each in stated] == [(name, 1), (name, 2)]
    assert stated[0]["pairs_digest"] != stated[1]["pairs_digest"]
    assert all(each["pairs_digest"].startswith("sha256:") for each in stated)


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        ({"unit_id": None}, "/parameters", "'series' needs 'unit_id'"),
        ({"swap_fields": ["income", "town"]}, "/parameters", "each unit has one partner"),
        ({"nulls": "keep"}, "/parameters", "set 'nulls' to 'swap'"),
        ({"household": "person"}, "/parameters", "give 'unit_id' or 'household', one of the two"),
        ({"series": "no spaces"}, "/parameters/series", "1 to 64 letters, digits"),
        ({"unit_id": "income"}, "/parameters/unit_id", "both unit and swap field"),
        ({"unit_id": "person_"}, "/parameters/unit_id", "did you mean 'person'"),
        (
            {"on_broken": "repair", "checks": ["income >= 0"]},
            "/parameters",
            "'household' or 'unit_id' use 'on_broken'",
        ),
    ],
)
def test_parameters_that_do_not_fit(
    api: Api, name: str, change: dict[str, Any], pointer: str, message: str
) -> None:
    parameters = {
        key: value for key, value in (PARAMETERS | {"series": name} | change).items() if value is not None
    }
    fault = api.refused("DSWAP", {"source": {"rows": rows([1, 2])}, "parameters": parameters})
    assert fault["pointer"] == pointer
    assert message in fault["message"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({"candidates": 3}, "/candidates"), ({"validate_only": True}, "/parameters/series")],
)
def test_runs_that_have_no_pairs(api: Api, name: str, body: dict[str, Any], pointer: str) -> None:
    """Candidates and plans are refused, and begin no series."""
    call = {"source": {"rows": rows([1, 2, 3])}, "parameters": PARAMETERS | {"series": name}} | body
    assert api.refused("DSWAP", call)["pointer"] == pointer
    api.problem(api.client.get(f"/v1/series/{name}"), 404)


def test_a_comparison_has_no_series(api: Api, name: str) -> None:
    call = {
        "source": {"rows": rows([1, 2, 3])},
        "services": [{"service": "DSWAP", "parameters": PARAMETERS | {"series": name}}],
    }
    problem = api.problem(api.client.post("/v1/frontier", json=call), 422)
    assert problem["errors"][0]["pointer"] == "/services/0/parameters/series"
