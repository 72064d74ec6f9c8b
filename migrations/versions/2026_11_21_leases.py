"""Leases of replicas, and cancelling a job that runs on another one."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "2026_11_21_leases"
down_revision = "2026_11_21_judged"

_JOBS = (
    "parameters",
    "options",
    "source_fields",
    "destination_fields",
    "events",
    "event_counts",
    "report",
    "manifest",
    "error",
)
_JSON = {"jobs": _JOBS, "buffers": ("fields",)}


def upgrade() -> None:
    """Add them; in PostgreSQL, keep JSON as it was written, and let the audit only be added to."""
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("folder_id", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replicas")),
    )
    op.add_column(
        "jobs", sa.Column("cancel_requested", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    if op.get_bind().dialect.name == "postgresql":
        for table, columns in _JSON.items():
            for column in columns:
                op.alter_column(table, column, type_=sa.JSON(), postgresql_using=f"{column}::json")
        op.execute(
            "CREATE FUNCTION audit_refuses() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE EXCEPTION 'the audit is only ever added to'; END$$"
        )
        op.execute(
            "CREATE TRIGGER audit_refuses BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_refuses()"
        )


def downgrade() -> None:
    """Take them away."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER audit_refuses ON audit")
        op.execute("DROP FUNCTION audit_refuses()")
        for table, columns in _JSON.items():
            for column in columns:
                op.alter_column(table, column, type_=postgresql.JSONB(), postgresql_using=f"{column}::jsonb")
    op.drop_column("jobs", "cancel_requested")
    op.drop_table("replicas")
