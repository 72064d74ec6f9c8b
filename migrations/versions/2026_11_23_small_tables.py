"""Small tables in the rows of their jobs, sealed."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_small_tables"
down_revision = "2026_11_23_row_binding"

_COLUMNS = ("sealed_source", "sealed_destination")


def upgrade() -> None:
    """Add the columns; tables of earlier jobs stay in their files."""
    for name in _COLUMNS:
        op.add_column("jobs", sa.Column(name, sa.LargeBinary()))


def downgrade() -> None:
    """Drop the columns. Refused while a job has a table in its row: an older version could not read it."""
    jobs = sa.table("jobs", *(sa.column(name) for name in _COLUMNS))
    held = sa.select(sa.func.count()).where(sa.or_(*(jobs.c[name].is_not(None) for name in _COLUMNS)))
    if count := op.get_bind().scalar(held):
        raise RuntimeError(
            f"{count} jobs have small tables in their rows, which an older version cannot read: delete "
            "these jobs, or wait until their results have expired (ROWVEIL_RESULT_RETENTION)"
        )
    for name in reversed(_COLUMNS):
        op.drop_column("jobs", name)
