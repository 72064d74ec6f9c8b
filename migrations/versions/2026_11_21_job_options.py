"""Submission options of a job."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "2026_11_21"
down_revision = "2026_11_20"

_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    """Add the column."""
    op.add_column("jobs", sa.Column("options", _JSON))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("jobs", "options")
