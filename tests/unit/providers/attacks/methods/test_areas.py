"""Linkage by the rule of record swapping: against its plain twin, and where the answer is known."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.figures import AttackResult
from providers.attacks.methods import areas
from providers.attacks.methods.areas import area_rule, area_weights
from providers.attacks.methods.groups import joint_codes
from providers.attacks.suite import MethodUsed
from providers.measures.shared.finding import NotApplicable
from providers.randomness.chacha20 import Stream
from providers.services import rswap
from tests.naive import method_attacks as naive
from tests.unit.providers.attacks.methods.tables import released
from tests.unit.providers.attacks.tables import attacked

STREAM = Stream(bytes(32), "RSWAP", 1)


def survey(households: int, regions: int = 3, seed: int = 2) -> pa.Table:
    """Households of one to three persons in regions and towns, each with a grid cell."""
    random = np.random.default_rng(seed)
    size = random.integers(1, 4, households)
    region = random.integers(0, regions, households)
    of_row = np.repeat(np.arange(households), size)
    return pa.table(
        {
            "household": of_row,
            "region": region[of_row],
            "town": (10 * region + random.integers(0, 3, households))[of_row],
            "grid": random.integers(0, 20, households)[of_row],
            "size": size[of_row],
            "age": random.integers(0, 30, len(of_row)),
            "job": random.integers(0, 6, len(of_row)),
        }
    )


def settings(parameters: dict[str, Any]) -> Any:
    return rswap.settings_of(rswap.RswapParams.model_validate(parameters))


@pytest.mark.parametrize("known", [["region"], ["region", "town"], ["town", "grid"]])
@pytest.mark.parametrize(
    "parameters",
    [
        {"similar": [["size"]], "risk_fields": ["age"], "k_anonymity": 3},
        {"similar": [["size"], ["household"]], "swap_rate": 0.4},
        {"swap_rate": 1.0},
    ],
)
def test_weights_equal_their_twin(known: list[str], parameters: dict[str, Any]) -> None:
    parameters = {
        "household": "household", "hierarchy": ["region", "town"], "carry_along": ["grid"], **parameters,
    }  # fmt: skip
    tables = released("RSWAP", survey(40), parameters)
    rule = area_rule(tables.release, settings(parameters), STREAM)
    true, shown = joint_codes(tables, known, ["source", "release"])
    (area,) = joint_codes(tables, ["region", "town"], ["release"])
    group = np.zeros(len(area), np.int64)
    if "similar" in parameters:
        (group,) = joint_codes(tables, parameters["similar"][0], ["release"])
    for target in range(0, tables.source.num_rows, 7):
        expected = naive.area_weights(
            shown.tolist(), int(true[target]), area.tolist(), group.tolist(), rule.rate.tolist()
        )
        assert area_weights(shown, int(true[target]), rule) == pytest.approx(np.array(expected))


def test_rates_are_those_of_a_simulated_run() -> None:
    """Without obligations all rows have the rate of the parameters; rows at risk were swapped more often."""
    plain = {"household": "household", "hierarchy": ["region"], "swap_rate": 0.3}
    tables = released("RSWAP", survey(1000), plain)
    rule = area_rule(tables.release, settings(plain), STREAM)
    assert rule.rate == pytest.approx(np.full(tables.release.num_rows, 0.3), abs=0.05)
    risky = {**plain, "risk_fields": ["age", "job"], "k_anonymity": 3, "swap_rate": 0.1}
    tables = released("RSWAP", survey(1000), risky)
    low, high = sorted(set(area_rule(tables.release, settings(risky), STREAM).rate.tolist()))
    assert high > 3 * low > 0


def one(result: Any) -> AttackResult:
    assert isinstance(result, AttackResult)
    return result


def test_a_person_of_two_areas_is_found_in_the_other_one() -> None:
    """All are swapped between two areas: the person is where its area is not shown, and never where it is."""
    source = pa.table({"area": [0, 1] * 100, "name": np.arange(200) // 2})
    parameters = {"hierarchy": ["area"], "swap_rate": 1.0}
    found = one(areas.ATTACK.run(released("RSWAP", source, parameters, known=("area", "name"))))
    assert found.attack.rate == 1.0
    assert found.details["without_the_rule"] == 0
    assert found.baseline is not None
    assert found.baseline.rate < 0.05
    assert found.details["rates"] == [1.0]


def test_at_a_low_rate_a_person_is_found_in_its_area() -> None:
    source = survey(1000)
    parameters = {"household": "household", "hierarchy": ["region", "town"], "swap_rate": 0.1}
    known = ("region", "town", "age", "job", "household")
    found = one(areas.ATTACK.run(released("RSWAP", source, parameters, known=known)))
    assert found.attack.rate > 0.4  # other members of the household agree as well
    parameters["swap_rate"] = 0.9
    hidden = one(areas.ATTACK.run(released("RSWAP", source, parameters, known=known[:-1])))
    assert hidden.attack.rate < 0.2


def test_it_needs_a_known_field_that_was_exchanged() -> None:
    parameters = {"household": "household", "hierarchy": ["region"]}
    with pytest.raises(NotApplicable, match="no known field was exchanged"):
        areas.ATTACK.run(released("RSWAP", survey(50), parameters, known=("age",)))


@pytest.mark.parametrize("unmatched", ["keep", "suppress"])
def test_the_suite_runs_it_on_a_sister_release(unmatched: str) -> None:
    source = survey(150)
    parameters = {
        "household": "household", "hierarchy": ["region", "town"], "similar": [["size"]],
        "risk_fields": ["age"], "unmatched": unmatched,
    }  # fmt: skip
    figures = attacked(
        source, source, method=MethodUsed("RSWAP", parameters),
        known=("region", "town", "age"), secret=("job",),
    )  # fmt: skip
    assert figures.control == "sister"
    assert "area_linkage" in figures.attacks, figures.left_out


def test_a_release_that_fails_the_rule_is_left_out() -> None:
    """Households that the release tears cannot be swapped again: the reason is in the report."""
    source = survey(50)
    release = source.set_column(1, "region", pa.array(np.arange(source.num_rows) % 3))
    figures = attacked(
        source, release, source.slice(0, 5),
        method=MethodUsed("RSWAP", {"household": "household", "hierarchy": ["region"]}), known=("region",),
    )  # fmt: skip
    assert "cannot be simulated" in figures.left_out["area_linkage"]
