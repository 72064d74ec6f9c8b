"""Peers and statistics of PABIDOT's experiments, each against an independent calculation."""

import numpy as np
import pytest
from scipy import special, stats
from scipy.spatial.distance import pdist

from benchmarks.papers import kolmogorov, ranks
from benchmarks.papers.pabidot import cost
from benchmarks.papers.pabidot.tables import standardised
from benchmarks.papers.peers import projection, rotation
from providers.attacks.methods.ica import independent_components, match_components
from providers.progress import no_progress
from providers.rotation.transform import ANGLES, least_variances, rotations

random = np.random.default_rng(4)


def skewed(rows: int, fields: int) -> np.ndarray:
    """Correlated, skewed z-scores."""
    values = random.normal(size=(rows, fields)) + random.normal(size=(rows, 1))
    return standardised(np.exp(values / 2))


@pytest.mark.parametrize("seed", range(4))
def test_friedman_is_scipys(seed: int) -> None:
    """Also with ties, by whole numbers from 0 to 3."""
    blocks = np.random.default_rng(seed).integers(0, 4, (15, 3)).astype(float)
    found = ranks.friedman(blocks)
    expected = stats.friedmanchisquare(*blocks.T)
    assert (found.chi_squared, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    expected_ranks = np.mean([stats.rankdata(block) for block in blocks], axis=0)
    assert found.mean_ranks == pytest.approx(expected_ranks)


def test_friedman_of_blocks_without_differences() -> None:
    assert ranks.friedman(np.ones((5, 3))) == ranks.Friedman([2.0, 2.0, 2.0], 0.0, 1.0)


PUBLISHED = {
    "LRDS": (2564, 3084, 2664), "PBDS": (1540, 2056, 428), "SSDS": (3072, 3180, 3408),
    "WCDS": (512, 1024, 444), "WQDS": (512, 5846, 184), "FRDS": (4756, 3853, 3865),
    "ELDS": (4945, 6312, 3449),
}  # fmt: skip


def test_friedman_of_the_papers_own_table() -> None:
    """Table 4 gives mean ranks 1.86, 2.57 and 1.57, chi squared 3.7143 and p 0.1561, as printed."""
    found = ranks.friedman(np.array(list(PUBLISHED.values()), float))
    assert [round(rank, 2) for rank in found.mean_ranks] == [1.86, 2.57, 1.57]
    assert (round(found.chi_squared, 4), round(found.p, 4)) == (3.7143, 0.1561)
    assert {name: PUBLISHED[name] for name in cost.MEMORY} == cost.MEMORY


@pytest.mark.parametrize("decimals", [0, 6])
def test_distances_are_scipys(decimals: int) -> None:
    """With many ties, and with hardly any."""
    one, other = (np.round(random.normal(scale=2, size=(50, size)), decimals) for size in (7, 9))
    expected = [stats.ks_2samp(*pair).statistic for pair in zip(one, other, strict=True)]
    assert kolmogorov.distances(one, other) == pytest.approx(expected)


@pytest.mark.parametrize("distance", [0.0, 0.05, 0.3, 0.6, 1.0])
def test_probability_is_the_limiting_distribution(distance: float) -> None:
    root = (12 * 30 / 42) ** 0.5
    expected = special.kolmogorov((root + 0.12 + 0.11 / root) * distance)
    assert kolmogorov.probability(distance, 12, 30) == pytest.approx(expected, abs=1e-9)


def test_accepted_pairs_are_counted_one_by_one() -> None:
    one, other = random.normal(size=(80, 10)), random.normal(random.uniform(0, 2, (80, 1)), size=(80, 10))
    expected = sum(
        kolmogorov.probability(stats.ks_2samp(*pair).statistic, 10, 10) > 0.05
        for pair in zip(one, other, strict=True)
    )
    assert 0 < kolmogorov.accepted(one, other) == expected < 80


def test_random_rotations_are_orthogonal() -> None:
    matrix = rotation.random_orthogonal(7, random)
    assert matrix @ matrix.T == pytest.approx(np.eye(7), abs=1e-12)


def test_rotation_keeps_all_distances_and_the_best_of_its_tries() -> None:
    """RP keeps distances exactly, and ten rotations have no smaller guarantee than the first one."""
    z = skewed(150, 4)
    guarantees = []
    for iterations in (1, 4):
        released = rotation.random_rotation(z, 3, iterations)
        assert pdist(released) == pytest.approx(pdist(z))
        components = independent_components(released, np.arange(150), 0)
        guess = match_components(components, np.arange(150), z)
        guarantees.append(min(rotation.spreads(z, each).min() for each in (released, guess)))
    assert guarantees[1] >= guarantees[0] - 0.02  # the components depend on a random start


def test_geometric_perturbation_adds_translation_and_noise() -> None:
    """Without noise it keeps distances; with noise 0.3 a regression on the source leaves that deviation."""
    z = skewed(600, 3)
    assert pdist(rotation.geometric(z, 1, 1, noise=0.0)) == pytest.approx(pdist(z))
    released = rotation.geometric(z, 1, 2)
    design = np.column_stack([z, np.ones(600)])
    coefficients, left, *_ = np.linalg.lstsq(design, released, rcond=None)
    assert np.sqrt(left / 596) == pytest.approx([0.3] * 3, rel=0.1)
    assert coefficients[:3] @ coefficients[:3].T == pytest.approx(np.eye(3), abs=0.1)


def test_the_basic_form_finds_the_same_phi() -> None:
    """A pass over the whole table (algorithm 2) gives the phi of the correlations (algorithm 3)."""
    z = skewed(300, 4)
    phi = least_variances(np.asarray(np.corrcoef(z.T)), no_progress)
    for angle, axis in ((0, 1), (60, 3), (171, 0)):
        found = cost.basic_pass(z, rotations(4, (ANGLES[angle],))[0], axis, random.random(4))
        assert found == pytest.approx(phi[angle, axis], abs=1e-10)


def test_projection_keeps_distances_in_expectation() -> None:
    """Half as many fields; the mean squared distance over many seeds is that of the source."""
    z = skewed(5, 8)
    projected = [projection.random_projection(z, seed) for seed in range(4000)]
    assert projected[0].shape == (5, 4)
    squared = np.mean([pdist(each, "sqeuclidean") for each in projected], axis=0)
    assert squared == pytest.approx(pdist(z, "sqeuclidean"), rel=0.06)
    assert projection.random_projection(z, 0).tolist() == projected[0].tolist()
