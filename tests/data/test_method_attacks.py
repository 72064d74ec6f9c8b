"""Attacks that use a method's rule, on real tables: figures of the pages, and what they say of methods."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.attacks.figures import AttackResult
from providers.attacks.methods import known_io, linear_programming, linkage, reidentification, rounding
from providers.attacks.options import AttackOptions
from providers.attacks.registry import METHOD_ATTACKS
from providers.attacks.sister import sister_release
from providers.attacks.suite import attacks_stream
from providers.attacks.tables import AttackTables, MethodUsed
from tests.data.test_real_tables import read
from website.attack_tables import attack_sections, measured_runs, strongest_attacks
from website.papers import RUNS, SEED, Run, results, revisions

pytestmark = pytest.mark.realdata


def sister(table: pa.Table, method: MethodUsed, options: AttackOptions) -> AttackTables:
    """A sister release and its source, as the suite attacks them."""
    stream = attacks_stream(SEED)
    made = sister_release(table, method, stream)
    return AttackTables(
        made.source, made.release, made.control, options,
        method=method, aligned=True, stream=stream, origin=made.origin,
    )  # fmt: skip


# --------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize(
    ("run", "attack"),
    [
        (RUNS[2], reidentification.ATTACK),
        (RUNS[10], linkage.ATTACK),
        (RUNS[16], known_io.ATTACK),
        (RUNS[19], rounding.ATTACK),
    ],
    ids=lambda each: each.service if isinstance(each, Run) else each.name,
)
def test_stored_figures_are_measured_again(data_dir: Path, run: Run, attack: Any) -> None:
    """One cheap attack of four services on svcensus gives the stored counts."""
    assert run.data == "svcensus"
    found = attack.run(sister(read(data_dir / "svcensus.csv"), run.method, run.options))
    (stored,) = (each for each in measured_runs(run.service) if each["parameters"] == run.parameters)
    again = list(results({attack.name: found}))
    assert again == [each for each in stored["attacks"] if each["name"] == attack.name]
    assert again


@pytest.mark.parametrize("service", PROVIDERS)
def test_every_service_has_its_attacks_on_both_tables(service: str) -> None:
    """The runs of the program are those that are stored; each has the attacks on the method.

    A new revision of the attacks or of the service needs new figures: ``python -m website.papers SERVICE``.
    """
    stored = measured_runs(service)
    assert {str(each["revisions"]) for each in stored} == {str(revisions(service))}
    assert [(each["data"], each["parameters"]) for each in stored] == [
        (run.data, run.parameters) for run in RUNS if run.service == service
    ]
    assert {each["data"] for each in stored} == {"adult", "svcensus"}
    names = {attack["name"] for each in stored for attack in each["attacks"]}
    assert len(names - {"rule_linkage"}) > len(METHOD_ATTACKS[service])
    page = Path(f"docs/services/{service}.md").read_text(encoding="utf-8")
    for part in (*attack_sections(service), *strongest_attacks(service)):
        assert part in page


# ------------------------------------------------------------------------------------- methods


def rates(found: AttackResult | dict[str, AttackResult]) -> dict[str, float]:
    """Share of successes, by field or kind."""
    return {name: result.attack.rate for name, result in found.items()} if isinstance(found, dict) else {}


@pytest.mark.parametrize(("sigma", "low", "high"), [(0.3, 0.93, 0.97), (1.0, 0.74, 0.83), (2.0, 0.55, 0.69)])
def test_known_rows_undo_pabidot(data_dir: Path, sigma: float, low: float, high: float) -> None:
    """R^2 from a tenth of the rows, where the enumeration of transforms may find nothing."""
    table = read(data_dir / "wine_quality_white.csv")
    method = MethodUsed("PABIDOT", {"label_fields": ["quality"], "sigma": sigma})
    found = known_io.ATTACK.run(sister(table, method, AttackOptions()))
    assert isinstance(found, dict)
    tenth = found["10 % of the rows"]
    assert low < tenth.details["r_squared"] < high
    assert tenth.baseline is not None
    assert tenth.attack.low > tenth.baseline.high


def test_known_values_open_locality(data_dir: Path) -> None:
    """Ages of adult in segments of 20: exact ones by rounding, and from a tenth of the rows."""
    table = read(data_dir / "adult.csv").select(["age"]).slice(0, 6000)
    found = {}
    for sigma in (0.1, 1.0):
        tables = sister(table, MethodUsed("LOCALITY", {"fields": ["age"], "sigma": sigma}), AttackOptions())
        for name, attack in (("rounding", rounding), ("programme", linear_programming)):
            found[name, sigma] = rates(attack.ATTACK.run(tables))["age"]
    assert found["rounding", 0.1] == pytest.approx(0.11, abs=0.03)
    assert found["rounding", 1.0] == pytest.approx(0.18, abs=0.03)
    assert found["programme", 0.1] == pytest.approx(0.18, abs=0.03)
    assert found["programme", 1.0] == pytest.approx(0.48, abs=0.05)


def test_the_rule_of_meds_finds_nine_persons_in_ten(data_dir: Path) -> None:
    """Age and income move; education, occupation, weeks and gender stay with the row."""
    table = read(data_dir / "svcensus.csv")
    method = MethodUsed("MEDS", {"swap_fields": ["age", "wageinc"], "k": 5})
    options = AttackOptions(known=("age", "educ", "occ", "wkswrkd", "gender"), secret=("wageinc",))
    found = linkage.ATTACK.run(sister(table, method, options))
    assert isinstance(found, AttackResult)
    assert found.attack.rate == pytest.approx(0.91, abs=0.03)
    assert found.details["without_the_rule"] < 50
    # Known age alone leaves four other rows of the bin.
    alone = linkage.ATTACK.run(sister(table, method, AttackOptions(known=("age",))))
    assert isinstance(alone, AttackResult)
    assert alone.attack.rate == pytest.approx(0.25, abs=0.04)
