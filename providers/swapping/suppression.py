"""Suppress, replace, keep or drop rows that cannot be swapped.

Every such row is reported, whatever the policy. Event codes of the swaps:

===================  ====================================================================
code                 what happened
===================  ====================================================================
``suppressed``       the row could not be swapped: its value of the field was nulled
``replaced``         the row could not be swapped: its value of the field was replaced
``kept``             the row could not be swapped: it keeps its own value of the field
``dropped``          the row could not be swapped: it was left out
``null_kept``        locked: the row keeps its own value of the field, since another swap
                     field of it is null (or, where numbers are needed, not finite) and
                     ``nulls`` is ``keep``
``nothing_changed``  rows took part, but every exchange was of equal values
===================  ====================================================================

Events are counted by row and field. Rows that ``rate`` leaves out have no event, only figures; the service
adds one if they are all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import IndexArray
from providers.errors import ParameterError, UnswappableError, did_you_mean, reference_token
from providers.params import PairingParams
from providers.results import EVENTS_SHOWN, Event, Events
from providers.tables.columns import put, take_rows
from providers.tables.literals import literal
from providers.tables.schemas import check_names

_POINTER = "/parameters/suppression"


@dataclass(frozen=True, slots=True)
class Unswappable:
    """Rows that cannot be swapped, by field, and the number of their groups."""

    by_field: Mapping[str, IndexArray]
    """Swap field -> unswappable rows, ascending."""
    groups: int
    """Number of groups that hold them."""

    @property
    def rows(self) -> IndexArray:
        """Rows that cannot be swapped in at least one field, ascending."""
        return union(self.by_field.values())


def union(arrays: Iterable[IndexArray]) -> IndexArray:
    """Return the row numbers in any of the arrays, ascending, each once."""
    distinct = {id(array): array for array in arrays if len(array)}.values()  # fields often share one
    if not distinct:
        return np.zeros(0, np.int64)
    # The arrays are ascending, which a stable sort makes use of. numpy.unique would hash every row number.
    found: IndexArray = np.concatenate([np.zeros(0, np.int64), *distinct])
    found.sort(kind="stable")
    is_first = np.ones(len(found), np.bool_)
    is_first[1:] = found[1:] != found[:-1]
    return np.asarray(found[is_first])


def check_suppression(params: PairingParams, schema: pa.Schema) -> None:
    """Raise ParameterError if fields or replacements do not fit the schema."""
    policy = params.suppression
    check_names(policy.fields, schema, lambda index: f"{_POINTER}/fields/{index}")
    if policy.policy != "replace":
        return
    wanted = policy.fields or params.swap_fields
    for name in wanted:
        if name not in policy.replacement:
            message = (
                f"a replacement for '{name}' is missing; it is written to the rows that cannot be swapped"
            )
            raise ParameterError(message, f"{_POINTER}/replacement")
    replaced = set(wanted)
    for name, value in policy.replacement.items():
        pointer = f"{_POINTER}/replacement/{reference_token(name)}"
        if name not in replaced:
            suggestion = did_you_mean(name, wanted)
            message = f"a replacement for '{name}', which is not replaced: name it in 'fields'{suggestion}"
            raise ParameterError(message, pointer)
        literal(value, schema.field(name), "replacement", pointer)


def suppress(
    table: pa.Table, params: PairingParams, unswappable: Unswappable, events: Events
) -> tuple[pa.Table, int]:
    """Apply the policy to the swapped table; return it and the number of rows with a suppression.

    Raises
    ------
    UnswappableError
        The policy is ``fail`` and there are unswappable rows.
    """
    policy = params.suppression.policy
    rows = unswappable.rows
    if not len(rows):
        return table, 0
    if policy == "fail":
        raise UnswappableError(describe(len(rows), unswappable.groups))
    if policy == "drop":
        add_row_events(events, {("dropped", None): rows})
        remaining = remaining_rows(params, unswappable, table.num_rows)
        assert remaining is not None  # noqa: S101 - some are dropped
        return take_rows(table, remaining), len(rows)
    if policy == "keep":
        add_row_events(events, {("kept", name): found for name, found in unswappable.by_field.items()})
        return table, 0
    named = params.suppression.fields
    targets = dict.fromkeys(named, rows) if named else unswappable.by_field
    code = "suppressed" if policy == "suppress" else "replaced"
    for name, found in targets.items():
        if len(found):
            table = _put(table, name, found, params)
    events_of: dict[tuple[str, str | None], IndexArray] = {
        (code, name): found for name, found in targets.items()
    }
    for name, found in unswappable.by_field.items():
        if name not in targets:  # other fields were named for suppression; this one keeps its values
            events_of["kept", name] = found
    add_row_events(events, events_of)
    return table, len(union(targets.values()))


def remaining_rows(params: PairingParams, unswappable: Unswappable, rows: int) -> IndexArray | None:
    """Return the source rows that `suppress` does not drop; None if it drops none."""
    if params.suppression.policy != "drop" or not len(unswappable.rows):
        return None
    return np.delete(np.arange(rows, dtype=np.int64), unswappable.rows)


def describe(rows: int, groups: int) -> str:
    """Return a message such as ``"3 rows of 2 groups cannot be swapped"``, with remedies."""
    return (
        f"{rows} row{'s' if rows != 1 else ''} of {groups} group{'s' if groups != 1 else ''} cannot be "
        "swapped: their group has one row, or fewer than the minimum; choose another suppression policy, "
        "or wider groups"
    )


def _put(table: pa.Table, name: str, rows: IndexArray, params: PairingParams) -> pa.Table:
    """Put null, or the replacement, into rows of a field."""
    index = table.schema.get_field_index(name)
    field = table.schema.field(index)
    if params.suppression.policy == "suppress":
        value = pa.nulls(1, field.type)
        field = field.with_nullable(True)
    else:
        scalar = literal(params.suppression.replacement[name], field, "replacement", "")
        value = typed(scalar, field.type)
    return table.set_column(index, field, put(table.column(index), rows, value))


def typed(scalar: pa.Scalar, kind: pa.DataType) -> pa.Array:
    """Return an array of length 1 that holds the scalar, in the dictionary or run-end encoding of `kind`."""
    if pa.types.is_dictionary(kind):
        indices = pa.array([0], kind.index_type)
        dictionary = typed(scalar, kind.value_type)
        return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=kind.ordered)
    if pa.types.is_run_end_encoded(kind):
        run_ends = pa.array([1], kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(run_ends, typed(scalar, kind.value_type), type=kind)
    return pa.array([scalar], type=kind)


_MESSAGES = {
    "suppressed": "the row cannot be swapped: its value was suppressed",
    "replaced": "the row cannot be swapped: its value was replaced",
    "kept": "the row cannot be swapped: it keeps its own value",
    "dropped": "the row cannot be swapped: it was left out",
    "null_kept": "the row keeps its own value, since another of its swap fields takes no part",
}


def add_row_events(events: Events, rows_of: Mapping[tuple[str, str | None], IndexArray]) -> None:
    """Record events in the order of rows; ``rows_of``: (code, field) -> rows, ascending."""
    for (code, _), rows in rows_of.items():
        events.counts[code] += len(rows)
    events.counts += type(events.counts)()  # removes codes with count zero
    available = max(0, EVENTS_SHOWN - len(events.listed))
    candidates = [
        (int(row), position, code, name)
        for position, ((code, name), rows) in enumerate(rows_of.items())
        for row in rows[:available]
    ]
    for row, _, code, name in sorted(candidates, key=lambda entry: entry[:2])[:available]:
        events.listed.append(Event(code, _MESSAGES[code], row, name))
