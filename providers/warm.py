"""Loads every compiled kernel, so that a worker's first job does not wait for a compiler."""

from typing import Any

import numpy as np
import pyarrow as pa

from providers import PROVIDERS
from providers.kernels import ONE_BUCKET
from providers.provider import no_progress
from providers.rng import Stream

_ROWS = ONE_BUCKET + 3  # of which all but the first and the last are a class of a large group's size

_PARAMETERS: dict[str, dict[str, Any]] = {
    "DSWAP": {},
    "CDSWAP": {"control_field": "class"},
    "DDSWAP": {"control_field": "wide", "block_size": 3},  # keys that are sorted by their upper bits first
}


def warm() -> None:
    """Run each provider once, on columns of every width that a kernel is compiled for."""
    numbers = np.arange(_ROWS) % 100
    edges = np.zeros(_ROWS, np.int64)
    edges[[0, -1]] = 1
    widths = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string())
    swapped = {str(kind): pa.array(numbers, mask=numbers == 0).cast(kind) for kind in widths}
    table = pa.table(
        {"class": edges, "wide": np.arange(_ROWS)[::-1] * (2**62 // _ROWS), "plain": numbers, **swapped}
    )
    for identifier, provider in PROVIDERS.items():
        parameters = _PARAMETERS[identifier] | {"swap_fields": table.column_names[2:]}
        params = provider.check(provider.params.model_validate(parameters), table.schema)
        provider.swap(table, params, Stream(bytes(32), identifier, provider.revision), no_progress)
