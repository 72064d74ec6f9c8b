"""Report of a swap: summary, events and figures that in-memory and out-of-core runs share."""

from collections.abc import Mapping, Sequence
from typing import Any

from providers.results import Event, Events, GroupSize, Summary
from providers.swapping.reversible_groups import GroupBits
from providers.swapping.search_space import bits_of_counts


def swap_summary(
    rows: int, groups: int, group_size: GroupSize, took_part: int, took_part_by_field: dict[str, int],
    changed: dict[str, int], suppressed: int, unswapped: int, reasons: Mapping[str, int],
) -> Summary:  # fmt: skip
    """Build the summary of a swap.

    Parameters
    ----------
    rows : int
        Rows of the source.
    groups : int
        Number of groups.
    group_size : GroupSize
    took_part : int
        Rows that took part in at least one field.
    took_part_by_field, changed : dict
        Swap field -> rows that took part, and rows whose value differs from the source's.
    suppressed, unswapped : int
        Rows with a suppression, and rows in which at least one swap field kept its value.
    reasons : mapping
        Reason -> rows; reasons without rows are left out.
    """
    shares = [count / rows for count in took_part_by_field.values() if rows]
    return Summary(
        rows=rows,
        groups=groups,
        group_size=group_size,
        took_part=took_part,
        took_part_by_field=took_part_by_field,
        changed=changed,
        suppressed=suppressed,
        unswapped=unswapped,
        unswapped_reasons={name: count for name, count in reasons.items() if count},
        achieved_rate=sum(shares) / len(shares) if shares else 0.0,
    )


def add_nothing_changed_events(
    changed: Mapping[str, int], took_part_by_field: Mapping[str, int], events: Events
) -> None:
    """Record an event for each field in which rows took part and no value changed."""
    for name, count in changed.items():
        if not count and took_part_by_field[name]:
            message = "every exchange was of equal values: no row's value changed"
            events.add(Event("nothing_changed", message, field=name))


def search_space_figures(
    counts: Sequence[Mapping[int, int]], bits: GroupBits, rate: float, mechanism: str = "pairs"
) -> dict[str, Any]:
    """Return the provider's figures on the possible exchanges; ``counts`` as for `group_bits`."""
    matching_bits = sum((bits_of_counts(each, rate, mechanism) for each in counts), 0.0)
    return {"matching_bits": matching_bits, **bits.figures(rate)}
