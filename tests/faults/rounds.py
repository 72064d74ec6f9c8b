"""Rounds of faults: jobs are submitted, something breaks at a random moment, and every job must end well.

A round draws all that is random in it from its own number, so that one that failed can be repeated.
What the service did is read from the database, whose trigger writes down every end of a job.
"""

import contextlib
import errno
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg

from tests.faults.replicas import GRACE_SECONDS, LEASE_SECONDS, PATIENCE, Replica, cancel, until
from tests.faults.running import wait_until_gone
from tests.postgres import Postgres

SEED = 20_261_121
MOST_JOBS = 3
_DRAIN_SECONDS = 60.0
"""Seconds beyond its grace period that a service may need to stop on a busy machine."""

_WRITE_DOWN_ENDS = """
CREATE TABLE ends (job text NOT NULL, state text NOT NULL);
CREATE FUNCTION write_down_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.finished_at IS NOT NULL AND (OLD.finished_at IS NULL OR OLD.state <> NEW.state) THEN
        INSERT INTO ends VALUES (NEW.id, NEW.state);
    END IF;
    RETURN NEW;
END$$;
CREATE TRIGGER ends AFTER UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION write_down_end();
"""


@dataclass(frozen=True)
class Call:
    """A job to be submitted, and the digest that an undisturbed run of it gave."""

    body: dict[str, Any]
    digest: str


@dataclass
class Rounds:
    """The service under attack."""

    pair: list[Replica]
    postgres: Postgres
    database: str
    home: Path
    shares: dict[str, int] = field(default_factory=lambda: SHARES)
    calls: list[Call] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    """Rounds by fault."""
    states: Counter[str] = field(default_factory=Counter)
    """Ends by state."""
    moments: Counter[str] = field(default_factory=Counter)
    """States of the jobs at the time of the fault."""
    _connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def prepare(self) -> None:
        """Learn what undisturbed runs give, and have ends written down."""
        client = self.pair[0].client
        random_ = random.Random(SEED)
        rows = 150_000
        table = "income,city\n" + "".join(f"{random_.randrange(10**6)},{row % 50}\n" for row in range(rows))
        buffer = client.post("/v1/buffers", content=table, headers={"content-type": "text/csv"})
        assert buffer.status_code == 201, buffer.text
        inline = [{"income": random_.randrange(1000), "city": str(row % 5)} for row in range(300)]
        sources: list[dict[str, Any]] = [{"buffer": buffer.json()["id"]}, {"rows": inline}]
        for source in sources:
            for service, more in (("DSWAP", {"rate": 0.5}), ("CDSWAP", {"control_field": "city"})):
                body = {
                    "source": source,
                    "parameters": {"swap_fields": ["income"]} | more,
                    "seed": f"{len(self.calls) + 1:x}",
                }
                answer = client.post(f"/v1/services/{service}", json=body, headers={"prefer": "wait=60"})
                assert answer.json()["state"] == "succeeded", answer.text
                digest = answer.json()["destination"]["digest"]
                self.calls.append(Call(body | {"service": service}, digest))
        self.write_down_ends()

    def run_all(self, rounds: int) -> None:
        """Run rounds; the error of one that fails names it."""
        for number in range(rounds):
            try:
                self.run(number)
            except BaseException as error:
                error.add_note(f"round {number} failed after {dict(self.done)}")
                raise

    def run(self, number: int) -> None:
        """One round."""
        draw = random.Random(SEED + number)
        faults = [name for name, share in self.shares.items() for _ in range(share)]
        name = draw.choice(faults)
        if name in ("kill_service", "terminate_service"):
            until("both replicas are up", lambda: all(replica.up for replica in self.pair))
        submitted = {}
        for index in range(draw.randint(1, MOST_JOBS)):
            call = draw.choice(self.calls)
            submitted[self._accepted(call, f"round-{number}-{index}", draw)] = call
        time.sleep(draw.uniform(0.0, 0.15))
        self.moments.update(self._states(submitted))
        allowed = getattr(self, f"_{name}")(draw, list(submitted))
        for job, call in submitted.items():
            self._check(job, call, allowed)
        self._nothing_named_is_missing()
        self.done[name] += 1

    # ------------------------------------------------------------------------------------- the faults

    def _kill_service(self, draw: random.Random, _: list[str]) -> set[str]:
        replica = self._any(draw)
        replica.end(signal.SIGKILL)
        replica.start()
        return set()

    def _terminate_service(self, draw: random.Random, _: list[str]) -> set[str]:
        replica = self._any(draw)
        assert replica.end(signal.SIGTERM) < GRACE_SECONDS + _DRAIN_SECONDS
        replica.start()
        return set()

    def _kill_worker(self, draw: random.Random, _: list[str]) -> set[str]:
        """Until they are gone: a job of the next round may be given to one that is about to end."""
        killed = self._any(draw).workers()
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in killed:
            wait_until_gone(pid)
        return {"worker_died"}

    def _freeze_service(self, draw: random.Random, _: list[str]) -> set[str]:
        """For less than its lease, or for more."""
        replica = self._any(draw)
        replica.send(signal.SIGSTOP)
        time.sleep(draw.choice([0.2, 0.5, LEASE_SECONDS * 1.5]))
        replica.send(signal.SIGCONT)
        return set()

    def _break_connections(self, draw: random.Random, _: list[str]) -> set[str]:
        """Several times, at any point of a transaction."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            for _turn in range(draw.randint(1, 5)):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'rowveil'"
                )
                time.sleep(draw.uniform(0.0, 0.1))
        return set()

    def _kill_database(self, draw: random.Random, _: list[str]) -> set[str]:
        self.postgres.kill()
        try:
            for replica in self.pair:
                if replica.up:
                    assert replica.ready()["database"] == "not available"
                    answer = replica.client.get("/v1/jobs")
                    assert (answer.status_code, "retry-after" in answer.headers) == (503, True), answer.text
            time.sleep(draw.uniform(0.0, 0.5))
        finally:
            self.postgres.start()
        return set()

    def _fill_disk(self, draw: random.Random, _: list[str]) -> set[str]:
        return self._fail_blobs(draw, errno.ENOSPC) | {"storage_full"}

    def _break_disk(self, draw: random.Random, _: list[str]) -> set[str]:
        return self._fail_blobs(draw, errno.EIO) | {"internal_error"}

    def _fail_blobs(self, draw: random.Random, error: int) -> set[str]:
        replica = self._any(draw)
        replica.fail(error, spared=draw.randint(0, 3))
        # What is sent meanwhile is refused, or accepted and then done; it is not lost half-way.
        call = draw.choice(self.calls)
        answer = self._post(replica, call, {"prefer": "respond-async"})
        if answer.status_code not in (200, 202):
            assert answer.json()["code"] in ("storage_full", "unavailable"), answer.text
        replica.fail(error)
        if error == errno.ENOSPC:  # other failures show in a write only, and readiness writes nothing
            assert replica.ready()["storage"] == "not available"
        time.sleep(draw.uniform(0.0, 0.2))
        replica.fail()
        assert replica.ready()["storage"] == "ok"
        return set()

    def _make_clock_jump(self, draw: random.Random, _: list[str]) -> set[str]:
        """There and back, by seconds or by weeks, while a job is submitted in between."""
        replica = self._any(draw)
        seconds = draw.choice([1, 60, 3600, 30 * 24 * 3600]) * draw.choice([-1, 1])
        replica.fail(clock_seconds=seconds)
        call = draw.choice(self.calls)
        answer = self._post(replica, call, {"prefer": "wait=10"})
        assert answer.status_code in (200, 202), answer.text
        replica.fail()
        if answer.json()["state"] == "succeeded":
            assert answer.json()["destination"]["digest"] == call.digest
        return set()

    def _cancel(self, draw: random.Random, jobs: list[str]) -> set[str]:
        """At whichever replica, wherever the job runs."""
        job = draw.choice(jobs)
        answer = cancel(self._any(draw).client, job)
        if answer.status_code == 200:
            assert answer.json()["state"] == "cancelled"
        else:
            assert answer.status_code == 409, answer.text
        return {"cancelled"}

    # ------------------------------------------------------------------------------------- the rest

    def _any(self, draw: random.Random) -> Replica:
        until("a replica is up", lambda: any(replica.up for replica in self.pair))
        return draw.choice([replica for replica in self.pair if replica.up])

    def _post(self, replica: Replica, call: Call, headers: dict[str, str]) -> httpx.Response:
        body = {name: value for name, value in call.body.items() if name != "service"}
        return replica.client.post(f"/v1/services/{call.body['service']}", json=body, headers=headers)

    def _accepted(self, call: Call, key: str, draw: random.Random) -> str:
        """The job's id; who gets no answer asks again, under the same key, as a client would."""
        headers = {"prefer": "respond-async", "idempotency-key": key}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                answer = self._post(self._any(draw), call, headers)
                if answer.status_code in (200, 202):
                    return str(answer.json()["id"])
                assert answer.status_code == 503, answer.text
            time.sleep(0.05)
        raise AssertionError("no replica accepted the job")

    def _states(self, jobs: Any) -> list[str]:
        return [self.column(job, "state") for job in jobs]

    def _check(self, job: str, call: Call, allowed: set[str]) -> None:
        """It has ended once, in a way that the fault allows, and with the right bytes if it succeeded."""
        until(f"job {job} has ended", lambda: self.column(job, "finished_at") is not None)
        query = "SELECT state, destination_digest, error->>'code' FROM jobs WHERE id = %s"
        ((state, digest, code),) = self.query(query, job) or [("lost", None, None)]
        times = self.query("SELECT count(*) FROM ends WHERE job = %s", job)
        assert times == [(1,)], f"job {job} ended {times} times"
        assert state == "succeeded" or (code or state) in allowed, (
            job,
            state,
            code,
            self.column(job, "error"),
        )
        if state == "succeeded":
            assert digest == call.digest
        self.states[state] += 1

    def _nothing_named_is_missing(self) -> None:
        missing = self.named() - self.files()
        assert not missing & self.named()  # asked again: it may have been let go between the two

    def column(self, job: str, name: str) -> Any:
        """Return a column of the job's row."""
        (row,) = self.query(f"SELECT {name} FROM jobs WHERE id = %s", job) or [(None,)]
        return row[0]

    def named(self) -> set[str]:
        """Every blob that a row names."""
        queries = (
            "SELECT source_blob FROM jobs",
            "SELECT destination_blob FROM jobs",
            "SELECT blob FROM buffers",
        )
        return {blob for query in queries for (blob,) in self.query(query) if blob is not None}

    def write_down_ends(self) -> None:
        """Have the database write down every end of a job."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(_WRITE_DOWN_ENDS)

    def query(self, text: LiteralString, *parameters: str) -> list[tuple[Any, ...]]:
        """Return what the database answers now."""
        with contextlib.suppress(psycopg.OperationalError):
            return self._looked_up(text, parameters)
        self._connection = None  # the server has been killed since
        return self._looked_up(text, parameters)

    def _looked_up(self, text: LiteralString, parameters: tuple[str, ...]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(self.database, autocommit=True)
        return self._connection.execute(text, parameters).fetchall()

    def close(self) -> None:
        """Close the connection to the database."""
        if self._connection is not None:
            self._connection.close()

    def files(self) -> set[str]:
        """Every file of a blob."""
        return {path.name for path in (self.home / "blobs").glob("??/*")}

    def progress_files(self) -> list[Path]:
        """Return every progress file."""
        return list((self.home / "progress").glob("*"))


SHARES: dict[str, int] = {
    "kill_service": 2,
    "terminate_service": 1,
    "kill_worker": 2,
    "freeze_service": 2,
    "break_connections": 4,
    "kill_database": 4,
    "fill_disk": 4,
    "break_disk": 3,
    "make_clock_jump": 3,
    "cancel": 3,
}
"""Relative frequency of each fault; faults that cost the start of a process are rarer."""
