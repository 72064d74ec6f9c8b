"""Number of the transaction that has added an entry of the ledger, on PostgreSQL."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_29_ledger_transactions"
down_revision = "2026_11_28_outbox_owners"
compatible = True
"""PostgreSQL sets the column of an entry that an older replica adds, too."""

_KNOWN = sa.text("written_in IS NOT NULL")


def upgrade() -> None:
    """Add the column, empty in the entries so far, and its index."""
    op.add_column(
        "ledger",
        sa.Column(
            "written_in", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), server_default=sa.text("NULL")
        ),
    )
    if op.get_bind().dialect.name == "postgresql":  # after the column, so that entries so far stay empty
        number = sa.text("CAST(CAST(pg_current_xact_id() AS text) AS bigint)")
        op.alter_column("ledger", "written_in", server_default=number)
    op.create_index(
        "ix_ledger_written_in", "ledger", ["written_in"], sqlite_where=_KNOWN, postgresql_where=_KNOWN
    )


def downgrade() -> None:
    """Drop the column and its index."""
    op.drop_index("ix_ledger_written_in", "ledger")
    op.drop_column("ledger", "written_in")
