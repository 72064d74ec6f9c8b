"""One chain of the audit log per replica, and checkpoints that join them."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23c_audit_chains"
down_revision = "2026_11_23_version_support"
compatible = True
"""An older replica goes on with the shared chain, whose tables stay as they are."""

_MOMENT = sa.DateTime(timezone=True)
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ADDED_TO = ("audit_lines", "audit_checkpoints", "audit_checkpoint_heads")
"""Tables whose rows are never changed or deleted."""


def upgrade() -> None:
    """Make the tables; the old log stays where it is."""
    op.create_table(
        "audit_chains",
        sa.Column("chain", sa.String(16), nullable=False),
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("mac", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("chain", name=op.f("pk_audit_chains")),
    )
    op.create_table(
        "audit_lines",
        sa.Column("chain", sa.String(16), nullable=False),
        sa.Column("number", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("who", sa.String(300)),
        sa.Column("project", sa.String(64)),
        sa.Column("request", sa.String(64)),
        sa.Column("reason", sa.Text()),
        sa.Column("mac", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("chain", "number", name=op.f("pk_audit_lines")),
    )
    op.create_table(
        "audit_checkpoints",
        sa.Column("number", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("mac", sa.String(64), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_checkpoints")),
    )
    op.create_table(
        "audit_checkpoint_heads",
        sa.Column("checkpoint", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("chain", sa.String(16), nullable=False),
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("mac", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("checkpoint", "chain", name=op.f("pk_audit_checkpoint_heads")),
    )
    op.create_index("ix_audit_checkpoint_heads_chain_number", "audit_checkpoint_heads", ["chain", "number"])
    for table in _ADDED_TO:
        _refuse_changes(table)


def downgrade() -> None:
    """Drop the tables; `rowveil migrate --to` has copied their lines to the shared chain before."""
    for table in (*reversed(_ADDED_TO), "audit_chains"):
        op.drop_table(table)


def _refuse_changes(table: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE TRIGGER audit_refuses BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_refuses()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_refuses_{change.lower()} BEFORE {change} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'the audit is only ever added to'); END"
        )
