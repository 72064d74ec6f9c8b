"""Owners of OIDC tokens with their issuer, from here on.

`app.store.sql.reseal` renames the owners of existing rows at the first start: a migration has neither the
keys nor the issuer. No table changes.
"""

revision = "2026_11_23h_issuers"
down_revision = "2026_11_23g_destination_options"
compatible = False
"""An older replica would not find the rows of its callers, and would make rows without an issuer."""


def upgrade() -> None:
    """Change no table."""


def downgrade() -> None:
    """Change no table; `rowveil migrate --to` has renamed the owners before."""
