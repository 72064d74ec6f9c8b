"""Selection by risk: inclusion probabilities, rows that must take part, partners, report and errors."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from scipy import stats

from providers import PROVIDERS
from providers.errors import ParameterError, ReversibleError, SourceError
from providers.grouping.groups import Groups
from providers.params import RiskSelection, SwapParams
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.swapping.participation import Participation
from providers.swapping.risk_report import deciles_of
from providers.swapping.risk_selection import (
    Selection,
    choose,
    inclusion_probabilities,
    systematic_sample,
)
from providers.swapping.row_risk import row_risk
from tests.naive import risk_selection as naive
from tests.naive.agreement import assert_agree, swap
from tests.property.out_of_core import swap_out_of_core

ALPHA = 1e-3
"""Significance level of each test; seeds are fixed."""

SEEDS = 3000


def key(number: int) -> Any:
    return Stream(number.to_bytes(32, "little"), "DSWAP", 2).key("selection")


def people(rows: int = 2000) -> pa.Table:
    """Persons, of whom some combinations of region and age are rare."""
    random = np.random.default_rng(5)
    return pa.table(
        {
            "region": random.integers(0, 5, rows),
            "age": np.minimum(random.geometric(0.06, rows), 90),
            "income": np.arange(rows),
            "savings": np.arange(rows) * 3,
            "weight": random.uniform(0.5, 4, rows),
        }
    )


KEYS = {"key_fields": ["region", "age"]}
BASE = {"swap_fields": ["income"], "rate": 0.2, "risk": KEYS}


# ---------------------------------------------------------------------------------------- the sample


@pytest.mark.parametrize(
    ("risk", "wanted"),
    [
        ([1, 1, 1, 1], 2),
        ([1, 2, 3, 4], 2.5),
        ([8, 1, 1, 1, 0.5], 2),  # the first one is certain
        ([100, 50, 1, 1, 0], 2.75),  # two are certain
        ([1, 1, 0, 0, 0], 3.5),  # all with a risk are certain, the others share the rest
        ([0, 0, 0], 1),
        ([1e-320, 1e300, 1e300, 3.0], 2.25),
        ([1, 2], 0),
        ([1, 2], 5),
    ],
)
def test_probabilities_are_those_of_exact_fractions(risk: list[float], wanted: float) -> None:
    """min(1, c r) that sum to the wanted number, whatever the magnitude of the risks."""
    found = inclusion_probabilities(np.array(risk, np.float64), wanted)
    exact = naive.inclusion_probabilities(risk, min(Fraction(wanted), Fraction(len(risk))))
    assert found.tolist() == pytest.approx([float(each) for each in exact], rel=1e-12, abs=1e-15)
    assert found.sum() == pytest.approx(min(wanted, len(risk)), rel=1e-12)


def test_rows_are_drawn_with_exactly_their_probabilities() -> None:
    """Each row as often as its probability says, the number of rows always that of their sum."""
    risk = np.array([1, 1, 2, 3, 5, 8, 0.5, 40])
    chances = inclusion_probabilities(risk, 3.0)
    rows = np.arange(len(risk))
    drawn = np.zeros(len(risk))
    together = np.zeros((len(risk), len(risk)))
    for number in range(SEEDS):
        sample = systematic_sample(chances, rows, key(number))
        assert len(sample) == 3
        drawn[sample] += 1
        together[np.ix_(sample, sample)] += 1
    assert chances[7] == 1.0
    assert drawn[7] == SEEDS
    uncertain = chances < 1
    expected = SEEDS * chances[uncertain]
    # Variances of single counts; their sum is fixed, which makes the statistic smaller, not larger.
    statistic = ((drawn[uncertain] - expected) ** 2 / (expected * (1 - chances[uncertain]))).sum()
    assert statistic < stats.chi2.ppf(1 - ALPHA, uncertain.sum())
    # Hartley and Rao 1962: in random order every pair can be drawn together, also neighbours.
    assert (together > 0).all()


def test_a_fraction_of_a_row_is_drawn_with_that_probability() -> None:
    """A wanted number of 1.25 gives one row or, in a quarter of the runs, two."""
    chances = inclusion_probabilities(np.ones(5), 1.25)
    sizes = [len(systematic_sample(chances, np.arange(5), key(number))) for number in range(SEEDS)]
    assert set(sizes) == {1, 2}
    assert stats.binomtest(sizes.count(2), SEEDS, 0.25).pvalue > ALPHA


@pytest.mark.parametrize("risk", [[1, 2, 3, 4], [5, 0, 0, 0], [0, 0, 0, 7]])
def test_partners_are_drawn_in_proportion_to_risk(risk: list[float]) -> None:
    """The second row of a group is any other one, by its risk; evenly where no other row has one."""
    count = 4000
    rows = 4 * count
    groups = Groups(
        rows,
        np.arange(rows, dtype=np.int32),
        np.arange(count + 1, dtype=np.int64) * 4,
        np.arange(count, dtype=np.uint64),
    )
    nobody = np.zeros(0, np.int64)
    selected = np.tile([True, False, False, False], count)
    selection = Selection(np.tile(np.array(risk, np.float64), count), ~selected, selected, key(1))
    chosen = choose(Participation(groups, nobody, nobody, nobody), selection)
    assert chosen.groups.sizes.tolist() == [2] * count
    found = chosen.rows.reshape(-1, 4).sum(axis=0)
    assert found[0] == count
    weights = np.array(risk[1:]) if sum(risk[1:]) else np.ones(3)
    certain = weights == 0
    expected = count * weights / weights.sum()
    if certain.any():
        assert found[1:].tolist() == expected.tolist()
    else:
        assert stats.chisquare(found[1:], expected).pvalue > ALPHA


# ----------------------------------------------------------------------------------------- the run


def test_rows_at_risk_always_take_part_and_the_rate_is_met() -> None:
    """Each combination of fewer than k rows is swapped; the others fill the rate, the riskier more often."""
    table = people()
    result = swap("DSWAP", table, BASE)
    risk = row_risk(table, RiskSelection(key_fields=("region", "age")))
    moved = result.table["income"].to_numpy() != table["income"].to_numpy()
    assert 0 < risk.required.sum() < 400
    assert moved[risk.required].all()
    assert result.summary.took_part == 400 == moved.sum()
    others = ~risk.required
    riskier = others & (risk.risk > np.median(risk.risk[others]))
    assert moved[riskier].mean() > 1.5 * moved[others & ~riskier].mean()
    figures = result.provider["risk_selection"]
    assert figures["required"] == risk.required.sum()
    assert figures["required"] + figures["drawn"] == 400
    assert figures["partners"] == figures["required_unswapped"] == 0
    deciles = result.provider["risk_deciles"].values()
    assert sum(entry["rows"] for entry in deciles) == table.num_rows
    assert sum(entry["took_part"] for entry in deciles) == sum(entry["changed"] for entry in deciles) == 400
    shares = [entry["took_part"] / entry["rows"] for entry in deciles]
    assert shares[0] < 0.2 < shares[-1] == 1.0


def test_many_rows_at_risk_exceed_the_rate() -> None:
    """They all take part, and nobody else."""
    table = people()
    result = swap("DSWAP", table, BASE | {"rate": 0.01, "risk": KEYS | {"k": 8}})
    required = row_risk(table, RiskSelection(**KEYS, k=8)).required.sum()
    assert result.summary.took_part == required > 0.01 * table.num_rows
    assert result.provider["risk_selection"]["drawn"] == 0


def test_the_selection_depends_on_no_other_field_and_on_no_batch() -> None:
    """A second swap field and other chunks leave the first field's swap and the selected rows as they are."""
    table = people()
    alone = swap("CDSWAP", table, BASE | {"control_field": "region"})
    cut = pa.concat_tables([table.slice(0, 7), table.slice(7, 900), table.slice(907)])
    both = swap("CDSWAP", cut, BASE | {"swap_fields": ["savings", "income"], "control_field": "region"})
    assert both.table["income"].combine_chunks() == alone.table["income"].combine_chunks()
    assert both.provider["risk_deciles"] == alone.provider["risk_deciles"]
    moved = [both.table[name].to_numpy() != table[name].to_numpy() for name in ("income", "savings")]
    assert (moved[0] == moved[1]).all()


def test_weights_make_a_combination_frequent() -> None:
    """The estimated population counts in place of the rows; a sum of weights that is k counts as k."""
    table = pa.table({"age": [1] * 30 + [2, 3, 3], "weight": [0.1] * 30 + [5.0, 0.5, 2.4], "v": range(33)})
    found = row_risk(table, RiskSelection(key_fields=("age",), weight="weight", k=3))
    assert np.flatnonzero(found.required).tolist() == [31, 32]  # 2.9; thirty times 0.1 is 2.9999999999999996
    assert found.risk[30:].tolist() == [0.2, 1 / 2.9, 1 / 2.9]


def test_given_risks_equal_computed_ones() -> None:
    """Risks of 1 / count in a field select the same rows as the key fields."""
    table = people()
    risk = row_risk(table, RiskSelection(key_fields=("region", "age"), k=3)).risk
    given = table.append_column("risk", pa.array(risk))
    computed = swap("DSWAP", table, BASE)
    other = swap("DSWAP", given, BASE | {"risk": {"field": "risk", "k": 3}})
    assert other.table["income"].combine_chunks() == computed.table["income"].combine_chunks()
    assert "unique_before" not in other.provider["risk_selection"]
    assert "unique_before" in computed.provider["risk_selection"]


def test_k_of_zero_requires_no_row() -> None:
    table = pa.table({"age": range(40), "risk": [1e300] * 40, "v": range(40)})
    for risk in ({"key_fields": ["age"], "k": 0}, {"field": "risk", "k": 0}):
        result = swap("DSWAP", table, {"swap_fields": ["v"], "rate": 0.25, "risk": risk})
        assert result.provider["risk_selection"]["required"] == 0
        assert result.summary.took_part == 10


def test_rows_that_cannot_be_swapped_are_reported() -> None:
    """An event for each field; a row at risk in a class of others gets a partner."""
    table = pa.table(
        {
            "town": ["a"] * 5 + ["b"],
            "age": [30, 40, 40, 40, 40, 50],
            "x": [1, 2, 3, 4, None, 6],
            "y": [1, None, 3, 4, 5, 6],
        }
    )
    parameters = {
        "swap_fields": ["x", "y"],
        "control_field": "town",
        "rate": 0.01,
        "nulls": "keep",
        "risk": {"key_fields": ["age"], "k": 2},
        "suppression": {"policy": "keep"},
    }
    result, _ = assert_agree("CDSWAP", table, parameters)
    assert result is not None
    assert result.events.counts["risk_unswapped"] == 2
    listed = [(event.row, event.field) for event in result.events.listed if event.code == "risk_unswapped"]
    assert listed == [(5, "x"), (5, "y")]
    figures = result.provider["risk_selection"]
    assert (figures["required"], figures["required_unswapped"]) == (2, 1)
    assert 1 <= figures["partners"] <= 2  # of each field, as nulls take no part
    assert result.summary.took_part_by_field == {"x": 2, "y": 2}


def test_uniques_are_counted_in_source_and_release() -> None:
    """A swapped key field changes the combinations; dropped rows are in none."""
    table = pa.table({"town": ["a"] * 6 + ["b"], "age": [1, 2, 3, 3, 3, 4, 9], "sex": [0, 1, 0, 1, 1, 1, 0]})
    parameters = {
        "swap_fields": ["sex"],
        "control_field": "town",
        "rate": 0.5,
        "risk": {"key_fields": ["age", "sex"], "k": 2},
        "suppression": {"policy": "drop"},
    }
    result, _ = assert_agree("CDSWAP", table, parameters)
    assert result is not None
    figures = result.provider["risk_selection"]
    combinations = list(zip(*(result.table[name].to_pylist() for name in ("age", "sex")), strict=True))
    assert figures["unique_before"] == 5
    assert figures["unique_after"] == sum(combinations.count(each) == 1 for each in combinations)


def test_a_pair_that_had_to_be_swapped_is_reversible() -> None:
    """Two rows at risk of a class are most likely swapped with each other, whatever the size of the class."""
    table = pa.table({"town": [0] * 50, "age": [1, 2] + [3] * 48, "v": range(50)})
    parameters = {
        "swap_fields": ["v"],
        "control_field": "town",
        "rate": 0.01,
        "risk": {"key_fields": ["age"], "k": 2},
    }
    result, _ = assert_agree("CDSWAP", table, parameters)
    assert result is not None
    assert result.provider["reversible"]
    assert result.provider["group_bits"]["rows_in_groups_of_two"] == 2
    [event] = [each for each in result.events.listed if each.code == "reversible_groups"]
    assert "had to take part for their risk" in event.message
    with pytest.raises(ReversibleError, match="2 rows are in 1 group of two"):
        swap("CDSWAP", table, parameters | {"on_reversible": "fail"})


def test_equal_risks_share_a_decile() -> None:
    assert deciles_of(np.array([0.1, 0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0])).tolist() == [
        *(0, 0),
        *(2,) * 7,
        9,
    ]


def test_an_empty_table_and_one_row() -> None:
    for rows in (0, 1):
        result, _ = assert_agree("DSWAP", people(rows), BASE)
        assert result is not None
        assert result.table.num_rows == rows


@pytest.mark.parametrize(("service", "extra"), [("MEWS", {"bins": 20}), ("MEDS", {"k": 50})])
def test_bins_stay_and_only_selected_rows_of_them_move(service: str, extra: dict[str, Any]) -> None:
    """Every row at risk moves within its bin; P, which supposes that all rows move, is left out."""
    table = people()
    every = {"swap_fields": ["income", "savings"], **extra}
    result = swap(service, table, every | {"rate": 0.2, "risk": KEYS})
    plain = swap(service, table, every)
    required = row_risk(table, RiskSelection(key_fields=("region", "age"))).required
    moved = result.table["income"].to_numpy() != table["income"].to_numpy()
    assert moved[required].all()
    assert 400 <= moved.sum() == result.summary.took_part < 600  # partners come on top of the rate
    for name in ("partition_degree", "minimal_depth", "singletons"):
        assert result.provider[name] == plain.provider[name]
    furthest = np.abs(plain.table["income"].to_numpy() - table["income"].to_numpy()).max()
    assert np.abs(result.table["income"].to_numpy() - table["income"].to_numpy()).max() <= 1.1 * furthest
    assert "p_privacy" in plain.measures
    assert "p_privacy" not in result.measures
    deciles = result.provider["risk_deciles"].values()
    assert sum(entry["took_part"] for entry in deciles) == moved.sum()


@pytest.mark.parametrize(("service", "extra"), [("MEWS", {"bins": 20}), ("MEDS", {"k": 50})])
def test_bins_take_rate_and_risk_together(service: str, extra: dict[str, Any]) -> None:
    """Each of the two alone is refused; a run without them is stored as before."""
    model = PROVIDERS[service].params
    every = {"swap_fields": ["income", "savings"], **extra}
    with pytest.raises(ValidationError, match="'rate' below 1 needs 'risk'"):
        model.model_validate(every | {"rate": 0.5})
    with pytest.raises(ValidationError, match="'risk' needs a 'rate' below 1"):
        model.model_validate(every | {"risk": KEYS})
    assert {"rate", "risk"}.isdisjoint(model.model_validate(every | {"rate": 1}).model_dump(mode="json"))
    both = model.model_validate(every | {"rate": 0.5, "risk": KEYS})
    stored = both.model_dump(mode="json")
    assert (stored["rate"], stored["risk"]) == (0.5, {"key_fields": ["region", "age"], "k": 3})
    assert model.model_validate(stored) == both
    with pytest.raises(ParameterError, match="unknown key field 'agee'") as raised:
        swap(service, people(), every | {"rate": 0.5, "risk": {"key_fields": ["agee"]}})
    assert raised.value.pointer == "/parameters/risk/key_fields/0"


# ------------------------------------------------------------------------------- parameters and limits


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1.0}, "needs a 'rate' below 1"),
        ({"mechanism": "permutation"}, "'risk' goes with mechanism 'pairs'"),
        ({"risk": {}}, "one of the two"),
        ({"risk": KEYS | {"field": "weight"}}, "one of the two"),
        ({"risk": {"field": "age", "weight": "weight"}}, "'weight' goes with 'key_fields'"),
        ({"risk": KEYS | {"k": -1}}, "greater than or equal to 0"),
        ({"risk": KEYS | {"k": 2.5}}, "integer"),
        ({"risk": KEYS | {"keys": ["age"]}}, "unknown name 'keys'"),
    ],
)
def test_parameters_that_do_not_go_together(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PROVIDERS["DSWAP"].params.model_validate(BASE | change)


@pytest.mark.parametrize(
    ("risk", "pointer", "message"),
    [
        ({"key_fields": ["region", "agee"]}, "/key_fields/1", "unknown key field 'agee'; did you mean 'age'"),
        ({"key_fields": ["age", "age"]}, "/key_fields/1", "named twice"),
        (KEYS | {"weight": "wait"}, "/weight", "unknown field 'wait'"),
        (KEYS | {"weight": "age"}, "/weight", "both weight and key field"),
        (KEYS | {"weight": "name"}, "/weight", "holds no weights"),
        ({"field": "name"}, "/field", "holds no risks"),
        ({"field": "danger"}, "/field", "unknown field 'danger'"),
    ],
)
def test_fields_that_do_not_fit(risk: dict[str, Any], pointer: str, message: str) -> None:
    table = people(20).append_column("name", pa.array(["x"] * 20))
    with pytest.raises(ParameterError, match=message) as raised:
        swap("DSWAP", table, BASE | {"risk": risk})
    assert raised.value.pointer == f"/parameters/risk{pointer}"


@pytest.mark.parametrize("value", [None, np.nan, np.inf, -1.0, 0.0, 1e-320])
@pytest.mark.parametrize("parameter", ["weight", "field"])
def test_values_that_are_no_weights_or_risks(parameter: str, value: float | None) -> None:
    """A risk of 0 is one; a weight of 0 would make a population of nobody."""
    table = people(20).append_column("n", pa.array([1.0] * 7 + [value] + [1.0] * 12))
    parameters = BASE | {"risk": {"field": "n"} if parameter == "field" else KEYS | {"weight": "n"}}
    if parameter == "field" and value in (0.0, 1e-320):
        assert swap("DSWAP", table, parameters).summary.rows == 20
        return
    provider = PROVIDERS["DSWAP"]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    with pytest.raises(SourceError, match="in 1 row, first in row 7") as raised:
        provider.plan(table, params)
    assert raised.value.pointer == f"/parameters/risk/{parameter}"
    with pytest.raises(SourceError, match="in 1 row, first in row 7"):
        provider.swap(table, params, Stream(bytes(32), "DSWAP", 2), no_progress)


@pytest.mark.parametrize(
    "weight",
    [
        pa.array([1, 2] * 10, pa.int8()),
        pa.array([1, 2] * 10, pa.float32()),
        pa.array([Decimal(1), Decimal(2)] * 10, pa.decimal128(5, 2)),
        pa.array([1, 2] * 10).dictionary_encode(),
    ],
)
def test_weights_of_any_type_of_number(weight: pa.Array) -> None:
    table = people(20).append_column("n", weight)
    plain = people(20).append_column("n", pa.array([1.0, 2.0] * 10))
    parameters = BASE | {"risk": KEYS | {"weight": "n"}}
    one, other = swap("DSWAP", table, parameters), swap("DSWAP", plain, parameters)
    assert one.table["income"].combine_chunks() == other.table["income"].combine_chunks()


def test_runs_without_risk_are_stored_as_before() -> None:
    """An older version reads the parameters of a run without `risk`; those with it keep every part."""
    params = PROVIDERS["DSWAP"].params.model_validate({"swap_fields": ["v"], "rate": 0.5})
    assert isinstance(params, SwapParams)
    assert "risk" not in params.model_dump(mode="json")
    assert params.risk is None
    params = PROVIDERS["DSWAP"].params.model_validate(BASE)
    stored = params.model_dump(mode="json")
    assert stored["risk"] == {"key_fields": ["region", "age"], "k": 3}
    assert PROVIDERS["DSWAP"].params.model_validate(stored) == params


@pytest.mark.parametrize(
    ("service", "extra"),
    [
        ("DSWAP", {}),
        ("CDSWAP", {"control_field": "region"}),
        ("DDSWAP", {"control_field": "age", "block_size": 5}),
        ("MEWS", {"bins": 9}),
    ],
)
def test_a_run_with_risk_is_not_cut(service: str, extra: dict[str, Any]) -> None:
    """The worker runs it in memory or refuses it; the run out of core itself refuses it as well."""
    provider = PROVIDERS[service]
    params = provider.params.model_validate(BASE | extra)
    assert not provider.scaling.can_cut(params)
    assert provider.scaling.can_cut(params.model_copy(update={"risk": None}))
    assert set(provider.scaling.reads(params, people().schema)) >= {"income", "region", "age"}
    with pytest.raises(ParameterError, match="does not run out of core"):
        swap_out_of_core(service, people(), BASE | extra, 10**6, 100)
