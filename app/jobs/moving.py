"""How a worker runs a provider: in memory where its fields fit, else out of core; piece by piece to the end.

Only the fields that the provider looks at or changes are read into memory. The others go from the source
to the destination batch by batch, beside what comes out of the swap.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from app.store.blob_table import BlobTable
from providers.provider import Progress, Provider, Streamed, SwapResult
from providers.rng import Stream
from providers.storage import Room, bytes_read
from providers.table import is_words

_USED = 0.8
"""Share of the memory that an estimate may fill."""


class TooLargeForMemory(Exception):
    """The fields that are read do not fit in memory, and the provider does not cut them so; says why."""


def swapped(
    provider: Provider[Any], source: BlobTable, params: Any, stream: Stream, progress: Progress, room: Room
) -> Streamed:
    """The destination of the source.

    Raises
    ------
    ProviderError
        As `swap` of the provider.
    TooLargeForMemory
    """
    scaling = provider.scaling
    names = set(scaling.reads(params, source.schema))
    fields = tuple(name for name in source.schema.names if name in names)
    out_of_core = scaling.swap if scaling.can_cut(params) else None
    if fits(provider, source, params, room.memory_bytes) or (
        out_of_core is None and _least_bytes(source, fields) <= room.memory_bytes  # it may do
    ):
        result = provider.swap(source.read(fields), params, stream, progress)
        return beside_the_others(source, fields, result)
    if out_of_core is None:
        needed = _needed(provider, source, params)
        rows = int(source.rows * _USED * room.memory_bytes / needed)
        raise TooLargeForMemory(
            f"{provider.identifier} needs about {needed} bytes for this table, and a job may take "
            f"{room.memory_bytes} (ROWVEIL_WORKER_MEMORY_BYTES), which does for about {rows} of its "
            f"{source.rows} rows. {scaling.cut}"
        )
    return out_of_core(source, params, stream, progress, room)


def whole_table(provider: Provider[Any], source: BlobTable, params: Any, room: Room) -> pa.Table:
    """All of the source, for what needs it beside the destination.

    Raises
    ------
    TooLargeForMemory
    """
    needed = provider.scaling.memory(params, source.rows, source.nbytes) + source.nbytes
    if needed > room.memory_bytes:
        raise TooLargeForMemory(
            f"a full report and candidates need both tables as a whole, about {needed} bytes, and a job may "
            f"take {room.memory_bytes} (ROWVEIL_WORKER_MEMORY_BYTES); ask for report 'summary' and no "
            "candidates, or measure a part of the rows at /v1/measures"
        )
    return source.whole()


def in_one_piece(result: SwapResult) -> Streamed:
    """A destination that is there already."""
    return Streamed(result.table.schema, iter([result.table]), lambda: result)


def fits(provider: Provider[Any], source: BlobTable, params: Any, memory_bytes: int) -> bool:
    """Whether the provider can be run on its fields as a whole."""
    return _needed(provider, source, params) <= _USED * memory_bytes


def _least_bytes(source: BlobTable, fields: tuple[str, ...]) -> int:
    """Bytes of those fields whose values have a fixed width."""
    fixed = [field.type for field in source.schema if field.name in fields and is_words(field.type)]
    return sum(kind.bit_width * source.rows // 8 for kind in fixed)


def _needed(provider: Provider[Any], source: BlobTable, params: Any) -> int:
    read = bytes_read(source, provider.scaling.reads(params, source.schema))
    return provider.scaling.memory(params, source.rows, read)


def beside_the_others(source: BlobTable, fields: tuple[str, ...], result: SwapResult) -> Streamed:
    """What came out of a swap of some fields, and the fields that were not read, in the source's order."""
    schema: pa.Schema = source.schema
    for field in result.table.schema:
        schema = schema.set(schema.get_field_index(field.name), field)
    without_rows = replace(result, table=schema.empty_table())
    others = [name for name in source.schema.names if name not in fields]
    pieces = iter([result.table]) if not others else _merged(source, others, schema, result)
    return Streamed(schema, pieces, lambda: without_rows)


def _merged(
    source: BlobTable, others: list[str], schema: pa.Schema, result: SwapResult
) -> Iterator[pa.Table]:
    kept = None
    if result.origin is not None:  # rows were left out: what puts rows in another order reads all fields
        kept = np.zeros(source.rows, np.bool_)
        kept[result.origin] = True
    first, taken = 0, 0
    for batch in source.batches(others):
        beside = pa.Table.from_batches([batch])
        if kept is not None:
            beside = beside.filter(pa.array(kept[first : first + batch.num_rows]))
        moved = result.table.slice(taken, beside.num_rows)
        first += batch.num_rows
        taken += beside.num_rows
        columns = dict(zip(beside.column_names, beside.columns, strict=True))
        columns.update(zip(moved.column_names, moved.columns, strict=True))
        yield pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
