"""The simulated statements do what the real ones do: the same calls in the same order on both databases."""

import inspect
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from app.callers import Caller
from app.job_kinds import own_runs
from app.store.sql import buffers, idempotency, jobs, replicas, usage, webhook_outbox
from app.store.sql.bindings import NamedBlob
from app.store.sql.db import Database
from app.store.sql.migration import migrate
from app.store.sql.models import Delivery, IdempotencyKey, Job, Queue, Replica
from app.store.sql.replicas import LeaseLost
from tests.conftest import DATABASES, settings_on
from tests.simulation import statements
from tests.simulation.database import Server, SimulatedDatabase
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.statements import STATEMENTS, Found, time_of
from tests.unit.app.store.stored_rows import buffer, job

CALLS = 700

OWN = Caller("anna")

IN_PROJECT = Caller("ben", project="census")

Pairs = list[tuple[Callable[..., Any], Any]]

NAMES = [f"{number:012x}" for number in range(3)]

BLOBS = [f"{number:020x}{NAMES[number % 3]}" for number in range(6)]

SHOWN = (
    "id", "owner", "state", "attempt", "crashes", "claimed_by", "ranked_at", "started_at", "finished_at",
    "source_blob", "destination_blob", "control_blob", "cancel_requested",
)  # fmt: skip


@pytest.mark.parametrize(
    "place", [f"{module}.{name}" for module in STATEMENTS for name in STATEMENTS[module]]
)
def test_a_statement_has_the_parameters_of_the_real_one(place: str) -> None:
    module, _, name = place.rpartition(".")
    real = inspect.signature(getattr(import_module(module), name))
    simulated = inspect.signature(STATEMENTS[module][name])
    assert [*simulated.parameters] == [*real.parameters]


def plain(value: Any) -> Any:
    """Return a result without what differs by construction: the classes of rows, the order of sets."""
    if isinstance(value, Job | Found) and hasattr(value, "row_count") and hasattr(value, "state"):
        return {name: getattr(value, name) for name in SHOWN}
    if isinstance(value, NamedBlob):
        return value.blob
    if hasattr(value, "expires_at"):
        return value.id if hasattr(value, "id") else value.resource
    if isinstance(value, usage.ActiveUsage):
        return (value.jobs, value.rows, value.bytes, value.own_turn, value.clock)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


class Both:
    """One database of each kind, and random calls of both."""

    def __init__(self, real: Database, seed: int) -> None:
        self.real = real
        self.random = random.Random(seed)
        self.scheduler = Scheduler(seed)
        self.simulated = SimulatedDatabase(Server(self.scheduler), Process("test"))
        self.jobs: list[str] = []
        self.buffers: list[str] = []
        self.deliveries = 0
        with real.write() as session:
            turn = session.query(Queue).one().turn
        self._server().tables["queue"][1] = {"turn": turn}

    def _server(self) -> Server:
        return self.simulated._server

    def now(self) -> datetime:
        return time_of(self.scheduler.now)

    def call(self, real: Callable[..., Any], simulated: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call both in a transaction of their own, and return what both have returned."""
        results = []
        for database, function in ((self.real, real), (self.simulated, simulated)):
            try:
                with database.write() as session:
                    results.append(plain(function(session, *args, **kwargs)))
            except LeaseLost:
                results.append("lease lost")
        assert results[1] == results[0], (real.__name__, args, kwargs)
        return results[0]

    def some_job(self) -> str:
        return self.random.choice(self.jobs or ["none"])

    def step(self) -> None:
        """Make one call."""
        self.scheduler.now += self.random.choice((0.0, 0.5, 3.0))
        name = self.random.choice([name for name in dir(self) if name.startswith("do_")])
        getattr(self, name)()

    # Each of these makes one call.

    def do_insert(self) -> None:
        random = self.random
        job_id = f"job-{len(self.jobs):04d}"
        state = random.choice(("queued", "queued", "queued", "running", "succeeded"))
        values: dict[str, Any] = {"finished_at": self.now()} if state == "succeeded" else {}
        if state == "running":
            values |= {"claimed_by": random.choice(NAMES), "attempt": 1, "started_at": self.now()}
        new = job(
            id=job_id,
            owner=random.choice(("anna", "ben")),
            project=random.choice((None, "census")),
            state=state,
            service=random.choice(("DSWAP", "DSWAP", "GONE")),
            priority=random.choice(("normal", "high")),
            ranked_at=time_of(random.randrange(1000) / 10),
            created_at=self.now(),
            deadline=random.choice((None, self.now() + timedelta(seconds=5))),
            source_blob=random.choice((None, *BLOBS)),
            destination_blob=random.choice((None, None, *BLOBS)),
            source_buffer=random.choice((None, *self.buffers)),
            sealed_source=random.choice((None, b"rows")),
            **values,
        )
        self.jobs.append(job_id)
        self.call(jobs.insert, statements.insert, new)

    def do_find(self) -> None:
        caller = self.random.choice((OWN, IN_PROJECT))
        self.call(jobs.find, statements.find, self.some_job(), caller=caller)

    def do_claim(self) -> None:
        until = self.random.choice((None, time_of(self.random.randrange(100))))
        name = self.random.choice(NAMES)
        self.call(jobs.claim_first, statements.claim_first, name, self.now(), until_turn=until)

    def do_advance(self) -> None:
        self.call(jobs.advance, statements.advance, time_of(self.random.randrange(120)))

    def do_look(self) -> None:
        random = self.random
        for real, simulated, args in random.sample(
            [
                (jobs.any_queued, statements.any_queued, ()),
                (jobs.claimed, statements.claimed, (random.choice(NAMES),)),
                (jobs.to_cancel, statements.to_cancel, (random.choice(NAMES),)),
                (jobs.claims_and_ends, statements.claims_and_ends, (self.jobs[-5:],)),
                (jobs.running, statements.running, ()),
                (jobs.overdue, statements.overdue, (self.now(),)),
                (jobs.all_named, statements.all_named, ()),
                (jobs.queued_for_nobody, statements.queued_for_nobody, ([own_runs()],)),
                (replicas.alive, statements.alive, ()),
                (replicas.living_runs, statements.living_runs, ()),
                (replicas.jobs_without_lease, statements.jobs_without_lease, ()),
                (replicas.stalled_jobs, statements.stalled_jobs, ()),
                (usage.active, statements.active, ("anna", "normal")),
            ],
            3,
        ):
            ordered: Callable[..., Any] = lambda function: (  # noqa: E731
                lambda session, *given: _sorted(function(session, *given))
            )
            self.call(ordered(real), ordered(simulated), *args)
        name = random.choice(NAMES)
        news = self.real, self.simulated
        self.call(lambda _: jobs.any_news(news[0], name), lambda _: statements.any_news(news[1], name))

    def do_move(self) -> None:
        random = self.random
        target = random.choice(("queued", "succeeded", "failed"))
        finished = None if target == "queued" else self.now()
        self.call(
            jobs.move, statements.move, self.some_job(), random.choice((["running"], ["queued", "running"])),
            target, random.choice((None, 0, 1, 2)), finished_at=finished, claimed_by=None,
        )  # fmt: skip

    def do_request_cancel(self) -> None:
        self.call(jobs.request_cancel, statements.request_cancel, self.some_job())

    def do_delete(self) -> None:
        self.call(jobs.delete_ended, statements.delete_ended, self.some_job())

    def do_retain(self) -> None:
        caller = self.random.choice((OWN, IN_PROJECT))
        role: Any = self.random.choice(("source", "destination"))
        given = Job(id=self.some_job(), source_buffer=self.random.choice((None, *self.buffers)))
        self.call(jobs.retained, statements.retained, role, given, self.now(), caller)
        self.call(jobs.retained_table, statements.retained_table, role, given.id)
        self.call(jobs.sealed_webhook, statements.sealed_webhook, given.id)

    def do_purge(self) -> None:
        before = self.now() - timedelta(seconds=self.random.randrange(60))
        most = self.random.choice((1, 3, 50))
        if most < 50:  # which of several rows of one time goes first is open
            before = self.now() - timedelta(days=1)
        if self.random.random() < 0.5:
            since = self.random.choice((jobs.LONG_AGO, before - timedelta(seconds=20)))
            self.call(jobs.release_old, statements.release_old, before, most, since)
        else:
            self.call(jobs.delete_old, statements.delete_old, before, most)

    def do_unnamed(self) -> None:
        self.call(jobs.unnamed, statements.unnamed, self.random.sample([None, *BLOBS], 3))

    def do_replica(self) -> None:
        random = self.random
        name = random.choice(NAMES)
        match random.choice(("register", "renew", "renew", "hold", "hold", "remove", "expire")):
            case "register" if self.call(replicas.alive, statements.alive).isdisjoint({name}):
                for database, module in ((self.real, replicas), (self.simulated, statements)):
                    runs = own_runs().document()
                    new = Replica(id=name, key_id="key", folder_id="folder", runs=runs)
                    with database.write() as session:
                        module.register(session, new, 10.0, {"key"})
            case "renew":
                self.call(replicas.renew, statements.renew, name, 10.0)
            case "hold":
                self.call(replicas.hold, statements.hold, random.sample(NAMES, random.randrange(3)))
            case "remove":
                self.call(replicas.remove, statements.remove, name)
            case "expire":
                self.call(_as_set(replicas.remove_expired), _as_set(statements.remove_expired), name)

    def do_buffer(self) -> None:
        random = self.random
        match random.choice(("add", "find", "lend", "purge")):
            case "add":
                name = f"buffer-{len(self.buffers):04d}"
                self.buffers.append(name)
                made = buffer(
                    id=name, owner=random.choice(("anna", "ben")), project=random.choice((None, "census")),
                    blob=random.choice(BLOBS), expires_at=time_of(self.scheduler.now + random.randrange(60)),
                )  # fmt: skip
                row = {column.name: getattr(made, column.name) for column in made.__table__.columns}
                self._server().tables["buffers"][name] = row
                with self.real.write() as session:
                    session.add(made)
            case "find" | "lend" as what:
                name = random.choice(self.buffers or ["none"])
                caller = random.choice((OWN, IN_PROJECT))
                simulated = statements.find_buffer if what == "find" else statements.lend
                self.call(getattr(buffers, what), simulated, name, self.now(), caller)
            case "purge":
                real, simulated = buffers.delete_expired, statements.delete_expired_buffers
                self.call(_sorted_ids(real), _sorted_ids(simulated), self.now(), 100)

    def do_caller(self) -> None:
        owner = self.random.choice(("anna", "ben"))
        self.call(usage.lock, statements.lock_usage, owner, self.now())
        if self.random.random() < 0.3:
            before = self.now() - timedelta(seconds=20)
            self.call(usage.forget_unseen, statements.forget_unseen, before, 10)

    def do_key(self) -> None:
        random = self.random
        owner, name = random.choice(("anna", "ben")), random.choice(("k1", "k2"))
        match random.choice(("find", "keep", "forget", "purge")):
            case "find":
                self.call(idempotency.find, statements.find_key, owner, name, self.now())
            case "keep":
                expires = self.now() + timedelta(seconds=random.randrange(30))
                resource = self.some_job()
                pairs: Pairs = [(idempotency.keep, self.real), (statements.keep_key, self.simulated)]
                for function, database in pairs:
                    key = IdempotencyKey(
                        owner=owner, key=name, fingerprint="f", resource=resource, expires_at=expires
                    )
                    with database.write() as session:
                        function(session, key)
            case "forget":
                self.call(idempotency.forget, statements.forget_keys, [self.some_job()])
            case "purge":
                self.call(idempotency.delete_expired, statements.delete_expired_keys, self.now(), 10)

    def do_message(self) -> None:
        self.deliveries += 1
        pairs: Pairs = [(webhook_outbox.insert, self.real), (statements.insert_message, self.simulated)]
        for function, database in pairs:
            message = Delivery(
                id=f"message-{self.deliveries}", job_id="job", body="{}", state="pending",
                due_at=self.now(),
            )  # fmt: skip
            with database.write() as session:
                function(session, message)
        self.call(webhook_outbox.delete_old, statements.delete_old_messages, self.now(), 5)

    def compare(self) -> None:
        """Compare all rows."""
        with self.real.read() as session:
            rows = {row.id: plain(row) for row in session.query(Job)}
            turn = session.query(Queue).one().turn
        tables = self._server().tables
        assert {key: plain(Found(row)) for key, row in tables["jobs"].items()} == rows
        assert tables["queue"][1]["turn"] == turn


def _sorted(value: Any) -> Any:
    """Sort a list whose order is open."""
    if not isinstance(value, list | tuple):
        return value
    return sorted(value, key=lambda row: row if isinstance(row, str) else str(getattr(row, "id", row)))


def _as_set(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: set(function(*args))


def _sorted_ids(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        ids, blobs = function(*args)
        return sorted(ids), blobs

    return run


@pytest.fixture(params=DATABASES)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    settings = settings_on(request.param, request, tmp_path)
    migrate(settings)
    database = Database(settings)
    yield database
    database.close()


def test_both_databases_answer_alike(real: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(real, seed=1)
    monkeypatch.setattr("app.store.sql.replicas.moment", lambda session: both.now())
    for number in range(CALLS):
        both.step()
        if number % 50 == 0:
            both.compare()
    both.compare()
    assert len(both.jobs) > 20
