"""DDSWAP: exchange the values of the swap fields between rows that are close on the control fields.

The rows are sorted by the control fields in ascending order, nulls last, and cut into blocks of `block_size`
(the source's p) consecutive rows. Within every block values are exchanged as in DSWAP: between random pairs
of rows, and in a cycle of three rows if their number is odd. A remainder of one row joins the block before
it.

With `mechanism` set to `permutation`, each row of a block is selected with probability `rate`, and the
selected rows are permuted at random so that none keeps its place. The report then states an exact epsilon.

With `risk`, rows whose combination of key fields is rare always take part, and the others up to `rate`, each
with a probability in proportion to its risk.

With `household`, whole households of equal size are exchanged, member by member in the order of rows. The
place of a household in the order is that of its first row, and a block consists of households of one size.

With `unit_id`, units such as persons who occur in several rows move in the same way. In a `series` a unit
keeps its partner in every table.

References
----------
Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm.
Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities.
Optim data privacy providers 11.3 and 11.7, module Data Swapping: "Distance-based Data Swapping".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field

from providers.arrays import BoolArray
from providers.errors import ParameterError
from providers.grouping.blocks import blocks, ranked
from providers.grouping.groups import Groups, Pairing
from providers.params import MOST_ROWS, ControlFields, SwapParams
from providers.progress import Progress
from providers.provider import Division, Provider, Run, Scaling, Sharing, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import Plan, SwapResult
from providers.storage import Resources, Source
from providers.swapping.distance import Distances
from providers.swapping.fields import check_control_fields, control_pointer, fields_read, resolve_fields
from providers.swapping.guarantee import PERMUTATION_RELEASES, permutation_guarantee
from providers.swapping.households import (
    HOUSEHOLD_GUARANTEE,
    HOUSEHOLD_LIMIT,
    Members,
    absent_households,
    moving_members,
    near,
    plan_households,
    swap_households,
)
from providers.swapping.out_of_core.blocks import BlockFigures, BlockGrouping, refuse_large_blocks
from providers.swapping.out_of_core.distribute import Groupings, sharing_of_groups
from providers.swapping.out_of_core.swap import swap_outside
from providers.swapping.participation import Exchange
from providers.swapping.reversible_groups import uniform_pairs
from providers.swapping.risk_report import RISK_GUARANTEE, RISK_LIMIT
from providers.swapping.row_checks import CHECK_GUARANTEE, CHECK_LIMIT, report_checks
from providers.swapping.series import (
    SERIES_GUARANTEE,
    SERIES_LIMIT,
    refuse_series,
    swap_series,
)
from providers.swapping.swap import (
    MOVED_VALUES,
    NAN_IS_A_VALUE,
    ONE_ROW,
    estimated_memory,
    least_memory,
    memory_needed,
    plan_each,
    swap_each,
)
from providers.swapping.torn_households import TornHouseholds
from providers.tables.columns import null_mask, take
from providers.tables.series_pairs import SeriesPairs
from providers.tables.sort_keys import check_orderable


class DdswapParams(SwapParams):
    """The parameters of DDSWAP."""

    control_field: ControlFields
    """The field that the rows are sorted by. Several fields: by the first, then by the second, and so on."""
    block_size: Annotated[int, Field(ge=2, le=MOST_ROWS)]
    """Number of rows in a block; values are exchanged within blocks. With `nulls` set to `keep`, only the
    rows that take part are counted. [2 or more]"""

    def larger_groups(self) -> str:
        """Return advice for blocks of two or three rows."""
        if self.block_size < _IRREVERSIBLE:
            return f"raise 'block_size' to {_IRREVERSIBLE} or more"
        return (
            "the last block is smaller than 'block_size': set 'min_group_size' to 4, so that 'suppression' "
            "decides about it, or change 'block_size'"
        )


_IRREVERSIBLE = 4
"""Rows of the smallest block whose exchange cannot be undone as that of two or three rows can."""


def check(params: DdswapParams, schema: pa.Schema) -> DdswapParams:
    """Return the parameters with every field by name; raise ParameterError or SourceError."""
    check_control_fields(params.control_field, schema)
    resolved = resolve_fields(params, schema, params.control_field)
    for index, name in enumerate(params.control_field):
        check_orderable(schema.field(name), control_pointer(params.control_field, index))
    if params.min_group_size > params.block_size:
        raise ParameterError(
            f"no block of {params.block_size} rows reaches min_group_size {params.min_group_size}; "
            "lower it, or raise block_size",
            "/parameters/min_group_size",
        )
    return resolved


def block_exchanges(table: pa.Table, params: DdswapParams) -> list[Exchange]:
    """Cut the rows that take part into blocks; return the exchanges that happen within them."""
    rows = table.num_rows
    all_blocks = blocks(ranked(table, params.control_field), params.block_size, rows)
    if params.nulls == "swap":
        return [Exchange(params.swap_fields, all_blocks, params.locked)]
    # `nulls: keep` leaves rows out before blocks are cut, so that every block has `block_size` rows.
    null_masks = {name: null_mask(table.column(name)) for name in params.swap_fields}
    order = all_blocks.order if any(mask.any() for mask in null_masks.values()) else None

    def blocks_without(absent: BoolArray) -> Groups:
        if order is None or not absent.any():
            return all_blocks
        return blocks(order[~absent[order]], params.block_size, rows)

    if params.locked:
        absent = np.logical_or.reduce(list(null_masks.values()))
        return [Exchange(params.swap_fields, blocks_without(absent), True)]
    return [Exchange((name,), blocks_without(mask), False) for name, mask in null_masks.items()]


def household_exchanges(table: pa.Table, params: DdswapParams) -> tuple[Members, list[Exchange]]:
    """Cut the households of each size into blocks, in the order of their first rows' control fields."""
    members = moving_members(table, params)
    controls = pa.table(
        {name: take(table.column(name), pa.array(members.first)) for name in params.control_field}
    )
    order = blocks(ranked(controls, params.control_field), max(1, len(members)), len(members)).order
    absent = absent_households(table, params, members)
    if params.locked and absent:
        out_of_any: BoolArray = np.logical_or.reduce(list(absent.values()))
        absent = dict.fromkeys(absent, out_of_any)

    def exchange(fields: tuple[str, ...]) -> Exchange:
        masks = {name: absent[name] for name in fields if name in absent}
        present = order[~masks[fields[0]][order]] if masks else order
        return Exchange(fields, near(members, present, params.block_size), params.locked, masks)

    if params.locked or not absent:
        return members, [exchange(params.swap_fields)]
    return members, [exchange((name,)) for name in params.swap_fields]


def _fields_with_own_blocks(params: DdswapParams) -> tuple[str, ...]:
    """Return the swap fields if each has its own blocks: those of the rows where it is not null."""
    return params.swap_fields if params.nulls == "keep" and not params.locked else ()


def plan(table: pa.Table, params: DdswapParams) -> Plan:
    """Return what `swap` would do, without a random draw; a series has no plan."""
    refuse_series(params)
    memory = estimated_memory(table, params, key_arrays=len(params.control_field))
    memory += _block_memory(params, table.num_rows)
    if params.moving_unit is not None:
        members, exchanges = household_exchanges(table, params)
        return plan_households(table, params, members, exchanges, memory)
    return plan_each(table, params, block_exchanges(table, params), memory)


def _block_memory(params: DdswapParams, rows: int) -> int:
    """Bytes of the row order and its inverse, for each swap field that has its own blocks."""
    index_bytes = 4 if rows < 2**31 else 8
    return 2 * index_bytes * rows * len(_fields_with_own_blocks(params))


def swap(
    table: pa.Table,
    params: DdswapParams,
    stream: Stream,
    progress: Progress,
    series: SeriesPairs | None = None,
) -> SwapResult:
    """Exchange values between uniformly random pairs of rows of one block; ``series``: earlier pairs."""
    if series is None:
        refuse_series(params)
    progress(0.0, "ordering")
    control = _single_control(params)
    column = None if control is None else table.column(control)
    if series is not None and params.series is not None:
        run = swap_series(table, params, household_exchanges, stream, progress, series, keeps_groups=False)
        result, exchanges = run.result, run.exchanges
        distances = Distances(None if column is None else take(column, pa.array(run.members.first)))
        distances.add_sources(exchanges[0].groups, run.origin)
    elif params.moving_unit is not None:
        members, exchanges = household_exchanges(table, params)
        distances = Distances(None if column is None else take(column, pa.array(members.first)))
        result = swap_households(table, params, members, exchanges, stream, progress, distances.add)
    else:
        exchanges, distances = block_exchanges(table, params), Distances(column)
        torn = None if params.household_check is None else TornHouseholds(table, params)

        def watch(name: str, pairing: Pairing) -> None:
            distances.add(name, pairing)
            if torn is not None:
                torn.add(name, pairing)

        result = swap_each(table, params, exchanges, stream, progress, watch)
        if torn is not None:
            torn.report(result)
    result.provider["blocks"] = len(exchanges[0].groups.identities)
    if _fields_with_own_blocks(params):
        result.provider["blocks_by_field"] = {
            exchange.fields[0]: len(exchange.groups.identities) for exchange in exchanges
        }
    result.provider["swapping_distance"] = distances.figures()
    return report_checks(table, params, result)


def _single_control(params: DdswapParams) -> str | None:
    """Return the control field in whose units distances are measured; None if there are several."""
    return params.control_field[0] if len(params.control_field) == 1 else None


def swap_out_of_core(
    source: Source, params: DdswapParams, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Do the same as `swap` with the rows sorted by the control fields and only some blocks in memory.

    Raises
    ------
    SourceError
        A single block does not fit in memory.
    """
    _refuse_large_blocks(source, params, resources)
    return swap_outside(
        source, params, stream, progress, resources,
        grouping=lambda rows: BlockGrouping(params.control_field, params.block_size, rows),
        watcher=_block_figures(params, source.schema),
        by_count=params.nulls == "keep",
    )  # fmt: skip


def _refuse_large_blocks(source: Source, params: DdswapParams, resources: Resources) -> None:
    fields = tuple(dict.fromkeys([*params.control_field, *params.swap_fields]))
    refuse_large_blocks(source, fields, params.block_size, resources)


def _block_figures(params: DdswapParams, schema: pa.Schema) -> BlockFigures:
    return BlockFigures(_single_control(params), _fields_with_own_blocks(params), schema)


_BLOCKS: Sharing[DdswapParams] = sharing_of_groups(
    Groupings(
        grouping=lambda params, schema, rows, rank: BlockGrouping(
            params.control_field, params.block_size, rows, rank
        ),
        watcher=_block_figures,
        group_rows=lambda params: params.block_size,
        by_count=lambda params: params.nulls == "keep",
    )
)


def _divide(run: Run[DdswapParams], progress: Progress, wanted: int) -> Division:
    _refuse_large_blocks(run.source, run.params, run.resources)
    return _BLOCKS.divide(run, progress, wanted)


PROVIDER = Provider(
    identifier="DDSWAP",
    title="Distance-based data swapping",
    summary="Exchanges values between rows that are close to each other on the control fields.",
    revision=3,
    draws_revision=2,
    params=DdswapParams,
    check=check,
    plan=plan,
    swap=swap,
    swap_series=swap,
    guarantees=(
        "No value leaves its block: it moves by at most block_size ranks on the control fields, counted "
        "among the rows that take part.",
        "Every field keeps its values: only their rows change, unless something is suppressed.",
        "At rate 1 every row of a block receives another row's value.",
        uniform_pairs("block", "blocks"),
        permutation_guarantee("block"),
        RISK_GUARANTEE,
        HOUSEHOLD_GUARANTEE,
        SERIES_GUARANTEE,
        CHECK_GUARANTEE,
    ),
    changes=(
        "The row of its block that a value belongs to.",
        "Correlations with the control field change a little, those with other fields more; both change "
        "less in small blocks.",
    ),
    limits=(
        "In a block of p rows an intruder who knows the order guesses a value's owner with chance 1/(p - 1).",
        "The rows of a block may share a value: then the exchange protects nobody.",
        "Fields that are not swapped, the control field among them, stay with their row.",
        RISK_LIMIT,
        HOUSEHOLD_LIMIT,
        SERIES_LIMIT,
        CHECK_LIMIT,
    ),
    repeated_releases=(
        "The control field does not move, so that anybody can cut the same blocks again, and at rate 1 no "
        "row ever receives its own value. The value that 20 releases with different seeds never show in a "
        "row is its own: this recovers 99.3 % of svcensus in blocks of five, 65 % in blocks of ten and 3 % "
        "in blocks of 50.",
        "At a rate below 1 the most frequent value of a row is its own: 20 releases in blocks of five at "
        "rate 0.3 recover over 99.9 % of svcensus' incomes.",
        PERMUTATION_RELEASES,
        "Release a source once. A rerun with the same seed gives the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: fields_read(params, params.control_field),
        memory=lambda params, rows, nbytes: (
            memory_needed(params, rows, nbytes, key_arrays=len(params.control_field))
            + _block_memory(params, rows)
        ),
        cut="Rows are sorted by the control fields into scratch space and exchanged block by block. A block "
        "must fit in memory. The units of a divided job are runs of consecutive whole blocks."
        " With `risk`, `household`, `household_check`, `unit_id` or `checks` the run is not cut, since it "
        "needs the whole table.",
        swap=swap_out_of_core,
        can_cut=lambda params: params.whole_table is None,
        least=least_memory,
        sharing=replace(_BLOCKS, divide=_divide),
    ),
    cost="O(n) time per swap field, after a radix sort of the control fields in O(n) per pass.",
    special_values=(
        *MOVED_VALUES,
        f"{ONE_ROW} A table of fewer rows than `block_size` is one block.",
        NAN_IS_A_VALUE,
        "The control field orders numbers, then NaN, then nulls. 0.0 and -0.0 are equal, integers of any "
        "size are ordered exactly, and text by code points. Equal values stay in the order of rows.",
    ),
    instead=(
        "MEWS or MEDS, if several numeric fields together define which rows are close.",
        "CDSWAP, if equal values, not close ones, form the group.",
    ),
    references=(
        "Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm",
        "Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities",
        "Optim data privacy providers 11.3 and 11.7, module Data Swapping",
    ),
)
