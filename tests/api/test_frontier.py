"""``POST /v1/frontier``: compares services and parameters, in a job."""

from typing import Any

import pytest

from tests.api.calls import Api
from tests.api.test_candidates import ROWS
from tests.naive.choosing import clearly_apart, dominated, eligibilities
from tests.naive.permutation import epsilon, smallest_rate

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
        "interval_sd.robust.by_field",
        "delta_rho.ranks.mean",
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
    by_values = eligibilities(entries, ("low", "low"))
    expected = [
        (missing, out and not within_uncertainty(points, place))
        for place, (missing, out) in enumerate(by_values)
    ]
    assert [(point["unprotected"], point["dominated"]) for point in points] == expected
    assert [point["protects_fewer"] for point in points] == [bool(missing) for missing, _ in expected]
    assert found["best"] == [at for at, (_, dominated) in enumerate(expected) if not dominated] != []
    assert job["report"]["summary"]["not_dominated"] == len(found["best"])


def within_uncertainty(points: list[dict[str, Any]], place: int) -> bool:
    """Whether no better point is better by more than the uncertainty; the point names the better ones."""
    one = points[place]
    if one["reversible"] or one["unprotected"]:
        return False
    better = [
        index
        for index, other in enumerate(points)
        if (other["protects"], other["reversible"]) == (one["protects"], {})
        and dominated([(other["risk"], other["utility"]), (one["risk"], one["utility"])], ("low", "low"))[1]
    ]
    apart = any(clearly_apart(place_of(one), place_of(points[index])) for index in better)
    if better and not apart:
        assert one["within_uncertainty_of"] == better
    else:
        assert "within_uncertainty_of" not in one
    return not apart


def place_of(point: dict[str, Any]) -> tuple[tuple[float, float], tuple[float, ...]]:
    """Return both figures, and the reaches of their intervals down and up."""
    values = point["risk"], point["utility"]
    limits = point["risk_interval"], point["utility_interval"]
    return values, tuple(
        reach
        for value, each in zip(values, limits, strict=True)
        for reach in (value - each["low"], each["high"] - value)
    )


def test_each_point_has_intervals_that_more_runs_make_narrower(api: Api) -> None:
    """An interval of one run covers the rows, those of several runs the seeds too; each has its figure."""
    widths = []
    for runs in (1, 5):
        body = call(services=SERVICES[1:2], runs=runs)
        job = api.job(api.client.post("/v1/frontier", json=body, headers={"prefer": "wait=60"}))
        found = job["report"]["frontier"]
        for axis in ("risk", "utility"):
            name = found[axis]
            covers = found["figures"][name]["interval_covers"]
            assert covers == ("rows" if runs == 1 else "rows and seeds")
            for point in found["points"]:
                interval = point["intervals"][name]
                assert interval == point[f"{axis}_interval"]
                assert interval["low"] <= point[axis] <= interval["high"]
                assert interval["low"] < interval["high"]
        widths.append(
            [
                point["intervals"]["changed_share"]["high"] - point["intervals"]["changed_share"]["low"]
                for point in found["points"]
            ]
        )
        page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).text
        assert f"its 95 % interval for other {covers}" in page
        assert page.count('class="whisker"') == 2 * len(found["points"])
    assert all(many < one for one, many in zip(*widths, strict=True))


def test_runs_that_protect_fewer_fields_are_flagged(job: dict[str, Any]) -> None:
    """DSWAP of one field compared with MEDS of two: it changes less, and is not called better."""
    found = job["report"]["frontier"]
    assert found["protected"] == ["age", "income"]
    assert [point["unprotected"] for point in found["points"]] == [["age"]] * 2 + [[]] * 6
    assert "2 protect fewer fields than others and are not called better" in found["verdict"]


def test_an_axis_that_no_run_changes_is_constant_and_ranks_nothing(api: Api) -> None:
    """A named figure of fields that no run changes calls nothing best; by default an attack ranks."""
    body = call(services=SERVICES[:1], key_fields=["age", "city"])
    found = api.job(api.client.post("/v1/frontier", json=body))["report"]["frontier"]
    assert found["risk"] == "inference_risk"
    assert found["attacked"] == {"known": ["age", "city"], "sensitive": ["income"]}
    limits = " ".join(api.job(api.client.post("/v1/frontier", json=body))["report"]["limits"])
    assert "standard error of its rate is up to 0.022" in limits
    assert found["points"][0]["figures"].keys() >= {"inference_risk", "linkability_risk", "changed_share"}
    job = api.job(api.client.post("/v1/frontier", json=body | {"risk": "unique_combinations"}))
    found = job["report"]["frontier"]
    assert found["axes"]["risk"]["constant"] is True
    assert found["best"] == []
    assert job["report"]["summary"]["not_dominated"] == 0
    assert "No combination is called better" in found["verdict"]
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).text
    assert "No combination is called better" in page
    assert "is constant and ranks nothing" in page


def test_the_page_shows_the_figures_and_the_protected_fields_of_each_point(
    api: Api, job: dict[str, Any]
) -> None:
    """The first table has the fields that a run protects, the second one all figures on no axis."""
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).text
    assert "<th" in page
    assert ">protects</th>" in page
    assert page.count(">age, income</td>") == 6
    further = page.partition("Other figures of the combinations")[2].partition("</table>")[0]
    found = job["report"]["frontier"]
    others = set(found["points"][0]["figures"]) - {found["risk"], found["utility"]}
    assert further.count("<tr") == 1 + len(found["points"])
    assert further.count("<th") - further.count("<thead") == 1 + len(others) + len(found["points"])


def test_the_axis_that_matters_is_said(api: Api) -> None:
    body = call(services=SERVICES[1:2], matters="risk")
    job = api.job(api.client.post("/v1/frontier", json=body, headers={"prefer": "wait=60"}))
    found = job["report"]["frontier"]
    assert found["matters"] == "risk"
    assert found["recommended"] == min(found["best"], key=lambda at: found["points"][at]["risk"])
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).text
    assert f"number {found['recommended'] + 1} has the least" in page
    close = found.get("recommended_within_uncertainty", [])
    assert set(close) < set(found["best"]) - {found["recommended"]} | {-1}
    again = found["recommended_in_new_runs"]
    picked = found["points"][found["recommended"]]
    assert again.keys() == {"risk", "utility", "risk_interval", "utility_interval"}
    assert again["utility"] != picked["utility"]
    assert again["utility"] == pytest.approx(picked["utility"], abs=0.2)
    assert "in new runs with other seeds risk is" in page
    refusal = api.client.post("/v1/frontier", json=call(matters="both axes"))
    assert refusal.status_code == 422


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
        assert one["figures"] == other["figures"]
        assert one["intervals"] == other["intervals"]


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
    by_values = dominated(pairs, ("high", "low"))
    for out, point in zip(by_values, found["points"], strict=True):
        assert point["dominated"] == (out and "within_uncertainty_of" not in point)
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
        ({"services": []}, "/services", "list should have at least 1 item"),
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


def test_points_of_the_permutation_mechanism_state_their_epsilon(api: Api) -> None:
    """A grid holds both mechanisms; fields add up; a target that no rate reaches is an error of its point."""
    swap = {"swap_fields": ["income", "age"]}
    blocks = {**swap, "control_field": "city", "block_size": 5, "mechanism": "permutation"}
    body = call(
        services=[
            {
                "service": "DSWAP",
                "parameters": {**swap, "rate": 0.4},
                "vary": {"mechanism": ["pairs", "permutation"], "locked": [False, True]},
            },
            {"service": "DDSWAP", "parameters": blocks, "vary": {"target_epsilon": [0.5, 4, 6]}},
        ],
        runs=2,
    )
    answer = api.client.post("/v1/frontier", json=body, headers={"prefer": "wait=60"})
    report = api.job(answer)["report"]
    pairs, locked_pairs, permuted, locked, unreached, four, six = report["frontier"]["points"]
    assert "guarantee" not in pairs
    assert "guarantee" not in locked_pairs
    one = pytest.approx(epsilon(len(ROWS), 0.4))
    assert permuted["guarantee"] == {
        "rate": 0.4,
        "epsilon": pytest.approx(2 * epsilon(len(ROWS), 0.4)),
        "by_field": {"income": one, "age": one},
    }
    assert locked["guarantee"] == {"rate": 0.4, "epsilon": one, "by_field": {"income, age": one}}
    assert "no rate reaches target_epsilon 0.5" in unreached["error"]
    assert "guarantee" not in unreached
    for point, target in ((four, 4), (six, 6)):
        rate = smallest_rate([5, 5], target)
        assert rate is not None
        found = point["guarantee"]
        assert found["rate"] == pytest.approx(rate)
        assert found["epsilon"] == pytest.approx(2 * epsilon(5, rate))
        assert found["epsilon"] <= target
    assert any("is not covered" in limit for limit in report["limits"])


def test_rates_of_record_swapping_are_compared(api: Api) -> None:
    """RSWAP moves the area, and more swaps are less risk. Its candidates are ranked, too."""
    swap = {"hierarchy": ["city"], "risk_fields": ["age"], "k_anonymity": 2}
    body = call(
        services=[{"service": "RSWAP", "parameters": swap, "vary": {"swap_rate": [0.1, 0.9]}}],
        risk="changed_share",
        utility="association.correlation_ratio",
    )
    answer = api.client.post("/v1/frontier", json=body, headers={"prefer": "wait=60"})
    assert answer.status_code == 200, answer.text
    found = api.job(answer)["report"]["frontier"]
    few, many = found["points"]
    assert few["protects"] == many["protects"] == found["protected"] == ["city"]
    assert few["risk"] < many["risk"]  # the changed share: high is better
    assert few["utility"] != many["utility"]
    assert 1 in found["best"]
    options = {"count": 3, "rank_by": ["marginals.mean_distance", "changed_share"]}
    job = api.run("RSWAP", ROWS, {**swap, "swap_rate": 0.3}, seed="8f", candidates=options)
    report = api.client.get(f"/v1/jobs/{job['id']}/report").json()
    assert len(report["candidates"]["table"]) == 3
    assert report["provider"]["swapped_households"] >= 60
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).text
    assert "3 candidates were run" in page
    assert "Households stay whole" in page


def test_other_comparisons_state_no_epsilon(job: dict[str, Any]) -> None:
    assert not any("guarantee" in point for point in job["report"]["frontier"]["points"])
    assert not any("epsilon" in limit for limit in job["report"]["limits"])
