"""Stored figures of the papers' experiments and of the attacks are those of the present revisions."""

import json
from pathlib import Path

import pytest

from benchmarks.papers.__main__ import FOLDER, stored_entries
from benchmarks.papers.sources import SOURCES
from providers import PROVIDERS
from website.papers import ATTACKS, revisions

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", SOURCES)
def test_experiments_measured_the_present_revisions(number: str) -> None:
    """Else: make papers ONLY=`number`."""
    entries = stored_entries(ROOT / FOLDER / f"{number}.json")
    for experiment in SOURCES[number].experiments:
        entry = entries.pop(experiment.identifier)
        assert entry["revisions"] == {name: PROVIDERS[name].revision for name in experiment.services}
    assert not entries


def test_attacks_met_the_present_revisions() -> None:
    """Else: python -m website.papers."""
    for entry in json.loads((ROOT / ATTACKS).read_text(encoding="utf-8")):
        assert entry["revisions"] == revisions(entry["service"])
