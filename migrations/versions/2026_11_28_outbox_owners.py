"""Owners of pending messages, and indexes of what deliveries and purges look for."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_28_outbox_owners"
down_revision = "2026_11_26_job_terms"
compatible = True
"""An older replica adds messages without an owner, which count as those of one owner, and keeps the owner of
a message that it delivers until the message is deleted."""

_PENDING = sa.text("state = 'pending'")

_HOLDING = sa.text(
    "finished_at IS NOT NULL AND (source_blob IS NOT NULL OR sealed_source IS NOT NULL"
    " OR destination_blob IS NOT NULL OR sealed_destination IS NOT NULL"
    " OR control_blob IS NOT NULL OR sealed_control IS NOT NULL)"
)


def upgrade() -> None:
    """Add the column with the owners of pending messages, and replace their index."""
    owner = sa.Column("owner", sa.String(300), nullable=False, server_default=sa.text("''"))
    op.add_column("deliveries", owner)
    op.execute(
        "UPDATE deliveries SET owner = jobs.owner FROM jobs"
        " WHERE jobs.id = deliveries.job_id AND deliveries.state = 'pending'"
    )
    op.drop_index("ix_deliveries_state_due_at", "deliveries")
    op.create_index(
        "ix_deliveries_owner_due_at_id",
        "deliveries",
        ["owner", "due_at", "id"],
        sqlite_where=_PENDING,
        postgresql_where=_PENDING,
    )
    op.create_index("ix_deliveries_ended_at", "deliveries", ["ended_at"])
    op.create_index(
        "ix_jobs_holding", "jobs", ["finished_at", "id"], sqlite_where=_HOLDING, postgresql_where=_HOLDING
    )


def downgrade() -> None:
    """Drop the indexes and the column; take the index of all messages back."""
    op.drop_index("ix_jobs_holding", "jobs")
    op.drop_index("ix_deliveries_ended_at", "deliveries")
    op.drop_index("ix_deliveries_owner_due_at_id", "deliveries")
    op.create_index("ix_deliveries_state_due_at", "deliveries", ["state", "due_at"])
    op.drop_column("deliveries", "owner")
