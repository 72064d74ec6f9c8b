"""Fixtures of the tests of the service's modules."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def tables_of_new_databases(new_tables: None) -> None:
    """Let the hundreds of stores of these tests make their tables quickly."""
