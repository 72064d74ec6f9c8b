"""Control tables of attacks: a third table of a job."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23e_control_tables"
down_revision = "2026_11_23d_virtual_time"
compatible = False
"""An older replica's sweep would take the file of a control for one that no row names."""


def _columns() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("control_digest", sa.String(80)),
        sa.Column("control_fields", sa.JSON(none_as_null=True)),
        sa.Column("control_rows", sa.BigInteger().with_variant(sa.Integer, "sqlite")),
        sa.Column("control_blob", sa.String(32)),
        sa.Column("control_buffer", sa.String(36)),
        sa.Column("sealed_control_key", sa.LargeBinary()),
        sa.Column("control_reference", sa.Text()),
        sa.Column("sealed_control", sa.LargeBinary()),
    )


def upgrade() -> None:
    """Add the columns and the index that finds the rows which name a blob."""
    for column in _columns():
        op.add_column("jobs", column)
    op.create_index("ix_jobs_control_blob", "jobs", ["control_blob"])


def refusal(connection: sa.Connection) -> str | None:
    """Return why the step cannot be undone: there are attacks. None: it can."""
    jobs = sa.table("jobs", sa.column("service"))
    count = connection.scalar(sa.select(sa.func.count()).where(jobs.c.service == "attacks"))
    if not count:
        return None
    return f"{count} jobs are attacks, which an older version takes for swaps: delete these jobs"


def downgrade() -> None:
    """Drop the columns. Raises RuntimeError: see `refusal`."""
    if reason := refusal(op.get_bind()):
        raise RuntimeError(reason)
    op.drop_index("ix_jobs_control_blob", "jobs")
    for column in reversed(_columns()):
        op.drop_column("jobs", column.name)
