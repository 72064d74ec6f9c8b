"""Names, labels and notes of jobs and buffers."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_24_annotations"
down_revision = "2026_11_23j_ledger_epsilon"
compatible = True
"""An older replica neither reads nor writes them; it deletes them with their rows."""

_TABLES = ("jobs", "buffers")

_LABELLED = sa.text("label IS NOT NULL")


def upgrade() -> None:
    """Add the columns, empty, and the index of labelled jobs."""
    for table in _TABLES:
        op.add_column(table, sa.Column("name", sa.String(120)))
        op.add_column(table, sa.Column("label", sa.String(120)))
        op.add_column(table, sa.Column("notes", sa.Text()))
    op.create_index(
        "ix_jobs_label_id", "jobs", ["label", "id"], sqlite_where=_LABELLED, postgresql_where=_LABELLED
    )


def downgrade() -> None:
    """Drop the index and the columns with the texts in them."""
    op.drop_index("ix_jobs_label_id", "jobs")
    for table in reversed(_TABLES):
        for name in ("notes", "label", "name"):
            op.drop_column(table, name)
