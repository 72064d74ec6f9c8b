"""Disclosure ledger: one row for each release of a source."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23f_ledger"
down_revision = "2026_11_23e_control_tables"
compatible = True
"""An older replica records no release; it works with the other tables as before."""

_INDEXES = ("source_digest", "family", "owner", "project", "row_count")


def upgrade() -> None:
    """Create the table; earlier jobs are not in the ledger."""
    op.create_table(
        "ledger",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("family", sa.String(36), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("owner", sa.String(300), nullable=False),
        sa.Column("project", sa.String(64)),
        sa.Column("service", sa.String(40), nullable=False),
        sa.Column("revision", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("source_digest", sa.String(80), nullable=False),
        sa.Column("destination_digest", sa.String(80), nullable=False),
        sa.Column("row_count", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("match", sa.String(10)),
        sa.Column("risk", sa.JSON(none_as_null=True)),
        sa.Column("reason", sa.Text),
        sa.Column("sketch", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
    )
    for name in _INDEXES:
        op.create_index(op.f(f"ix_ledger_{name}"), "ledger", [name])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("ledger")
