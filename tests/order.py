"""Order of the test modules: those that take longest come first."""

from pathlib import Path

ROOT = Path(__file__).parents[1]

LONGEST = (
    "tests/faults/test_rounds.py",
    "tests/simulation/test_simulation.py",
    "tests/load/test_load.py",
    "tests/fuzz/test_document.py",
    "tests/docs/test_examples.py",
    "tests/faults/test_bucket_rounds.py",
    "tests/faults/test_jobs.py",
    "tests/property/test_out_of_core.py",
    "tests/unit/repository/test_package.py",
)
"""Modules that take longest, in order; all others follow in the order of collection."""

_PLACE = {module: place for place, module in enumerate(LONGEST)}


def longest_first(module: str) -> int:
    """Return the sort key of a test module, given its path relative to the root of the checkout."""
    return _PLACE.get(module, len(LONGEST))
