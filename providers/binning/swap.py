"""Parameters shared by MEWS and MEDS; plan and swap within bins.

The swap fields are numbers and define which rows are near each other. A service partitions the rows into
bins of neighbouring rows, and rows of one bin exchange their values of all swap fields together. All other
fields stay with their row, or each of them is swapped on its own, within its own bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from providers.arrays import BoolArray, IndexArray, row_index_type
from providers.binning.values import (
    FieldValues,
    extent,
    numbers_of,
    read_only,
    step_of,
    unusable_values,
)
from providers.errors import ParameterError
from providers.grouping.groups import Groups
from providers.params import (
    PairingParams,
    RiskSelection,
    Suppression,
    SwapParams,
    check_rate_of_risk,
)
from providers.progress import Progress, no_progress, sub_progress
from providers.randomness.chacha20 import Stream
from providers.results import Event, Plan, SwapResult
from providers.swapping.fields import fields_read, resolve_names
from providers.swapping.participation import Exchange
from providers.swapping.row_risk import check_risk
from providers.swapping.suppression import check_suppression
from providers.swapping.swap import estimated_memory, memory_needed, plan_each, swap_each
from providers.tables.numbers import check_numeric, is_numeric

B = TypeVar("B", bound="BinParams")


class BinParams(PairingParams):
    """Parameters shared by MEWS and MEDS. The swap fields are numbers, and move together."""

    others: Literal["keep", "univariate"] = "keep"
    """Treatment of the remaining fields. `keep`: they stay unchanged; `univariate`: each remaining numeric
    field is swapped on its own, within bins that the same method forms from this field alone."""
    nulls: Literal["fail", "keep"] = "fail"
    """Treatment of a null, NaN or infinity in a field that defines bins. `fail`: the job fails; `keep`: the
    row takes no part, and the bins are formed of the other rows."""
    risk: RiskSelection | SkipJsonSchema[None] = Field(
        default=None, examples=[{"key_fields": ["region", "age", "sex"], "k": 3}]
    )
    """Selection of the rows by risk, with a `rate` below 1. Bins are formed of all rows. Rows at risk always
    take part in the exchange. Other rows take part up to the rate, each with a probability in proportion to
    its risk. Default: every row of a bin takes part."""
    rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the rows that take part in the exchange; below 1 only with `risk`. [over 0, up to 1]"""

    @model_serializer(mode="wrap")
    def _leave_out_defaults_of_later_versions(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out unused parameters that older versions do not have, so that they can run the job."""
        document: dict[str, Any] = handler(self)
        left_out = {"risk", "rate"} if document["risk"] is None else set()
        left_out |= {"parts"} if document.get("parts") is None else set()  # MEDS has this parameter
        return {name: value for name, value in document.items() if name not in left_out}

    @model_validator(mode="after")
    def _rate_and_risk_go_together(self) -> Self:
        if self.risk is None and self.rate != 1.0:
            raise PydanticCustomError(
                "rate_without_risk",
                "a 'rate' below 1 needs 'risk', which selects the rows: without 'risk', every row of a bin "
                "takes part",
            )
        check_rate_of_risk(self.risk, self.rate)
        return self


# --------------------------------------------------------------------------- against a schema, no data


def check_bins(params: B, schema: pa.Schema, method: str) -> B:
    """Return the parameters with every swap field by name.

    Parameters
    ----------
    params : BinParams
    schema : pa.Schema
        Schema of the source.
    method : str
        Name of the service, for error messages.

    Raises
    ------
    ParameterError
        A swap field is unknown, out of range, named twice or not a number; every field is a swap field;
        no numeric field remains to be swapped on its own; or the suppression or the risk does not fit the
        schema.
    SourceError
        Two fields of the source have the same name.
    """
    resolved = resolve_names(params, schema)
    by_index = bool(params.swap_field_indices)
    pointer = f"/parameters/{'swap_field_indices' if by_index else 'swap_fields'}"
    for index, name in enumerate(resolved.swap_fields):
        check_numeric(schema.field(name), method, f"{pointer}/{index}")
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
    if resolved.risk is not None:
        check_risk(resolved.risk, schema)
    return resolved


def other_fields(params: BinParams, schema: pa.Schema) -> tuple[str, ...]:
    """Return the remaining fields that are swapped on their own."""
    if params.others == "keep":
        return ()
    return tuple(
        entry.name for entry in schema if entry.name not in params.swap_fields and is_numeric(entry.type)
    )


def as_swap(params: BinParams, schema: pa.Schema, suppression: Suppression) -> SwapParams:
    """Convert to the parameters of a swap: locked, with the service's advice on small bins."""
    moved = params.swap_fields + other_fields(params, schema)
    return _SwapInBins(
        swap_fields=moved,
        locked=True,
        suppression=suppression,
        on_reversible=params.on_reversible,
        rate=params.rate,
        risk=params.risk,
        advice=params.larger_groups(),
    )


class _SwapInBins(SwapParams):
    """Parameters of the exchange within bins."""

    advice: str

    def larger_groups(self) -> str:
        """Return the service's advice."""
        return self.advice


@dataclass(frozen=True, slots=True)
class Bins:
    """Partition of the rows into bins."""

    groups: Groups
    """Bins, each with its rows ascending; the identity of a bin is its smallest row."""
    degree: int
    """Partition degree: number of bins that hold rows, before singletons are merged."""
    singletons: int
    """Number of bins of one row, before singletons are merged."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Further figures of the service."""
    events: tuple[Event, ...] = ()
    """Events of the partition."""
    measures: Mapping[str, Any] = field(default_factory=dict)
    """Measures of the bins, as in `SwapResult`."""


MakeBins = Callable[[Sequence[FieldValues], Progress], Bins]
"""Callback(fields, progress): partition the rows by the values of one or more fields."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Values of the fields that define bins, for the rows that take part."""

    fields: tuple[FieldValues, ...]
    present: npt.NDArray[np.int64] | None
    """Rows that take part, ascending; None for all."""
    absent: dict[str, BoolArray]
    """Field -> mask of the values that are null or not finite; only fields that hold one."""


def _read(table: pa.Table, names: Sequence[str], nulls: str) -> _Numbers:
    """Read the fields as numbers, without the rows that take no part.

    Raises
    ------
    SourceError
        A value is null or not finite, and ``nulls`` is ``fail``.
    """
    fields: list[FieldValues] = []
    absent: dict[str, BoolArray] = {}
    for name in names:
        values = numbers_of(table.column(name))
        low, high, unusable = extent(values)
        if unusable and nulls == "fail":
            raise unusable_values(name, unusable)
        if unusable:
            absent[name] = ~np.isfinite(values)
        fields.append(FieldValues(name, values, low, high, step_of(table.schema.field(name).type)))
    if not absent:
        return _Numbers(tuple(fields), None, absent)
    present = np.flatnonzero(~np.logical_or.reduce(list(absent.values())))
    for index, entry in enumerate(fields):
        values = read_only(entry.values[present])
        low, high, _ = extent(values)
        fields[index] = replace(entry, values=values, low=low, high=high)
    return _Numbers(tuple(fields), present, absent)


# ---------------------------------------------------------------------------------------- plan and swap


@dataclass(frozen=True, slots=True)
class _Binned:
    """Exchanges of a run and their bins."""

    exchanges: tuple[Exchange, ...]
    bins: tuple[Bins, ...]
    """Bins of each exchange; the bins of the swap fields come first."""


def _bin_all(table: pa.Table, params: BinParams, make_bins: MakeBins, progress: Progress) -> _Binned:
    """Form the bins of the swap fields, and the bins of each remaining field that is swapped on its own."""
    others = other_fields(params, table.schema)
    exchanges: list[Exchange] = []
    all_bins: list[Bins] = []
    count = 1 + len(others)
    for number, names in enumerate([params.swap_fields, *((name,) for name in others)]):
        bin_progress = sub_progress(progress, number / count, (number + 1) / count)
        bin_progress(0.0, "reading numbers")
        numbers = _read(table, names, params.nulls)
        bins = _no_bins() if not len(numbers.fields[0].values) else make_bins(numbers.fields, bin_progress)
        groups = _renumbered(bins.groups, numbers.present, table.num_rows)
        exchanges.append(Exchange(names, groups, number == 0, numbers.absent))
        all_bins.append(bins)
    return _Binned(tuple(exchanges), tuple(all_bins))


def _no_bins() -> Bins:
    return Bins(Groups(0, np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.uint64)), 0, 0)


def _renumbered(groups: Groups, present: npt.NDArray[np.int64] | None, rows: int) -> Groups:
    """Translate positions among the rows that take part to row numbers of the table."""
    if present is None:
        return groups
    numbers: IndexArray = present.astype(row_index_type(rows))
    identities = present[groups.identities.astype(np.int64)].astype(np.uint64)
    return Groups(rows, numbers[groups.order], groups.starts, identities)


def plan_in_bins(
    table: pa.Table, params: BinParams, make_bins: MakeBins, suppression: Suppression | None = None
) -> Plan:
    """Return what `swap_in_bins` would do; raise UnswappableError as it would. Arguments as there."""
    swap = as_swap(params, table.schema, suppression or params.suppression)
    memory = estimated_memory(table, swap, key_arrays=2 * len(params.swap_fields))
    binned = _bin_all(table, params, make_bins, no_progress)
    return plan_each(table, swap, binned.exchanges, memory)


def bin_fields_read(params: BinParams, schema: pa.Schema) -> tuple[str, ...]:
    """Return the fields that define bins or are swapped, and the fields that suppression and risk name."""
    return fields_read(params, other_fields(params, schema))


def bin_memory(params: BinParams, rows: int, nbytes: int) -> int:
    """Estimate the peak memory in bytes of a swap within bins; see `memory_needed`."""
    return memory_needed(params, rows, nbytes, key_arrays=2 * len(params.swap_fields))


_EXCHANGE_START = 0.3
"""Smallest fraction of progress that `swap_each` reports."""


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
        The source; not modified.
    params : BinParams
        Checked.
    make_bins : callable
        Called once for the swap fields, and once for each remaining field that is swapped on its own;
        never without rows.
    stream : Stream
        Purposes: ``exchange`` for the swap fields, ``exchange/`` and the field's name for each other field.
    progress : Progress
    suppression : Suppression, optional
        Replaces that of the parameters.
    binning_share : float
        Share of the work that forming bins takes, for `progress`.

    Returns
    -------
    SwapResult
        The provider's figures include `partition_degree`, `minimal_depth` (rows of the smallest bin in
        which values are exchanged), `singletons` and those of the service. `others` holds the same figures
        for each remaining field that was swapped. With `risk` the measures of the bins are left out, since
        they suppose that every row of a bin takes part.
    """
    swap = as_swap(params, table.schema, suppression or params.suppression)
    binned = _bin_all(table, params, make_bins, sub_progress(progress, 0.0, binning_share))
    scale = (1.0 - binning_share) / (1.0 - _EXCHANGE_START)

    def exchanging(fraction: float, stage: str) -> None:
        progress(binning_share + (fraction - _EXCHANGE_START) * scale, stage)

    result = swap_each(table, swap, binned.exchanges, stream, exchanging)
    all_figures = [_figures(*each) for each in zip(binned.exchanges, binned.bins, strict=True)]
    result.provider.update(all_figures[0])
    if params.others == "univariate":
        result.provider["others"] = {
            exchange.fields[0]: figures
            for exchange, figures in zip(binned.exchanges[1:], all_figures[1:], strict=True)
        }
    if params.risk is None:
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
