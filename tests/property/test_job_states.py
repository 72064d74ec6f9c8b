"""A job's life in the database, step by step against a model that is a few dictionaries."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.jobs.states import State, Step, after, outcome_of, sources
from app.settings import Settings
from app.store.sql import idempotency, jobs, replicas
from app.store.sql import usage as callers
from app.store.sql.db import Database, Transaction
from app.store.sql.migration import migrate
from app.store.sql.models import Base, IdempotencyKey, Job, Replica
from tests.conftest import DATABASES, settings_on
from tests.unit.app.store.stored_rows import NOW, job

KEYS = {"key"}
OWNER = "ada"


@dataclass
class Known:
    """Conditions that hold for every job."""

    state: State = State.QUEUED
    attempt: int = 0
    crashes: int = 0
    holder: str | None = None
    cancel: bool = False
    blob: str | None = None
    key: str | None = None


class JobLife(RuleBasedStateMachine):
    """Replicas come, claim, end, are late, and lose their leases; callers submit, cancel and delete."""

    database: Database
    replicas_: Bundle[str] = Bundle("replicas_")
    claims: Bundle[tuple[str, int]] = Bundle("claims")
    ids: Bundle[str] = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, Known] = {}
        self.alive: set[str] = set()
        self.made = 0

    @initialize(target=ids)
    def begin(self) -> Any:
        """With a replica, and two jobs that share a blob."""
        with self.database.write() as session:
            session.execute(sa.delete(Job))
            session.execute(sa.delete(Replica))
            session.execute(sa.delete(IdempotencyKey))
        self.come()
        return multiple(*(self.submit_new(None, "x" * 32) for _ in range(2)))

    # ------------------------------------------------------------------------------- what callers do

    @rule(target=ids, key=st.none() | st.sampled_from("kl"), blob=st.sampled_from("xyz"))
    def submit(self, key: str | None, blob: str) -> Any:
        """Blobs are shared, as by reruns; a key that is taken makes no second job."""
        if key is not None:
            taken = {known.key: job_id for job_id, known in self.jobs.items()}
            with self.database.read() as session:
                found = idempotency.find(session, OWNER, key, NOW)
            assert (found.resource if found is not None else None) == taken.get(key)
            if found is not None:
                return multiple()
        return self.submit_new(key, blob * 32)

    @rule(job_id=ids)
    def cancel_queued(self, job_id: str) -> None:
        known = self.jobs.get(job_id)
        with self.database.write() as session:
            moved = self.move(session, job_id, [State.QUEUED], Step.CANCEL, known.attempt if known else 0)
        assert moved == (known is not None and known.state is State.QUEUED)
        if known is not None and moved:
            known.state, known.blob = State.CANCELLED, None

    @rule(job_id=ids)
    def ask_to_cancel(self, job_id: str) -> None:
        with self.database.write() as session:
            jobs.request_cancel(session, job_id)
        known = self.jobs.get(job_id)
        if known is not None and known.state is State.RUNNING:
            known.cancel = True

    @rule(job_id=ids)
    def delete(self, job_id: str) -> None:
        known = self.jobs.get(job_id)
        with self.database.write() as session:
            deleted = jobs.delete_ended(session, job_id)
            if deleted:
                idempotency.forget(session, [job_id])
            free = jobs.unnamed(session, [known.blob] if known is not None and deleted else [])
        assert deleted == (known is not None and known.state.ended)
        if deleted:
            gone = self.jobs.pop(job_id)
            self.check_free(gone.blob, free)

    # ------------------------------------------------------------------------------ what replicas do

    @rule(target=replicas_)
    def come(self) -> str:
        self.made += 1
        name = f"{self.made:012x}"
        with self.database.write() as session:
            replicas.register(session, Replica(id=name, key_id="key", folder_id="folder"), 60, KEYS)
        self.alive.add(name)
        return name

    @precondition(lambda self: self.alive)
    @rule(target=claims, data=st.data())
    def claim(self, data: st.DataObject) -> Any:
        """The oldest first."""
        replica = data.draw(st.sampled_from(sorted(self.alive)))
        with self.database.write() as session:
            replicas.hold(session, [replica])
            row = jobs.claim_first(session, replica, NOW)
        queued = sorted(job_id for job_id, known in self.jobs.items() if known.state is State.QUEUED)
        if not queued:
            assert row is None
            return multiple()
        assert row is not None
        assert row.id == queued[0]
        known = self.jobs[row.id]
        known.state, known.attempt, known.holder = State.RUNNING, known.attempt + 1, replica
        assert (row.attempt, row.cancel_requested) == (known.attempt, known.cancel)
        return (row.id, row.attempt)

    @rule(replica=replicas_)
    def renew_or_be_refused(self, replica: str) -> None:
        """A replica whose lease expired can neither renew it nor claim a job."""
        alive = replica in self.alive
        with self.database.write() as session:
            assert replicas.renew(session, replica, 60) == alive
        with contextlib.nullcontext() if alive else pytest.raises(replicas.LeaseLost):  # noqa: SIM117
            with self.database.write() as session:
                replicas.hold(session, [replica])

    @rule(claim=claims, step=st.sampled_from([Step.SUCCEED, Step.FAIL, Step.CANCEL, Step.REQUEUE]))
    def record(self, claim: tuple[str, int], step: Step) -> None:
        """An end, or a way back into the queue, counts for the claim that holds the job, and once.

        A run is cancelled at its caller's request only: it ends the job also if this is in the queue again.
        """
        job_id, attempt = claim
        known = self.jobs.get(job_id)
        holds = known is not None and known.state in sources(step) and known.attempt == attempt
        with self.database.write() as session:
            moved = self.move(session, job_id, sources(step), step, attempt)
            free = jobs.unnamed(session, [known.blob] if known and moved and step is not Step.REQUEUE else [])
        assert moved == holds
        if known is not None and moved:
            self.step(known, step, free)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), late=st.booleans())
    def go(self, data: st.DataObject, late: bool) -> None:
        """Its lease runs out, and another one finds it; or it ends it itself."""
        gone = data.draw(st.sampled_from(sorted(self.alive)))
        with self.database.write() as session:
            if late:
                session.execute(sa.update(Replica).where(Replica.id == gone).values(lease_until=NOW))
                assert replicas.remove_expired(session, "another") == [gone]
            else:
                replicas.remove(session, gone)
        self.alive.discard(gone)

    @rule()
    def take_up_stalled(self) -> None:
        expected = sorted(
            job_id
            for job_id, known in self.jobs.items()
            if known.state is State.RUNNING and known.holder not in self.alive
        )
        with self.database.write() as session:
            found = replicas.stalled_jobs(session)
            assert [row.id for row in found] == expected
            for row in found:
                values = {"crashes": row.crashes + 1, "claimed_by": None}
                step = Step.CANCEL if row.cancel_requested else Step.REQUEUE
                assert self.move(session, row.id, sources(step), step, row.attempt, **values)
        for job_id in expected:
            known = self.jobs[job_id]
            known.crashes += 1
            self.step(known, Step.CANCEL if known.cancel else Step.REQUEUE)

    # ----------------------------------------------------------------------------- what always holds

    @invariant()
    def the_rows_are_as_known(self) -> None:
        with self.database.read() as session:
            rows = {row.id: row for row in session.scalars(sa.select(Job))}
            alive = replicas.alive(session)
            wanted = {name: set(jobs.to_cancel(session, name)) for name in alive}
            named = jobs.all_named(session)
            queued = jobs.any_queued(session)
            standing = jobs.claims_and_ends(session, list(rows))
        assert alive == self.alive
        assert {
            job_id: (row.state, row.attempt, row.crashes, row.cancel_requested, row.source_blob)
            for job_id, row in rows.items()
        } == {
            job_id: (known.state, known.attempt, known.crashes, known.cancel, known.blob)
            for job_id, known in self.jobs.items()
        }
        assert standing == {job_id: (known.attempt, known.state.ended) for job_id, known in self.jobs.items()}
        assert queued == any(known.state is State.QUEUED for known in self.jobs.values())
        assert named == {known.blob for known in self.jobs.values()} - {None}
        for name, to_cancel in wanted.items():
            assert to_cancel == {
                job_id
                for job_id, known in self.jobs.items()
                if known.cancel and known.holder == name and known.state is State.RUNNING
            }

    # ----------------------------------------------------------------------------------- the rest

    def submit_new(self, key: str | None, blob: str) -> str:
        row = job(owner=OWNER, source_blob=blob)
        with self.database.write() as session:
            callers.lock(session, OWNER, NOW)
            jobs.insert(session, row)
            if key is not None:
                later = NOW + timedelta(days=1)
                made = IdempotencyKey(
                    owner=OWNER, key=key, fingerprint="f", resource=row.id, expires_at=later
                )
                idempotency.keep(session, made)
        self.jobs[row.id] = Known(blob=blob, key=key)
        return row.id

    def move(
        self, session: Transaction, job_id: str, states: Any, step: Step, attempt: int, **values: Any
    ) -> bool:
        target = after(State.QUEUED if list(states) == [State.QUEUED] else State.RUNNING, step)
        if target.ended:
            values |= {"finished_at": NOW, "outcome": outcome_of(target, {}), "source_blob": None}
        else:
            values |= {"claimed_by": None}
        return jobs.move(session, job_id, states, target, attempt, **values)

    def step(self, known: Known, step: Step, free: list[str] | None = None) -> None:
        known.state = after(State.RUNNING, step)
        if step is Step.REQUEUE:
            known.holder = None
            return
        blob, known.blob = known.blob, None
        if free is not None:
            self.check_free(blob, free)

    def check_free(self, blob: str | None, free: list[str]) -> None:
        """A blob is free when its last name has gone, and not before."""
        named = {known.blob for known in self.jobs.values()}
        assert free == ([] if blob is None or blob in named else [blob])


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with TemporaryDirectory() as folder:
        chosen: Settings = settings_on(request.param, request, Path(folder))
        migrate(chosen)
        database = Database(chosen)
        yield database
        database.close()


@pytest.mark.slow
def test_a_jobs_life_is_what_the_model_says(database: Database) -> None:
    """Whatever callers and replicas do, in whatever order."""
    assert set(Base.metadata.tables) >= {"jobs", "replicas"}

    class OnThisDatabase(JobLife):
        pass

    OnThisDatabase.database = database
    run_state_machine_as_test(
        OnThisDatabase, settings=settings(max_examples=30, stateful_step_count=40, deadline=None)
    )
