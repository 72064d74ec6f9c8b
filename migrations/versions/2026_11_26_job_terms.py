"""Seeds sealed to the terms of their jobs: parameters, options and the reference of the destination.

No table changes. `app.store.sql.reseal` seals the seeds: a migration has no keys. A version from before
cannot open them, so that this step lets no such version start.
"""

revision = "2026_11_26_job_terms"
down_revision = "2026_11_25b_ledger_indexes"
compatible = False


def upgrade() -> None:
    """Change no table."""


def downgrade() -> None:
    """Change no table; `rowveil migrate --to` seals the seeds without terms before."""
