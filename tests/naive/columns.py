"""Columns of Arrow as lists of Python's values."""

from typing import Any

import pyarrow as pa


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Values of a column; of equal timestamps one is converted, since Arrow looks up its time zone."""
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    encoded = column.combine_chunks().dictionary_encode()
    distinct = [*encoded.dictionary.to_pylist(), None]
    return [distinct[index] for index in encoded.indices.fill_null(-1).to_pylist()]


def lists_of(table: pa.Table) -> dict[str, list[Any]]:
    """Values of each column of a table."""
    return {name: values_of(table.column(name)) for name in table.column_names}
