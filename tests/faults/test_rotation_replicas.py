"""The steps of docs/keys.md change the master key of two replicas, one restart at a time, under load."""

import base64
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import httpx
import psycopg
import pytest

from app.__main__ import main
from tests.faults.replicas import Replica, started, until
from tests.postgres import Postgres

pytestmark = pytest.mark.faults

OLD, NEW = (base64.b64encode(bytes(range(first, first + 32))).decode() for first in (0, 1))
ROWS = [{"income": income, "city": f"City-{income % 7}"} for income in range(200)]
CALL = {"source": {"rows": ROWS}, "parameters": {"swap_fields": ["income"]}, "retain_source": True}


def submit_until(done: Event, replica: Replica) -> list[str]:
    """Submit a job after the other while the replica answers; return the ids of those that it accepted."""
    accepted = []
    while not done.is_set():
        try:
            answer = replica.client.post("/v1/services/DSWAP", json=CALL, headers={"prefer": "respond-async"})
        except (httpx.TransportError, RuntimeError):  # it restarts
            done.wait(0.05)
            continue
        if answer.is_success:
            accepted.append(answer.json()["id"])
        else:
            assert answer.status_code == 503, answer.text
        done.wait(0.5)
    return accepted


def test_no_job_is_lost_and_the_old_key_opens_nothing_more(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables of one replica are files, and those of the other are in rows."""
    database, home = postgres.new_database(), tmp_path / "home"
    pair = [Replica(name, home, database, None) for name in ("one", "two")]

    def use(*keys: str) -> None:
        for replica in pair:
            replica.environment["ROWVEIL_KEY"] = ",".join(keys)

    def restart(*keys: str) -> None:
        use(*keys)
        for replica in pair:
            replica.end(signal.SIGTERM)
            replica.start()
            until("it is up", lambda replica=replica: replica.up)  # type: ignore[misc]

    use(OLD)
    with started(pair), ThreadPoolExecutor() as threads:
        done = Event()
        submitting = [threads.submit(submit_until, done, replica) for replica in pair]
        try:
            restart(OLD, NEW)
            restart(NEW, OLD)
            settings = {"HOME": str(home), "DATABASE_URL": database, "KEY": f"{NEW},{OLD}"}
            for name, value in settings.items():
                monkeypatch.setenv(f"ROWVEIL_{name}", value)
            assert main(["rotate-keys"]) == 0, capsys.readouterr().err
            restart(NEW)
        finally:
            done.set()
        jobs = [job for each in submitting for job in each.result()]
        client = pair[0].client

        def ended() -> bool:
            with psycopg.connect(database) as opened:
                query = "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')"
                return opened.execute(query).fetchone() == (0,)

        until("all jobs have ended", ended)
        for job in jobs:
            found = client.get(f"/v1/jobs/{job}").json()
            assert found["state"] == "succeeded", found
            assert len(client.get(f"/v1/jobs/{job}/rows").raise_for_status().json()["rows"]) == len(ROWS)
        for job in (jobs[0], jobs[-1]):
            again = client.post(f"/v1/jobs/{job}/rerun", json={}, headers={"prefer": "wait=60"})
            assert again.json()["reproduced"], again.text
    monkeypatch.setenv("ROWVEIL_KEY", NEW)
    assert main(["audit", "verify"]) == 0, capsys.readouterr().err
