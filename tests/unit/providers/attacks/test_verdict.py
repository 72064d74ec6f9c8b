"""Verdict on attacks: states, reasons and thresholds."""

import itertools

import pytest
from pydantic import ValidationError

from providers.attacks.figures import AttackFigures, AttackResult, Successes, risk_of, successes
from providers.attacks.thresholds import Bounds, Thresholds
from providers.attacks.verdict import SINGLING_OUT, judge
from tests.naive import verdict as naive


def of(attack: int, control: int | None, baseline: int | None = 2, tries: int = 200) -> AttackResult:
    """A result with these successes of `tries`."""

    def counted(found: int | None) -> Successes | None:
        return None if found is None else successes(found, tries, 0.95)

    made, on_control = successes(attack, tries, 0.95), counted(control)
    return AttackResult(made, counted(baseline), on_control, risk_of(made, on_control))


def figures(**attacks: AttackResult | dict[str, AttackResult]) -> AttackFigures:
    return AttackFigures(attacks, {}, "given")


@pytest.mark.parametrize("name", ["linkability", *SINGLING_OUT])
def test_states_agree_with_their_definition(name: str) -> None:
    """Over risks, intervals, numbers of tries and thresholds."""
    for attack, control, tries, bounds in itertools.product(
        range(0, 41, 4), (0, 3, 20, 40), (40, 4000), (Bounds(), Bounds(elevated=0.1, high=0.33))
    ):
        scale = tries // 40
        result = of(attack * scale, control * scale, tries=tries)
        found = judge(figures(**{name: result}), Thresholds(elevated=bounds.elevated, high=bounds.high))
        [one] = found.attacks
        assert one.state == naive.state(
            one.value, one.low, one.high, bounds.elevated, bounds.high, name in SINGLING_OUT
        )
        assert found.state == one.state
        expected = max(0.0, (attack - control) / (40 - control)) if control < 40 else 0.0
        assert one.value == pytest.approx(expected)
        assert one.against == "control"


def test_the_worst_attack_decides() -> None:
    """Reasons name every attack of that state, the worst first, with its field."""
    found = judge(
        figures(
            singling_out_univariate=of(198, 10),
            linkability=of(4, 4),
            inference={"income": of(120, 20), "religion": of(80, 20)},
        ),
        Thresholds(),
    )
    assert found.state == naive.worst([each.state for each in found.attacks]) == "high"
    assert [(each.attack, each.field) for each in found.attacks] == [
        ("inference", "income"),
        ("inference", "religion"),
        ("singling_out_univariate", None),
        ("linkability", None),
    ]
    first, second = found.reasons
    assert "of 'income' succeeds in 60.0 % of 200 attempts" in first
    assert "10.0 % on rows that were not in the source, 1.0 % by guessing: risk 0.556" in first
    assert "'religion'" in second


def test_few_attempts_show_neither_a_low_nor_a_high_risk() -> None:
    """Both reasons say that more attacks would decide."""
    few = judge(figures(linkability=of(0, 0, tries=10)), Thresholds())
    assert few.state == "elevated"
    assert "reaches above 0.09: make more attacks" in few.reasons[0]
    noise = judge(figures(linkability=of(3, 1, tries=12)), Thresholds())
    assert noise.attacks[0].value > 0.09
    assert noise.state == "elevated"
    assert "includes 0: make more attacks" in noise.reasons[0]
    assert judge(figures(linkability=of(0, 0, tries=1000)), Thresholds()).state == "low"


def test_without_control_rows_guessing_is_what_is_subtracted() -> None:
    [one] = judge(figures(linkability=of(100, None, 20)), Thresholds()).attacks
    assert one.against == "baseline"
    assert one.value == pytest.approx((0.5 - 0.1) / 0.9)
    [one] = judge(figures(linkability=of(100, None, None)), Thresholds()).attacks
    assert (one.against, one.value) == ("nothing", 0.5)
    [one] = judge(figures(linkability=of(200, 200)), Thresholds()).attacks
    assert (one.against, one.value, one.state) == ("control", 0.0, "elevated")


def test_no_attack_shows_nothing() -> None:
    found = judge(figures(), Thresholds())
    assert (found.state, found.attacks) == (naive.worst([]), [])
    assert "not known" in found.reasons[0]


def test_an_attack_may_have_thresholds_of_its_own() -> None:
    """Bounds of 1 leave it out of the verdict."""
    one = Thresholds(attacks={"linkability": Bounds(elevated=1, high=1)})
    assert judge(figures(linkability=of(150, 0)), Thresholds()).state == "high"
    assert judge(figures(linkability=of(150, 0)), one).state == "low"
    with pytest.raises(ValidationError, match="must not be below"):
        Thresholds.model_validate({"elevated": 0.2, "high": 0.1})
