"""RSWAP on a generated household survey: what every run must keep, and what its parameters ask for."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from providers import PROVIDERS
from providers.errors import ParameterError, ProviderError, SourceError
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.record_swapping.swaps import Survey, SwapPlan, area_quotas, choose_swaps, read_survey
from providers.results import Events, SwapResult
from providers.services.rswap import RswapParams, settings_of
from tests.household_survey import household_survey
from tests.naive.agreement import SEED, swap

HIERARCHY = ["region", "district", "municipality"]
PARAMETERS: dict[str, Any] = {
    "household": "household",
    "hierarchy": HIERARCHY,
    "similar": [["household_size", "tenure"], ["household_size"]],
    "risk_fields": ["age_group", "sex", "citizenship"],
    "swap_rate": 0.05,
}

Run = tuple[pa.Table, SwapResult, Survey, SwapPlan]


@pytest.fixture(scope="module")
def survey() -> pa.Table:
    """Return 50,000 households in an order in which their members are not together."""
    table = household_survey(50_000)
    return table.take(pa.array(np.random.default_rng(3).permutation(table.num_rows)))


@pytest.fixture(scope="module")
def run(survey: pa.Table) -> Run:
    """Return the source, the result, and the secret choice of the swaps."""
    params = RswapParams.model_validate(PARAMETERS)
    stream = PROVIDERS["RSWAP"].stream(SEED)
    facts = read_survey(survey, settings_of(params), Events())
    plan = choose_swaps(facts, settings_of(params), stream, no_progress)
    return survey, swap("RSWAP", survey, PARAMETERS), facts, plan


def tuples(table: pa.Table, fields: list[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in fields), strict=True))


def by_household(table: pa.Table, fields: list[str]) -> dict[int, tuple[Any, ...]]:
    """Household -> the one combination of values of its members."""
    found: dict[int, set[tuple[Any, ...]]] = {}
    for household, values in zip(table.column("household").to_pylist(), tuples(table, fields), strict=True):
        found.setdefault(household, set()).add(values)
    assert all(len(values) == 1 for values in found.values())
    return {household: next(iter(values)) for household, values in found.items()}


def test_only_the_geography_moves(run: Run) -> None:
    """Rows, ids and all other fields are identical; the moved fields are constant within a household."""
    source, result, _, _ = run
    assert result.table.schema == source.schema
    others = [name for name in source.column_names if name not in HIERARCHY]
    assert result.table.select(others).equals(source.select(others))
    by_household(result.table, HIERARCHY)


def test_each_household_is_swapped_at_most_once(run: Run) -> None:
    """Partners name one another, and each gets the geography that the other had."""
    source, result, facts, plan = run
    swapped = np.flatnonzero(plan.partner >= 0)
    assert len(swapped) > 2000
    np.testing.assert_array_equal(plan.partner[plan.partner[swapped]], swapped)
    assert np.all(plan.partner[swapped] != swapped)
    before, after = by_household(source, HIERARCHY), by_household(result.table, HIERARCHY)
    ids = source.column("household").to_numpy()[facts.households.first].tolist()
    for household, partner in enumerate(plan.partner.tolist()):
        expected = before[ids[partner if partner >= 0 else household]]
        assert after[ids[household]] == expected
        assert (partner < 0) or expected != before[ids[household]]  # every swap changes the area
    assert result.provider["swapped_households"] == len(swapped)


def test_areas_keep_their_households(run: Run) -> None:
    """Households per area of every level stay; so do persons, as each profile holds the household's size."""
    source, result, _, _ = run
    for level in (1, 2, 3):
        fields = HIERARCHY[:level]
        old, new = by_household(source, fields), by_household(result.table, fields)
        assert Counter(old.values()) == Counter(new.values())
        assert Counter(tuples(source, fields)) == Counter(tuples(result.table, fields))
        assert set(result.provider["area_populations"][HIERARCHY[level - 1]].values()) == {0}
        moved = result.provider["levels"][HIERARCHY[level - 1]]["moved_households"]
        assert moved == sum(old[name] != new[name] for name in old)


def test_partners_agree_on_a_profile(run: Run) -> None:
    """The two households of a swap have equal values of the profile that the report counts it under."""
    source, result, facts, plan = run
    swapped = np.flatnonzero(plan.partner >= 0)
    rows = source.take(pa.array(facts.households.first))
    for number, profile in enumerate(PARAMETERS["similar"]):
        values = tuples(rows, profile)
        inside = swapped[plan.profile[swapped] == number].tolist()
        assert all(values[one] == values[plan.partner[one]] for one in inside)
        assert result.provider["swaps_by_profile"][", ".join(profile)] == len(inside) // 2
    assert np.all(plan.profile[swapped] >= 0)


def required_levels(table: pa.Table, k: int) -> dict[int, int]:
    """Household -> first level at which a member's combination occurs fewer than k times in its area."""
    found: dict[int, int] = {}
    for level in (2, 1, 0):
        cells = tuples(table, HIERARCHY[: level + 1] + PARAMETERS["risk_fields"])
        counts = Counter(cells)
        for household, cell in zip(table.column("household").to_pylist(), cells, strict=True):
            if counts[cell] < k:
                found[household] = level
    return found


def test_risky_households_leave_their_area(run: Run) -> None:
    """Every household with a person in a cell under k is swapped out of that area, or reported."""
    source, result, facts, plan = run
    required = required_levels(source, 3)
    assert len(required) > 1000
    assert {required[name] for name in required} == {0, 1, 2}
    ids = source.column("household").to_numpy()[facts.households.first]
    unmatched = set(ids[plan.unmatched].tolist())
    areas = [
        (by_household(source, HIERARCHY[:n]), by_household(result.table, HIERARCHY[:n])) for n in (1, 2, 3)
    ]
    for household, level in required.items():
        before, after = areas[level]
        assert household in unmatched or before[household] != after[household]
    assert unmatched <= set(required)
    assert len(unmatched) == result.provider["unmatched_households"]
    assert [figures["required_households"] for figures in result.provider["levels"].values()] == [
        sum(level == number for level in required.values()) for number in range(3)
    ]


def test_swaps_are_reported_by_level_and_reason(run: Run) -> None:
    """Obliged at each level, added at the finest one; and households without a donor by each profile."""
    _, result, _, plan = run
    levels = list(result.provider["levels"].values())
    assert [entry["swapped_households"] for entry in levels] == [
        int(np.count_nonzero(plan.level == level)) for level in range(3)
    ]
    assert min(entry["obliged_swaps"] for entry in levels) > 0
    for name in ("obliged_swaps", "added_swaps"):
        assert sum(entry[name] for entry in levels) == result.provider[name]
    assert [entry["added_swaps"] for entry in levels[:-1]] == [0, 0]
    strict, weak = result.provider["unmatched_by_profile"].values()
    assert strict >= weak == result.provider["unmatched_households"]


def test_households_without_a_donor_are_reported_by_profile() -> None:
    """Three households are at risk: one finds a donor of its size and tenure, one of its size, one none."""
    table = pa.table(
        {
            "area": ["a", "a", "a", "b", "b", "b"],
            "size": [1, 2, 3, 1, 2, 1],
            "tenure": ["own", "own", "own", "own", "rent", "own"],
            "age": [1, 2, 3, 9, 9, 9],
        }
    )
    parameters = {
        "hierarchy": ["area"],
        "similar": [["size", "tenure"], ["size"]],
        "risk_fields": ["age"],
        "k_anonymity": 2,
        "swap_rate": 0,
    }
    result = swap("RSWAP", table, parameters)
    assert result.provider["unmatched_by_profile"] == {"size, tenure": 2, "size": 1}
    assert result.provider["levels"]["area"]["obliged_swaps"] == 2
    (event,) = result.events.listed
    assert event.message.endswith(
        "(households that found no donor by match profile: 'size, tenure' 2, 'size' 1)"
    )


def swapped_households(table: pa.Table, change: dict[str, Any]) -> int:
    count: int = swap("RSWAP", table, PARAMETERS | change).provider["swapped_households"]
    return count


def test_the_rate_is_met() -> None:
    """Without obligations exactly rate x households are swapped; a larger k swaps no fewer."""
    table = household_survey(10_000, seed=5)
    for rate, wanted in ((0, 0), (0.05, 500), (0.1, 1000), (0.25, 2500)):
        assert swapped_households(table, {"swap_rate": rate, "k_anonymity": 0}) == wanted
    whole = swap("RSWAP", table, PARAMETERS | {"swap_rate": 1, "k_anonymity": 0, "similar": []})
    assert whole.provider["swapped_households"] >= 9_900
    counts = [swapped_households(table, {"k_anonymity": k}) for k in (0, 1, 2, 3, 5, 10)]
    assert counts == sorted(counts)
    assert counts[0] == counts[1] == 500
    assert counts[3] > 500


def test_an_area_with_many_obligations_takes_no_share_from_the_others() -> None:
    """The rate is exceeded by the swaps that areas must make beyond their own shares, and by no other."""
    areas = [area for area in "abcd" for _ in range(100)]
    ages = [row if area == "a" else -1 for row, area in enumerate(areas)]  # everybody in "a" is unique
    table = pa.table({"area": areas, "age": ages})
    parameters = {"hierarchy": ["area"], "risk_fields": ["age"], "k_anonymity": 2, "swap_rate": 0.1}
    found = swap("RSWAP", table, parameters).provider
    # Each area has 5 of the 20 swaps of the rate: those of three areas are added to the 100 of "a".
    assert (found["wanted_swaps"], found["obliged_swaps"], found["added_swaps"]) == (20, 100, 15)
    assert found["overshoot"] == 100 - 5


def test_every_area_gives_its_share() -> None:
    """Swaps are shared among the finest areas in proportion to their households, up to one."""
    table = household_survey(10_000, seed=5)
    params = RswapParams.model_validate(PARAMETERS | {"k_anonymity": 0, "swap_rate": 0.5})
    facts = read_survey(table, settings_of(params), Events())
    finest = facts.areas[-1]
    exact = 2500 * np.bincount(finest.of_household) / 10_000
    sums = np.zeros(finest.count)
    for seed in range(200):
        key = Stream(seed.to_bytes(32, "big"), "RSWAP", 1).key("quota")
        quotas = area_quotas(2500, finest, facts.households.identity, key)
        assert quotas.sum() == 2500
        assert np.all(np.abs(quotas - exact) < 1)
        sums += quotas
    error = np.abs(sums / 200 - exact) / np.sqrt(0.25 / 200)
    assert error.max() < 5  # 4.5 standard errors over all areas, at fixed seeds


def test_the_share_of_an_area_depends_on_the_others() -> None:
    """The rate is that of the table: each swap takes one household of both areas, as `swap_rate` says."""
    areas = np.repeat(["large", "small"], [900, 100])
    table = pa.table({"household": np.arange(1000), "area": areas})
    result = swap("RSWAP", table, {"household": "household", "hierarchy": ["area"], "k_anonymity": 0})
    moved = areas[areas != np.array(result.table["area"])]
    assert Counter(moved.tolist()) == {"large": 25, "small": 25}


def test_riskier_households_are_drawn_more_often() -> None:
    """Households that are added are drawn with a probability that grows with their risk."""
    table = household_survey(10_000, seed=5)
    result = swap("RSWAP", table, PARAMETERS | {"k_anonymity": 0, "swap_rate": 0.1})
    deciles = list(result.provider["risk_deciles"].values())
    shares = [entry["swapped"] / entry["households"] for entry in deciles]
    assert shares[-1] > 3 * shares[0]
    assert sum(entry["households"] for entry in deciles) == 10_000
    assert sum(entry["swapped"] for entry in deciles) == 1000


def test_selection_follows_the_risk_in_a_closed_form() -> None:
    """One of three households with risks 1, 2 and 4 is drawn with probability 1/7, 2/7 and 4/7."""
    rows = {"area": ["a", "a", "a", "b"], "risk": [1.0, 2.0, 4.0, 0.0]}
    parameters = {"hierarchy": ["area"], "risk": ["risk"], "risk_threshold": 3.5, "swap_rate": 0}
    table = pa.table(rows)
    assert swap("RSWAP", table, parameters).table["area"].to_pylist() == ["a", "a", "b", "a"]
    drawn = Counter[int]()
    for seed in range(700):
        moved = swap(
            "RSWAP", table, parameters | {"swap_rate": 0.5, "risk_threshold": 9}, seed.to_bytes(32, "big")
        )
        drawn[moved.table["area"].to_pylist().index("b")] += 1
    # Whichever of them asks, "b" exchanges with one of the three: it too takes the largest r / e.
    for row, probability in enumerate((1 / 7, 2 / 7, 4 / 7)):
        assert abs(drawn[row] - 700 * probability) < 4.5 * (700 * probability * (1 - probability)) ** 0.5


def test_a_given_risk_alone_swaps_all_above_its_threshold(survey: pa.Table) -> None:
    """At rate 0 all households above the threshold are swapped, with donors of risk 0."""
    risky = survey.column("household").to_numpy() % 97 == 0
    table = survey.append_column("risk", pa.array(risky.astype(float)))
    change = {
        "risk_fields": [],
        "risk": ["risk"],
        "risk_threshold": 0.5,
        "swap_rate": 0,
        "similar": [["tenure"]],
    }
    result = swap("RSWAP", table, PARAMETERS | change)
    before, after = by_household(table, HIERARCHY), by_household(result.table, HIERARCHY)
    moved = {name for name in before if before[name] != after[name]}
    assert {name for name in before if name % 97 == 0} <= moved
    assert result.provider["unmatched_households"] == 0


def test_a_given_risk_of_one_by_count_is_the_internal_one() -> None:
    """Risks 1/count for each level with threshold 1/k give the same release as risk fields with k."""
    table = household_survey(5_000, seed=8)
    for level in range(3):
        cells = tuples(table, HIERARCHY[: level + 1] + PARAMETERS["risk_fields"])
        counts = Counter(cells)
        table = table.append_column(f"risk{level}", pa.array([1 / counts[cell] for cell in cells]))
    given = {"risk_fields": [], "risk": ["risk0", "risk1", "risk2"], "risk_threshold": 1 / 3}
    one, two = swap("RSWAP", table, PARAMETERS), swap("RSWAP", table, PARAMETERS | given)
    assert one.table.equals(two.table)
    assert two.events.counts["risk_differs"] == 3  # members differ, and the largest counts


def test_the_same_seed_gives_the_same_bytes(run: Run) -> None:
    """A rerun is equal; another seed is not."""
    source, result, _, _ = run
    assert swap("RSWAP", source, PARAMETERS).table.equals(result.table)
    assert not swap("RSWAP", source, PARAMETERS, bytes(32)).table.equals(result.table)


def test_several_releases_reveal_the_own_area() -> None:
    """The most frequent of 20 releases is a household's own area, as the service's page says."""
    table = household_survey(3000)
    change = {"hierarchy": HIERARCHY[:2], "similar": [["household_size"]], "k_anonymity": 0, "swap_rate": 0.3}
    own = table["district"].to_numpy()
    released = np.stack(
        [
            swap("RSWAP", table, PARAMETERS | change, number.to_bytes(32, "big")).table["district"].to_numpy()
            for number in range(1, 21)
        ]
    )
    counts = np.stack([(released == each).sum(axis=0) for each in released])
    frequent = released[counts.argmax(axis=0), np.arange(len(own))]
    assert (released[0] == own).mean() < 0.75
    assert (frequent == own).mean() > 0.99


def test_edges() -> None:
    """Empty tables, one area, unused categories, and nulls in every field but the household."""
    empty = household_survey(10).slice(0, 0)
    assert swap("RSWAP", empty, PARAMETERS).table.equals(empty)
    one_area = pa.table({"area": ["a"] * 6})
    result = swap("RSWAP", one_area, {"hierarchy": ["area"], "swap_rate": 1})
    assert result.table.equals(one_area)
    assert result.events.counts == {"quota_not_met": 1}
    dictionary = pa.DictionaryArray.from_arrays(
        pa.array([0, 0, 2, 2], pa.int8()), pa.array(["x", "unused", None])
    )
    table = pa.table({"area": dictionary, "size": pa.array([1, None, None, 1])})
    result = swap("RSWAP", table, {"hierarchy": ["area"], "similar": [["size"]], "swap_rate": 1})
    assert result.table["area"].to_pylist() == [None, None, "x", "x"]
    assert result.table.schema == table.schema


def test_a_given_risk_that_is_none_is_refused() -> None:
    """Null, negative, NaN and infinite risks are errors that count the rows."""
    for wrong in (None, -1.0, float("nan"), float("inf")):
        table = pa.table({"area": ["a", "b", "c"], "risk": pa.array([0.5, wrong, wrong])})
        with pytest.raises(SourceError, match="null, negative or not finite in 2 rows"):
            swap("RSWAP", table, {"hierarchy": ["area"], "risk": ["risk"], "risk_threshold": 0.5})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"hierarchy": []}, "hierarchy"),
    ({"k_anonymity": -1}, "k_anonymity"),
    ({"k_anonymity": 2.5}, "k_anonymity"),
    ({"swap_rate": -0.1}, "swap_rate"),
    ({"swap_rate": 1.1}, "swap_rate"),
    ({"swap_rate": "0.1"}, "swap_rate"),
    ({"similar": [[]]}, "similar"),
    ({"similar": ["tenure"]}, "similar"),
    ({"risk_threshold": -1, "risk": ["income"], "risk_fields": []}, "risk_threshold"),
    ({"risk_threshold": 0.5}, "go together"),
    ({"risk": ["income"], "risk_fields": []}, "go together"),
    ({"risk": ["income"], "risk_threshold": 1}, "one of the two"),
    ({"risk": ["income", "weight"], "risk_fields": [], "risk_threshold": 1}, "one for each, or one for all"),
    ({"unmatched": "drop"}, "unmatched"),
    ({"swaprate": 0.1}, "did you mean 'swap_rate'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_parameters(change: dict[str, Any], message: str) -> None:
    """Each wrong type, range or combination is refused with its name."""
    with pytest.raises(ValidationError, match=message):
        RswapParams.model_validate(PARAMETERS | change)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"household": "houshold"},
        "unknown field 'houshold'; did you mean 'household'",
        "/parameters/household",
    ),
    ({"hierarchy": ["region", "x"]}, "unknown field 'x'", "/parameters/hierarchy/1"),
    ({"hierarchy": ["region", "region"]}, "named twice", "/parameters/hierarchy/1"),
    ({"similar": [["tenure", "sise"]]}, "unknown field 'sise'", "/parameters/similar/0/1"),
    ({"similar": [["region"]]}, "both 'hierarchy' and 'similar'", "/parameters/similar/0/0"),
    ({"similar": [["tenure", "sex"], ["sex", "tenure"]]}, "repeats an earlier one", "/parameters/similar/1"),
    ({"carry_along": ["region"]}, "both 'hierarchy' and 'carry_along'", "/parameters/carry_along/0"),
    ({"risk_fields": ["district"]}, "both 'hierarchy' and 'risk_fields'", "/parameters/risk_fields/0"),
    ({"household": "weight"}, "integers and text can", "/parameters/household"),
    ({"household": "region"}, "is the household, and cannot move", "/parameters/household"),
    (
        {"risk_fields": [], "risk": ["tenure"], "risk_threshold": 1},
        "cannot hold a risk",
        "/parameters/risk/0",
    ),
    (
        {"hierarchy": ["region", "occupation"]},
        r"'occupation' differs within \d+ household",
        "/parameters/hierarchy/1",
    ),
    ({"similar": [["tenure"], ["sex"]]}, r"'sex' differs within \d+ household", "/parameters/similar/1/0"),
    ({"carry_along": ["income"]}, r"'income' differs within \d+ household", "/parameters/carry_along/0"),
]


@pytest.mark.parametrize(("change", "message", "pointer"), REFUSED)
def test_parameters_that_do_not_fit_the_table(change: dict[str, Any], message: str, pointer: str) -> None:
    """Each field that is unknown, misused or differs within a household is refused by its pointer."""
    table = household_survey(50)
    with pytest.raises(ProviderError, match=message) as refused:
        swap("RSWAP", table, PARAMETERS | change)
    assert refused.value.pointer == pointer
    if isinstance(refused.value, SourceError):
        provider = PROVIDERS["RSWAP"]
        params = provider.check(provider.params.model_validate(PARAMETERS | change), table.schema)
        with pytest.raises(SourceError, match=message):
            provider.plan(table, params)
    else:
        assert isinstance(refused.value, ParameterError)


@pytest.mark.parametrize(
    ("change", "events", "consequence"),
    [
        ({"k_anonymity": 5}, ["k_anonymity_unused"], "no household must be swapped"),
        (
            {"k_anonymity": 5, "risk": ["income"], "risk_threshold": 9},
            ["k_anonymity_unused"],
            "alone decides",
        ),
        ({"k_anonymity": 5, "risk_fields": ["sex"]}, [], ""),
        ({"k_anonymity": 0}, [], ""),
        ({}, [], ""),
    ],
)
def test_a_least_group_size_that_counts_nothing_is_reported(
    change: dict[str, Any], events: list[str], consequence: str
) -> None:
    """Without risk fields no combination is counted, so that `k_anonymity` obliges no household."""
    table = household_survey(50)
    provider = PROVIDERS["RSWAP"]
    given = provider.params.model_validate(PARAMETERS | {"risk_fields": []} | change)
    found = provider.notices(provider.check(given, table.schema), table.schema)
    assert [event.code for event in found] == events
    assert all(consequence in event.message and "'k_anonymity' 5" in event.message for event in found)


def test_a_row_without_a_household_is_refused() -> None:
    """A null household is an error that counts its rows."""
    table = pa.table({"id": pa.array([1, None, None]), "area": ["a", "b", "c"]})
    with pytest.raises(SourceError, match="'id' is null in 2 rows"):
        swap("RSWAP", table, {"household": "id", "hierarchy": ["area"]})
