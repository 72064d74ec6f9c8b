"""Swap inversion, changed share and P, against counting by hand."""

import itertools
import math

import pyarrow as pa
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from providers.binning.privacy import p_meds, p_meds_by_depths, p_of_depths, privacy_of_meds, privacy_of_mews
from providers.measures import MEASURES
from providers.measures.risk.changed_share import changed_share
from providers.measures.risk.inversion_bits import inversion_bits
from providers.swapping.search_space import matching_bits
from tests.naive.agreement import swap
from tests.naive.measures import binormal_square, p_mews_binormal


def matchings(size: int, pairs: int) -> int:
    """Count the ways to choose this number of disjoint pairs by listing them."""
    found = set()
    edges = list(itertools.combinations(range(size), 2))
    for chosen in itertools.combinations(edges, pairs):
        if len({row for edge in chosen for row in edge}) == 2 * pairs:
            found.add(chosen)
    return len(found)


def cycles_and_pairs(size: int) -> int:
    """Count the outcomes of the odd rule: a cycle of three, in two directions, and a matching of the rest."""
    return math.comb(size, 3) * 2 * matchings(size - 3, (size - 3) // 2)


@pytest.mark.parametrize("size", [2, 4, 6, 8])
def test_inversion_of_an_even_group(size: int) -> None:
    """The bits are log2 of the number of perfect matchings."""
    assert matching_bits([size], 1.0) == pytest.approx(math.log2(matchings(size, size // 2)))


@pytest.mark.parametrize("size", [3, 5, 7])
def test_inversion_of_an_odd_group(size: int) -> None:
    """The bits are log2 of the number of outcomes of the odd rule."""
    assert matching_bits([size], 1.0) == pytest.approx(math.log2(cycles_and_pairs(size)))


@pytest.mark.parametrize(("size", "rate", "pairs"), [(8, 0.5, 2), (7, 0.6, 2), (6, 0.1, 0)])
def test_inversion_below_rate_one(size: int, rate: float, pairs: int) -> None:
    """The bits are log2 of the number of ways to choose the pairs."""
    assert matching_bits([size], rate) == pytest.approx(math.log2(matchings(size, pairs)))


def test_bits_of_groups_add_up() -> None:
    """Bits of small and large groups add up; no groups have no bits."""
    assert matching_bits([4, 4, 1], 1.0) == pytest.approx(2 * math.log2(3))
    both = matching_bits([10_000], 1.0) + matching_bits([4], 1.0)
    assert matching_bits([10_000, 4, 10_000], 1.0) == pytest.approx(2 * both - matching_bits([4], 1.0))
    assert matching_bits([1, 1], 1.0) == matching_bits([], 1.0) == 0.0


def test_an_intruder_who_tries_every_seed_needs_no_more() -> None:
    """The length of the seed is an upper bound."""
    assert inversion_bits(matching_bits([10_000_000], 1.0), 128) == 128.0
    assert inversion_bits(5.5, 128) == 5.5


def test_a_swap_reports_its_bits() -> None:
    """Independent fields add up, locked fields count once, groups that are not swapped not at all."""
    table = pa.table({"a": range(7), "b": range(7), "c": [0, 0, 0, 0, 1, 2, 2], "rest": range(7)})
    parameters = {"swap_fields": ["a", "b"], "control_field": "c", "min_group_size": 3}
    apart = swap("CDSWAP", table, parameters).provider["matching_bits"]
    locked = swap("CDSWAP", table, {**parameters, "locked": True}).provider["matching_bits"]
    assert locked == pytest.approx(math.log2(3))
    assert apart == pytest.approx(2 * math.log2(3))


def test_changed_share() -> None:
    """Changed values are counted as shares of the rows, 0 for an empty table."""
    assert changed_share({"a": 5, "b": 0}, 10) == {"a": 0.5, "b": 0.0}
    assert changed_share({"a": 0}, 0) == {"a": 0.0}


def test_every_measure_says_what_it_is() -> None:
    """Each value is reported with key, goal, range, formula and source."""
    for key, measure in MEASURES.items():
        report = measure.report(1.0)
        assert measure.key == key
        assert report["value"] == 1.0
        assert report["goal"] in ("low", "high", "near")
        assert all(report[part] for part in ("title", "range", "formula", "source"))


# ------------------------------------------------------------------- P, of swapping within bins

TABLE_1 = {
    10_000: [(0.3466, 0.2986, 0.1450), (0.1973, 0.1060, 0.0461), (0.0443, 0.0254, 0.0125)],
    100_000: [(0.1324, 0.0635, 0.0250), (0.0359, 0.0172, 0.0069), (0.0066, 0.0036, 0.0017)],
}
"""Li and Shen 2010, Table 1: rows t_ub .2 .4 .8, columns rho .1 .5 .9."""


@pytest.mark.parametrize("rows", TABLE_1)
def test_chance_of_a_binormal_sample(rows: int) -> None:
    """All values of Table 1 agree to their four decimals."""
    for widest, line in zip((0.2, 0.4, 0.8), TABLE_1[rows], strict=True):
        for rho, printed in zip((0.1, 0.5, 0.9), line, strict=True):
            found = p_mews_binormal(rows, rho, widest)
            assert found is not None
            assert round(found, 4) == printed
    assert p_mews_binormal(10, 0.5, 0.1) is None


@pytest.mark.parametrize("rho", [-0.999, -0.5, 0.0, 0.3, 0.9, 0.999, 0.999999])
@pytest.mark.parametrize(("low", "high"), [(1.8, 2.0), (1.2, 2.0), (-3.0, 2.0)])
def test_integral_of_the_binormal_density(low: float, high: float, rho: float) -> None:
    """The quadrature agrees with scipy's integration of the inner integral."""

    def inner(x: float) -> float:
        spread = math.sqrt(1 - rho * rho)
        below = norm.cdf((high - rho * x) / spread) - norm.cdf((low - rho * x) / spread)
        return float(norm.pdf(x) * below)

    edges = [edge / rho for edge in (low, high) if low < edge / rho < high] if rho else []
    wanted, _ = quad(inner, low, high, points=edges or None, epsabs=1e-14, epsrel=1e-12, limit=500)
    assert binormal_square(low, high, rho) == pytest.approx(wanted, rel=1e-9, abs=1e-13)


def test_chance_of_minimal_depths() -> None:
    """P is the mean of 1 / (N* - 1) over distinct depths, None without any."""
    assert p_of_depths([5, 3, 3]) == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert p_of_depths([]) is None
    assert p_meds_by_depths(3) is None
    assert p_meds_by_depths(4) == 1.0
    assert p_meds_by_depths(11) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert p_meds_by_depths(2**18 + 2) == pytest.approx(p_of_depths(range(2, 2**17 + 2)), rel=1e-12)
    rows = 100_000
    q = rows // 2 - 1
    assert p_meds_by_depths(rows) == pytest.approx(math.log(q) / q, rel=0.1)  # the paper's ln(q) / q


def test_chance_under_meds_as_printed() -> None:
    """Eq. 2, term by term; abalone's 4177 rows give .003846, and .003939 by eq. 1."""
    assert p_meds(3) is None
    for rows in (4, 5, 6, 11, 100, 4177, 2**18 + 3):
        q = rows // 2 - 1
        printed = (math.fsum(1 / i for i in range(1, q // 2 + 1)) + q / (2 * (q + 2))) / q
        assert p_meds(rows) == pytest.approx(printed, rel=1e-12)
    assert p_meds(4177) == pytest.approx(0.003846, abs=5e-7)
    assert p_meds_by_depths(4177) == pytest.approx(0.003939, abs=5e-7)


def test_chance_of_an_intruder_who_knows_the_bins() -> None:
    """The guess is certain in a bin of two; a single row in its bin has no partner to guess."""
    assert privacy_of_meds(100, 2)["chance"] == 1.0
    assert privacy_of_meds(100, 41)["chance"] == pytest.approx(1 / 40)
    assert privacy_of_mews([3, 5], 4) == {"p": pytest.approx(3 / 8), "minimal_depth": 4, "chance": 1 / 3}
    assert privacy_of_mews((), 1) == {"p": None, "minimal_depth": 1, "chance": None}
