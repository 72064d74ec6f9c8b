"""References of source and destination tables."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_references"
down_revision = "2026_11_21_owners"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("jobs", sa.Column("source_reference", sa.Text()))
    op.add_column("jobs", sa.Column("destination_reference", sa.Text()))
    op.add_column("jobs", sa.Column("destination_media_type", sa.String(60)))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("jobs", "destination_media_type")
    op.drop_column("jobs", "destination_reference")
    op.drop_column("jobs", "source_reference")
