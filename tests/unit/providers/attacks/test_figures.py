"""Success counts and risks, against formulas of another form."""

import numpy as np
import pytest

from providers.attacks.figures import risk_of, successes
from tests.naive import attacks as naive

COUNTS = [(0, 10), (3, 10), (10, 10), (1, 1), (0, 1), (999, 1000), (412, 1000)]


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize(("count", "tries"), COUNTS)
def test_wilson(count: int, tries: int, confidence: float) -> None:
    found = successes(count, tries, confidence)
    assert (found.low, found.high) == pytest.approx(naive.wilson(count, tries, confidence), abs=1e-12)
    assert found.rate == count / tries
    assert 0 <= found.low <= found.rate <= found.high <= 1


@pytest.mark.parametrize(("control", "tries"), [(0, 50), (1, 50), (30, 50), (49, 50)])
@pytest.mark.parametrize(("attack", "attack_tries"), [(1, 200), (120, 200), (199, 200), (3, 4)])
def test_risk_and_its_limits(attack: int, attack_tries: int, control: int, tries: int) -> None:
    """The closed form equals the roots that bisection finds."""
    one, two = successes(attack, attack_tries, 0.95), successes(control, tries, 0.95)
    low, high = naive.ratio_limits(
        (1 - one.rate, 1 - one.high, 1 - one.low), (1 - two.rate, 1 - two.high, 1 - two.low)
    )
    risk = risk_of(one, two)
    assert risk is not None
    assert risk.value == pytest.approx(max(0.0, (one.rate - two.rate) / (1 - two.rate)))
    assert (risk.low, risk.high) == pytest.approx((max(0.0, 1 - high), max(0.0, 1 - low)), abs=1e-9)


def test_extremes_have_intervals() -> None:
    """No success and only successes are no certainty; without a failure on control rows there is no risk."""
    none, all_of_them = successes(0, 100, 0.95), successes(100, 100, 0.95)
    nothing = risk_of(none, none)
    assert nothing is not None
    assert nothing.value == nothing.low == 0 < nothing.high < 0.05
    everything = risk_of(all_of_them, none)
    assert everything is not None
    assert 0.95 < everything.low < everything.value == everything.high == 1
    assert risk_of(all_of_them, all_of_them) is None
    assert risk_of(none, None) is None


@pytest.mark.parametrize("confidence", [1 - 2**-53, 0.9999999999999999])
@pytest.mark.parametrize("attack", [0, 3, 10])
def test_next_to_certainty_a_risk_has_no_limits(attack: int, confidence: float) -> None:
    """The quantile of the normal distribution is infinite there, and both shares may be any."""
    risk = risk_of(successes(attack, 10, confidence), successes(1, 10, confidence))
    assert risk is not None
    assert risk.low == 0 <= risk.value <= risk.high == 1


@pytest.mark.parametrize(("attack", "control"), [(0.3, 0.1), (0.02, 0.01), (0.9, 0.5)])
def test_the_interval_covers_the_risk_as_often_as_it_says(attack: float, control: float) -> None:
    """The share of 2,000 intervals at 90 % that cover the true risk is between .87 and .95."""
    random = np.random.default_rng(11)
    truth, covered = (attack - control) / (1 - control), 0
    pairs = zip(random.binomial(300, attack, 2000), random.binomial(100, control, 2000), strict=True)
    for one, two in pairs:
        risk = risk_of(successes(one, 300, 0.9), successes(two, 100, 0.9))
        assert risk is not None
        covered += risk.low <= truth <= risk.high
    assert 0.87 <= covered / 2000 <= 0.95, covered
