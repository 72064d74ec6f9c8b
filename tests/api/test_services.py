"""``/v1/services``: listing, runs, and rejected requests with their messages."""

import math
import re
from collections import Counter
from typing import Any

import httpx
import pytest

from providers import PROVIDERS
from tests.api.calls import Api

Rows = list[dict[str, Any]]

CASES: list[tuple[str, dict[str, Any]]] = [
    ("DSWAP", {"swap_fields": ["income"]}),
    ("CDSWAP", {"swap_fields": ["income"], "control_field": "city"}),
    ("DDSWAP", {"swap_fields": ["income"], "control_field": "age", "block_size": 2}),
    ("MEWS", {"swap_fields": ["income"], "bins": 2, "nulls": "keep"}),
    ("MEDS", {"swap_fields": ["income"], "k": 2, "nulls": "keep"}),
    ("RWN", {"k": 2}),
]


def test_services_are_listed_with_schema_and_guarantees(client: httpx.Client) -> None:
    services = client.get("/v1/services").raise_for_status().json()["services"]
    assert [service["identifier"] for service in services] == list(PROVIDERS)
    for service in services:
        assert service["guarantees"]
        assert service["references"]
        properties = service["parameters_schema"]["properties"]
        assert all("description" in parameter for parameter in properties.values())
        assert client.get(f"/v1/services/{service['identifier']}").json() == service


def test_unknown_service_suggests_the_nearest(api: Api) -> None:
    problem = api.problem(api.client.get("/v1/services/CDSWAPP"), 404, "not_found")
    assert "did you mean 'CDSWAP'?" in problem["detail"]


@pytest.mark.parametrize(("service", "parameters"), CASES)
def test_run_answers_a_job_with_its_rows(
    api: Api, people: Rows, service: str, parameters: dict[str, Any]
) -> None:
    job = api.run(service, people, parameters, seed="8f1c7a")
    assert job["state"] == "succeeded"
    assert job["progress"]["fraction"] == 1
    assert job["row_count"] == 6
    assert [field["name"] for field in job["source"]["fields"]] == ["age", "income", "city"]
    rows = job["destination"]["rows"]
    if service == "RWN":  # where every field moves, and values may occur oftener than before
        assert all(row["age"] in [person["age"] for person in people] for row in rows)
        return
    assert [row["age"] for row in rows] == [row["age"] for row in people]
    if service != "CDSWAP":  # there, the one alone in her town is suppressed
        moved = Counter(row["income"] for row in rows)
        assert moved == Counter(row["income"] for row in people)
        small = service in ("DDSWAP", "MEDS")  # blocks of two and bins of two or three
        assert job["outcome"] == ("SUCCESS_WITH_INFO" if small else "SUCCESS")
        assert job["event_counts"].get("reversible_groups", 0) == small


def test_pabidot_moves_rows_as_wholes_and_reports_phi(api: Api, people: Rows) -> None:
    failed = api.run("PABIDOT", people, {"sigma": 0.5})
    assert "'income' (1 null)" in failed["error"]["detail"]
    job = api.run("PABIDOT", people, {"sigma": 0.5, "nulls": "drop_from_fit"}, seed="8f1c7a")
    assert job["outcome"] == "SUCCESS_WITH_INFO"
    assert job["event_counts"] == {"unperturbed": 1, "weak_seed": 1}
    assert Counter(row["city"] for row in job["destination"]["rows"]) == Counter(
        row["city"] for row in people
    )
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    assert report["measures"]["phi"]["value"] == report["provider"]["phi"] > 0
    assert report["measures"]["inversion_bits"]["value"] == pytest.approx(math.log2(344))
    assert "PABIDOT is neither anonymity nor differential privacy." in report["limits"]


def test_locality_redraws_within_a_domain(api: Api, people: Rows) -> None:
    job = api.run("LOCALITY", people, {"fields": ["age"], "domain": {"age": [0, 120]}}, seed="8f1c7a")
    ages = [row["age"] for row in job["destination"]["rows"]]
    assert all(0 <= age <= 120 for age in ages)
    assert ages != [row["age"] for row in people]
    report = api.client.get(f"/v1/jobs/{job['id']}/report").json()
    assert report["provider"]["violations"] == 0
    assert 0 < report["measures"]["relations_kept"]["value"] <= 1
    refused = {"source": {"rows": people}, "parameters": {"fields": ["age"], "domain": {"age": [0]}}}
    assert api.refused("LOCALITY", refused)["pointer"].startswith("/parameters/domain/age")


def test_who_cannot_be_swapped_is_suppressed_and_reported(api: Api, people: Rows) -> None:
    job = api.run("CDSWAP", people, {"swap_fields": ["income"], "control_field": "city"})
    assert job["outcome"] == "SUCCESS_WITH_INFO"
    assert job["event_counts"] == {"suppressed": 1, "reversible_groups": 1}
    assert [(event["code"], event.get("row"), event.get("field")) for event in job["events"]] == [
        ("suppressed", 5, "income"),
        ("reversible_groups", None, None),
    ]
    assert job["destination"]["rows"][5]["income"] is None
    assert job["destination"]["rows"][5]["age"] == 39


def test_groups_that_anyone_undoes_are_refused_when_asked(api: Api, people: Rows) -> None:
    """Rejected before any exchange, also for a plan; a plan without that option counts their rows."""
    parameters = {"swap_fields": ["income"], "control_field": "age", "block_size": 2}
    body = {"source": {"rows": people}, "parameters": parameters, "validate_only": True}
    planned = api.client.post("/v1/services/DDSWAP", json=body).raise_for_status().json()
    assert planned["plan"]["reversible_rows"] == 6
    assert planned["outcome"] == "SUCCESS_WITH_INFO"
    body["parameters"] = parameters | {"on_reversible": "fail"}
    problem = api.problem(api.client.post("/v1/services/DDSWAP", json=body), 422, "reversible_groups")
    assert problem["detail"].startswith("6 rows are in 3 groups of two, whose exchange")
    job = api.run("DDSWAP", people, parameters | {"on_reversible": "fail"})
    assert job["error"]["code"] == "reversible_groups"
    assert job["error"]["detail"] == problem["detail"]


def test_a_preview_states_epsilon_and_an_unreachable_target(api: Api, people: Rows) -> None:
    """The plan has the guarantee that the run reports; a target that no rate reaches is refused."""
    parameters = {"swap_fields": ["income"], "mechanism": "permutation", "target_epsilon": 5}
    body = {"source": {"rows": people}, "parameters": parameters, "validate_only": True}
    planned = api.client.post("/v1/services/DSWAP", json=body).raise_for_status().json()["plan"]["guarantee"]
    assert 4 < planned["epsilon"] <= 5 == planned["target_epsilon"]
    job = api.run("DSWAP", people, parameters)
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    assert report["provider"]["guarantee"] == planned
    assert report["provider"]["epsilon"] == {"income": planned["epsilon"]}
    assert report["provider"]["epsilon_total"] == planned["epsilon"] <= report["provider"]["epsilon_bound"]
    assert report["provider"]["invariants"] == planned["invariants"]
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).text
    assert "Epsilon is" in page
    assert "Epsilon total" not in page
    body["parameters"] = parameters | {"target_epsilon": 0.5}
    problem = api.problem(api.client.post("/v1/services/DSWAP", json=body), 422, "invalid_parameter")
    assert "no rate reaches target_epsilon 0.5: the least epsilon" in problem["detail"]
    job = api.run("DSWAP", people, parameters | {"target_epsilon": 0.5})
    assert job["error"]["errors"][0]["pointer"] == "/parameters/target_epsilon"
    body["parameters"] = {"swap_fields": ["income"], "mechanism": "permutation"}
    problem = api.problem(api.client.post("/v1/services/DSWAP", json=body), 422, "invalid_request")
    assert "needs a 'rate' below 1" in problem["errors"][0]["message"]


@pytest.mark.parametrize(
    ("service", "extra"), [("DSWAP", {}), ("MEWS", {"bins": 2}), ("MEDS", {"k": 2, "nulls": "keep"})]
)
def test_rows_at_risk_are_swapped_and_reported(
    api: Api, people: Rows, service: str, extra: dict[str, Any]
) -> None:
    """The report and its page show the deciles of risk; a wrong key field and a useless rate are refused."""
    if service == "MEWS":
        people = [row for row in people if row["income"] is not None]
    parameters = {"swap_fields": ["income"], "rate": 0.2, "risk": {"key_fields": ["city"], "k": 3}, **extra}
    job = api.run(service, people, parameters)
    assert job["parameters"]["risk"] == {"key_fields": ["city"], "k": 3}
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    deciles = report["provider"]["risk_deciles"].values()
    assert sum(entry["rows"] for entry in deciles) == len(people)
    assert sum(entry["took_part"] for entry in deciles) == report["summary"]["took_part"]
    assert "No finite epsilon" in report["provider"]["risk_selection"]["no_epsilon"]
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).raise_for_status()
    assert "risk deciles" in page.text.lower()
    body = {"source": {"rows": people}, "parameters": parameters | {"risk": {"key_fields": ["ciyt"]}}}
    problem = api.problem(api.client.post(f"/v1/services/{service}", json=body), 422, "invalid_parameter")
    assert problem["errors"][0]["pointer"] == "/parameters/risk/key_fields/0"
    assert "did you mean 'city'" in problem["detail"]
    body["parameters"] = parameters | {"rate": 1}
    problem = api.problem(api.client.post(f"/v1/services/{service}", json=body), 422, "invalid_request")
    assert "needs a 'rate' below 1" in problem["errors"][0]["message"]


def test_checks_are_reported_and_repaired(api: Api, people: Rows) -> None:
    """The report and its page count broken rows; a repair leaves none; a fault names its place."""
    rows = [{**row, "limit": row["age"] * 1000} for row in people * 4]
    parameters: dict[str, Any] = {"swap_fields": ["age"], "checks": ["age * 2 < limit"]}
    body = {"source": {"rows": rows}, "parameters": parameters}
    problem = api.problem(api.client.post("/v1/services/DSWAP", json=body), 422, "invalid_parameter")
    assert problem["errors"][0]["pointer"] == "/parameters/checks/0"
    assert "character 1: a field, a number" in problem["detail"]
    parameters = {"swap_fields": ["age"], "checks": ["limit <= 40000 or age >= 40"], "on_broken": "repair"}
    job = api.run("DSWAP", rows, parameters)
    assert job["parameters"]["on_broken"] == "repair"
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    figures = report["provider"]["checks"]
    assert figures["by_check"]["limit <= 40000 or age >= 40"]["after"] == figures["rows_newly_broken"] == 0
    assert figures["rows_broken_by_exchange"] > 0
    page = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"}).raise_for_status()
    assert "limit &lt;= 40000 or age &gt;= 40" in page.text


def test_whole_households_are_exchanged_and_torn_ones_counted(api: Api, people: Rows) -> None:
    """The report and its page show both figures; a preview knows households; a wrong field is refused."""
    rows = [{**row, "home": f"home {number // 3}"} for number, row in enumerate(people * 5)]
    homes = len({row["home"] for row in rows})
    parameters = {"swap_fields": ["income"], "rate": 0.5, "household": "home"}
    job = api.run("DSWAP", rows, parameters)
    assert job["parameters"]["household"] == "home"
    assert "household_check" not in job["parameters"]
    report = api.client.get(f"/v1/jobs/{job['id']}/report").raise_for_status().json()
    assert report["provider"]["households"]["households"] == homes
    url = f"/v1/jobs/{job['id']}/report"
    page = api.client.get(url, headers={"accept": "text/html"}).raise_for_status()
    assert re.search(r"within [\w ]+ groups of [\w ]*households", page.text)
    counted = api.run("DSWAP", rows, {"swap_fields": ["income"], "household_check": "home"})
    url = f"/v1/jobs/{counted['id']}/report"
    figures = api.client.get(url).raise_for_status().json()["provider"]["households_torn"]
    assert figures["by_field"]["income"]["mixed"] > 0
    page = api.client.get(url, headers={"accept": "text/html"}).raise_for_status()
    assert "Members of households no longer have values of one household" in page.text
    body = {"source": {"rows": rows}, "parameters": parameters | {"household": "hoem"}}
    problem = api.problem(api.client.post("/v1/services/DSWAP", json=body), 422, "invalid_parameter")
    assert problem["errors"][0]["pointer"] == "/parameters/household"
    assert "did you mean 'home'" in problem["detail"]


def test_a_field_that_parts_from_no_other_is_reported(api: Api, people: Rows) -> None:
    """Swapping the only field changes only the order of rows; all fields locked together are rejected."""
    rows = [{"income": row["income"]} for row in people]
    job = api.run("DSWAP", rows, {"swap_fields": ["income"]})
    assert job["outcome"] == "SUCCESS_WITH_INFO"
    assert job["event_counts"] == {"rows_only_reordered": 1}
    body: dict[str, Any] = {"source": {"rows": rows}, "parameters": {"swap_fields": ["income"]}}
    planned = api.client.post("/v1/services/DSWAP", json=body | {"validate_only": True}).json()
    assert planned["outcome"] == "SUCCESS_WITH_INFO"
    assert [event["code"] for event in planned["events"]] == ["rows_only_reordered"]
    body = {
        "source": {"rows": [{"a": 1, "b": 2}] * 6},
        "parameters": {"swap_fields": ["a", "b"], "locked": True},
    }
    problem = api.problem(api.client.post("/v1/services/DSWAP", json=body), 422, "invalid_parameter")
    assert "only change the order of the rows" in problem["detail"]


def test_columns_are_the_same_table_as_rows(api: Api, people: Rows) -> None:
    by_rows = api.run("DSWAP", people, {"swap_fields": ["age", "income"]}, seed=7)
    columns = {name: [row[name] for row in people] for name in people[0]}
    body = {"source": {"columns": columns}, "parameters": {"swap_fields": ["age", "income"]}, "seed": "7"}
    by_columns = api.job(api.client.post("/v1/services/DSWAP", json=body))
    assert by_columns["source"] == by_rows["source"]
    assert by_columns["destination"] == by_rows["destination"]
    assert by_columns["seed_fingerprint"] == by_rows["seed_fingerprint"]


def test_optim_operands_are_aliases(api: Api, people: Rows) -> None:
    ours = api.run(
        "CDSWAP", people, {"swap_fields": ["income"], "control_field": "city", "locked": True}, seed=11
    )
    optim = api.run(
        "CDSWAP",
        people,
        {
            "SWAP_FIELD_NAMES": "income",
            "SWAP_CONTROL_ATTR": "city",
            "SWAP_LOCKED": True,
            "SWAP_RATE": 1.0,
            "SWAP_CLASSIFIER": "identity",
            "SWAP_SEED": 11,
        },
    )
    assert optim["parameters"] == ours["parameters"]
    assert optim["destination"] == ours["destination"]
    by_index = api.run(
        "DDSWAP",
        people,
        {"SWAP_FIELD_INDICES": [2], "SWAP_CONTROL_ATTR": "age", "SWAP_BLOCK_SIZE": 3, "SWAP_SEED": "b"},
    )
    assert by_index["parameters"]["swap_fields"] == ["income"]


def test_seed_is_never_shown(api: Api, people: Rows) -> None:
    seed = "5eed5eed5eed5eed5eed5eed5eed5eed"
    job = api.run("DSWAP", people, {"swap_fields": ["income"]}, seed=seed)
    for path in ("", "/report", "/manifest"):
        assert "5eed5eed" not in api.client.get(f"/v1/jobs/{job['id']}{path}").text
    assert "5eed5eed" not in api.client.get("/v1/jobs").text
    wrong = api.client.post(
        "/v1/services/DSWAP",
        json={"source": {"rows": people}, "parameters": {"swap_fields": ["x"]}, "seed": seed},
    )
    assert "5eed5eed" not in wrong.text


def test_without_a_seed_every_run_differs(api: Api) -> None:
    rows = [{"number": number} for number in range(50)]
    first, second = (api.run("DSWAP", rows, {"swap_fields": ["number"]}) for _ in range(2))
    assert first["destination"]["digest"] != second["destination"]["digest"]
    assert first["seed_fingerprint"] != second["seed_fingerprint"]


def test_validate_only_says_what_would_happen_and_stores_nothing(api: Api, people: Rows) -> None:
    before = api.client.get("/v1/jobs").json()["jobs"][:1]
    job = api.run("CDSWAP", people, {"swap_fields": ["income"], "control_field": "city"}, validate_only=True)
    plan = job["plan"]
    assert (plan["rows"], plan["groups"], plan["unswappable_rows"], plan["unswappable_groups"]) == (
        6,
        3,
        1,
        1,
    )
    assert plan["group_size"] == {"smallest": 1, "median": 2, "largest": 3}
    assert plan["estimated_memory_bytes"] > 0
    assert "destination" not in job
    api.problem(api.client.get(f"/v1/jobs/{job['id']}"), 404)
    assert api.client.get("/v1/jobs").json()["jobs"][:1] == before


@pytest.mark.parametrize("rows", [[], [{"a": 1}], [{"a": 5}] * 4])
def test_small_and_equal_tables(api: Api, rows: Rows) -> None:
    source = {"rows": rows, "fields": {"a": "int64"}}
    body = {"source": source, "parameters": {"swap_fields": ["a"], "suppression": {"policy": "keep"}}}
    job = api.job(api.client.post("/v1/services/DSWAP", json=body))
    assert job["state"] == "succeeded"
    assert job["destination"]["rows"] == rows


@pytest.mark.parametrize(
    ("service", "parameters", "rate"),
    [
        ("DSWAP", {"swap_fields": ["age"], "rate": 1e-9}, "'rate'"),
        ("RSWAP", {"hierarchy": ["city"]}, "'swap_rate'"),
    ],
)
def test_a_release_that_is_the_source_is_reported(
    api: Api, service: str, parameters: dict[str, Any], rate: str
) -> None:
    """No row is selected where the rate asks for less than one; the job does not end as if it had swapped."""
    rows = [{"age": number, "city": f"c{number % 3}"} for number in range(9)]
    job = api.run(service, rows, parameters)
    assert job["destination"]["rows"] == rows
    assert job["outcome"] == "SUCCESS_WITH_INFO"
    event = next(event for event in job["events"] if event["code"] == "nothing_changed")
    assert rate in event["message"]
    partly = {"swap_fields": ["age"], "rate": 0.5} if service == "DSWAP" else {**parameters, "swap_rate": 0.5}
    assert "nothing_changed" not in api.run(service, rows, partly)["event_counts"]


def test_huge_integers_and_odd_names_survive(api: Api) -> None:
    rows = [{"a b\U0001f600/~": 2**63 - 1 - number, "other": number} for number in range(4)]
    job = api.run("DSWAP", rows, {"swap_fields": ["a b\U0001f600/~"]})
    moved = sorted(row["a b\U0001f600/~"] for row in job["destination"]["rows"])
    assert moved == sorted(row["a b\U0001f600/~"] for row in rows)


def test_what_a_document_says_of_its_rows_never_gets_among_them(api: Api) -> None:
    """Rows are inserted into the text of a document with arbitrary characters and integers of any size."""
    rows = [{"\0": number, "\x00[]": "\0"} for number in range(4)]
    suppression = {"policy": "replace", "replacement": {"price": 10**25}}
    source = {"rows": [row | {"price": "1"} for row in rows], "fields": {"price": "decimal(38,0)"}}
    parameters = {"swap_fields": ["price"], "min_group_size": 9, "suppression": suppression}
    job = api.job(api.client.post("/v1/services/DSWAP", json={"source": source, "parameters": parameters}))
    assert job["parameters"]["suppression"]["replacement"] == {"price": 10**25}
    assert [field["name"] for field in job["destination"]["fields"]] == ["\0", "\x00[]", "price"]
    assert job["destination"]["rows"] == api.client.get(f"/v1/jobs/{job['id']}/rows").json()["rows"]
    listed = api.client.get("/v1/jobs", params={"page_size": 1}).json()["jobs"]
    assert [(each["id"], each["parameters"]) for each in listed] == [(job["id"], job["parameters"])]


def test_many_rows_are_sent_while_they_are_written(api: Api) -> None:
    rows = [{"n": number, "x": number / 7} for number in range(50_000)]
    body = {"source": {"rows": rows}, "parameters": {"swap_fields": ["n"]}}
    with api.client.stream("POST", "/v1/services/DSWAP", json=body) as answer:
        assert answer.status_code == 200
        assert answer.headers["transfer-encoding"] == "chunked"
        assert "content-length" not in answer.headers
        answer.read()
    moved = api.job(answer)["destination"]["rows"]
    assert [row["x"] for row in moved] == [row["x"] for row in rows]
    assert [row["n"] for row in moved] != [row["n"] for row in rows]
    assert sorted(row["n"] for row in moved) == [row["n"] for row in rows]


# -------------------------------------------------------------------------------------- refused


def _body(**changes: Any) -> dict[str, Any]:
    rows = [{"age": 1, "income": 2.5}, {"age": 2, "income": 3.5}]
    return {"source": {"rows": rows}, "parameters": {"swap_fields": ["income"]}} | changes


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("DSWAP", _body(sed="1"), "/sed", "did you mean 'seed'?"),
    ("DSWAP", _body(parameters={"swap_feilds": ["income"]}), "/parameters/swap_feilds", "'swap_fields'"),
    ("DSWAP", _body(parameters={"swap_fields": ["incme"]}), "/parameters/swap_fields/0", "'income'"),
    ("DSWAP", _body(parameters={"swap_fields": ["age", "age"]}), "/parameters/swap_fields/1", "twice"),
    ("DSWAP", _body(parameters={"swap_fields": ["age"], "rate": 0}), "/parameters/rate", "greater than 0"),
    ("DSWAP", _body(parameters={"swap_field_indices": [3]}), "/parameters/swap_field_indices/0", "2"),
    ("DSWAP", _body(parameters={}), "/parameters", "swap_fields"),
    ("DSWAP", _body(seed="xyz"), "/seed", "hex digits"),
    ("DSWAP", _body(seed=2**53), "/seed", "hex digits"),
    ("DSWAP", _body(seed="0xff"), "/seed", "hex digits"),
    (
        "DSWAP",
        _body(source={"rows": [{"a": "x", "b": 1}], "fields": {"a": "int65"}}),
        "/source/fields/a",
        "int64",
    ),
    ("DSWAP", _body(seed=-1), "/seed", "hex digits"),
    ("DSWAP", _body(seed=True), "/seed", "hex digits"),
    ("DSWAP", _body(source={}), "/source", "exactly one"),
    ("DSWAP", _body(source={"rows": [], "columns": {}}), "/source", "exactly one"),
    ("DSWAP", _body(source={"rows": 5}), "/source/rows", "list of objects"),
    ("DSWAP", _body(source={"rows": [{"a": 1}, 7]}), "/source/rows/1", "object"),
    ("DSWAP", _body(source={"rows": [{"a": 1}, {"a": "x"}]}), "/source/rows/1/a", "row 1"),
    ("DSWAP", _body(source={"columns": {"a": [1], "b": [1, 2]}}), "/source/columns/b", "same number"),
    ("DSWAP", _body(source={"buffer": "nothing"}), "/source/buffer", "no buffer"),
    ("DSWAP", _body(report="everything"), "/report", "'none', 'summary' or 'full'"),
    (
        "CDSWAP",
        _body(parameters={"swap_fields": ["age"], "control_field": "age"}),
        "/parameters/swap_fields/0",
        "both swap and control field",
    ),
    (
        "CDSWAP",
        _body(parameters={"swap_fields": ["income"], "control_field": "age", "classifier": {"brakes": [1]}}),
        "/parameters/classifier",
        "breaks",
    ),
    (
        "CDSWAP",
        _body(parameters={"swap_fields": ["income"], "control_field": "age", "classifier": [{"prefix": 0}]}),
        "/parameters/classifier/0/prefix",
        "greater than or equal to 1",
    ),
    (
        "DDSWAP",
        _body(parameters={"swap_fields": ["income"], "control_field": "age"}),
        "/parameters/block_size",
        "required",
    ),
]


@pytest.mark.parametrize(("service", "body", "pointer", "words"), REFUSED)
def test_bad_requests_say_what_where_and_what_would_be_right(
    api: Api, service: str, body: dict[str, Any], pointer: str, words: str
) -> None:
    error = api.refused(service, body)
    assert error["pointer"] == pointer
    assert words in error["message"]


def test_no_cell_is_quoted_in_an_error(api: Api) -> None:
    rows = [{"name": 1, "x": 2}, {"name": "Eve Secret", "x": 3}]
    answer = api.client.post(
        "/v1/services/DSWAP", json={"source": {"rows": rows}, "parameters": {"swap_fields": ["x"]}}
    )
    assert answer.status_code == 422
    assert "Eve" not in answer.text


def test_failing_policy_fails_the_job_with_counts(api: Api, people: Rows) -> None:
    parameters = {"swap_fields": ["income"], "control_field": "city", "suppression": {"policy": "fail"}}
    job = api.run("CDSWAP", people, parameters)
    assert (job["state"], job["outcome"]) == ("failed", "FAILURE")
    assert job["error"]["code"] == "unswappable_rows"
    assert "1 row of 1 group" in job["error"]["detail"]


def test_a_number_beyond_float64_is_no_infinity(api: Api) -> None:
    content = b'{"source":{"rows":[{"a":1.5},{"a":1e400}]},"parameters":{"swap_fields":["a"]}}'
    answer = api.client.post(
        "/v1/services/DSWAP", content=content, headers={"content-type": "application/json"}
    )
    assert api.problem(answer, 422)["errors"][0]["pointer"] == "/source/rows/1/a"


def test_fields_are_taken_as_an_answer_gives_them(api: Api, people: Rows) -> None:
    job = api.run("DSWAP", people, {"swap_fields": ["age"]})
    rows = api.client.get(f"/v1/jobs/{job['id']}/rows").json()
    body = {"source": rows, "parameters": {"swap_fields": ["age"]}}
    again = api.job(api.client.post("/v1/services/DSWAP", json=body))
    assert again["source"]["digest"] == job["destination"]["digest"]


def test_validate_only_reports_a_run_that_must_fail(api: Api, people: Rows) -> None:
    body = {
        "source": {"rows": people},
        "parameters": {
            "swap_fields": ["income"],
            "control_field": "city",
            "suppression": {"policy": "fail"},
        },
        "validate_only": True,
    }
    answer = api.client.post("/v1/services/CDSWAP", json=body)
    api.problem(answer, 422, "unswappable_rows")


@pytest.mark.parametrize("rows", [2, 40])
def test_many_fields_are_checked_in_linear_time(api: Api, rows: int) -> None:
    table = [{f"f{number}": number for number in range(4000)}] * rows
    job = api.run("DSWAP", table, {"swap_fields": ["f0", "f3999"]}, report="none")
    assert job["state"] == "succeeded"


def test_breaks_finer_than_a_microsecond_are_refused(api: Api) -> None:
    source = {"rows": [{"t": "2024-01-01T00:00:00.000000100", "x": 1}], "fields": {"t": "timestamp[ns]"}}
    classifier = {"breaks": ["2024-01-01T00:00:00.000000500"]}
    parameters = {"swap_fields": ["x"], "control_field": "t", "classifier": classifier}
    error = api.refused("CDSWAP", {"source": source, "parameters": parameters})
    assert "microsecond" in error["message"]


@pytest.mark.parametrize(
    ("service", "parameters"),
    [
        ("DSWAP", {"min_group_size": 10**40}),
        ("DSWAP", {"min_group_size": 2**53 - 1}),
        ("CDSWAP", {"control_field": "city", "classifier": {"prefix": 10**40}}),
        ("CDSWAP", {"control_field": "city", "classifier": {"prefix": 2**31 - 1}}),
        ("DDSWAP", {"control_field": "age", "block_size": 10**40}),
        ("DDSWAP", {"control_field": "age", "block_size": 2**53 - 1}),
        (
            "CDSWAP",
            {
                "control_field": "city",
                "suppression": {"policy": "replace", "replacement": {"income": 10**30}},
            },
        ),
    ],
)
def test_numbers_beyond_all_rows_are_taken_or_refused(
    api: Api, people: Rows, service: str, parameters: dict[str, Any]
) -> None:
    body = {"source": {"rows": people}, "parameters": {"swap_fields": ["income"]} | parameters}
    answer = api.client.post(f"/v1/services/{service}", json=body)
    if answer.status_code == 200:
        assert api.job(answer)["state"] == "succeeded"
    else:
        api.problem(answer, 422, "invalid_request")
