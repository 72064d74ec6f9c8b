"""Tables of the database. Secret values are sealed before they are stored."""

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

STATES = ("queued", "running", "succeeded", "failed", "cancelled")
"""States of a job, as in `app.jobs.states`; repeated here for the check constraint."""

_LABELLED = "label IS NOT NULL"

_WRITTEN = "written_in IS NOT NULL"

_OF_SERIES = "series_id IS NOT NULL"

DELIVERY_STATES = ("pending", "delivered", "given_up")

PENDING = "state = 'pending'"
"""Condition of the index of pending messages, which a query that uses it has as well."""

_TABLES = ("source", "destination", "control")

HOLDING = (
    "finished_at IS NOT NULL AND ("
    + " OR ".join(
        f"{column} IS NOT NULL" for table in _TABLES for column in (f"{table}_blob", f"sealed_{table}")
    )
    + ")"
)
"""Condition of the index of ended jobs that hold tables, which a query that uses it has as well."""

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

Json = JSON(none_as_null=True)
"""Plain JSON, in PostgreSQL too: JSONB would sort keys and reject the character U+0000."""


class CurrentTransaction(FunctionElement[int]):
    """Number of the current transaction in PostgreSQL; null in SQLite."""

    inherit_cache = True


@compiles(CurrentTransaction, "postgresql")
def _on_postgresql(element: CurrentTransaction, compiler: SQLCompiler, **_: Any) -> str:
    return "CAST(CAST(pg_current_xact_id() AS text) AS bigint)"


@compiles(CurrentTransaction, "sqlite")
def _on_sqlite(element: CurrentTransaction, compiler: SQLCompiler, **_: Any) -> str:
    return "NULL"


class UtcDateTime(TypeDecorator[datetime]):
    """Time with a time zone; stored and returned in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC. Raises ValueError for a time without a zone."""
        if value is not None and value.tzinfo is None:
            raise ValueError("a moment needs a time zone")
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC. SQLite stores no zone; PostgreSQL returns its own."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Base of all tables; constraints have rule-based names, which migrations can refer to."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar = {
        datetime: UtcDateTime,
        int: BigInteger().with_variant(Integer, "sqlite"),  # SQLite autoincrements only plain INTEGER
        dict[str, Any]: Json,
        list[dict[str, Any]]: Json,
    }


class Job(Base):
    """Job, from its acceptance until it is purged."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(f"state IN {STATES}", name="state"),
        Index(None, "state", "id"),
        Index(None, "state", "ranked_at", "id"),
        Index(None, "owner", "state"),
        Index(None, "service", "id"),
        Index(None, "source_blob"),
        Index(None, "destination_blob"),
        Index(None, "control_blob"),
        Index(None, "finished_at"),
        Index(None, "owner", "id"),
        Index(None, "project", "id"),
        Index("ix_jobs_holding", "finished_at", "id", sqlite_where=text(HOLDING)),
        # Only labelled jobs, and those of a series, so that small calls do not pay for it. On PostgreSQL the
        # migrations say so: `postgresql_where` would load that dialect, 5 MB, into every service.
        Index(None, "label", "id", sqlite_where=text(_LABELLED)),
        Index(None, "series_id", sqlite_where=text(_OF_SERIES)),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    """UUID version 7, which sorts by creation time."""
    owner: Mapped[str] = mapped_column(String(300), server_default="anonymous")
    """Owner (`app.callers.Caller.owner`), to whom limits apply."""
    project: Mapped[str | None] = mapped_column(String(64))
    """Project whose members can see the job too."""
    service: Mapped[str] = mapped_column(String(40))
    revision: Mapped[int]
    state: Mapped[str] = mapped_column(String(10))
    outcome: Mapped[str | None] = mapped_column(String(20))
    parameters: Mapped[dict[str, Any]]
    """Validated parameters with all names resolved, without the seed."""
    options: Mapped[dict[str, Any] | None]
    """Options besides the parameters, such as ``{"measures": {...}}``."""

    sealed_seed: Mapped[bytes] = mapped_column(deferred=True)
    seed_fingerprint: Mapped[str] = mapped_column(String(16))
    seed_bits: Mapped[int]
    """Bits that an exhaustive search for the seed must cover."""

    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    priority: Mapped[str] = mapped_column(String(10), default="normal", server_default="normal")
    ranked_at: Mapped[datetime]
    """Position in the queue, a virtual time: see `app.jobs.fairness.turns`."""
    deadline: Mapped[datetime | None]
    """Time at which the job fails if it has not ended."""

    row_count: Mapped[int]
    """Rows of the source."""
    byte_size: Mapped[int] = mapped_column(default=0, server_default="0")
    """Bytes of the tables given to the job."""
    source_digest: Mapped[str] = mapped_column(String(80))
    source_fields: Mapped[list[dict[str, Any]]]
    source_blob: Mapped[str | None] = mapped_column(String(32))
    """Blob of the source, which a buffer or reruns may share."""
    source_buffer: Mapped[str | None] = mapped_column(String(36))
    """Buffer of the source, which may have been deleted since."""
    sealed_source_key: Mapped[bytes | None]
    """Data key of the source's blob, sealed to this row; see `app.store.sql.bindings`."""
    source_reference: Mapped[str | None] = mapped_column(Text)
    """Reference that the source was read from, if any. References contain no credentials."""
    destination_digest: Mapped[str | None] = mapped_column(String(80))
    destination_fields: Mapped[list[dict[str, Any]] | None]
    destination_rows: Mapped[int | None]
    destination_blob: Mapped[str | None] = mapped_column(String(32))
    """Blob of the destination; of a measures job, the table that it measures, which may be shared."""
    destination_buffer: Mapped[str | None] = mapped_column(String(36))
    """Buffer of the table that a measures job measures."""
    sealed_destination_key: Mapped[bytes | None]
    """Data key of the destination's blob, sealed to this row."""
    destination_reference: Mapped[str | None] = mapped_column(Text)
    """Reference that the destination is written to; of a measures job, read from."""
    destination_media_type: Mapped[str | None] = mapped_column(String(60))
    """Media type of the destination at its reference."""
    control_digest: Mapped[str | None] = mapped_column(String(80))
    """Digest of an attack's control, rows that were not in the source."""
    control_fields: Mapped[list[dict[str, Any]] | None]
    control_rows: Mapped[int | None]
    control_blob: Mapped[str | None] = mapped_column(String(32))
    control_buffer: Mapped[str | None] = mapped_column(String(36))
    sealed_control_key: Mapped[bytes | None]
    """Data key of the control's blob, sealed to this row."""
    control_reference: Mapped[str | None] = mapped_column(Text)
    inline: Mapped[bool]
    """Whether the source came in the request, so that the response returns the rows."""
    retain_source: Mapped[bool]

    report_level: Mapped[str] = mapped_column(String(10))
    events: Mapped[list[dict[str, Any]] | None]
    event_counts: Mapped[dict[str, Any] | None]
    sealed_report: Mapped[bytes | None] = mapped_column(deferred=True)
    """Sealed JSON of the report, which contains labels and bounds of the source's groups."""
    manifest: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """``{"manifest": ..., "signature": ...}``."""
    error: Mapped[dict[str, Any] | None]
    """Problem document (RFC 9457) of a failed job."""

    rerun_of: Mapped[str | None] = mapped_column(String(36))
    reproduced: Mapped[bool | None]
    sealed_webhook: Mapped[bytes | None]
    """Sealed webhook: the address, which may contain a secret, and the signing secret."""
    trace_parent: Mapped[str | None] = mapped_column(String(64))
    """Span of the request (W3C Trace Context), if traces are recorded."""

    attempt: Mapped[int] = mapped_column(default=0)
    """Counts the claims; an end is recorded only by the claim it belongs to."""
    crashes: Mapped[int] = mapped_column(default=0)
    """Number of times that the service ended while this job ran."""
    claimed_by: Mapped[str | None] = mapped_column(String(36))
    """Replica that runs the job under its lease."""
    cancel_requested: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether a caller has requested cancellation; the replica that runs the job polls this."""

    name: Mapped[str | None] = mapped_column(String(120))
    """Name for people. It, the label and the notes may be personal data."""
    label: Mapped[str | None] = mapped_column(String(120))
    """Label that jobs which belong together share."""
    notes: Mapped[str | None] = mapped_column(Text)
    destination_options: Mapped[dict[str, Any] | None]
    """Options of the destination at its reference (`app.jobs.requests.SendTo.options`)."""
    series_id: Mapped[str | None] = mapped_column(String(36))
    """Series of the job."""
    series_base: Mapped[int | None]
    """Number of the series' waves that the job has read, once it has succeeded; of a rerun from the start."""
    sealed_source: Mapped[bytes | None] = mapped_column(deferred=True)
    """Sealed stream of a small source; then `source_blob` is None. The last columns: reading the others
    skips what is large."""
    sealed_destination: Mapped[bytes | None] = mapped_column(deferred=True)
    """Sealed stream of a small destination; then `destination_blob` is None."""
    sealed_control: Mapped[bytes | None] = mapped_column(deferred=True)
    """Sealed stream of a small control; then `control_blob` is None."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.finished_at is not None

    def as_it_is(self) -> "Job":
        """Return a copy, which later changes of this object do not change."""
        copied = Job()
        vars(copied).update((name, value) for name, value in vars(self).items() if not name.startswith("_"))
        return copied

    @property
    def encoded_rows(self) -> bytes | None:
        """Rows of a small destination as JSON, where `keep_encoded_rows` was called; not a column."""
        rows: bytes | None = vars(self).get("_encoded_rows")
        return rows

    def keep_encoded_rows(self, rows: bytes | None) -> None:
        """Keep the rows that the worker has encoded for the response; None: the worker has not."""
        self._encoded_rows = rows


class Queue(Base):
    """Virtual time of the queue; see `app.jobs.fairness.turns`."""

    __tablename__ = "queue"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Always 1: the table has one row."""
    turn: Mapped[datetime]
    """Largest turn that has started after it had waited."""


class Release(Base):
    """Entry of the disclosure ledger: one release of a source. It outlives its job and holds no value."""

    __tablename__ = "ledger"
    __table_args__ = (
        # Both have all columns of a run's queries: the rows themselves are large.
        Index(None, "source_digest", "id", "owner", "project", "family"),
        Index(None, "family", "id", "owner", "project"),
        Index(None, "owner"),
        Index(None, "project"),
        Index(None, "row_count"),
        Index(None, "written_in", sqlite_where=text(_WRITTEN)),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    """UUID version 7, which sorts by time."""
    job_id: Mapped[str] = mapped_column(String(36))
    family: Mapped[str] = mapped_column(String(36))
    """Job of the first release of this source, the same for all sources that were recognised as one."""
    released_at: Mapped[datetime]
    owner: Mapped[str] = mapped_column(String(300))
    project: Mapped[str | None] = mapped_column(String(64))
    service: Mapped[str] = mapped_column(String(40))
    revision: Mapped[int]
    source_digest: Mapped[str] = mapped_column(String(80))
    destination_digest: Mapped[str] = mapped_column(String(80))
    row_count: Mapped[int]
    match: Mapped[str | None] = mapped_column(String(10))
    """Recognition of the source: ``digest`` or ``fields``; None: it was not released before."""
    risk: Mapped[dict[str, Any] | None]
    """Risk of all releases until this one: see `app.worker.release_check.measured_risk`."""
    reason: Mapped[str | None] = mapped_column(Text)
    """Reason that the request gave for another release."""
    epsilon: Mapped[dict[str, Any] | None]
    """Epsilon of the release and of all releases together: see `app.worker.release_check.composed_epsilon`;
    None: the release states none."""
    sketch: Mapped[dict[str, Any]]
    """Keyed sketches of the source (`providers.tables.sketches`)."""
    written_in: Mapped[int | None] = mapped_column(server_default=CurrentTransaction())
    """Number of the transaction that has added the entry, which PostgreSQL sets; None: before 2026-11-29, or
    in SQLite. See `app.jobs.releases.server_ledger`."""


class Buffer(Base):
    """An uploaded table."""

    __tablename__ = "buffers"
    __table_args__ = (Index(None, "blob"), Index(None, "expires_at"), Index(None, "owner"))

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    owner: Mapped[str] = mapped_column(String(300), server_default="anonymous")
    project: Mapped[str | None] = mapped_column(String(64))
    digest: Mapped[str] = mapped_column(String(80))
    fields: Mapped[list[dict[str, Any]]]
    row_count: Mapped[int]
    byte_size: Mapped[int]
    """Plain bytes of the blob."""
    blob: Mapped[str] = mapped_column(String(32))
    sealed_key: Mapped[bytes | None]
    """Data key of the blob, sealed to this row; None in rows of older versions."""
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    name: Mapped[str | None] = mapped_column(String(120))
    """Name for people. It, the label and the notes may be personal data."""
    label: Mapped[str | None] = mapped_column(String(120))
    """Label that tables and jobs which belong together share."""
    notes: Mapped[str | None] = mapped_column(Text)


class Series(Base):
    """Series of tables in which a unit keeps its partner; kept until it is deleted."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("owner", "name"), Index(None, "project", "id"))

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    """UUID version 7, which sorts by creation time."""
    owner: Mapped[str] = mapped_column(String(300))
    project: Mapped[str | None] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(64))
    sealed_key: Mapped[bytes] = mapped_column(deferred=True)
    """Key of the hashes of ids, sealed to this row."""
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime]
    """Time at which the last job of the series was accepted."""


class SeriesPart(Base):
    """Pairs of one wave of a series, or a part of them. Rows are never changed but by a rotation of keys."""

    __tablename__ = "series_pairs"
    __table_args__ = (UniqueConstraint("series_id", "wave", "part"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    series_id: Mapped[str] = mapped_column(String(36))
    wave: Mapped[int]
    """Number of the wave, from 1 without a gap."""
    part: Mapped[int]
    """Number of the part, from 0."""
    job_id: Mapped[str] = mapped_column(String(36))
    """Job that made the wave, which may have been deleted since."""
    units: Mapped[int]
    """Number of the pairs."""
    ids: Mapped[str] = mapped_column(String(8))
    """Type of the ids: ``integers`` or ``text``."""
    created_at: Mapped[datetime]
    sealed_pairs: Mapped[bytes]
    """Sealed pairs: see `providers.tables.series_pairs`."""


class Replica(Base):
    """One run of the service and its lease. Under the lease it owns the jobs that it runs."""

    __tablename__ = "replicas"

    id: Mapped[str] = mapped_column(String(12), primary_key=True)
    """Random id, which ends the ids of the blobs that the replica makes."""
    lease_until: Mapped[datetime]
    """End of the lease, by the database's clock."""
    key_id: Mapped[str] = mapped_column(String(16))
    """Id of the master key that it seals with."""
    folder_id: Mapped[str] = mapped_column(String(32))
    """Id of its shared folder."""
    runs: Mapped[dict[str, Any] | None]
    """Jobs that it can run (`app.job_kinds.Runs`), ids of its master keys and of its signing key, and the
    length of its lease; None of a version that does not say."""


class Caller(Base):
    """Caller that has made a request; its row is locked while its usage is counted."""

    __tablename__ = "callers"
    __table_args__ = (Index(None, "seen_at"),)

    owner: Mapped[str] = mapped_column(String(300), primary_key=True)
    seen_at: Mapped[datetime]


class IdempotencyKey(Base):
    """Idempotency key and the job or buffer made under it."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index(None, "expires_at"), Index(None, "resource"))

    owner: Mapped[str] = mapped_column(String(300), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(16))
    """Keyed hash of the request, which contains a seed and rows."""
    resource: Mapped[str] = mapped_column(String(36))
    """Id of the job or buffer."""
    expires_at: Mapped[datetime]


class Delivery(Base):
    """Message to a webhook, written in the transaction that ends the job."""

    __tablename__ = "deliveries"
    __table_args__ = (
        CheckConstraint(f"state IN {DELIVERY_STATES}", name="state"),
        # Only pending messages, and no other index of theirs: the databases would prefer one by the time, and
        # pass all messages of other owners. On PostgreSQL the migrations have the condition: see `Job`.
        Index(None, "owner", "receiver", "due_at", "id", sqlite_where=text(PENDING)),
        Index(None, "ended_at"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    """Id of the message, the same at every attempt."""
    job_id: Mapped[str] = mapped_column(String(36), index=True)
    owner: Mapped[str] = mapped_column(String(300), default="", server_default=text("''"))
    """Owner of the job while the message is pending, otherwise empty, as for messages of older versions."""
    receiver: Mapped[str] = mapped_column(String(2), default="", server_default=text("''"))
    """Class of the receiver among the owner's receivers while the message is pending: see
    `app.webhooks.messages.receiver_class`. Otherwise empty, as for messages of older versions."""
    sealed_webhook: Mapped[bytes | None]
    """Webhook of the job, sealed to this row with its job and body, so that no other body is signed with its
    secret; None once the message is delivered or given up."""
    body: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(10))
    attempts: Mapped[int] = mapped_column(default=0)
    """Counts the claims; a result is recorded only by the claim it belongs to."""
    due_at: Mapped[datetime]
    """Time of the next attempt; a claim postpones it."""
    problem: Mapped[str | None] = mapped_column(String(100))
    """Cause for which the last attempt failed; None before the first attempt ends, and after a delivery."""
    ended_at: Mapped[datetime | None]


class ApiKey(Base):
    """API key. The key itself is not stored."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    """Public part of the key."""
    name: Mapped[str] = mapped_column(String(64))
    """Name of the identity; keys of the same name share it, so that a key can be replaced."""
    project: Mapped[str | None] = mapped_column(String(64))
    scopes: Mapped[str] = mapped_column(String(100))
    """Scopes, separated by spaces."""
    mac: Mapped[str] = mapped_column(String(64))
    """HMAC-SHA256 over the key itself, name, project, scopes and expiry."""
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    """Last use, to the hour."""


class KeptKey(Base):
    """Key of the service itself, sealed under the master key, which may be rotated."""

    __tablename__ = "kept_keys"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    sealed: Mapped[bytes]


class SharedAuditLine(Base):
    """Line of the audit log's one chain of older versions; it outlives its subject."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    """Counts from 1 without a gap."""
    at: Mapped[datetime]
    action: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(Text)
    """Id of the job, buffer or key."""
    who: Mapped[str | None] = mapped_column(String(300))
    """Owner of the caller. This and the next four are None in lines from before identities existed."""
    project: Mapped[str | None] = mapped_column(String(64))
    request: Mapped[str | None] = mapped_column(String(64))
    """Request id, as in the service's log."""
    reason: Mapped[str | None] = mapped_column(Text)
    mac: Mapped[str | None] = mapped_column(String(64))
    """HMAC-SHA256 over the line and the one before: see `app.store.sql.audit.trail`."""


class SharedAuditHead(Base):
    """Last line of the chain of older versions."""

    __tablename__ = "audit_head"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Always 1: the table has one row."""
    number: Mapped[int]
    mac: Mapped[str] = mapped_column(String(64))


class AuditChain(Base):
    """Last line of one chain of the audit log. Appending a line locks this row."""

    __tablename__ = "audit_chains"

    chain: Mapped[str] = mapped_column(String(16), primary_key=True)
    number: Mapped[int]
    mac: Mapped[str] = mapped_column(String(64))


class AuditLine(Base):
    """Line of one chain of the append-only audit log; it outlives its subject."""

    __tablename__ = "audit_lines"

    chain: Mapped[str] = mapped_column(String(16), primary_key=True)
    """Name of the chain: `operator`, or that of the process that has written it."""
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Counts the lines of the chain from 1 without a gap."""
    at: Mapped[datetime]
    action: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(Text)
    """Id of the job, buffer or key."""
    who: Mapped[str | None] = mapped_column(String(300))
    """Owner of the caller."""
    project: Mapped[str | None] = mapped_column(String(64))
    request: Mapped[str | None] = mapped_column(String(64))
    """Request id, as in the service's log."""
    reason: Mapped[str | None] = mapped_column(Text)
    mac: Mapped[str] = mapped_column(String(64))
    """HMAC-SHA256 over the line and the one before: see `app.store.sql.audit.trail`."""


class AuditCheckpoint(Base):
    """Signed statement of where the chains of the audit log end: see `app.store.sql.audit.checkpoints`."""

    __tablename__ = "audit_checkpoints"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Counts from 1 without a gap."""
    at: Mapped[datetime]
    mac: Mapped[str] = mapped_column(String(64))
    """HMAC-SHA256 over number, time, heads and the HMAC of the checkpoint before."""
    signature: Mapped[str] = mapped_column(Text)
    """JSON of the signature."""


class AuditCheckpointHead(Base):
    """Last line of a chain at the time of a checkpoint, if the chain has grown since the one before."""

    __tablename__ = "audit_checkpoint_heads"

    checkpoint: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    chain: Mapped[str] = mapped_column(String(16), primary_key=True)
    number: Mapped[int]
    mac: Mapped[str] = mapped_column(String(64))

    __table_args__ = (Index("ix_audit_checkpoint_heads_chain_number", "chain", "number"),)


class SchemaSupport(Base):
    """Revision of the tables whose version of the service can work with the tables as they are now."""

    __tablename__ = "schema_support"

    revision: Mapped[str] = mapped_column(String(80), primary_key=True)


class Deployment(Base):
    """The id that this database shares with the folder of its blobs: see `app.store.sql.deployment`."""

    __tablename__ = "deployment"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Always 1: the table has one row."""
    deployment_id: Mapped[str] = mapped_column(String(32))
    in_folder: Mapped[bool]
    """Whether the folder is marked with the id. If so, a folder without a mark is another one."""
