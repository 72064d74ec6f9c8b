"""Fixtures that every tier of tests shares."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("house", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("house")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real tables; a test that needs it is skipped where it is missing, except in CI."""
    folder = Path(os.environ.get("ROWVEIL_DATA", "../shared/data"))
    if not folder.is_dir():
        missing = f"no real tables in {folder}: set ROWVEIL_DATA"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return folder
