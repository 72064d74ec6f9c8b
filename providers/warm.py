"""Loads every compiled kernel, so that a worker's first job does not wait for a compiler."""

from typing import Any

import numpy as np
import pyarrow as pa

from providers import PROVIDERS
from providers.kernels import ONE_BUCKET
from providers.provider import no_progress
from providers.rng import Stream

_ROWS = ONE_BUCKET + 3  # of which all but the first and the last are a class of a large group's size

_MOVED: dict[str, Any] = {"swap_fields": ["plain", "int8", "int16", "int32", "int64", "string"]}
_PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "DSWAP": [_MOVED, _MOVED | {"locked": True}],
    "CDSWAP": [_MOVED | {"control_field": "class"}],
    # keys that are sorted by their upper bits first
    "DDSWAP": [_MOVED | {"control_field": "wide", "block_size": 3}],
    "MEWS": [
        {"swap_fields": ["plain", "wide"], "bins": [2, 3000]},  # of which some hold one row
        {"swap_fields": ["plain", "wide"], "degree": 50, "others": "univariate", "nulls": "keep"},
        {"swap_fields": ["plain"], "width": 0.5, "scale": "sd"},
    ],
    "MEDS": [
        {"swap_fields": ["plain", "wide"], "k": 17},  # _ROWS is 1 over a multiple of 2 * 17
        {"swap_fields": ["plain"], "k": 17, "method": "mdav"},
    ],
    "PABIDOT": [{"nulls": "drop_from_fit"}],
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
        for parameters in _PARAMETERS[identifier]:
            params = provider.check(provider.params.model_validate(parameters), table.schema)
            stream = Stream(bytes(32), identifier, provider.revision)
            provider.plan(table, params)
            provider.swap(table, params, stream, no_progress)
            provider.swap(table.slice(0, 100), params, stream, no_progress)  # some work without threads
