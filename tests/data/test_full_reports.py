"""The full report of each service on a real table: what applies, who became whom, and no thread in it."""

import json
from pathlib import Path
from typing import Any

import numba
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.measures import MEASURES
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess
from providers.measures.risk.changed_share import changed_share
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from tests.data.test_real_tables import read

pytestmark = pytest.mark.realdata

SERVICES: dict[str, dict[str, Any]] = {
    "DSWAP": {"swap_fields": ["Rings", "Sex"]},
    "CDSWAP": {"swap_fields": ["Rings"], "control_field": "Height", "suppression": {"policy": "drop"}},
    "DDSWAP": {"swap_fields": ["Rings"], "control_field": "Length", "block_size": 10},
    "MEWS": {"swap_fields": ["Rings", "Length"], "bins": 10},
    "MEDS": {"swap_fields": ["Rings", "Length"], "k": 10},
    "RWN": {"k": 5},
    "PABIDOT": {"label_fields": ["Rings"]},
    "LOCALITY": {"fields": ["Rings", "Length"]},
    "RSWAP": {"hierarchy": ["Sex"], "similar": [["Rings"]], "risk_fields": ["Height"], "swap_rate": 0.5},
}
OPTIONS = MeasureOptions(
    key_fields=("Sex", "Rings"),
    known_fields=("Length", "Sex"),
    sensitive_fields=("Whole_weight",),
    target="Whole_weight",
    query_fields=("Length", "Rings", "Whole_weight", "Sex"),
    sample=500,
)
WITHOUT_WEIGHTS = {"population_uniques"} | {
    key for key in MEASURES if key.startswith("weighted_") or key == "domain_totals"
}
"""Measures that need a survey weight, which the table does not have."""
ONE_SERVICE_ONLY = {
    "inversion_bits": {"DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS", "RWN", "PABIDOT"},
    "phi": {"PABIDOT"},
    "enumeration_attack": {"PABIDOT"},
    "p_privacy": {"MEWS", "MEDS"},
}


def run(service: str, table: pa.Table) -> tuple[SwapResult, Assessment]:
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(SERVICES[service]), table.schema)
    result = provider.swap(table, params, provider.stream(bytes(32)), no_progress)

    def perturb(training: pa.Table, stream: Stream) -> pa.Table:
        return provider.swap(training, provider.check(params, training.schema), stream, no_progress).table

    values = {"changed_share": changed_share(result.summary.changed, table.num_rows), **result.measures}
    if "matching_bits" in result.provider:
        values["inversion_bits"] = result.provider["matching_bits"]
    released = Release(table, result.table, result.origin, True, service, params, values, perturb)
    return result, assess(released, OPTIONS, Stream(bytes(32), "measures", 1))


@pytest.mark.parametrize("service", SERVICES)
def test_every_measure_applies_but_other_services_own(data_dir: Path, service: str) -> None:
    table = read(data_dir / "abalone.csv")
    result, found = run(service, table)
    expected = {key for key in MEASURES if service in ONE_SERVICE_ONLY.get(key, SERVICES)} - WITHOUT_WEIGHTS
    assert set(found.measures) == expected
    assert set(found.left_out) == set(MEASURES) - expected
    json.dumps([found.measures, found.pictures], allow_nan=False)
    shares = found.measures["changed_share"]["value"]
    untouched = set(table.column_names) - set(result.summary.changed)
    assert {shares[name] for name in untouched} <= {0.0}  # whatever became of the order of the rows
    if service != "CDSWAP":  # there, some rows are dropped
        assert result.table.num_rows == table.num_rows
        for name, count in result.summary.changed.items():
            assert shares[name] == pytest.approx(count / table.num_rows)
    else:
        assert result.origin is not None
        assert len(result.origin) == result.table.num_rows < table.num_rows
    prediction = found.measures["prediction"]["value"]
    assert prediction["source"] > 0.9
    for picture in found.pictures["fields"]:
        for side in ("source", "destination"):
            cells = [*picture[side], picture["missing"][side]]
            assert all(count is None or count == 0 or count >= 5 for count in cells)


def test_a_report_does_not_depend_on_threads(data_dir: Path) -> None:
    table = read(data_dir / "abalone.csv").slice(0, 1500)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        _, one = run("RWN", table)
    finally:
        numba.set_num_threads(before)
    _, other = run("RWN", table)
    assert one == other
