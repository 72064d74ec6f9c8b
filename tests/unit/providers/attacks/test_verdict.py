"""Verdict on attacks: states, reasons and thresholds."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from providers.attacks.figures import AttackFigures, AttackResult, Successes, risk_of, successes
from providers.attacks.tables import MethodUsed
from providers.attacks.thresholds import Bounds, Thresholds
from providers.attacks.verdict import SINGLING_OUT, judge
from tests.naive import verdict as naive
from tests.unit.providers.attacks.tables import attacked


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


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("tries", [(540, 60), (60, 540), (10, 1)])
def test_a_risk_that_is_not_known_has_the_interval_of_the_twin(
    tries: tuple[int, int], confidence: float
) -> None:
    """Every control attack succeeds: the interval reaches 1 if every attack does, and is low if few do."""
    other = successes(tries[1], tries[1], confidence)
    for count in sorted({0, tries[0] // 2, tries[0] - 3, tries[0] - 1, tries[0]}):
        attack = successes(count, tries[0], confidence)
        expected = naive.unknown((count, tries[0]), (tries[1], tries[1]), confidence)
        for result, against in (
            (AttackResult(attack, successes(1, tries[0], confidence), other, None), "control"),
            (AttackResult(attack, other, None, None), "baseline"),
        ):
            [one] = judge(figures(linkability=result), Thresholds()).attacks
            assert (one.value, one.low, one.high) == pytest.approx(expected, abs=1e-9)
            assert one.against == against
            assert one.state == naive.state(*expected, 0.05, 0.09, False)
            if count == tries[0]:
                assert (one.state, one.low, one.high) == ("elevated", 0.0, 1.0)
                assert "the risk is not known (0.000 to 1.000): make more attacks" in one.reason


def test_an_unknown_risk_says_what_to_do() -> None:
    [one] = judge(figures(inference={"hiv": of(200, 200)}), Thresholds()).attacks
    assert "every attack on rows that were not in the source succeeds" in one.reason
    assert (
        "give more control rows, set a smaller 'tolerance', or name a secret with rarer values" in one.reason
    )
    [one] = judge(figures(inference={"hiv": of(200, None, 200)}), Thresholds()).attacks
    assert "every guess succeeds" in one.reason
    assert one.state == "elevated"
    bounds = Thresholds(attacks={"inference": Bounds(elevated=1, high=1)})
    assert judge(figures(inference={"hiv": of(200, 200)}), bounds).state == "low"


def test_a_secret_that_is_left_out_is_not_judged() -> None:
    reason = "the tolerance of 5 % makes every guess right"
    found = AttackFigures(
        {"inference": {"year": of(200, 200, 200), "income": of(0, 0, tries=2000)}},
        {"inference.year": reason},
        "given",
    )
    verdict = judge(found, Thresholds())
    assert [each.field for each in verdict.attacks] == ["income"]
    assert verdict.state == "low"
    assert verdict.reasons[1] == f"Inference of 'year' is not judged: {reason}."
    alone = judge(AttackFigures({"inference": {"year": of(9, 9, 9)}}, {"inference.year": reason}, "given"),
                  Thresholds())  # fmt: skip
    assert (alone.state, alone.attacks, len(alone.reasons)) == ("elevated", [], 2)
    assert "not known" in alone.reasons[0]


def test_a_rare_secret_that_is_disclosed_is_never_low() -> None:
    """Four of 600 persons; the control has none of them in about two thirds of the seeds."""
    random = np.random.default_rng(1)
    rare = np.full(600, "no", object)
    rare[random.choice(600, 4, replace=False)] = "yes"
    table = pa.table(
        {
            "age": random.integers(18, 90, 600),
            "area": random.integers(1000, 9999, 600),
            "weight": random.normal(70, 12, 600).round(1),
            "hiv": rare.tolist(),
        }
    )
    method, states, unknown = MethodUsed("DSWAP", {"swap_fields": ["weight"]}), set(), 0
    for seed in range(4):
        found = attacked(
            table, table, known=("age", "area"), secret=("hiv",), method=method, seed=bytes([seed]) * 16
        )
        [one] = [each for each in judge(found, Thresholds()).attacks if each.attack == "inference"]
        states.add(one.state)
        unknown += "not known" in one.reason
    assert states <= {"elevated", "high"}
    assert unknown >= 1


@pytest.mark.parametrize("control", [True, False])
@pytest.mark.parametrize(
    ("secret", "tolerance", "left_out"),
    [
        (list(range(1990, 2024)), 0.05, True),
        (list(range(1990, 2024)), 0.001, False),
        (list(range(1, 35)), 0.05, False),
        (["same"] * 34, 0.05, True),
        ([*["no"] * 33, "yes"], 0.05, False),
    ],
)
def test_a_secret_that_every_guess_gives_is_left_out(
    secret: list[Any], tolerance: float, left_out: bool, control: bool
) -> None:
    """The twin agrees; the result stays, so that the counts can be read."""
    values = secret * 6
    table = pa.table({"known": np.random.default_rng(1).permutation(len(values)), "secret": values})
    rows = 3 * len(secret)
    given = table.slice(rows) if control else None
    found = attacked(
        table.slice(0, rows), table.slice(0, rows), given, known=("known",), secret=("secret",),
        tolerance=tolerance,
    )  # fmt: skip
    assert (
        naive.every_guess_is_right(values[:rows], values if control else values[:rows], tolerance) == left_out
    )
    assert ("inference.secret" in found.left_out) == left_out
    judged = [each for each in judge(found, Thresholds()).attacks if each.attack == "inference"]
    assert len(judged) == (not left_out)
    if left_out and secret[0] != "same":
        reason = found.left_out["inference.secret"]
        assert "the tolerance of 5 % makes every guess right" in reason
        assert "set a smaller 'tolerance', or name 'secret' in 'categorical_fields'" in reason


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
