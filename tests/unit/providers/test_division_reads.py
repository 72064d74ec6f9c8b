"""Number of times that the division of a job, which one worker makes, reads the source."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.store.blobs.scratch import SealedScratch
from providers import PROVIDERS
from providers.progress import no_progress
from providers.provider import Run
from providers.storage import Resources
from tests.naive.agreement import SEED
from tests.property.out_of_core import TableSource

ROWS = 2000


class CountedSource(TableSource):
    """Source that counts how often it is read from the beginning."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table, 300)
        self.reads = 0

    def batches(self, fields: Sequence[str], start: int = 0) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        return super().batches(fields, start)


@pytest.mark.parametrize(
    ("service", "parameters", "units", "reads"),
    [
        ("DSWAP", {}, 3, 0),
        ("CDSWAP", {"control_field": "group"}, 3, 1),
        (
            "DDSWAP",
            {"control_field": "group", "block_size": 7},
            3,
            2,
        ),  # the sample, and the ranks of its cuts
        ("DDSWAP", {"control_field": "group", "block_size": 7}, 1, 0),
        ("MEWS", {"bins": 4}, 3, 1),  # the ranges with the sample; a piece finds singletons
        ("MEWS", {"bins": 4, "singletons": "keep"}, 3, 1),
        ("MEWS", {"bins": 4}, 1, 2),
        ("MEWS", {"swap_fields": ["a", "gaps"], "nulls": "keep", "bins": 4}, 3, 2),  # a sample without gaps
    ],
)
def test_a_division_reads_the_source_as_often_as_it_must(
    service: str, parameters: dict[str, Any], units: int, reads: int
) -> None:
    random = np.random.default_rng(1)
    fields = {"a": random.normal(size=ROWS), "b": random.normal(size=ROWS), "group": np.arange(ROWS) % 90}
    fields["gaps"] = np.where(fields["group"], fields["a"], np.nan)
    source = CountedSource(pa.table(fields))
    provider = PROVIDERS[service]
    given = {"swap_fields": ["a", "b"], **parameters}
    params = provider.check(provider.params.model_validate(given), source.schema)
    assert provider.scaling.sharing is not None
    with SealedScratch(Path(tempfile.gettempdir())) as scratch:
        stream = provider.stream(SEED)
        run = Run(source, params, stream, Resources(scratch, 10**7))
        division = provider.scaling.sharing.divide(run, no_progress, units)
    assert source.reads == reads
    assert len(division.units) == (1 if service == "DSWAP" else units)  # a table of one bucket is not divided
