"""Webhooks of pending messages sealed to the message: its id, its job and its body.

No table changes. `app.store.sql.reseal` seals the webhooks: a migration has no keys. A version from before
cannot open them, and would queue messages that this version refuses, so that this step lets no such version
start.
"""

revision = "2026_11_30_message_binding"
down_revision = "2026_11_29_ledger_transactions"
compatible = False


def upgrade() -> None:
    """Change no table."""


def downgrade() -> None:
    """Change no table; `rowveil migrate --to` seals the webhooks to their jobs before."""
