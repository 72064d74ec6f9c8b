"""DSWAP: exchange the values of the swap fields between random pairs of rows of the whole table.

The rows are put into a uniformly random order and paired: first with second, third with fourth, and so on.
The two rows of a pair take each other's values; with an odd number of rows, the last three form a cycle.
Each swap field has its own random pairs, unless `locked` is true: then the swap fields of a row move
together, which keeps the correlations between them. At a `rate` below 1 only that share of the rows is
paired; the others keep their values.

With `mechanism` set to `permutation`, each row of a table is selected with probability `rate`, and the
selected rows are permuted at random so that none keeps its place. The report then states an exact epsilon.

With `risk`, rows whose combination of key fields is rare always take part, and the others up to `rate`, each
with a probability in proportion to its risk.

With `household`, whole households of equal size are exchanged, member by member in the order of rows.

With `unit_id`, units such as persons who occur in several rows move in the same way. In a `series` a unit
keeps its partner in every table.

References
----------
Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm.
Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities.
Optim data privacy providers 11.3 and 11.7, module Data Swapping: "Data Swapping" and "Locked Swap".
Dalenius and Reiss 1982, doi:10.1016/0378-3758(82)90058-1: data swapping.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from providers.grouping.groups import Groups
from providers.params import SwapParams
from providers.progress import Progress
from providers.provider import Provider, Scaling, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import Plan, SwapResult
from providers.storage import Resources, Source
from providers.swapping.fields import fields_read, resolve_fields
from providers.swapping.guarantee import PERMUTATION_RELEASES, permutation_guarantee
from providers.swapping.households import (
    HOUSEHOLD_GUARANTEE,
    HOUSEHOLD_LIMIT,
    Members,
    absent_households,
    alike,
    moving_members,
    plan_households,
    swap_households,
)
from providers.swapping.out_of_core.distribute import sharing_of_everything
from providers.swapping.out_of_core.swap import swap_outside
from providers.swapping.participation import Exchange
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
    plan_within,
    refuse_reordering,
    reordering_notices,
    swap_within,
)
from providers.swapping.torn_households import TornHouseholds
from providers.tables.series_pairs import SeriesPairs


class DswapParams(SwapParams):
    """The parameters of DSWAP."""

    def larger_groups(self) -> str:
        """Return advice for a table of two or three rows."""
        return "swap a table in which four rows or more take part"


def check(params: DswapParams, schema: pa.Schema) -> DswapParams:
    """Return the parameters with every field by name; raise ParameterError or SourceError."""
    resolved = resolve_fields(params, schema)
    refuse_reordering(resolved, schema)
    return resolved


def whole_table(rows: int) -> Groups:
    """Return all rows as one group with identity 0; a table without rows has no group."""
    starts = np.array([0, rows] if rows else [0], np.int64)
    return Groups(rows, None, starts, np.zeros(min(rows, 1), np.uint64))


def plan(table: pa.Table, params: DswapParams) -> Plan:
    """Return what `swap` would do, without a random draw; a series has no plan."""
    refuse_series(params)
    if params.moving_unit is not None:
        members, exchanges = household_exchanges(table, params)
        return plan_households(table, params, members, exchanges, estimated_memory(table, params))
    return plan_within(table, params, whole_table(table.num_rows), estimated_memory(table, params))


def swap(
    table: pa.Table,
    params: DswapParams,
    stream: Stream,
    progress: Progress,
    series: SeriesPairs | None = None,
) -> SwapResult:
    """Exchange the swap fields' values between uniformly random pairs of rows; ``series``: earlier pairs."""
    if series is None:
        refuse_series(params)
    if series is not None and params.series is not None:
        result = swap_series(table, params, household_exchanges, stream, progress, series).result
        return report_checks(table, params, result)
    if params.moving_unit is not None:
        members, exchanges = household_exchanges(table, params)
        result = swap_households(table, params, members, exchanges, stream, progress)
        return report_checks(table, params, result)
    torn = None if params.household_check is None else TornHouseholds(table, params)
    watch = None if torn is None else torn.add
    result = swap_within(table, params, whole_table(table.num_rows), stream, progress, watch)
    if torn is not None:
        torn.report(result)
    return report_checks(table, params, result)


def household_exchanges(table: pa.Table, params: DswapParams) -> tuple[Members, list[Exchange]]:
    """Group the households of equal size."""
    members = moving_members(table, params)
    absent = absent_households(table, params, members)
    return members, [Exchange(params.swap_fields, alike(members), params.locked, absent)]


def swap_out_of_core(
    source: Source, params: DswapParams, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Do the same as `swap` with only a range of the random order's buckets in memory at a time."""
    return swap_outside(source, params, stream, progress, resources, None)


PROVIDER = Provider(
    identifier="DSWAP",
    title="Data swapping",
    summary="Exchanges values between random pairs of rows of the whole table.",
    revision=3,
    draws_revision=2,
    params=DswapParams,
    check=check,
    plan=plan,
    swap=swap,
    swap_series=swap,
    notices=reordering_notices,
    guarantees=(
        "Every field keeps its values: only their rows change, unless something is suppressed.",
        "At rate 1 every row of a table of two or more rows receives another row's value.",
        "The pairs are uniformly random. Someone who learns some of the pairs learns nothing about the seed, "
        "and the other pairs stay uniform over the remaining matchings: in a table of four rows one known "
        "pair fixes the other. `group_bits` in the report says how many matchings there are.",
        "Fields other than the swap fields stay as they are, unless they are named for suppression.",
        permutation_guarantee("table"),
        RISK_GUARANTEE,
        HOUSEHOLD_GUARANTEE,
        SERIES_GUARANTEE,
        CHECK_GUARANTEE,
    ),
    changes=(
        "The row that a value belongs to. Unlocked, also the combinations of values of the swap fields.",
        "Correlations of the swap fields with all others (and, unlocked, with each other) go towards zero.",
    ),
    limits=(
        "An exchange of equal values changes nothing: `changed` counts the rows whose value differs.",
        "Fields that are not swapped stay with their row: anyone who identifies a person by them learns "
        "which row belongs to that person, and the values of that row that were not swapped.",
        "A value that only one person can have reveals that this person is in the table.",
        RISK_LIMIT,
        HOUSEHOLD_LIMIT,
        SERIES_LIMIT,
        CHECK_LIMIT,
    ),
    repeated_releases=(
        "At a rate below 1 a row keeps its value in most releases, and its most frequent value is its own: "
        "20 releases with different seeds recover 100 % of svcensus' incomes at rate 0.3 and 0.5, and 83 % "
        "at 0.8.",
        "At rate 1 each release excludes one value for each row, which reveals little in a large table.",
        PERMUTATION_RELEASES,
        "Release a source once. A rerun with the same seed gives the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: fields_read(params),
        memory=memory_needed,
        cut="The random order of the rows consists of buckets of about 6,000 rows. Each range of buckets is "
        "exchanged on its own, field by field when unlocked. The units of a divided job are fields and "
        "ranges of buckets. Each unit reads the source and computes the bucket of every row without the "
        "other units."
        " With `risk`, `household`, `household_check`, `unit_id` or `checks` the run is not cut, since it "
        "needs the whole table.",
        swap=swap_out_of_core,
        can_cut=lambda params: params.whole_table is None,
        least=least_memory,
        sharing=sharing_of_everything(),
    ),
    cost="O(n) time per field; at the peak, three times the memory of the swap fields.",
    special_values=(
        *MOVED_VALUES,
        ONE_ROW,
        NAN_IS_A_VALUE,
    ),
    instead=(
        "CDSWAP, if statistics by town, branch or diagnosis must not change.",
        "DDSWAP, MEWS or MEDS, if correlations with numeric fields must change little.",
    ),
    references=(
        "Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm",
        "Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities",
        "Optim data privacy providers 11.3 and 11.7, module Data Swapping",
        "Dalenius and Reiss 1982, Data-swapping: a technique for disclosure control, "
        "doi:10.1016/0378-3758(82)90058-1",
    ),
)
