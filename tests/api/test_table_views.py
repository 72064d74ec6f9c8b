"""Profile of a buffer, copies with other types, rows before and after a run, and trial runs in a preview."""

import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import sqlalchemy as sa

from app.api.table_schemas import RowComparison, TableProfile
from app.callers import READ, RUN
from app.settings import Settings
from app.store.sql.db import Database
from app.store.sql.models import AuditLine
from tests.api.calls import ARROW, Api
from tests.api.test_identities import Keys, keys

__all__ = ["keys"]

TOWNS = ["Cork", "Oslo", "Porto"]
ROWS: list[list[Any]] = [
    [20 + row * 7 % 50, TOWNS[row % 3], "?" if row % 10 == 0 else str(row)] for row in range(200)
]
CSV = "".join(",".join(str(cell) for cell in row) + "\n" for row in ROWS)
NAMES = ["column_1", "column_2", "column_3"]


def uploaded(client: httpx.Client, content: str = CSV, query: str = "header=false") -> dict[str, Any]:
    answer = client.post(f"/v1/buffers?{query}", content=content, headers={"content-type": "text/csv"})
    assert answer.status_code == 201, answer.text
    buffer: dict[str, Any] = answer.json()
    return buffer


def rows_of(client: httpx.Client, path: str) -> list[list[str]]:
    """Return the rows as texts."""
    table = pa.ipc.open_stream(client.get(f"{path}/rows", headers={"accept": ARROW}).content).read_all()
    return [[str(cell) for cell in row.values()] for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("query", "media_type"), [("?header=false", "text/csv"), ("", "text/csv; header=absent")]
)
def test_a_csv_without_a_header_keeps_its_first_row(
    client: httpx.Client, query: str, media_type: str
) -> None:
    answer = client.post(f"/v1/buffers{query}", content=CSV, headers={"content-type": media_type})
    buffer = answer.json()
    assert buffer["row_count"] == len(ROWS)
    assert [field["name"] for field in buffer["fields"]] == NAMES
    assert [field["type"] for field in buffer["fields"]] == ["int64", "string", "string"]


def test_rows_of_a_csv_without_a_header_are_counted_from_its_first(api: Api) -> None:
    answer = api.client.post(
        "/v1/buffers?header=false", content="1,2\n3\n", headers={"content-type": "text/csv"}
    )
    assert (
        "row 1 (counting from 0) has 1 cells where the first line has 2" in api.problem(answer, 422)["detail"]
    )
    answer = api.client.post(
        "/v1/buffers?header=false", content="", headers={"content-type": "text/csv; header=present"}
    )
    assert "differ; state one of the two" in api.problem(answer, 422)["detail"]


def test_a_profile_counts_what_the_table_has(client: httpx.Client) -> None:
    buffer = uploaded(client)
    answer = client.get(f"/v1/buffers/{buffer['id']}/profile", params={"rows": 3})
    profile = answer.raise_for_status().json()
    TableProfile.model_validate(profile, extra="forbid")
    assert (profile["row_count"], profile["rows_read"], profile["field_count"]) == (200, 200, 3)
    assert profile["first_rows"] == [[str(cell) for cell in row] for row in ROWS[:3]]
    ages, towns, codes = profile["fields"]
    values = [row[0] for row in ROWS]
    assert (ages["distinct"], ages["minimum"], ages["maximum"]) == (50, "20", "69")
    edges = [int(edge) for edge in ages["histogram"]["edges"]]
    assert ages["histogram"]["counts"] == [
        sum(low <= value < high for value in values) for low, high in pairwise(edges)
    ]
    assert sum(ages["histogram"]["counts"]) == 200
    counts = Counter(row[1] for row in ROWS)
    assert towns["values"] == [{"value": town, "count": counts[str(town)]} for town in TOWNS]
    assert (towns["runs"], towns["largest_count"]) == (200, 67)
    assert (codes["distinct"], codes["distinct_is_exact"], codes["largest_count"]) == (181, True, 20)


def test_a_copy_has_other_types_and_fewer_fields(api: Api) -> None:
    buffer = uploaded(api.client)
    path = f"/v1/buffers/{buffer['id']}/copies"
    change = {
        "drop": ["column_2"],
        "types": {"column_1": "string", "column_3": "int64"},
        "null_tokens": ["?"],
    }
    answer = api.client.post(path, json=change)
    copy = answer.json()
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/buffers/{copy['id']}"
    assert copy["fields"] == [{"name": "column_1", "type": "string"}, {"name": "column_3", "type": "int64"}]
    wanted = [[str(row[0]), "None" if row[2] == "?" else str(row[2])] for row in ROWS]
    assert rows_of(api.client, f"/v1/buffers/{copy['id']}") == wanted
    assert api.client.get(f"/v1/buffers/{buffer['id']}").json() == buffer  # stays as it is


@pytest.mark.parametrize(
    ("declared", "to", "fits", "does_not"),
    [
        ("float64", "float32", ["0.1", "3.4e38", "NaN", "-Infinity", "0.0"], ["1e39", "-1e39", "1e-60"]),
        ("float64", "int64", ["3.0", "-0.0"], ["1.5", "NaN", "1e19"]),
        ("int64", "float32", ["16777216"], ["16777217"]),
        (
            "decimal(20,2)",
            "float64",
            ["0.10", "-12345.67", "9007199254740992.00"],
            ["12345678901234567.89", "90071992547409.93"],
        ),
        ("timestamp[us]", "date", ["2020-07-01T00:00:00.000000"], ["2020-07-01T23:59:59.999999"]),
        (
            "timestamp[s, Europe/Dublin]",
            "date",
            ["2020-07-02T00:00:00+01:00"],
            ["2020-07-02T00:30:00+01:00", "2020-07-02T00:00:00Z"],
        ),
    ],
)
def test_a_copy_refuses_values_that_its_type_does_not_hold(
    api: Api, declared: str, to: str, fits: list[str], does_not: list[str]
) -> None:
    """A value that would become infinite, 0, another number or another day, wherever it is."""

    def copied(texts: list[str]) -> httpx.Response:
        query = {"fields": json.dumps({"x": declared})}
        body = "\n".join(["x", *texts, ""])
        first = api.client.post(
            "/v1/buffers", params=query, content=body, headers={"content-type": "text/csv"}
        )
        assert first.status_code == 201, first.text
        return api.client.post(f"/v1/buffers/{first.json()['id']}/copies", json={"types": {"x": to}})

    assert copied(fits).status_code == 201
    for text in does_not:
        problem = api.problem(copied([*fits, text]), 422)
        assert problem["errors"][0]["pointer"] == "/types/x"
        assert f"row {len(fits)} " in problem["detail"]
        assert "does not fit" in problem["detail"]


def test_a_copy_is_audited_as_a_read_of_the_first_buffer(
    api: Api, service_home: Path, database: dict[str, str]
) -> None:
    """Its own line names the first buffer. A repeated request reads nothing."""
    buffer, key = uploaded(api.client), {"idempotency-key": uuid.uuid4().hex}
    path = f"/v1/buffers/{buffer['id']}/copies"
    made = [api.client.post(path, json={}, headers=key).json()["id"] for _ in range(2)]
    assert made[0] == made[1]
    opened = Database(Settings.model_validate({"home": service_home} | database))
    try:
        with opened.read() as session:
            query = sa.select(AuditLine.action, AuditLine.subject, AuditLine.reason)
            lines = session.execute(
                query.where(AuditLine.subject.in_((buffer["id"], made[0]))).order_by(AuditLine.number)
            ).all()
    finally:
        opened.close()
    assert [tuple(line) for line in lines] == [
        ("buffer.create", buffer["id"], None),
        ("buffer.read", buffer["id"], None),
        ("buffer.create", made[0], buffer["id"]),
    ]


def test_a_copy_is_made_once_under_a_key(api: Api) -> None:
    """The same request returns the copy, also when the first buffer is gone; another request is refused."""
    buffer, key = uploaded(api.client), {"idempotency-key": uuid.uuid4().hex}
    path = f"/v1/buffers/{buffer['id']}/copies"
    stored = len(api.client.get("/v1/buffers", params={"page_size": 200}).json()["buffers"])

    def copied(change: dict[str, Any]) -> httpx.Response:
        return api.client.post(path, json=change, headers=key)

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(copied, [{"drop": ["column_2"]}] * 4))
    assert {answer.status_code for answer in made} == {201}
    assert len({answer.json()["id"] for answer in made}) == 1
    assert all("idempotency-key-expires" in answer.headers for answer in made)
    assert len(api.client.get("/v1/buffers", params={"page_size": 200}).json()["buffers"]) == stored + 1
    api.problem(copied({"drop": ["column_1"]}), 422, "idempotency_key_reused")
    api.client.delete(f"/v1/buffers/{buffer['id']}").raise_for_status()
    again = copied({"drop": ["column_2"]})
    assert (again.status_code, again.json()) == (201, made[0].json())
    api.client.delete(f"/v1/buffers/{again.json()['id']}").raise_for_status()
    api.problem(copied({"drop": ["column_2"]}), 404)


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"types": {"column_3": "int64"}}, "/types/column_3", "row 0 (counting from 0): int64 is written as"),
        ({"types": {"column_1": "uint8", "column_2": "date"}}, "/types/column_2", "date is written as"),
        ({"types": {"column_1": "integer"}}, "/types/column_1", "int64"),
        ({"types": {"column_1": "list<int64>"}}, "/types/column_1", "cannot become list<int64>"),
        ({"drop": ["colum_1"]}, "/drop", "there is no field 'colum_1'; did you mean 'column_1'?"),
        ({"drop": NAMES}, "/drop", "at least one field"),
        ({"drop": ["column_1"], "types": {"column_1": "string"}}, "/types", "is dropped, so it has no type"),
    ],
)
def test_a_copy_that_cannot_be_made_is_refused_without_a_value(
    api: Api, change: dict[str, Any], pointer: str, words: str
) -> None:
    buffer = uploaded(api.client)
    problem = api.problem(api.client.post(f"/v1/buffers/{buffer['id']}/copies", json=change), 422)
    assert problem["errors"][0]["pointer"] == pointer
    assert words in problem["detail"]
    assert not any(town in json.dumps(problem) for town in TOWNS)


def test_rows_before_and_after_a_run_are_compared(api: Api) -> None:
    """The figures are those of the two tables, read by hand; another table is a conflict."""
    client = api.client
    buffer = uploaded(client)
    call = {
        "source": {"buffer": buffer["id"]},
        "parameters": {"swap_fields": ["column_1"], "control_field": "column_2"},
    }
    job = api.job(client.post("/v1/services/CDSWAP", json=call))
    before, after = (
        rows_of(client, path) for path in (f"/v1/buffers/{buffer['id']}", f"/v1/jobs/{job['id']}")
    )
    path = f"/v1/jobs/{job['id']}/comparison"
    wanted = {"source": buffer["id"], "rows": "5", "only_changed": "true"}
    found = client.get(path, params=wanted).raise_for_status().json()
    RowComparison.model_validate(found, extra="forbid")
    changed = [row for row in range(200) if before[row] != after[row]]
    assert found["aligned"]
    assert [field["changed"] for field in found["fields"]] == [len(changed), 0, 0]
    assert found["rows"] == [{"row": row, "before": before[row], "after": after[row]} for row in changed[:5]]
    assert found["categories"] == ["column_2"]
    crossed = {"source": buffer["id"], "rows": "0", "field": "column_2", "by": "column_2"}
    table = client.get(path, params=crossed).raise_for_status().json()["crosstab"]
    assert table["values"] == table["by_values"] == TOWNS
    assert table["before"] == table["after"] == [[67, 0, 0], [0, 67, 0], [0, 0, 66]]
    numbers = crossed | {"by": "column_1"}
    assert "more than 24 different values" in api.problem(client.get(path, params=numbers), 422)["detail"]
    alone = {"source": buffer["id"], "field": "column_2"}
    assert "needs both" in api.problem(client.get(path, params=alone), 422)["detail"]
    other = uploaded(client, CSV + "9,Cork,9\n")
    api.problem(client.get(path, params={"source": other["id"]}), 409)


def test_rows_that_were_shuffled_are_not_said_to_belong_together(api: Api) -> None:
    rows = "a,b\n" + "".join(f"{row * 31 % 101},{row * 17 % 89}\n" for row in range(300))
    buffer = uploaded(api.client, rows, "")
    call = {"source": {"buffer": buffer["id"]}, "parameters": {}}
    job = api.job(api.client.post("/v1/services/PABIDOT", json=call))
    found = api.client.get(f"/v1/jobs/{job['id']}/comparison", params={"source": buffer["id"]}).json()
    assert not found["aligned"]
    assert all("changed" not in field for field in found["fields"])


def test_a_preview_shows_rows_of_a_trial_run(api: Api) -> None:
    """The control field stays in its row, and values of a class stay in the class."""
    buffer = uploaded(api.client)
    call: dict[str, Any] = {
        "source": {"buffer": buffer["id"]},
        "parameters": {"swap_fields": ["column_1"], "control_field": "column_2"},
        "validate_only": True,
        "preview_rows": 50,
    }
    trial = api.client.post("/v1/services/CDSWAP", json=call).raise_for_status().json()["plan"]["trial"]
    assert [row["before"] for row in trial["rows"]] == [[str(cell) for cell in row] for row in ROWS[:50]]
    assert all(row["before"][1:] == row["after"][1:] for row in trial["rows"])
    assert trial["fields"][0]["changed"] > 0
    inline = call | {"source": {"rows": [{"column_1": 1, "column_2": "a"}, {"column_1": 2, "column_2": "a"}]}}
    trial = api.client.post("/v1/services/CDSWAP", json=inline).raise_for_status().json()["plan"]["trial"]
    assert len(trial["rows"]) == 2
    error = api.refused("CDSWAP", {**call, "validate_only": False})
    assert "belongs to a preview" in error["message"]


def test_a_preview_of_a_table_without_rows_has_a_trial_run(api: Api) -> None:
    """A CSV with nothing but its header can be run, so that it can be previewed."""
    call: dict[str, Any] = {
        "source": {"buffer": uploaded(api.client, "age,income\n", "")["id"]},
        "parameters": {"swap_fields": ["income"]},
        "validate_only": True,
        "preview_rows": 5,
    }
    plan = api.client.post("/v1/services/DSWAP", json=call).raise_for_status().json()["plan"]
    assert (plan["rows"], plan["trial"]["rows_read"], plan["trial"]["rows"]) == (0, 0, [])


def test_a_table_is_shown_to_none_who_may_not_read_rows(api: Api, keys: Keys) -> None:
    """A key that may run but not read gets no values, neither of a profile nor of a trial run."""
    buffer = uploaded(api.client)
    with keys.client(keys.make({RUN}, "runner")) as runner:
        own = uploaded(runner)
        for path in ("profile", "rows"):
            api.problem(runner.get(f"/v1/buffers/{own['id']}/{path}"), 403, "insufficient_scope")
        call: dict[str, Any] = {
            "source": {"buffer": own["id"]},
            "parameters": {"swap_fields": ["column_1"]},
            "validate_only": True,
        }
        assert runner.post("/v1/services/DSWAP", json=call).status_code == 200
        refused = runner.post("/v1/services/DSWAP", json=call | {"preview_rows": 5})
        api.problem(refused, 403, "insufficient_scope")
        api.problem(runner.post(f"/v1/buffers/{buffer['id']}/copies", json={}), 404)
    with keys.client(keys.make({READ}, "reader")) as reader:
        api.problem(reader.get(f"/v1/buffers/{buffer['id']}/profile"), 404)


def test_a_job_is_compared_with_no_buffer_of_another_caller(api: Api, keys: Keys) -> None:
    """Even if the buffer has the rows of the job's source: a comparison reads the buffer."""
    buffer = uploaded(api.client)
    with keys.client(keys.make({RUN, READ}, "stranger")) as stranger:
        own = uploaded(stranger)
        call = {"source": {"buffer": own["id"]}, "parameters": {"swap_fields": ["column_1"]}}
        job = api.job(stranger.post("/v1/services/DSWAP", json=call))
        path = f"/v1/jobs/{job['id']}/comparison"
        assert own["digest"] == buffer["digest"]
        api.problem(stranger.get(path, params={"source": buffer["id"]}), 404)
        assert stranger.get(path, params={"source": own["id"]}).status_code == 200
