"""Runs of a service, and matrices of a table's fields, for the experiments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers import PROVIDERS
from providers.progress import no_progress
from providers.results import SwapResult

Matrix = npt.NDArray[np.float64]


def swap(service: str, table: pa.Table, parameters: dict[str, Any], seed: int = 0) -> SwapResult:
    """Run a service on a table.

    Parameters
    ----------
    service : str
        Identifier, for example ``"MEWS"``.
    table : pyarrow.Table
        Source.
    parameters : dict
        Parameters of the service, as in a request.
    seed : int
        Seed, at least 0.

    Raises
    ------
    ParameterError
        If the service refuses the parameters.
    """
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    stream = provider.stream(seed.to_bytes(32, "big"))
    return provider.swap(table, params, stream, no_progress)


def matrix(table: pa.Table, fields: Sequence[str] = ()) -> Matrix:
    """Return fields of numbers as a matrix, shape (rows, fields); all fields of the table by default."""
    return np.column_stack(
        [table[name].to_numpy().astype(np.float64) for name in fields or table.column_names]
    )


def table_of(values: Matrix, fields: Sequence[str]) -> pa.Table:
    """Return a matrix, shape (rows, fields), as a table with these names."""
    return pa.table(dict(zip(fields, np.ascontiguousarray(values.T), strict=True)))
