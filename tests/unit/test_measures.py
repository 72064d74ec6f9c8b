"""The measures against counting by hand."""

import itertools
import math

import pyarrow as pa
import pytest

from providers.measures import MEASURES
from providers.measures.risk import changed_share, inversion_bits, matching_bits
from tests.naive.agreement import swap


def matchings(size: int, pairs: int) -> int:
    """Ways to choose so many disjoint pairs, by listing them."""
    found = set()
    edges = list(itertools.combinations(range(size), 2))
    for chosen in itertools.combinations(edges, pairs):
        if len({row for edge in chosen for row in edge}) == 2 * pairs:
            found.add(chosen)
    return len(found)


def cycles_and_pairs(size: int) -> int:
    """Outcomes of the odd rule: a cycle of three in either direction, and a matching of the rest."""
    return math.comb(size, 3) * 2 * matchings(size - 3, (size - 3) // 2)


@pytest.mark.parametrize("size", [2, 4, 6, 8])
def test_inversion_of_an_even_group(size: int) -> None:
    """log2 of the perfect matchings."""
    assert matching_bits([size], 1.0) == pytest.approx(math.log2(matchings(size, size // 2)))


@pytest.mark.parametrize("size", [3, 5, 7])
def test_inversion_of_an_odd_group(size: int) -> None:
    """log2 of the outcomes of the odd rule."""
    assert matching_bits([size], 1.0) == pytest.approx(math.log2(cycles_and_pairs(size)))


@pytest.mark.parametrize(("size", "rate", "pairs"), [(8, 0.5, 2), (7, 0.6, 2), (6, 0.1, 0)])
def test_inversion_below_rate_one(size: int, rate: float, pairs: int) -> None:
    """log2 of the ways to choose the pairs."""
    assert matching_bits([size], rate) == pytest.approx(math.log2(matchings(size, pairs)))


def test_bits_of_groups_add_up() -> None:
    """Small and large groups, each as often as it occurs; none, no bits."""
    assert matching_bits([4, 4, 1], 1.0) == pytest.approx(2 * math.log2(3))
    both = matching_bits([10_000], 1.0) + matching_bits([4], 1.0)
    assert matching_bits([10_000, 4, 10_000], 1.0) == pytest.approx(2 * both - matching_bits([4], 1.0))
    assert matching_bits([1, 1], 1.0) == matching_bits([], 1.0) == 0.0


def test_whoever_tries_every_seed_needs_no_more() -> None:
    """The seed's bits are the most."""
    assert inversion_bits(matching_bits([10_000_000], 1.0), 128) == 128.0
    assert inversion_bits(5.5, 128) == 5.5


def test_a_swap_tells_its_bits() -> None:
    """Fields that move on their own add up, locked ones count once, groups left alone not at all."""
    table = pa.table({"a": range(7), "b": range(7), "c": [0, 0, 0, 0, 1, 2, 2]})
    parameters = {"swap_fields": ["a", "b"], "control_field": "c", "min_group_size": 3}
    apart = swap("CDSWAP", table, parameters).provider["matching_bits"]
    locked = swap("CDSWAP", table, {**parameters, "locked": True}).provider["matching_bits"]
    assert locked == pytest.approx(math.log2(3))
    assert apart == pytest.approx(2 * math.log2(3))


def test_changed_share() -> None:
    """Shares of the rows; nothing of no rows."""
    assert changed_share({"a": 5, "b": 0}, 10) == {"a": 0.5, "b": 0.0}
    assert changed_share({"a": 0}, 0) == {"a": 0.0}


def test_every_measure_says_what_it_is() -> None:
    """Key, goal, range, formula and source stand beside each value."""
    for key, measure in MEASURES.items():
        report = measure.report(1.0)
        assert measure.key == key
        assert report["value"] == 1.0
        assert report["goal"] in ("low", "high")
        assert all(report[part] for part in ("title", "range", "formula", "source"))
