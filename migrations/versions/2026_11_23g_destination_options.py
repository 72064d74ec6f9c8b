"""Options of a destination by reference: whether it may replace a file, and formulas in CSV."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23g_destination_options"
down_revision = "2026_11_23f_ledger"
compatible = False
"""An older replica would replace what is at a destination, and write formulas as they are."""


def upgrade() -> None:
    """Add the column, empty: jobs queued by an older version replace nothing."""
    op.add_column("jobs", sa.Column("destination_options", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("jobs", "destination_options")
