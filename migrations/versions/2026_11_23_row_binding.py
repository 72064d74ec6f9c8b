"""Data keys of blobs in the rows that name them, sealed to the row.

`app.store.sql.reseal` fills the columns, and seals seeds and reports to their rows: a migration has no keys.
"""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_row_binding"
down_revision = "2026_11_23_deployment"

_COLUMNS = (
    ("jobs", "sealed_source_key"),
    ("jobs", "sealed_destination_key"),
    ("buffers", "sealed_key"),
)


def upgrade() -> None:
    """Add the columns, empty."""
    for table, column in _COLUMNS:
        op.add_column(table, sa.Column(column, sa.LargeBinary()))


def downgrade() -> None:
    """Drop the columns; the headers of the blobs have the keys as well."""
    for table, column in reversed(_COLUMNS):
        op.drop_column(table, column)
