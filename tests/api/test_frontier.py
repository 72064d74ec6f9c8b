"""``POST /v1/frontier``: compares services and parameters, in a job."""

from typing import Any

import pytest

from tests.api.calls import Api
from tests.api.test_candidates import ROWS
from tests.naive.choosing import dominated, eligibilities

SERVICES: list[dict[str, Any]] = [
    {"service": "DSWAP", "parameters": {"swap_fields": ["income"]}, "vary": {"rate": [0.2, 1.0]}},
    {"service": "MEDS", "parameters": {"swap_fields": ["income", "age"]}, "vary": {"k": [3, 10, 60, 5000]}},
    {"service": "RWN", "vary": {"k": [2, 20]}},
]


def call(**more: Any) -> dict[str, Any]:
    return {"source": {"rows": ROWS}, "services": SERVICES, "seed": "8f", **more}


@pytest.fixture(scope="module")
def job(api: Api) -> dict[str, Any]:
    answer = api.client.post("/v1/frontier", json=call(), headers={"prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    return api.job(answer)


def test_every_combination_is_a_point(job: dict[str, Any]) -> None:
    """Points have the order and the parameters of the request."""
    assert (job["kind"], job["service"], job["state"]) == ("frontier", "frontier", "succeeded")
    assert "destination" not in job
    found = job["report"]["frontier"]
    assert (found["risk"], found["utility"], found["runs"]) == (
        "interval_sd.narrow.by_field",
        "delta_rho.mean",
        1,
    )
    assert found["goals"] == {"risk": "low", "utility": "low"}
    assert [(point["service"], point["parameters"]) for point in found["points"]] == [
        ("DSWAP", {"swap_fields": ["income"], "rate": 0.2}),
        ("DSWAP", {"swap_fields": ["income"], "rate": 1.0}),
        ("MEDS", {"swap_fields": ["income", "age"], "k": 3}),
        ("MEDS", {"swap_fields": ["income", "age"], "k": 10}),
        ("MEDS", {"swap_fields": ["income", "age"], "k": 60}),
        ("MEDS", {"swap_fields": ["income", "age"], "k": 5000}),
        ("RWN", {"k": 2}),
        ("RWN", {"k": 20}),
    ]


def test_the_points_that_nothing_beats_are_marked(job: dict[str, Any]) -> None:
    """Marks agree with the definition, pair by pair."""
    found = job["report"]["frontier"]
    points = found["points"]
    entries = [
        (frozenset(point["protects"]), point["reversible"], (point["risk"], point["utility"]))
        for point in points
    ]
    expected = eligibilities(entries, ("low", "low"))
    assert [(point["unprotected"], point["dominated"]) for point in points] == expected
    assert [point["protects_fewer"] for point in points] == [bool(missing) for missing, _ in expected]
    assert found["best"] == [at for at, (_, dominated) in enumerate(expected) if not dominated] != []
    assert job["report"]["summary"]["not_dominated"] == len(found["best"])


def test_runs_that_protect_fewer_fields_are_flagged(job: dict[str, Any]) -> None:
    """DSWAP of one field compared with MEDS of two: it changes less, and is not called better."""
    found = job["report"]["frontier"]
    assert found["protected"] == ["age", "income"]
    assert [point["unprotected"] for point in found["points"]] == [["age"]] * 2 + [[]] * 6
    assert "2 protect fewer fields than others and are not called better" in found["verdict"]


def test_an_axis_that_no_run_changes_is_constant_and_ranks_nothing(api: Api) -> None:
    """For explicitly named known fields without a swap nothing is best; otherwise another figure is used."""
    body = call(services=SERVICES[:1], key_fields=["age", "city"])
    found = api.job(api.client.post("/v1/frontier", json=body))["report"]["frontier"]
    assert found["risk"] == "interval_sd.narrow.by_field"
    assert "of which no run changes a value" in found["passed_over"]["record_linkage.rate"]
    assert 0 < found["axes"]["risk"]["baseline"] < 1
    job = api.job(api.client.post("/v1/frontier", json=body | {"risk": "unique_combinations"}))
    found = job["report"]["frontier"]
    assert found["axes"]["risk"]["constant"] is True
    assert found["best"] == []
    assert job["report"]["summary"]["not_dominated"] == 0
    assert "No combination is called better" in found["verdict"]
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).text
    assert "No combination is called better" in page
    assert "is constant and ranks nothing" in page


def test_a_point_is_what_the_service_gives(api: Api, job: dict[str, Any]) -> None:
    """A service accepts a point's parameters; at rate 1, every seed swaps every row."""
    points = job["report"]["frontier"]["points"]
    run = api.run("DSWAP", ROWS, points[1]["parameters"], report="full", measures={"only": ["pscr"]})
    report = api.client.get(f"/v1/jobs/{run['id']}/report").json()
    assert report["summary"]["took_part"] == len(ROWS)
    assert points[1]["risk"] < points[0]["risk"]


def test_more_runs_are_a_mean(api: Api) -> None:
    """The runs have different seeds; the first one is the single run's."""
    services = [SERVICES[0]]
    means = []
    for runs in (1, 2, 4):
        answer = api.client.post("/v1/frontier", json=call(services=services, runs=runs))
        found = api.job(answer)["report"]["frontier"]
        assert found["runs"] == runs
        means.append(found["points"][0]["utility"])
    assert len(set(means)) == 3


def test_a_points_figures_do_not_depend_on_its_place(api: Api, job: dict[str, Any]) -> None:
    """Fewer combinations, another order, another notation: the same figures."""
    services = [
        {"service": "RWN", "parameters": {"k": 20}},
        {"service": "DSWAP", "parameters": {"SWAP_FIELD_NAMES": "income", "SWAP_RATE": 0.2, "locked": False}},
    ]
    points = job["report"]["frontier"]["points"]
    again = api.job(api.client.post("/v1/frontier", json=call(services=services)))
    found = again["report"]["frontier"]["points"]
    for one, other in ((found[0], points[7]), (found[1], points[0])):
        assert (one["risk"], one["utility"]) == (other["risk"], other["utility"])


def test_a_combination_that_fails_does_not_fail_the_job(api: Api) -> None:
    """The failed combination is a point with its error, counted, reported as an event, and not best."""
    rows = [{"income": number, "age": number % 5, "city": f"c{number}"} for number in range(20)]
    services = [
        {
            "service": "CDSWAP",
            "parameters": {"swap_fields": ["income"], "suppression": {"policy": "fail"}},
            "vary": {"control_field": ["city", "age"]},
        }
    ]
    job = api.job(api.client.post("/v1/frontier", json={"source": {"rows": rows}, "services": services}))
    assert (job["state"], job["outcome"]) == ("succeeded", "SUCCESS_WITH_INFO")
    failed, fine = job["report"]["frontier"]["points"]
    assert "risk" not in failed
    assert failed["dominated"] is True
    assert "cannot be swapped" in failed["error"]
    assert fine["dominated"] is False
    assert job["event_counts"] == {"combination_failed": 1}
    assert job["report"]["summary"] == {"rows": 20, "points": 2, "not_dominated": 1, "failed": 1}


def test_parameters_come_back_as_they_were_given(api: Api) -> None:
    """An integer beyond 64 bits keeps its digits."""
    rows = [{"price": f"{number}.5", "city": f"c{number % 3}"} for number in range(9)]
    source = {"rows": rows, "fields": {"price": "decimal(30,1)"}}
    suppression = {"policy": "replace", "replacement": {"price": 10**25}}
    swap = {"service": "DSWAP", "parameters": {"swap_fields": ["price"], "suppression": suppression}}
    body = {"source": source, "services": [swap], "utility": "marginals.identical"}
    job = api.job(api.client.post("/v1/frontier", json=body))
    assert job["report"]["frontier"]["points"][0]["parameters"] == swap["parameters"]
    assert api.client.get(f"/v1/jobs/{job['id']}/report").json() == job["report"]


def test_figures_of_either_goal(api: Api) -> None:
    """A high goal reverses the comparison; the risk concerns the fields known to an intruder."""
    body = call(services=SERVICES[:1], risk="dcr.p05", utility="delta_rho.sd")
    found = api.job(api.client.post("/v1/frontier", json=body))["report"]["frontier"]
    assert found["goals"] == {"risk": "high", "utility": "low"}
    pairs = [(point["risk"], point["utility"]) for point in found["points"]]
    assert [point["dominated"] for point in found["points"]] == dominated(pairs, ("high", "low"))
    known = api.job(
        api.client.post("/v1/frontier", json=call(services=SERVICES[:1], key_fields=["age", "income"]))
    )
    assert known["report"]["frontier"]["risk"] == "record_linkage.rate"
    assert known["options"]["measures"]["key_fields"] == ["age", "income"]


def test_a_rerun_gives_the_same_points(api: Api, job: dict[str, Any]) -> None:
    """A rerun with the same source and seed."""
    path = f"/v1/jobs/{job['id']}/rerun"
    again = api.job(api.client.post(path, json={"source": {"rows": ROWS}}, headers={"prefer": "wait=60"}))
    assert (again["reproduced"], again["report"]) == (True, job["report"])


def test_it_gives_no_rows(api: Api, job: dict[str, Any]) -> None:
    """The error refers to the report."""
    api.problem(api.client.get(f"/v1/jobs/{job['id']}/rows"), 404, "not_found")
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    assert report == job["report"]
    manifest = api.client.get(f"/v1/jobs/{job['id']}/manifest").json()["manifest"]
    assert "destination" not in manifest
    assert manifest["report_digest"].startswith("sha256:")
    assert manifest["parameters"]["services"][2]["vary"] == {"k": [2, 20]}


def test_its_page_shows_every_point(api: Api, job: dict[str, Any]) -> None:
    """Points appear in a picture and a table, with the non-dominated ones marked."""
    answer = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"})
    assert answer.headers["content-type"].startswith("text/html")
    assert "8 combinations were" in answer.text
    assert answer.text.count("MEDS") >= 4


def test_validate_only_checks_every_combination(api: Api) -> None:
    """No combination runs."""
    job = api.job(api.client.post("/v1/frontier", json=call(validate_only=True)))
    assert (job["kind"], job["progress"]["stage"]) == ("frontier", "validated")
    api.problem(api.client.get(f"/v1/jobs/{job['id']}"), 404)


def variation(**more: Any) -> dict[str, Any]:
    return {"service": "MEDS", "parameters": {"swap_fields": ["income"]}, **more}


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        ({"services": []}, "/services", ""),
        ({"services": [{"service": "MEDSS"}]}, "/services/0/service", "did you mean 'MEDS'?"),
        ({"services": [SERVICES[0], variation(vary={"k": [3, 0]})]}, "/services/1/vary/k/1", "greater than"),
        ({"services": [variation(vary={"k": [3], "kk": [1]})]}, "/services/0/vary/kk/0", "did you mean 'k'?"),
        ({"services": [variation(vary={"k": []})]}, "/services/0/vary/k", "at least 1 item"),
        (
            {"services": [variation(parameters={"swap_fields": ["incom"]}, vary={"k": [3]})]},
            "/services/0/parameters/swap_fields/0",
            "did you mean 'income'?",
        ),
        (
            {
                "services": [
                    {"service": "DSWAP", "parameters": {"SWAP_FIELD_NAMES": ["income"], "SWAP_RATE": 2}}
                ]
            },
            "/services/0/parameters/SWAP_RATE",
            "less than or equal to 1",
        ),
        (
            {"services": [{"service": "DSWAP", "vary": {"swap_fields": [["age"], ["age", "cty"]]}}]},
            "/services/0/vary/swap_fields/1/1",
            "did you mean 'city'?",
        ),
        (
            {"services": [variation(parameters={"swap_fields": ["income"], "k": 3}, vary={"k": [3]})]},
            "/services/0/vary/k",
            "a parameter stays or varies",
        ),
        ({"services": [{"service": "DSWAP"}]}, "/services/0", "give the swap fields"),
        ({"services": [variation(vary={"k": list(range(2, 503))})]}, "/services", "501 combinations"),
        ({"risk": "delta_rho"}, "/risk", "is a figure of utility, not of risk"),
        ({"utility": "delta_rhoo"}, "/utility", "did you mean 'delta_rho"),
        ({"risk": "mean_k"}, "/risk", "needs 'measures.key_fields'"),
        (
            {"risk": "t_closeness", "measures": {"key_fields": ["age"]}},
            "/risk",
            "needs 'measures.sensitive_fields'",
        ),
        ({"key_fields": ["agee"]}, "/key_fields/0", "did you mean 'age'?"),
        ({"key_fields": ["age"], "measures": {"key_fields": ["age"]}}, "/key_fields", "give one"),
        ({"key_fields": ["age"], "risk": "pscr"}, "/key_fields", "used by none"),
        ({"measures": {"only": ["pscr"]}}, "/measures/only", "used by none"),
        ({"runs": 0}, "/runs", "greater than or equal to 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    api: Api, change: dict[str, Any], pointer: str, message: str
) -> None:
    """Every combination is checked before the first one runs."""
    problem = api.problem(api.client.post("/v1/frontier", json=call() | change), 422)
    assert problem["errors"][0]["pointer"] == pointer
    assert message in problem["errors"][0]["message"]


def test_it_is_cancelled_like_any_job(api: Api) -> None:
    """The job is cancelled in the middle of its points."""
    swap = {"service": "DSWAP", "parameters": {"swap_fields": ["income"]}, "vary": {"rate": [0.5] * 400}}
    body = call(services=[swap], runs=100)
    job = api.job(api.client.post("/v1/frontier", json=body, headers={"prefer": "respond-async"}))
    with api.client.stream("GET", f"/v1/jobs/{job['id']}/events") as events:
        next(line for line in events.iter_lines() if "point " in line)
    cancelled = api.job(api.client.post(f"/v1/jobs/{job['id']}/cancel"))
    assert cancelled["state"] == "cancelled"
    api.problem(api.client.get(f"/v1/jobs/{job['id']}/report"), 409)
