"""Several intruders of one attack: an intruder who knows more is no weaker."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks import suite
from providers.attacks.figures import AttackFigures, AttackResult, risk_of, successes, unknown_risk
from providers.attacks.intruders import ALL_FIELDS, UNCHANGED_FIELDS, Run, details_of, strongest
from providers.attacks.options import AttackOptions
from providers.attacks.registry import ATTACKS
from providers.attacks.suite import attacks_stream
from providers.attacks.tables import AttackTables
from providers.attacks.thresholds import Thresholds
from providers.attacks.verdict import STATES, AttackState, judge
from providers.measures.assessment import MeasureOptions, Release
from providers.measures.run_figures import measures_stream
from providers.selection.figures import FIGURES, take_figures
from tests.naive import attacks as naive
from tests.naive import verdict as verdicts
from tests.unit.providers.attacks.tables import SEED, attacked, people, result_of


def persons(rows: int, seed: int) -> pa.Table:
    """Ages, heights and levels without any relation, and incomes and diagnoses that identify a person."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "age": random.integers(18, 90, rows),
            "height": random.normal(170, 10, rows).round(1),
            "level": random.integers(1, 9, rows),
            "income": np.round(np.exp(random.normal(10.3, 0.6, rows)), 2),
            "rent": np.round(np.exp(random.normal(7, 0.4, rows)), 2),
            "diagnosis": random.choice(list("ABCD"), rows),
        }
    )


def swapped(table: pa.Table, fields: tuple[str, ...], seed: int = 7) -> pa.Table:
    """The table with each of these fields dealt at random."""
    random = np.random.default_rng(seed)
    for name in fields:
        order = pa.array(random.permutation(table.num_rows))
        table = table.set_column(table.schema.get_field_index(name), name, table[name].take(order))
    return table


CHANGED = ("age", "height", "level")


def test_swapped_fields_that_are_known_do_not_hide_a_disclosure() -> None:
    """Without the second intruder the risk fell from 1 to .04 where the swapped fields were named, too."""
    source, control = persons(800, 1), persons(400, 2)
    release = swapped(source, CHANGED)
    options: dict[str, Any] = {"secret": ("diagnosis",), "attacks": 400}
    one = attacked(source, release, control, known=("income",), **options)
    more = attacked(source, release, control, known=(*CHANGED, "income"), **options)
    [few_fields, all_fields] = [figures.attacks["inference"] for figures in (one, more)]
    assert isinstance(few_fields, dict)
    assert isinstance(all_fields, dict)
    alone, found = few_fields["diagnosis"], all_fields["diagnosis"]
    assert (found.attack, found.control, found.baseline) == (alone.attack, alone.control, alone.baseline)
    assert found.details["used"] == ["income"]
    assert found.details["intruder"] in ("nearest_unchanged", "model_unchanged")
    assert found.details["nearest"]["attack"].rate < 0.5
    for intruder in ("nearest", "model"):
        expected = {**alone.details[intruder], "fields": ["income"]}
        assert found.details[f"{intruder}_unchanged"] == expected
    assert found.risk is not None
    assert found.risk.low > 0.9
    assert "used" not in alone.details
    assert "nearest_unchanged" not in alone.details
    [reason] = [each.reason for each in judge(more, Thresholds()).attacks if each.attack == "inference"]
    assert "Inference of 'diagnosis' by the unchanged field 'income' alone succeeds in 100.0 %" in reason


def test_two_tables_are_linked_by_unchanged_fields() -> None:
    source, control = persons(600, 1), persons(300, 2)
    release = swapped(source, CHANGED)
    known = ("age", "income", "height", "rent", "level")
    for linked in ((), (("age", "income"), ("height", "level", "rent"))):
        found = result_of(
            attacked(source, release, control, known=known, linked=linked, attacks=300), "linkability"
        )
        assert found.details["linked"] == [["income"], ["rent"]]
        assert found.details["used"] == ["income", "rent"]
        assert found.details["intruder"] == "unchanged_fields"
        assert found.attack.rate > 0.95
        assert found.details["all_fields"]["attack"].rate < 0.1
    apart = attacked(source, release, known=known, linked=(("age", "height"), ("income", "rent")), attacks=50)
    assert "intruder" not in result_of(apart, "linkability").details  # one table knows only swapped fields


def test_membership_is_shown_by_unchanged_fields() -> None:
    source, control = persons(500, 1), persons(300, 2)
    found = result_of(attacked(source, swapped(source, CHANGED), control, attacks=300), "membership")
    assert found.details["used"] == ["income", "rent", "diagnosis"]
    assert found.attack.rate == 1.0
    assert found.details["all_fields"]["attack"].rate < 0.5
    assert "area_under_curve" in found.details


@pytest.mark.parametrize("aligned", [True, False])
def test_nothing_is_tried_twice_without_unchanged_fields(aligned: bool) -> None:
    """Neither where all known fields have changed or none, nor where the source rows are not known."""
    source, control = persons(200, 1), persons(100, 2)
    known = ("age", "height", "income") if not aligned else ("age", "height")
    options: dict[str, Any] = {"known": known, "secret": ("diagnosis",), "attacks": 50}
    for fields in (CHANGED, ()) if aligned else (CHANGED,):
        figures = attacked(source, swapped(source, fields), control, aligned=aligned, **options)
        found = figures.attacks["inference"]
        assert isinstance(found, dict)
        assert set(found["diagnosis"].details) == {"intruder", "nearest", "model"}
        assert set(result_of(figures, "linkability").details) == {"linked", "neighbours"}


@pytest.mark.parametrize(("altered", "is_found"), [(1, True), (40, True), (41, False)])
def test_a_few_altered_values_do_not_hide_an_intruder(altered: int, is_found: bool) -> None:
    """One suppressed value would otherwise make an intruder with more knowledge look weaker again."""
    source, control = persons(800, 1), persons(400, 2)
    release = swapped(source, CHANGED)
    incomes = [income + 0.5 * (row < altered) for row, income in enumerate(release["income"].to_pylist())]
    place = release.schema.get_field_index("income")
    release = release.set_column(place, "income", pa.array(incomes))
    options: dict[str, Any] = {"known": (*CHANGED, "income"), "secret": ("diagnosis",), "attacks": 400}
    figures = attacked(source, release, control, **options)
    found = figures.attacks["inference"]
    assert isinstance(found, dict)
    assert ("nearest_unchanged" in found["diagnosis"].details) == is_found
    [state] = [each.state for each in judge(figures, Thresholds()).attacks if each.attack == "inference"]
    assert (state == "high") == is_found


def test_unchanged_fields_are_those_of_the_twin() -> None:
    """With nulls, NaN, categories, and rows of the release in another order."""
    random = np.random.default_rng(5)
    source = people(80, 1).append_column(
        "odd", pa.array([float("nan") if row % 9 == 0 else row / 3 for row in range(80)])
    )
    names = tuple(source.schema.names)
    for fields in itertools.chain.from_iterable(itertools.combinations(names, size) for size in (0, 1, 3, 7)):
        origin = random.permutation(80)[:70]
        release = swapped(source, fields).take(pa.array(origin))
        tables = AttackTables(
            source, release, None, AttackOptions(known=names), method=None, aligned=True,
            stream=attacks_stream(SEED), origin=origin,
        )  # fmt: skip
        for asked in (names, names[:3]):
            expected = naive.unchanged(source.to_pylist(), release.to_pylist(), origin.tolist(), asked)
            assert tables.unchanged_among(asked) == expected


def test_the_worst_intruder_decides_the_state() -> None:
    """Counts of two intruders; also where all attacks of one on control rows succeed."""
    counts = [(0, 0), (3, 1), (6, 0), (30, 25), (38, 39), (40, 39), (40, 40), (36, 40)]
    bounds = Thresholds(elevated=0.2, high=0.4)
    for pairs in itertools.product(counts, repeat=2):
        runs = {
            name: Run(successes(attack, 40, 0.95), successes(control, 40, 0.95), None, used)
            for name, used, (attack, control) in zip(
                (ALL_FIELDS, UNCHANGED_FIELDS), (None, ["a"]), pairs, strict=True
            )
        }
        risks = []
        for run in runs.values():
            assert run.control is not None
            one = risk_of(run.attack, run.control) or unknown_risk(run.attack, run.control)
            risks.append((one.value, one.low, one.high))
        chosen = strongest(runs)
        assert list(runs).index(chosen) == naive.reported(risks)
        run = runs[chosen]
        result = AttackResult(run.attack, None, run.control, run.risk, details=details_of(runs, chosen))
        [judged] = judge(AttackFigures({"linkability": result}, {}, "given"), bounds).attacks
        states = [verdicts.state(*risk, 0.2, 0.4, False) for risk in risks]
        assert judged.state == verdicts.worst(states)
        assert (judged.value, judged.low, judged.high) in risks
        place = risks.index((judged.value, judged.low, judged.high))
        assert states[place] == judged.state
        if risks[0] != risks[1]:
            assert ("by the unchanged field 'a' alone" in judged.reason) == (place == 1)


def test_without_control_the_success_beyond_guessing_decides() -> None:
    guess = successes(5, 40, 0.95)
    runs = {str(count): Run(successes(count, 40, 0.95), None, guess) for count in (3, 30, 20)}
    assert strongest(runs) == "30"
    assert strongest({"a": runs["3"], "b": runs["3"]}) == "a"


@pytest.mark.parametrize("with_control", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.12])
def test_naming_another_swapped_field_lowers_no_state(
    with_control: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases of which no diagnosis or some are disclosed; the swapped field at any place of the list."""
    tried = {name: ATTACKS[name] for name in ("inference", "linkability")}
    monkeypatch.setattr(suite, "attacks_on", lambda service: tried)
    random = np.random.default_rng(11)
    source = persons(160, 10)
    control = persons(80, 20) if with_control else None
    release = swapped(source, CHANGED)
    dealt = release["diagnosis"].take(pa.array(random.permutation(160)))
    mixed = np.where(random.random(160) < share, source["diagnosis"], dealt)
    release = release.set_column(5, "diagnosis", pa.array(mixed.tolist()))

    def judged(known: tuple[str, ...]) -> dict[str, AttackState]:
        figures = attacked(source, release, control, known=known, secret=("diagnosis",))
        return {each.attack: each for each in judge(figures, Thresholds()).attacks}

    fewer = judged(("income", "rent"))
    for known in (("age", "income", "rent"), ("income", "height", "rent"), ("income", "rent", "level")):
        more = judged(known)
        for attack, state in fewer.items():
            assert STATES.index(more[attack].state) >= STATES.index(state.state)


@pytest.mark.parametrize("figure", ["inference_risk", "linkability_risk"])
def test_a_comparison_has_the_same_intruders(figure: str) -> None:
    """Aligned rows, and rows with an origin; not rows whose origin is unknown."""
    source = persons(500, 1)
    release = swapped(source, CHANGED)
    stream = measures_stream(bytes(32))
    order = np.random.default_rng(3).permutation(500)[:480]

    def risk(made: Release, known: tuple[str, ...]) -> float:
        options = MeasureOptions(known_fields=known, sensitive_fields=("diagnosis", "rent"))
        return float(take_figures([FIGURES[figure]], made, options, stream).values[figure])

    fewer = risk(Release(source, release), ("income",))
    assert fewer > 0.5
    assert risk(Release(source, release), (*CHANGED, "income")) == fewer
    moved = Release(source, release.take(pa.array(order)), origin=order)
    assert risk(moved, (*CHANGED, "income")) > 0.5
    unknown = Release(source, release.take(pa.array(order)), aligned=False)
    assert risk(unknown, (*CHANGED, "income")) < 0.3


def test_a_result_without_control_has_the_strongest_of_all() -> None:
    source = persons(300, 1)
    found: AttackResult = result_of(
        attacked(source, swapped(source, CHANGED), known=("age", "income", "rent"), attacks=100),
        "linkability",
    )
    assert found.risk is None
    assert found.details["used"] == ["income", "rent"]
