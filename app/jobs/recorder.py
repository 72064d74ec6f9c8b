"""Record the end of a job exactly once; release its blobs and queue its webhook in the same transaction."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Flag, StrEnum, auto
from typing import Any

from app.engine.engine import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    NOT_ITS_FAULT,
    WORKER_DIED,
    WORKER_LOST,
    Failure,
    Outcome,
)
from app.engine.worker_process import failure_of
from app.job_kinds import kind_of
from app.jobs.failure_errors import problem_of
from app.jobs.job_metrics import JobMetrics
from app.jobs.manifest import signed_manifest
from app.jobs.reference_writer import warn_of_earlier_writes
from app.jobs.releases.recording import record_release
from app.jobs.requests import released_columns, tables_given
from app.jobs.series import add_wave
from app.jobs.states import State, Step, after, outcome_of, sources
from app.jobs.stores import Stores
from app.jobs.weak_seeds import flagged, is_weak
from app.store.crypto.sealing import Sealer
from app.store.sql import jobs, replicas
from app.store.sql.bindings import report_binding, rows_binding, table_binding
from app.store.sql.db import Transaction
from app.store.sql.models import Job
from app.store.sql.replicas import LeaseLost
from app.store.sql.series import SeriesMoved
from app.webhooks.messages import queue_message
from app.worker.tasks import JobTask, SwapTask
from providers.results import NewPairs
from providers.selection.seeds import candidate_seed
from providers.tables.digest import form_of

_log = logging.getLogger("rowveil.jobs")

MOST_ATTEMPTS = 10
"""Attempts of a job after which it fails if the fork server or the cluster is lost again, or its files cannot
be opened while the storage works."""

_OVERDUE = Failure(DEADLINE_EXCEEDED, "the job had not ended by its deadline, and was stopped")

_TOO_LATE = Failure(DEADLINE_EXCEEDED, "the job had not ended by its deadline; its result was discarded")


class StopReason(Flag):
    """Reasons for which the service stops a run."""

    CANCEL = auto()
    OVERDUE = auto()
    SERVICE = auto()
    """The service itself stops."""


NOT_STOPPED = StopReason(0)


class DeadlinePassed(Exception):
    """The deadline of a job passed before its success was recorded."""


@dataclass(frozen=True, slots=True)
class End:
    """End of a job within a transaction that is not committed yet."""

    job: Job
    """The job's row before it ended."""
    state: State
    values: dict[str, Any]
    released: list[str | None]
    """Blobs that the row no longer names."""


class Recorder:
    """Writes the ends of jobs. Blocking; called from any thread."""

    def __init__(self, stores: Stores, job_metrics: JobMetrics) -> None:
        self._stores = stores
        self._job_metrics = job_metrics

    def record_run(self, job: Job, task: JobTask, outcome: Outcome, stops: StopReason) -> bool:
        """Record the end of a run, or put its job back into the queue.

        Return whether an end was recorded; ``job`` is then the row of the job that has ended.

        Parameters
        ----------
        job
            Row of the job at its claim.
        task
            Task of the run.
        outcome
            Its outcome.
        stops
            Reasons for which the run may have been stopped.
        """
        values: dict[str, Any] = {}
        if not isinstance(outcome, Failure):
            try:
                values = self.result_values(job, task, outcome)
            except Exception as error:
                outcome = failure_of(error)
        progress_path, moved_on = self._stores.progress_path(job), False
        if isinstance(outcome, Failure):
            ended, named = self._record_failure(job, outcome, stops), False
        else:
            try:
                ended = named = self.record_end(job, Step.SUCCEED, **values)
                if ended:
                    job.keep_encoded_rows(outcome.get("encoded_rows"))
            except SeriesMoved:
                ended = named = False
                moved_on = True
            except DeadlinePassed:
                ended, named = self.record_end(job, Step.EXPIRE, error=problem_of(_TOO_LATE)), False
        if isinstance(task, SwapTask):
            if named:
                self._stores.mark_named([task.destination.id])
            else:
                self._stores.drop([task.destination.id])
        self._stores.delete_progress(progress_path)
        if moved_on:  # the series has another wave by now
            self._requeue(job)
        return ended

    def _record_failure(self, job: Job, failure: Failure, stops: StopReason) -> bool:
        """Record the end, or put the job back into the queue. Return whether an end was recorded."""
        if failure.trace:
            _log.error("job %s failed: %s", job.id, " < ".join(failure.trace))
        if failure.code == CANCELLED and StopReason.CANCEL in stops:
            return self.record_end(job, Step.CANCEL)
        if failure.code == CANCELLED and StopReason.OVERDUE in stops:
            return self.record_end(job, Step.EXPIRE, error=problem_of(_OVERDUE))
        lost = failure.code in NOT_ITS_FAULT and job.attempt < MOST_ATTEMPTS
        if lost:
            _log.warning("job %s returns to the queue: %s", job.id, failure.message)
        stopped = StopReason.SERVICE in stops and failure.code in (WORKER_DIED, WORKER_LOST)
        if lost or stopped or failure.code == CANCELLED:
            self._requeue(job)
            return False
        return self.record_end(job, Step.FAIL, error=problem_of(failure))

    def _requeue(self, job: Job) -> None:
        with self._stores.database.write() as session:
            requeue(session, job, job.crashes)
        self._job_metrics.count_requeue()

    def result_values(self, job: Job, task: JobTask, result: dict[str, Any]) -> dict[str, Any]:
        """Build the column values of a succeeded job from the worker's result, with its ledger entry."""
        outcome = outcome_of(State.SUCCEEDED, result["event_counts"])
        add_fingerprints(self._stores.sealer, task.seed, result["report"])
        if is_weak(job.seed_bits):
            result = flagged(result, job.seed_bits)
        values = {
            "outcome": outcome,
            "events": result["events"],
            "event_counts": result["event_counts"],
            "sealed_report": self._sealed_report(job, result["report"]),
            "manifest": signed_manifest(job, result, str(outcome), self._stores.signer),
        }
        if isinstance(task, SwapTask):
            destination = result["destination"]
            values |= {
                "destination_digest": destination["digest"],
                "destination_fields": destination["fields"],
                "destination_rows": destination["rows"],
            }
            if (content := result.get("table")) is None:
                values["destination_blob"] = task.destination.id
                values["sealed_destination_key"] = self._stores.blobs.seal_key(
                    task.destination, table_binding(job, "destination")
                )
            else:
                binding = rows_binding(job, "destination")
                values["sealed_destination"] = self._stores.sealer.seal(content, binding)
            values["release"] = result.get("release")
            if task.series is not None:
                values["series_base"] = task.series.wave - 1
                if task.series.adds and job.series_base is None:
                    values["new_pairs"] = NewPairs(result["pairs"], **result["new_pairs"])
        return values

    def keep_wave(self, job: Job, task: SwapTask, result: dict[str, Any]) -> bool:
        """Add the wave of a job's series before its destination is written to a reference, if it has one.

        From then on each attempt of the job makes the same rows. Returns False if the job has moved on from
        this claim. Raises SeriesMoved: the job must run again, and nothing has been written.
        """
        if task.series is None or not task.series.adds:
            return True
        base, new = task.series.wave - 1, NewPairs(result["pairs"], **result["new_pairs"])
        with self._stores.database.write() as session:
            if not jobs.move(session, job.id, [State.RUNNING], State.RUNNING, job.attempt):
                return False
            add_wave(session, self._stores.sealer, job, base, new, replicas.moment(session))
        job.series_base = base
        return True

    def _sealed_report(self, job: Job, report: dict[str, Any] | None) -> bytes | None:
        if report is None:
            return None
        return self._stores.sealer.seal(json.dumps(report).encode(), report_binding(job))

    def record_end(self, job: Job, step: Step, **values: Any) -> bool:
        """Record the end of this claim of the job; False if another end was recorded before.

        Afterwards ``job`` is the row of the job that has ended, so that nobody has to read it again.
        """
        with self._stores.database.write() as session:
            end = self.end(session, job, step, **values)
            unnamed = jobs.unnamed(session, end.released) if end is not None else []
        self.publish([end] if end is not None else [], unnamed)
        if end is not None:
            if end.state is not State.SUCCEEDED:
                # The attempt that records its end has written nothing, or has said so itself.
                warn_of_earlier_writes(job, job.attempt - (job.state == State.RUNNING))
            for name, value in (end.values | released_columns(job) | {"state": end.state.value}).items():
                setattr(job, name, value.value if isinstance(value, StrEnum) else value)
        return end is not None

    def end(self, session: Transaction, job: Job, step: Step, **values: Any) -> End | None:
        """Write the end within a transaction; None if the job has moved on, or this replica's lease expired.

        Raises SeriesMoved (the job must run again, since another one has added a wave to its series),
        DeadlinePassed (the job has not ended in time, so that it must fail).

        The destination's blob is claimed under the replica's lease. Otherwise the lease could be ended
        before this transaction commits, and another replica's sweep would move the file, which no row names
        yet, to the trash.
        """
        ended = after(State.RUNNING, step)
        released, new_pairs = values.pop("release", None), values.pop("new_pairs", None)
        destination_blob = values.get("destination_blob")
        if destination_blob is not None:
            try:
                self._stores.claim_blobs(session, [destination_blob])
            except LeaseLost:
                return None
        given = tables_given(job)
        if job.rerun_of is not None and ended is not State.CANCELLED:
            original = jobs.find(session, job.rerun_of, "manifest")
            if original is not None:
                values |= _reproduced(original, values)
        now = replicas.moment(session)
        if ended is State.SUCCEEDED and _is_late(job, now):
            raise DeadlinePassed
        values = {"finished_at": now, "outcome": outcome_of(ended, {})} | values
        moved = jobs.move(
            session, job.id, sources(step), ended, attempt=job.attempt, **values, **released_columns(job)
        )
        if not moved:
            return None
        if new_pairs is not None:
            add_wave(
                session, self._stores.sealer, job, values["series_base"], new_pairs, values["finished_at"]
            )
        queue_message(session, self._stores.sealer, job, ended, values)
        if released is not None:
            record_release(session, self._stores.audit, job, values, released)
        return End(job, ended, values, list(given.values()))

    def publish(self, ends: Sequence[End], unnamed: Sequence[str]) -> None:
        """Count committed ends, and delete the blobs that no row names any more."""
        for end in ends:
            self._job_metrics.count_end(end.job, end.state, end.values)
        self._stores.delete_blobs(unnamed)


def _is_late(job: Job, now: datetime) -> bool:
    """Whether the job's result must be discarded because its deadline has passed.

    A destination that has been written to its reference is a release, which the ledger must list.
    """
    return job.deadline is not None and now > job.deadline and job.destination_reference is None


def add_fingerprints(sealer: Sealer, seed: bytes, report: dict[str, Any] | None) -> None:
    """Add each candidate's seed fingerprint to a report; the worker has no key to compute it."""
    for candidate in (report or {}).get("candidates", {}).get("table", []):
        candidate["seed_fingerprint"] = sealer.fingerprint(candidate_seed(seed, candidate["index"]))


def requeue(session: Transaction, job: Job, crashes: int) -> None:
    """Put the job back into the queue, unless it has moved on from this claim. It keeps its turn."""
    jobs.move(
        session,
        job.id,
        sources(Step.REQUEUE),
        after(State.RUNNING, Step.REQUEUE),
        attempt=job.attempt,
        started_at=None,
        claimed_by=None,
        crashes=crashes,
    )


def _reproduced(original: Job, values: dict[str, Any]) -> dict[str, bool]:
    """Build the column ``reproduced`` of a rerun: equal digest of the rows, or of the report without rows.

    Digests of two forms cannot be compared. A rerun has the form of the first job, unless an older version
    ran one of the two.
    """
    if kind_of(original.service).has_rows:
        expected, found = original.destination_digest, values.get("destination_digest")
        if expected is not None and found is not None and form_of(expected) is not form_of(found):
            return {}
    else:
        expected, found = _report_digest(original.manifest), _report_digest(values.get("manifest"))
    return {} if expected is None else {"reproduced": found == expected}


def _report_digest(signed: dict[str, Any] | None) -> str | None:
    return None if signed is None else signed["manifest"]["report_digest"]
