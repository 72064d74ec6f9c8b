"""Intervals of attacks in a comparison: of one run without a relation, and of several runs."""

import math

import numpy as np
import pytest

from providers.attacks.figures import AttackResult, successes, uncut_risk
from providers.attacks.tables import Outcomes
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.repeats import share_interval
from providers.selection.repeated_attacks import (
    Attempts,
    interval_of_risk,
    mean_above_zero,
    share_of_reach,
    terms_of_risk,
)
from providers.selection.sampled_attacks import SampledRisk, risk_beyond_baseline


def risk_of_masks(attack: np.ndarray, baseline: np.ndarray) -> SampledRisk:
    counts = [successes(int(mask.sum()), len(mask), 0.95) for mask in (attack, baseline)]
    return risk_beyond_baseline(
        [AttackResult(counts[0], counts[1], None, None)], [Outcomes(attack, baseline)], None
    )


def test_terms_have_the_risk_as_mean_and_its_derivative_by_each_row() -> None:
    """A row that counts a little more changes the risk by its term less the risk."""
    random = np.random.default_rng(1)
    attack, baseline = random.random(50) < 0.6, random.random(50) < 0.3
    terms = terms_of_risk(attack, baseline)
    a, b = attack.mean(), baseline.mean()
    assert terms.mean() == pytest.approx((a - b) / (1 - b))
    step = 1e-6
    for row in range(50):
        weights = np.full(50, (1 - step) / 50)
        weights[row] += step
        one, two = weights @ attack, weights @ baseline
        derivative = ((one - two) / (1 - two) - (a - b) / (1 - b)) / step
        assert terms[row] - terms.mean() == pytest.approx(derivative, abs=1e-4)


def test_the_mean_above_zero_is_that_of_normal_numbers() -> None:
    numbers = np.random.default_rng(2).normal(size=400_000)
    for mean in (-2.0, -0.5, 0.0, 1.0, 4.0):
        drawn = float(np.maximum(0, 0.1 * (mean + numbers)).mean())
        assert mean_above_zero(0.1 * mean, 0.1) == pytest.approx(drawn, abs=5e-4)
    assert mean_above_zero(-math.inf, 0.1) == mean_above_zero(-1.0, 0.0) == 0


@pytest.mark.parametrize(("rate", "guess", "rows"), [(0.05, 0.09, 300), (0.06, 0.08, 500), (0.5, 0.6, 100)])
def test_without_a_relation_the_interval_covers_the_mean_over_seeds(
    rate: float, guess: float, rows: int
) -> None:
    """The guess is better than the attack, and the mean of the risks that are cut at 0 is above 0."""
    random = np.random.default_rng(3)
    found = [risk_of_masks(random.random(rows) < rate, random.random(rows) < guess) for _ in range(1000)]
    mean = float(np.mean([each.value for each in found]))
    assert mean > 0
    covered = sum(each.interval["low"] <= mean <= each.interval["high"] for each in found)
    assert covered >= 930
    assert all(0 <= each.interval["low"] <= each.value <= each.interval["high"] <= 1 for each in found)
    assert all(each.interval["high"] > 0 for each in found)


def test_runs_without_a_risk_in_common_leave_everything_open() -> None:
    random = np.random.default_rng(3)
    always, attack = np.ones(9, np.bool_), random.random(9) < 0.5
    assert uncut_risk(successes(5, 9, 0.95), successes(9, 9, 0.95)) is None
    unknown = Attempts(None, terms_of_risk(always, always))
    assert not unknown.terms.any()
    (some,) = risk_of_masks(attack, ~always).tried
    assert interval_of_risk([(unknown, some), (some, unknown)], 0.0) == {"low": 0, "high": 1}
    alone = interval_of_risk([(some,), (some,)], 0.0)
    assert interval_of_risk([(unknown, some), (some, some)], 0.0) == alone


@pytest.mark.parametrize(
    ("alike", "runs", "narrowest", "widest"),
    [(0.0, 5, 0.44, 0.56), (0.3, 10, 0.55, 0.68), (0.9, 5, 0.93, 1.0)],
)
def test_the_part_that_runs_do_not_share_falls_with_their_number(
    alike: float, runs: int, narrowest: float, widest: float
) -> None:
    """The reach is sqrt(alike + (1 - alike) / runs) of that of one run, and covers in about 95 %."""
    random, share = np.random.default_rng(4), 0.3
    covered, reaches = 0, []
    for _ in range(400):
        each = np.full(300, share)
        if alike:
            spread = (1 - alike) / alike
            each = random.beta(share * spread, (1 - share) * spread, 300)
        terms = [(random.random(300) < each).astype(float) for _ in range(runs)]
        own = [share_interval(float(one.mean()), 300) for one in terms]
        mean, reach = float(np.mean(terms)), share_of_reach(terms)
        below = (mean - np.mean([one["low"] for one in own])) * reach
        above = (np.mean([one["high"] for one in own]) - mean) * reach
        covered += bool(mean - below <= share <= mean + above)
        reaches.append(reach)
    assert narrowest < np.median(reaches) < widest
    assert 0.91 <= covered / 400 <= 0.99


def test_a_draw_that_all_rows_of_a_run_share_is_not_averaged_over_rows() -> None:
    """Runs that differ by more than their rows widen the interval of few runs."""
    random = np.random.default_rng(5)
    terms = [(random.random(2000) < rate).astype(float) for rate in (0.2, 0.3, 0.4, 0.5)]
    assert share_of_reach(terms) > 5
    assert share_of_reach([np.zeros(20)] * 3) == share_of_reach([np.zeros(1), np.ones(1)]) == 1
    same = (random.random(500) < 0.3).astype(float)
    assert share_of_reach([same] * 4) == pytest.approx(1, abs=0.01)  # more runs say nothing more


@pytest.mark.parametrize(("rate", "guess"), [(0.1, 0.1), (0.06, 0.09)])
def test_several_runs_without_a_relation_cover_no_risk_and_the_mean_over_seeds(
    rate: float, guess: float
) -> None:
    """Runs are combined before the cut at 0; limits that were cut, and then narrowed, left out 0."""
    random = np.random.default_rng(6)
    found = []
    for _ in range(400):
        runs = [risk_of_masks(random.random(300) < rate, random.random(300) < guess) for _ in range(5)]
        value = float(np.mean([each.value for each in runs]))
        found.append((value, interval_of_risk([each.tried for each in runs], value)))
    mean = float(np.mean([value for value, _ in found]))
    for truth in (0.0, mean):
        assert sum(each["low"] <= truth <= each["high"] for _, each in found) >= 370
    assert all(each["low"] <= value <= each["high"] for value, each in found)


def test_an_attack_of_which_every_guess_is_right_does_not_count() -> None:
    """It shows nothing: a risk of 0 with any upper limit would be the least one of a comparison."""
    random = np.random.default_rng(3)
    guessed = np.ones(50, np.bool_)
    attack, baseline = random.random(50) < 0.6, random.random(50) < 0.3

    def of(*pairs: tuple[np.ndarray, np.ndarray]) -> SampledRisk:
        counts = [[successes(int(mask.sum()), 50, 0.95) for mask in pair] for pair in pairs]
        results = [AttackResult(one, two, None, None) for one, two in counts]
        return risk_beyond_baseline(results, [Outcomes(*pair) for pair in pairs], None)

    alone, both = of((attack, baseline)), of((guessed, guessed), (attack, baseline))
    assert (both.value, both.interval) == (alone.value, alone.interval)
    with pytest.raises(NotApplicable, match="every guess is right"):
        of((guessed, guessed))
