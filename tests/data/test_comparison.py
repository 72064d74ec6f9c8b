"""Comparisons of runs on real tables do not recommend the weakest protection."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.measures.assessment import MeasureOptions
from providers.measures.shared.comparison import Release
from providers.params import Params
from providers.progress import Progress, no_progress
from providers.provider import Provider
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from providers.selection import figures
from providers.selection.candidates import CandidateOptions, choose
from providers.selection.combinations import Combination, combinations_of
from providers.selection.figures import ATTACK_RISKS
from providers.selection.frontier import FrontierOptions, frontier, frontier_figures
from providers.selection.sampled_attacks import SampledRisk
from providers.tables.digest import table_digest
from tests.data.test_real_tables import read

pytestmark = pytest.mark.realdata

MONEY = {"swap_fields": ["income", "expend", "savings"]}
SEVEN: list[dict[str, Any]] = [
    {"service": "DSWAP", "parameters": MONEY, "vary": {"locked": [False, True]}},
    {"service": "CDSWAP", "parameters": MONEY | {"control_field": "roof"}},
    {"service": "DDSWAP", "parameters": MONEY | {"control_field": "age"}, "vary": {"block_size": [10, 50]}},
    {"service": "MEDS", "parameters": MONEY, "vary": {"k": [10, 100]}},
]
KNOWN = MeasureOptions(key_fields=("age", "sex", "urbrur", "relat"), sample=1000)


def compared(
    table: pa.Table, services: list[dict[str, Any]], measures: MeasureOptions, **more: Any
) -> dict[str, Any]:
    options = FrontierOptions.model_validate({"services": services, **more})
    combinations = combinations_of(options.services, table.schema)
    return compare(table, combinations, options, measures)


def compare(
    table: pa.Table, combinations: list[Combination], options: FrontierOptions, measures: MeasureOptions
) -> dict[str, Any]:
    tried = frontier_figures(options, measures, combinations, table.schema)
    return frontier(table, combinations, tried, options.runs, measures, bytes(32), 128, no_progress)


def test_known_fields_that_no_run_changes_rank_nothing(data_dir: Path) -> None:
    """Seven runs have one risk of linkage, that of the source: it decided by utility alone."""
    table = read(data_dir / "testdata.csv")
    found = compared(table, SEVEN, KNOWN, risk="record_linkage")
    risks = {point["risk"] for point in found["points"]}
    assert len(risks) == 1
    assert found["axes"]["risk"]["constant"] is True
    assert "of which no run changes a value" in found["axes"]["risk"]["reason"]
    assert found["best"] == []
    assert all(point["dominated"] for point in found["points"])
    assert "No combination is called better" in found["verdict"]
    assert "Name another figure of 'risk'" in found["verdict"]


def test_the_default_risk_is_an_attack_on_the_protected_fields(data_dir: Path) -> None:
    """Known fields are given, secrets are those that move; weak groups of ten have the higher risk.

    By neither attack differs one of 21 pairs of single runs by more than the uncertainty of them all.
    """
    table = read(data_dir / "testdata.csv")
    found = compared(table, SEVEN, KNOWN)
    assert found["risk"] == "interval_sd.robust.by_field"
    assert list(found["passed_over"]) == ["inference_risk", "linkability_risk", "record_linkage.rate"]
    for attack in ("inference_risk", "linkability_risk"):
        assert "by more than its uncertainty" in found["passed_over"][attack]
    assert found["attacked"] == {"known": list(KNOWN.key_fields), "sensitive": found["protected"]}
    assert found["protected"] == sorted(MONEY["swap_fields"])
    swapped, *_, groups_of_ten, groups_of_hundred = found["points"]
    for attack in ("inference_risk", "linkability_risk"):
        assert groups_of_ten["figures"][attack] > groups_of_hundred["figures"][attack]
        assert groups_of_ten["figures"][attack] > swapped["figures"][attack]
    near = "interval_sd.robust.by_field"
    assert groups_of_ten["figures"][near] > groups_of_hundred["figures"][near]
    assert groups_of_hundred["figures"][near] > 2 * swapped["figures"][near]
    assert found["best"]
    assert "recommended" not in found


def test_the_axis_that_matters_recommends_a_point(data_dir: Path) -> None:
    table = read(data_dir / "testdata.csv")
    services = [{"service": "MEDS", "parameters": MONEY, "vary": {"k": [10, 100, 1000]}}]
    options = FrontierOptions.model_validate({"services": services, "risk": "pscr", "runs": 2})
    combinations = combinations_of(options.services, table.schema)
    tried = frontier_figures(options, MeasureOptions(), combinations, table.schema)
    preferred = {}
    for matters in ("risk", "utility"):
        found = frontier(
            table, combinations, tried, 2, MeasureOptions(), bytes(32), 128, no_progress, matters
        )
        assert found["recommended"] in found["best"]
        preferred[matters] = found["points"][found["recommended"]]
        values = [point[matters] for point in found["points"] if not point["dominated"]]
        assert preferred[matters][matters] == (max if found["goals"][matters] == "high" else min)(values)
        for point in found["points"]:
            low, high = point["ranges"][found["utility"]]
            assert low < point["utility"] < high
    assert preferred["risk"] != preferred["utility"]


def undone(combination: Combination, rows: dict[str, int]) -> Combination:
    """The combination, whose provider says how many rows are in the smallest groups."""
    provider: Provider[Any] = combination.provider

    def swap(table: pa.Table, params: Params, stream: Stream, progress: Progress) -> SwapResult:
        result = provider.swap(table, params, stream, progress)
        provided = {"group_bits": {"smallest": 0.0, **rows}, "reversible": any(rows.values())}
        return replace(result, provider=result.provider | provided)

    return replace(combination, provider=replace(provider, swap=swap))


@dataclass(frozen=True)
class Blocks:
    """A run in blocks of two, a run of DSWAP, and their comparison if nobody can undo either."""

    table: pa.Table
    options: FrontierOptions
    two: Combination
    large: Combination
    harmless: dict[str, Any]


@pytest.fixture(scope="module")
def attacked_once() -> Iterator[None]:
    """Attack equal releases once: the comparisons of blocks differ only in what a provider says of them."""
    risks: dict[tuple[Any, ...], SampledRisk] = {}

    def once(
        name: str, release: Release, options: MeasureOptions, stream: Stream, progress: Progress
    ) -> SampledRisk:
        tables = table_digest(release.source), table_digest(release.destination)
        key = (name, *tables, options.model_dump_json(), stream.seed)
        if key not in risks:
            risks[key] = ATTACK_RISKS[name][1](release, options, stream, progress)
        return risks[key]

    cached = {name: (measure, partial(once, name)) for name, (measure, _) in ATTACK_RISKS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "ATTACK_RISKS", cached)
        yield


@pytest.fixture(scope="module")
def blocks(data_dir: Path, attacked_once: None) -> Blocks:
    table = read(data_dir / "CASCrefmicrodata.csv")
    taxes = {"swap_fields": ["AGI", "FEDTAX", "PTOTVAL", "INTVAL"]}
    services = [
        {"service": "DDSWAP", "parameters": taxes | {"control_field": "TAXINC", "block_size": 2}},
        {"service": "DSWAP", "parameters": taxes},
    ]
    options = FrontierOptions.model_validate({"services": services})
    two, large = (harmless(one) for one in combinations_of(options.services, table.schema))
    return Blocks(table, options, two, large, compare(table, [two, large], options, MeasureOptions()))


@pytest.mark.parametrize("name", ["rows_in_groups_of_two", "rows_in_groups_of_three"])
def test_blocks_that_anybody_undoes_are_never_best(blocks: Blocks, name: str) -> None:
    """Their figures alone put them on the frontier: correlations change least, an eighth of DSWAP's."""
    table, options, two, large = blocks.table, blocks.options, blocks.two, blocks.large
    measures = MeasureOptions()
    assert 0 in blocks.harmless["best"]
    found = compare(table, [undone(two, {name: 1080}), large], options, measures)
    assert found["points"][0]["reversible"] == {name: 1080}
    assert found["points"][0]["dominated"] is True
    assert found["best"] == [1]
    assert "can be undone by anybody" in found["verdict"]
    alone = compare(table, [undone(one, {name: 2}) for one in (two, large)], options, measures)
    assert alone["best"] == []
    assert "anybody can undo each of them" in alone["verdict"]


def harmless(combination: Combination) -> Combination:
    """The combination without groups of two or three, as far as its provider says."""
    return undone(combination, {"rows_in_groups_of_two": 0, "rows_in_groups_of_three": 0})


def test_a_run_that_protects_fewer_fields_is_not_called_better(data_dir: Path) -> None:
    """It changes less, and a field that it leaves as it was is said."""
    table = read(data_dir / "testdata.csv")
    services = [
        {"service": "DSWAP", "parameters": {"swap_fields": ["income"]}},
        {"service": "DSWAP", "parameters": MONEY},
        {"service": "MEDS", "parameters": MONEY | {"k": 20}},
    ]
    found = compared(table, services, MeasureOptions(), risk="pscr")
    fewer, *whole = found["points"]
    assert (fewer["protects"], fewer["protects_fewer"]) == (["income"], True)
    assert fewer["unprotected"] == ["expend", "savings"]
    assert fewer["utility"] < whole[0]["utility"]
    assert fewer["dominated"] is True
    assert not any(point["protects_fewer"] for point in whole)
    assert set(found["best"]) <= {1, 2}
    assert found["best"]
    assert "1 protects fewer fields than others" in found["verdict"]


def test_a_constant_figure_ranks_no_candidates(data_dir: Path) -> None:
    """Linkage by fields that stay: named, it is said to be constant; else another one ranks."""
    table = read(data_dir / "testdata.csv")
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params.model_validate(MONEY), table.schema)
    run = (provider, table, params, bytes(32), 128)
    named = CandidateOptions(count=3, rank_by=("record_linkage",))
    found = choose(*run, named, KNOWN, no_progress).evidence
    assert (found["rank_by"], found["chosen"]) == ([], 0)
    assert len({line["values"]["record_linkage.rate"] for line in found["table"]}) == 1
    assert "of which no run changes a value" in found["left_out"]["record_linkage.rate"]
    assert "No figure distinguishes the candidates" in found["verdict"]
    free = choose(*run, CandidateOptions(count=3), KNOWN, no_progress).evidence
    assert free["rank_by"] == ["interval_sd.robust.by_field", "delta_rho.ranks.mean"]
    assert "record_linkage.rate" in free["left_out"]
    assert free["protected"] == sorted(MONEY["swap_fields"])


def test_the_groups_that_a_provider_counts_decide(data_dir: Path) -> None:
    """DDSWAP's blocks of two and of three by its own figures; at rate .5 their rows may have stayed."""
    table = read(data_dir / "testdata.csv")
    parameters = MONEY | {"control_field": "age"}
    services = [
        {"service": "DDSWAP", "parameters": parameters, "vary": {"block_size": [2, 3, 10]}},
        {"service": "DDSWAP", "parameters": parameters | {"block_size": 2, "rate": 0.5}},
    ]
    found = compared(table, services, MeasureOptions())
    two, three, ten, half = found["points"]
    assert two["reversible"] == {"rows_in_groups_of_two": table.num_rows}
    assert three["reversible"]["rows_in_groups_of_three"] > 4000
    assert (ten["reversible"], half["reversible"]) == ({}, {})
    assert two["dominated"] is three["dominated"] is True
    assert set(found["best"]) <= {2, 3}
    assert 2 in found["best"]
    assert "2 can be undone by anybody" in found["verdict"]
