"""The tables of the database. What must not be read there is sealed before it comes here."""

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
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

STATES = ("queued", "running", "succeeded", "failed", "cancelled")
"""What `app.jobs.states` moves jobs between; stands here too because the database holds it."""

DELIVERY_STATES = ("pending", "delivered", "given_up")


NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

Json = JSON(none_as_null=True)
"""As it was written, in PostgreSQL too: its JSONB would sort keys, and refuse the character U+0000."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: goes in with its zone, lies in UTC, comes out in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """A moment without a zone is refused: it would be a guess."""
        if value is not None and value.tzinfo is None:
            raise ValueError("a moment needs its time zone")
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """SQLite keeps no zone: what lies there is UTC. PostgreSQL tells the moment in its own."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """All tables; constraints are named by rule, so that a migration can name them too."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar = {
        datetime: UtcDateTime,
        int: BigInteger().with_variant(Integer, "sqlite"),  # SQLite counts up plain INTEGER alone
        dict[str, Any]: Json,
        list[dict[str, Any]]: Json,
    }


class Job(Base):
    """One run of a service, from its acceptance to its end and until it is purged."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(f"state IN {STATES}", name="state"),
        Index(None, "state", "id"),
        Index(None, "state", "ranked_at", "id"),
        Index(None, "owner", "state"),
        Index(None, "service", "id"),
        Index(None, "source_blob"),
        Index(None, "destination_blob"),
        Index(None, "finished_at"),
        Index(None, "owner", "id"),
        Index(None, "project", "id"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    """UUID version 7: in the order of creation."""
    owner: Mapped[str] = mapped_column(String(300), server_default="anonymous")
    """Whose it is: `app.callers.Caller.owner`. Limits count by it."""
    project: Mapped[str | None] = mapped_column(String(64))
    """Whose members see it too."""
    service: Mapped[str] = mapped_column(String(40))
    revision: Mapped[int]
    state: Mapped[str] = mapped_column(String(10))
    outcome: Mapped[str | None] = mapped_column(String(20))
    parameters: Mapped[dict[str, Any]]
    """As checked, every name resolved; the seed is not among them."""
    options: Mapped[dict[str, Any] | None]
    """What is asked of the job besides its parameters, such as ``{"measures": {...}}``."""

    sealed_seed: Mapped[bytes] = mapped_column(deferred=True)
    seed_fingerprint: Mapped[str] = mapped_column(String(16))
    seed_bits: Mapped[int]
    """Bits that an exhaustive search for the seed must cover."""

    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    priority: Mapped[str] = mapped_column(String(10), default="normal", server_default="normal")
    ranked_at: Mapped[datetime]
    """The order in which jobs are claimed: the moment of creation, moved by the priority."""
    deadline: Mapped[datetime | None]
    """A job that has not ended by then fails."""

    row_count: Mapped[int]
    """Rows of the source."""
    byte_size: Mapped[int] = mapped_column(default=0, server_default="0")
    """Bytes of the tables that it was given."""
    source_digest: Mapped[str] = mapped_column(String(80))
    source_fields: Mapped[list[dict[str, Any]]]
    source_blob: Mapped[str | None] = mapped_column(String(32))
    """May be shared with a buffer or with other runs of the same job."""
    source_buffer: Mapped[str | None] = mapped_column(String(36))
    """The buffer it was taken from; that may be gone by now."""
    source_reference: Mapped[str | None] = mapped_column(Text)
    """Where it was read, if that was by reference. A reference has no credentials in it."""
    destination_digest: Mapped[str | None] = mapped_column(String(80))
    destination_fields: Mapped[list[dict[str, Any]] | None]
    destination_rows: Mapped[int | None]
    destination_blob: Mapped[str | None] = mapped_column(String(32))
    """What came out; of a job that judges a table, that table, which may be shared like a source."""
    destination_buffer: Mapped[str | None] = mapped_column(String(36))
    """The buffer that the judged table was taken from."""
    destination_reference: Mapped[str | None] = mapped_column(Text)
    """Where it is written before the job has succeeded; of a judged table, where that was read."""
    destination_media_type: Mapped[str | None] = mapped_column(String(60))
    """As what it is written to its reference."""
    inline: Mapped[bool]
    """The source came in the request, so the answer brings the rows along."""
    retain_source: Mapped[bool]

    report_level: Mapped[str] = mapped_column(String(10))
    events: Mapped[list[dict[str, Any]] | None]
    event_counts: Mapped[dict[str, Any] | None]
    sealed_report: Mapped[bytes | None] = mapped_column(deferred=True)
    """The report's JSON, sealed: it has labels and bounds of the source's groups."""
    manifest: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """``{"manifest": ..., "signature": ...}``."""
    error: Mapped[dict[str, Any] | None]
    """A problem document."""

    rerun_of: Mapped[str | None] = mapped_column(String(36))
    reproduced: Mapped[bool | None]
    sealed_webhook: Mapped[bytes | None]
    """Whom to tell of its end, and the secret to sign with: an address may hold a secret too."""
    trace_parent: Mapped[str | None] = mapped_column(String(64))
    """The span of the request (W3C Trace Context), where traces are taken."""

    attempt: Mapped[int] = mapped_column(default=0)
    """Counts the claims; an end is recorded only by the claim it belongs to."""
    crashes: Mapped[int] = mapped_column(default=0)
    """How often the service ended while this job ran."""
    claimed_by: Mapped[str | None] = mapped_column(String(36))
    """The replica that works on it, and whose lease it needs."""
    cancel_requested: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Somebody wants it to stop; whoever works on it sees this."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.finished_at is not None


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
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class Replica(Base):
    """One run of the service, for as long as its lease lasts. What it works on is nobody else's."""

    __tablename__ = "replicas"

    id: Mapped[str] = mapped_column(String(12), primary_key=True)
    """Ends the names of the blobs that it makes."""
    lease_until: Mapped[datetime]
    """By the database's clock."""
    key_id: Mapped[str] = mapped_column(String(16))
    """Names the master key that it seals with."""
    folder_id: Mapped[str] = mapped_column(String(32))
    """Names the shared folder that it reaches."""


class Caller(Base):
    """Somebody who has asked for something: the row that whoever counts for them locks."""

    __tablename__ = "callers"
    __table_args__ = (Index(None, "seen_at"),)

    owner: Mapped[str] = mapped_column(String(300), primary_key=True)
    seen_at: Mapped[datetime]


class IdempotencyKey(Base):
    """What a request under a key has made."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index(None, "expires_at"), Index(None, "resource"))

    owner: Mapped[str] = mapped_column(String(300), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(16))
    """Of the request. Keyed: it holds a seed and rows."""
    resource: Mapped[str] = mapped_column(String(36))
    """The job or the buffer."""
    expires_at: Mapped[datetime]


class Delivery(Base):
    """A message to a webhook: written with the job's end, kept until it has arrived or was given up."""

    __tablename__ = "deliveries"
    __table_args__ = (
        CheckConstraint(f"state IN {DELIVERY_STATES}", name="state"),
        Index(None, "state", "due_at"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    """Also the message's own, the same at every attempt."""
    job_id: Mapped[str] = mapped_column(String(36))
    sealed_webhook: Mapped[bytes | None]
    """As in the job; None when there is nothing left to deliver."""
    body: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(10))
    attempts: Mapped[int] = mapped_column(default=0)
    """Counts the claims; a result is recorded only by the claim it belongs to."""
    due_at: Mapped[datetime]
    """When the next attempt may be made; whoever makes one puts it off first."""
    ended_at: Mapped[datetime | None]


class ApiKey(Base):
    """What a caller shows. The key itself is kept nowhere."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    """The part of the key that is no secret."""
    name: Mapped[str] = mapped_column(String(64))
    """The identity; keys of one name are one identity, so that a key can be changed for another."""
    project: Mapped[str | None] = mapped_column(String(64))
    scopes: Mapped[str] = mapped_column(String(100))
    """With spaces between them."""
    mac: Mapped[str] = mapped_column(String(64))
    """HMAC-SHA256 over the key itself, name, project, scopes and expiry."""
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    """To the hour."""


class KeptKey(Base):
    """A key of the service itself, sealed under the master key, which may be changed for another."""

    __tablename__ = "kept_keys"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    sealed: Mapped[bytes]


class AuditLine(Base):
    """That something was done, kept when the thing itself is gone. Only ever added to."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    """Counts from 1 without a gap."""
    at: Mapped[datetime]
    action: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(Text)
    """The id of what it was done to."""
    who: Mapped[str | None] = mapped_column(String(300))
    """None of a line from before there were identities, and so the next four."""
    project: Mapped[str | None] = mapped_column(String(64))
    request: Mapped[str | None] = mapped_column(String(64))
    """Names the request that did it, as the log does."""
    reason: Mapped[str | None] = mapped_column(Text)
    mac: Mapped[str | None] = mapped_column(String(64))
    """HMAC-SHA256 over the line and the one before: see `app.store.audit`."""


class AuditHead(Base):
    """The last line of the audit. Whoever adds one holds this row, so that lines follow one another."""

    __tablename__ = "audit_head"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """1: there is one row."""
    number: Mapped[int]
    mac: Mapped[str] = mapped_column(String(64))
