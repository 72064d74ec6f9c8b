"""Figures of LOCALITY's report."""

import numpy as np
import pyarrow as pa

from providers import PROVIDERS
from providers.progress import no_progress


def test_relative_changes_whose_sum_is_beyond_float64_have_no_mean() -> None:
    """Numbers of 1e-307 among others of 1e6: of cells that become larger, the sum is beyond float64."""
    numbers = np.concatenate([np.arange(1.0, 61.0) * 1e-308, np.linspace(0.5e6, 1e6, 60)])
    table = pa.table({"x": numbers[np.random.default_rng(1).permutation(120)]})
    locality = PROVIDERS["LOCALITY"]
    params = locality.check(
        locality.params.model_validate({"fields": ["x"], "segment_size": 60, "iterations": 5}), table.schema
    )
    result = locality.swap(table, params, locality.stream(bytes(32)), no_progress)
    assert result.provider["distortion"] is None
