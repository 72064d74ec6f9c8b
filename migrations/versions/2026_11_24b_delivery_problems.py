"""Last problem of each message to a webhook."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_24b_delivery_problems"
down_revision = "2026_11_24_annotations"
compatible = True
"""An older replica neither reads nor writes it; a message that it ends keeps an earlier problem."""


def upgrade() -> None:
    """Add the column, empty, and the index by job."""
    op.add_column("deliveries", sa.Column("problem", sa.String(100)))
    op.create_index("ix_deliveries_job_id", "deliveries", ["job_id"])


def downgrade() -> None:
    """Drop the index and the column with the problems in it."""
    op.drop_index("ix_deliveries_job_id", "deliveries")
    op.drop_column("deliveries", "problem")
