"""Reversible groups: groups of two or three rows, whose exchange can be undone without the seed.

If both rows of a group of two move, there is one possible exchange; if all rows of a group of three move,
there are two. So anyone who knows the groups restores the values of a group of two exactly, and of a group of
three with a chance of 1/2. At rates up to one half, a row of a group of any size keeps its own value with
probability at least 1/2. Therefore only higher rates count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from providers.errors import ReversibleError
from providers.params import SwapParams
from providers.results import Event, Events
from providers.swapping.permutation_law import guess_chance
from providers.swapping.search_space import bits_of

REVERSIBLE_GROUPS = "reversible_groups"
"""Code of the event about reversible groups."""

_LEAST_RATE = 0.5
"""Above this rate a row moves with probability over 1/2."""


@dataclass(frozen=True, slots=True)
class GroupBits:
    """log2 of the number of possible exchanges of a group: summary over the groups of a run.

    If fields move on their own, each figure is that of the worst field: fewest bits, or most rows.
    """

    smallest: float | None
    """Bits of the group with the fewest exchanges; None if no group is exchanged."""
    p05: float | None
    """5th percentile over the rows: one row in twenty, rounded up, is in a group with at most these bits."""
    rows_in_groups_of_two: int
    """Number of rows in groups of two that may be exchanged."""
    rows_in_groups_of_three: int
    """Number of rows in groups of three that may be exchanged."""

    def figures(self, rate: float) -> dict[str, Any]:
        """Return the provider's figures `group_bits` and `reversible`."""
        bits = {
            "smallest": self.smallest,
            "p05": self.p05,
            "rows_in_groups_of_two": self.rows_in_groups_of_two,
            "rows_in_groups_of_three": self.rows_in_groups_of_three,
        }
        return {"group_bits": bits, "reversible": self.reversible_rows(rate) > 0}

    def reversible_rows(self, rate: float) -> int:
        """Return the number of rows in groups of two and three; 0 at rates that do not count."""
        return self.rows_in_groups_of_two + self.rows_in_groups_of_three if rate > _LEAST_RATE else 0


def group_bits(counts: Sequence[Mapping[int, int]], rate: float, mechanism: str = "pairs") -> GroupBits:
    """Find the bits of the groups of a run.

    Parameters
    ----------
    counts : sequence of mappings
        For each exchange: group size -> number of groups. Groups that are too small to be exchanged are
        left out.
    rate : float
        Share of the rows that take part.
    mechanism : {"pairs", "permutation"}
    """
    of_group = bits_of(mechanism)
    # Fields that move on their own mostly have the same groups.
    differing = [each for place, each in enumerate(counts) if each not in counts[:place]]
    exchanged = [{size: groups for size, groups in each.items() if groups} for each in differing]
    exchanged = [each for each in exchanged if each]
    return GroupBits(
        smallest=min((of_group(size, rate) for each in exchanged for size in each), default=None),
        p05=min((_twentieth(each, rate, of_group) for each in exchanged), default=None),
        rows_in_groups_of_two=max((2 * each.get(2, 0) for each in exchanged), default=0),
        rows_in_groups_of_three=max((3 * each.get(3, 0) for each in exchanged), default=0),
    )


def _twentieth(counts: Mapping[int, int], rate: float, of_group: Callable[[int, float], float]) -> float:
    """Return the bits of the row at place ceil(rows / 20), counted from 1, in ascending order of bits."""
    place = -(-sum(size * groups for size, groups in counts.items()) // 20)
    ascending = sorted((of_group(size, rate), size * groups) for size, groups in counts.items())
    if len(ascending) == 1:
        return ascending[0][0]
    passed = np.cumsum([rows for _, rows in ascending])
    return ascending[int(np.searchsorted(passed, place))][0]


def exchanged_share(params: SwapParams) -> float:
    """Return the share of a group's rows that move as it counts for `GroupBits.reversible_rows`.

    Rows that must take part for their risk move for certain, and `GroupBits` counts only these.
    """
    return params.rate if params.risk is None else 1.0


def refuse_reversible(params: SwapParams, bits: GroupBits) -> None:
    """Raise ReversibleError if groups are reversible and `on_reversible` is ``fail``."""
    if params.on_reversible == "fail" and bits.reversible_rows(exchanged_share(params)):
        raise ReversibleError(_message(params, bits))


def warn_of_reversible(params: SwapParams, bits: GroupBits, events: Events) -> None:
    """Record an event if groups are reversible."""
    if bits.reversible_rows(exchanged_share(params)):
        events.add(Event(REVERSIBLE_GROUPS, _message(params, bits)))


def _message(params: SwapParams, bits: GroupBits) -> str:
    twos, threes = bits.rows_in_groups_of_two, bits.rows_in_groups_of_three
    if params.mechanism == "permutation":
        found = " and ".join(
            f"{_rows(rows, size)}, whose permutation anyone who knows the groups guesses with chance "
            f"{guess_chance(size, params.rate):.2f}"
            for rows, size in ((twos, 2), (threes, 3))
            if rows
        )
        return f"{found}; {params.larger_groups()}"
    if not threes:
        found = f"{_rows(twos, 2)}, whose exchange anyone who knows the groups undoes exactly"
    elif not twos:
        found = f"{_rows(threes, 3)}, whose exchange anyone who knows the groups undoes with chance 1/2"
    else:
        found = (
            f"{_rows(twos, 2)}, whose exchange anyone who knows the groups undoes exactly, and "
            f"{_rows(threes, 3)}, where that succeeds with chance 1/2"
        )
    if params.risk is not None:
        found += "; only rows that had to take part for their risk are counted"
    return f"{found}; {params.larger_groups()}"


def _rows(rows: int, size: int) -> str:
    """Return a phrase such as ``"6 rows are in 2 groups of three"``."""
    groups = rows // size
    of = {2: "two", 3: "three"}[size]
    return f"{rows} rows are in {groups} group{'s' if groups != 1 else ''} of {of}"


def uniform_pairs(group: str, groups: str) -> str:
    """Return the guarantee about known pairs; ``group``, ``groups``: the service's words for its groups."""
    return (
        f"Within a {group} the pairs are uniformly random. Someone who learns some of them learns nothing "
        f"about the seed or other {groups}, and the other pairs of the {group} stay uniform over the "
        f"remaining matchings: in a {group} of four rows one known pair fixes the other. `group_bits` in the "
        f"report says how many matchings the smallest {groups} leave."
    )
