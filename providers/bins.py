"""What swapping within multivariate bins shares: parameters, and the way from numbers to an exchange.

The swap fields, all of them numbers, say which rows are near each other; a provider cuts the rows into
bins of near ones, and the swap fields of a row move together between rows of one bin. All other fields
stay with their row, or are swapped one by one within bins of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import get_num_threads, njit, prange

from providers.errors import ParameterError, SourceError
from providers.groups import Groups
from providers.numeric import check_numeric, float_values, is_numeric
from providers.params import MovingParams, Suppression, SwapParams
from providers.provider import Event, Plan, Progress, SwapResult, no_progress, part_of
from providers.radix import IndexArray, row_index_type
from providers.rng import Stream
from providers.suppression import check_suppression
from providers.swapping import (
    Exchange,
    estimated_memory,
    fields_read,
    memory_needed,
    plan_each,
    resolve_names,
    swap_each,
)
from providers.table import BoolArray, combined, words_of

B = TypeVar("B", bound="BinParams")
Float64Array = npt.NDArray[np.float64]


class BinParams(MovingParams):
    """What MEWS and MEDS share. The swap fields are numbers, and move together."""

    others: Literal["keep", "univariate"] = "keep"
    """What becomes of the remaining fields: `keep` leaves them as they are; `univariate` swaps each
    remaining numeric field on its own, within bins made of it alone by the same rule."""
    nulls: Literal["fail", "keep"] = "fail"
    """A null, NaN or infinity is near nothing. `fail`: the job fails where a field that makes bins
    holds one; `keep`: a row with one takes no part, and the bins are made of the other rows."""


# --------------------------------------------------------------------------- against a schema, no data


def check_bins(params: B, schema: pa.Schema, method: str) -> B:
    """The parameters with every swap field by name.

    Raises
    ------
    ParameterError
        A swap field is unknown, out of range, named twice or not a number; no field is left beside
        them, or no numeric one to swap on its own; suppression does not fit.
    SourceError
        Two fields of the source have one name.
    """
    resolved = resolve_names(params, schema)
    by_index = bool(params.swap_field_indices)
    pointer = f"/parameters/{'swap_field_indices' if by_index else 'swap_fields'}"
    for at, name in enumerate(resolved.swap_fields):
        check_numeric(schema.field(name), method, f"{pointer}/{at}")
    if len(resolved.swap_fields) == len(schema):
        raise ParameterError(
            "every field is a swap field: moved together they only change the order of the rows, which "
            "protects nobody; leave at least one field out",
            pointer,
        )
    if params.others == "univariate" and not other_fields(resolved, schema):
        raise ParameterError(
            "no remaining field is numeric, so that none can be swapped on its own; use 'keep'",
            "/parameters/others",
        )
    check_suppression(as_swap(resolved, schema, resolved.suppression), schema)
    return resolved


def other_fields(params: BinParams, schema: pa.Schema) -> tuple[str, ...]:
    """The remaining fields that are swapped one by one."""
    if params.others == "keep":
        return ()
    return tuple(
        entry.name for entry in schema if entry.name not in params.swap_fields and is_numeric(entry.type)
    )


def as_swap(params: BinParams, schema: pa.Schema, suppression: Suppression) -> SwapParams:
    """The exchange in the swaps' common terms: every row of every bin takes part."""
    moved = params.swap_fields + other_fields(params, schema)
    return SwapParams(swap_fields=moved, locked=True, suppression=suppression)


# ------------------------------------------------------------------------------ numbers to make bins of


@dataclass(frozen=True, slots=True)
class FieldValues:
    """One field of the rows that are cut into bins."""

    name: str
    values: Float64Array
    """Finite, read-only, shape (rows,), one or more; the nearest float64 where the field's are wider."""
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Bins:
    """The rows of some fields, cut into bins."""

    groups: Groups
    """Every row in one bin, a bin's rows ascending; a bin is named by its smallest row."""
    degree: int
    """Partition degree: bins that are not empty, as they were cut."""
    singletons: int
    """Bins of one row, as they were cut."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The provider's further figures."""
    events: tuple[Event, ...] = ()
    measures: Mapping[str, Any] = field(default_factory=dict)
    """Measures of the swap fields' bins, as in `SwapResult`."""


MakeBins = Callable[[Sequence[FieldValues], Progress], Bins]
"""Cuts rows into bins by one field or more. ``np.column_stack`` of the values is their matrix."""


@njit(cache=True, nogil=True, parallel=True)
def _scan(values, lows, highs, unusable):
    """For each chunk the least and the largest finite value, and how many values are not finite."""
    chunks = len(lows)
    for chunk in prange(chunks):
        low, high = np.inf, -np.inf
        bad = 0
        for row in range(len(values) * chunk // chunks, len(values) * (chunk + 1) // chunks):
            value = values[row]
            if abs(value) < np.inf:
                low = min(low, value)
                high = max(high, value)
            else:
                bad += 1
        lows[chunk] = low
        highs[chunk] = high
        unusable[chunk] = bad


def extent(values: Float64Array) -> tuple[float, float, int]:
    """The least and the largest finite value (inf and -inf where none is), and how many are not finite."""
    chunks = get_num_threads() if len(values) > 65536 else 1
    lows, highs, unusable = np.empty(chunks), np.empty(chunks), np.empty(chunks, np.int64)
    _scan(values, lows, highs, unusable)
    return float(lows.min()) + 0.0, float(highs.max()) + 0.0, int(unusable.sum())  # + 0.0: never -0.0


def numbers_of(column: pa.ChunkedArray) -> Float64Array:
    """The column's values, read-only; without a copy where they are float64 already."""
    if column.type == pa.float64() and column.null_count == 0:
        return words_of(combined(column)).view(np.float64)
    return read_only(float_values(column))


def read_only(values: Float64Array) -> Float64Array:
    """The same values, read-only like Arrow's: one compiled kernel serves both."""
    values.flags.writeable = False
    return values


def unusable_values(name: str, count: int) -> SourceError:
    """What to raise where a field holds so many values that are null or not finite."""
    return SourceError(
        f"field '{name}' holds {count} value{'s' if count != 1 else ''} that "
        f"{'are' if count != 1 else 'is'} null, NaN or infinite; fill them in, leave such rows "
        "out, or set 'nulls' to 'keep', and they take no part"
    )


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Fields of the rows that take part."""

    fields: tuple[FieldValues, ...]
    present: npt.NDArray[np.int64] | None
    """Those rows, ascending; None for all."""
    absent: dict[str, BoolArray]
    """Field -> where its value is null or not finite; only where there is one."""


def _read(table: pa.Table, names: Sequence[str], nulls: str) -> _Numbers:
    """The fields as numbers, rows left aside where `nulls` says so.

    Raises
    ------
    SourceError
        A value is null or not finite, and `nulls` is ``fail``.
    """
    read: list[FieldValues] = []
    absent: dict[str, BoolArray] = {}
    for name in names:
        values = numbers_of(table.column(name))
        low, high, unusable = extent(values)
        if unusable and nulls == "fail":
            raise unusable_values(name, unusable)
        if unusable:
            absent[name] = ~np.isfinite(values)
        read.append(FieldValues(name, values, low, high))
    if not absent:
        return _Numbers(tuple(read), None, absent)
    present = np.flatnonzero(~np.logical_or.reduce(list(absent.values())))
    for at, entry in enumerate(read):
        values = read_only(entry.values[present])
        low, high, _ = extent(values)
        read[at] = FieldValues(entry.name, values, low, high)
    return _Numbers(tuple(read), present, absent)


# ---------------------------------------------------------------------------------------- plan and swap


@dataclass(frozen=True, slots=True)
class _Binned:
    """Every exchange of a run, and the bins it happens in."""

    exchanges: tuple[Exchange, ...]
    bins: tuple[Bins, ...]
    """In the order of the exchanges: the swap fields' first."""


def _bin_all(table: pa.Table, params: BinParams, make_bins: MakeBins, progress: Progress) -> _Binned:
    others = other_fields(params, table.schema)
    exchanges: list[Exchange] = []
    made: list[Bins] = []
    for at, names in enumerate([params.swap_fields, *((name,) for name in others)]):
        told = part_of(progress, at / (1 + len(others)), (at + 1) / (1 + len(others)))
        told(0.0, "reading numbers")
        numbers = _read(table, names, params.nulls)
        bins = _no_bins() if not len(numbers.fields[0].values) else make_bins(numbers.fields, told)
        groups = _of_table(bins.groups, numbers.present, table.num_rows)
        exchanges.append(Exchange(names, groups, at == 0, numbers.absent))
        made.append(bins)
    return _Binned(tuple(exchanges), tuple(made))


def _no_bins() -> Bins:
    return Bins(Groups(0, np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.uint64)), 0, 0)


def _of_table(groups: Groups, present: npt.NDArray[np.int64] | None, rows: int) -> Groups:
    """The groups with the table's row numbers, from those of the rows that take part."""
    if present is None:
        return groups
    numbers: IndexArray = present.astype(row_index_type(rows))
    identities = present[groups.identities.astype(np.int64)].astype(np.uint64)
    return Groups(rows, numbers[groups.order], groups.starts, identities)


def plan_in_bins(
    table: pa.Table, params: BinParams, make_bins: MakeBins, suppression: Suppression | None = None
) -> Plan:
    """What `swap_in_bins` would do. Raises UnswappableError where that would."""
    swap = as_swap(params, table.schema, suppression or params.suppression)
    memory = estimated_memory(table, swap, key_arrays=2 * len(params.swap_fields))
    binned = _bin_all(table, params, make_bins, no_progress)
    return plan_each(table, swap, binned.exchanges, memory)


def bin_fields_read(params: BinParams, schema: pa.Schema) -> tuple[str, ...]:
    """The fields that make bins or move, and those that suppression names."""
    return fields_read(params, other_fields(params, schema))


def bin_memory(params: BinParams, rows: int, nbytes: int) -> int:
    """About the bytes that a swap within bins takes of `nbytes` of fields read."""
    return memory_needed(params, rows, nbytes, key_arrays=2 * len(params.swap_fields))


_EXCHANGING = 0.3
"""Where the fractions begin that `swap_each` tells."""


def swap_in_bins(
    table: pa.Table,
    params: BinParams,
    make_bins: MakeBins,
    stream: Stream,
    progress: Progress,
    suppression: Suppression | None = None,
    binning_share: float = 0.3,
) -> SwapResult:
    """Exchange the swap fields' values together within bins, and the others' within their own.

    Parameters
    ----------
    table : pa.Table
        Left as it is.
    params : BinParams
        Checked.
    make_bins : callable
        Called once for the swap fields, and once for each remaining field that is swapped on its own;
        never without a row.
    stream : Stream
        Purposes: ``exchange`` for the swap fields, ``exchange/`` and the name of each other one.
    progress : Progress
    suppression : Suppression, optional
        In place of the parameters' own.
    binning_share : float
        Share of the whole work that is spent on making bins, for `progress`.

    Returns
    -------
    SwapResult
        Among the provider's figures `partition_degree`, `minimal_depth` (rows of the smallest bin in
        which values are exchanged), `singletons` and the provider's own; the same of each remaining
        field, in `others`.
    """
    swap = as_swap(params, table.schema, suppression or params.suppression)
    binned = _bin_all(table, params, make_bins, part_of(progress, 0.0, binning_share))
    scale = (1.0 - binning_share) / (1.0 - _EXCHANGING)

    def exchanging(fraction: float, stage: str) -> None:
        progress(binning_share + (fraction - _EXCHANGING) * scale, stage)

    result = swap_each(table, swap, binned.exchanges, stream, exchanging)
    of_exchange = [_figures(*each) for each in zip(binned.exchanges, binned.bins, strict=True)]
    result.provider.update(of_exchange[0])
    if params.others == "univariate":
        result.provider["others"] = {
            exchange.fields[0]: figures
            for exchange, figures in zip(binned.exchanges[1:], of_exchange[1:], strict=True)
        }
    result.measures.update(binned.bins[0].measures)
    for bins in binned.bins:
        for event in bins.events:
            result.events.add(event)
    return result


def _figures(exchange: Exchange, bins: Bins) -> dict[str, Any]:
    sizes = exchange.groups.sizes
    return {
        "partition_degree": bins.degree,
        "minimal_depth": int(sizes.min()) if len(sizes) else 0,
        "singletons": bins.singletons,
        **bins.figures,
    }
