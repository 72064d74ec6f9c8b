"""Small tables in the rows of their jobs, sealed."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_small_tables"
down_revision = "2026_11_23_row_binding"
compatible = False
"""An older replica would look for the table of a job in a file that there is not."""

_COLUMNS = ("sealed_source", "sealed_destination")


def upgrade() -> None:
    """Add the columns; tables of earlier jobs stay in their files."""
    for name in _COLUMNS:
        op.add_column("jobs", sa.Column(name, sa.LargeBinary()))


def refusal(connection: sa.Connection) -> str | None:
    """Return why the step cannot be undone: a job has a table in its row. None: it can."""
    jobs = sa.table("jobs", *(sa.column(name) for name in _COLUMNS))
    held = sa.select(sa.func.count()).where(sa.or_(*(jobs.c[name].is_not(None) for name in _COLUMNS)))
    if not (count := connection.scalar(held)):
        return None
    return (
        f"{count} jobs have small tables in their rows, which an older version cannot read: delete "
        "these jobs, or wait until their results have expired (ROWVEIL_RESULT_RETENTION)"
    )


def downgrade() -> None:
    """Drop the columns. Raises RuntimeError: see `refusal`."""
    if reason := refusal(op.get_bind()):
        raise RuntimeError(reason)
    for name in reversed(_COLUMNS):
        op.drop_column("jobs", name)
