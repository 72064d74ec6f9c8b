"""Earlier releases of a job's source, for its worker; the entry of a job that has released one.

Functions that take a session work within the caller's transaction.
"""

from typing import Any

from app.callers import Caller
from app.ids import new_id
from app.job_kinds import kind_of
from app.jobs.releases.earlier import EarlierReleases
from app.jobs.releases.policy import check_policy, policy_of
from app.settings import Settings
from app.store.sql import ledger
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.db import Database, Transaction
from app.store.sql.models import Job, Release
from app.worker.tasks import ReleaseQuestion
from providers.tables.sketches import TableSketch, same_source


def check_released(
    session: Transaction, settings: Settings, job: Job, other_digest: str | None = None
) -> None:
    """Check a new job's source by its digest alone, and by the one of the other form if that is given.

    Raises ReleasedBefore, InvalidRequest.
    """
    policy = policy_of(settings, job.project)
    if policy in ("allow", "warn") or not releases_rows(job):
        return
    check_policy(policy, _reason(job), ledger.count(session, job, other_digest))


def question_of(
    database: Database, settings: Settings, key: bytes, releases: EarlierReleases, job: Job
) -> ReleaseQuestion | None:
    """Return the data by which a job's worker recognises its source; None if the job releases nothing."""
    if not releases_rows(job):
        return None
    policy = policy_of(settings, job.project)
    earlier, known_sketch = releases.find(database, job)
    return ReleaseQuestion(
        key=key,
        source_digest=job.source_digest,
        policy=policy,
        reason=bool(_reason(job)),
        earlier=earlier,
        known_sketch=known_sketch,
    )


def record_release(
    session: Transaction, audit: AuditTrail, job: Job, values: dict[str, Any], found: dict[str, Any]
) -> None:
    """Add the entry of a job that has succeeded, and its line in the audit log.

    Parameters
    ----------
    session : Transaction
    audit : AuditTrail
    job : Job
    values : dict
        Columns of the ended job.
    found : dict
        What its worker found: ``sketch``, ``family``, ``match``, ``risk``, ``epsilon``, ``seen``; and
        ``destination_digest`` of an earlier release with the same rows, if it is in the other form.
    """
    family, match = found["family"], found["match"]
    if family is None:
        family, match = _recorded_meanwhile(session, job, found)
    entry = Release(
        id=new_id(),
        job_id=job.id,
        family=family or job.id,
        released_at=values["finished_at"],
        owner=job.owner,
        project=job.project,
        service=job.service,
        revision=job.revision,
        source_digest=job.source_digest,
        destination_digest=found.get("destination_digest", values["destination_digest"]),
        row_count=job.row_count,
        match=match,
        risk=found["risk"],
        epsilon=found.get("epsilon"),
        reason=_reason(job),
        sketch=found["sketch"],
    )
    reason = ledger.insert(session, entry)
    caller = Caller(job.owner, job.project)
    audit.append(session, caller, ledger.RELEASED, job.id, values["finished_at"], reason)


def _recorded_meanwhile(
    session: Transaction, job: Job, found: dict[str, Any]
) -> tuple[str | None, str | None]:
    """Return the family under which another job has recorded the job's source, and how it is recognised.

    The source was new when both jobs began.
    """
    ledger.wait_for_others(session, job)
    family = ledger.family_id_of_source(session, job)
    if family is not None:
        return family, "digest"
    own = TableSketch.from_document(found["sketch"])
    for entry in ledger.added_since(session, job, found["seen"]):
        if same_source(own, TableSketch.from_document(entry.sketch)):
            return entry.family, "fields"
    return None, None


def releases_rows(job: Job) -> bool:
    """Whether the job releases rows of its own: a rerun gives the same bytes again."""
    return kind_of(job.service).has_rows and job.rerun_of is None


def _reason(job: Job) -> str | None:
    reason: str | None = (job.options or {}).get("release_reason")
    return reason
