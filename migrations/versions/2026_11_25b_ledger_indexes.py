"""Indexes of the ledger that answer a run's queries without reading entries."""

from alembic import op

revision = "2026_11_25b_ledger_indexes"
down_revision = "2026_11_25_series"
compatible = True
"""An older replica uses the indexes as well."""

_WIDER = {
    "source_digest": ["source_digest", "id", "owner", "project", "family"],
    "family": ["family", "id", "owner", "project"],
}


def upgrade() -> None:
    """Replace both indexes by ones with all columns that the queries need."""
    for column, columns in _WIDER.items():
        op.create_index(f"ix_ledger_{'_'.join(columns)}", "ledger", columns)
        op.drop_index(f"ix_ledger_{column}", "ledger")


def downgrade() -> None:
    """Take the narrow indexes back."""
    for column, columns in _WIDER.items():
        op.create_index(f"ix_ledger_{column}", "ledger", [column])
        op.drop_index(f"ix_ledger_{'_'.join(columns)}", "ledger")
