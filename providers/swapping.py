"""What the swaps share: exchange values within groups, field by field or locked, and report it.

A provider says which rows form a group, in one `Exchange` or in several; all else is here: who
stands aside, the exchange itself, the suppression of what cannot be swapped, and the figures of the
report.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.errors import ParameterError, SourceError, did_you_mean
from providers.groups import Groups, Pairing, Workspace
from providers.kernels import shuffle_groups, sources
from providers.measures.risk import matching_bits
from providers.params import MovingParams, SwapParams
from providers.provider import Event, Events, GroupSize, Plan, Progress, Summary, SwapResult
from providers.radix import IndexArray, Int64Array, row_index_type
from providers.rng import Stream
from providers.suppression import (
    Unswappable,
    add_row_events,
    check_suppression,
    remaining_rows,
    suppress,
    union,
)
from providers.table import BoolArray, check_movable, null_mask, permute

P = TypeVar("P", bound=MovingParams)

REASONS = {"alone": 1, "group_too_small": 2, "null": 4, "rate": 8}
"""Why a swap field of a row kept its place -> the bit that says so."""
TOOK_PART = 16
"""The bit of a row whose value was exchanged."""


# --------------------------------------------------------------------------- against a schema, no data


def resolve_fields(params: P, schema: pa.Schema, control_fields: Sequence[str] = ()) -> P:
    """The parameters with every swap field by name, their suppression checked, too.

    Raises
    ------
    ParameterError
        As `resolve_names`; or a replacement does not fit.
    SourceError
        As `resolve_names`.
    """
    resolved = resolve_names(params, schema, control_fields)
    check_suppression(resolved, schema)
    return resolved


def resolve_names(params: P, schema: pa.Schema, control_fields: Sequence[str] = ()) -> P:
    """The parameters with every swap field by name.

    Raises
    ------
    ParameterError
        A field is unknown, out of range, named twice, both swap and control field, or of a type
        that cannot be moved.
    SourceError
        Two fields of the source have one name.
    """
    known = Counter(schema.names)
    for name, times in known.items():
        if times > 1:
            raise SourceError(f"the source holds {times} fields named '{name}'")
    by_index = bool(params.swap_field_indices)
    names = list(params.swap_fields)
    by_position = list(known)
    for at, index in enumerate(params.swap_field_indices):
        if index > len(known):
            message = f"there is no field {index}; the source has {len(known)}, the first being 1"
            raise ParameterError(message, f"/parameters/swap_field_indices/{at}")
        names.append(by_position[index - 1])
    named: set[str] = set()
    for at, name in enumerate(names):
        pointer = f"/parameters/{'swap_field_indices' if by_index else 'swap_fields'}/{at}"
        if name not in known:
            raise ParameterError(f"unknown field '{name}'{did_you_mean(name, known)}", pointer)
        if name in named:
            raise ParameterError(f"swap field '{name}' is named twice", pointer)
        named.add(name)
        if name in control_fields:
            raise ParameterError(f"field '{name}' is both swap and control field", pointer)
        check_movable(schema.field(name), pointer)
    return params.model_copy(update={"swap_fields": tuple(names), "swap_field_indices": ()})


def check_control_fields(control_fields: Sequence[str], schema: pa.Schema) -> None:
    """Raise ParameterError where a control field is unknown or named twice."""
    known = set(schema.names)
    named: set[str] = set()
    for at, name in enumerate(control_fields):
        pointer = control_pointer(control_fields, at)
        if name not in known:
            raise ParameterError(f"unknown control field '{name}'{did_you_mean(name, schema.names)}", pointer)
        if name in named:
            raise ParameterError(f"control field '{name}' is named twice", pointer)
        named.add(name)


def control_pointer(control_fields: Sequence[str], at: int, parameter: str = "control_field") -> str:
    """Where the control field (or what belongs to it) stands in the request."""
    return f"/parameters/{parameter}/{at}" if len(control_fields) > 1 else f"/parameters/{parameter}"


# ------------------------------------------------------------------------------------- who takes part


@dataclass(frozen=True, slots=True)
class Exchange:
    """Fields whose values are exchanged within the same groups."""

    fields: tuple[str, ...]
    groups: Groups
    """The rows of the table, cut into groups; those that take no part may be in none."""
    locked: bool
    """Whether the fields of a row move together."""
    absent: Mapping[str, BoolArray] = field(default_factory=dict)
    """Swap field -> the rows whose value of it takes no part, besides the nulls that ``nulls: keep``
    leaves aside; shape (rows,)."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Who can be swapped in one field, or in all of them when locked."""

    groups: Groups
    """The rows that may take part."""
    absent: IndexArray
    """Rows left out since their value is null, ascending."""
    alone: IndexArray
    too_small: IndexArray

    @property
    def unswappable(self) -> IndexArray:
        """Rows that cannot be swapped, ascending."""
        return np.sort(np.concatenate([self.alone, self.too_small]))


def _standing(groups: Groups, absent: BoolArray | None, min_group_size: int) -> Standing:
    nobody: IndexArray = np.zeros(0, row_index_type(groups.rows))
    if absent is not None and absent.any():
        groups = _without(groups, absent)
        missing = np.flatnonzero(absent)
    else:
        missing = nobody
    sizes = groups.sizes
    if not len(sizes) or sizes.min() >= min_group_size:
        return Standing(groups, missing, nobody, nobody)
    alone = np.sort(groups.order[groups.starts[:-1][sizes == 1]])
    small = (sizes > 1) & (sizes < min_group_size)
    too_small = np.sort(groups.order[np.repeat(small, sizes)]) if small.any() else nobody
    return Standing(groups, missing, alone, too_small)


def _without(groups: Groups, absent: BoolArray) -> Groups:
    """The groups without these rows; a group keeps its name, and goes where it has no row left."""
    present = ~absent[groups.order]
    left = np.concatenate([[0], np.cumsum(present)])[groups.starts]
    some = np.flatnonzero(np.diff(left))
    starts = np.append(left[some], left[-1]).astype(np.int64)
    return Groups(groups.rows, groups.order[present], starts, groups.identities[some])


def absent_rows(table: pa.Table, params: SwapParams, exchange: Exchange, name: str) -> BoolArray | None:
    """The rows whose value of this field takes no part; None where every row's does."""
    absent = exchange.absent.get(name)
    if params.nulls == "keep":
        nulls = null_mask(table.column(name))
        absent = nulls if absent is None else nulls | absent
    return absent if absent is not None and absent.any() else None


def standings_in(table: pa.Table, params: SwapParams, exchange: Exchange) -> dict[str, Standing]:
    """Swap field -> who can be swapped; one object for the fields that have the same."""
    absent = {name: absent_rows(table, params, exchange, name) for name in exchange.fields}
    if exchange.locked:
        masks = [mask for mask in absent.values() if mask is not None]
        absent = dict.fromkeys(absent, np.logical_or.reduce(masks) if masks else None)
    known: dict[int, Standing] = {}
    for mask in absent.values():
        if id(mask) not in known:
            known[id(mask)] = _standing(exchange.groups, mask, params.min_group_size)
    return {name: known[id(mask)] for name, mask in absent.items()}


class _Standings:
    """Who can be swapped in every field of every exchange."""

    def __init__(self, table: pa.Table, params: SwapParams, exchanges: Sequence[Exchange]) -> None:
        self.of_exchange = [
            (exchange, standings_in(table, params, exchange)) for exchange in exchanges if exchange.fields
        ]

    @property
    def by_field(self) -> dict[str, Standing]:
        """Swap field -> who can be swapped in it."""
        return {name: found for _, of_field in self.of_exchange for name, found in of_field.items()}

    @property
    def unswappable(self) -> Unswappable:
        """The rows that cannot be swapped, and how many groups hold them."""
        by_field = {name: standing.unswappable for name, standing in self.by_field.items()}
        groups = 0
        for exchange, of_field in self.of_exchange:
            rows = union(by_field[name] for name in of_field)
            if len(rows):
                within = np.searchsorted(exchange.groups.starts, exchange.groups.places[rows], side="right")
                groups += len(np.unique(within))
        return Unswappable(by_field, groups)

    def matching_bits(self, params: SwapParams) -> float:
        """log2 of the number of swaps that could have been drawn, all fields together."""
        bits: dict[int, float] = {}
        total = 0.0
        for exchange, of_field in self.of_exchange:
            for standing in list(of_field.values())[: 1 if exchange.locked else None]:
                if id(standing) not in bits:
                    sizes = standing.groups.sizes
                    bits[id(standing)] = matching_bits(sizes[sizes >= params.min_group_size], params.rate)
                total += bits[id(standing)]
        return total


def group_size(sizes: Int64Array) -> GroupSize:
    """Rows in the smallest, the median and the largest group."""
    if not len(sizes):
        return GroupSize(0, 0.0, 0)
    return GroupSize(int(sizes.min()), float(np.median(sizes)), int(sizes.max()))


def group_size_of_counts(groups: Counter[int]) -> GroupSize:
    """The same, of rows of a group -> how many groups have so many."""
    if not groups:
        return GroupSize(0, 0.0, 0)
    sizes = np.array(sorted(groups), np.int64)
    ends = np.cumsum([groups[size] for size in sizes.tolist()])
    middle = [(ends[-1] - 1) // 2, ends[-1] // 2]
    median = float(np.mean(sizes[np.searchsorted(ends, middle, side="right")]))
    return GroupSize(int(sizes[0]), median, int(sizes[-1]))


# --------------------------------------------------------------------------------------- plan and swap


def plan_within(table: pa.Table, params: SwapParams, groups: Groups, memory: int) -> Plan:
    """What `swap_within` would do. Raises UnswappableError where that would."""
    return plan_each(table, params, [Exchange(params.swap_fields, groups, params.locked)], memory)


def plan_each(table: pa.Table, params: SwapParams, exchanges: Sequence[Exchange], memory: int) -> Plan:
    """What `swap_each` would do. Raises UnswappableError where that would."""
    unswappable = _Standings(table, params, exchanges).unswappable
    groups = exchanges[0].groups
    if params.suppression.policy == "fail":
        suppress(table, params, unswappable, Events())
    return Plan(
        rows=table.num_rows,
        groups=len(groups.identities),
        group_size=group_size(groups.sizes),
        unswappable_rows=len(unswappable.rows),
        unswappable_groups=unswappable.groups,
        estimated_memory_bytes=memory,
    )


def estimated_memory(table: pa.Table, params: SwapParams, key_arrays: int = 0) -> int:
    """Bytes that a swap needs at its peak: the source, its swapped fields, and what orders the rows.

    Each row has, besides the values themselves, 4 bytes (8 beyond 2**31 rows) in each of its group's
    order, its place, the shuffled places and one scratch copy, and 8 for the values laid out by place;
    or, earlier and gone by then, the sort keys with two copies of key and row.
    """
    index = 4 if table.num_rows < 2**31 else 8
    fields = [table.column(name) for name in params.swap_fields]
    moved = sum(column.nbytes for column in fields)
    largest = max((column.nbytes for column in fields), default=0)
    exchanging = table.num_rows * (5 * index + 8) + largest
    grouping = table.num_rows * (8 * key_arrays + 2 * (8 + index)) if key_arrays else 0
    return int(table.nbytes + max(moved + exchanging, grouping))


def fields_read(params: MovingParams, others: Sequence[str] = ()) -> tuple[str, ...]:
    """The swap fields, those that suppression names, and others that a provider looks at; each once."""
    return tuple(dict.fromkeys([*params.swap_fields, *others, *params.suppression.fields]))


def memory_needed(params: MovingParams, rows: int, nbytes: int, key_arrays: int = 0) -> int:
    """About the bytes that a swap takes of `nbytes` of fields read; see `estimated_memory`."""
    index = 4 if rows < 2**31 else 8
    grouping = rows * (8 * key_arrays + 2 * (8 + index)) if key_arrays else 0
    return int(max(2 * nbytes + rows * (5 * index + 24), nbytes + grouping))


Watch = Callable[[str, Pairing], None]
"""Told each field's pairing; once, with the first field's name, when the fields are locked."""


def swap_within(
    table: pa.Table,
    params: SwapParams,
    groups: Groups,
    stream: Stream,
    progress: Progress,
    watch: Watch | None = None,
) -> SwapResult:
    """Exchange the swap fields' values within the groups; see `swap_each`."""
    exchanges = [Exchange(params.swap_fields, groups, params.locked)]
    return swap_each(table, params, exchanges, stream, progress, watch)


def swap_each(
    table: pa.Table,
    params: SwapParams,
    exchanges: Sequence[Exchange],
    stream: Stream,
    progress: Progress,
    watch: Watch | None = None,
) -> SwapResult:
    """Exchange the values of each exchange's fields within its groups.

    Parameters
    ----------
    table : pa.Table
        Left as it is.
    params : SwapParams
        Checked: every swap field by name. Rate, nulls, smallest group and suppression count for
        every exchange; which fields move, and whether they are locked, the exchanges say.
    exchanges : sequence of Exchange
        One or more, of different fields; at most one is locked. The summary's groups are the first's.
    stream : Stream
        Purposes: ``exchange`` when locked, else ``exchange/`` and the field's name.
    progress : Progress
    watch : callable, optional

    Returns
    -------
    SwapResult
        Among the provider's figures ``matching_bits``, from which `measures.risk.inversion_bits` follows.

    Raises
    ------
    UnswappableError
        Rows cannot be swapped and the policy is ``fail``; raised before anything is exchanged.
    """
    standings = _Standings(table, params, exchanges)
    unswappable = standings.unswappable
    events = Events()
    if params.suppression.policy == "fail":
        suppress(table, params, unswappable, events)
    figures = _Figures(table.num_rows)
    columns = list(table.columns)
    position = {name: at for at, name in enumerate(table.schema.names)}
    done, fields = 0, len(standings.by_field)
    workspace = Workspace()
    for exchange, of_field in standings.of_exchange:
        pairing: Pairing | None = None
        for number, (name, standing) in enumerate(of_field.items()):
            progress(0.3 + 0.6 * done / fields, f"exchanging {name}")
            again = exchange.locked and number > 0
            if not again:
                pairing = None  # the last one's arrays make room for the next one's
                key = stream.key("exchange" if exchange.locked else f"exchange/{name}")
                pairing = shuffle_groups(standing.groups, key, params.rate, params.min_group_size, workspace)
                if watch is not None:
                    watch(name, pairing)
            assert pairing is not None  # noqa: S101 - the first field made one
            last = not exchange.locked or number == len(of_field) - 1
            figures.add(name, standing, pairing, again)
            at = position[name]
            columns[at], figures.changed[name] = permute(columns[at], pairing, last, workspace)
            done += 1
    del workspace
    progress(0.9, "suppressing")
    swapped = pa.Table.from_arrays(columns, schema=table.schema)
    swapped, suppressed = suppress(swapped, params, unswappable, events)
    for exchange, of_field in standings.of_exchange:
        if exchange.locked:
            _report_kept_beside_nulls(table, params, exchange, of_field, events)
    for name, changed in figures.changed.items():
        if not changed and figures.took_part_by_field[name]:
            message = "every exchange was of equal values: no row's value changed"
            events.add(Event("nothing_changed", message, field=name))
    own_figures = {"matching_bits": standings.matching_bits(params)}
    summary = figures.summary(exchanges[0].groups, suppressed)
    origin = remaining_rows(params, unswappable, table.num_rows)
    return SwapResult(swapped, summary, events, own_figures, origin=origin)


def _report_kept_beside_nulls(
    table: pa.Table, params: SwapParams, exchange: Exchange, standings: dict[str, Standing], events: Events
) -> None:
    kept: dict[tuple[str, str | None], IndexArray] = {}
    for name, standing in standings.items():
        if len(standing.absent):
            own = absent_rows(table, params, exchange, name)
            kept["null_kept", name] = (
                standing.absent if own is None else standing.absent[~own[standing.absent]]
            )
    add_row_events(events, kept)


def row_marks(standing: Standing, pairing: Pairing) -> npt.NDArray[np.uint8]:
    """For each row the bits of `TOOK_PART` and `REASONS`; shape (rows,)."""
    rows = pairing.groups.rows
    if int(pairing.took_part.sum()) == rows:
        return np.full(rows, TOOK_PART, np.uint8)
    marks: npt.NDArray[np.uint8] = np.zeros(rows, np.uint8)
    moved = sources(pairing) != np.arange(rows)  # who takes part gets another row's value
    marks[moved] = TOOK_PART
    marks[standing.absent] |= REASONS["null"]
    marks[standing.alone] |= REASONS["alone"]
    marks[standing.too_small] |= REASONS["group_too_small"]
    if not pairing.odd_rule:  # below rate 1
        drawn_for = np.zeros(rows, np.bool_)
        drawn_for[standing.groups.order] = True
        drawn_for[standing.alone] = drawn_for[standing.too_small] = False
        marks[drawn_for & ~moved] |= REASONS["rate"]
    return marks


class _Figures:
    """The figures of the report, gathered field by field."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.took_part_by_field: dict[str, int] = {}
        self.changed: dict[str, int] = {}
        self._took_part: BoolArray = np.zeros(rows, np.bool_)
        self._everyone = False  # in one field at least: then the rows need no marks
        self._reasons: npt.NDArray[np.uint8] = np.zeros(rows, np.uint8)
        self._noted = False  # a reason for a row: an untouched array of zeros takes no memory

    def add(self, name: str, standing: Standing, pairing: Pairing, again: bool) -> None:
        """Count who takes part in one field's exchange."""
        took_part = int(pairing.took_part.sum())
        self.took_part_by_field[name] = took_part
        if again:  # locked: the same rows
            return
        if took_part == self.rows:
            self._everyone = True
            return
        marks = row_marks(standing, pairing)
        self._took_part |= marks & TOOK_PART != 0
        reasons = marks & ~np.uint8(TOOK_PART)
        if reasons.any():
            self._reasons |= reasons
            self._noted = True

    def summary(self, groups: Groups, suppressed: int) -> Summary:
        """The figures together."""
        noted = self._reasons[self._reasons > 0] if self._noted else self._reasons[:0]
        reasons = {name: int(np.count_nonzero(noted & bit)) for name, bit in REASONS.items()}
        shares = [count / self.rows for count in self.took_part_by_field.values() if self.rows]
        return Summary(
            rows=self.rows,
            groups=len(groups.identities),
            group_size=group_size(groups.sizes),
            took_part=self.rows if self._everyone else int(np.count_nonzero(self._took_part)),
            took_part_by_field=self.took_part_by_field,
            changed=self.changed,
            suppressed=suppressed,
            unswapped=len(noted),
            unswapped_reasons={name: count for name, count in reasons.items() if count},
            achieved_rate=sum(shares) / len(shares) if shares else 0.0,
        )
