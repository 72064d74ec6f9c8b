"""DDSWAP: values are exchanged between rows that are close to each other on the control fields.

The rows are ordered by the control fields and cut into blocks; each block is a group.

References
----------
Optim data privacy providers 11.3 and 11.7, module Data Swapping: distance-based data swapping.
"""

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, prange
from pydantic import Field

from providers.buckets import Layout, bucket_layout
from providers.errors import ParameterError, SourceError
from providers.external.exchanging import Tally
from providers.external.sharing import Groupings, sharing_of_groups
from providers.external.sorting import label_keys
from providers.external.swaps import Listing, Sizes, swap_outside
from providers.groups import Groups, Pairing
from providers.kernels import ONE_BUCKET, listed
from providers.numeric import HIGH, measured
from providers.ordering import check_orderable, packed, sort_keys
from providers.params import MOST_ROWS, ControlFields, SwapParams
from providers.provider import (
    Division,
    Plan,
    Progress,
    Provider,
    Run,
    Scaling,
    Sharing,
    Streamed,
    SwapResult,
)
from providers.radix import IndexArray, Int64Array, radix_order
from providers.rng import Stream
from providers.storage import Room, Source
from providers.swapping import (
    check_control_fields,
    control_pointer,
    estimated_memory,
    fields_read,
    memory_needed,
    plan_within,
    resolve_fields,
    swap_within,
)


class DdswapParams(SwapParams):
    """The parameters of DDSWAP."""

    control_field: ControlFields
    """The field that orders the rows; several fields: the first decides, then the second, and so on."""
    block_size: Annotated[int, Field(ge=2, le=MOST_ROWS)]
    """Rows of a block, within which values are exchanged. [2 or more]"""


def check(params: DdswapParams, schema: pa.Schema) -> DdswapParams:
    """The parameters with every field by name."""
    check_control_fields(params.control_field, schema)
    resolved = resolve_fields(params, schema, params.control_field)
    for at, name in enumerate(params.control_field):
        check_orderable(schema.field(name), control_pointer(params.control_field, at))
    if params.min_group_size > params.block_size:
        raise ParameterError(
            f"no block of {params.block_size} rows reaches min_group_size {params.min_group_size}; "
            "lower it, or raise block_size",
            "/parameters/min_group_size",
        )
    return resolved


def ranked(table: pa.Table, control_fields: tuple[str, ...]) -> IndexArray | Layout:
    """The rows by their control fields, ascending, ties by row number, nulls last; many rows as a layout."""
    keys = packed([key for name in control_fields for key in sort_keys(table.column(name), name)])
    layout = bucket_layout(keys[0]) if len(keys) == 1 else None
    return radix_order(keys) if layout is None else layout


def blocks(order: IndexArray | Layout, block_size: int) -> Groups:
    """Blocks of rows in this order, numbered from 0.

    A remainder of one row joins the block before it; any other remainder is a block of its own.
    """
    listing, layout = (None, order) if isinstance(order, Layout) else (order, None)
    rows = len(order.places if isinstance(order, Layout) else order)
    starts = np.append(np.arange(0, rows, block_size, dtype=np.int64), rows)
    if rows > 1 and rows % block_size == 1:
        starts = np.delete(starts, -2)
    return Groups(rows, listing, starts, np.arange(len(starts) - 1, dtype=np.uint64), layout)


def plan(table: pa.Table, params: DdswapParams) -> Plan:
    """What `swap` would do."""
    groups = blocks(ranked(table, params.control_field), params.block_size)
    memory = estimated_memory(table, params, key_arrays=len(params.control_field))
    return plan_within(table, params, groups, memory)


def swap(table: pa.Table, params: DdswapParams, stream: Stream, progress: Progress) -> SwapResult:
    """The table with the swap fields' values exchanged between rows of one block."""
    progress(0.0, "ordering")
    groups = blocks(ranked(table, params.control_field), params.block_size)
    one_field = len(params.control_field) == 1
    distances = _Distances(groups, table.column(params.control_field[0]) if one_field else None)
    result = swap_within(table, params, groups, stream, progress, watch=distances.add)
    result.provider["blocks"] = len(groups.identities)
    result.provider["swapping_distance"] = distances.figures()
    return result


_SPAN = 256
"""Groups whose distances are summed together: fixed, so that no sum depends on the threads."""


@njit(cache=True, nogil=True)
def _with_moves(seen, source, target, times, values, low):
    """The figures of `_count_moves` with one move more, or two, from rank `source` to rank `target`."""
    moves, ranks, most_ranks, measured_moves, units, most_units = seen
    distance = abs(np.float64(source) - np.float64(target))
    moves += times
    ranks += times * distance  # whole, and so exact
    most_ranks = max(most_ranks, distance)
    if len(values):
        origin, goal = np.uint64(source), np.uint64(target)
        distance = values[origin] - values[goal]
        if len(low):
            distance = distance * HIGH + (low[origin] - low[goal])
        distance = abs(distance)
        if np.isfinite(distance):
            measured_moves += times
            units += distance
            if times == 2:
                units += distance
            most_units = max(most_units, distance)
    return moves, ranks, most_ranks, measured_moves, units, most_units


@njit(cache=True, nogil=True, parallel=True)
def _count_moves(ranks, starts, pairs, odd_rule, values, low, moves):
    """For each span of groups: moves, their sum and largest in ranks, and the same in units.

    `ranks` holds the ranks of each group's rows in their random order; `values` and `low` the control
    field as `Measured`, by rank, or nothing; `moves` is float64, shape (spans, 6).
    """
    groups = len(pairs)
    for span in prange(len(moves)):
        seen = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        for group in range(span * _SPAN, min(groups, (span + 1) * _SPAN)):
            start, stop = starts[group], starts[group + 1]
            odd = odd_rule and (stop - start) % 2 == 1 and pairs[group] > 0
            for at in range(start, start + 2 * (pairs[group] - odd), 2):
                place = np.uint64(at)  # unsigned: no test for an index from the end
                seen = _with_moves(seen, ranks[place], ranks[place + np.uint64(1)], 2, values, low)
            if odd:  # the cycle of three: the last goes to the first, and so on round
                first, second, third = ranks[stop - 3], ranks[stop - 2], ranks[stop - 1]
                seen = _with_moves(seen, third, first, 1, values, low)
                seen = _with_moves(seen, first, second, 1, values, low)
                seen = _with_moves(seen, second, third, 1, values, low)
        for figure in range(6):
            moves[span, figure] = seen[figure]


class _Distances:
    """How far values travel on the control fields: from the row they leave to the row that gets them.

    In ranks (the place of a row in the order, every row one of its own) always; in the units of the
    control field where there is one and it is a number, a date (days) or a time (seconds). A row
    whose control value is null or not finite has no distance in units.
    """

    def __init__(self, groups: Groups, control: pa.ChunkedArray | None) -> None:
        self._groups = groups
        self._unit: str | None = None
        self._in_a_unit = 1
        self._values: npt.NDArray[np.float64] = np.empty(0)
        self._low: npt.NDArray[np.float64] = np.empty(0)
        numbers = None if control is None else measured(control)
        if numbers is not None:
            self._unit, self._in_a_unit = numbers.unit, numbers.in_a_unit
            self._values = listed(numbers.values, groups)
            if len(numbers.low):
                self._low = listed(numbers.low, groups)
        self._moves = np.zeros((0, 6))

    def add(self, name: str, pairing: Pairing) -> None:
        """Count the moves of one field, or of all of them when they are locked."""
        ranks = pairing.shuffled
        if pairing.groups is not self._groups or pairing.moved is not None:  # rows stand aside, or in buckets
            ranks = self._groups.places[pairing.order]
        moves = np.empty((-(-len(pairing.pairs) // _SPAN), 6))
        rules = (pairing.groups.starts, pairing.pairs, pairing.odd_rule)
        _count_moves(ranks, *rules, self._values, self._low, moves)
        self._moves = np.concatenate([self._moves, moves])

    def include(self, other: "_Distances") -> None:
        """Count the moves of another part of the table as well."""
        self._moves = np.concatenate([self._moves, other._moves.sum(axis=0, keepdims=True)])
        self._moves[-1, [2, 5]] = other._moves[:, [2, 5]].max(axis=0, initial=0.0)

    def figures(self) -> dict[str, Any]:
        """Mean and largest over all moves; None where nothing was measured."""
        figures: dict[str, Any] = {"ranks": self._mean_and_largest(0, 1)}
        if self._unit is not None:
            figures["units"] = {**self._mean_and_largest(3, self._in_a_unit), "unit": self._unit}
        return figures

    def _mean_and_largest(self, column: int, in_a_unit: int) -> dict[str, float | None]:
        count = self._moves[:, column].sum()
        if not count:
            return {"mean": None, "largest": None}
        mean, largest = self._moves[:, column + 1].sum() / count, self._moves[:, column + 2].max()
        return {"mean": float(mean / in_a_unit), "largest": float(largest / in_a_unit)}


class _Blocks:
    """Blocks of a table that comes in pieces, in the order of its ranks."""

    def __init__(self, params: DdswapParams, rows: int, rank: int = 0) -> None:
        """``rows``: those of the whole table; ``rank``: that of the first row, where a block starts."""
        self.controls = params.control_field
        self._block_size = params.block_size
        self._rows = rows
        self._ranked = rank  # rows in the blocks that are given out

    def labels(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """The control fields themselves."""
        return [table.column(name) for name in self.controls]

    def listing(self, table: pa.Table, rows: Int64Array, final: bool) -> Listing:
        """The blocks of a piece. The remainder that is not a block yet comes last, if it is empty."""
        order = radix_order(label_keys(self.labels(table)))
        starts = np.append(np.arange(0, len(order), self._block_size, dtype=np.int64), len(order))
        alone = self._rows - 1 - self._ranked  # where a single row left over would start
        if self._rows > 1 and self._rows % self._block_size == 1 and alone in starts[:-1]:
            starts = np.delete(starts, np.flatnonzero(starts == alone)[0])
        identities = (self._ranked // self._block_size + np.arange(len(starts) - 1)).astype(np.uint64)
        self._ranked += int(starts[-1 if final else -2])
        return Listing(order, starts, identities)


def swap_out_of_core(
    source: Source, params: DdswapParams, stream: Stream, progress: Progress, room: Room
) -> Streamed:
    """As `swap`, the rows in the order of their control fields, some of them in memory at a time.

    Raises
    ------
    SourceError
        A single block does not fit.
    """
    _refuse_large_blocks(source, params, room)
    return swap_outside(
        source, params, stream, progress, room, _Blocks(params, source.rows), _Seen(params, source.schema)
    )  # fmt: skip


def _refuse_large_blocks(source: Source, params: DdswapParams, room: Room) -> None:
    fields = tuple(dict.fromkeys([*params.control_field, *params.swap_fields]))
    most = max(ONE_BUCKET, Sizes.of(source, fields, room.memory_bytes).unit_rows)
    if params.block_size > most:
        raise SourceError(
            f"blocks of {params.block_size} rows do not fit the memory that a job may take; blocks of {most} "
            "do: lower block_size, or raise that memory"
        )


class _Seen:
    """The distances of all units."""

    def __init__(self, params: DdswapParams, schema: pa.Schema) -> None:
        self._control = params.control_field[0] if len(params.control_field) == 1 else None
        nothing = Groups(0, None, np.zeros(1, np.int64), np.zeros(0, np.uint64))
        self._distances = _Distances(nothing, self._column(schema.empty_table()))

    def see(self, groups: Groups, table: pa.Table, name: str, pairing: Pairing) -> None:
        """Count the moves of a unit."""
        of_unit = _Distances(groups, self._column(table))
        of_unit.add(name, pairing)
        self._distances.include(of_unit)

    def _column(self, table: pa.Table) -> pa.ChunkedArray | None:
        return None if self._control is None else table.column(self._control)

    def include(self, other: "_Seen") -> None:
        """Count what another one has seen."""
        self._distances.include(other._distances)

    def figures(self, tally: Tally) -> dict[str, Any]:
        """The report's."""
        return {"blocks": tally.groups.total(), "swapping_distance": self._distances.figures()}


def _divide(run: Run[DdswapParams], progress: Progress, wanted: int) -> Division:
    _refuse_large_blocks(run.source, run.params, run.room)
    return _BLOCKS.divide(run, progress, wanted)


_BLOCKS: Sharing[DdswapParams] = sharing_of_groups(
    Groupings(
        grouping=lambda params, schema, rows, rank: _Blocks(params, rows, rank),
        watcher=_Seen,
        group_rows=lambda params: params.block_size,
    )
)


PROVIDER = Provider(
    identifier="DDSWAP",
    title="Distance-based data swapping",
    summary="Exchanges values between rows that are close to each other on the control fields.",
    revision=1,
    params=DdswapParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "No value leaves its block: it travels at most block_size ranks on the control fields.",
        "Every field keeps its values: only their rows change, unless something is suppressed.",
        "At rate 1 every row of a block receives another row's value.",
        "Within a block the pairs are uniformly random; some of them known, nothing is learnt of the rest.",
    ),
    changes=(
        "Which row of its block a value stands in.",
        "Correlations with the control field a little, with other fields more; less in small blocks.",
    ),
    limits=(
        "In a block of p rows an intruder who knows the order guesses a value's owner with chance 1/(p - 1).",
        "A block of neighbours may share a value: then the exchange protects nobody.",
        "Fields that are not swapped, the control field among them, stay with their row.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: fields_read(params, params.control_field),
        memory=lambda params, rows, nbytes: memory_needed(
            params, rows, nbytes, key_arrays=len(params.control_field)
        ),
        cut="Rows are put aside in the order of the control fields and exchanged block by block. A block "
        "must fit in memory. Units of a shared job are whole blocks that lie side by side in that order.",
        swap=swap_out_of_core,
        sharing=replace(_BLOCKS, divide=_divide),
    ),
    cost="O(n) time a field, after a sort of the control fields by radix, O(n) a pass.",
    instead=(
        "MEWS or MEDS, where several numeric fields together say who is a neighbour.",
        "CDSWAP, where equal values, not near ones, form the group.",
    ),
    references=("Optim data privacy providers 11.3 and 11.7, module Data Swapping",),
)
