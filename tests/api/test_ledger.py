"""The disclosure ledger: recognition, the event with the measured risk, policies, visibility, audit."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from app.__main__ import main
from app.api.schemas import LedgerPage
from app.callers import READ, RUN
from app.settings import Settings
from app.store.sql.models import Release
from providers.swapping.permutation_law import epsilon
from tests.api.calls import Api
from tests.api.test_identities import Keys, here, keys

__all__ = ["here", "keys"]

Rows = list[dict[str, Any]]

PARAMETERS = {"swap_fields": ["income"], "rate": 0.5}


@pytest.fixture(scope="module")
def member(keys: Keys) -> Iterator[Callable[[str, str], Api]]:
    """Clients of members of projects: (name, project) -> client."""
    with ExitStack() as opened:

        def of(name: str, project: str) -> Api:
            return Api(opened.enter_context(keys.client(keys.make((RUN, READ), name, project))))

        yield of


def people(seed: int, rows: int = 120) -> Rows:
    chance = np.random.default_rng(seed)
    return [
        {"age": int(age), "town": f"t{town}", "income": int(income)}
        for age, town, income in zip(
            chance.integers(18, 90, rows),
            chance.integers(0, 40, rows),
            chance.integers(0, 100_000, rows),
            strict=True,
        )
    ]


def listed(api: Api, **query: Any) -> list[dict[str, Any]]:
    """All pages of the ledger, each after strict validation."""
    found: list[dict[str, Any]] = []
    while True:
        answer = api.client.get("/v1/ledger", params=query).raise_for_status()
        page = answer.json()
        LedgerPage.model_validate(page, strict=False, extra="forbid")
        found += page["releases"]
        if "next_page_token" not in page:
            return found
        assert 'rel="next"' in answer.headers["link"]
        query |= {"page_token": page["next_page_token"]}


@pytest.mark.parametrize("changed", [lambda digest: digest[:-1], str.upper, lambda digest: digest[8:]])
def test_a_digest_that_is_none_is_refused(api: Api, changed: Callable[[str], str]) -> None:
    """An empty list would say that the source was never released."""
    digest = api.run("DSWAP", people(7), PARAMETERS)["source"]["digest"]
    assert listed(api, source=digest)
    problem = api.problem(api.client.get("/v1/ledger", params={"source": changed(digest)}), 422)
    assert "source" in problem["detail"]


def test_a_second_release_says_so_with_the_measured_risk(member: Callable[[str, str], Api]) -> None:
    api = member("one", "warned")
    rows = people(1)
    first = api.run("DSWAP", rows, PARAMETERS)
    assert first["event_counts"] == {}
    second = api.run("DSWAP", rows, PARAMETERS)
    assert second["event_counts"] == {"released_before": 1}
    assert second["outcome"] == "SUCCESS_WITH_INFO"
    message = second["events"][0]["message"]
    assert "was released once before" in message
    assert "2 releases with these parameters restore 'income'" in message
    entries = listed(api, source=first["source"]["digest"])
    assert [entry["job"] for entry in entries] == [first["id"], second["id"]]
    assert "match" not in entries[0]
    assert entries[1]["match"] == "digest"
    risk = entries[1]["risk"]
    assert risk["releases"] == 2
    assert risk["rows"] == 120
    assert 0.3 < risk["one_release"] <= 1
    assert {entry["owner"] for entry in entries} == {"one"}
    assert entries[1]["destination_digest"] == second["destination"]["digest"]


def test_a_table_with_a_row_more_is_recognised_by_its_fields(member: Callable[[str, str], Api]) -> None:
    api = member("one", "warned")
    rows = people(2)
    first = api.run("DSWAP", rows, PARAMETERS)
    longer = api.run("DSWAP", [*rows, *people(3, 1)], PARAMETERS)
    assert "recognised by its rows, or by most of its fields" in longer["events"][0]["message"]
    assert listed(api, source=longer["source"]["digest"])[1]["match"] == "fields"
    both = listed(api, source=first["source"]["digest"])
    assert [entry["job"] for entry in both] == [first["id"], longer["id"]]
    other = api.run("DSWAP", people(4), PARAMETERS)
    assert other["event_counts"] == {}
    assert len(listed(api, source=other["source"]["digest"])) == 1


def test_a_rerun_and_the_same_seed_release_nothing_new(member: Callable[[str, str], Api]) -> None:
    api = member("one", "warned")
    rows = people(5)
    first = api.run("DSWAP", rows, PARAMETERS, seed="0a", retain_source=True)
    assert api.run("DSWAP", rows, PARAMETERS, seed="0a")["event_counts"] == {"weak_seed": 1}
    again = api.client.post(f"/v1/jobs/{first['id']}/rerun").raise_for_status().json()
    assert "released_before" not in again["event_counts"]
    entries = listed(api, source=first["source"]["digest"])
    assert again["id"] not in [entry["job"] for entry in entries]
    third = api.run("DSWAP", rows, PARAMETERS)
    assert "released once before" in third["events"][0]["message"]


def guarantee_of(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    """Figure `guarantee` of the job's report."""
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    found: dict[str, Any] = report["provider"]["guarantee"]
    return found


def test_each_independent_run_adds_its_epsilon_whatever_its_bytes(member: Callable[[str, str], Api]) -> None:
    """Two rows have two releases: three runs give the same bytes twice, and reveal three times as much."""
    api = member("one", "warned")
    permuted = PARAMETERS | {"mechanism": "permutation", "rate": 0.9}
    jobs = [api.run("DSWAP", people(30)[:2], permuted, seed=seed) for seed in ("01", "02", "03", "03")]
    entries = listed(api, source=jobs[0]["source"]["digest"])
    assert len({job["destination"]["digest"] for job in jobs}) <= 2
    own = epsilon(2, 0.9)
    sums = [entry["epsilon"]["all_releases"] for entry in entries]
    assert sums == pytest.approx([own, 2 * own, 3 * own, 3 * own])  # the last run is the third one again
    by_pairs = api.run("DSWAP", people(30)[:2], PARAMETERS | {"rate": 1.0})
    assert by_pairs["destination"]["digest"] in {job["destination"]["digest"] for job in jobs}
    api.run("DSWAP", people(30)[:2], permuted, seed="04")
    last = listed(api, source=jobs[0]["source"]["digest"])[-1]["epsilon"]
    assert "all_releases" not in last
    assert last["without"] == 1


def test_epsilons_of_releases_add_up(
    member: Callable[[str, str], Api], here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each different release by the permutation mechanism adds its own; one by pairs leaves no finite sum."""
    api = member("one", "warned")
    rows = people(10)
    permuted = PARAMETERS | {"mechanism": "permutation"}
    first = api.run("DSWAP", rows, permuted, seed="0b" * 16)
    assert first["event_counts"] == {}
    own = epsilon(120, 0.5)
    assert guarantee_of(api, first)["epsilon"] == own
    second = api.run("DSWAP", rows, permuted | {"rate": 0.9})
    both = own + epsilon(120, 0.9)
    assert f"The epsilons of all 2 releases add up to {both:.4g}" in second["events"][0]["message"]
    api.run("DSWAP", rows, permuted, seed="0b" * 16)  # the same bytes again
    by_pairs = api.run("DSWAP", rows, PARAMETERS)
    assert "epsilon" not in by_pairs["events"][0]["message"]
    last = api.run("DSWAP", rows, permuted)
    assert "No finite epsilon holds for all 4 releases: 1 have none" in last["events"][0]["message"]
    best = api.run("DSWAP", rows, permuted, report="full", candidates={"count": 2})
    assert guarantee_of(api, best).get("epsilon") is None
    assert "best of 2 candidates" in guarantee_of(api, best)["holds_for"]
    digest = first["source"]["digest"]
    holds = {"fields": ["income"]}
    assert [entry.get("epsilon") for entry in listed(api, source=digest)] == [
        {"epsilon": own, "all_releases": own, "releases": 1, "without": 0, **holds, **of_income(own)},
        {"epsilon": epsilon(120, 0.9), "all_releases": both, "releases": 2, "without": 0}
        | {**holds, **of_income(epsilon(120, 0.9))},
        {"epsilon": own, "all_releases": both, "releases": 2, "without": 0, **holds, **of_income(own)},
        None,
        {"epsilon": own, "releases": 4, "without": 1, **of_income(own)}
        | {"limits": "No finite epsilon holds for all 4 releases: 1 have none"},
        {"releases": 5, "without": 2, "limits": "No finite epsilon holds for all 5 releases: 2 have none"},
    ]
    assert main(["ledger", digest]) == 0
    assert f"epsilon {own:.4g}, of all releases {both:.4g} for 'income'" in capsys.readouterr().out
    assert main(["ledger", "--verify"]) == 0


def test_releases_with_one_seed_have_no_sum(member: Callable[[str, str], Api]) -> None:
    """Their draws are the same words: a sum would hold for independent ones only."""
    api, rows, permuted = member("one", "warned"), people(36), PARAMETERS | {"mechanism": "permutation"}
    first = api.run("DSWAP", rows, permuted, seed="0d" * 16)
    api.run("DSWAP", rows, permuted | {"rate": 0.3}, seed="0d" * 16)
    api.run("DSWAP", [*rows, *people(37, 1)], permuted, seed="0e" * 16)
    found = [entry["epsilon"] for entry in listed(api, source=first["source"]["digest"])]
    reason = "because they are not independent: 1 of them has the seed of another one"
    assert [reason in entry.get("limits", "") for entry in found] == [False, True, True]
    assert ["all_releases" in entry for entry in found] == [True, False, False]
    assert not any({"draw", "stream"} & entry.keys() for entry in found)


def of_income(value: float) -> dict[str, Any]:
    return {"orders": [{"fields": ["income"], "epsilon": value}]}


PERMUTED = {"mechanism": "permutation", "rate": 0.5}


def test_no_epsilon_holds_for_a_field_that_another_release_publishes(
    member: Callable[[str, str], Api], here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sum is for the fields that all releases swap; the release of ages alone leaves none."""
    api, rows, own = member("one", "warned"), people(31), epsilon(120, 0.5)
    fields = (["income"], ["income", "age"], ["age"])
    jobs = [api.run("DSWAP", rows, PERMUTED | {"swap_fields": names}) for names in fields]
    assert (
        f"The epsilons of all 2 releases add up to {2 * own:.4g} for an exchange of 'income'. No finite "
        "epsilon holds for other fields: not all releases swap 'age', which the others publish row by row"
    ) in jobs[1]["events"][0]["message"]
    none = (
        "No finite epsilon holds for all 3 releases: not all releases swap 'age' and 'income', which the "
        "others publish row by row"
    )
    assert jobs[2]["events"][0]["message"].endswith(none)
    first, second, third = (entry["epsilon"] for entry in listed(api, source=jobs[0]["source"]["digest"]))
    assert (first["all_releases"], first["fields"]) == (own, ["income"])
    assert (second["epsilon"], second["all_releases"], second["fields"]) == (2 * own, 2 * own, ["income"])
    assert second["orders"] == [{"fields": [name], "epsilon": own} for name in ("income", "age")]
    assert third == {
        "epsilon": own,
        "releases": 3,
        "without": 0,
        "limits": none,
        "orders": [{"fields": ["age"], "epsilon": own}],
    }
    assert main(["ledger", jobs[0]["source"]["digest"]]) == 0
    line = capsys.readouterr().out.splitlines()[2]
    assert f"epsilon {own:.4g}, of all releases none ({none})" in line
    assert main(["ledger", "--verify"]) == 0


def test_a_locked_field_has_no_epsilon_of_its_own(member: Callable[[str, str], Api]) -> None:
    """Locked fields show their pairs; a release that swaps the same ones by orders of their own adds up."""
    api, own = member("one", "warned"), epsilon(120, 0.5)
    locked = PERMUTED | {"swap_fields": ["income", "age"], "locked": True}
    for seed, second, limits in (
        (32, locked | {"locked": False}, None),
        (33, PERMUTED | {"swap_fields": ["age"]}, "some lock 'age' with such a field"),
    ):
        jobs = [api.run("DSWAP", people(seed), parameters) for parameters in (locked, second)]
        last = listed(api, source=jobs[0]["source"]["digest"])[1]["epsilon"]
        if limits is None:
            assert (last["all_releases"], last["fields"]) == (3 * own, ["age", "income"])
            assert "limits" not in last
        else:
            assert "all_releases" not in last
            assert last["limits"].endswith(limits)


def test_rows_and_households_have_no_epsilon_together(member: Callable[[str, str], Api]) -> None:
    api = member("one", "warned")
    rows = [row | {"home": number // 2} for number, row in enumerate(people(34))]
    given = [PERMUTED | {"swap_fields": ["income"], **more} for more in ({}, {"household": "home"})]
    jobs = [api.run("DSWAP", rows, parameters) for parameters in given]
    last = listed(api, source=jobs[0]["source"]["digest"])[1]["epsilon"]
    assert (last["unit"], last["releases"], last.get("all_releases")) == ("home", 2, None)
    assert "not all releases move the same rows, households or units as one" in last["limits"]
    assert guarantee_of(api, jobs[1])["unit"] == "home"


def test_entries_of_older_versions_do_not_name_their_fields(
    member: Callable[[str, str], Api], here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """No sum with one; the same run again names its fields, and the sum is stated from then on."""
    api, rows, own = member("one", "warned"), people(35), epsilon(120, 0.5)
    parameters = PERMUTED | {"swap_fields": ["income"]}
    engine = sa.create_engine(Settings().database_url)

    def entry(job: dict[str, Any]) -> Any:
        return sa.update(Release).where(Release.job_id == job["id"])

    def stored(job: dict[str, Any]) -> dict[str, Any]:
        with engine.begin() as connection:
            query = sa.select(Release.epsilon).where(Release.job_id == job["id"])
            found: dict[str, Any] = connection.execute(query).scalar_one()
            return found

    first = api.run("DSWAP", rows, parameters, seed="0c" * 16)
    written = stored(first)
    older = {name: written[name] for name in ("epsilon", "all_releases", "releases", "without", "draw")}
    with engine.begin() as connection:
        connection.execute(entry(first).values(epsilon=older))
    second = api.run("DSWAP", rows, parameters)
    assert second["events"][0]["message"].endswith(
        "No sum of the epsilons of all 2 releases is stated: entries of older versions (1) do not name their "
        "swap fields"
    )
    api.run("DSWAP", rows, parameters, seed="0c" * 16)
    fourth = api.run("DSWAP", rows, parameters)
    digest = first["source"]["digest"]
    sums = [each["epsilon"].get("all_releases") for each in listed(api, source=digest)]
    assert sums == [own, None, None, pytest.approx(3 * own)]
    made = stored(fourth)
    with engine.begin() as connection:  # an older version added up whatever there was
        connection.execute(entry(fourth).values(epsilon=older | {"all_releases": 3 * own, "releases": 3}))
    last = listed(api, source=digest)[-1]["epsilon"]
    assert (last["epsilon"], last.get("all_releases")) == (own, None)
    assert "older version" in last["limits"]
    assert main(["ledger", digest]) == 0
    assert f"epsilon {own:.4g}, of all releases none (No sum is stated" in capsys.readouterr().out
    with engine.begin() as connection:
        for job, values in ((first, written), (fourth, made)):
            connection.execute(entry(job).values(epsilon=values))
    engine.dispose()
    assert main(["ledger", "--verify"]) == 0


def test_a_policy_requires_a_reason(member: Callable[[str, str], Api]) -> None:
    api = member("one", "reasoned")
    rows = people(6)
    body = {"source": {"rows": rows}, "parameters": PARAMETERS}
    first = api.run("DSWAP", rows, PARAMETERS)
    problem = api.problem(api.client.post("/v1/services/DSWAP", json=body), 422, "invalid_request")
    assert problem["errors"][0]["pointer"] == "/release_reason"
    second = api.run("DSWAP", rows, PARAMETERS, release_reason="corrected rows")
    assert second["event_counts"] == {"released_before": 1}
    assert [entry.get("reason") for entry in listed(api, source=first["source"]["digest"])] == [
        None,
        "corrected rows",
    ]
    body["source"] = {"rows": rows[1:]}  # recognised by its fields alone, so by the worker
    failed = api.job(api.client.post("/v1/services/DSWAP", json=body))
    assert failed["error"]["code"] == "released_before"
    assert failed["error"]["errors"][0]["pointer"] == "/release_reason"


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("", "at least 1 character"),
        (" \n\u00a0", "at least 1 character"),
        ("a\0", "control characters"),
        ("x" * 501, "500"),
    ],
)
def test_a_reason_that_cannot_be_kept_is_rejected(api: Api, reason: str, why: str) -> None:
    body = {"source": {"rows": people(8)}, "parameters": PARAMETERS, "release_reason": reason}
    problem = api.problem(api.client.post("/v1/services/DSWAP", json=body), 422, "invalid_request")
    assert problem["errors"][0]["pointer"] == "/release_reason"
    assert why in problem["errors"][0]["message"]


def test_a_policy_refuses(member: Callable[[str, str], Api]) -> None:
    api = member("one", "refused")
    rows = people(7)
    first = api.run("DSWAP", rows, PARAMETERS)
    body = {"source": {"rows": rows}, "parameters": PARAMETERS, "release_reason": "no way"}
    problem = api.problem(api.client.post("/v1/services/DSWAP", json=body), 409, "released_before")
    assert "policy refuses" in problem["detail"]
    failed = api.run("DSWAP", rows[:-1], PARAMETERS)  # recognised by the worker
    assert failed["error"]["code"] == "released_before"
    api.problem(api.client.get(f"/v1/jobs/{failed['id']}/rows"), 409, "state_conflict")
    assert len(listed(api, source=first["source"]["digest"])) == 1


def test_releases_are_visible_in_the_project_and_to_administrators(
    member: Callable[[str, str], Api], api: Api
) -> None:
    mine, colleague, stranger = (
        member("one", "warned"),
        member("two", "warned"),
        member("one-other", "others"),
    )
    rows = people(8)
    first = mine.run("DSWAP", rows, PARAMETERS)
    digest = first["source"]["digest"]
    assert stranger.run("DSWAP", rows, PARAMETERS)["event_counts"] == {}
    second = colleague.run("DSWAP", rows, PARAMETERS)
    assert second["event_counts"] == {"released_before": 1}
    assert [entry["job"] for entry in listed(mine, source=digest)] == [first["id"], second["id"]]
    assert len(listed(stranger, source=digest)) == 1
    assert len(listed(api, source=digest)) == 3  # a key with the scope admin


def test_pages_follow_each_other_and_entries_outlive_their_jobs(member: Callable[[str, str], Api]) -> None:
    api = member("pages", "paged")
    runs = [api.run("DSWAP", people(20 + number, 30), PARAMETERS) for number in range(3)]
    jobs = [job["id"] for job in runs]
    api.client.delete(f"/v1/jobs/{jobs[0]}").raise_for_status()
    entries = listed(api, page_size=2)
    assert [entry["job"] for entry in entries] == jobs
    assert [entry["released_at"] for entry in entries] == [job["finished_at"] for job in runs]
    problem = api.problem(api.client.get("/v1/ledger", params={"page_token": "x"}), 422)
    assert problem["errors"][0]["parameter"] == "page_token"
    api.problem(api.client.get("/v1/ledger", params={"page_size": -1}), 422)
    assert listed(api, source="sha256:" + 64 * "0") == []


def test_the_command_line_lists_and_verifies(
    member: Callable[[str, str], Api],
    here: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = member("one", "warned")
    rows = people(9)
    jobs = [api.run("DSWAP", rows, PARAMETERS) for _ in range(2)]
    assert main(["ledger", jobs[0]["source"]["digest"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert jobs[1]["id"] in lines[1]
    assert "restores 'income' in" in lines[1]
    assert main(["ledger", "--verify"]) == 0
    engine = sa.create_engine(Settings().database_url)
    with engine.begin() as connection:
        changed = sa.update(Release).where(Release.job_id == jobs[0]["id"])
        connection.execute(changed.values(row_count=7))
    assert main(["ledger", "--verify"]) == 1
    assert jobs[0]["id"] in capsys.readouterr().err
    with engine.begin() as connection:
        connection.execute(changed.values(row_count=120))
    engine.dispose()
    assert main(["ledger", "--verify"]) == 0
