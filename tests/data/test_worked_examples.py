"""The worked examples of the services' pages: run on their tables, they give the figures they state."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from app.worker.run_swap import report_of
from providers import PROVIDERS
from tests.data.test_real_tables import read
from tests.naive.agreement import swap
from website.service_pages import EXAMPLES

pytestmark = pytest.mark.realdata


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_worked_example(data_dir: Path, path: Path) -> None:
    """Every figure on the page is what the report says."""
    example = tomllib.loads(path.read_text(encoding="utf-8"))
    table = read(data_dir / example["data"])
    seed = int(example["seed"], 16).to_bytes(32, "big")
    result = swap(path.stem, table, example["parameters"], seed)
    report = report_of(path.stem, result, 4 * len(example["seed"]))
    assert example["figures"]
    for name, value in example["figures"].items():
        found: Any = report
        for part in name.split("."):
            found = found[part]
        assert found == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), name


def test_every_service_has_one() -> None:
    """A page without an example is not finished."""
    assert {path.stem for path in EXAMPLES.glob("*.toml")} == set(PROVIDERS)
