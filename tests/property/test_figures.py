"""The figures by which runs are ranked: each is a number that some full report holds."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.choosing.figures import FIGURES, named_figure, refuse_unused, take_figures
from providers.errors import ParameterError
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions
from providers.measures.runs import measures_stream, released_by
from tests.naive.agreement import swap

SEED = bytes(range(32))
OPTIONS = MeasureOptions(key_fields=("age", "sex"), target="income")
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
        }
    )


@pytest.fixture(scope="module")
def taken() -> dict[str, float]:
    """Figure -> number, from a run that gives it."""
    table = people()
    found: dict[str, float] = {}
    for service, parameters in RUNS.items():
        provider = PROVIDERS[service]
        params = provider.check(provider.params.model_validate(parameters), table.schema)
        released = released_by(provider, params, table, swap(service, table, parameters, SEED), 128)
        found |= take_figures(list(FIGURES.values()), released, OPTIONS, measures_stream(SEED)).values
    return found


def test_every_figure_is_a_number_of_some_report(taken: dict[str, float]) -> None:
    """A name that can be asked for stands for something."""
    assert set(taken) == set(FIGURES)
    assert {figure.measure.key for figure in FIGURES.values()} == set(MEASURES)


def test_a_key_alone_is_its_first_figure() -> None:
    """And every measure has one."""
    for key in MEASURES:
        figure = named_figure(key, OPTIONS, "/risk")
        assert figure.measure.key == key
        assert named_figure(figure.name, OPTIONS, "/risk") == figure


def test_figures_that_run_against_their_measure() -> None:
    """A share at distance zero is the better the lower, where a distance is the better the higher."""
    assert FIGURES["dcr.mean"].goal == "high"
    assert FIGURES["dcr.at_zero"].goal == "low"
    assert (FIGURES["marginals.mean_distance"].goal, FIGURES["marginals.identical"].goal) == ("low", "high")


def test_numbers_by_field_are_their_mean(taken: dict[str, float]) -> None:
    """Of the changed share, over the fields."""
    assert FIGURES["changed_share"].of({"age": 0.5, "town": 0.0}) == 0.25
    assert FIGURES["changed_share"].of({}) is None
    assert FIGURES["dcr.raw_mean"].of({"mean": 1.0, "raw_mean": None}) is None
    assert 0 < taken["changed_share"] < 1


def test_a_measure_that_does_not_apply_says_why() -> None:
    """With the reason that the report would give."""
    table = people().select(["sex"])
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params.model_validate({"swap_fields": ["sex"]}), table.schema)
    result = swap("DSWAP", table, {"swap_fields": ["sex"]}, SEED)
    released = released_by(provider, params, table, result, 128)
    figures = [FIGURES["pscr"], FIGURES["delta_rho.mean"], FIGURES["phi"]]
    found = take_figures(figures, released, MeasureOptions(), measures_stream(SEED))
    assert set(found.values) == {"pscr"}
    assert set(found.undefined) == {"delta_rho.mean", "phi"}
    assert found.undefined["phi"] == "DSWAP does not give it"


def test_options_that_no_figure_uses_are_refused() -> None:
    """Nothing is accepted and ignored."""
    with pytest.raises(ParameterError, match="used by none of the figures") as caught:
        refuse_unused(OPTIONS, [FIGURES["pscr"], FIGURES["il3"]])
    assert caught.value.pointer == "/measures/key_fields"
    refuse_unused(OPTIONS, [FIGURES["record_linkage.rate"], FIGURES["il3"]])
