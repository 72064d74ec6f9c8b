"""One schedule: replicas, callers and faults, drawn from a seed, and what must hold whatever happens."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from app.errors import AppError, Unavailable
from app.jobs.requests import NewJob, StoredTable, SubmissionOptions
from app.jobs.task_builder import KeptWorker
from app.store.sql.models import Job
from app.webhooks.messages import Webhook
from tests.simulation.database import Row, Server
from tests.simulation.modules import BLOB_ROWS, running
from tests.simulation.replica import CALLER, LEASE_SECONDS, Replica
from tests.simulation.scheduler import Scheduler
from tests.simulation.statements import time_of
from tests.simulation.storage import Folder, write

_BUSY_SECONDS = 8.0
"""Virtual time in which callers act and faults happen."""

_PATIENCE_SECONDS = 150.0
"""Virtual time after the last fault within which every job must have ended."""

_CALL_SECONDS = 0.04
"""Mean time from the begin of a call to a fault that falls into it."""

_SLOWEST_SECONDS = 8.0
"""Longest time that one operation of the folder takes."""

_TABLE = pa.table({"a": [1]})

_PARAMETERS: Any = SimpleNamespace(model_dump=lambda mode, by_alias: {})

_ENDED = ("succeeded", "failed", "cancelled")

_DAY = 86_400.0

_LONG_AGO = time_of(-50 * _DAY)
"""Jobs that ended before it are due for deletion."""


class Violation(AssertionError):
    """Something that must hold did not."""


@dataclass
class Submission:
    """A caller's request, which it repeats until it is answered."""

    name: str
    stored: str
    key: str | None
    options: SubmissionOptions
    retain: bool
    accepted: list[str] = field(default_factory=list)
    """Ids of the jobs that answers named."""


class World:
    """Everything of one schedule."""

    def __init__(self, seed: int, due: float = 0.02, faults: Sequence[str] = ()) -> None:
        """Draw a schedule.

        Parameters
        ----------
        seed
            Seed of all that is drawn.
        due
            Probability that many jobs are due for deletion at the start.
        faults
            Names of the faults to draw from; empty: all.
        """
        self._due = due
        self._drawn_faults = [fault for fault in self._faults if not faults or fault.__name__ in faults]
        self.scheduler = scheduler = Scheduler(seed)
        self.random = scheduler.random
        self.server = Server(scheduler)
        self.folder = Folder(scheduler)
        self.replicas: list[Replica] = []
        self.kills = 0
        self.trace = hashlib.sha256()
        self.submissions: list[Submission] = []
        self.deleted: set[str] = set()
        self.violations: list[str] = []
        self.on_fault: Callable[[str], None] = lambda name: None
        self._settling = False
        self._moments: list[float] = []
        self._quiet_from = 0.0
        self._calls: list[tuple[Replica, asyncio.Task[None]]] = []
        self._jobs = 0
        self._excused_until = 0.0
        self._last: dict[str, Row | None] = {}
        self._buffer_blobs: dict[str, str] = {}
        self._ends: Counter[str] = Counter()
        self._messages: Counter[str] = Counter()
        self._keys: dict[str, set[str]] = {}
        self._leases: dict[str, Replica] = {}
        self._named: Counter[str] = Counter()
        self._trash_days = self.random.choice((0, 0, 7))
        self.server.on_commit.append(self._committed)
        self.folder.on_gone.append(self._gone)

    # ------------------------------------------------------------------------------------- what must hold

    def _violated(self, text: str) -> None:
        self.violations.append(f"{self.scheduler.now:.3f}: {text}")

    def _committed(self, written: dict[tuple[str, Any], Row | None]) -> None:
        for (table, key), row in written.items():
            name = "" if table == "deliveries" else key  # whose keys are random
            self.trace.update(f"{self.scheduler.now:.6f} {table} {name}".encode())
            match table:
                case "jobs":
                    self._job_changed(key, row)
                case "buffers" if row is None:
                    self._release(key)
                case "replicas":
                    self._lease_changed(key, row)
                case "deliveries" if row is not None:
                    self._messages[row["job_id"]] += 1
                    if self._messages[row["job_id"]] > 1:
                        self._violated(f"two messages about job {row['job_id']}")

    def _job_changed(self, job_id: str, row: Row | None) -> None:
        before = self._last.get(job_id)
        self._last[job_id] = row
        self.trace.update(b"-" if row is None else f"{row['state']}{row['attempt']}".encode())
        self._name_blobs(before, -1)
        self._name_blobs(row, +1)
        if row is None:
            if before is not None and before["state"] not in _ENDED:
                self._violated(f"job {job_id} was deleted before it had ended")
            return
        for column in ("source_blob", "destination_blob"):
            blob = row[column]
            if blob is not None and f"blobs/{blob}" not in self.folder.files:
                self._violated(f"job {job_id} names {column} {blob}, which is not in the folder")
        if row["state"] in _ENDED and (before is None or before["state"] not in _ENDED):
            self._ends[job_id] += 1
            if self._ends[job_id] > 1:
                self._violated(f"job {job_id} ended twice")
            if row["state"] == "succeeded" and (
                row["destination_blob"] is None and row["sealed_destination"] is None
            ):
                self._violated(f"job {job_id} succeeded without rows")
            if (row["error"] or {}).get("code") == "internal_error":
                self._violated(f"job {job_id} failed with an internal error")
            noted = sum(path.startswith(f"shared/progress/{job_id}.") for path in self.folder.notes)
            if (row["error"] or {}).get("code") == "attempts_exhausted" and self.kills - noted < 3:
                self._violated(
                    f"job {job_id} was given up after {self.kills} deaths, {noted} of them not its own"
                )
        if before is not None and before["state"] == "running" and row["state"] != "running":
            runs, by = self._leases.get(before["claimed_by"]), self.scheduler.current_process()
            held = before["claimed_by"] in self.server.tables["replicas"]
            if held and runs is not None and runs.process is not by:
                self._violated(f"job {job_id} was moved by {by.name}, while {runs.name} runs it")
        if before is not None and before["state"] in _ENDED and row["state"] != before["state"]:
            self._violated(f"job {job_id} went from {before['state']} to {row['state']}")

    def _name_blobs(self, row: Row | None, by: int) -> None:
        for blob in {row["source_blob"], row["destination_blob"]} - {None} if row is not None else ():
            self._named[blob] += by

    def _release(self, buffer_id: str) -> None:
        self._named[self._buffer_blobs[buffer_id]] -= 1

    def _lease_changed(self, name: str, row: Row | None) -> None:
        replica = self._leases.get(name)
        if row is not None:
            if replica is None:
                process = self.scheduler.current_process()
                replica = next(each for each in self.replicas if each.process is process)
                self._leases[name] = replica
            return
        by = self.scheduler.current_process()
        if replica is None or by is replica.process or not replica.process.alive:
            return
        if self.scheduler.now > replica.excused_until and self.scheduler.now > self._excused_until:
            self._violated(f"{replica.name} lost its lease, although it could renew it")

    def _gone(self, path: str) -> None:
        start, _, name = path.partition("/")
        if start == "blobs" and self._named[name] > 0:
            self._violated(f"blob {name} was taken from the folder, and a row names it")

    # ------------------------------------------------------------------------------------------ a schedule

    def run(self) -> None:
        """Run the schedule. Raises Violation."""
        with running(self.scheduler):
            try:
                self._draw()
                self.scheduler.run_until(_BUSY_SECONDS)
                self._settle()
                self._check()
            finally:
                self.scheduler.close()
                for replica in self.replicas:
                    replica.process.alive = False
        if self.violations:
            raise Violation("; ".join(self.violations))

    def _draw(self) -> None:
        random = self.random
        if random.random() < self._due:
            self._add_due(random.randrange(2, 12) * BLOB_ROWS)
        for number in range(random.choice((0, 0, 1, 2))):
            self._add_buffer(f"buffer-{number}", _BUSY_SECONDS * random.random())
        for _ in range(random.choice((1, 2, 2, 2, 3))):
            self._start_replica()
        for number in range(random.choice((1, 1, 2, 3))):
            self._draw_submission(number)
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            fault = random.choice(self._drawn_faults)
            # Half of the faults fall into the short time in which something happens.
            at = random.choice(self._moments) + random.expovariate(1 / _CALL_SECONDS)
            at = random.choice((at, _BUSY_SECONDS * random.random()))
            self.scheduler.at(at, partial(self._strike, fault))

    def _start_replica(self) -> None:
        random = self.random
        replica = Replica(
            f"replica-{len(self.replicas)}",
            self.scheduler,
            self.server,
            self.folder,
            workers=random.choice((1, 1, 2)),
            deaths=random.choice((0.0, 0.0, 0.3)),
            seconds=random.choice((0.3, 1.0, 4.0)),
            trash_days=self._trash_days,
        )
        self.replicas.append(replica)
        replica.start()

    def _add_due(self, jobs: int) -> None:
        """Add jobs that are due for deletion, as a service that was down for weeks finds them."""
        columns = dict.fromkeys(column.name for column in Job.__table__.columns)
        long_ago = time_of(-100 * _DAY)
        for number in range(jobs):
            blob = f"due-{number:03d}"
            row = columns | {"id": blob, "state": "succeeded", "finished_at": long_ago, "attempt": 1}
            row |= {"owner": CALLER.owner, "service": "DSWAP", "destination_blob": f"{blob}-0000000000"}
            self.server.tables["jobs"][blob] = row
            self._last[blob] = row
            self._name_blobs(row, +1)
            self.folder.files.add(f"blobs/{row['destination_blob']}")

    def _add_buffer(self, name: str, expires: float) -> None:
        blob = f"{self.random.getrandbits(80):020x}{'0' * 12}"
        self._buffer_blobs[name] = blob
        self._named[blob] += 1
        self.folder.files.add(f"blobs/{blob}")
        self.server.tables["buffers"][name] = {
            "id": name, "owner": CALLER.owner, "project": None, "digest": "sha256:0", "fields": [],
            "row_count": 1, "byte_size": 1, "blob": blob, "sealed_key": blob.encode(),
            "created_at": time_of(0), "expires_at": time_of(expires),
        }  # fmt: skip

    # -------------------------------------------------------------------------------------------- callers

    def _draw_submission(self, number: int) -> None:
        random = self.random
        key = f"key-{number}" if random.random() < 0.5 else None
        webhook = Webhook("https://a.example", "") if random.random() < 0.5 else None
        options = SubmissionOptions(
            idempotency_key=key,
            request_fingerprint=f"request {number}" if key else None,
            priority=random.choice(("low", "normal", "high")),
            deadline_seconds=random.choice((None, None, None, 1.0, 8.0)),
            webhook=webhook,
        )
        stored = random.choice(("inline", "stored", "stored", *self._buffer_blobs))
        submission = Submission(f"submission-{number}", stored, key, options, random.random() < 0.3)
        self.submissions.append(submission)
        at = _BUSY_SECONDS * random.random()
        self._moments.append(at)
        twice = key is not None and random.random() < 0.3
        for _ in range(2 if twice else 1):
            self.scheduler.at(at + 0.1 * random.random(), partial(self._submit, submission, 4))
        if random.random() < 0.25:
            self.scheduler.at(at + 10.0 * random.random(), partial(self._cancel, submission))
        if random.random() < 0.15:
            self.scheduler.at(at + 20.0 * random.random(), partial(self._delete, submission))

    def _submit(self, submission: Submission, tries: int) -> None:
        ready = [replica for replica in self.replicas if replica.ready and replica.process.alive]
        if self._settling:
            return
        if not ready:
            if tries:
                again = partial(self._submit, submission, tries - 1)
                self.scheduler.later(3.0, again)
            return
        replica = self.random.choice(ready)
        self._call(replica, self._send(replica, submission, tries))

    def _call(self, replica: Replica, work: Coroutine[Any, Any, None]) -> None:
        self._calls.append((replica, replica.loop.run(work)))

    async def _send(self, replica: Replica, submission: Submission, tries: int) -> None:
        self._jobs += 1
        job_id = f"job-{self._jobs:04d}"
        source: Any = submission.stored
        if source == "inline":
            source = _TABLE
        elif source == "stored":
            source = await asyncio.to_thread(self._store, replica)
        new = NewJob(
            service="DSWAP",
            parameters=_PARAMETERS,
            source=source,
            seed=b"seed",
            seed_bits=128,
            retain_source=submission.retain,
            submission=submission.options,
        )
        accept: Callable[[KeptWorker | None], Job] = partial(replica.acceptance.accept, job_id, new, CALLER)
        try:
            job = await replica.dispatcher.accept(job_id, accept, short=True)
        except Unavailable:
            if tries and submission.key is not None:  # without a key it could be accepted twice
                self.scheduler.later(1.0, partial(self._submit, submission, tries - 1))
            return
        except AppError:  # the buffer has expired
            return
        finally:
            if isinstance(source, StoredTable) and not self.scheduler.closed:
                await asyncio.to_thread(replica.stores.drop, [source.blob])
        submission.accepted.append(job.id)
        made = set(submission.accepted)
        if submission.key is not None and len(made) > 1 and not self.deleted & made:
            self._violated(f"one key made the jobs {submission.accepted}")

    def _store(self, replica: Replica) -> StoredTable:
        access = replica.stores.new_blob()
        write(access, self.folder)
        return StoredTable(access, "sha256:0", [], 1, 1)

    def _cancel(self, submission: Submission) -> None:
        ready = [replica for replica in self.replicas if replica.ready and replica.process.alive]
        if ready and submission.accepted:
            replica = self.random.choice(ready)
            self._call(replica, self._send_cancel(replica, submission.accepted[0]))

    async def _send_cancel(self, replica: Replica, job_id: str) -> None:
        """Cancel as `app.jobs.service.JobService.cancel`."""
        loop = replica.loop
        try:
            for _ in range(20):
                job = await loop.run_in_executor(None, replica.transactions.find, CALLER, job_id)
                if job.ended:
                    return
                if job.state == "queued":
                    await loop.run_in_executor(None, replica.transactions.cancel_queued, job)
                elif not await replica.dispatcher.cancel(job_id):
                    await loop.run_in_executor(None, replica.transactions.request_cancel, job_id)
                    await asyncio.sleep(1.0)
        except AppError:
            return

    def _delete(self, submission: Submission) -> None:
        ready = [replica for replica in self.replicas if replica.ready and replica.process.alive]
        if ready and submission.accepted:
            replica = self.random.choice(ready)
            self._call(replica, self._send_delete(replica, submission.accepted[0]))

    async def _send_delete(self, replica: Replica, job_id: str) -> None:
        delete = replica.transactions.delete_ended
        try:
            job = await replica.loop.run_in_executor(None, replica.transactions.find, CALLER, job_id)
            if job.ended:
                self.deleted.add(job_id)
                await replica.loop.run_in_executor(None, delete, CALLER, job)
        except AppError:
            return

    # --------------------------------------------------------------------------------------------- faults

    def _strike(self, fault: Callable[["World"], None]) -> None:
        if not self._settling:
            self.on_fault(fault.__name__)
            fault(self)

    def _any_replica(self) -> Replica | None:
        living = [replica for replica in self.replicas if replica.process.alive and not replica.stopping]
        return self.random.choice(living) if living else None

    def _kill(self) -> None:
        replica = self._any_replica()
        if replica is not None:
            self.kills += 1
            replica.process.kill()
            self._quiet_from = self.scheduler.now + 6.0
            if self.random.random() < 0.7:
                self.scheduler.later(5.0 * self.random.random(), self._start_replica)

    def _stop(self) -> None:
        replica = self._any_replica()
        if replica is not None and replica.ready:
            self.kills += 1  # a job that it does not requeue counts as after a death
            replica.stopping = True  # at once, although a paused replica begins to stop only later
            replica.loop.run(replica.stop())
            self.scheduler.later(5.0 * self.random.random(), self._start_replica)

    def _pause(self) -> None:
        replica = self._any_replica()
        if replica is not None:
            until = self.scheduler.now + 18.0 * self.random.random()
            replica.process.paused_until = until
            self._excuse(replica, until)

    def _cut_off(self) -> None:
        replica = self._any_replica()
        if replica is not None:
            until = self.scheduler.now + 15.0 * self.random.random()
            self.server.cut_off[replica.name] = until
            self._excuse(replica, until)

    def _excuse(self, replica: Replica, until: float) -> None:
        replica.excused_until = max(replica.excused_until, until + LEASE_SECONDS)
        self.kills += 1  # its jobs may be taken over, which counts like a death

    def _database_away(self) -> None:
        until = self.scheduler.now + 15.0 * self.random.random()
        self.server.away_until = until
        self._excused_until = max(self._excused_until, until + LEASE_SECONDS)
        self.kills += len(self.replicas)

    def _lose_responses(self) -> None:
        self.server.lost_responses = 0.15
        self._excused_until = max(self._excused_until, self.scheduler.now + 10.0 + LEASE_SECONDS)
        self.kills += len(self.replicas)
        self.scheduler.later(10.0, self._find_responses)

    def _find_responses(self) -> None:
        self.server.lost_responses = 0.0

    def _slow_folder(self) -> None:
        self.folder.slow_until = self.scheduler.now + 20.0
        self.folder.slow_seconds = self.random.choice((0.5, 3.0, _SLOWEST_SECONDS))

    _faults = (
        _kill, _kill, _kill, _stop, _pause, _pause, _cut_off, _database_away, _lose_responses, _slow_folder,
    )  # fmt: skip

    # ---------------------------------------------------------------------------------------------- the end

    def _settle(self) -> None:
        """End the faults, and wait until all jobs have ended."""
        scheduler = self.scheduler
        self._settling = True
        self.server.lost_responses = 0.0
        self.server.away_until = min(self.server.away_until, scheduler.now)
        self.server.cut_off.clear()
        self.folder.slow_until = 0.0
        if self._any_replica() is None:
            self._start_replica()
        scheduler.run_until(scheduler.now + _PATIENCE_SECONDS, self._all_ended)
        scheduler.run_until(scheduler.now + 3 * LEASE_SECONDS, self._no_dead_leases)
        scheduler.run_until(scheduler.now + _PATIENCE_SECONDS, self._all_ended)
        # What a replica has given up itself, it sweeps itself.
        for replica in self.replicas:
            if replica.process.alive and replica.ready:
                swept = replica.loop.run(asyncio.to_thread(replica.stores.sweep))
                scheduler.run_until(scheduler.now + 10.0, swept.done)
        scheduler.run_until(scheduler.now + 60 * _SLOWEST_SECONDS, lambda: not self._left())

    def _no_dead_leases(self) -> bool:
        leases = self.server.tables["replicas"]
        return all(name in self._leases and self._leases[name].process.alive for name in leases)

    def _all_ended(self) -> bool:
        if self.scheduler.now < self._quiet_from:  # workers of a dead service may still write
            return False
        if any(not task.done() for replica, task in self._calls if replica.process.alive):
            return False
        return all(
            row["state"] in _ENDED and row["finished_at"] > _LONG_AGO
            for row in self.server.tables["jobs"].values()
        ) and any(replica.ready for replica in self.replicas if replica.process.alive)

    def _left(self) -> list[str]:
        """Return files that nobody needs any more."""
        return sorted(
            path
            for path in self.folder.files
            if not path.startswith("trash/") and self._named[path.partition("/")[2]] == 0
        )

    def _check(self) -> None:
        jobs = self.server.tables["jobs"]
        for job_id, row in jobs.items():
            if row["state"] not in _ENDED:
                self._violated(f"job {job_id} is still {row['state']}")
            elif row["finished_at"] < _LONG_AGO:
                self._violated(f"job {job_id} is due, and has not been deleted")
            if row["state"] == "succeeded" and row["finished_at"] > (row["deadline"] or row["finished_at"]):
                self._violated(f"job {job_id} succeeded after its deadline")
            if row["sealed_webhook"] is not None and not self._messages[job_id]:
                self._violated(f"no message about job {job_id}")
        for submission in self.submissions:
            for job_id in set(submission.accepted) - set(jobs) - self.deleted:
                self._violated(f"job {job_id} was accepted, and is lost")
        for path in self._left():
            self._violated(f"{path} was left in the folder")
        self.violations += self.scheduler.failures
