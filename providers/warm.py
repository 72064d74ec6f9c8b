"""Loads every compiled kernel, so that a worker's first job does not wait for a compiler."""

from typing import Any

import numpy as np
import pyarrow as pa

from providers import PROVIDERS
from providers.kernels import ONE_BUCKET
from providers.provider import no_progress
from providers.rng import Stream

_ROWS = ONE_BUCKET + 1  # the fewest that reach the kernels of large groups

_PARAMETERS: dict[str, dict[str, Any]] = {
    "DSWAP": {},
    "CDSWAP": {"control_field": "class"},
    "DDSWAP": {"control_field": "class", "block_size": 3},
}


def warm() -> None:
    """Run each provider once, on columns of every width that a kernel is compiled for."""
    column = np.arange(_ROWS) % 100
    table = pa.table(
        {
            "class": pa.array(column // 3),
            **{f"{kind}": pa.array(column).cast(kind) for kind in (pa.int8(), pa.int16(), pa.int32())},
            "int64": pa.array(column, mask=column == 0),
            "string": pa.array(column).cast(pa.string()),
        }
    )
    for identifier, provider in PROVIDERS.items():
        parameters = _PARAMETERS[identifier] | {"swap_fields": table.column_names[1:]}
        params = provider.check(provider.params.model_validate(parameters), table.schema)
        provider.swap(table, params, Stream(bytes(32), identifier, provider.revision), no_progress)
