"""Measures on real tables: figures that are known, and those that no seed decides over."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.run_figures import measures_stream, release_of_run
from tests.data.test_real_tables import read
from tests.naive.agreement import swap

pytestmark = pytest.mark.realdata

SEED = bytes(32)


def test_coefficients_of_svcensus_are_those_of_statsmodels(data_dir: Path) -> None:
    """Wage income on all else, categories without their most frequent level, after RWN."""
    from statsmodels.api import OLS  # takes a second to import

    table = read(data_dir / "svcensus.csv")
    destination = swap("RWN", table, {"k": 25}, SEED).table
    fitted = []
    for side in (table, destination):
        frame = side.to_pandas()
        columns = [frame[name].astype(float) for name in ("age", "wkswrkd")]
        columns += [frame["occ"].astype(float)] if frame["occ"].dtype.kind in "if" else []
        for name in ("educ", "gender", *(() if frame["occ"].dtype.kind in "if" else ("occ",))):
            first = table.to_pandas()[name].value_counts().index[0]
            columns += [(frame[name] == level).astype(float) for level in sorted(set(frame[name]) - {first})]
        z = [(column - column.mean()) / column.std(ddof=1) for column in (frame["wageinc"], *columns)]
        fitted.append(np.asarray(OLS(z[0], np.column_stack(z[1:])).fit().params))
    options = MeasureOptions(only=("il3",), target="wageinc")
    found = assess(Release(table, destination), options, measures_stream(SEED)).measures["il3"]["value"]
    assert found == pytest.approx(np.abs(fitted[1] - fitted[0]).mean(), rel=1e-6)


def test_prediction_of_wine_after_a_rotation(data_dir: Path) -> None:
    """The forest reads rows with its own axes: near the source's accuracy, where other axes gave .50."""
    table = read(data_dir / "wine_quality_white.csv")
    quality = table.column_names.index("quality")
    good = pa.array(np.where(table["quality"].to_numpy() >= 7, "good", "plain"))
    table = table.set_column(quality, "quality", good)
    provider = PROVIDERS["PABIDOT"]
    parameters = {"label_fields": ["quality"]}
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    released = release_of_run(provider, params, table, swap("PABIDOT", table, parameters, SEED), 128)
    options = MeasureOptions(only=("prediction",), target="quality", sample=2000)
    found = assess(released, options, measures_stream(SEED)).measures["prediction"]["value"]
    most = max(np.unique(good.to_numpy(zero_copy_only=False), return_counts=True)[1]) / table.num_rows
    assert found["source"] > found["destination"] >= most - 0.02


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_robust_intervals_of_dependent_fields_are_there(data_dir: Path, seed: int) -> None:
    """CASC's PTOTVAL is the sum of two others, and earnings mostly equal wages: no sample leaves it out."""
    table = read(data_dir / "CASCrefmicrodata.csv")
    moved = swap("RWN", table, {"k": 5}, SEED).table
    options = MeasureOptions(only=("interval_rmd",), sample=400)
    found = assess(Release(table, moved), options, measures_stream(bytes([seed]) * 32)).measures[
        "interval_rmd"
    ]
    assert found["fields"] == [name for name in table.column_names if name != "AFNLWGT"]  # a survey weight
    assert found["value"]["support"] in (0.5, 0.75, 1.0)
