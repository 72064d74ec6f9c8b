"""Two replicas on one PostgreSQL, under one fault after the other."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.calls import slow_call
from tests.faults.replicas import cancel, compiled_faults, running_pair, starts_before, until
from tests.faults.rounds import Rounds
from tests.postgres import Postgres

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1500)]

ASYNC = {"prefer": "respond-async"}
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "200"))


@pytest.fixture(scope="module")
def rounds(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    folder = tmp_path_factory.mktemp("pair")
    database = postgres.new_database()
    with running_pair(folder, database, compiled_faults(folder)) as pair:
        made = Rounds(pair, postgres, database, folder / "home")
        made.prepare()
        yield made
        made.close()


@pytest.fixture(scope="module")
def slow(rounds: Rounds) -> dict[str, Any]:
    """A call whose job takes a while."""
    return slow_call(rounds.pair[0].client)


def _processor_ticks(pid: int) -> list[str]:
    """User and system time of a process in clock ticks; empty once it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return []


def _wait_until_idle(pid: int) -> None:
    """Return when the process is gone, or has used no processor time for half a second.

    A worker whose task stops by itself within a second is kept.
    """

    def idle() -> bool:
        before = _processor_ticks(pid)
        time.sleep(0.5)
        return _processor_ticks(pid) == before

    until(f"process {pid} has stopped its job", idle)


def test_a_job_is_watched_and_cancelled_at_any_replica(rounds: Rounds, slow: dict[str, Any]) -> None:
    """Each of the two runs one; all is asked of the first."""
    client = rounds.pair[0].client
    jobs = [client.post("/v1/services/DDSWAP", json=slow, headers=ASYNC).json()["id"] for _ in range(2)]
    workers = [pid for replica in rounds.pair for pid in replica.workers()]
    for job in jobs:
        with client.stream("GET", f"/v1/jobs/{job}/events") as events:
            next(line for line in events.iter_lines() if '"running"' in line)
    assert len({rounds.column(job, "claimed_by") for job in jobs}) == 2
    for job in jobs:
        answer = cancel(client, job)
        assert answer.json()["state"] == "cancelled", answer.text
        with client.stream("GET", f"/v1/jobs/{job}/events") as events:
            assert any('"cancelled"' in line for line in events.iter_lines())
    for pid in workers:
        _wait_until_idle(pid)


def test_a_call_waits_for_a_job_that_another_replica_runs(rounds: Rounds, slow: dict[str, Any]) -> None:
    client = rounds.pair[0].client
    until(
        "both have a worker again", lambda: all(replica.ready()["workers"] == "ok" for replica in rounds.pair)
    )
    busy = client.post("/v1/services/DDSWAP", json=slow, headers=ASYNC).json()["id"]
    until("the slow job runs", lambda: rounds.column(busy, "state") == "running")
    body = {"source": {"rows": [{"age": 1}, {"age": 2}]}, "parameters": {"swap_fields": ["age"]}}
    wait = {"prefer": "wait=60"}
    for replica in rounds.pair:  # one of them is busy
        answer = replica.client.post("/v1/services/DSWAP", json=body, headers=wait, timeout=70)
        assert (answer.status_code, answer.json()["state"]) == (200, "succeeded")
        assert rounds.column(answer.json()["id"], "claimed_by") != rounds.column(busy, "claimed_by")
    cancel(client, busy)


def test_a_database_that_is_away_for_ten_seconds_costs_nothing_but_time(rounds: Rounds) -> None:
    """Running jobs go on, requests get an error at once, and ends are recorded afterwards."""
    body = {name: value for name, value in rounds.calls[0].body.items() if name != "service"}
    client = rounds.pair[0].client
    jobs = [client.post("/v1/services/DSWAP", json=body, headers=ASYNC).json()["id"] for _ in range(4)]
    until("a job runs", lambda: any(rounds.column(job, "state") != "queued" for job in jobs))
    rounds.postgres.kill()
    away_until = time.monotonic() + 10
    try:
        while time.monotonic() < away_until:
            for replica in rounds.pair:
                assert replica.ready()["database"] == "not available"
                asked = time.monotonic()
                answer = replica.client.post("/v1/services/DSWAP", json=body, headers=ASYNC)
                assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
                assert replica.client.get(f"/v1/jobs/{jobs[0]}").status_code == 503
                assert int(answer.headers["retry-after"]) > 0
                assert time.monotonic() - asked < 5
            time.sleep(0.2)  # other tests run at the same time
    finally:
        rounds.postgres.start()
    for job in jobs:
        until("the job has ended", lambda job=job: rounds.column(job, "state") == "succeeded")  # type: ignore[misc]
        assert rounds.column(job, "destination_digest") == rounds.calls[0].digest
    for replica in rounds.pair:
        until("it is ready", lambda replica=replica: set(replica.ready().values()) == {"ok"})  # type: ignore[misc]


def test_a_replica_that_starts_before_its_database_waits_for_it(rounds: Rounds) -> None:
    starts_before(rounds.postgres.kill, rounds.pair[1], rounds.postgres.start)


def test_every_job_ends_once_and_right_whatever_dies(
    rounds: Rounds, capsys: pytest.CaptureFixture[str]
) -> None:
    """And when all is over, no file is there that nobody names."""
    began = time.monotonic()
    rounds.run_all(ROUNDS)
    seconds = time.monotonic() - began
    for replica in rounds.pair:
        until("the replica is up", lambda replica=replica: replica.up)  # type: ignore[misc]
        replica.end(signal.SIGTERM)
    rounds.pair[0].start()
    until("the replica is up", lambda: rounds.pair[0].up)
    assert rounds.files() == rounds.named()
    assert rounds.progress_files() == []
    assert not list((rounds.home / "scratch").glob("*"))
    with capsys.disabled():
        print(
            f"\n{sum(rounds.done.values())} rounds of faults in {seconds:.0f} s: {dict(rounds.done)}; "
            f"jobs met in {dict(rounds.moments)}, ended {dict(rounds.states)}"
        )
