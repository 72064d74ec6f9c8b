"""The figures by which runs are ranked: each is a number that some full report holds."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import ParameterError
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, Release
from providers.measures.run_figures import measures_stream, release_of_run
from providers.selection.figures import ATTACK_RISKS, FIGURES, named_figure, refuse_unused, take_figures
from tests.naive.agreement import swap

SEED = bytes(range(32))
OPTIONS = MeasureOptions(
    key_fields=("age", "sex"),
    sensitive_fields=("hours",),
    weight_fields=("weight",),
    target="income",
    domain_fields=("town",),
    query_fields=("age", "hours", "income", "town"),
    household_field="house",
)

RUNS: dict[str, dict[str, Any]] = {
    "MEDS": {"swap_fields": ["age", "income"], "k": 5},
    "PABIDOT": {"sigma": 0.3},
}


def people(rows: int = 300) -> pa.Table:
    random = np.random.default_rng(3)
    age = random.integers(18, 80, rows)
    hours = random.normal(40, 5, rows).round(1)
    return pa.table(
        {
            "age": age,
            "hours": hours,
            "income": (900 * age + 300 * hours + random.normal(0, 4000, rows)).round(),
            "sex": np.array(["f", "m"])[random.integers(0, 2, rows)],
            "town": np.array(["a", "b", "c"])[(age // 10 + random.integers(0, 2, rows)) % 3],
            "weight": np.linspace(10, 20, rows),
            "house": np.arange(rows) // 3,
        }
    )


@pytest.fixture(scope="module")
def taken() -> dict[str, float]:
    """Return figure -> number, from a run that provides it."""
    table = people()
    found: dict[str, float] = {}
    for service, parameters in RUNS.items():
        provider = PROVIDERS[service]
        params = provider.check(provider.params.model_validate(parameters), table.schema)
        released = release_of_run(provider, params, table, swap(service, table, parameters, SEED), 128)
        found |= take_figures(list(FIGURES.values()), released, OPTIONS, measures_stream(SEED)).values
    return found


def test_every_figure_is_a_number_of_some_report(taken: dict[str, float]) -> None:
    """Every name of a figure has a number in some report."""
    assert set(taken) == set(FIGURES)
    assert {figure.measure.key for figure in FIGURES.values()} == {*MEASURES, *ATTACK_RISKS}


def test_a_key_alone_is_its_first_figure() -> None:
    """The key of a measure means its first figure."""
    for key in MEASURES:
        figure = named_figure(key, OPTIONS, "/risk")
        assert figure.measure.key == key
        assert named_figure(figure.name, OPTIONS, "/risk") == figure


def test_figures_that_run_against_their_measure() -> None:
    """For a share at distance zero low is better, for a distance high."""
    assert FIGURES["dcr.mean"].goal == "high"
    assert FIGURES["dcr.at_zero"].goal == "low"
    assert (FIGURES["marginals.mean_distance"].goal, FIGURES["marginals.identical"].goal) == ("low", "high")


def test_a_figure_that_is_good_near_the_source_is_ranked_by_its_distance() -> None:
    """More total correlation or R^2 than in the source is as wrong as less."""
    for key in ("total_correlation", "r_squared"):
        assert MEASURES[key].goal == "near"
        figure = named_figure(key, OPTIONS, "/utility")
        assert (figure.name, figure.goal) == (f"{key}.change", "low")
        assert figure.of({"before": 1.0, "after": 1.25, "change": 0.25}) == 0.25
        with pytest.raises(ParameterError, match=f"unknown figure '{key}.after'.*'{key}.change'"):
            named_figure(f"{key}.after", OPTIONS, "/utility")


def test_more_dependence_than_the_source_does_not_win() -> None:
    """Two fields that become one are ranked below a release that is the source."""
    random = np.random.default_rng(4)
    table = pa.table({"a": random.normal(size=500), "b": random.normal(size=500)})
    one_field = pa.table({"a": table["a"], "b": table["a"]})
    figures = [named_figure("total_correlation", MeasureOptions(), "/utility")]
    found = [
        take_figures(figures, Release(table, released), MeasureOptions(), measures_stream(SEED)).values
        for released in (table, one_field)
    ]
    assert found[0]["total_correlation.change"] == 0
    assert found[1]["total_correlation.change"] > 1


def test_entropy_increase_is_a_figure_of_risk() -> None:
    """High is better, since an intruder is less certain of a value."""
    figure = FIGURES["entropy_increase.mean"]
    assert (figure.measure.concerns, figure.goal) == ("risk", "high")


def test_numbers_by_field_are_their_mean(taken: dict[str, float]) -> None:
    """Mean of the changed share over the fields."""
    assert FIGURES["changed_share"].of({"age": 0.5, "town": 0.0}) == 0.25
    assert FIGURES["changed_share"].of({}) is None
    assert FIGURES["dcr.raw_mean"].of({"mean": 1.0, "raw_mean": None}) is None
    assert 0 < taken["changed_share"] < 1


def test_a_measure_that_does_not_apply_says_why() -> None:
    """The reason is that of the report."""
    table = people().select(["sex"])
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params.model_validate({"swap_fields": ["sex"]}), table.schema)
    result = swap("DSWAP", table, {"swap_fields": ["sex"]}, SEED)
    released = release_of_run(provider, params, table, result, 128)
    figures = [FIGURES["pscr"], FIGURES["delta_rho.mean"], FIGURES["phi"]]
    found = take_figures(figures, released, MeasureOptions(), measures_stream(SEED))
    assert set(found.values) == {"pscr"}
    assert set(found.undefined) == {"delta_rho.mean", "phi"}
    assert found.undefined["phi"] == "DSWAP does not give it"


def test_options_that_no_figure_uses_are_refused() -> None:
    """An option that no figure uses is refused."""
    others = {"domain_fields": (), "household_field": None}
    with pytest.raises(ParameterError, match="used by none of the figures") as caught:
        refuse_unused(OPTIONS.model_copy(update=others), [FIGURES["pscr"], FIGURES["il3"]])
    assert caught.value.pointer == "/measures/key_fields"
    diverse = FIGURES["l_diversity.after.distinct"]
    totals = FIGURES["domain_totals.percent"]
    queries, uniques = FIGURES["query_error.mean"], FIGURES["population_uniques.after.zayatz"]
    both = [FIGURES["il3"], totals, queries, uniques]
    refuse_unused(OPTIONS, [FIGURES["record_linkage.rate"], diverse, *both])
    with pytest.raises(ParameterError, match="used by none of the figures") as caught:
        refuse_unused(OPTIONS, [FIGURES["record_linkage.rate"], *both])
    assert caught.value.pointer == "/measures/sensitive_fields"
