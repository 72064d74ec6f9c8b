"""Create jobs, buffers and the audit log."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "2026_11_20"
down_revision = None

_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
_MOMENT = sa.DateTime(timezone=True)
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("service", sa.String(40), nullable=False),
        sa.Column("revision", _NUMBER, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("outcome", sa.String(20)),
        sa.Column("parameters", _JSON, nullable=False),
        sa.Column("sealed_seed", sa.LargeBinary(), nullable=False),
        sa.Column("seed_fingerprint", sa.String(16), nullable=False),
        sa.Column("seed_bits", _NUMBER, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("started_at", _MOMENT),
        sa.Column("finished_at", _MOMENT),
        sa.Column("row_count", _NUMBER, nullable=False),
        sa.Column("source_digest", sa.String(80), nullable=False),
        sa.Column("source_fields", _JSON, nullable=False),
        sa.Column("source_blob", sa.String(32)),
        sa.Column("source_buffer", sa.String(36)),
        sa.Column("destination_digest", sa.String(80)),
        sa.Column("destination_fields", _JSON),
        sa.Column("destination_rows", _NUMBER),
        sa.Column("destination_blob", sa.String(32)),
        sa.Column("inline", sa.Boolean(), nullable=False),
        sa.Column("retain_source", sa.Boolean(), nullable=False),
        sa.Column("report_level", sa.String(10), nullable=False),
        sa.Column("events", _JSON),
        sa.Column("event_counts", _JSON),
        sa.Column("report", _JSON),
        sa.Column("manifest", _JSON),
        sa.Column("error", _JSON),
        sa.Column("rerun_of", sa.String(36)),
        sa.Column("reproduced", sa.Boolean()),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("request_fingerprint", sa.String(16)),
        sa.Column("attempt", _NUMBER, nullable=False),
        sa.Column("crashes", _NUMBER, nullable=False),
        sa.Column("claimed_by", sa.String(36)),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_jobs_idempotency_key")),
    )
    op.create_index("ix_jobs_state_id", "jobs", ["state", "id"])
    op.create_index("ix_jobs_service_id", "jobs", ["service", "id"])
    op.create_index("ix_jobs_source_blob", "jobs", ["source_blob"])
    op.create_index("ix_jobs_destination_blob", "jobs", ["destination_blob"])
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])

    op.create_table(
        "buffers",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("fields", _JSON, nullable=False),
        sa.Column("row_count", _NUMBER, nullable=False),
        sa.Column("byte_size", _NUMBER, nullable=False),
        sa.Column("blob", sa.String(32), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_buffers")),
    )
    op.create_index("ix_buffers_blob", "buffers", ["blob"])
    op.create_index("ix_buffers_expires_at", "buffers", ["expires_at"])

    op.create_table(
        "audit",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    if op.get_bind().dialect.name == "sqlite":  # elsewhere the database's own grants do this
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_refuses_{change.lower()} BEFORE {change} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit is only ever added to'); END"
            )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("audit")
    op.drop_table("buffers")
    op.drop_table("jobs")
