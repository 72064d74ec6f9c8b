"""DSWAP: values are exchanged between rows drawn from the whole table.

References
----------
Optim data privacy providers 11.3 and 11.7, module Data Swapping.
Dalenius and Reiss 1982, doi:10.1016/0378-3758(82)90058-1: data swapping.
"""

import numpy as np
import pyarrow as pa

from providers.external.sharing import sharing_of_everything
from providers.external.swaps import swap_outside
from providers.groups import Groups
from providers.params import SwapParams
from providers.provider import Plan, Progress, Provider, Scaling, Streamed, SwapResult
from providers.rng import Stream
from providers.storage import Room, Source
from providers.swapping import (
    estimated_memory,
    fields_read,
    memory_needed,
    plan_within,
    resolve_fields,
    swap_within,
)


class DswapParams(SwapParams):
    """The parameters of DSWAP."""


def check(params: DswapParams, schema: pa.Schema) -> DswapParams:
    """The parameters with every field by name."""
    return resolve_fields(params, schema)


def whole_table(rows: int) -> Groups:
    """All rows as one group, named 0; no group where there is no row."""
    starts = np.array([0, rows] if rows else [0], np.int64)
    return Groups(rows, None, starts, np.zeros(min(rows, 1), np.uint64))


def plan(table: pa.Table, params: DswapParams) -> Plan:
    """What `swap` would do."""
    return plan_within(table, params, whole_table(table.num_rows), estimated_memory(table, params))


def swap(table: pa.Table, params: DswapParams, stream: Stream, progress: Progress) -> SwapResult:
    """The table with the swap fields' values exchanged between uniformly drawn pairs of rows."""
    return swap_within(table, params, whole_table(table.num_rows), stream, progress)


def swap_out_of_core(
    source: Source, params: DswapParams, stream: Stream, progress: Progress, room: Room
) -> Streamed:
    """As `swap`, the table being one group of which a range of random buckets is in memory at a time."""
    return swap_outside(source, params, stream, progress, room, None)


PROVIDER = Provider(
    identifier="DSWAP",
    title="Data swapping",
    summary="Exchanges values between rows drawn from the whole table.",
    revision=1,
    params=DswapParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "Every field keeps its values: only their rows change, unless something is suppressed.",
        "At rate 1 every row of a table of two or more rows receives another row's value.",
        "The pairs are uniformly random; some of them known, nothing is learnt of the rest.",
        "Fields other than the swap fields stay as they are, unless they are named for suppression.",
    ),
    changes=(
        "Which row a value stands in: unlocked, also which values of the swap fields stand side by side.",
        "Correlations of the swap fields with all others (and, unlocked, with each other) go towards zero.",
    ),
    limits=(
        "An exchange of equal values changes nothing: `changed` counts the rows whose value differs.",
        "Fields that are not swapped stay with their row: whoever finds a person by them learns which row "
        "is hers, and what else stands there unswapped.",
        "A value that only one person can have tells that this person is in the table.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: fields_read(params),
        memory=lambda params, rows, nbytes: memory_needed(params, rows, nbytes),
        cut="The random order of the rows is made of buckets of about 6,000 rows: each range of buckets is "
        "exchanged on its own, field by field when unlocked. Units of a shared job are fields, and ranges of "
        "buckets: each reads the source and knows every row's bucket without the other units.",
        swap=swap_out_of_core,
        sharing=sharing_of_everything(),
    ),
    cost="O(n) time a field; three times the swap fields' memory at the peak.",
    instead=(
        "CDSWAP, where a figure by town, branch or diagnosis must stay as it is.",
        "DDSWAP, MEWS or MEDS, where correlations with numeric fields must nearly stay.",
    ),
    references=(
        "Optim data privacy providers 11.3 and 11.7, module Data Swapping",
        "Dalenius and Reiss 1982, Data-swapping: a technique for disclosure control, "
        "doi:10.1016/0378-3758(82)90058-1",
    ),
)
