"""Damaged Arrow and Parquet files, read in a process with limited memory."""

import json
import os
import subprocess
import sys

import pytest

from tests.fuzz.reading import TYPES

COUNT = 20_000 if os.environ.get("HYPOTHESIS_PROFILE") == "night" else 600


@pytest.mark.parametrize("name", TYPES)
def test_a_damaged_file_is_refused_or_a_table(name: str) -> None:
    """No reader raises another error, reads memory out of bounds, or uses ever more memory."""
    command = [sys.executable, "-m", "tests.fuzz.reading", name, "20261121", str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert sum(seen.values()) == COUNT
    assert "reported in a library's words" not in seen
    assert seen["refused"] > 0
    assert seen["tables"] > 0
