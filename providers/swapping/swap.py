"""Plan and run an exchange within groups; build its report.

A service defines which rows form a group, in one `Exchange` or in several. This module finds the rows that
take part, exchanges their values, suppresses rows that cannot be swapped, and builds the report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray
from providers.errors import ParameterError
from providers.grouping.groups import BufferPool, Groups, Pairing
from providers.params import PairingParams, SwapParams
from providers.progress import Progress
from providers.randomness.chacha20 import Stream
from providers.results import Event, Events, Plan, Summary, SwapResult, group_size
from providers.swapping.guarantee import expected_rows, guarantee_figures, with_rate
from providers.swapping.participation import (
    REASONS,
    TOOK_PART,
    Exchange,
    Participation,
    absent_mask,
    participation_by_field,
    row_marks,
)
from providers.swapping.permutation import draw_exchange, purpose
from providers.swapping.permute import permute
from providers.swapping.report import add_nothing_changed_events, search_space_figures, swap_summary
from providers.swapping.reversible_groups import (
    GroupBits,
    exchanged_share,
    group_bits,
    refuse_reversible,
    warn_of_reversible,
)
from providers.swapping.risk_report import RiskFigures
from providers.swapping.risk_selection import required_sizes, select_rows
from providers.swapping.row_checks import Move, Repair, RowChecks
from providers.swapping.row_risk import row_risk
from providers.swapping.search_space import size_counts
from providers.swapping.suppression import Unswappable, add_row_events, remaining_rows, suppress, union


def _only_reorders(params: SwapParams, schema: pa.Schema, constant: Sequence[str]) -> bool:
    """Whether the swap fields move together and all other fields are constant within every group."""
    together = params.locked or len(params.swap_fields) == 1
    return together and len(params.swap_fields) + len(constant) == len(schema)


def refuse_reordering(params: SwapParams, schema: pa.Schema, constant: Sequence[str] = ()) -> None:
    """Raise ParameterError if several swap fields move together and no other field stays.

    Parameters
    ----------
    params : SwapParams
        Checked: every swap field by name.
    schema : pa.Schema
        Schema of the whole source.
    constant : sequence of str
        Fields whose values are equal within every group, so that they need not move to stay together.
    """
    if len(params.swap_fields) > 1 and _only_reorders(params, schema, constant):
        exception = (
            f" but {', '.join(map(repr, constant))}, which is the same for all rows of a class,"
            if constant
            else ""
        )
        raise ParameterError(
            f"every field{exception} is a swap field: moved together they only change the order of the rows, "
            "which protects nobody; leave at least one field out, or set 'locked' to false",
            "/parameters/locked",
        )


def reordering_notices(
    params: SwapParams, schema: pa.Schema, constant: Sequence[str] = ()
) -> tuple[Event, ...]:
    """Return an event if a single swap field moves and no other field stays; see `refuse_reordering`."""
    if not _only_reorders(params, schema, constant):
        return ()
    message = (
        f"the exchange separates '{params.swap_fields[0]}' from no other field: as a table the destination "
        "holds the source's rows in another order, which protects nobody; send the fields that stay with "
        "their row as well"
    )
    return (Event(ROWS_ONLY_REORDERED, message),)


MOVED_VALUES = (
    "A table without rows is a valid result. If all values of a field are equal, its rows take part and "
    "nothing changes: the event `nothing_changed` names the field.",
    "Values of every type move bit by bit: integers of any size, NaN, infinities, 0.0 and -0.0. `changed` "
    "compares bits, so that 0.0 and -0.0 are different values.",
)
"""Treatment of special values by every service that exchanges values, for its page."""

ONE_ROW = "A table of one row has no partner: `suppression` decides about its values."

NAN_IS_A_VALUE = "NaN is a value and no null: `nulls` does not concern it."

ROWS_ONLY_REORDERED = "rows_only_reordered"
"""Code of the event about a destination that only reorders rows."""


class _AllParticipation:
    """Participation in every field of every exchange of a run."""

    def __init__(
        self,
        table: pa.Table,
        params: SwapParams,
        exchanges: Sequence[Exchange],
        required: BoolArray | None = None,
    ) -> None:
        """``required``: rows that must take part for their risk; None: rows are not selected by risk."""
        self._required = required
        self.by_exchange = [
            (exchange, participation_by_field(table, params, exchange))
            for exchange in exchanges
            if exchange.fields
        ]
        self.counts = self._counts(params.min_group_size)
        """For each random order: group size -> number of groups that are exchanged."""
        self.rows_too_small = int(sum(len(entry.too_small) for entry in self.by_field.values()))
        """Rows in groups of two or more below the smallest size, summed over the fields."""
        self.params = with_rate(params, self.counts, self.rows_too_small)
        """Parameters with the rate that meets `target_epsilon`, if there is one."""

    @property
    def by_field(self) -> dict[str, Participation]:
        """Swap field -> participation."""
        return {name: entry for _, by_field in self.by_exchange for name, entry in by_field.items()}

    @property
    def unswappable(self) -> Unswappable:
        """Rows that cannot be swapped, and the number of groups that hold them."""
        by_field = {name: entry.unswappable for name, entry in self.by_field.items()}
        # Exchanges that share one Groups object share its groups, which count once.
        by_groups: dict[int, tuple[Groups, list[IndexArray]]] = {}
        for exchange, fields in self.by_exchange:
            _, row_arrays = by_groups.setdefault(id(exchange.groups), (exchange.groups, []))
            row_arrays += [by_field[name] for name in fields]
        count = 0
        for groups, row_arrays in by_groups.values():
            rows = union(row_arrays)
            if len(rows):
                within = np.searchsorted(groups.starts, groups.places[rows], side="right")
                count += len(np.unique(within))
        return Unswappable(by_field, count)

    @property
    def moves(self) -> list[tuple[str, ...]]:
        """Fields of each random order: all fields of a locked exchange, else one."""
        return [
            fields
            for exchange, by_field in self.by_exchange
            for fields in ([tuple(by_field)] if exchange.locked else [(name,) for name in by_field])
        ]

    def expected_rows(self) -> dict[str, float]:
        """Return swap field -> expected number of rows that take part; empty with risk or a repair."""
        if self.params.risk is not None or self.params.on_broken == "repair":
            return {}
        expected = expected_rows(self.params, self.counts)
        return {name: rows for fields, rows in zip(self.moves, expected, strict=True) for name in fields}

    def guarantee(self) -> dict[str, Any]:
        """Return the provider's figure `guarantee` of the permutation mechanism, else nothing."""
        return guarantee_figures(self.params, self.moves, self.counts, self.rows_too_small)

    def _counts(self, min_group_size: int) -> list[dict[int, int]]:
        counts: dict[int, dict[int, int]] = {}
        drawn: list[dict[int, int]] = []
        for exchange, by_field in self.by_exchange:
            for entry in list(by_field.values())[: 1 if exchange.locked else None]:
                if id(entry.groups) not in counts:
                    sizes = entry.groups.sizes
                    counts[id(entry.groups)] = size_counts(sizes[sizes >= min_group_size])
                drawn.append(counts[id(entry.groups)])
        return drawn

    @property
    def group_bits(self) -> GroupBits:
        """Summary of the groups' possible exchanges; with `risk` of the rows that must take part."""
        if self._required is None:
            return group_bits(self.counts, self.params.rate, self.params.mechanism)
        return group_bits(self._required_counts(self._required), 1.0)

    def _required_counts(self, required: BoolArray) -> list[dict[int, int]]:
        entries = {id(entry): entry for entry in self.by_field.values()}
        return [size_counts(required_sizes(entry, required)) for entry in entries.values()]


# --------------------------------------------------------------------------------------- plan and swap


def plan_within(table: pa.Table, params: SwapParams, groups: Groups, memory: int) -> Plan:
    """Return what `swap_within` would do; raise UnswappableError or ReversibleError as it would."""
    return plan_each(table, params, [Exchange(params.swap_fields, groups, params.locked)], memory)


def plan_each(table: pa.Table, params: SwapParams, exchanges: Sequence[Exchange], memory: int) -> Plan:
    """Return what `swap_each` would do; raise UnswappableError or ReversibleError as it would."""
    required = None if params.risk is None else row_risk(table, params.risk).required
    participation = _AllParticipation(table, params, exchanges, required)
    params = participation.params
    unswappable, bits = participation.unswappable, participation.group_bits
    groups = exchanges[0].groups
    if params.suppression.policy == "fail":
        suppress(table, params, unswappable, Events())
    refuse_reversible(params, bits)
    return Plan(
        rows=table.num_rows,
        groups=len(groups.identities),
        group_size=group_size(groups.sizes),
        unswappable_rows=len(unswappable.rows),
        unswappable_groups=unswappable.groups,
        estimated_memory_bytes=memory,
        reversible_rows=bits.reversible_rows(exchanged_share(params)),
        guarantee=participation.guarantee().get("guarantee"),
        expected_part_by_field=participation.expected_rows(),
    )


def estimated_memory(table: pa.Table, params: SwapParams, key_arrays: int = 0) -> int:
    """Peak memory in bytes of a swap: the source, the swapped fields, and the orders of the rows.

    For each row, the exchange needs 4 bytes (8 beyond 2**31 rows) in each of five arrays of row numbers, and
    8 for the values by place. Sorting the rows needs the sort keys with two copies of key and row; that
    memory is free again before the exchange.

    Parameters
    ----------
    table : pa.Table
    params : SwapParams
        Checked.
    key_arrays : int
        Number of sort keys by which groups are formed.
    """
    index_bytes = _index_bytes(table.num_rows)
    fields = [table.column(name) for name in params.swap_fields]
    moved = sum(column.nbytes for column in fields)
    largest = max((column.nbytes for column in fields), default=0)
    exchanging = table.num_rows * (5 * index_bytes + 8 + _selection_bytes(params)) + largest
    return int(table.nbytes + max(moved + exchanging, _sorting_memory(table.num_rows, key_arrays)))


def memory_needed(params: PairingParams, rows: int, nbytes: int, key_arrays: int = 0) -> int:
    """Estimate the peak memory in bytes of a swap that reads `nbytes` of fields; see `estimated_memory`."""
    exchanging = 2 * nbytes + rows * (5 * _index_bytes(rows) + 24 + _selection_bytes(params))
    return int(max(exchanging, nbytes + _sorting_memory(rows, key_arrays)))


def least_memory(params: PairingParams, rows: int) -> int:
    """Return the bytes that a swap takes at least, in addition to the fields read.

    Only swaps that need the whole table need an estimate: others run out of core where they do not fit.
    """
    return rows * _selection_bytes(params) // 2


def _selection_bytes(params: PairingParams) -> int:
    """Bytes of a row's risk, codes, chances, order, masks, and of household, series and checks, if used."""
    by_risk = params.selection_by_risk is not None
    if not isinstance(params, SwapParams):
        return 96 * by_risk
    by_household = params.moving_unit is not None or params.household_check is not None
    in_series = 176 * (params.series is not None)  # hashes of ids, and a copy of the arrivals' rows
    return 96 * (by_risk + by_household + bool(params.checks)) + in_series


def _index_bytes(rows: int) -> int:
    """Bytes of a row number."""
    return 4 if rows < 2**31 else 8


def _sorting_memory(rows: int, key_arrays: int) -> int:
    """Bytes of the sort keys, and of two copies of key and row number."""
    return rows * (8 * key_arrays + 2 * (8 + _index_bytes(rows))) if key_arrays else 0


Watch = Callable[[str, Pairing], None]
"""Callback(field, pairing) for each field; if the fields are locked, once, with the first field."""


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
        The source; not modified.
    params : SwapParams
        Checked: every swap field by name. Rate, nulls, smallest group and suppression apply to every
        exchange; the exchanges define which fields move, and whether they are locked.
    exchanges : sequence of Exchange
        One or more, of different fields; at most one is locked. The summary describes the groups of the
        first one.
    stream : Stream
        Purposes: ``exchange`` when locked, else ``exchange/`` and the field's name; with the permutation
        mechanism ``permutation`` in place of ``exchange``.
    progress : Progress
    watch : callable, optional

    Returns
    -------
    SwapResult
        The provider's figures include ``matching_bits``, from which the measure `inversion_bits` follows,
        and those of `GroupBits`; with `risk` those of `RiskFigures`; with a repair those of `Repair`.

    Raises
    ------
    UnswappableError
        Rows cannot be swapped and the policy is ``fail``; raised before anything is exchanged.
    ReversibleError
        Groups are reversible and `on_reversible` is ``fail``; raised before anything is exchanged.
    """
    selection = None if params.risk is None else select_rows(table, params, stream)
    participation = _AllParticipation(
        table, params, exchanges, None if selection is None else selection.required
    )
    params = participation.params
    unswappable, bits = participation.unswappable, participation.group_bits
    events = Events()
    at_risk = None if selection is None else RiskFigures(table, params, selection)
    if params.suppression.policy == "fail":
        suppress(table, params, unswappable, events)
    refuse_reversible(params, bits)
    figures = _Figures(table.num_rows)
    columns = list(table.columns)
    position = {name: at for at, name in enumerate(table.schema.names)}
    done, fields = 0, len(participation.by_field)
    workspace = BufferPool()
    repaired = _repaired(table, params, participation, stream)
    for exchange, by_field in participation.by_exchange:
        pairing: Pairing | None = None
        for number, (name, entry) in enumerate(by_field.items()):
            progress(0.3 + 0.6 * done / fields, f"exchanging {name}")
            reuse_pairing = exchange.locked and number > 0
            if not reuse_pairing:
                pairing = None  # free the previous pairing before the next one is drawn
                key = stream.key(purpose(params, None if exchange.locked else name))
                if repaired is not None:
                    pairing = repaired.pairing(name)
                elif at_risk is None:
                    pairing = draw_exchange(entry.groups, key, params, workspace)
                else:
                    pairing = at_risk.exchange(entry, key, workspace)
                if watch is not None:
                    watch(name, pairing)
            assert pairing is not None  # noqa: S101 - the first field made one
            last = not exchange.locked or number == len(by_field) - 1
            restored = None if repaired is None else repaired.move(name).restored
            figures.add(name, entry, pairing, reuse_pairing, restored)
            index = position[name]
            if at_risk is None:
                columns[index], figures.changed[name] = permute(columns[index], pairing, last, workspace)
            else:
                columns[index], figures.changed[name] = at_risk.permute(name, columns[index])
            done += 1
    del workspace
    progress(0.9, "suppressing")
    swapped = pa.Table.from_arrays(columns, schema=table.schema)
    swapped, suppressed = suppress(swapped, params, unswappable, events)
    for exchange, by_field in participation.by_exchange:
        if exchange.locked:
            _add_null_kept_events(table, params, exchange, by_field, events)
    add_nothing_changed_events(figures.changed, figures.took_part_by_field, events)
    warn_of_reversible(params, bits, events)
    origin = remaining_rows(params, unswappable, table.num_rows)
    if at_risk is None:
        provider_figures = search_space_figures(participation.counts, bits, params.rate, params.mechanism)
        provider_figures |= participation.guarantee()
    else:
        chosen = group_bits(at_risk.counts, 1.0)
        known = replace(bits, smallest=chosen.smallest, p05=chosen.p05)
        provider_figures = search_space_figures(at_risk.counts, known, 1.0)
        provider_figures |= at_risk.figures(swapped, origin)
        at_risk.add_events(events)
    if repaired is not None:
        repaired.add_events(events)
        provider_figures["checks"] = repaired.figures
    summary = figures.summary(exchanges[0].groups, suppressed)
    return SwapResult(swapped, summary, events, provider_figures, origin=origin)


def _repaired(
    table: pa.Table, params: SwapParams, participation: _AllParticipation, stream: Stream
) -> Repair | None:
    """Draw all exchanges and repair exchanges that break a check; None if the run repairs none."""
    if params.on_broken != "repair":
        return None
    moves = []
    for exchange, by_field in participation.by_exchange:
        for fields in [tuple(by_field)] if exchange.locked else [(name,) for name in by_field]:
            drawn_for = purpose(params, None if exchange.locked else fields[0])
            entry = by_field[fields[0]]
            pairing = draw_exchange(entry.groups, stream.key(drawn_for), params)
            moves.append(Move.of(drawn_for, fields, entry, pairing))
    repair = Repair(RowChecks(table, params), moves, stream)
    repair.run()
    return repair


def _add_null_kept_events(
    table: pa.Table,
    params: SwapParams,
    exchange: Exchange,
    by_field: dict[str, Participation],
    events: Events,
) -> None:
    """Record an event for each value that stays because another locked field of its row is null."""
    kept: dict[tuple[str, str | None], IndexArray] = {}
    for name, entry in by_field.items():
        if len(entry.absent):
            field_absent = absent_mask(table, params, exchange, name)
            kept["null_kept", name] = (
                entry.absent if field_absent is None else entry.absent[~field_absent[entry.absent]]
            )
    add_row_events(events, kept)


class _Figures:
    """Figures of the report, collected field by field."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.took_part_by_field: dict[str, int] = {}
        self.changed: dict[str, int] = {}
        self._took_part: BoolArray = np.zeros(rows, np.bool_)
        self._all_took_part = False  # in at least one field; then rows need no marks
        self._reasons: npt.NDArray[np.uint8] = np.zeros(rows, np.uint8)
        self._has_reasons = False  # while False, the untouched zeros above take no memory

    def add(
        self,
        name: str,
        participation: Participation,
        pairing: Pairing,
        same_rows: bool,
        restored: BoolArray | None = None,
    ) -> None:
        """Count the rows that take part in a field.

        Parameters
        ----------
        name : str
        participation : Participation
        pairing : Pairing
        same_rows : bool
            Whether they are those of the previous, locked field.
        restored : ndarray of bool, shape (rows,), optional
            Rows whose exchange was undone, since it broke a check.
        """
        took_part = int(pairing.took_part.sum())
        self.took_part_by_field[name] = took_part
        if same_rows:
            return
        if took_part == self.rows:
            self._all_took_part = True
            return
        marks = row_marks(participation, pairing)
        if restored is not None:
            marks[restored] = REASONS["check"]
        self._took_part |= marks & TOOK_PART != 0
        reasons = marks & ~np.uint8(TOOK_PART)
        if reasons.any():
            self._reasons |= reasons
            self._has_reasons = True

    def summary(self, groups: Groups, suppressed: int) -> Summary:
        """Build the summary of the report."""
        marks = self._reasons[self._reasons > 0] if self._has_reasons else self._reasons[:0]
        return swap_summary(
            rows=self.rows,
            groups=len(groups.identities),
            group_size=group_size(groups.sizes),
            took_part=self.rows if self._all_took_part else int(np.count_nonzero(self._took_part)),
            took_part_by_field=self.took_part_by_field,
            changed=self.changed,
            suppressed=suppressed,
            unswapped=len(marks),
            reasons={name: int(np.count_nonzero(marks & bit)) for name, bit in REASONS.items()},
        )
