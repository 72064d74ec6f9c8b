"""Takeover of running jobs that no live replica works on. Blocking: it runs in a thread."""

import logging
from collections.abc import Collection
from datetime import datetime

from app.engine.engine import ATTEMPTS_EXHAUSTED, REVISION_GONE, Failure
from app.engine.progress_file import has_outlived_service
from app.errors import Gone, StateConflict
from app.job_kinds import revision_of
from app.jobs.failure_errors import problem_of
from app.jobs.job_metrics import JobMetrics
from app.jobs.recorder import End, Recorder, requeue
from app.jobs.reference_writer import warn_of_earlier_writes
from app.jobs.requests import options_of_own_revision, options_of_rerun
from app.jobs.states import Step
from app.jobs.stores import Stores
from app.store.crypto.sealing import SealBroken
from app.store.sql import jobs, replicas
from app.store.sql.bindings import seed_binding

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


class Takeover:
    """Requeues, cancels or fails running jobs whose replica is dead, or that this replica lost track of.

    It also gives queued jobs that no living replica can run the revision of this version.
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
        for end in ended:
            warn_of_earlier_writes(end.job, end.job.attempt)
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

    def take_unrunnable(self) -> tuple[list[str], list[str]]:
        """Give queued jobs that no living replica can run the revision of this version, or let them fail.

        Returns the ids of the jobs that it can run, and of the jobs that failed.
        """
        taken, failed = [], []
        with self._stores.database.read() as session:
            living = replicas.living_runs(session)
            queued = [] if living is None else jobs.queued_for_nobody(session, living)
        for job in queued:
            try:
                self._give_own_revision(job.id)
                taken.append(job.id)
            except (StateConflict, Gone, SealBroken) as error:  # a fault of the database is no end of the job
                reason = "its seed does not open" if isinstance(error, SealBroken) else error.message
                gone = Failure(
                    REVISION_GONE,
                    f"no running version of Rowveil has revision {job.revision} of {job.service}, for which "
                    f"the job was queued, and this one cannot run it: {reason}; submit it again",
                )
                if self._recorder.record_end(job, Step.EXPIRE, error=problem_of(gone)):
                    failed.append(job.id)
        return taken, failed

    def _give_own_revision(self, job_id: str) -> None:
        """Change the revision of a queued job, with the seal that binds its seed to it.

        Raises StateConflict (this version cannot run it), Gone, SealBroken.
        """
        with self._stores.database.read() as session:
            job = jobs.find(session, job_id, "sealed_seed")
            if job is None:  # cancelled and deleted meanwhile
                return
            first = None if job.rerun_of is None else jobs.find(session, job.rerun_of)
        seed = self._stores.sealer.open(job.sealed_seed, seed_binding(job))
        if job.rerun_of is None:
            options = options_of_own_revision(job)
        elif first is not None:
            options = options_of_rerun(first)
        else:
            raise Gone("the job that it repeats has been deleted")
        former, revision = job.revision, revision_of(job.service)
        assert revision is not None  # else there are no options
        job.revision, job.options = revision, options
        sealed = self._stores.sealer.seal(seed, seed_binding(job))
        values = {"revision": revision, "options": options, "sealed_seed": sealed}
        with self._stores.database.write() as session:
            moved = jobs.move(session, job_id, ["queued"], "queued", attempt=job.attempt, **values)
        if moved:
            _log.warning(
                "job %s was queued for revision %d of %s, which no running version has; revision %d runs it",
                job_id, former, job.service, revision,
            )  # fmt: skip
