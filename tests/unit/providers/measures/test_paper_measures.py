"""The measures of RWN's paper against scipy, scikit-learn and statsmodels, or counting by hand."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import entropy

from providers.measures.risk.dcr import raw_distances
from providers.measures.risk.mean_k import MEASURE as mean_k_measure  # noqa: N811 - one of many MEASUREs
from providers.measures.risk.mean_k import mean_k
from providers.measures.risk.outlier_exposure import outlier_exposure
from providers.measures.risk.unique_combinations import unique_share
from providers.measures.shared.comparison import Comparison, Release
from providers.measures.shared.options import MeasureOptions
from providers.measures.utility.il3 import il3
from providers.measures.utility.r_squared import r_squared
from providers.randomness.chacha20 import Stream
from tests.naive.measures import (
    dcr,
    delta_rho,
    il2,
    interval_sd,
    loadings,
    paired_points,
    pscr,
    regression,
    total_correlation,
    total_correlations,
)

RANDOM = np.random.default_rng(8)
NUMBERS = RANDOM.normal(size=(150, 4)) @ RANDOM.normal(size=(4, 4))
MOVED = NUMBERS + RANDOM.normal(size=NUMBERS.shape) * 0.3
STATE = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same numbers, whichever tests ran before it."""
    RANDOM.bit_generator.state = STATE


def table(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    lattice = random.integers(0, 6, 200)
    return pa.table(
        {
            "x": random.integers(0, 5, 200) / 4,
            "n": pa.array(np.where(lattice == 5, 2, lattice), mask=lattice == 5),
            "c": random.integers(0, 3, 200).astype(str),
        }
    )


def one_hot(tables: list[pa.Table]) -> list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Encode rows as the text says: scaled by the first table, categories and missing numbers one-hot."""
    low, high = 0.0, 4.0
    found = []
    for one in tables:
        n = np.array([np.nan if value is None else value for value in one["n"].to_pylist()])
        first = np.array([value for value in tables[0]["n"].to_pylist() if value is not None])
        missing = np.isnan(n)
        scaled = (np.where(missing, np.median(first), n) - low) / (high - low)
        levels = [(one["c"].to_numpy() == level).astype(float) for level in ("0", "1", "2")]
        columns = [one["x"].to_numpy(), scaled, *levels, missing.astype(float), (~missing).astype(float)]
        found.append(np.column_stack(columns))
    return found


def test_pscr_and_dcr_are_those_of_all_distances() -> None:
    """Both agree with scipy's distances on a lattice with many ties and permuted rows."""
    source, destination = (
        table(1),
        table(1).take(pa.array(np.r_[np.arange(100), RANDOM.permutation(100) + 100])),
    )
    points = paired_points(source, destination, ["x", "n", "c"])
    distances = cdist(*one_hot([source, destination]))
    least = distances.min(axis=1)
    is_least = distances <= least[:, None] + 1e-9
    expected = np.mean(is_least.diagonal() / is_least.sum(axis=1))
    assert pscr(*points) == pytest.approx(expected, rel=1e-12)
    found = dcr(*points)
    assert found["mean"] == pytest.approx(least.mean(), abs=1e-12)
    assert found["p05"] == pytest.approx(np.percentile(least, 5), abs=1e-12)
    assert found["at_zero"] == 1.0
    other = dcr(*paired_points(source, table(2), ["x", "n", "c"]))
    assert other["mean"] == pytest.approx(cdist(*one_hot([source, table(2)])).min(axis=1).mean(), abs=1e-12)


def test_dcr_in_raw_units() -> None:
    assert raw_distances(NUMBERS, MOVED) == pytest.approx(cdist(NUMBERS, MOVED).min(axis=1), rel=1e-12)


def test_interval_disclosure() -> None:
    """A row counts if all of its values are near."""
    source = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    found = interval_sd(source, source + np.array([[1, 1], [1, 100], [100, 1]]), k=0.5)
    assert found["share"] == pytest.approx(1 / 3)
    assert found["by_field"] == pytest.approx([2 / 3, 2 / 3])


def test_mean_k() -> None:
    """Combinations of three, two and one rows: (9 + 4 + 1) / 6."""
    keys = pa.table({"a": ["x", "x", "x", "y", "y", "y"], "b": [11, 9, 10, 1, 2, 7]})
    assert mean_k(keys, ["a", "b"], {"b": 5}) == pytest.approx((9 + 4 + 1) / 6)
    assert unique_share(keys, ["a", "b"], {"b": 5}) == pytest.approx(1 / 6)
    assert mean_k(keys, ["a"]) == 3.0
    comparison = Comparison(Release(keys, keys), MeasureOptions(key_fields=("a",)), Stream(bytes(32), "m", 1))
    assert mean_k_measure.find is not None
    assert mean_k_measure.find(comparison).value == {"before": 3.0, "after": 3.0}
    assert mean_k(keys.slice(0, 0), ["a"]) == 0.0


def test_correlations_and_components() -> None:
    """Correlations agree with numpy's, components with scikit-learn's."""
    decomposition = pytest.importorskip("sklearn.decomposition")
    changes = np.abs(np.corrcoef(NUMBERS.T) - np.corrcoef(MOVED.T))
    pairs = [changes[i, j] for i in range(4) for j in range(i + 1, 4)]
    assert delta_rho(NUMBERS, MOVED) == pytest.approx({"mean": np.mean(pairs), "sd": np.std(pairs)})
    fitted = []
    for numbers in (NUMBERS, MOVED):
        fit = decomposition.PCA().fit((numbers - numbers.mean(axis=0)) / numbers.std(axis=0))
        components, shares = loadings(numbers)
        assert shares == pytest.approx(fit.explained_variance_ratio_)
        assert np.abs(components) == pytest.approx(np.abs(fit.components_), abs=1e-9)
        fitted.append(fit.components_)
    one, two = fitted
    signs = np.sign((one * two).sum(axis=1))
    expected = np.abs(one - two * signs[:, None]).mean(axis=1)[:2]
    assert il2(NUMBERS, MOVED) == pytest.approx(list(expected))


def test_total_correlation() -> None:
    """Total correlation agrees with scipy's entropies of 5 bins, floor(200^(1/3))."""
    one = table(3).drop_columns(["n"])
    bins = np.minimum(np.floor(one["x"].to_numpy() * 5), 4)
    letters = one["c"].to_numpy()
    both = [f"{bin_}{letter}" for bin_, letter in zip(bins, letters, strict=True)]

    def nats(values: object) -> float:
        return float(entropy(np.unique(np.asarray(values), return_counts=True)[1]))

    expected = nats(bins) + nats(letters) - nats(both)
    assert total_correlation(one, ["x", "c"], ["c"]) == pytest.approx(expected, rel=1e-12)
    other = table(4).drop_columns(["n"])
    found = total_correlations(one, other, ["x", "c"], ["c"])
    assert found["before"] == pytest.approx(expected, rel=1e-12)
    assert found["change"] == abs(found["after"] - found["before"]) > 0
    assert total_correlation(pa.table({"x": [1.0] * 8, "y": [2.0] * 8}), ["x", "y"]) == 0.0


def test_regression() -> None:
    """Coefficients, R squared and Cook's distances agree with statsmodels, without an intercept."""
    models = pytest.importorskip("statsmodels.api")
    results = []
    for numbers in (NUMBERS, MOVED):
        z = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0, ddof=1)
        fit = models.OLS(z[:, 0], z[:, 1:]).fit()
        found = regression(numbers[:, 0], numbers[:, 1:])
        assert found.coefficients == pytest.approx(fit.params)
        assert found.r_squared == pytest.approx(fit.rsquared)
        assert found.cooks_distances == pytest.approx(fit.get_influence().cooks_distance[0])
        results.append(found)
    one, two = results
    assert il3(one, two) == pytest.approx(np.abs(one.coefficients - two.coefficients).mean())
    change = abs(two.r_squared - one.r_squared)
    assert r_squared(one, two) == {"before": one.r_squared, "after": two.r_squared, "change": change}
    exposure = outlier_exposure(one, two)
    assert exposure["before"] == one.cooks_distances.max()
    assert exposure["same_row"] == (one.cooks_distances.argmax() == two.cooks_distances.argmax())
