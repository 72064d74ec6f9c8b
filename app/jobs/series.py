"""Jobs of a series: their place in it at acceptance, claim and end; list and deletion of series.

A job reads the waves that its series has when it is claimed, and adds one if it has paired new units. The
transaction that ends the job adds the wave, and fails if another job has added it before. The job then goes
back into the queue, so that it reads that wave too. A rerun reads the waves that the first job read, and adds
none.

A destination that is written to a reference is a release before its job ends. So the wave of such a job is
added before the write, and a job that is run again after that reads the same waves again.

All functions but those of `SeriesTransactions` work within the caller's transaction.
"""

import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.callers import Caller
from app.errors import Forbidden, NotFound, StateConflict
from app.job_kinds import Kind, kind_of
from app.jobs.stores import Stores
from app.store.crypto.sealing import SealBroken, Sealer
from app.store.sql import series, usage
from app.store.sql.bindings import seed_binding, series_binding
from app.store.sql.db import Transaction
from app.store.sql.models import Job, Series
from app.store.sql.replicas import moment
from app.store.sql.series import SeriesFigures
from app.worker.tasks import SeriesTask
from providers.results import NewPairs


def join_series(session: Transaction, sealer: Sealer, job: Job) -> None:
    """Note the series of a new job, which is created with the first job that names it."""
    name = job.parameters.get("series") if kind_of(job.service) is Kind.SWAP else None
    if name is not None:
        job.series_id = series.join(session, sealer, job, name, job.created_at).id


def join_again(session: Transaction, sealer: Sealer, job: Job, first: Job) -> None:
    """Note the series and the waves of a rerun. Raises StateConflict: the same bytes cannot be made."""
    name = first.parameters["series"]
    assert first.series_id is not None  # looked at before
    if first.series_base is None:
        raise StateConflict(
            f"the job did not succeed, so that it has no wave of series '{name}'; submit it again"
        )
    if not series.lock(session, first.series_id):
        raise StateConflict(
            f"series '{name}' was deleted with its pairs: the same bytes cannot be made any more"
        )
    job.series_id, job.series_base = first.series_id, first.series_base
    found = series.find(session, first.series_id)
    assert found is not None  # it is locked
    if not _may_open(session, sealer, job, found):
        raise StateConflict(
            f"series '{name}' is of another caller, whose job with this seed was deleted; "
            "only the owner of the series can rerun the job"
        )


def task_of(session: Transaction, sealer: Sealer, job: Job) -> SeriesTask | None:
    """Return the pairs that the worker of a claimed job needs; None: it belongs to no series.

    Raises SealBroken.
    """
    if job.series_id is None:
        return None
    found = series.find(session, job.series_id)
    assert found is not None  # it is not deleted while a job of it is queued or running
    if not _may_open(session, sealer, job, found):
        raise SealBroken(f"job {job.id} names a series of another owner")
    own_wave = series.wave_of_job(session, found.id, job.id)  # of an earlier attempt
    base = job.series_base
    if job.rerun_of is None:
        base = series.newest_wave(session, found.id) if own_wave is None else own_wave - 1
    assert base is not None  # a rerun has it from its acceptance on
    pairs, ids = series.pairs_until(session, sealer, found.id, base)
    key = sealer.open(found.sealed_key, series_binding(found))
    adds = job.rerun_of is None and own_wave is None
    return SeriesTask(found.name, base + 1, key, pairs, ids, adds)


def _may_open(session: Transaction, sealer: Sealer, job: Job, found: Series) -> bool:
    """Whether a job is of the owner of the series, or reruns a job of that owner. Raises SealBroken.

    The column with the series can be changed in the database. The owners of job and series cannot, since
    values are sealed to them. A rerun of another caller is known by its seed, which is that of the owner's
    job.
    """
    if job.owner == found.owner:
        return True
    if job.rerun_of is None:
        return False
    seed = sealer.open(job.sealed_seed, seed_binding(job))
    return any(
        hmac.compare_digest(seed, sealer.open(each.sealed_seed, seed_binding(each)))
        for each in series.jobs_of_owner(session, found, job.seed_fingerprint)
    )


def add_wave(session: Transaction, sealer: Sealer, job: Job, base: int, new: NewPairs, now: datetime) -> None:
    """Store the new pairs of a job that has succeeded. Raises SeriesMoved: another job was faster."""
    assert job.series_id is not None
    if new.units:
        series.append(session, sealer, job.series_id, base + 1, job.id, new, now)


class SeriesTransactions:
    """Transactions on series on behalf of a caller, one a method. Blocking: they run in threads."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def page(self, caller: Caller, limit: int, after: str | None) -> Sequence[SeriesFigures]:
        """Return up to ``limit`` visible series after the series ``after``, oldest first."""
        with self._stores.database.read() as session:
            return series.page(session, caller, limit, after)

    def find(self, caller: Caller, owner: str, name: str) -> SeriesFigures:
        """Return the series of an owner. Raises NotFound."""
        with self._stores.database.read() as session:
            return _found(session, caller, owner, name)

    def delete(self, caller: Caller, owner: str, name: str) -> None:
        """Delete the series of an owner with its pairs. Raises NotFound, Forbidden, StateConflict."""
        with self._stores.database.write() as session:
            now = moment(session)
            found = _found(session, caller, owner, name).series
            usage.lock(session, found.owner, now)  # no job of it is accepted meanwhile
            series.lock(session, found.id)
            if not caller.may_change(found.owner):
                raise Forbidden(f"series '{name}' is of another caller: only its owner may delete it")
            if series.is_used(session, found.id):
                raise StateConflict(
                    f"a job of series '{name}' is queued or running; delete the series when it has ended"
                )
            if not series.delete(session, found.id):
                raise NotFound(_no_series(name))
            self._stores.audit.append(session, caller, "series.delete", found.id, now)
        self._stores.database.truncate_log()


def _no_series(name: str) -> str:
    return f"there is no series '{name}'; GET /v1/series lists those that you may see"


def _found(session: Any, caller: Caller, owner: str, name: str) -> SeriesFigures:
    found = series.named(session, caller, owner, name)
    if found is None:
        raise NotFound(_no_series(name))
    return found
