"""Tables of other callers: a buffer is its owner's alone, and results of other tables need `read`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from app.callers import ADMIN, READ, RUN
from tests.api.calls import Api
from tests.api.test_identities import Keys

ROWS = [
    {"age": 20 + number * 7 % 61, "town": f"t{number % 5}", "income": 1000 + number * 11 % 241}
    for number in range(120)
]
INLINE = {"rows": ROWS}
TABLE = "age,town,income\n" + "".join(f"{row['age']},{row['town']},{row['income']}\n" for row in ROWS)
SWAP = {"swap_fields": ["income"], "control_field": "town"}
INTRUDER = {"known": ["age", "town"], "secret": ["income"], "attacks": 20}
POINTS = [{"service": "DSWAP", "parameters": {"swap_fields": ["income"]}, "vary": {"rate": [0.2, 1.0]}}]
OUTSIDE = {"reference": "s3://somewhere/rows.csv"}
"""Destination that no prefix allows: a caller that may write one gets 422."""

Body = dict[str, Any]
REPORTS: dict[str, tuple[str, Callable[[Body], Body]]] = {
    "measured source": ("measures", lambda table: {"source": table, "destination": INLINE}),
    "measured destination": ("measures", lambda table: {"source": INLINE, "destination": table}),
    "frontier": ("frontier", lambda table: {"source": table, "services": POINTS}),
    "attacked source": ("attacks", lambda table: {"source": table, "destination": INLINE, **INTRUDER}),
    "attacked destination": ("attacks", lambda table: {"source": INLINE, "destination": table, **INTRUDER}),
    "control": (
        "attacks",
        lambda table: {"source": INLINE, "destination": INLINE, "control": table, **INTRUDER},
    ),
}
"""Operation whose result is a report, and its body with a table of another caller."""


class Callers:
    """Clients of four callers: two of one project, and two administrators."""

    def __init__(self, keys: Keys, clients: ExitStack) -> None:
        self.keys = keys
        project = f"p{uuid4().hex[:8]}"  # one for each module, so that lists are short

        def client(*scopes: str, name: str, project: str | None = None) -> httpx.Client:
            return clients.enter_context(keys.client(keys.make(scopes, name, project)))

        self.ada = client(RUN, READ, name="ada", project=project)
        self.mate = client(RUN, READ, name="mate", project=project)
        self.writer = client(RUN, name="writer", project=project)
        self.ops = client(RUN, ADMIN, name="ops")
        self.reading_ops = client(RUN, READ, ADMIN, name="reading-ops")


@pytest.fixture(scope="module")
def callers(service_home: Path, database: dict[str, str], address: str) -> Iterator[Callers]:
    keys = Keys(service_home, database, address)
    with ExitStack() as clients:
        yield Callers(keys, clients)
    keys.close()


def upload(client: httpx.Client) -> str:
    """Upload the rows; return the buffer's id."""
    answer = client.post("/v1/buffers", content=TABLE, headers={"content-type": "text/csv"})
    buffer: str = answer.raise_for_status().json()["id"]
    return buffer


@pytest.fixture(scope="module")
def buffer(callers: Callers) -> str:
    """A buffer of ada."""
    return upload(callers.ada)


def test_a_buffer_is_its_owners_alone(callers: Callers, buffer: str) -> None:
    """A member of the project gets what an unknown id gets, from each operation that takes a buffer."""
    ada, mate = callers.ada, callers.mate
    path = f"/v1/buffers/{buffer}"
    run = ada.post("/v1/services/CDSWAP", json={"source": {"buffer": buffer}, "parameters": SWAP})
    job = Api.job(run)["id"]
    comparison = f"/v1/jobs/{job}/comparison?source={buffer}"
    for refused in (
        mate.get(path),
        mate.get(f"{path}/rows"),
        mate.get(f"{path}/profile"),
        mate.post(f"{path}/copies", json={}),
        mate.patch(path, json={"name": "mine"}),
        mate.delete(path),
        mate.get(comparison),
    ):
        Api.problem(refused, 404, "not_found")
    for client, seen in ((ada, True), (mate, False), (callers.reading_ops, True)):
        listed = client.get("/v1/buffers", params={"page_size": 200}).json()["buffers"]
        assert (buffer in {each["id"] for each in listed}) is seen
    source = {"source": {"buffer": buffer}}
    for answer in (
        mate.post("/v1/services/CDSWAP", json=source | {"parameters": SWAP}),
        mate.post("/v1/services/CDSWAP", json=source | {"parameters": SWAP, "validate_only": True}),
        *(mate.post(f"/v1/{kind}", json=body({"buffer": buffer})) for kind, body in REPORTS.values()),
        mate.post(f"/v1/jobs/{job}/rerun", json=source),
    ):
        Api.problem(answer, 422)
    assert mate.get(f"/v1/jobs/{job}/rows").status_code == 200  # jobs are shared
    Api.problem(mate.post(f"/v1/jobs/{job}/rerun", json={}), 409)  # it has not retained its source
    assert Api.job(ada.post(f"/v1/jobs/{job}/rerun", json={}))["reproduced"] is True
    assert Api.job(mate.post(f"/v1/jobs/{job}/rerun", json={"source": INLINE}))["reproduced"] is True
    assert ada.get(comparison).status_code == 200


@pytest.mark.parametrize("named", REPORTS)
def test_a_report_on_a_table_of_another_caller_needs_read(callers: Callers, buffer: str, named: str) -> None:
    """Also when the request is repeated; a report on one's own buffer needs no further scope."""
    kind, body = REPORTS[named]
    headers = {"idempotency-key": uuid4().hex, "prefer": "wait=60"}
    for _ in range(2):
        job = Api.job(callers.ops.post(f"/v1/{kind}", json=body({"buffer": buffer}), headers=headers))
        assert job["state"] == "succeeded"
        assert "report" not in job
        Api.problem(callers.ops.get(f"/v1/jobs/{job['id']}/report"), 403, "insufficient_scope")
    waits = {"prefer": "wait=60"}
    reading = callers.reading_ops.post(f"/v1/{kind}", json=body({"buffer": buffer}), headers=waits)
    assert "report" in Api.job(reading)
    own = {"buffer": upload(callers.writer)}
    headers = {"idempotency-key": uuid4().hex, "prefer": "wait=60"}
    for _ in range(2):
        assert "report" in Api.job(callers.writer.post(f"/v1/{kind}", json=body(own), headers=headers))


def test_a_run_on_a_table_of_another_caller_needs_read_to_write_to_a_reference(
    callers: Callers, buffer: str
) -> None:
    """The message names the scope and the tables that need none."""
    body = {"parameters": SWAP, "destination": OUTSIDE}
    source: Body = {"buffer": buffer}
    for more in ({}, {"validate_only": True}):
        call = body | more
        refused = callers.ops.post("/v1/services/CDSWAP", json=call | {"source": source})
        problem = Api.problem(refused, 403, "insufficient_scope")
        assert "'read'" in problem["detail"]
        assert "a buffer of your own" in problem["detail"]
        assert 'scope="read"' in refused.headers["www-authenticate"]
        for client, table in (
            (callers.reading_ops, source),
            (callers.writer, {"buffer": upload(callers.writer)}),
            (callers.writer, INLINE),
        ):
            answer = client.post("/v1/services/CDSWAP", json=call | {"source": table})
            assert "ROWVEIL_DESTINATION_PREFIXES" in Api.problem(answer, 422)["detail"]
    job = Api.job(callers.ops.post("/v1/services/CDSWAP", json={"parameters": SWAP, "source": source}))
    assert "rows" not in job["destination"]


def test_a_plan_of_a_table_of_another_caller_needs_read(callers: Callers, buffer: str) -> None:
    """The request is still checked, and so are parameters that do not fit the table."""
    path = "/v1/services/CDSWAP"
    call: Body = {"source": {"buffer": buffer}, "parameters": SWAP, "validate_only": True}
    job = Api.job(callers.ops.post(path, json=call))
    assert (job["progress"]["stage"], job["outcome"]) == ("validated", "SUCCESS")
    assert "plan" not in job
    Api.problem(callers.ops.post(path, json=call | {"preview_rows": 2}), 403, "insufficient_scope")
    wrong = call | {"parameters": {"swap_fields": ["salary"], "control_field": "town"}}
    Api.problem(callers.ops.post(path, json=wrong), 422)
    assert "plan" in Api.job(callers.reading_ops.post(path, json=call))
    own = call | {"source": {"buffer": upload(callers.writer)}}
    assert "plan" in Api.job(callers.writer.post(path, json=own))
    assert "plan" in Api.job(callers.writer.post(path, json=call | {"source": INLINE}))


def test_an_attack_on_a_job_shows_its_report_with_read_or_to_the_caller_that_gave_the_tables(
    callers: Callers, buffer: str
) -> None:
    """A rerun of another caller's job has tables of that one; so has a run on another caller's buffer."""
    swap = {"source": INLINE, "parameters": SWAP, "retain_source": True}
    made = Api.job(callers.ada.post("/v1/services/CDSWAP", json=swap))["id"]
    rerun = Api.job(callers.writer.post(f"/v1/jobs/{made}/rerun", json={}))["id"]
    own = Api.job(callers.writer.post("/v1/services/CDSWAP", json=swap))["id"]
    of_buffer = Api.job(
        callers.writer.post("/v1/services/CDSWAP", json=swap | {"source": {"buffer": upload(callers.writer)}})
    )["id"]
    on_anothers = Api.job(callers.ops.post("/v1/services/CDSWAP", json=swap | {"source": {"buffer": buffer}}))
    for client, job, shown in (
        (callers.mate, made, True),
        (callers.writer, made, False),
        (callers.writer, rerun, False),
        (callers.writer, own, True),
        (callers.writer, of_buffer, True),
        (callers.ops, made, False),
        (callers.ops, on_anothers["id"], False),
        (callers.reading_ops, made, True),
    ):
        for more in ({}, {"source": INLINE}):
            found = client.post("/v1/attacks", json={"job": job, **INTRUDER, **more})
            assert ("report" in Api.job(found)) is shown, (job, more)


def test_a_copy_of_a_buffer_of_another_caller_needs_read(callers: Callers, buffer: str) -> None:
    """The copy would be the caller's own."""
    refused = callers.ops.post(f"/v1/buffers/{buffer}/copies", json={})
    assert "'read'" in Api.problem(refused, 403, "insufficient_scope")["detail"]
    assert callers.reading_ops.post(f"/v1/buffers/{buffer}/copies", json={}).status_code == 201
    own = upload(callers.writer)
    assert callers.writer.post(f"/v1/buffers/{own}/copies", json={}).status_code == 201


def test_a_rerun_without_read_shows_and_writes_what_its_own_tables_give(
    callers: Callers, buffer: str
) -> None:
    """Another caller's buffer is none of them, nor is a destination or a control that the first job has."""
    swap = {"source": INLINE, "parameters": SWAP, "retain_source": True}
    made = Api.job(callers.ada.post("/v1/services/CDSWAP", json=swap))["id"]
    path = f"/v1/jobs/{made}/rerun"
    body: Body = {"source": {"buffer": buffer}, "destination": OUTSIDE}
    for client in (callers.ops, callers.writer):
        Api.problem(client.post(path, json=body), 403, "insufficient_scope")
    for source in (INLINE, {"buffer": upload(callers.writer)}):
        Api.problem(callers.writer.post(path, json=body | {"source": source}), 422)
    given = {"source": INLINE, "destination": INLINE}
    for kind, first, lacking in (
        ("measures", given, ("source", "destination")),
        ("attacks", given | {"control": INLINE}, ("source", "destination", "control")),
    ):
        more = INTRUDER if kind == "attacks" else {}
        job = Api.job(callers.ada.post(f"/v1/{kind}", json=first | more | {"retain_source": True}))
        path = f"/v1/jobs/{job['id']}/rerun"
        assert "report" in Api.job(callers.writer.post(path, json=first))
        for role in lacking:
            without = {name: table for name, table in first.items() if name != role}
            assert "report" not in Api.job(callers.writer.post(path, json=without)), (kind, role)
            other = first | {role: {"buffer": buffer}}
            assert "report" not in Api.job(callers.ops.post(path, json=other)), (kind, role)


def test_a_job_that_reads_a_table_of_another_caller_is_audited_as_a_read(callers: Callers) -> None:
    """Own buffers have no such line: the line of the submission is enough."""
    buffer = upload(callers.ada)
    source: Body = {"source": {"buffer": buffer}}
    swap = source | {"parameters": SWAP}
    created = ("buffer.create", "ada", "")
    made = Api.job(callers.ada.post("/v1/services/CDSWAP", json=swap))["id"]
    Api.job(callers.ada.post("/v1/services/CDSWAP", json=swap | {"validate_only": True}))
    assert callers.keys.audited(buffer) == [created]
    run = Api.job(callers.ops.post("/v1/services/CDSWAP", json=swap))["id"]
    both = source | {"destination": {"buffer": buffer}}
    measured = Api.job(callers.ops.post("/v1/measures", json=both))["id"]
    rerun = Api.job(callers.ops.post(f"/v1/jobs/{made}/rerun", json={}))["id"]
    Api.job(callers.reading_ops.post("/v1/services/CDSWAP", json=swap | {"validate_only": True}))
    reads = sorted(("buffer.read", "ops", job) for job in (run, measured, rerun))
    assert callers.keys.audited(buffer) == [created, *reads, ("buffer.read", "reading-ops", "")]
    attack = Api.job(callers.ops.post("/v1/attacks", json={"job": made, **INTRUDER}))["id"]
    assert ("rows.read", "ops", attack) in callers.keys.audited(made)
    assert callers.keys.audited(run)[-1][:2] == ("job.submit", "ops")
