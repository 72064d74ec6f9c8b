"""The measures against counting by hand."""

import itertools
import math

import pyarrow as pa
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from providers.measures import MEASURES
from providers.measures.bin_privacy import binormal_square, p_meds, p_mews_binormal, p_of_depths
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


# ------------------------------------------------------------------- P, of swapping within bins

TABLE_1 = {
    10_000: [(0.3466, 0.2986, 0.1450), (0.1973, 0.1060, 0.0461), (0.0443, 0.0254, 0.0125)],
    100_000: [(0.1324, 0.0635, 0.0250), (0.0359, 0.0172, 0.0069), (0.0066, 0.0036, 0.0017)],
}
"""Li and Shen 2010, Table 1: rows t_ub .2 .4 .8, columns rho .1 .5 .9."""


@pytest.mark.parametrize("rows", TABLE_1)
def test_chance_of_a_binormal_sample(rows: int) -> None:
    """All of Table 1, to its four decimals."""
    for widest, line in zip((0.2, 0.4, 0.8), TABLE_1[rows], strict=True):
        for rho, printed in zip((0.1, 0.5, 0.9), line, strict=True):
            found = p_mews_binormal(rows, rho, widest)
            assert found is not None
            assert round(found, 4) == printed
    assert p_mews_binormal(10, 0.5, 0.1) is None


@pytest.mark.parametrize("rho", [-0.999, -0.5, 0.0, 0.3, 0.9, 0.999, 0.999999])
@pytest.mark.parametrize(("low", "high"), [(1.8, 2.0), (1.2, 2.0), (-3.0, 2.0)])
def test_integral_of_the_binormal_density(low: float, high: float, rho: float) -> None:
    """Ours against scipy's, which integrates once more by itself."""

    def inner(x: float) -> float:
        spread = math.sqrt(1 - rho * rho)
        below = norm.cdf((high - rho * x) / spread) - norm.cdf((low - rho * x) / spread)
        return float(norm.pdf(x) * below)

    edges = [edge / rho for edge in (low, high) if low < edge / rho < high] if rho else []
    wanted, _ = quad(inner, low, high, points=edges or None, epsabs=1e-14, epsrel=1e-12, limit=500)
    assert binormal_square(low, high, rho) == pytest.approx(wanted, rel=1e-9, abs=1e-13)


def test_chance_of_minimal_depths() -> None:
    """The mean of 1 / (N* - 1), each depth once; of no depth there is none."""
    assert p_of_depths([5, 3, 3]) == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert p_of_depths([]) is None
    assert p_meds(3) is None
    assert p_meds(4) == 1.0
    assert p_meds(11) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert p_meds(2**16 + 2) == pytest.approx(p_of_depths(range(2, 2**15 + 2)), rel=1e-12)
    rows = 100_000
    q = rows // 2 - 1
    assert p_meds(rows) == pytest.approx(math.log(q) / q, rel=0.1)  # the paper's ln(q) / q, roughly
