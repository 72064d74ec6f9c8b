"""Swapping distances are exact sums, whatever the magnitudes of the control field."""

from fractions import Fraction
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.progress import no_progress
from providers.swapping import distance
from providers.swapping.exchange import sources

ROWS = 2003
GENERATOR = np.random.default_rng(5)
COLUMNS = {
    "uniform": GENERATOR.random(ROWS) * 80,
    "wide": np.exp(GENERATOR.normal(0, 200, ROWS)),
    "cents": np.round(np.exp(GENERATOR.normal(7, 3, ROWS)), 2),
    "subnormal": GENERATOR.random(ROWS) * 1e-310,
    "huge and subnormal": GENERATOR.random(ROWS) * np.where(np.arange(ROWS) % 40, 1e-310, 1e307),
    "not finite": np.where(np.arange(ROWS) % 7, GENERATOR.normal(size=ROWS), np.inf),
    "equal": np.zeros(ROWS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_mean_distance_is_that_of_the_exact_sum(name: str) -> None:
    control: npt.NDArray[np.float64] = COLUMNS[name]
    provider = PROVIDERS["DDSWAP"]
    table = pa.table({"row": np.arange(ROWS), "control": control})
    given = {"swap_fields": ["row"], "control_field": "control", "block_size": 7}
    params = provider.check(provider.params.model_validate(given), table.schema)
    with patch.object(distance, "sources", wraps=sources) as all_again:
        result = provider.swap(table, params, provider.stream(bytes(32)), no_progress)
    origins = result.table.column("row").to_numpy()
    moved = np.flatnonzero(origins != np.arange(ROWS))
    with np.errstate(invalid="ignore"):
        distances = np.abs(control[origins[moved]] - control[moved])
    distances = distances[np.isfinite(distances)].tolist()
    found = result.provider["swapping_distance"]["units"]
    assert found["mean"] == float(sum(map(Fraction, distances)) / len(distances))
    assert found["largest"] == max(distances)
    assert all_again.called == ("wide" in name or "subnormal" in name)  # others have three digits
