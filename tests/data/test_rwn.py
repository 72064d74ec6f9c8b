"""Figures of the RWN paper (Perry, Matloff and Tendick 2024) on its own tables; equality with the twin."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from providers.measures.risk.dcr import raw_distances
from providers.measures.risk.mean_k import mean_k
from providers.measures.risk.outlier_exposure import outlier_exposure
from providers.measures.utility.il3 import il3
from providers.services.rwn import RwnParams
from tests.data import bodyfat
from tests.naive import rwn
from tests.naive.agreement import assert_agree, swap
from tests.naive.measures import delta_rho, il2, interval_sd, loadings, paired_points, pscr, total_correlation

pytestmark = pytest.mark.realdata

CATEGORIES = ["educ", "occ", "gender"]
NUMBERS_THAT_ARE_CODES = {"categorical_fields": ["occ"]}


@pytest.fixture(scope="module")
def census(data_dir: Path) -> pa.Table:
    return pyarrow.csv.read_csv(data_dir / "svcensus.csv")


@pytest.fixture(scope="module")
def fat(data_dir: Path) -> pa.Table:
    return bodyfat.cleaned(data_dir / "bodyfat.csv")


def seeded(seed: int) -> bytes:
    return seed.to_bytes(32, "big")


# ---------------------------------------------------------------------------------- the tables as they are


@pytest.mark.parametrize(("step", "figure"), [(5, 480.9156), (25, 1699.8407)])
def test_mean_k_anonymity(census: pa.Table, step: float, figure: float) -> None:
    """9.1.2: age rounded, education, weeks worked and gender."""
    found = mean_k(census, ["age", "educ", "wkswrkd", "gender"], {"age": step})
    assert found == pytest.approx(figure, abs=5e-5)


def test_coefficient_of_female_on_wage_income(census: pa.Table) -> None:
    """Least squares of wage income on all other fields, categories by dummies."""
    columns = [np.ones(census.num_rows), (census["gender"].to_numpy() == "female").astype(float)]
    for name in ("educ", "occ"):
        values = census[name].to_numpy()
        columns += [(values == level).astype(float) for level in np.unique(values)[1:]]
    columns += [census[name].to_numpy().astype(float) for name in ("age", "wkswrkd")]
    wages = census["wageinc"].to_numpy().astype(float)
    coefficients = np.linalg.lstsq(np.column_stack(columns), wages, rcond=None)[0]
    assert coefficients[1] == pytest.approx(-8595.583, abs=5e-4)


def test_total_correlation(census: pa.Table) -> None:
    """9.5, of pef, which are svcensus' people and fields: 27 bins, nats."""
    assert total_correlation(census, census.column_names, CATEGORIES) == pytest.approx(1.1330061, abs=5e-8)


def test_bodyfat_before(fat: pa.Table) -> None:
    """9.3.2 and 9.4: rows left, largest influence, R squared, and shares of the principal components."""
    found = bodyfat.fat_on_the_rest(fat)
    assert fat.num_rows == 241
    assert found.cooks_distances.argmax() == 36  # observation 37
    assert found.cooks_distances.max() == pytest.approx(0.3534, abs=5e-5)
    assert found.r_squared == pytest.approx(0.7364, abs=5e-5)
    shares = loadings(bodyfat.matrix(fat))[1]
    assert shares[:2] == pytest.approx([0.6016, 0.1238], abs=5e-5)


def test_observation_37_is_far_from_all(fat: pa.Table) -> None:
    """Its nearest neighbour is at 1.1973, so that no epsilon of the paper's gives it more than five."""
    names = fat.column_names
    for epsilon in (0.0, 0.35, 0.55):
        parameters = {"distance_fields": names, "epsilon": epsilon}
        params = RwnParams.model_validate(parameters)
        points = rwn.space(fat.to_pydict(), params)
        assert len(rwn.neighbourhood(rwn.distances(points, 36, range(241)), params)) == 5
        nearest = min(rwn.distances(points, 36, range(241)).values())
        assert nearest**0.5 == pytest.approx(1.1973, abs=5e-5)
        assert swap("RWN", fat, parameters).provider["neighbourhood_size"]["smallest"] == 5


# -------------------------------------------------------------------------------- the tables perturbed


TABLE_3 = [  # epsilon; DCR, SD interval, IL1, R^2, IL2 on PC2, IL3
    (0.35, (9.64, 0.157, 0.061, 0.592, 0.042, 0.262)),
    (0.40, (10.07, 0.089, 0.071, 0.536, 0.046, 0.279)),
    (0.45, (10.49, 0.041, 0.087, 0.485, 0.049, 0.293)),
    (0.50, (10.87, 0.020, 0.111, 0.434, 0.056, 0.295)),
    (0.55, (11.24, 0.010, 0.143, 0.387, 0.067, 0.327)),
]
TOLERANCES = (0.15, 0.015, 0.005, 0.015, 0.02, 0.06)


@pytest.mark.parametrize(("epsilon", "figures"), TABLE_3)
def test_bodyfat_after(fat: pa.Table, epsilon: float, figures: tuple[float, ...]) -> None:
    """Table 3, means of 100 seeds; and the largest influence of 20 of them, which is gone."""
    before, regressed = bodyfat.matrix(fat), bodyfat.fat_on_the_rest(fat)
    found, influence = [], []
    for seed in range(100):
        table = swap("RWN", fat, {"k": 5, "epsilon": epsilon}, seeded(seed)).table
        after, again = bodyfat.matrix(table), bodyfat.fat_on_the_rest(table)
        found.append(
            [
                raw_distances(before, after).mean(),
                interval_sd(before, after)["share"],
                delta_rho(before, after)["mean"],
                again.r_squared,
                il2(before, after)[1],
                il3(regressed, again),
            ]
        )
        influence.append(outlier_exposure(regressed, again)["after"])
    for mean, figure, tolerance in zip(np.mean(found, axis=0), figures, TOLERANCES, strict=True):
        assert mean == pytest.approx(figure, abs=tolerance)
    assert np.median(influence[:20]) < 0.15


@pytest.mark.parametrize(("k", "figure"), [(5, 1.185), (10, 1.173), (25, 1.153), (50, 1.131)])
def test_total_correlation_after(census: pa.Table, k: int, figure: float) -> None:
    """9.5: q = .5, mean of four seeds."""
    parameters = {"k": k, "q": 0.5, **NUMBERS_THAT_ARE_CODES}
    found = [
        total_correlation(
            swap("RWN", census, parameters, seeded(seed)).table, census.column_names, CATEGORIES
        )
        for seed in range(4)
    ]
    assert np.mean(found) == pytest.approx(figure, abs=0.01)


@pytest.mark.parametrize(
    ("q", "k", "figure"),
    [
        (0.5, 5, 0.482), (0.5, 25, 0.369), (0.5, 50, 0.331), (0.5, 75, 0.314),
        (1.0, 5, 0.112), (1.0, 25, 0.043), (1.0, 50, 0.027), (1.0, 75, 0.020),
    ],
)  # fmt: skip
def test_pscr(census: pa.Table, q: float, k: int, figure: float) -> None:
    """9.1.4: all six fields, ties credited by halves, thirds and so on."""
    table = swap("RWN", census, {"k": k, "q": q, **NUMBERS_THAT_ARE_CODES}).table
    points = paired_points(census, table, census.column_names, ["occ"])
    assert pscr(*points) == pytest.approx(figure, abs=0.01)


# ------------------------------------------------------------------------------ what users must know


def test_categories_of_svcensus_do_not_change(census: pa.Table) -> None:
    """Weight 1, k = 10: nothing of education, occupation and gender; and that is an event."""
    result = swap("RWN", census, {"k": 10, **NUMBERS_THAT_ARE_CODES})
    for name in CATEGORIES:
        assert result.summary.changed[name] / census.num_rows < 0.0005
    assert {event.field for event in result.events.listed if event.code == "category_kept"} == set(CATEGORIES)


def test_a_smaller_weight_and_a_larger_k_change_them(census: pa.Table) -> None:
    """Weight .05, k = 75: occupation in 22 %."""
    result = swap("RWN", census, {"k": 75, "categorical_weight": 0.05, **NUMBERS_THAT_ARE_CODES})
    assert result.summary.changed["occ"] / census.num_rows == pytest.approx(0.22, abs=0.005)
    assert not result.events.counts


def test_rows_of_svcensus_leave_unchanged_at_half(census: pa.Table) -> None:
    """q = .5, k = 10: 27 % of them; and that is an event."""
    result = swap("RWN", census, {"k": 10, "q": 0.5, **NUMBERS_THAT_ARE_CODES})
    assert result.provider["unchanged_share"] == pytest.approx(0.27, abs=0.01)
    assert result.events.counts["rows_unchanged"] == 1


# ------------------------------------------------------------------------------------------ the twin


@pytest.mark.parametrize(
    ("file", "rows", "parameters"),
    [
        ("bodyfat.csv", 252, {"epsilon": 0.5}),
        ("svcensus.csv", 400, {"k": 10, **NUMBERS_THAT_ARE_CODES}),
        ("adult.csv", 300, {"k": 7, "categorical_weight": 0.3, "ties": "index"}),
        ("pima_diabetes_na.csv", 400, {"q": 0.6, "epsilon": 0.2}),
        ("wine_quality_white.csv", 400, {"neighbours": "partition", "parts": 4}),
        ("abalone.csv", 400, {"neighbours": "own_sample", "sample_size": 50, "ties": "index"}),
        ("abalone.csv", 400, {"neighbours": "pairs", "sample_size": 50, "epsilon": 0.1}),
        (
            "adult.csv",
            300,
            {"neighbours": "partition", "parts": 4, "within": "pairs", "sample_size": 20},
        ),
        ("EIA.csv", 300, {"neighbours": "sample", "sample_size": 90, "categorical_fields": ["UTILITYID"]}),
    ],
)
def test_real_tables_are_the_twins(data_dir: Path, file: str, rows: int, parameters: dict[str, Any]) -> None:
    """Bit for bit, on rows from the first on."""
    table = pyarrow.csv.read_csv(data_dir / file).slice(0, rows)
    assert_agree("RWN", table, parameters)
