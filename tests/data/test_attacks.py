"""Attacks on adult: the order of the figures that docs/attacks.md states."""

import re
from pathlib import Path

import pytest

from benchmarks import attacks as benchmark
from providers.attacks.figures import AttackResult

pytestmark = pytest.mark.realdata

PAGE = Path(__file__).parents[2] / "docs" / "attacks.md"
ATTACKS = 400


@pytest.fixture(scope="module")
def found(data_dir: Path) -> dict[str, dict[str, AttackResult]]:
    """Release -> results of fewer attacks than those of the page."""
    source, control = benchmark.adult(data_dir)
    return {
        case.name: benchmark.results(benchmark.attacked(case, source, control, attacks=ATTACKS))
        for case in benchmark.cases(source.column_names)
    }


def stated() -> dict[str, list[tuple[float, float]]]:
    """Release -> rates on the source and on control rows, from the table of the page."""
    rows = re.findall(r"^\| ([^|]+) \|(( [\d.]+ \([\d.]+\) \|)+)$", PAGE.read_text(), re.MULTILINE)
    return {
        name: [(float(one), float(two)) for one, two in re.findall(r"([\d.]+) \(([\d.]+)\)", cells)]
        for name, cells, _ in rows
    }


def test_the_page_states_what_is_measured(found: dict[str, dict[str, AttackResult]]) -> None:
    """Rates of 400 other attacks, within five standard deviations of the difference."""
    assert set(stated()) == set(found)
    for name, cells in stated().items():
        for attack, rates in zip(benchmark.COLUMNS, cells, strict=True):
            result = found[name][attack]
            assert result.control is not None
            for side, rate in zip((result.attack, result.control), rates, strict=True):
                middle = (side.rate * side.tries + rate * side.tries + 2) / (2 * side.tries + 4)
                spread = (2 * middle * (1 - middle) / side.tries) ** 0.5
                assert abs(side.rate - rate) <= 5 * spread, (name, attack, side, rate)


def test_releases_are_ordered_by_what_they_protect(found: dict[str, dict[str, AttackResult]]) -> None:
    """The source is linked most, then a swap of a tenth of the rows, and a swap of all rows hardly ever."""
    linked = {name: results["linkability"].attack.rate for name, results in found.items()}
    assert linked["the source itself"] > linked["DSWAP, rate 0.1"] + 0.1
    for other in ("DSWAP, rate 1", "MEDS, k 5", "RWN, k 5", "LOCALITY"):
        assert linked["DSWAP, rate 0.1"] > linked[other] + 0.1
    risks = {
        name: {secret: result.risk for secret, result in results.items() if secret in benchmark.SECRETS}
        for name, results in found.items()
    }
    for secret in benchmark.SECRETS:
        source, tenth, whole = (
            risks[name][secret] for name in ("the source itself", "DSWAP, rate 0.1", "DSWAP, rate 1")
        )
        assert source is not None
        assert tenth is not None
        assert whole is not None
        assert source.low > tenth.high > tenth.low > whole.high


def test_a_swap_keeps_values_that_one_person_has(found: dict[str, dict[str, AttackResult]]) -> None:
    for name in ("the source itself", "DSWAP, rate 1", "DSWAP, rate 0.1", "MEDS, k 5"):
        result = found[name]["singling_out_univariate"]
        assert result.control is not None
        assert result.attack.rate > 0.99 > 0.3 > result.control.rate
    redrawn = found["LOCALITY"].get("singling_out_univariate")
    assert redrawn is None or redrawn.attack.rate < 0.05
