"""Origin of a measured table."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_judged"
down_revision = "2026_11_21"


def upgrade() -> None:
    """Add the column."""
    op.add_column("jobs", sa.Column("destination_buffer", sa.String(36)))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("jobs", "destination_buffer")
