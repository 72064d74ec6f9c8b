"""Takeover of running jobs that no live replica works on. Blocking: it runs in a thread."""

import logging
from collections.abc import Collection
from datetime import datetime

from app.engine.engine import ATTEMPTS_EXHAUSTED, REVISION_GONE, Failure
from app.engine.progress_file import has_outlived_service
from app.jobs.failure_errors import problem_of
from app.jobs.job_metrics import JobMetrics
from app.jobs.recorder import End, Recorder, requeue
from app.jobs.states import Step
from app.jobs.stores import Stores
from app.store.sql import jobs, replicas

_log = logging.getLogger("rowveil.jobs")

MOST_CRASHES = 3
"""Number of crashes or lost leases of the service after which a job fails instead of being requeued.

A crash does not count if the job's worker has noted that it outlived the service without a lack of memory.
"""

_MOST_TRUSTED_ATTEMPTS = 10
"""Attempts of a job in which such a note is believed, so that a job that deceives it ends all the same."""

_CRASHED = Failure(
    ATTEMPTS_EXHAUSTED,
    f"the service ended {MOST_CRASHES} times while this job ran; it is not tried again",
)


_GONE = Failure(
    REVISION_GONE,
    "the job was queued for a revision of its service that no running version has; submit it again",
)


class Takeover:
    """Requeues, cancels or fails running jobs whose replica is dead, or that this replica lost track of.

    It also fails queued jobs that no living replica can run.
    """

    def __init__(self, stores: Stores, recorder: Recorder, job_metrics: JobMetrics) -> None:
        self._stores = stores
        self._recorder = recorder
        self._job_metrics = job_metrics
        self._untracked: set[tuple[str, int]] = set()
        """Job id and attempt of this replica's claims that it did not track at the last run."""

    def run(self, end_leases: bool, tracked: Collection[str], now: datetime | None = None) -> tuple[int, int]:
        """Take over stalled jobs in one transaction, so that no lease ends while a job is still under it.

        Parameters
        ----------
        end_leases
            Whether expired leases of other replicas are ended first. Otherwise only jobs without any lease
            are taken over.
        tracked
            Ids of the jobs that this replica runs.
        now
            Time by which leases have expired; None: the database's.

        Returns
        -------
        tuple of int
            Numbers of jobs taken over and of leases ended.
        """
        ends: list[End | None] = []
        replica = self._stores.lease.replica
        innocent = self._read_notes()
        with self._stores.database.write() as session:
            # A claim is untracked if the response to its commit was lost, or if its job could neither be
            # started nor failed. It is requeued at the second sighting: at the first it may be starting.
            untracked = [job for job in jobs.claimed(session, replica) if job.id not in tracked]
            lost = [job for job in untracked if (job.id, job.attempt) in self._untracked]
            for job in lost:
                requeue(session, job, job.crashes)
            dead = replicas.remove_expired(session, replica, now) if end_leases else ()
            # A lease may have expired since the notes were read: such jobs are taken over by the next run.
            stalled = [job for job in replicas.stalled_jobs(session) if (job.id, job.attempt) in innocent]
            for job in stalled:
                crashes = job.crashes + (not innocent[job.id, job.attempt])
                if job.cancel_requested:
                    ends.append(self._recorder.end(session, job, Step.CANCEL))
                elif crashes >= MOST_CRASHES:
                    values = {"error": problem_of(_CRASHED), "crashes": crashes}
                    ends.append(self._recorder.end(session, job, Step.FAIL, **values))
                else:
                    requeue(session, job, crashes)
            ended = [end for end in ends if end is not None]
            unnamed = jobs.unnamed(session, [blob for end in ended for blob in end.released])
        self._recorder.publish(ended, unnamed)
        for job in (*stalled, *lost):
            self._stores.delete_progress(self._stores.progress_path(job))
        for _ in range(len(stalled) + len(lost) - len(ended)):
            self._job_metrics.count_requeue()
        self._untracked = {(job.id, job.attempt) for job in untracked}
        for name in dead:
            _log.warning("replica %s is dead; its jobs are taken over", name)
        return len(stalled) + len(lost), len(dead)

    def _read_notes(self) -> dict[tuple[str, int], bool]:
        """Return for each running job without a lease whether its worker has outlived the service.

        The files are read before the transaction: a folder that does not respond must not keep its locks.
        """
        with self._stores.database.read() as session:
            found = replicas.jobs_without_lease(session)
        return {
            (job_id, attempt): attempt < _MOST_TRUSTED_ATTEMPTS
            and has_outlived_service(self._stores.progress_path_of(job_id, attempt))
            for job_id, attempt in found
        }

    def fail_unrunnable(self) -> list[str]:
        """Fail queued jobs that no living replica can run; return their ids."""
        with self._stores.database.read() as session:
            living = replicas.living_runs(session)
            queued = [] if living is None else jobs.queued_for_nobody(session, living)
        problem = problem_of(_GONE)
        return [job.id for job in queued if self._recorder.record_end(job, Step.EXPIRE, error=problem)]
