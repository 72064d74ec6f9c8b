"""Permutation mechanism: its law by enumeration of all permutations, and statistics at fixed seeds."""

import math
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from scipy import stats

from providers import PROVIDERS
from providers.attacks.composition.intruder_groups import groups_by_field, rate_of
from providers.attacks.methods.reidentification import guess_permuted_values
from providers.errors import ParameterError
from providers.grouping.groups import Groups
from providers.randomness.chacha20 import Stream
from providers.swapping.guarantee import stated_figures
from providers.swapping.permutation import Cycles, Permutation, draw_cycles, permute_groups, sources_along
from providers.swapping.permutation_law import (
    bound,
    composed,
    derangements,
    epsilon,
    guess_chance,
    least,
    moving_share,
    outcome_bits,
    smallest_rate,
)
from tests.naive import permutation as naive
from tests.naive.agreement import swap
from tests.property.out_of_core import assert_same

ALPHA = 1e-3
"""Significance level of each test; seeds are fixed."""

RATES = [Fraction(1, 10), Fraction(1, 3), Fraction(1, 2), Fraction(7, 10), Fraction(95, 100)]

Sources = tuple[int, ...]


def many_groups(size: int, count: int) -> Groups:
    starts = np.arange(count + 1, dtype=np.int64) * size
    rows = size * count
    return Groups(rows, np.arange(rows, dtype=np.int32), starts, np.arange(count, dtype=np.uint64))


def key(purpose: str = "permutation") -> Any:
    return Stream(bytes([7] * 32), "DSWAP", 2).key(purpose)


@cache
def cuts(moving: int) -> dict[tuple[int, ...], Fraction]:
    """Cycle lengths -> probability, as `draw_cycles` draws them: uniform on what is left, none of them 1."""
    if moving == 0:
        return {(): Fraction(1)}
    found = {
        (length, *rest): chance / moving
        for length in range(2, moving + 1)
        for rest, chance in cuts_with_failures(moving - length).items()
    }
    total = sum(found.values())
    return {lengths: chance / total for lengths, chance in found.items()}


@cache
def cuts_with_failures(moving: int) -> dict[tuple[int, ...], Fraction]:
    """The same without drawing again, so that the probabilities add up to that of no cycle of length 1."""
    if moving == 0:
        return {(): Fraction(1)}
    return {
        (length, *rest): chance / moving
        for length in range(2, moving + 1)
        for rest, chance in cuts_with_failures(moving - length).items()
    }


@cache
def sampled_law(size: int) -> dict[Sources, dict[int, Fraction]]:
    """Permutation -> number of moving rows -> probability given that number, from the sampler's own steps.

    Every order of the rows with every cut into cycles goes through the kernel that makes the permutation.
    """
    orders = np.array(list(permutations(range(size))), np.int32)
    law: dict[Sources, dict[int, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for moving in range(size + 1):
        for lengths, chance in cuts(moving).items():
            groups = many_groups(size, len(orders))
            order = (orders + groups.starts[:-1, np.newaxis]).astype(np.int32).reshape(-1)
            offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)[: len(lengths)]
            cycles = Cycles(
                np.full(len(orders), moving, np.int64),
                (groups.starts[:-1, np.newaxis] + offsets).reshape(-1),
                np.tile(np.array(lengths, np.int64), len(orders)),
            )
            source = sources_along(order, groups.starts, cycles, groups.rows).reshape(-1, size)
            for found, times in Counter(
                map(tuple, (source - groups.starts[:-1, np.newaxis]).tolist())
            ).items():
                law[found][moving] += chance * times / len(orders)
    return law


def selection(size: int, rate: Fraction) -> dict[int, Fraction]:
    """Number of selected rows -> probability, by enumeration of all selections but those of one row."""
    chances: dict[int, Fraction] = defaultdict(Fraction)
    for selected in range(2**size):
        count = selected.bit_count()
        chances[count] += rate**count * (1 - rate) ** (size - count)
    chances.pop(1, None)
    total = sum(chances.values())
    return {count: chance / total for count, chance in chances.items()}


@pytest.mark.parametrize("size", range(2, 8))
def test_every_permutation_has_the_probability_of_the_law(size: int) -> None:
    """The sampler's steps give each of n! permutations p^m (1 - p)^(n - m) / (D_m Z), exactly."""
    law = sampled_law(size)
    assert len(law) == math.factorial(size)
    for rate in RATES:
        chosen = selection(size, rate)
        total = Fraction(0)
        for sources, by_moving in law.items():
            moving = sum(row != source for row, source in enumerate(sources))
            assert list(by_moving) == [moving]
            chance = by_moving[moving] * chosen[moving]
            assert chance == naive.probability(size, moving, rate)
            total += chance
        assert total == 1


@pytest.mark.parametrize("size", range(2, 8))
def test_epsilon_is_that_of_all_permutations_and_transpositions(size: int) -> None:
    """No closed form: the largest ratio over every permutation and every exchange of two rows."""
    law = sampled_law(size)
    for rate in RATES:
        chosen = selection(size, rate)
        chance = {
            sources: sum((given * chosen[moving] for moving, given in by_moving.items()), Fraction(0))
            for sources, by_moving in law.items()
        }
        largest = 0.0
        for sources, one in chance.items():
            for i, j in combinations(range(size), 2):
                exchanged = list(sources)
                exchanged[i], exchanged[j] = exchanged[j], exchanged[i]
                ratio = one / chance[tuple(exchanged)]
                largest = max(largest, abs(math.log(ratio.numerator) - math.log(ratio.denominator)))
        assert epsilon(size, float(rate)) == pytest.approx(largest, rel=1e-12)
        assert largest <= bound(size, float(rate)) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("size", "rate", "expected"),
    [(3, 0.5, 0.693), (4, 0.1, 6.592), (5, 0.3, 4.786), (6, 0.7, 1.695), (8, 0.5, 4.025), (8, 0.9, 4.394)],
)
def test_figures_of_the_design(size: int, rate: float, expected: float) -> None:
    assert epsilon(size, rate) == pytest.approx(expected, abs=5e-4)


def test_a_large_group_has_a_large_epsilon() -> None:
    assert epsilon(10_000, 0.5) == pytest.approx(18.4206, abs=1e-4)
    assert epsilon(10_000_000, 0.5) == pytest.approx(math.log(9_999_999) + math.log(10_000_000), abs=1e-12)


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.3, 0.5, 0.77, 0.95, 0.9999])
def test_epsilon_agrees_with_the_twin(rate: float) -> None:
    """The two ends decide: the maximum over all pairs of numbers of moved rows is the same, and grows."""
    found = [epsilon(size, rate) for size in range(2, 120)]
    assert found == pytest.approx([naive.epsilon(size, rate) for size in range(2, 120)], rel=1e-12)
    assert all(one <= two + 1e-12 for one, two in pairwise(found))
    for size in (*range(2, 120), 10**4, 10**7):
        assert epsilon(size, rate) <= bound(size, rate) * (1 + 1e-12)
        if size < 120:
            assert bound(size, rate) == pytest.approx(naive.paper_bound(size, rate), rel=1e-12)


def test_numbers_of_derangements() -> None:
    """Recursion, inclusion and exclusion, and counting agree."""
    for size in range(8):
        counted = sum(
            all(row != source for row, source in enumerate(order)) for order in permutations(range(size))
        )
        assert derangements(size) == naive.derangements(size) == counted
    assert derangements(20) == naive.derangements(20)


# ----------------------------------------------------------------------------------------- target epsilon


@pytest.mark.parametrize("groups", [[2], [3], [5], [10], [100], [10_000], [10, 10], [3, 50, 7]])
def test_target_is_met_by_the_smallest_rate(groups: list[int]) -> None:
    best = least(groups)
    for target in (best.epsilon + 1e-9, best.epsilon * 1.1 + 0.1, best.epsilon * 2 + 1):
        rate = smallest_rate(groups, target)
        assert sum(epsilon(size, rate) for size in groups) <= target
        below = rate - 2e-6
        assert below <= 0 or sum(epsilon(size, below) for size in groups) > target
        # Six decimals: the last bit of a logarithm, which machines compute differently, changes no release.
        assert target < best.epsilon + 1e-6 or rate == round(rate, 6)
    grid = np.arange(1, 1000) / 1000
    assert best.epsilon <= min(sum(epsilon(size, rate) for size in groups) for rate in grid.tolist()) + 1e-12


def test_epsilon_is_not_monotone_in_the_rate() -> None:
    """It falls to the least and rises again, so that rates on both sides miss a target."""
    found = [epsilon(10, rate) for rate in (0.1, 0.5, 0.755, 0.9, 0.99)]
    assert found[0] > found[1] > found[2] < found[3] < found[4]


def test_unreachable_target_states_the_least() -> None:
    table = pa.table({"v": np.arange(1000), "w": np.arange(1000)})
    parameters = {"swap_fields": ["v"], "mechanism": "permutation", "target_epsilon": 2}
    with pytest.raises(
        ParameterError, match=r"least epsilon for these groups is 6\.9\d+, at rate 0\.96"
    ) as found:
        swap("DSWAP", table, parameters)
    assert found.value.pointer == "/parameters/target_epsilon"
    reached = float(str(found.value).split("groups is ")[1].split(",")[0])
    swap("DSWAP", table, parameters | {"target_epsilon": reached})


@pytest.mark.parametrize("size", [3, 4, 5, 8, 20, 100, 501, 48_842, 10**9])
@pytest.mark.parametrize("fields", [1, 3])
def test_the_least_epsilon_that_is_stated_can_be_met(size: int, fields: int) -> None:
    """The number in the message is rounded up, so that a call with it as the target is accepted."""
    groups = [size] * fields
    with pytest.raises(ParameterError) as caught:
        smallest_rate(groups, 1e-9)
    assert "target_epsilon 1e-09:" in caught.value.message
    stated = float(caught.value.message.partition("for these groups is ")[2].partition(",")[0])
    assert least(groups).epsilon <= stated < least(groups).epsilon + 1.1e-6
    assert composed(groups, smallest_rate(groups, stated)) <= stated


def test_target_is_refused_where_small_groups_keep_their_values() -> None:
    table = pa.table({"c": [1, 1, 2, 2, 2, 2, 2], "v": range(7)})
    parameters = {
        "swap_fields": ["v"],
        "control_field": "c",
        "mechanism": "permutation",
        "min_group_size": 3,
        "suppression": {"policy": "keep"},
    }
    with pytest.raises(ParameterError, match="keep the values of 'v'"):
        swap("CDSWAP", table, parameters | {"target_epsilon": 9})
    kept = swap("CDSWAP", table, parameters | {"rate": 0.5}).provider["guarantee"]
    assert kept["epsilon"] is kept["by_field"]["v"]["epsilon"] is None
    assert "2 values in groups below 'min_group_size'" in kept["holds_for"]
    suppressed = swap("CDSWAP", table, parameters | {"rate": 0.5, "suppression": {"policy": "drop"}})
    assert suppressed.provider["guarantee"]["epsilon"] == epsilon(5, 0.5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mechanism": "permutation"}, "needs a 'rate' below 1"),
        ({"mechanism": "permutation", "rate": 1}, "needs a 'rate' below 1"),
        ({"mechanism": "permutation", "rate": 0.5, "target_epsilon": 3}, "one of the two"),
        ({"target_epsilon": 3}, "random pairs have no finite epsilon"),
        ({"mechanism": "permutation", "target_epsilon": 0}, "greater than 0"),
        ({"mechanism": "shuffle"}, "'pairs' or 'permutation'"),
    ],
)
def test_parameters_that_do_not_fit_together(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PROVIDERS["DSWAP"].params.model_validate({"swap_fields": ["v"], **parameters})


# ----------------------------------------------------------------------------------- statistics and figures


def drawn(size: int, count: int, rate: float) -> Permutation:
    return permute_groups(many_groups(size, count), key(), rate)


@pytest.mark.parametrize(("size", "rate"), [(2, 0.5), (3, 0.5), (4, 0.3), (5, 0.7), (6, 0.9)])
def test_drawn_permutations_follow_the_law(size: int, rate: float) -> None:
    """Chi-square over all permutations of 60,000 groups."""
    count = 60_000
    source = drawn(size, count, rate).source.reshape(-1, size)
    found = Counter(map(tuple, (source - np.arange(0, size * count, size)[:, np.newaxis]).tolist()))
    observed: list[int] = []
    expected: list[float] = []
    rare_found, rare_wanted = 0, 0.0
    for order in permutations(range(size)):
        moving = sum(row != origin for row, origin in enumerate(order))
        wanted = float(naive.probability(size, moving, Fraction(rate))) * count
        if wanted < 5:
            rare_found, rare_wanted = rare_found + found[order], rare_wanted + wanted
        else:
            observed.append(found[order])
            expected.append(wanted)
    if rare_wanted:
        observed.append(rare_found)
        expected.append(rare_wanted)
    assert sum(found.values()) == count
    assert stats.chisquare(observed, np.array(expected) * count / sum(expected)).pvalue > ALPHA


@pytest.mark.parametrize(("size", "rate"), [(40, 0.2), (1000, 0.5), (9000, 0.5)])
def test_numbers_of_moved_rows_and_cycles_beyond_enumeration(size: int, rate: float) -> None:
    """Moved rows are binomial; a derangement of m rows has a 2-cycle count of mean 1/2 (Poisson)."""
    count = 400_000 // size
    groups = many_groups(size, count)
    cycles = draw_cycles(groups.starts, groups.identities, key(), rate)
    error = math.sqrt(size * rate * (1 - rate) / count)
    assert abs(cycles.moving.mean() - moving_share(size, rate) * size) < 4 * error
    assert cycles.lengths.min() >= 2
    assert cycles.lengths.sum() == cycles.moving.sum()
    twos = int(np.count_nonzero(cycles.lengths == 2))
    assert abs(twos - count / 2) < 4 * math.sqrt(count / 2)


@pytest.mark.parametrize(("size", "rate"), [(9, 0.4), (8200, 0.999)])
def test_each_row_is_as_likely_to_give_to_each_other(size: int, rate: float) -> None:
    """Offsets from a row to its source, over all moved rows, are uniform on 1 to n - 1."""
    count = max(1, 200_000 // size)
    permutation = drawn(size, count, rate)
    rows = np.arange(size * count)
    offsets = (permutation.source - rows) % size
    found = np.bincount(offsets[offsets > 0] * 8 // size if size > 100 else offsets[offsets > 0] - 1)
    edges = np.bincount(np.arange(1, size) * 8 // size if size > 100 else np.arange(size - 1))
    assert stats.chisquare(found, edges * found.sum() / edges.sum()).pvalue > ALPHA


@pytest.mark.parametrize(("size", "rate"), [(2, 0.3), (3, 0.5), (7, 0.9), (12, 0.05)])
def test_figures_follow_from_the_law(size: int, rate: float) -> None:
    p = Fraction(rate)
    chance = {
        m: naive.probability(size, m, p) * math.comb(size, m) * derangements(m) for m in range(size + 1)
    }
    assert moving_share(size, rate) == pytest.approx(float(sum(m * c for m, c in chance.items())) / size)
    assert outcome_bits(size, rate) == pytest.approx(naive.permutation_bits(size, rate), abs=1e-9)
    if size < 4:
        best = max(naive.probability(size, m, p) for m in range(size + 1))
        assert guess_chance(size, rate) == pytest.approx(float(best))


def test_bits_of_a_large_group_need_no_sum_over_all() -> None:
    """The window of 12 standard deviations, from 10,001 rows on, leaves nothing visible out."""
    assert outcome_bits(10_001, 0.3) == pytest.approx(outcome_bits(10_000, 0.3), rel=2e-4)
    assert outcome_bits(10_001, 0.3) > outcome_bits(10_000, 0.3)


def test_composition_over_fields() -> None:
    """Epsilon adds up over fields that move independently; locked fields count once."""
    table = pa.table({"a": range(50), "b": range(50), "c": range(50)})
    parameters = {"swap_fields": ["a", "b"], "mechanism": "permutation", "rate": 0.6}
    apart = swap("DSWAP", table, parameters).provider["guarantee"]
    locked = swap("DSWAP", table, parameters | {"locked": True}).provider["guarantee"]
    assert apart["epsilon"] == pytest.approx(2 * locked["epsilon"])
    assert locked["epsilon"] == epsilon(50, 0.6)
    assert list(locked["by_field"]) == ["a, b"]
    assert apart["paper_bound"] == pytest.approx(2 * bound(50, 0.6))
    assert any("locked" in text for text in locked["invariants"])
    assert not any("locked" in text for text in apart["invariants"])
    pairs = swap("DSWAP", table, {"swap_fields": ["a"], "rate": 0.6})
    assert "guarantee" not in pairs.provider


# --------------------------------------------------------------------------------- larger than memory, units

ROWS = 30_000


@pytest.mark.parametrize("units", [1, 2, 5])
@pytest.mark.parametrize(
    ("service", "extra"),
    [
        ("DSWAP", {"rate": 0.5}),
        ("DSWAP", {"rate": 0.05, "locked": True, "nulls": "keep"}),
        ("DSWAP", {"target_epsilon": 44}),
        ("CDSWAP", {"control_field": "c", "rate": 0.9}),
        ("CDSWAP", {"control_field": "c", "target_epsilon": 41, "nulls": "keep"}),
    ],
)
def test_groups_of_many_buckets_come_out_the_same(service: str, extra: dict[str, Any], units: int) -> None:
    """A cycle that runs through several ranges of buckets, or ends in a later one, moves every value."""
    numbers = np.arange(ROWS)
    table = pa.table(
        {
            "c": np.where(numbers % 10 == 0, numbers % 7, 99),
            "v": pa.array(numbers, mask=numbers % 11 == 0),
            "w": [f"text {number}" for number in numbers.tolist()],
        }
    )
    parameters = {"swap_fields": ["v", "w"], "mechanism": "permutation", **extra}
    result = assert_same(service, table, parameters, 200_000, 1000, units)
    assert result is not None
    assert sorted(result.table["w"].to_pylist()) == sorted(table["w"].to_pylist())
    guarantee = result.provider["guarantee"]
    assert guarantee["epsilon"] <= (guarantee["target_epsilon"] or math.inf)


def test_unreachable_target_out_of_core() -> None:
    table = pa.table({"c": np.arange(ROWS) % 2, "v": np.arange(ROWS)})
    parameters = {"swap_fields": ["v"], "mechanism": "permutation", "target_epsilon": 3}
    for units in (1, 3):
        assert assert_same("DSWAP", table, parameters, 100_000, 1000, units) is None
        assert assert_same("CDSWAP", table, parameters | {"control_field": "c"}, 100_000, 1000, units) is None


@pytest.mark.parametrize("locked", [False, True])
def test_a_report_has_epsilon_under_the_names_of_the_contract(locked: bool) -> None:
    """Locked fields count once; where no finite epsilon holds, none is stated."""
    table = pa.table({"c": [0, 0, 0, 0, 1, 1], "v": range(6), "w": range(6), "x": range(6)})
    parameters = {"swap_fields": ["v", "w"], "control_field": "c", "mechanism": "permutation", "rate": 0.5}
    parameters["min_group_size"] = 3
    figures = stated_figures(swap("CDSWAP", table, parameters | {"locked": locked}).provider)
    names = ["v, w"] if locked else ["v", "w"]
    assert figures["epsilon"] == dict.fromkeys(names, epsilon(4, 0.5))
    assert figures["epsilon_total"] == pytest.approx(len(names) * epsilon(4, 0.5))
    assert figures["epsilon_bound"] == pytest.approx(len(names) * bound(4, 0.5))
    kept = swap("CDSWAP", table, parameters | {"suppression": {"policy": "keep"}}).provider
    assert stated_figures(kept).keys() == {"invariants"}
    pairs = swap("CDSWAP", table, {"swap_fields": ["v"], "control_field": "c"}).provider
    assert stated_figures(pairs) == {}


# ------------------------------------------------------------------------------------------------- attacks


@pytest.mark.parametrize(
    "extra", [{"rate": 0.6}, {"target_epsilon": 2.5}, {"target_epsilon": 5, "locked": True}]
)
def test_an_intruder_computes_the_share_that_moved(extra: dict[str, Any]) -> None:
    """The groups of the release, the law and the target give the expected share of moved rows."""
    rows = 20_000
    table = pa.table({"age": np.arange(rows), "v": np.arange(rows), "w": np.arange(rows) * 2})
    names = ["v", "w"] if extra.get("locked") else ["v"]
    parameters = {"swap_fields": names, "control_field": "age", "block_size": 10}
    parameters |= {"mechanism": "permutation", **extra}
    provider = PROVIDERS["DDSWAP"]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    result = swap("DDSWAP", table, parameters)
    rate = result.provider["guarantee"]["rate"]
    groups = groups_by_field(result.table, params)
    for name in names:
        assert rate_of(params, groups, name, result.table) == pytest.approx(moving_share(10, rate))
    error = math.sqrt(0.25 / rows)
    assert abs(result.summary.took_part / rows - moving_share(10, rate)) < 4 * error
    assert (
        rate_of(params.model_copy(update={"mechanism": "pairs", "rate": 0.3}), groups, "v", result.table)
        == 0.3
    )


def test_known_values_take_their_copies() -> None:
    """A value that a known row has is no guess for another row, but for its further copies."""
    shown = np.array([5, 5, 7, 8, 9])
    group = np.zeros(5, np.int64)
    known = np.array([-1, 8, 9, -1, 5])
    guesses = guess_permuted_values(shown, known, group, 0.4, np.array([0, 3]))
    # One 5 and one 7 are left for rows 0 and 3. Row 0 often keeps its 5; row 3 cannot keep its 8.
    assert guesses.values.tolist() == [5, 7]
    assert guesses.chance[0] == pytest.approx(guesses.chance[3])
    assert guesses.chance[0] > 0.6
    assert guesses.exact == 2


@pytest.mark.parametrize("size", range(2, 7))
@pytest.mark.parametrize("rate", RATES[::2])
def test_guesses_in_small_groups_are_the_likeliest_of_all_permutations(size: int, rate: Fraction) -> None:
    """Any number of known rows, and equal values: no closed form, but the law of every permutation."""
    random = np.random.default_rng(size)
    for known_rows in range(size):
        source = random.integers(0, size, size)
        true = source[random.permutation(size)]
        sources = random.permutation(size)
        shown, known = true[sources], np.full(size, -1)
        known[random.permutation(size)[:known_rows]] = 0
        known = np.where(known == 0, true, -1)
        by_value: dict[int, Fraction] = defaultdict(Fraction)
        row = int(np.flatnonzero(known == -1)[0])
        for order in permutations(range(size)):
            # The row `order[place]` has the value that `place` shows.
            given = np.empty(size, np.int64)
            given[list(order)] = shown
            if ((known == -1) | (known == given)).all():
                moving = sum(place != each for place, each in enumerate(order))
                by_value[int(given[row])] += naive.probability(size, moving, rate)
        total = sum(by_value.values())
        guesses = guess_permuted_values(shown, known, np.zeros(size, np.int64), float(rate), np.array([row]))
        assert guesses.chance[row] == pytest.approx(float(max(by_value.values()) / total))
        assert by_value[int(guesses.values[0])] == max(by_value.values())


@pytest.mark.parametrize(("rate", "least"), [(0.5, 0.75), (0.7, 0.6), (0.9, 0.45)])
def test_guesses_in_large_groups_use_that_few_places_are_left(rate: float, least: float) -> None:
    """If 18 of 20 rows are known, a place that none of them takes is probably that of its own row."""
    source = np.tile(np.arange(20), 300)
    table = pa.table({"c": np.repeat(np.arange(300), 20), "v": source})
    parameters = {"swap_fields": ["v"], "control_field": "c", "mechanism": "permutation", "rate": rate}
    shown = swap("CDSWAP", table, parameters).table["v"].to_numpy()
    known = np.where(source < 18, source, -1)
    targets = np.flatnonzero(known == -1)
    guesses = guess_permuted_values(shown, known, np.repeat(np.arange(300), 20), rate, targets)
    right = guesses.values == source[targets]
    assert right.mean() > least
    believed = np.array(list(guesses.chance.values()))
    assert believed.mean() == pytest.approx(right.mean(), abs=0.06)
    assert guesses.exact == 0
