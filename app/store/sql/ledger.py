"""All SQL about the disclosure ledger. Every function works within the caller's transaction.

An entry outlives its job. Its digest is in the audit log, so that a changed or removed entry is noticed.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.callers import OIDC_BEFORE, Caller, without_issuer
from app.store.crypto.canonical_json import canonical_json
from app.store.sql.models import AuditLine, Job, Release
from app.store.sql.reseal import DISOWNED, REOWNED
from app.store.sql.visibility import visible_to
from providers.tables.digest import DigestForm

_MOST_CANDIDATES = 200
"""Newest entries with about as many rows with which a source is compared."""

_RELEASES = cast(sa.Table, Release.__table__)


def insert(session: Session, entry: Release) -> str:
    """Add an entry; return its digest."""
    values = {name: value for name, value in vars(entry).items() if name in _RELEASES.c}
    session.connection().execute(sa.insert(_RELEASES), values)
    return digest_of(entry)


def digest_of(entry: Release) -> str:
    """Return the SHA-256 of an entry as the audit log has it.

    The issuer of the owner is not part of it, so that entries of older versions keep their digests. It is in
    the line of the audit log that has the digest.
    """
    document = {name: getattr(entry, name) for name in sorted(_RELEASES.c.keys())}
    if document["epsilon"] is None:  # as in versions without it
        del document["epsilon"]
    document["owner"] = without_issuer(entry.owner)
    document["released_at"] = entry.released_at.astimezone(UTC).isoformat(timespec="microseconds")
    return f"sha256:{hashlib.sha256(canonical_json(document)).hexdigest()}"


def count(session: Session, job: Job, other_digest: str | None = None) -> int:
    """Return the number of different releases of the sources with which the job's own is one by digest.

    ``other_digest`` is the digest of the job's source in the other form.
    """
    known = [job.source_digest] if other_digest is None else [job.source_digest, other_digest]
    families = _families(known, _shared(job))
    different = sa.func.count(sa.distinct(_RELEASES.c.destination_digest))
    return session.scalar(sa.select(different).where(_RELEASES.c.family.in_(families), _shared(job))) or 0


def has_digests(session: Session, job: Job, rows: int, form: DigestForm) -> bool:
    """Whether the job's owner can see an entry of a source with ``rows`` rows and a digest of this form."""
    columns = _RELEASES.c
    found = sa.select(columns.id).where(
        _shared(job), columns.row_count == rows, columns.source_digest.startswith(f"{form.value}:")
    )
    return session.scalar(found.limit(1)) is not None


def candidates(session: Session, job: Job) -> list[list[sa.Row[Any]]]:
    """Return the entries of the sources that may be the job's: by digest, or with about as many rows.

    All entries of one source are in one list, oldest first; the sources are in the order of their newest.
    """
    columns = _RELEASES.c
    near = columns.row_count.between(job.row_count // 2, job.row_count * 2)
    found = (
        sa.select(columns.family)
        .where(_shared(job), sa.or_(columns.source_digest == job.source_digest, near))
        .order_by(columns.id.desc())
        .limit(_MOST_CANDIDATES)
    )
    families = list(dict.fromkeys(session.scalars(found)))
    if not families:
        return []
    query = sa.select(_RELEASES).where(_shared(job), columns.family.in_(families)).order_by(columns.id)
    members: dict[str, list[Any]] = {family: [] for family in families}
    for row in session.execute(query):
        members[row.family].append(row)
    return list(members.values())


def page(
    session: Session, caller: Caller, source: str | None, limit: int, after: str | None
) -> Sequence[Release]:
    """Return up to ``limit`` visible entries after the entry ``after``, oldest first.

    Parameters
    ----------
    session : Session
    caller : Caller
    source : str or None
        Digest of a source: only releases of it and of the sources recognised as the same; None: all.
    limit : int
    after : str or None
        Id of the last entry of the page before.
    """
    query = sa.select(Release).where(visible_to(caller, Release)).order_by(Release.id).limit(limit)
    if source is not None:
        query = query.where(Release.family.in_(_families([source], visible_to(caller, Release))))
    if after is not None:
        query = query.where(Release.id > after)
    return session.scalars(query).all()


def unrecorded(session: Session) -> list[str]:
    """Return the jobs of which the audit log has a release, but the ledger no entry, or a changed one."""
    columns = AuditLine.subject, AuditLine.who, AuditLine.reason
    lines = sa.select(*columns).where(AuditLine.action == "job.release")
    renamed = _last_renaming(session)
    expected = {
        row.subject: (_renamed(row.who or "", *renamed), row.reason) for row in session.execute(lines)
    }
    entries = session.scalars(sa.select(Release)).all()
    found = {entry.job_id: (entry.owner, f"ledger entry {digest_of(entry)}") for entry in entries}
    return sorted(job for job in expected.keys() | found.keys() if expected.get(job) != found.get(job))


def _last_renaming(session: Session) -> tuple[str, str]:
    """Return the prefixes between which the owners of tokens were renamed last: before, and after."""
    lines = sa.select(AuditLine.action, AuditLine.subject).where(AuditLine.action.in_((REOWNED, DISOWNED)))
    last = session.execute(lines.order_by(AuditLine.at.desc(), AuditLine.number.desc()).limit(1)).first()
    if last is None:
        return "", ""
    return (OIDC_BEFORE, last.subject) if last.action == REOWNED else (last.subject, OIDC_BEFORE)


def _renamed(owner: str, before: str, after: str) -> str:
    return after + owner.removeprefix(before) if before and owner.startswith(before) else owner


def _shared(job: Job) -> sa.ColumnElement[bool]:
    """Build the condition that the job's owner may see an entry, as a member of the job's project."""
    return visible_to(Caller(job.owner, job.project), Release)


def _families(sources: Sequence[str], visible: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(_RELEASES.c.family).where(_RELEASES.c.source_digest.in_(sources), visible)
