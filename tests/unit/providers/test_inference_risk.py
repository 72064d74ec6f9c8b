"""Inference as a figure of comparisons: what it ranks, when it is the default, uses of a release by name."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import ParameterError
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.risk.interval_sd import robust_scale, share_within
from providers.measures.run_figures import measures_stream
from providers.progress import no_progress
from providers.selection.axes import axis_of
from providers.selection.candidates import CandidateOptions, choose, ranking_figures
from providers.selection.combinations import Variation, combinations_of
from providers.selection.figures import FIGURES, UTILITIES, default_risk, named_figure, take_figures
from providers.selection.frontier import FrontierOptions, frontier, frontier_figures

STREAM = measures_stream(bytes(32))

OPTIONS = MeasureOptions(key_fields=("age", "school"), sensitive_fields=("income",))

INFERENCE = FIGURES["inference_risk"]


def people(rows: int = 600) -> pa.Table:
    """Income follows from age and school."""
    chance = np.random.default_rng(8)
    age, school = chance.integers(18, 80, rows), chance.integers(0, 4, rows)
    return pa.table(
        {
            "age": age,
            "school": [f"s{number}" for number in school],
            "income": np.where(age + 20 * school > 75, "high", "low"),
            "hobby": chance.choice(["chess", "golf"], rows),
        }
    )


def swapped(rate: float) -> pa.Table:
    provider = PROVIDERS["DSWAP"]
    params = provider.params.model_validate({"swap_fields": ["income"], "rate": rate})
    stream = provider.stream(bytes(32))
    return provider.swap(people(), provider.check(params, people().schema), stream, no_progress).table


def risk(destination: pa.Table, **more: Any) -> float:
    taken = take_figures([INFERENCE], Release(people(), destination, **more), OPTIONS, STREAM)
    return taken.values["inference_risk"]


def test_the_figure_falls_with_the_rate_of_a_swap() -> None:
    values = [risk(people()), risk(swapped(0.2)), risk(swapped(1.0))]
    assert values[0] > 0.9
    assert values[0] > values[1] > values[2]
    assert values[2] < 0.1


def test_rows_are_taken_by_their_origin_or_without_one() -> None:
    order = np.random.default_rng(1).permutation(600)
    shuffled = people().take(order)
    assert risk(shuffled, origin=order) == pytest.approx(risk(people()), abs=0.02)
    assert risk(shuffled, aligned=False) > 0.9


def test_the_figure_is_left_out_with_a_reason() -> None:
    table = people(1)
    taken = take_figures([INFERENCE], Release(table, table), OPTIONS, STREAM)
    assert "needs 2 rows" in taken.undefined["inference_risk"]
    without = people().drop_columns(["income"])
    taken = take_figures([INFERENCE], Release(people(), without), OPTIONS, STREAM)
    assert "'income' cannot be attacked" in taken.undefined["inference_risk"]


def test_it_is_the_default_if_known_and_sensitive_fields_are_given() -> None:
    assert default_risk(OPTIONS)[0] == "inference_risk"
    assert "inference_risk" not in default_risk(MeasureOptions(key_fields=("age",)))
    assert "inference_risk" not in default_risk(MeasureOptions(sensitive_fields=("income",)))
    same = MeasureOptions(key_fields=("age",), sensitive_fields=("age",))
    assert default_risk(same)[0] == "record_linkage.rate"
    with pytest.raises(ParameterError, match="sensitive_fields"):
        named_figure("inference_risk", MeasureOptions(key_fields=("age",)), "/risk")


def test_a_constant_inference_never_ranks() -> None:
    tried = [FIGURES[name] for name in default_risk(OPTIONS)]
    releases = [people(), people()]
    taken = [take_figures(tried, Release(people(), each), OPTIONS, STREAM) for each in releases]
    axis = axis_of(tried, taken, OPTIONS, ["hobby"])
    assert not axis.ranks or axis.figure.name != "inference_risk"


def test_the_frontier_ranks_by_inference_and_the_utility_that_is_named() -> None:
    services = (
        Variation(service="DSWAP", parameters={"swap_fields": ["income"]}, vary={"rate": [0.1, 0.5, 1.0]}),
    )
    options = FrontierOptions(services=services, utility="marginals")
    points = combinations_of(services, people().schema)
    tried = frontier_figures(options, OPTIONS, points, people().schema)
    assert [figure.name for figure in tried.utility] == ["marginals.mean_distance"]
    found = frontier(people(), points, tried, 1, OPTIONS, bytes(32), 256, no_progress)
    assert found["risk"] == "inference_risk"
    risks = [point["risk"] for point in found["points"]]
    assert risks == sorted(risks, reverse=True)
    assert found["axes"]["risk"]["baseline"] == 0


def test_the_baseline_is_the_mean_over_the_fields_of_the_figure() -> None:
    """A weight is moved, but has no figure: its chance is no part of the baseline."""
    chance = np.random.default_rng(9)
    table = pa.table({"weight": chance.random(300) * 1000 + 1, "income": chance.normal(0, 1, 300)})
    services = (
        Variation(
            service="DSWAP", parameters={"swap_fields": ["weight", "income"]}, vary={"rate": [0.5, 1.0]}
        ),
    )
    name = "interval_sd.robust.by_field"
    options = FrontierOptions(services=services, risk=name)
    measures = MeasureOptions(weight_fields=("weight",))
    points = combinations_of(services, table.schema)
    tried = frontier_figures(options, measures, points, table.schema)
    found = frontier(table, points, tried, 1, measures, bytes(32), 256, no_progress)
    assert found["protected"] == ["income", "weight"]
    assert found["figures"][name]["fields"] == ["income"]
    income = table["income"].to_numpy()
    by_chance = share_within(income, 0.05 * robust_scale(income))
    assert found["axes"]["risk"]["baseline"] == pytest.approx(by_chance)


@pytest.mark.parametrize("name", ["dcr.mean", "dcr.at_zero", "interval_sd.share", "interval_ranks.share"])
def test_the_baseline_is_that_of_the_report(name: str) -> None:
    """It is the value by chance of a report on the source; the identifier takes part in neither."""
    chance = np.random.default_rng(9)
    table = pa.table({"person": np.arange(300), **{key: chance.integers(0, 40, 300) for key in "ab"}})
    parameters = {"swap_fields": ["a"], "unit_id": "person"}
    services = (Variation(service="DSWAP", parameters=parameters, vary={"rate": [0.5, 1.0]}),)
    points, options = combinations_of(services, table.schema), FrontierOptions(services=services, risk=name)
    tried = frontier_figures(options, MeasureOptions(), points, table.schema)
    found = frontier(table, points, tried, 1, MeasureOptions(), bytes(32), 256, no_progress)
    key, part = name.split(".")
    alone = MeasureOptions(only=(key,), unit_field="person")
    report = assess(Release(table, table), alone, measures_stream(bytes(32))).measures[key]
    assert found["axes"]["risk"]["baseline"] == report["chance"][part] > 0


def test_a_table_dealt_at_random_has_no_risk_of_linkage() -> None:
    table = people()
    dealt = table.set_column(2, "income", table["income"].take(np.random.default_rng(2).permutation(600)))
    options = MeasureOptions(key_fields=("school",), sensitive_fields=("income",))
    figure = FIGURES["linkability_risk"]
    taken = take_figures([figure], Release(table, dealt), options, STREAM)
    assert taken.values[figure.name] < 0.05


def test_candidates_keep_the_default_risk_next_to_a_named_utility() -> None:
    names = [figure.name for figure in ranking_figures(CandidateOptions(count=2, utility="queries"), OPTIONS)]
    assert names[0] == "inference_risk"
    assert names[-1] == "range_averages.bounded"
    provider = PROVIDERS["DSWAP"]
    params = provider.params.model_validate({"swap_fields": ["income"], "rate": 0.5})
    candidates = CandidateOptions(count=3, utility="marginals")
    found = choose(provider, people(), params, bytes(32), 256, candidates, OPTIONS, no_progress)
    assert "inference_risk" in found.evidence["rank_by"]
    assert found.evidence["on_other_rows"].keys() == {"inference_risk"}  # of 600 rows 500 are attacked
    chosen = found.evidence["table"][found.index]["values"]["inference_risk"]
    assert found.evidence["on_other_rows"]["inference_risk"] != chosen
    assert f"in place of {chosen:.3g}" in found.evidence["verdict"]
    few = choose(provider, people().slice(0, 60), params, bytes(32), 256, candidates, OPTIONS, no_progress)
    assert "on_other_rows" not in few.evidence
    for wrong, reason in (
        (CandidateOptions(count=2, utility="queries", rank_by=("pscr",)), "'utility' or 'rank_by'"),
        (CandidateOptions(count=2, utility="pscr"), "not of utility"),
        (CandidateOptions(count=2, utility="model"), "target"),
    ):
        with pytest.raises(ParameterError, match=reason) as refusal:
            ranking_figures(wrong, OPTIONS)
        assert refusal.value.pointer == "/candidates/utility"


def test_uses_name_figures_of_utility() -> None:
    assert {FIGURES[name].measure.concerns for name in UTILITIES.values()} == {"utility"}
    options = MeasureOptions(target="income")
    assert {named_figure(use, options, "").name for use in UTILITIES} == set(UTILITIES.values())
