"""Units of several rows: whole ones are withheld, and one row of each is attacked."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks import advice
from providers.attacks.advice import advise
from providers.attacks.figures import AttackFigures, AttackResult
from providers.attacks.linkability import other_rows
from providers.attacks.methods import linkage, reidentification
from providers.attacks.options import AttackOptions
from providers.attacks.singling_out import Cells, combinations, one_of_each_unit, rare_values
from providers.attacks.sister import sister_release
from providers.attacks.suite import attack_release, attacks_stream
from providers.attacks.tables import AttackTables, MethodUsed
from providers.attacks.thresholds import Thresholds
from providers.attacks.units import row_of_each, sampled_units, withheld_rows
from providers.attacks.verdict import judge
from providers.errors import ParameterError
from providers.measures.shared.finding import NotApplicable
from providers.progress import no_progress
from providers.services import dswap
from providers.tables.units import unit_codes, unit_field
from tests.naive import attacks as naive
from tests.unit.providers.attacks.tables import SEED, attacked

STREAM = attacks_stream(SEED)


def visits(persons: int = 300, each: int = 5) -> pa.Table:
    """Rows of persons, each with the same birth, postcode and diagnosis, and costs of its own."""
    random = np.random.default_rng(1)
    person = random.permutation(np.repeat(np.arange(persons), each))
    births, areas = random.integers(0, 25_000, persons), random.integers(0, 1000, persons)
    diagnosis = np.array(list("ABCDEFGHIJ"))[random.integers(0, 10, persons)]
    return pa.table(
        {
            "person": [f"p{number}" for number in person],
            "birth": births[person],
            "area": areas[person],
            "diagnosis": diagnosis[person],
            "cost": random.gamma(2, 100, len(person)).round(2),
        }
    )


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"swap_fields": ["cost"], "unit_id": "person"}, "person"),
        ({"household": "person", "hierarchy": ["area"]}, "person"),
        ({"swap_fields": ["cost"], "household_check": "person"}, "person"),
        ({"swap_fields": ["cost"], "unit_id": None}, None),
        ({}, None),
    ],
)
def test_the_field_of_units_is_that_of_the_parameters(parameters: dict[str, Any], field: str | None) -> None:
    assert unit_field(parameters) == field
    assert MethodUsed("DSWAP", parameters).unit_field == field


@pytest.mark.parametrize("each", [1, 2, 5])
def test_units_are_withheld_whole(each: int) -> None:
    table = visits(90, each)
    units = table["person"].to_pylist()
    mask = withheld_rows(table, "person", STREAM, "test")
    rows = np.flatnonzero(mask).tolist()
    assert naive.are_whole(rows, units)
    assert len({units[row] for row in rows}) == 9
    assert not naive.are_whole([0], units) or each == 1
    alone = withheld_rows(table, None, STREAM, "test")
    assert alone.sum() == 90 * each // 10


@pytest.mark.parametrize(("persons", "field"), [(9, "person"), (9, None), (0, "person")])
def test_too_few_units_have_no_tenth(persons: int, field: str | None) -> None:
    table = visits(persons, 4 if field else 1)
    noun = "units of 'person'" if field else "rows"
    with pytest.raises(NotApplicable, match=f"fewer than 10 {noun}"):
        withheld_rows(table, field, STREAM, "test")


def test_rows_without_a_unit_stand_alone() -> None:
    table = pa.table({"unit": pa.array(["a", None, "b", "a", None])})
    codes = unit_codes(table, "unit")
    assert codes is not None
    assert codes[0] == codes[3]
    assert len(set(codes.tolist())) == 4
    assert sorted(set(codes.tolist())) == [0, 1, 2, 3]
    assert unit_codes(table, "other") is None
    assert unit_codes(table, None) is None


def test_one_row_of_each_unit_is_chosen_at_random() -> None:
    units = np.repeat(np.arange(400), 5)
    rows = row_of_each(units, STREAM, "test")
    assert units[rows].tolist() == list(range(400))
    places = np.bincount(rows % 5, minlength=5)
    assert places.min() > 50  # expected 80 of each place


def test_samples_have_whole_units() -> None:
    table = visits(100, 5)
    units = table["person"].to_pylist()
    rows = sampled_units(table, "person", 123, STREAM, "test").tolist()
    assert rows == sorted(rows)
    assert len(rows) == 120
    assert naive.are_whole(rows, units)
    assert len(sampled_units(table, None, 123, STREAM, "test")) == 123
    assert len(sampled_units(table, "person", 500, STREAM, "test")) == 500


@pytest.mark.parametrize("parameter", ["unit_id", "household", "household_check"])
def test_control_rows_are_of_persons_who_were_not_released(parameter: str) -> None:
    table = visits(60)
    sister = sister_release(
        table, MethodUsed("DSWAP", {"swap_fields": ["cost"], parameter: "person"}), STREAM
    )
    assert not set(sister.control["person"].to_pylist()) & set(sister.release["person"].to_pylist())
    assert sister.control.num_rows == 30
    assert sister.source.num_rows == 270


def test_households_of_rswap_are_withheld_whole() -> None:
    random = np.random.default_rng(2)
    rows = 400
    table = pa.table(
        {
            "household": np.arange(rows) // 4,
            "region": np.repeat(random.integers(0, 4, rows // 4), 4),
            "age": random.integers(0, 90, rows),
        }
    )
    parameters = {
        "household": "household", "hierarchy": ["region"], "similar": [["household"]], "risk_fields": ["age"],
    }  # fmt: skip
    method = MethodUsed("RSWAP", parameters)
    assert method.unit_field == "household"
    assert naive.are_whole(
        np.flatnonzero(withheld_rows(table, method.unit_field, STREAM, "test")).tolist(),
        table["household"].to_pylist(),
    )


def test_attacked_rows_are_of_different_units() -> None:
    table = visits(80)
    method = MethodUsed("DSWAP", {"swap_fields": ["cost"], "unit_id": "person"})

    def tables(attacks: int, used: MethodUsed | None) -> AttackTables:
        options = AttackOptions(attacks=attacks)
        return AttackTables(
            table.slice(0, 300), table.slice(0, 300), table.slice(300), options,
            method=used, aligned=True, stream=STREAM,
        )  # fmt: skip

    units = table["person"].to_pylist()
    for attacks in (1000, 20):
        found = tables(attacks, method)
        for targets, given in ((found.targets, units[:300]), (found.control_targets, units[300:])):
            rows = targets.tolist()
            assert rows == sorted(rows)
            assert naive.one_row_each(rows, given)
            assert len(rows) == min(attacks, len(set(given)))
    assert len(tables(1000, None).targets) == 300


def test_full_disclosure_of_persons_of_several_rows_is_high() -> None:
    """Rows of a person are equal but for the cost; with one row withheld the others would disclose it."""
    table = visits()
    method = MethodUsed("DSWAP", {"swap_fields": ["cost"], "unit_id": "person"})
    options: dict[str, Any] = {"known": ("birth", "area"), "secret": ("diagnosis",)}
    figures = attacked(table, table, identifiers=("person",), method=method, **options)
    assert figures.control == "sister"
    found = figures.attacks["inference"]
    assert isinstance(found, dict)
    result = found["diagnosis"]
    assert result.control is not None
    assert result.risk is not None
    assert (result.attack.rate, result.attack.tries, result.control.tries) == (1.0, 270, 30)
    assert result.control.rate < 0.4
    assert result.risk.low > 0.9
    states = {(each.attack, each.field): each.state for each in judge(figures, Thresholds()).attacks}
    assert states["inference", "diagnosis"] == states["linkability", None] == "high"
    assert "each of another unit of 'person'" in figures.left_out["membership"]


def test_too_few_units_leave_the_release_itself() -> None:
    table = visits(9)
    method = MethodUsed("DSWAP", {"swap_fields": ["cost"], "unit_id": "person"})
    figures = attacked(table, table, known=("birth",), method=method)
    assert figures.control == "none"
    assert "fewer than 10 units of 'person'" in figures.left_out["control"]


def test_advice_keeps_units_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "MOST_TRIES", 3)
    monkeypatch.setattr(advice, "SAMPLE_ROWS", 250)
    seen = []
    attack = attack_release

    def recorded(source: pa.Table, release: pa.Table, control: pa.Table, *more: Any, **named: Any) -> Any:
        seen.append((set(source["person"].to_pylist()), set(control["person"].to_pylist()), source.num_rows))
        return attack(source, release, control, *more, **named)

    monkeypatch.setattr(advice, "attack_release", recorded)
    method = MethodUsed("DSWAP", {"swap_fields": ["cost"], "unit_id": "person"})
    options = AttackOptions(known=("birth", "area"), secret=("diagnosis",))
    advise(visits(100), method, options, Thresholds(), STREAM, no_progress)
    assert seen
    assert all(len(kept) == 45 and len(control) == 5 and not kept & control for kept, control, _ in seen)
    assert {rows for _, _, rows in seen} == {225}
    few = advise(visits(9, 20), method, options, Thresholds(), STREAM, no_progress)
    assert "fewer than 10 units" in few.sentence


def without_method(table: pa.Table, control: pa.Table | None, **options: Any) -> AttackFigures:
    """Attack an unchanged table of unknown origin."""
    return attacked(table, table, control, known=("birth", "area"), secret=("diagnosis",), **options)


def test_without_a_job_an_option_names_the_persons() -> None:
    """One row of each person is attacked, and no attack uses the field that identifies the person."""
    table, alone = visits(80), without_method(visits(80), None)
    found = without_method(table, None, unit_field="person")
    for name in ("linkability", "inference"):
        tries = [each["attacks"][name] for each in (alone.report(), found.report())]
        tries = [each.get("diagnosis", each)["attack"]["tries"] for each in tries]
        assert tries == [400, 80]
    assert "identifies" in found.left_out["fields.person"]


def test_who_has_several_equal_rows_is_singled_out() -> None:
    """No condition matches one of five equal rows, but nearly each matches the rows of one person."""
    table = visits(80).drop_columns(["cost"])
    alone = without_method(table, None, identifiers=("person",))
    found = without_method(table, None, unit_field="person")
    for name in ("singling_out_univariate", "singling_out_multivariate"):
        assert "exactly one released row" in alone.left_out[name]
        result = found.attacks[name]
        assert isinstance(result, AttackResult)
        assert result.attack.rate == 1.0
        assert result.attack.tries <= 80


def test_each_unit_has_one_predicate_at_most() -> None:
    """Households of four have one, too, though their members are singled out one by one."""
    table = visits(40, 4)
    for parameters in ({"unit_id": "person"}, {"household": "person"}):
        method = MethodUsed("DSWAP", {"swap_fields": ["cost"], **parameters})
        tables = AttackTables(table, table, None, AttackOptions(), method=method, aligned=True, stream=STREAM)
        cells = Cells.of(tables, "release")
        found = combinations(tables, cells, 2)
        assert found
        assert len({cells.unit_of(predicate) for predicate in found}) == len(found)
        of_one = one_of_each_unit(cells, rare_values(cells), STREAM)
        assert len(of_one) == len({cells.unit_of(predicate) for predicate in of_one}) == 40
        assert tables.one_person == ("unit_id" in parameters)


def test_dealt_values_of_persons_stay_together() -> None:
    """A person of two rows gets two rows of another person's values of a field."""
    table = pa.table({"person": [0, 0, 1, 1, 2, 2], "value": [1, 2, 3, 4, 5, 6]})
    options = AttackOptions(unit_field="person", known=("value",))
    tables = AttackTables(table, table, None, options, method=None, aligned=True, stream=STREAM)
    dealt = Cells.of(tables, "release").dealt(STREAM, "test").numbers["value"].reshape(3, 2)
    assert (np.diff(dealt, axis=1) == 1).all()
    assert len(np.unique(dealt)) == 6


@pytest.mark.parametrize("kinds", [2, 6])
def test_who_knows_all_rows_of_a_person_finds_the_partner(kinds: int) -> None:
    """Single values occur often, six of them together once: the partners of known persons are certain."""
    random = np.random.default_rng(5)
    person = np.repeat(np.arange(120), 12)
    table = pa.table({"person": person, "illness": random.integers(0, kinds, len(person))})
    parameters = {"swap_fields": ["illness"], "unit_id": "person"}
    params = dswap.PROVIDER.check(dswap.PROVIDER.params.model_validate(parameters), table.schema)
    release = dswap.PROVIDER.swap(table, params, dswap.PROVIDER.stream(SEED), no_progress).table
    tables = AttackTables(
        table,
        release,
        None,
        AttackOptions(known_share=0.25, secret=("illness",)),
        method=MethodUsed("DSWAP", parameters),
        aligned=True,
        stream=STREAM,
    )
    result = reidentification.ATTACK.run(tables)
    assert isinstance(result, dict)
    found = result["illness"]
    assert found.attack.tries == 90
    assert found.details["known_rows"] == 30 * 12
    assert found.details["certain"] == found.details["certain_and_right"] > 15


def test_a_person_is_linked_by_any_row_of_the_same_person() -> None:
    table = visits(40)
    parameters = {"swap_fields": ["diagnosis"], "unit_id": "person", "rate": 0.05}
    tables = AttackTables(
        table,
        table,
        None,
        AttackOptions(known=("birth", "area", "diagnosis")),
        method=MethodUsed("DSWAP", parameters),
        aligned=True,
        stream=STREAM,
    )
    result = linkage.ATTACK.run(tables)
    assert isinstance(result, AttackResult)
    assert result.attack.rate == 1.0


def test_the_guess_of_linkability_is_of_another_person() -> None:
    """Ten persons of thirty rows: one in ten random other rows would be of the same person."""
    table = visits(10, 30)
    person = np.array(table["person"].to_pylist())
    for seed in range(20):
        tables = AttackTables(
            table, table, None, AttackOptions(unit_field="person"),
            method=None, aligned=True, stream=attacks_stream(bytes([seed] * 32)),
        )  # fmt: skip
        others = other_rows(tables)
        assert len(others) == 10
        assert (person[others] != person[tables.targets]).all()
    alone = table.set_column(0, "person", pa.array(["p"] * 300))
    tables = AttackTables(
        alone, alone, None, AttackOptions(unit_field="person"), method=None, aligned=True, stream=STREAM
    )
    assert other_rows(tables) != tables.targets


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ParameterError, match="unknown field 'persom'; did you mean 'person'") as refused:
        without_method(visits(20), None, unit_field="persom")
    assert refused.value.pointer == "/unit_field"
