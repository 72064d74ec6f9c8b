"""Attacks agree with anonymeter's within their intervals.

anonymeter's pins collide with those of Rowveil, so that it has an environment of its own (`make anonymeter`).
`anonymeter.json` stores its counts: every run compares them with Rowveil's, and where the environment exists,
with those that anonymeter finds again.
"""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from providers import PROVIDERS
from providers.attacks.figures import AttackResult, Successes
from providers.attacks.options import AttackOptions
from providers.attacks.suite import attack_release, attacks_stream
from providers.progress import no_progress
from tests.unit.providers.attacks.tables import people

FOLDER = Path(__file__).parent
PYTHON = FOLDER.parents[1] / ".venv-anonymeter" / "bin" / "python"
STORED = FOLDER / "anonymeter.json"

FIELDS = ["age", "school", "height", "income", "moves"]
OPTIONS: dict[str, Any] = {
    "attacks": 500,
    "linked": [["age", "school"], ["height", "moves"]],
    "known": ["age", "school", "height"],
    "secrets": {"income": True, "moves": False},
}
ROWS = 800
DEVIATIONS = 4.5
"""Standard deviations of a difference of two rates; a true difference of 0 rarely exceeds them."""

RELEASES = ["swap", "copy", "other rows"]


def tables_of(release: str) -> dict[str, pa.Table]:
    """Source, release and control rows of one case; no value is missing."""
    source, control = (people(ROWS, seed).select(FIELDS) for seed in (1, 2))
    if release == "copy":
        return {"source": source, "release": source, "control": control}
    if release == "other rows":
        return {"source": source, "release": people(ROWS, 3).select(FIELDS), "control": control}
    provider = PROVIDERS["DSWAP"]
    params = provider.check(
        provider.params.model_validate({"swap_fields": FIELDS, "rate": 0.3}), source.schema
    )
    swapped = provider.swap(source, params, provider.stream(bytes(32)), no_progress)
    return {"source": source, "release": swapped.table, "control": control}


def ours(release: str) -> dict[str, tuple[Successes, Successes]]:
    """Success on the source and on control rows, by anonymeter's names of the attacks."""
    tables = tables_of(release)
    options = AttackOptions(
        known=("age", "school", "height"),
        secret=("income", "moves"),
        attacks=OPTIONS["attacks"],
    )
    linking = AttackOptions(known=("age", "school", "height", "moves"), linked=OPTIONS["linked"], attacks=500)
    found: dict[str, tuple[Successes, Successes]] = {}
    for chosen, names in (
        (options, ("inference", "singling_out_univariate", "singling_out_multivariate")),
        (linking, ("linkability",)),
    ):
        figures = attack_release(
            tables["source"], tables["release"], tables["control"], chosen,
            method=None, aligned=False, stream=attacks_stream(bytes(32)),
        )  # fmt: skip
        for name in names:
            result = figures.attacks[name]
            if isinstance(result, AttackResult):
                assert result.control is not None
                found[name] = result.attack, result.control
                continue
            for secret, of_secret in result.items():
                nearest = of_secret.details["nearest"]
                found[f"{name} {secret}"] = nearest["attack"], nearest["control"]
    return found


def assert_agree(one: float, tries: int, two: float, other_tries: int, case: str) -> None:
    """Two rates differ by at most `DEVIATIONS` standard deviations; each has one more success and failure."""
    middle = (one * tries + two * other_tries + 2) / (tries + other_tries + 4)
    spread = math.sqrt(middle * (1 - middle) * (1 / tries + 1 / other_tries))
    assert abs(one - two) <= DEVIATIONS * spread, f"{case}: {one} and {two}"


@pytest.mark.parametrize("release", RELEASES)
def test_attacks_agree_with_the_stored_figures_of_anonymeter(release: str) -> None:
    stored, found = json.loads(STORED.read_text())[release], ours(release)
    assert set(stored) == set(found)
    for name, other in stored.items():
        for side, mine in zip(("attack", "control"), found[name], strict=True):
            assert_agree(
                mine.rate, mine.tries, other[side] / other["tries"], other["tries"], f"{name} {side}"
            )


def measured(release: str, folder: Path) -> dict[str, Any]:
    """Counts that anonymeter finds."""
    for name, table in tables_of(release).items():
        pyarrow.csv.write_csv(table, folder / f"{name}.csv")
    (folder / "options.json").write_text(json.dumps(OPTIONS))
    done = subprocess.run(
        [PYTHON, FOLDER / "run_anonymeter.py", folder], capture_output=True, text=True, check=True
    )
    counts: dict[str, Any] = json.loads(done.stdout)
    return counts


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="anonymeter is not installed: make anonymeter")
@pytest.mark.parametrize("release", RELEASES)
def test_the_stored_figures_are_those_of_anonymeter(release: str, tmp_path: Path) -> None:
    """Its random generator has no seed, so that the figures differ within their intervals."""
    stored, found = json.loads(STORED.read_text())[release], measured(release, tmp_path)
    assert set(stored) == set(found)
    for name, counts in found.items():
        for side in ("attack", "control"):
            one, two = (each[side] / each["tries"] for each in (stored[name], counts))
            assert_agree(one, stored[name]["tries"], two, counts["tries"], f"{name} {side}")


def store() -> None:
    """Write the counts of anonymeter to `anonymeter.json`."""
    import tempfile

    found = {}
    for release in RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            found[release] = measured(release, Path(folder))
    STORED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    store()
