"""Advice: values of parameters that are tried, and what is made of their risks."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.attacks import advice
from providers.attacks.advice import advise, variations
from providers.attacks.figures import AttackFigures, AttackResult, risk_of, successes
from providers.attacks.options import AttackOptions
from providers.attacks.suite import MethodUsed, attacks_stream
from providers.attacks.thresholds import Thresholds
from providers.errors import ProviderError
from providers.progress import no_progress
from tests.unit.providers.attacks.tables import SEED, people

OPTIONS = AttackOptions(known=("age", "school", "town"), secret=("income",), attacks=40)
SWAP = {"swap_fields": ["income"], "rate": 0.3}


def test_every_kind_of_parameter_is_varied_within_its_bounds() -> None:
    """Numbers, choices, booleans and fields; each change is one that the service accepts."""
    table = people(40)
    for service, parameters in (
        ("DSWAP", SWAP),
        ("RWN", {"k": 5, "perturb_fields": ["income"]}),
        ("LOCALITY", {"fields": ["income"]}),
        ("MEDS", {"swap_fields": ["income", "age"], "k": 4}),
    ):
        found = list(variations(MethodUsed(service, parameters), OPTIONS, table.schema.names))
        assert all(len(change) == 1 for change in found)
        assert len({str(change) for change in found}) == len(found)
        provider = PROVIDERS[service]
        for change in found:
            provider.params.model_validate(parameters | change)
            [(name, value)] = change.items()
            default = provider.params.model_json_schema()["properties"][name].get("default")
            assert value != parameters.get(name, default)
    swaps = list(variations(MethodUsed("DSWAP", SWAP), OPTIONS, table.schema.names))
    assert {"rate": 1.0} in swaps
    assert {"locked": True} in swaps
    assert {"swap_fields": ["income", "age", "school", "town"]} in swaps
    assert {"k": 20} in list(variations(MethodUsed("RWN", {"k": 5}), OPTIONS, table.schema.names))


def risky(risks: dict[str, float]) -> Any:
    """Return a suite in which the risk of a release follows from parameters alone."""

    def attack(source: pa.Table, *_: Any, method: MethodUsed, **__: Any) -> AttackFigures:
        share = risks["now"]
        for name, factor in risks.items():
            if name != "now" and name in str(method.parameters):
                share *= factor
        made, control = successes(round(400 * share), 400, 0.95), successes(0, 400, 0.95)
        return AttackFigures(
            {"linkability": AttackResult(made, None, control, risk_of(made, control))}, {}, "given"
        )

    return attack


def test_the_parameter_that_lowers_the_risk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """And two that help are tried together."""
    monkeypatch.setattr(
        advice, "attack_release", risky({"now": 0.5, "'rate': 1.0": 0.2, "'locked': True": 0.4})
    )
    found = advise(
        people(400), MethodUsed("DSWAP", SWAP), OPTIONS, Thresholds(), attacks_stream(SEED), no_progress
    )
    assert found.parameters == {"rate": 1.0, "locked": True}
    assert found.best is not None
    assert found.now.risk == 0.5
    assert found.best.risk == pytest.approx(0.04)
    assert (found.now.state, found.best.state) == ("high", "low")
    sentence = "With 'rate' = 1.0 and 'locked' = true the risk of the worst attack is 0.040 (low)"
    assert sentence in found.sentence
    assert found.rows + found.control_rows == 400


def test_what_was_low_by_chance_is_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of many alike tries is below the interval of the release's own, and not in a second trial."""
    chance = np.random.default_rng(1)

    def attack(*_: Any, **__: Any) -> AttackFigures:
        made, control = successes(int(chance.binomial(200, 0.3)), 200, 0.95), successes(0, 200, 0.95)
        result = AttackResult(made, None, control, risk_of(made, control))
        return AttackFigures({"linkability": result}, {}, "given")

    monkeypatch.setattr(advice, "attack_release", attack)
    method = MethodUsed("LOCALITY", {"fields": ["income"]})
    found = [
        advise(people(200), method, OPTIONS, Thresholds(), attacks_stream(bytes([seed]) * 32), no_progress)
        for seed in range(20)
    ]
    picked = [each for each in found if each.best is not None]
    assert len(picked) >= 5
    assert sum(bool(each.parameters) for each in picked) <= 1
    for each in picked:
        assert each.confirmed is not None
        assert ("in a second trial, too" in each.sentence) == (not each.parameters)


def test_a_difference_within_the_interval_is_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "attack_release", risky({"now": 0.5, "'rate': 1.0": 0.96}))
    found = advise(
        people(400), MethodUsed("DSWAP", SWAP), OPTIONS, Thresholds(), attacks_stream(SEED), no_progress
    )
    assert (found.parameters, found.best) == ({}, None)
    assert f"None of {len(found.tries)} other parameters" in found.sentence


def test_a_lower_state_within_the_interval_is_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A risk of 0.095 is high and one of 0.085 elevated, within the error of 400 attacks."""
    monkeypatch.setattr(advice, "attack_release", risky({"now": 0.095, "'rate': 1.0": 0.9}))
    found = advise(
        people(400), MethodUsed("DSWAP", SWAP), OPTIONS, Thresholds(), attacks_stream(SEED), no_progress
    )
    assert found.now.state == "high"
    assert "elevated" in {each.state for each in found.tries}
    assert (found.parameters, found.best) == ({}, None)


def test_it_agrees_with_the_suite_on_a_real_release() -> None:
    """A swap of the known fields leaves less to link; the same seed gives the same advice."""
    table = people(600)
    options = OPTIONS.model_copy(update={"known": ("age", "town", "height", "income"), "secret": ()})
    method = MethodUsed("DSWAP", {"swap_fields": ["moves"]})
    one, two = (
        advise(table, method, options, Thresholds(), attacks_stream(SEED), no_progress) for _ in range(2)
    )
    assert one == two
    assert (one.now.state, one.now.attack) == ("high", "linkability")
    assert one.best is not None
    assert one.parameters["swap_fields"] == ["moves", "age", "town", "height", "income"]
    assert (one.best.risk or 0) < (one.now.low or 0)


def test_what_cannot_be_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few rows, and parameters with which the service or the attacks cannot run."""
    method = MethodUsed("DSWAP", SWAP)
    few = advise(people(50), method, OPTIONS, Thresholds(), attacks_stream(SEED), no_progress)
    assert "fewer than 100 rows" in few.sentence

    def refuse(*_: Any, method: MethodUsed, **more: Any) -> AttackFigures:
        if method.parameters["rate"] == 1.0:
            raise ProviderError("not at rate 1")
        figures: AttackFigures = risky({"now": 0.5})(*_, method=method, **more)
        return figures

    monkeypatch.setattr(advice, "attack_release", refuse)
    found = advise(people(400), method, OPTIONS, Thresholds(), attacks_stream(SEED), no_progress)
    [one] = [each for each in found.tries if each.error]
    assert (one.change, one.error, one.risk) == ({"rate": 1.0}, "not at rate 1", None)


def test_there_is_an_end_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parameters a service has."""
    monkeypatch.setattr(advice, "attack_release", risky({"now": 0.5}))
    monkeypatch.setattr(advice, "MOST_TRIES", 8)
    method = MethodUsed("LOCALITY", {"fields": ["income"]})
    found = advise(people(200), method, OPTIONS, Thresholds(), attacks_stream(SEED), no_progress)
    assert len(list(variations(method, OPTIONS, people(200).schema.names))) > 8
    assert len(found.tries) == 6  # the others are for values together
