"""Run a provider in memory if its fields fit the budget, otherwise out of core.

Only the fields that the provider reads or changes are loaded into memory. The others are copied from the
source to the destination batch by batch, next to the swapped fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from app.store.blobs.column_reader import BlobTable
from app.store.blobs.scratch import SealedScratch
from providers.progress import Progress
from providers.provider import Provider, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from providers.storage import Resources, bytes_read
from providers.tables.columns import is_words
from providers.tables.joining import empty_table

_USED = 0.8
"""Share of the memory budget that an estimate may use; the rest covers its error."""


class TooLargeForMemory(Exception):
    """The provider's fields exceed the memory budget; the reason says why it cannot run out of core."""


def swapped(
    provider: Provider[Any],
    source: BlobTable,
    params: Any,
    stream: Stream,
    progress: Progress,
    resources: Resources,
) -> StreamedResult:
    """Run the provider on the source and return its destination.

    Raises
    ------
    ProviderError
        As `swap` of the provider.
    TooLargeForMemory
    OSError
        ENOSPC: the disk has too little space for the scratch file of an out-of-core run.
    """
    scaling = provider.scaling
    names = set(scaling.reads(params, source.schema))
    fields = tuple(name for name in source.schema.names if name in names)
    out_of_core = scaling.swap if scaling.can_cut(params) else None
    if fits(provider, source, params, resources.memory_bytes) or (
        out_of_core is None
        and _least_bytes(source, fields) + scaling.least(params, source.rows)
        <= resources.memory_bytes  # the estimate is above the budget, the lower bound is not: try it
    ):
        read = source.read(fields)
        result = provider.swap(read, params, stream, progress)
        return with_untouched_fields(source, fields, result, unchanged_fields(read, result))
    if out_of_core is None:
        needed = _needed(provider, source, params)
        rows = int(source.rows * _USED * resources.memory_bytes / needed)
        raise TooLargeForMemory(
            f"{provider.identifier} needs about {needed} bytes for this table, and a job may take "
            f"{resources.memory_bytes} (ROWVEIL_WORKER_MEMORY_BYTES), which is enough for about {rows} of "
            f"its {source.rows} rows. {scaling.cut}"
        )
    if isinstance(resources.scratch, SealedScratch):
        # Each method writes its fields at least once; the swaps write them two to four times.
        resources.scratch.reserve(bytes_read(source, fields))
    return out_of_core(source, params, stream, progress, resources)


def whole_table(provider: Provider[Any], source: BlobTable, params: Any, resources: Resources) -> pa.Table:
    """Read the whole source, for a full report or candidates, which compare it with the destination.

    Raises
    ------
    TooLargeForMemory
    """
    needed = provider.scaling.memory(params, source.rows, source.nbytes) + source.nbytes
    if needed > resources.memory_bytes:
        raise TooLargeForMemory(
            f"a full report and candidates need both tables as a whole, about {needed} bytes, and a job "
            f"may take {resources.memory_bytes} (ROWVEIL_WORKER_MEMORY_BYTES); use report 'summary' and "
            "no candidates, or measure a part of the rows at /v1/measures"
        )
    return source.whole()


def in_one_piece(result: SwapResult, source: pa.Table) -> StreamedResult:
    """Wrap a destination that is complete in memory, like its source."""
    unchanged = unchanged_fields(source, result)
    return StreamedResult(result.table.schema, iter([result.table]), lambda: result, unchanged)


def unchanged_fields(source: pa.Table, result: SwapResult) -> frozenset[str]:
    """Return the fields whose column in the destination has the memory of the one in the source."""
    names = set(source.column_names) & set(result.table.column_names)
    return frozenset(
        name for name in names if _memory(result.table.column(name)) == _memory(source.column(name))
    )


def _memory(column: pa.ChunkedArray) -> list[Any]:
    """Return type, rows and addresses of a column's chunks; equal ones are equal columns.

    A dictionary is not among the buffers of its array, so columns with one are never equal.
    """
    if not is_words(column.type) and not pa.types.is_string(column.type):
        return [object()]
    return [column.type] + [
        (len(chunk), chunk.offset, [None if each is None else each.address for each in chunk.buffers()])
        for chunk in column.chunks
    ]


def fits(provider: Provider[Any], source: BlobTable, params: Any, memory_bytes: int) -> bool:
    """Whether the provider can load all of its fields within the memory budget."""
    return _needed(provider, source, params) <= _USED * memory_bytes


def memory_budget(provider: Provider[Any], source: BlobTable, params: Any, rows: int) -> int:
    """Return the least memory budget with which a table of ``rows`` rows like the source's runs in memory.

    Parameters
    ----------
    provider, params
    source : BlobTable
        Table whose mean row counts.
    rows : int
        Rows of the table to plan for.
    """
    read = bytes_read(source, provider.scaling.reads(params, source.schema)) * rows // max(1, source.rows)
    return int(provider.scaling.memory(params, rows, read) / _USED)


def _least_bytes(source: BlobTable, fields: tuple[str, ...]) -> int:
    """Sum the bytes of the fields with fixed-width values: a lower bound of the fields' memory."""
    fixed = [field.type for field in source.schema if field.name in fields and is_words(field.type)]
    return sum(kind.bit_width * source.rows // 8 for kind in fixed)


def _needed(provider: Provider[Any], source: BlobTable, params: Any) -> int:
    read = bytes_read(source, provider.scaling.reads(params, source.schema))
    return provider.scaling.memory(params, source.rows, read)


def with_untouched_fields(
    source: BlobTable,
    fields: tuple[str, ...],
    result: SwapResult,
    unchanged: frozenset[str] = frozenset(),
) -> StreamedResult:
    """Combine swapped fields with the untouched ones, in source order.

    Parameters
    ----------
    source : BlobTable
    fields : tuple of str
        Fields that the provider has read, in source order.
    result : SwapResult
        Result with these fields.
    unchanged : frozenset of str
        Those of them that have the values of the source.
    """
    schema: pa.Schema = source.schema
    for field in result.table.schema:
        schema = schema.set(schema.get_field_index(field.name), field)
    schema = schema.with_metadata(result.table.schema.metadata)
    without_rows = replace(result, table=empty_table(schema))
    others = [name for name in source.schema.names if name not in fields]
    tables = iter([result.table]) if not others else _merged(source, others, schema, result)
    if result.origin is None:  # no rows were dropped
        unchanged |= frozenset(others)
    return StreamedResult(schema, tables, lambda: without_rows, unchanged)


def _merged(
    source: BlobTable, others: list[str], schema: pa.Schema, result: SwapResult
) -> Iterator[pa.Table]:
    kept = None
    if result.origin is not None:  # rows were dropped; a provider that reorders rows reads all fields
        kept = np.zeros(source.rows, np.bool_)
        kept[result.origin] = True
    first, taken = 0, 0
    for batch in source.batches(others):
        untouched = pa.Table.from_batches([batch])
        if kept is not None:
            untouched = untouched.filter(pa.array(kept[first : first + batch.num_rows]))
        swapped_rows = result.table.slice(taken, untouched.num_rows)
        first += batch.num_rows
        taken += untouched.num_rows
        columns = dict(zip(untouched.column_names, untouched.columns, strict=True))
        columns.update(zip(swapped_rows.column_names, swapped_rows.columns, strict=True))
        yield pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
