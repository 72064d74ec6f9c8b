"""Disclosure ledger: recorded releases of each source, and the policy for releasing a source again."""
