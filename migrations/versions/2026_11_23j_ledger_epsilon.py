"""Epsilon of a release in the disclosure ledger."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23j_ledger_epsilon"
down_revision = "2026_11_23h_issuers"
compatible = True
"""An older replica records releases without it; the column is empty in its entries."""


def upgrade() -> None:
    """Add the column, empty: earlier releases state no epsilon."""
    op.add_column("ledger", sa.Column("epsilon", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("ledger", "epsilon")
