"""Exchange of whole households of equal size: a table with one row a household goes through the swap of rows.

Households are numbered in the order of their ids, so that the same seed gives a household the same partner
however the households are ordered in the table. Two households exchange values member by member, in a stated
order of the members. The random draws, the selection by risk and the permutation mechanism work as for rows,
with a household in place of a row. The report counts rows, except for groups and risks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import BoolArray, IndexArray, Int64Array, row_index_type
from providers.errors import ReversibleError, SourceError
from providers.grouping.groups import Groups, Pairing
from providers.params import RiskSelection, Suppression, SwapParams
from providers.progress import Progress
from providers.randomness.chacha20 import Stream
from providers.results import Event, Events, Plan, Summary, SwapResult, group_size
from providers.swapping.exchange import sources
from providers.swapping.participation import (
    REASONS,
    Exchange,
    Participation,
    groups_without,
    participation_by_field,
)
from providers.swapping.report import add_nothing_changed_events, swap_summary
from providers.swapping.reversible_groups import REVERSIBLE_GROUPS, GroupBits, warn_of_reversible
from providers.swapping.risk_report import RISK_UNSWAPPED, deciles_of, unique_rows
from providers.swapping.row_risk import row_risk
from providers.swapping.suppression import Unswappable, remaining_rows, suppress, union
from providers.swapping.swap import Watch, plan_each, swap_each
from providers.tables.codes import codes
from providers.tables.columns import gathered, null_mask
from providers.tables.households import households_of

T = TypeVar("T")

HOUSEHOLD_GUARANTEE = (
    "With `household` or `unit_id`: the rows of a household or unit stay together. Whole households or units "
    "of equal size are exchanged, row by row, so that all values of a household or unit come from one other."
)
"""Sentence for the pages of the services about whole households."""

HOUSEHOLD_LIMIT = (
    "With `household` or `unit_id`: households or units of a rare size have few partners or none, and anyone "
    "who knows a household or unit by the values of all of its rows recognises them in their new place. With "
    "`unit_sizes` set to `any`, the number of rows with each value changes."
)
"""Sentence for the pages of the services about the limits of an exchange of households."""

_NULL_IN_UNIT = "the row keeps its own value, since a null of its {noun} takes no part"


@dataclass(frozen=True)
class Members:
    """Households of a table, numbered in ascending order of the identity of their ids."""

    rows: Int64Array
    """Rows of the table, household by household, the members in their order; shape (rows,)."""
    starts: Int64Array
    """Start of each household in `rows`; shape (households + 1,)."""
    of_any_size: bool = False
    """Whether households of different sizes are exchanged: each moved field has one value in each of them."""
    order: str = "rows"
    """Order of the members, in words."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> Int64Array:
        """Members of each household; shape (households,)."""
        found: Int64Array = np.diff(self.starts)
        return found

    @cached_property
    def first(self) -> Int64Array:
        """Lowest row of each household; shape (households,)."""
        return self._reduced(np.minimum, self.rows)

    def any_of(self, mask: BoolArray) -> BoolArray:
        """Mask of the households with a member in the mask of rows; shape (households,)."""
        return self._reduced(np.logical_or, mask[self.rows])

    def largest(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Largest value of each household's members; shape (households,)."""
        return self._reduced(np.maximum, values[self.rows])

    def of_rows(self, rows: IndexArray) -> Int64Array:
        """Household of each of these rows."""
        number = np.empty(len(self.rows), np.int64)
        number[self.rows] = np.repeat(np.arange(len(self)), self.sizes)
        return number[rows]

    def rows_of(self, households: IndexArray) -> Int64Array:
        """Rows of these households, ascending."""
        mask = np.zeros(len(self), np.bool_)
        mask[households] = True
        found: Int64Array = np.sort(self.rows[np.repeat(mask, self.sizes)])
        return found

    def sources(self, origin: Int64Array) -> Int64Array:
        """Return for each row the row that its value comes from.

        Parameters
        ----------
        origin : ndarray of int64, shape (households,)
            For each household the one, of equal size unless `of_any_size`, whose values it gets.
        """
        if self.of_any_size:
            given = np.empty_like(self.rows)
            given[self.rows] = np.repeat(self.first[origin], self.sizes)
            return given
        shift = np.repeat(self.starts[origin] - self.starts[:-1], self.sizes)
        found = np.empty_like(self.rows)
        found[self.rows] = self.rows[np.arange(len(self.rows)) + shift]
        return found

    def _reduced(self, operation: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not len(self):
            return values[:0]
        found: npt.NDArray[Any] = operation.reduceat(values, self.starts[:-1])
        return found


def members_of(
    table: pa.Table, household: str, classes: Int64Array | None = None, noun: str = "household"
) -> Members:
    """Return the households of a table with their members in the order of classes, then of rows.

    Parameters
    ----------
    table : pa.Table
    household : str
        Field of integers or text.
    classes : ndarray of int64, shape (rows,), optional
        Class of each row. Without it the members are in the order of rows.
    noun : str
        Word for a household in messages: ``household``, or ``unit`` for one of `unit_id`.

    Raises
    ------
    SourceError
        A row has no household.

    Notes
    -----
    O(rows log rows). Ids whose identities are equal (see `households_of`) follow by their first rows.
    """
    pointer = "/parameters/unit_id" if noun == "unit" else "/parameters/household"
    found = households_of(table, household, pointer, noun)
    order = np.lexsort((found.first, found.identity))
    number = np.empty_like(found.first)
    number[order] = np.arange(len(found))
    of_row = number[found.of_row]
    rows = np.argsort(of_row, kind="stable") if classes is None else np.lexsort((classes, of_row))
    return Members(rows.astype(np.int64), np.append(0, np.cumsum(found.sizes[order])).astype(np.int64))


def moving_members(table: pa.Table, params: SwapParams, classes: Int64Array | None = None) -> Members:
    """Return the households or units that a run moves; see `members_of`.

    Raises
    ------
    SourceError
        A row has none; or units of any size are exchanged, and a swap field differs within one.
    """
    assert params.moving_unit is not None  # noqa: S101 - the caller has checked
    members = members_of(table, params.moving_unit, classes, params.unit_noun)
    if params.unit_sizes == "equal":
        return members
    for name in params.swap_fields:
        values, _ = codes(table.column(name))
        values = values[members.rows]
        different = values != np.repeat(values[members.starts[:-1]], members.sizes)
        if different.any():
            torn = len(np.unique(members.of_rows(members.rows[different])))
            raise SourceError(
                f"field '{name}' differs within {torn} unit{'s' if torn > 1 else ''}, first in row "
                f"{members.rows[different].min()}: with 'unit_sizes' set to 'any' a unit has one value of it;"
                " use 'equal'",
                "/parameters/unit_sizes",
            )
    return replace(members, of_any_size=True)


def _distinct(members: Members, classes: Int64Array | None) -> Members:
    """Return units of any size with one row for each class, in the order of classes."""
    unit = np.repeat(np.arange(len(members)), members.sizes)
    different = np.ones(len(unit), np.bool_)
    if len(unit):
        different[1:] = unit[1:] != unit[:-1]
        if classes is not None:
            found = classes[members.rows]
            different[1:] |= found[1:] != found[:-1]
    counts = np.bincount(unit[different], minlength=len(members))
    return Members(members.rows[different], np.append(0, np.cumsum(counts)).astype(np.int64))


def classes_of(groups: Groups) -> Int64Array:
    """Return the number of each row's group; every row is in one."""
    found: Int64Array = np.searchsorted(groups.starts, groups.places, side="right") - 1
    return found.astype(np.int64)


def alike(members: Members, classes: Int64Array | None = None) -> Groups:
    """Group the households of equal size whose members, in their order, have equal classes.

    Of units of any size each class counts once.

    Parameters
    ----------
    members : Members
        In the order of the classes, if there are any.
    classes : ndarray of int64, shape (rows,), optional
        Class of each row.

    Returns
    -------
    Groups
        Of households. The identity of a group is its smallest household.

    Notes
    -----
    O(rows log rows).
    """
    if members.of_any_size:
        members = _distinct(members, classes)
    label = np.zeros(len(members), np.int64)
    by_size = np.argsort(members.sizes, kind="stable")
    known = 0
    sizes, counts = np.unique(members.sizes, return_counts=True)
    for size, end, count in zip(sizes.tolist(), np.cumsum(counts).tolist(), counts.tolist(), strict=True):
        households = by_size[end - count : end]
        if classes is None:
            label[households] = known
            known += 1
            continue
        places = members.starts[households][:, None] + np.arange(size)
        tuples = np.ascontiguousarray(classes[members.rows[places]])
        _, codes = np.unique(tuples.view(np.dtype((np.void, 8 * size))).reshape(-1), return_inverse=True)
        label[households] = known + codes
        known += int(codes.max()) + 1
    order = np.argsort(label, kind="stable")
    starts = np.append(np.flatnonzero(np.diff(label[order], prepend=-1)), len(order)).astype(np.int64)
    return _groups(len(members), order, starts, order[starts[:-1]].astype(np.uint64))


def near(members: Members, order: IndexArray, block_size: int) -> Groups:
    """Cut households of equal size, in a given order, into blocks, which are numbered from 0.

    Parameters
    ----------
    members : Members
    order : ndarray of int
        Households that take part.
    block_size : int
        Households of a block. A remainder of one household joins the block before it; any other remainder
        is a block of its own.
    """
    sizes = np.ones(len(order), np.int64) if members.of_any_size else members.sizes[order]
    listing = order[np.argsort(sizes, kind="stable")]
    begins = [np.zeros(0, np.int64)]
    first = 0
    for count in np.unique(sizes, return_counts=True)[1].tolist():
        inside = np.arange(0, count, block_size, dtype=np.int64)
        if count > 1 and count % block_size == 1:
            inside = inside[:-1]
        begins.append(first + inside)
        first += count
    starts = np.append(np.concatenate(begins), first).astype(np.int64)
    return _groups(len(members), listing, starts, np.arange(len(starts) - 1, dtype=np.uint64))


def _groups(rows: int, order: IndexArray, starts: Int64Array, identities: npt.NDArray[np.uint64]) -> Groups:
    return Groups(rows, order.astype(row_index_type(rows)), starts, identities)


def absent_households(table: pa.Table, params: SwapParams, members: Members) -> dict[str, BoolArray]:
    """Return swap field -> mask of the households that a null of a member leaves out; empty if nulls move."""
    if params.nulls == "swap":
        return {}
    return {name: members.any_of(null_mask(table.column(name))) for name in params.swap_fields}


def row_groups(members: Members, exchanges: Sequence[Exchange]) -> list[tuple[tuple[str, ...], Groups]]:
    """Return the fields that move together, and the groups of rows within which their values move.

    A row gets its value from the row at the same place of another household of its group. Hence a group of
    rows has one row of each household that takes part. Units of any size have one value each, which all rows
    of another one get: a group has all of their rows.
    """
    found = []
    for exchange in exchanges:
        for fields in [exchange.fields] if exchange.locked else [(name,) for name in exchange.fields]:
            groups = exchange.groups
            masks = [exchange.absent[name] for name in fields if name in exchange.absent]
            if masks:
                groups = groups_without(groups, np.logical_or.reduce(masks))
            found.append((fields, _places_of(members, groups)))
    return found


def _places_of(members: Members, groups: Groups) -> Groups:
    """Group the rows at one place of the households of one group; of units of any size, all of their rows."""
    households = groups.order
    sizes = members.sizes[households]
    if members.of_any_size:
        starts = np.append(0, np.cumsum(sizes))
        shift = np.repeat(members.starts[households] - starts[:-1], sizes)
        rows = members.rows[np.arange(starts[-1]) + shift]
        return _groups(len(members.rows), rows, starts[groups.starts].astype(np.int64), groups.identities)
    group = np.repeat(np.arange(len(groups.identities)), groups.sizes)
    size_of_group = sizes[groups.starts[:-1]]
    first_place = np.cumsum(size_of_group) - size_of_group
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = members.rows[np.repeat(members.starts[households], sizes) + place]
    number = np.repeat(first_place[group], sizes) + place
    order = np.argsort(number, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(number, minlength=size_of_group.sum())))
    identities = np.arange(len(starts) - 1, dtype=np.uint64)
    return _groups(len(members.rows), rows[order], starts.astype(np.int64), identities)


# ---------------------------------------------------------------------------------------- plan and swap


def plan_households(
    table: pa.Table, params: SwapParams, members: Members, exchanges: Sequence[Exchange], memory: int
) -> Plan:
    """Return what `swap_households` would do; raise UnswappableError or ReversibleError as it would."""
    run = _Run(table, params, members, exchanges)
    run.refuse_unswappable()
    plan = run.translated(lambda: plan_each(run.table, run.params, exchanges, memory))
    return replace(
        plan,
        rows=table.num_rows,
        unswappable_rows=len(run.unswappable.rows),
        unswappable_groups=run.unswappable.groups,
        guarantee=run.in_units(plan.guarantee),
        expected_part_by_field={},
    )


def swap_households(
    table: pa.Table,
    params: SwapParams,
    members: Members,
    exchanges: Sequence[Exchange],
    stream: Stream,
    progress: Progress,
    watch: Watch | None = None,
) -> SwapResult:
    """Exchange the values of whole households, member by member.

    Parameters
    ----------
    table : pa.Table
        The source; not modified.
    params : SwapParams
        Checked, with `household`. `rate`, `risk` and `min_group_size` apply to households. The risk of a
        household is its members' largest, and a member that must take part obliges the household.
    members : Members
    exchanges : sequence of Exchange
        As in `swap_each`, with groups of households, and masks of absent households.
    stream, progress, watch
        As in `swap_each`; `watch` gets pairings of households.

    Returns
    -------
    SwapResult
        The summary counts rows, and its groups consist of households. Of the provider's figures
        `matching_bits`, `group_bits`, `guarantee`, `risk_selection` and `risk_deciles` count households, but
        for the unique rows.

    Raises
    ------
    UnswappableError, ReversibleError
        As `swap_each`.
    """
    run = _Run(table, params, members, exchanges)
    run.refuse_unswappable()
    origins: dict[str, Int64Array] = {}

    def record(name: str, pairing: Pairing) -> None:
        found = sources(pairing).astype(np.int64)
        origins.update(dict.fromkeys(params.swap_fields if params.locked else (name,), found))
        if watch is not None:
            watch(name, pairing)

    found = run.translated(lambda: swap_each(run.table, run.params, exchanges, stream, progress, record))
    progress(0.9, "moving members")
    columns = list(table.columns)
    changed: dict[str, int] = {}
    really_changed = np.zeros(table.num_rows, np.bool_)
    for name, origin in origins.items():
        index = table.schema.get_field_index(name)
        columns[index], differs = gathered(columns[index], members.sources(origin))
        changed[name] = int(np.count_nonzero(differs))
        really_changed |= differs
    events = Events()
    swapped = pa.Table.from_arrays(columns, schema=table.schema)
    swapped, suppressed = suppress(swapped, params, run.unswappable, events)
    run.add_null_events(events)
    summary = run.summary(origins, changed, suppressed)
    add_nothing_changed_events(changed, summary.took_part_by_field, events)
    figures = found.provider
    run.warn(figures, events)
    dropped = remaining_rows(params, run.unswappable, table.num_rows)
    if params.risk is not None:
        run.complete_risk(figures, origins, really_changed, swapped, dropped, events)
    if "guarantee" in figures:
        figures["guarantee"] = run.in_units(figures["guarantee"])
    figures[f"{run.noun}s"] = run.figures(origins)
    return SwapResult(swapped, summary, events, figures, origin=dropped)


class _Run:
    """Table with one row a household, and what the report of its swap states about the members' rows.

    A swap field of the table holds the number of the household. Of its swap only the pairings and the figures
    count: rows are suppressed in the source table.
    """

    def __init__(
        self, table: pa.Table, params: SwapParams, members: Members, exchanges: Sequence[Exchange]
    ) -> None:
        self._source, self._given, self._members = table, params, members
        self.noun = params.unit_noun
        numbers = pa.array(np.arange(len(members), dtype=np.int64))
        columns = dict.fromkeys((*params.swap_fields, *params.suppression.fields), numbers)
        policy = Suppression(policy="keep")
        if params.suppression.policy != "keep":
            policy = Suppression(policy="suppress", fields=params.suppression.fields)
        risk = None
        if params.risk is not None:
            name = "risk"
            while name in columns:
                name += "_"
            columns[name], risk = (
                pa.array(self._risks(params.risk)),
                RiskSelection(field=name, k=params.risk.k),
            )
        self.table = pa.table(columns)
        self.params = params.model_copy(
            update={
                "household": None,
                "unit_id": None,
                "unit_sizes": "equal",
                "checks": (),
                "nulls": "swap",
                "suppression": policy,
                "risk": risk,
            }
        )
        self._by_exchange = [
            (exchange, participation_by_field(self.table, self.params, exchange)) for exchange in exchanges
        ]

    def _risks(self, risk: RiskSelection) -> npt.NDArray[np.float64]:
        """Return the risk of each household, over 1 / k exactly where a member must take part."""
        found = row_risk(self._source, risk)
        largest = self._members.largest(found.risk)
        self._required = self._members.any_of(found.required)
        return np.where(self._required, largest, np.minimum(largest, 1.0 / risk.k)) if risk.k else largest

    @property
    def _entries(self) -> dict[str, Participation]:
        return {name: entry for _, by_field in self._by_exchange for name, entry in by_field.items()}

    @cached_property
    def unswappable(self) -> Unswappable:
        """Rows of the households that cannot be swapped, and the number of groups that hold them."""
        by_field = {name: self._members.rows_of(entry.unswappable) for name, entry in self._entries.items()}
        by_groups: dict[int, tuple[Groups, list[IndexArray]]] = {}
        for exchange, fields in self._by_exchange:
            _, found = by_groups.setdefault(id(exchange.groups), (exchange.groups, []))
            found += [entry.unswappable for entry in fields.values()]
        count = 0
        for groups, found in by_groups.values():
            households = union(found)
            count += len(np.unique(np.searchsorted(groups.starts, groups.places[households], side="right")))
        return Unswappable(by_field, count)

    def refuse_unswappable(self) -> None:
        """Raise UnswappableError if the policy is ``fail`` and there are such rows.

        As with rows, an epsilon that no rate reaches is refused before them.
        """
        if self._given.suppression.policy == "fail" and len(self.unswappable.rows):
            warned = self.params.model_copy(update={"on_reversible": "warn"})
            plan_each(self.table, warned, [exchange for exchange, _ in self._by_exchange], 0)
            suppress(self._source, self._given, self.unswappable, Events())

    def _worded(self, message: str) -> str:
        return message.replace(" rows", f" {self.noun}s")

    def in_units(self, guarantee: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the guarantee with what it protects: a household, or unit, of equal size and group."""
        if guarantee is None:
            return None
        sizes, invariants = ", which have equal sizes", guarantee["invariants"]
        order: str | None = self._members.order
        by_member = f", member by member in the order of {order}"
        if self._members.of_any_size:
            sizes, order, by_member = ", whose sizes may differ", None, ""
            invariants = [f"Counted by units: {each}" for each in invariants]
        holds_for = (
            guarantee["holds_for"]
            .replace("two people of one group", f"two {self.noun}s of one group{sizes},")
            .replace("of the swap fields in the source", f"of the swap fields in the source{by_member}")
            .replace("Both people have", "All members of both have")
            .replace(" values in groups", f" {self.noun}s in groups")
        )
        unit = {"unit": self._given.moving_unit, "member_order": order}
        return {**guarantee, **unit, "holds_for": holds_for, "invariants": invariants}

    def translated(self, call: Callable[[], T]) -> T:
        """Return the result of a call; a ReversibleError of it speaks of households or units."""
        try:
            return call()
        except ReversibleError as error:
            raise ReversibleError(self._worded(str(error))) from None

    def warn(self, figures: Mapping[str, Any], events: Events) -> None:
        """Record an event if groups of households are reversible."""
        found = Events()
        rate = figures["guarantee"]["rate"] if "guarantee" in figures else self.params.rate
        bits = GroupBits(**figures["group_bits"])
        warn_of_reversible(self.params.model_copy(update={"rate": rate}), bits, found)
        for event in found.listed:
            events.add(Event(REVERSIBLE_GROUPS, self._worded(event.message)))

    def add_null_events(self, events: Events) -> None:
        """Record an event for each value that stays since a null of its household takes no part."""
        for name, entry in self._entries.items():
            if len(entry.absent):
                rows = self._members.rows_of(entry.absent)
                rows = rows[~null_mask(self._source.column(name))[rows]]
                if len(rows):
                    events.add_rows("null_kept", _NULL_IN_UNIT.format(noun=self.noun), rows, name)

    def summary(self, origins: Mapping[str, Int64Array], changed: dict[str, int], suppressed: int) -> Summary:
        """Build the summary of the report: rows, and groups of households."""
        sizes, groups = self._members.sizes, self._by_exchange[0][0].groups
        numbers = np.arange(len(sizes))
        reasons = np.zeros(len(sizes), np.uint8)
        moved = {name: origin != numbers for name, origin in origins.items()}
        for name, entry in self._entries.items():
            found = np.where(moved[name], 0, REASONS["rate"]).astype(np.uint8)
            for reason, households in (
                ("null", entry.absent), ("alone", entry.singletons), ("group_too_small", entry.too_small)
            ):  # fmt: skip
                found[households] = REASONS[reason]
            reasons |= found
        return swap_summary(
            rows=self._source.num_rows,
            groups=len(groups.identities),
            group_size=group_size(groups.sizes),
            took_part=int(sizes[np.logical_or.reduce(list(moved.values()))].sum()),
            took_part_by_field={name: int(sizes[mask].sum()) for name, mask in moved.items()},
            changed=changed,
            suppressed=suppressed,
            unswapped=int(sizes[reasons > 0].sum()),
            reasons={name: int(sizes[reasons & bit > 0].sum()) for name, bit in REASONS.items()},
        )

    def complete_risk(
        self,
        figures: dict[str, Any],
        origins: Mapping[str, Int64Array],
        changed: BoolArray,
        destination: pa.Table,
        remaining: IndexArray | None,
        events: Events,
    ) -> None:
        """Replace the figures that need the members' values, and record households at risk that stay."""
        message = (
            f"the risk of the row's {self.noun} demands a swap, which is impossible: its group has no other "
            f"{self.noun} or too few, or a null takes no part"
        )
        numbers = np.arange(len(self._members))
        for name, origin in origins.items():
            rows = self._members.rows_of(np.flatnonzero(self._required & (origin == numbers)))
            if len(rows):
                events.add_rows(RISK_UNSWAPPED, message, rows, name)
        decile = (
            deciles_of(self.table.column(self.table.num_columns - 1).to_numpy()) if len(numbers) else numbers
        )
        counts = np.bincount(decile[self._members.any_of(changed)], minlength=10)
        for number, entry in figures["risk_deciles"].items():
            entry["changed"] = int(counts[int(number) - 1])
        assert self._given.risk is not None  # noqa: S101 - the caller has checked
        keys = self._given.risk.key_fields
        if keys:
            figures["risk_selection"]["unique_before"] = int(unique_rows(self._source, keys).sum())
            figures["risk_selection"]["unique_after"] = int(unique_rows(destination, keys).sum())

    def figures(self, origins: Mapping[str, Int64Array]) -> dict[str, Any]:
        """Return the provider's figure `households`, or `units` with `unit_id`."""
        numbers = np.arange(len(self._members))
        moved = {name: int(np.count_nonzero(origin != numbers)) for name, origin in origins.items()}
        alone = union([entry.unswappable for entry in self._entries.values()])
        return {
            f"{self.noun}s": len(numbers),
            "took_part_by_field": moved,
            "without_partner": len(alone),
            "rows_without_partner": int(self._members.sizes[alone].sum()),
        }
