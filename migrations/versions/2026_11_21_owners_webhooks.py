"""Add owners, priorities, deadlines, webhooks and separate idempotency keys."""

from datetime import timedelta

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_owners"
down_revision = "2026_11_21_leases"

_MOMENT = sa.DateTime(timezone=True)
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_KEPT = timedelta(hours=24)


def upgrade() -> None:
    """Add the columns and tables; move the idempotency keys."""
    _make_tables()
    op.add_column("jobs", sa.Column("owner", sa.String(300), nullable=False, server_default="anonymous"))
    op.add_column("jobs", sa.Column("priority", sa.String(10), nullable=False, server_default="normal"))
    op.add_column("jobs", sa.Column("ranked_at", _MOMENT))
    op.add_column("jobs", sa.Column("deadline", _MOMENT))
    op.add_column("jobs", sa.Column("byte_size", _NUMBER, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("sealed_webhook", sa.LargeBinary()))
    op.add_column("jobs", sa.Column("trace_parent", sa.String(64)))
    op.execute("UPDATE jobs SET ranked_at = created_at")
    _move_keys()
    with op.batch_alter_table("jobs") as jobs:
        jobs.alter_column("ranked_at", existing_type=_MOMENT, nullable=False)
        jobs.drop_constraint("uq_jobs_idempotency_key", type_="unique")
        jobs.drop_column("idempotency_key")
        jobs.drop_column("request_fingerprint")
    op.create_index("ix_jobs_state_ranked_at_id", "jobs", ["state", "ranked_at", "id"])
    op.create_index("ix_jobs_owner_state", "jobs", ["owner", "state"])
    op.add_column("buffers", sa.Column("owner", sa.String(300), nullable=False, server_default="anonymous"))
    op.create_index("ix_buffers_owner", "buffers", ["owner"])


def downgrade() -> None:
    """Drop them again, and with them the keys."""
    op.drop_index("ix_buffers_owner", "buffers")
    op.drop_column("buffers", "owner")
    op.drop_index("ix_jobs_owner_state", "jobs")
    op.drop_index("ix_jobs_state_ranked_at_id", "jobs")
    for column in (
        "trace_parent",
        "sealed_webhook",
        "byte_size",
        "deadline",
        "ranked_at",
        "priority",
        "owner",
    ):
        op.drop_column("jobs", column)
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("idempotency_key", sa.String(255)))
        jobs.add_column(sa.Column("request_fingerprint", sa.String(16)))
        jobs.create_unique_constraint(op.f("uq_jobs_idempotency_key"), ["idempotency_key"])
    for table in ("deliveries", "idempotency_keys", "callers"):
        op.drop_table(table)


def _make_tables() -> None:
    op.create_table(
        "callers",
        sa.Column("owner", sa.String(300), nullable=False),
        sa.Column("seen_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_callers")),
    )
    op.create_index("ix_callers_seen_at", "callers", ["seen_at"])
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", sa.String(300), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("fingerprint", sa.String(16), nullable=False),
        sa.Column("resource", sa.String(36), nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("owner", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_expires_at", "idempotency_keys", ["expires_at"])
    op.create_index("ix_idempotency_keys_resource", "idempotency_keys", ["resource"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("sealed_webhook", sa.LargeBinary()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("attempts", _NUMBER, nullable=False),
        sa.Column("due_at", _MOMENT, nullable=False),
        sa.Column("ended_at", _MOMENT),
        sa.CheckConstraint("state IN ('pending', 'delivered', 'given_up')", name=op.f("ck_deliveries_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    op.create_index("ix_deliveries_state_due_at", "deliveries", ["state", "due_at"])


def _move_keys() -> None:
    """A key of the former layout is kept for a day from its job's creation."""
    jobs = sa.table(
        "jobs",
        sa.column("id", sa.String),
        sa.column("created_at", _MOMENT),
        sa.column("idempotency_key", sa.String),
        sa.column("request_fingerprint", sa.String),
    )
    keys = sa.table(
        "idempotency_keys",
        sa.column("owner", sa.String),
        sa.column("key", sa.String),
        sa.column("fingerprint", sa.String),
        sa.column("resource", sa.String),
        sa.column("expires_at", _MOMENT),
    )
    found = op.get_bind().execute(
        sa.select(jobs).where(jobs.c.idempotency_key.is_not(None), jobs.c.request_fingerprint.is_not(None))
    )
    for row in found.all():
        op.execute(
            sa.insert(keys).values(
                owner="anonymous",
                key=row.idempotency_key,
                fingerprint=row.request_fingerprint,
                resource=row.id,
                expires_at=row.created_at + _KEPT,
            )
        )
