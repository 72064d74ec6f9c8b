"""Receivers of pending messages, and their index."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_30b_outbox_receivers"
down_revision = "2026_11_30_message_binding"
compatible = True
"""An older replica adds messages without a receiver, which count as those of one receiver of their owner."""

_PENDING = sa.text("state = 'pending'")


def _replace_index(before: list[str], after: list[str]) -> None:
    op.drop_index(f"ix_deliveries_{'_'.join(before)}", "deliveries")
    op.create_index(
        f"ix_deliveries_{'_'.join(after)}",
        "deliveries",
        after,
        sqlite_where=_PENDING,
        postgresql_where=_PENDING,
    )


def upgrade() -> None:
    """Add the column with the receivers of pending messages, and add it to their index."""
    receiver = sa.Column("receiver", sa.String(2), nullable=False, server_default=sa.text("''"))
    op.add_column("deliveries", receiver)
    _replace_index(["owner", "due_at", "id"], ["owner", "receiver", "due_at", "id"])


def downgrade() -> None:
    """Take the index without receivers back, and drop the column."""
    _replace_index(["owner", "receiver", "due_at", "id"], ["owner", "due_at", "id"])
    op.drop_column("deliveries", "receiver")
