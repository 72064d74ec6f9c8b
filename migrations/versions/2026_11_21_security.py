"""Add identities, owners of jobs and buffers, the audit chain, and sealed service keys."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "2026_11_21_security"
down_revision = "2026_11_21_references"

_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
_MOMENT = sa.DateTime(timezone=True)
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_CHAIN = ("who", "project", "request", "reason", "mac")


def upgrade() -> None:
    """Make the tables, and add the columns."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(10), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("project", sa.String(64)),
        sa.Column("scopes", sa.String(100), nullable=False),
        sa.Column("mac", sa.String(64), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=False),
        sa.Column("revoked_at", _MOMENT),
        sa.Column("last_used_at", _MOMENT),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_table(
        "kept_keys",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_kept_keys")),
    )
    for table in ("jobs", "buffers"):
        op.add_column(table, sa.Column("project", sa.String(64)))
    # Reports lay here in the clear, and no migration has the key to seal them: a rerun makes one again.
    op.drop_column("jobs", "report")
    op.add_column("jobs", sa.Column("sealed_report", sa.LargeBinary()))
    op.create_index("ix_jobs_owner_id", "jobs", ["owner", "id"])
    op.create_index("ix_jobs_project_id", "jobs", ["project", "id"])

    op.add_column("audit", sa.Column("who", sa.String(300)))
    op.add_column("audit", sa.Column("project", sa.String(64)))
    op.add_column("audit", sa.Column("request", sa.String(64)))
    op.add_column("audit", sa.Column("reason", sa.Text()))
    op.add_column("audit", sa.Column("mac", sa.String(64)))
    op.create_table(
        "audit_head",
        sa.Column("id", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("mac", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_head")),
    )
    op.execute("INSERT INTO audit_head (id, number, mac) SELECT 1, coalesce(max(id), 0), '' FROM audit")


def downgrade() -> None:
    """Drop them; what the audit says of who and why goes with them."""
    op.drop_table("audit_head")
    for column in reversed(_CHAIN):
        op.drop_column("audit", column)
    op.drop_index("ix_jobs_project_id", "jobs")
    op.drop_index("ix_jobs_owner_id", "jobs")
    op.drop_column("jobs", "sealed_report")
    op.add_column("jobs", sa.Column("report", _JSON))
    for table in ("jobs", "buffers"):
        op.drop_column(table, "project")
    op.drop_table("kept_keys")
    op.drop_table("api_keys")
