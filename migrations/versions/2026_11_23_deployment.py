"""The id that the database shares with the folder of its blobs."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_deployment"
down_revision = "2026_11_21_security"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table, without a row: the next start draws the id."""
    op.create_table(
        "deployment",
        sa.Column("id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("deployment_id", sa.String(32), nullable=False),
        sa.Column("in_folder", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployment")),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("deployment")
