"""Measures and peers of source 002 against the project's own measures, twins and hand-computed cases."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.papers.peers.mdav import clusters, microaggregate
from benchmarks.papers.runs import Matrix, table_of
from benchmarks.papers.rwn import forests, neighbourhoods, statistics, tradeoff
from providers.measures.risk.dcr import raw_distances
from providers.services.rwn import RwnParams
from tests.naive import measures, rwn


@pytest.fixture(scope="module")
def pair() -> tuple[Matrix, Matrix]:
    """Source and release, 80 rows of four related fields."""
    generator = np.random.default_rng(6)
    source = generator.standard_normal((80, 4)) @ generator.standard_normal((4, 4))
    return source, source + 0.3 * generator.standard_normal((80, 4))


def test_fit_is_that_of_statsmodels(pair: tuple[Matrix, Matrix]) -> None:
    """Coefficients, standard errors, R squared and Cook's distances."""
    from statsmodels.api import OLS, add_constant  # takes a second to import

    source, _ = pair
    found = statistics.fit(source[:, 0], source[:, 1:])
    wanted = OLS(source[:, 0], add_constant(source[:, 1:])).fit()
    assert found.coefficients == pytest.approx(wanted.params)
    assert found.errors == pytest.approx(wanted.bse)
    assert found.r_squared == pytest.approx(wanted.rsquared)
    assert found.influence == pytest.approx(wanted.get_influence().cooks_distance[0])


def test_standardised_fit_is_that_of_the_measure(pair: tuple[Matrix, Matrix]) -> None:
    """Coefficients of z-scores, as IL3 compares them."""
    source, _ = pair
    found = statistics.standardised_fit(source[:, 0], source[:, 1:])
    wanted = measures.regression(source[:, 0], source[:, 1:])
    assert found.coefficients == pytest.approx(wanted.coefficients)
    assert found.r_squared == pytest.approx(wanted.r_squared)


def test_losses_and_risks_are_those_of_the_measures(pair: tuple[Matrix, Matrix]) -> None:
    """IL1, IL2, components, DCR and intervals of deviations."""
    source, released = pair
    changes = np.abs(statistics.upper_correlations(source) - statistics.upper_correlations(released))
    assert changes.mean() == pytest.approx(measures.delta_rho(source, released)["mean"])
    assert statistics.loading_changes(source, released) == pytest.approx(measures.il2(source, released))
    assert statistics.components(source)[1] == pytest.approx(measures.loadings(source)[1])
    assert statistics.closest_distances(source, released) == pytest.approx(raw_distances(source, released))
    assert statistics.within_deviations(source, released) == measures.interval_sd(source, released)["share"]
    points = measures.paired_points(table_of(source, "abcd"), table_of(released, "abcd"), list("abcd"))
    low, span = source.min(axis=0), np.ptp(source, axis=0)
    found = statistics.self_closest((source - low) / span, (released - low) / span)
    assert found == pytest.approx(measures.pscr(*points))


def test_ranks_and_ties() -> None:
    """Mid-ranks among the reference; tied closest rows share the credit."""
    reference = np.array([[1.0], [2.0], [2.0], [4.0]])
    assert statistics.ranks(np.array([[2.0], [3.0]]), reference)[:, 0].tolist() == [0.5, 0.75]
    assert statistics.self_closest(np.zeros((2, 1)), np.zeros((2, 1))) == 0.5
    source = np.arange(100.0)[:, None]
    assert statistics.within_ranks(source, source) == 1.0
    assert statistics.within_ranks(source, source[::-1]) == pytest.approx(0.055, abs=0.02)


def test_scores_have_the_variances_of_the_components(pair: tuple[Matrix, Matrix]) -> None:
    """Variance of the scores is the eigenvalue: share times number of fields."""
    source, _ = pair
    shares = statistics.components(source)[1]
    assert statistics.first_scores(source).var(axis=0, ddof=1) == pytest.approx(4 * shares[:2])


def test_clusters_of_mdav() -> None:
    """A line of seven points in clusters of two, by hand; releases keep the means."""
    points = np.array([0.0, 0.1, 5.0, 5.2, 9.0, 9.4, 10.0])[:, None]
    assert [sorted(rows.tolist()) for rows in clusters(points, 2)] == [[0, 1], [5, 6], [2, 3, 4]]
    released = microaggregate(points, 2)
    assert released[:, 0] == pytest.approx([0.05, 0.05, 6.4, 6.4, 6.4, 9.7, 9.7])
    assert all(len(rows) >= 3 for rows in clusters(np.random.default_rng(1).standard_normal((50, 3)), 3))


def test_sizes_of_neighbourhoods_are_those_of_the_twin() -> None:
    """k nearest or all within epsilon, in fields scaled to [0, 1]."""
    values = np.random.default_rng(3).random((40, 3))
    fields = ["a", "b", "c"]
    found = neighbourhoods.distances(values)
    for epsilon in (0.0, 0.3, 0.6):
        params = RwnParams.model_validate({"k": 4, "epsilon": epsilon, "distance_fields": fields})
        points = rwn.space(table_of(values, fields).to_pydict(), params)
        wanted = [len(rwn.neighbourhood(rwn.distances(points, row, range(40)), params)) for row in range(40)]
        assert neighbourhoods.sizes(found, 4, epsilon).tolist() == wanted


def census(rows: int) -> pa.Table:
    generator = np.random.default_rng(rows)
    gender = generator.choice(["female", "male"], rows)
    age = generator.uniform(20, 60, rows)
    return pa.table(
        {
            "age": age,
            "educ": generator.choice(["14", "16", "zzzOther"], rows),
            "occ": generator.choice([100, 101, 102], rows),
            "wageinc": 1000 * age - 8000 * (gender == "female") + generator.normal(0, 100, rows),
            "wkswrkd": generator.integers(1, 53, rows),
            "gender": gender,
        }
    )


def test_wages_of_women() -> None:
    """The built-in difference is the coefficient; PSCR is that of the naive pairing."""
    table = census(300)
    found, names = tradeoff.wages(table)
    assert len(names) == len(found.coefficients) == 8
    assert found.coefficients[names.index("gender female")] == pytest.approx(-8000, abs=50)
    shuffled = table.take(pa.array(np.roll(np.arange(300), 1)))
    points = measures.paired_points(table, shuffled, table.column_names, ["occ"])
    assert tradeoff.self_closest(table, shuffled) == measures.pscr(*points)
    assert tradeoff.self_closest(table, table) == 1.0


def test_total_correlation_is_that_of_the_measure() -> None:
    """Bins of equal width for numbers; nats."""
    table, categories = census(200), ("educ", "occ", "gender")
    found = forests.total_correlation(table, categories)
    assert found == pytest.approx(measures.total_correlation(table, table.column_names, categories))


def test_forests_learn_what_can_be_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """An occupation that education determines is predicted; a random one is not."""
    monkeypatch.setitem(forests.HOLDOUT, "pef", 60)
    table = census(240)
    decided = table.set_column(2, "occ", pa.array([len(value) for value in table["educ"].to_pylist()]))
    assert forests.misclassified(decided.slice(60), decided.slice(0, 60), "pef", 0, trees=20) == 0.0
    assert forests.misclassified(table.slice(60), table.slice(0, 60), "pef", 0, trees=20) > 0.4
