"""All SQL about the disclosure ledger. Functions that take a session work within the caller's transaction.

An entry outlives its job. Its digest is in the audit log, so that a changed or removed entry is noticed.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC
from functools import cache
from typing import Any, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.callers import OIDC_BEFORE, Caller, without_issuer
from app.store.crypto.canonical_json import canonical_json
from app.store.sql.audit.trail import CHAINS, LINES, SHARED, shared_lines
from app.store.sql.connection.quick_statements import execute
from app.store.sql.db import Database
from app.store.sql.models import Job, Release
from app.store.sql.pages import page_of
from app.store.sql.reseal import DISOWNED, REOWNED
from app.store.sql.visibility import visible_to
from providers.tables.digest import DigestForm

RELEASED = "job.release"
"""Action in the audit log: a job has an entry, whose digest is the reason of the line."""

MOST_CANDIDATES = 200
"""Newest entries with about as many rows with which a source is compared."""

MOST_NEWS = 1000
"""Entries that `news` returns at most, and one more if there are more."""

_RELEASES = cast(sa.Table, Release.__table__)

_INSERT = sa.insert(_RELEASES)

_LOCK = sa.select(sa.func.pg_advisory_xact_lock(sa.bindparam("number", type_=sa.BigInteger)))

_COLUMNS = frozenset(_RELEASES.c.keys()) - {"written_in"}
"""Columns that the service sets, and of which an entry's digest is."""


class Snapshot(NamedTuple):
    """Transactions of PostgreSQL that a query sees: ``pg_current_snapshot``."""

    server: str
    """Start of the server, and id of its table. Others may be a copy, with transactions of its own."""
    oldest: int
    """Number of the oldest transaction that was open; all before it had ended."""
    next: int
    """One more than the number of the newest transaction that had ended."""
    open: frozenset[int]
    """Numbers between them of transactions that were open."""

    @classmethod
    def parse(cls, text: str, server: str) -> "Snapshot":
        """Read a snapshot from the text that the server writes."""
        oldest, following, numbers = text.split(":")
        return cls(server, int(oldest), int(following), frozenset(map(int, filter(None, numbers.split(",")))))

    def __str__(self) -> str:
        """Write the text that the server reads."""
        return f"{self.oldest}:{self.next}:{','.join(map(str, sorted(self.open)))}"

    def sees(self, transaction: int) -> bool:
        """Whether the transaction had ended."""
        return transaction < self.next and transaction not in self.open

    def newer_than(self, other: "Snapshot") -> bool:
        """Whether more transactions of the same server had ended. It takes one snapshot after the other."""
        return (self.next, -len(self.open)) > (other.next, -len(other.open))


class News(NamedTuple):
    """Part of the ledger that a query has read."""

    snapshot: Snapshot
    """Snapshot of the query."""
    family: str | None
    """Family of the newest visible release with the digest of the job's source."""
    entries: Sequence[sa.Row[Any]]
    """New entries, visible to the job's owner, each with its ``owner``, ``project`` and ``written_in``."""


def insert(session: Session, entry: Release) -> str:
    """Add an entry; return the reason of its line in the audit log, which has its digest."""
    values = {name: value for name, value in vars(entry).items() if name in _COLUMNS}
    execute(session, _INSERT, values)
    return audited_as(entry)


def digest_of(entry: Release) -> str:
    """Return the SHA-256 of an entry as the audit log has it.

    The issuer of the owner is not part of the digest, so that entries of older versions keep theirs. The line
    of the audit log with the digest has the issuer.
    """
    document = {name: getattr(entry, name) for name in _COLUMNS}
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


def numbers_rows(session: Session) -> bool:
    """Whether rows are numbered in the order in which they are committed: SQLite has one writer at a time."""
    return session.get_bind().dialect.name == "sqlite"


def look_at_news(database: Database, job: Job, seen: Snapshot | None) -> News:
    """Return what `news` does, by a query outside of a transaction."""
    return _as_news(database.look_at_all(_news(job.project is not None), _of_news(job, seen)))


def news(session: Session, job: Job, seen: Snapshot | None) -> News:
    """Return the entries that the snapshot ``seen`` does not see, without one none. On PostgreSQL.

    The snapshot of the answer sees them, and all that ``seen`` does.
    """
    found, _ = execute(session, _news(job.project is not None), _of_news(job, seen))
    return _as_news(found)


def _of_news(job: Job, seen: Snapshot | None) -> dict[str, Any]:
    return {**_scope(job), "digest": job.source_digest, "seen": None if seen is None else str(seen)}


def _as_news(rows: Sequence[sa.Row[Any]]) -> News:
    entries = [row for row in rows if row.id is not None]  # one row has none if there are none
    return News(Snapshot.parse(rows[0].snapshot, rows[0].server), rows[0].source_family, entries)


def family_id_of_source(session: Session, job: Job) -> str | None:
    """Return the family of the newest visible release with the digest of the job's source; or None."""
    given = {**_scope(job), "digest": job.source_digest}
    found, _ = execute(session, _newest_by_digest(job.project is not None), given)
    return found[0].family if found else None


def wait_for_others(session: Session, job: Job) -> None:
    """Wait for other transactions that record a new source which the job's owner can see.

    Each transaction sees the entry of the one before it: SQLite has one writer at a time, and PostgreSQL gets
    a lock for the owner and one for the project, in one order.
    """
    if numbers_rows(session):
        return
    named = [hashlib.sha256(f"{name} {value}".encode()).digest() for name, value in _scope(job).items()]
    for number in sorted(int.from_bytes(digest[:8], "big", signed=True) for digest in named):
        execute(session, _LOCK, {"number": number})


def added_since(session: Session, job: Job, seen: str) -> list[sa.Row[Any]]:
    """Return the visible entries with about as many rows that a job was not compared with, newest first.

    ``seen`` is the state of the ledger in which the job was: SQLite's number of a row, or a snapshot.
    """
    if numbers_rows(session):
        added = added_after(session, job, int(seen))
    else:
        added = news(session, job, Snapshot.parse(seen, "")).entries
    near = [row for row in added if is_near(job.row_count, row.row_count)]
    return sorted(near, key=lambda row: row.id, reverse=True)[:MOST_CANDIDATES]


def newest_row(session: Session) -> int:
    """Return the number of the ledger's newest row, 0 without any. The database must number its rows."""
    found, _ = execute(session, _newest(), {})
    return found[0].number or 0


def near_entries(session: Session, job: Job, of: str) -> Sequence[sa.Row[Any]]:
    """Return the newest entries with about as many rows as the job, newest first: ``id, family``.

    Those of the job's owner, or of its project: ``of`` is "owner" or "project".
    """
    given = {of: getattr(job, of), **_near_sizes(job.row_count)}
    found, _ = execute(session, _near_of(of, numbers_rows(session)), given)
    return found


def is_near(rows: int, others: int) -> bool:
    """Return whether ``others`` is about equal to ``rows``, as numbers of rows of two sources."""
    least, most = _near_sizes(rows).values()
    return least <= others <= most


def added_after(session: Session, job: Job, mark: int) -> Sequence[sa.Row[Any]]:
    """Return the visible entries of all families after a mark, in the order in which they were added.

    Each with its ``number``, ``owner`` and ``project``. The database must number its rows.
    """
    found, _ = execute(session, _added(job.project is not None), {**_scope(job), "mark": mark})
    return found


def members(session: Session, job: Job, families: Collection[str]) -> Sequence[sa.Row[Any]]:
    """Return the visible entries of the families, oldest first."""
    given = _scope(job)
    if len(families) == 1:
        (family,) = families
        found, _ = execute(session, _members(job.project is not None, one=True), {**given, "family": family})
        return found
    query = _members(job.project is not None, one=False)
    return session.connection().execute(query, {**given, "families": list(families)}).all()


def _scope(job: Job) -> dict[str, Any]:
    return {"owner": job.owner} if job.project is None else {"owner": job.owner, "project": job.project}


def _near_sizes(rows: int) -> dict[str, int]:
    return {"least": rows // 2, "most": rows * 2}


# Statements of every run are built once for each kind of visibility. The owner of an entry that is found by
# another column is compared through `coalesce`: SQLite would else take the index of owners, and read all
# entries of an owner.


def _mine(in_project: bool) -> sa.ColumnElement[bool]:
    columns = _RELEASES.c
    own = sa.func.coalesce(columns.owner, "") == sa.bindparam("owner")
    if not in_project:
        return own
    return sa.or_(own, sa.func.coalesce(columns.project, "") == sa.bindparam("project"))


@cache
def _newest_by_digest(in_project: bool) -> sa.Select[Any]:
    columns = _RELEASES.c
    found = _mine(in_project), columns.source_digest == sa.bindparam("digest")
    return sa.select(columns.family).where(*found).order_by(columns.id.desc()).limit(1)


@cache
def _news(in_project: bool) -> sa.Select[Any]:
    columns, current = _RELEASES.c, sa.func.pg_current_snapshot()
    table = sa.cast(sa.cast(sa.func.to_regclass(_RELEASES.name), _ServerType("oid")), sa.Text)
    seen = sa.cast(sa.bindparam("seen", type_=sa.Text), _ServerType("pg_snapshot"))
    transaction = sa.cast(sa.cast(columns.written_in, sa.Text), _ServerType("xid8"))
    new = (
        sa.select(*_OF_MEMBERS, columns.owner, columns.project, columns.written_in)
        .where(
            _mine(in_project),
            columns.written_in >= _number(sa.func.pg_snapshot_xmin(seen)),
            columns.written_in < _number(sa.func.pg_snapshot_xmax(current)),
            sa.not_(sa.func.pg_visible_in_snapshot(transaction, seen)),
        )
        .limit(MOST_NEWS + 1)
        .subquery("new")
    )
    found = sa.select(
        (sa.cast(sa.func.pg_postmaster_start_time(), sa.Text) + sa.literal(" ") + table).label("server"),
        sa.cast(current, sa.Text).label("snapshot"),
        _newest_by_digest(in_project).scalar_subquery().label("source_family"),
    ).subquery("found")
    return sa.select(*found.c, *new.c).select_from(found.outerjoin(new, sa.true()))


def _number(transaction: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.cast(sa.cast(transaction, sa.Text), sa.BigInteger)


class _ServerType(sa.types.UserDefinedType[Any]):
    """Type of PostgreSQL."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        """Return its name in SQL."""
        return self.name


@cache
def _near_of(name: str, numbered: bool) -> sa.Select[Any]:
    columns = _RELEASES.c
    query = sa.select(columns.id, columns.family).where(columns[name] == sa.bindparam(name))
    query = query.where(columns.row_count.between(sa.bindparam("least"), sa.bindparam("most")))
    # In the order of insertion, which SQLite's indices of owners and of projects have.
    order = _row_number() if numbered else columns.id
    return query.order_by(order.desc()).limit(MOST_CANDIDATES)


def _row_number() -> sa.Label[int]:
    """Build SQLite's number of a row."""
    return sa.literal_column("ledger.rowid", sa.Integer).label("number")


@cache
def _newest() -> sa.Select[Any]:
    return sa.select(sa.func.max(sa.literal_column("rowid", sa.Integer)).label("number")).select_from(
        _RELEASES
    )


_OF_MEMBERS = (
    _RELEASES.c.id,
    _RELEASES.c.job_id,
    _RELEASES.c.family,
    _RELEASES.c.source_digest,
    _RELEASES.c.destination_digest,
    _RELEASES.c.row_count,
    _RELEASES.c.released_at,
    _RELEASES.c.epsilon,
    _RELEASES.c.sketch,
)


@cache
def _members(in_project: bool, one: bool) -> sa.Select[Any]:
    columns = _RELEASES.c
    families: sa.ColumnElement[bool] = columns.family == sa.bindparam("family")
    if not one:
        families = columns.family.in_(sa.bindparam("families", expanding=True))
    return sa.select(*_OF_MEMBERS).where(_mine(in_project), families).order_by(columns.id)


@cache
def _added(in_project: bool) -> sa.Select[Any]:
    number = _row_number()
    query = sa.select(*_OF_MEMBERS, _RELEASES.c.owner, _RELEASES.c.project, number).where(_mine(in_project))
    # In another order SQLite would read all rows.
    return query.where(number > sa.bindparam("mark", type_=sa.Integer)).order_by(number)


def page(
    session: Session, caller: Caller, source: str | None, limit: int, after: str | None
) -> tuple[Sequence[Release], str | None]:
    """Return up to ``limit`` visible entries after the entry ``after``, oldest first; see `page_of`.

    Their sketches are not loaded.

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
    query = sa.select(Release).where(visible_to(caller, Release)).order_by(Release.id)
    if source is not None:
        query = query.where(Release.family.in_(_families([source], visible_to(caller, Release))))
    if after is not None:
        query = query.where(Release.id > after)
    return page_of(session, query, Release, limit, without=[Release.sketch])


def unrecorded(session: Session) -> list[str]:
    """Return the jobs whose releases in the audit log differ from the entries of the ledger.

    An entry is missing, changed or duplicated, or the log has no line or two different lines of it. The
    caller must have verified the log, so that its lines come from the service.
    """
    renamed = _last_renaming(session)
    recorded: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for line in _audited(session, RELEASED):
        recorded[line.subject].add((_renamed(line.who or "", *renamed), line.reason or ""))
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for entry in session.scalars(sa.select(Release)):
        found[entry.job_id].append((entry.owner, audited_as(entry)))
    return sorted(
        job
        for job in recorded.keys() | found.keys()
        if len(found[job]) != 1 or set(found[job]) != recorded[job]
    )


def audited_as(entry: Release) -> str:
    """Return the reason of the line that the audit log has of an entry."""
    return f"ledger entry {digest_of(entry)}"


def _last_renaming(session: Session) -> tuple[str, str]:
    """Return the prefixes between which the owners of tokens were renamed last: before, and after."""
    lines = sorted(_audited(session, REOWNED, DISOWNED), key=lambda line: (line.at, line.number))
    if not lines:
        return "", ""
    last = lines[-1]
    return (OIDC_BEFORE, last.subject) if last.action == REOWNED else (last.subject, OIDC_BEFORE)


def _audited(session: Session, *actions: str) -> Iterator[sa.Row[Any]]:
    """Yield the lines of the audit log with one of these actions, by chain and number.

    A line counts only where `audit.verification.verify` reads it: in a chain that has a head, up to that
    head, or in the tables of the shared chain.
    """
    columns = LINES.c
    names = ("number", "at", "action", "subject", "who", "reason")
    chained = (
        sa.select(*(columns[name] for name in names))
        .join(CHAINS, (CHAINS.c.chain == columns.chain) & (columns.number <= CHAINS.c.number))
        .where(columns.chain != SHARED, columns.action.in_(actions))
        .order_by(columns.chain, columns.number)
    )
    yield from session.execute(chained)
    shared = shared_lines().subquery()
    older = sa.select(*(shared.c[name] for name in names)).where(shared.c.action.in_(actions))
    yield from session.execute(older.order_by(shared.c.number))


def _renamed(owner: str, before: str, after: str) -> str:
    return after + owner.removeprefix(before) if before and owner.startswith(before) else owner


def _shared(job: Job) -> sa.ColumnElement[bool]:
    """Build the condition that the job's owner may see an entry, as a member of the job's project."""
    return visible_to(Caller(job.owner, job.project), Release)


def _families(sources: Sequence[str], visible: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(_RELEASES.c.family).where(_RELEASES.c.source_digest.in_(sources), visible)
