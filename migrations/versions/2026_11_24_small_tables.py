"""Small tables in the rows of their jobs, sealed."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_24_small_tables"
down_revision = "2026_11_24_binding"

_COLUMNS = ("sealed_source", "sealed_destination")


def upgrade() -> None:
    """Add the columns; tables of earlier jobs stay in their files."""
    for name in _COLUMNS:
        op.add_column("jobs", sa.Column(name, sa.LargeBinary()))


def downgrade() -> None:
    """Drop the columns, and with them the small tables."""
    for name in reversed(_COLUMNS):
        op.drop_column("jobs", name)
