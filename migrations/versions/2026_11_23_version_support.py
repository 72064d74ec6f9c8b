"""Jobs that a replica can run, and the versions that can work with the tables."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_version_support"
down_revision = "2026_11_23_small_tables"
compatible = False
"""An older replica claims any job, and its lease does not list those that it can run."""


def upgrade() -> None:
    """Add the column and the table."""
    op.add_column("replicas", sa.Column("runs", sa.JSON(none_as_null=True)))
    op.create_table(
        "schema_support",
        sa.Column("revision", sa.String(80), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_schema_support")),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("schema_support")
    op.drop_column("replicas", "runs")
