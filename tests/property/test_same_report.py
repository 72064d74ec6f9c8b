"""A report is the same to the last digit on every path: memory, threads, out of core, units."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.numba import get_num_threads, set_num_threads
from providers.progress import no_progress
from providers.results import SwapResult
from tests.naive.agreement import SEED
from tests.property.out_of_core import assert_same

pytestmark = pytest.mark.slow

RUNS: dict[str, dict[str, Any]] = {
    "DSWAP": {"swap_fields": ["x", "y"]},
    "CDSWAP": {"swap_fields": ["x"], "control_field": "class"},
    "DDSWAP": {"swap_fields": ["y", "class"], "control_field": "x", "block_size": 7},
    "MEWS": {"swap_fields": ["x", "y"], "bins": 5},
    "MEDS": {"swap_fields": ["x", "y"], "k": 4},
    "RWN": {"perturb_fields": ["y"], "distance_fields": ["x", "y"], "k": 3},
    "PABIDOT": {"fields": ["x", "y"]},
    "LOCALITY": {"fields": ["x", "y"], "segment_size": 20, "iterations": 5},
}
"""Service -> parameters. RSWAP never cuts its table."""

MEMORY = {"MEDS": 4_000_000}
"""Bytes of memory of a service that needs more than the others, since a part has to fit."""


def table_of_many_scales() -> pa.Table:
    """Numbers whose float sums depend on their order."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=3000) * 10.0 ** rng.integers(-3, 4, 3000)
    y = rng.normal(size=3000)
    return pa.table({"x": x, "y": y, "class": rng.choice(list("abcdef"), 3000)})


def text_of(result: SwapResult) -> str:
    return repr((result.summary, result.provider, result.measures, result.events.counts))


@pytest.mark.parametrize("service", RUNS)
def test_reports_are_equal_on_every_path(service: str) -> None:
    """Memory, two threads, out of core in small parts, and units in other processes."""
    table, parameters, provider = table_of_many_scales(), RUNS[service], PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    threads, texts = get_num_threads(), []
    try:
        for count in {1, threads}:
            set_num_threads(count)
            texts.append(text_of(provider.swap(table, params, provider.stream(SEED), no_progress)))
    finally:
        set_num_threads(threads)
    for units in (1, 3):
        found = assert_same(service, table, parameters, MEMORY.get(service, 65536), 100, units)
        assert found is not None
        texts.append(text_of(found))
    assert len(set(texts)) == 1
