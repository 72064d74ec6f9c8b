"""`candidates` on any service: several runs from one seed, of which the best is the result."""

from typing import Any

import numpy as np
import pytest

from tests.api.calls import Api
from tests.naive.permutation import epsilon, smallest_rate

Rows = list[dict[str, Any]]


def people(rows: int = 200) -> Rows:
    """Create rows of two correlated numbers and a town, with few enough of each that swaps differ."""
    random = np.random.default_rng(5)
    ages = random.integers(18, 80, rows)
    incomes = 800 * ages + random.normal(0, 9000, rows)
    return [
        {"age": int(age), "income": round(float(income), 1), "city": f"c{number % 3}"}
        for number, (age, income) in enumerate(zip(ages, incomes, strict=True))
    ]


ROWS = people()
SWAP = {"swap_fields": ["income"]}
SEED = "8f1c7a"
ROBUST = "interval_sd.robust.by_field"
RANKS = "delta_rho.ranks.mean"


def report_of(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    return report


@pytest.fixture(scope="module")
def job(api: Api) -> dict[str, Any]:
    return api.run("DSWAP", ROWS, SWAP, seed=SEED, candidates=6)


def test_one_candidate_is_the_plain_run(api: Api) -> None:
    """Bytes, seed and report are the same."""
    plain = api.run("DSWAP", ROWS, SWAP, seed=SEED)
    one = api.run("DSWAP", ROWS, SWAP, seed=SEED, candidates=1)
    assert one["destination"] == plain["destination"]
    assert "options" not in one
    assert report_of(api, one) == report_of(api, plain)
    assert "candidates" not in report_of(api, plain)


def test_the_table_of_all_is_the_evidence(api: Api, job: dict[str, Any]) -> None:
    """The least mean of ranks is kept; the first has the job's own seed, and no two share one."""
    found = report_of(api, job)["candidates"]
    assert found["rank_by"] == [ROBUST, RANKS]
    table = found["table"]
    assert [line["index"] for line in table] == list(range(6))
    assert all(set(line["values"]) >= {ROBUST, RANKS} for line in table)
    assert found["protected"] == ["income"]
    assert not any(line["protects_fewer"] or line["reversible"] for line in table)
    assert found["verdict"] == ""
    best = min(table, key=lambda line: (line["rank"], line["index"]))
    assert found["chosen"] == best["index"]
    fingerprints = [line["seed_fingerprint"] for line in table]
    assert fingerprints[0] == job["seed_fingerprint"]
    assert len(set(fingerprints)) == 6
    assert job["options"]["candidates"] == {"count": 6, "rank_by": []}


def test_what_is_kept_is_what_the_table_says(api: Api, job: dict[str, Any]) -> None:
    """The report `full` of the result has the same figures as the chosen line."""
    full = api.run("DSWAP", ROWS, SWAP, seed=SEED, candidates=6, report="full")
    assert full["destination"] == job["destination"]
    report = report_of(api, full)
    values = report["candidates"]["table"][report["candidates"]["chosen"]]["values"]
    robust = report["measures"]["interval_sd"]["value"]["robust"]["by_field"]
    assert robust["income"] == values[ROBUST]
    assert robust["age"] == 1  # it stays: the figure is over what is swapped
    assert report["measures"]["delta_rho"]["value"]["ranks"]["mean"] == values[RANKS]


def test_a_candidate_does_not_depend_on_how_many_there_are(api: Api, job: dict[str, Any]) -> None:
    """More candidates add lines; the ones before stay as they were, but for their ranks."""
    fewer = api.run("DSWAP", ROWS, SWAP, seed=SEED, candidates=3)
    few, many = (
        [
            (line["index"], line["seed_fingerprint"], line["values"])
            for line in report_of(api, run)["candidates"]["table"]
        ]
        for run in (fewer, job)
    )
    assert few == many[:3]


def test_a_rerun_chooses_the_same(api: Api, job: dict[str, Any]) -> None:
    """A rerun gives the same bytes; the manifest has the chosen index, the count and the figures."""
    again = api.job(api.client.post(f"/v1/jobs/{job['id']}/rerun", json={"source": {"rows": ROWS}}))
    assert again["reproduced"] is True
    assert report_of(api, again)["candidates"] == report_of(api, job)["candidates"]
    manifest = api.client.get(f"/v1/jobs/{job['id']}/manifest").json()["manifest"]
    assert manifest["options"]["candidates"] == {"count": 6, "rank_by": []}
    assert manifest["candidate"] == report_of(api, job)["candidates"]["chosen"]
    assert SEED not in str(manifest)


def test_the_page_shows_the_table_of_all(api: Api, job: dict[str, Any]) -> None:
    """The chosen candidate is marked."""
    answer = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"})
    assert "6 candidates were" in answer.text
    assert f"{report_of(api, job)['candidates']['chosen'] + 1} (chosen)" in answer.text


@pytest.mark.parametrize(
    ("service", "parameters"),
    [
        ("CDSWAP", SWAP | {"control_field": "city"}),
        ("DDSWAP", SWAP | {"control_field": "age", "block_size": 5}),
        ("MEWS", SWAP | {"bins": 4}),
        ("MEDS", SWAP | {"k": 5}),
        ("RWN", {"k": 5}),
        ("PABIDOT", {"sigma": 0.3}),
        ("LOCALITY", {"fields": ["age"]}),
    ],
)
def test_every_service_has_candidates(api: Api, service: str, parameters: dict[str, Any]) -> None:
    """Candidates work for every service."""
    job = api.run(service, ROWS, parameters, seed=SEED, candidates={"count": 2, "rank_by": ["dcr.mean"]})
    assert job["state"] == "succeeded", job
    found = report_of(api, job)["candidates"]
    assert found["rank_by"] == ["dcr.mean"]
    assert len(found["table"]) == 2


def test_a_report_of_none_leaves_the_choice_in_the_manifest(api: Api, job: dict[str, Any]) -> None:
    """The result is the same."""
    silent = api.run("DSWAP", ROWS, SWAP, seed=SEED, candidates=6, report="none")
    assert silent["destination"] == job["destination"]
    manifest = api.client.get(f"/v1/jobs/{silent['id']}/manifest").json()["manifest"]
    assert manifest["candidate"] == report_of(api, job)["candidates"]["chosen"]


def test_a_default_figure_that_does_not_apply_is_left_out(api: Api) -> None:
    """A table without numbers has no correlations."""
    towns = [{"city": f"c{number % 7}", "sex": "fm"[number % 2]} for number in range(60)]
    job = api.run("DSWAP", towns, {"swap_fields": ["city"]}, seed=SEED, candidates=3)
    found = report_of(api, job)["candidates"]
    assert found["rank_by"] == ["changed_share", "association.cramers_v"]
    assert {ROBUST, RANKS} <= set(found["left_out"])


def test_a_named_figure_that_does_not_apply_fails_the_job(api: Api) -> None:
    """The error has the reason and the figure."""
    towns = [{"city": f"c{number % 7}"} for number in range(60)]
    candidates = {"count": 3, "rank_by": ["pscr", "delta_rho"]}
    job = api.run("DSWAP", towns, {"swap_fields": ["city"]}, candidates=candidates)
    assert job["error"]["errors"][0]["pointer"] == "/candidates/rank_by/1"
    assert "'delta_rho.mean' cannot rank the candidates" in job["error"]["detail"]


def test_what_an_intruder_knows_ranks_by_record_linkage(api: Api) -> None:
    """Record linkage ranks by default if a known field is swapped, unless the others find more rows."""
    measures = {"key_fields": ["age", "income"]}
    for rate, figure in ((0.3, "record_linkage.rate"), (1.0, ROBUST)):
        job = api.run("DSWAP", ROWS, SWAP | {"rate": rate}, seed=SEED, candidates=3, measures=measures)
        found = report_of(api, job)["candidates"]
        assert found["rank_by"] == [figure, RANKS]
    assert "record_linkage.rate" in found["left_out"]


def test_a_figure_of_known_fields_that_stay_ranks_nobody(api: Api) -> None:
    """The figure is the same for all candidates: another one is used, and the reason is reported."""
    measures = {"key_fields": ["age", "city"]}
    job = api.run("DSWAP", ROWS, SWAP, seed=SEED, candidates=3, measures=measures)
    found = report_of(api, job)["candidates"]
    assert found["rank_by"] == [ROBUST, RANKS]
    assert "of which no run changes a value" in found["left_out"]["record_linkage.rate"]
    named = api.run(
        "DSWAP",
        ROWS,
        SWAP,
        seed=SEED,
        candidates={"count": 3, "rank_by": ["record_linkage"]},
        measures=measures,
    )
    found = report_of(api, named)["candidates"]
    assert (found["rank_by"], found["chosen"]) == ([], 0)
    assert "No figure distinguishes the candidates" in found["verdict"]
    page = api.client.get(f"/v1/jobs/{named['id']}/report", headers={"accept": "text/html"}).text
    assert "No figure distinguishes the candidates" in page


RANK_BY = "/candidates/rank_by"


def ranked_by(*names: str) -> dict[str, Any]:
    return {"candidates": {"count": 3, "rank_by": names}}


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        ({"candidates": 0}, "/candidates", "greater than or equal to 1"),
        ({"candidates": 101}, "/candidates", "less than or equal to 100"),
        ({"candidates": True}, "/candidates", ""),
        ({"candidates": {"count": 3, "rank": []}}, "/candidates/rank", "did you mean 'rank_by'?"),
        ({"candidates": {"rank_by": ["pscr"]}}, "", "ranks candidates, and there is one"),
        (ranked_by("pscrr"), f"{RANK_BY}/0", "did you mean 'pscr'?"),
        (ranked_by("dcr.man"), f"{RANK_BY}/0", "did you mean 'dcr.mean'?"),
        (ranked_by("dcr", "dcr.mean"), f"{RANK_BY}/1", "named twice"),
        (ranked_by("il3"), f"{RANK_BY}/0", "needs 'measures.target'"),
        (ranked_by("p_privacy"), f"{RANK_BY}/0", "same for every"),
        ({"candidates": 3, "measures": {"target": "age"}}, "/measures/target", "used by none"),
        ({"candidates": 3, "measures": {"only": ["pscr"]}}, "/measures/only", "used by none"),
        ({"measures": {"sample": 50}}, "", 'add "report": "full" or "candidates": 5'),
    ],
)
def test_what_cannot_rank_is_refused_with_its_place(
    api: Api, change: dict[str, Any], pointer: str, message: str
) -> None:
    """The request is rejected before anything runs."""
    first = api.refused("DSWAP", {"source": {"rows": ROWS}, "parameters": SWAP} | change)
    assert first["pointer"] == pointer
    assert message in first["message"]


def test_candidates_state_their_own_epsilon_and_the_kept_one_has_none(api: Api) -> None:
    """All have the same one, found by `target_epsilon`; the choice depends on the source."""
    parameters = {
        "swap_fields": ["income"], "control_field": "age", "block_size": 5,
        "mechanism": "permutation", "target_epsilon": 2,
    }  # fmt: skip
    report = report_of(api, api.run("DDSWAP", ROWS, parameters, seed=SEED, candidates=3))
    rate = smallest_rate([5], 2)
    assert rate is not None
    own = pytest.approx(epsilon(5, rate))
    expected = {"rate": pytest.approx(rate), "epsilon": own, "by_field": {"income": own}}
    assert [line["guarantee"] for line in report["candidates"]["table"]] == [expected] * 3
    assert "epsilon" not in report["provider"]["guarantee"]
    assert "best of 3 candidates" in report["provider"]["guarantee"]["holds_for"]
    assert not {"epsilon", "epsilon_total", "epsilon_bound"} & report["provider"].keys()
