"""Batched elementwise functions: one call for many short columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pyarrow as pa

from providers.tables.joining import joined_arrays

_FEW_ROWS = 32

_MANY_COLUMNS = 64


def elementwise(
    function: Callable[[pa.Array, Any], pa.Array], columns: Sequence[pa.Array], hows: Sequence[Hashable]
) -> list[pa.Array]:
    """Apply ``function(column, how)``, which maps each value to one value, to every column.

    A call costs as much as hundreds of values, so short columns with equal type and ``how`` are concatenated,
    converted by one call and split again.
    """
    if len(columns) < _MANY_COLUMNS or len(columns[0]) > _FEW_ROWS:
        return [function(column, how) for column, how in zip(columns, hows, strict=True)]
    groups: dict[tuple[pa.DataType, Hashable], list[int]] = defaultdict(list)
    for index, (column, how) in enumerate(zip(columns, hows, strict=True)):
        groups[column.type, how].append(index)
    rows = len(columns[0])
    results: list[Any] = [None] * len(columns)
    for (_, how), indices in groups.items():
        try:
            joined = joined_arrays([columns[index] for index in indices])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # encodings that cannot be concatenated
            for index in indices:
                results[index] = function(columns[index], how)
            continue
        values = function(joined, how)
        for number, index in enumerate(indices):
            results[index] = values.slice(number * rows, rows)
    return results
