"""Virtual time of the queue, by which jobs of several callers take turns."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23d_virtual_time"
down_revision = "2026_11_23c_audit_chains"
compatible = False
"""An older replica would rank its jobs by the clock, and so before or behind all others."""

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table. The virtual time begins with the rank of the first queued job, or now."""
    made = op.create_table(
        "queue",
        sa.Column("id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("turn", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue")),
    )
    jobs = sa.table("jobs", sa.column("state"), sa.column("ranked_at", sa.DateTime(timezone=True)))
    first = op.get_bind().scalar(sa.select(sa.func.min(jobs.c.ranked_at)).where(jobs.c.state == "queued"))
    op.bulk_insert(made, [{"id": 1, "turn": first or datetime.now(UTC)}])


def downgrade() -> None:
    """Drop the table; older versions rank jobs by the clock."""
    op.drop_table("queue")
