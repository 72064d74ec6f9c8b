"""Counts and values that a report may show: cells of few rows are withheld, rare values are added up."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Int64Array
from providers.measures.shared.columns import SIDES, Column, Side

OTHERS = "(others)"
"""Label of all values without a name."""


def shown(counts: Sequence[int], threshold: int) -> list[int | None]:
    """Withhold counts of cells that could disclose; their sum is known to the reader.

    A count below the threshold, except 0, becomes None. If the other counts and the sum would reveal it,
    because it is the only hidden cell or all hidden cells together are below the threshold, the next
    smallest cells are hidden too, empty ones last.
    """
    hidden = {cell for cell, count in enumerate(counts) if 0 < count < threshold}
    if hidden:
        others = (cell for cell in range(len(counts)) if cell not in hidden)
        for cell in sorted(others, key=lambda cell: (counts[cell] == 0, counts[cell], cell)):
            if len(hidden) > 1 and sum(counts[each] for each in hidden) >= threshold:
                break
            hidden.add(cell)
    return [None if cell in hidden else int(count) for cell, count in enumerate(counts)]


def few_lost(values: Mapping[Side, npt.NDArray[Any]], threshold: int) -> dict[Side, Int64Array]:
    """Return the rows to leave out, so that no statistic of the source shows values that few rows have lost.

    A run that exchanges values releases all values except those that it suppressed, replaced or dropped. If
    these are few, they follow from the release and one sum, mean or count over the source. Without them, and
    without the values that took their place, both tables have the same values.

    Parameters
    ----------
    values : mapping of side to ndarray, shape (rows,)
        Numbers, NaN if missing, or codes that both tables share.
    threshold : int
        Smallest number of values whose sum or count may be shown.

    Returns
    -------
    dict
        Side -> rows with values that this table has more often than the other, one row for each surplus;
        empty unless the source has such rows, and fewer than the threshold.
    """
    none = dict.fromkeys(SIDES, np.zeros(0, np.int64))
    if abs(len(values["source"]) - len(values["destination"])) >= threshold:
        return none
    before, after = (np.sort(values[side]) for side in SIDES)
    own = {"source": _without_partner(before, after), "destination": _without_partner(after, before)}
    counts = {side: int(np.count_nonzero(mask)) for side, mask in own.items()}
    if not counts["source"] or max(counts.values()) >= threshold:
        return none
    return {side: np.argsort(values[side], kind="stable")[own[side]] for side in SIDES}


def _without_partner(values: npt.NDArray[Any], others: npt.NDArray[Any]) -> BoolArray:
    """Whether each of the sorted values is beyond the number of equal ones among the sorted others."""
    nth = np.arange(len(values)) - np.searchsorted(values, values, "left")
    equal = np.searchsorted(others, values, "right") - np.searchsorted(others, values, "left")
    return np.asarray(nth >= equal)


def named_levels(
    counts: Mapping[Side, Int64Array], threshold: int, most: int, unnamed: int | None = None
) -> tuple[list[int], dict[Side, int]]:
    """Choose the values that are named, most frequent first, so that no count of few rows follows.

    Parameters
    ----------
    counts : mapping of side to ndarray of int64, shape (levels,)
        Rows of each code.
    threshold : int
        Named values have at least this many rows in both tables, and the others together too, or none.
    most : int
        Most values that are named.
    unnamed : int, optional
        Code that is never named, such as that of null.

    Returns
    -------
    list of int
        Codes of the named values.
    dict
        Side -> rows of all others.
    """
    both = np.minimum(counts["source"], counts["destination"])
    frequent = [
        int(code)
        for code in np.argsort(-counts["source"], kind="stable")
        if both[code] >= threshold and code != unnamed
    ]
    named = frequent[:most]
    rest = {side: int(counts[side].sum() - counts[side][named].sum()) for side in SIDES}
    while named and any(0 < rest[side] < threshold for side in SIDES):
        last = named.pop()  # until the other rows are none, or as many as the threshold
        rest = {side: rest[side] + int(counts[side][last]) for side in SIDES}
    return named, rest


def null_code(column: Column) -> int | None:
    """Return the code of null; None if neither table has a null."""
    for side in SIDES:
        missing = column.missing(side)
        if len(missing):
            return int(column.codes(side)[missing[0]])
    return None


def grouped_codes(column: Column, threshold: int, most: int) -> tuple[list[str], dict[Side, Int64Array]]:
    """Label the named values, and number each row by its label. Values that few rows have lost do not count.

    Parameters
    ----------
    column : Column
    threshold, most : int
        See `named_levels`.

    Returns
    -------
    list of str
        Labels; the last one is `(others)`, which includes null, if there are others.
    dict
        Side -> index of each row's label; shape (rows,).
    """
    lost = few_lost({side: column.codes(side) for side in SIDES}, threshold)
    kept = {side: np.delete(column.codes(side), lost[side]) for side in SIDES}
    counts = {side: np.bincount(kept[side], minlength=column.levels).astype(np.int64) for side in SIDES}
    named, rest = named_levels(counts, threshold, most, null_code(column))
    label_of = np.full(column.levels, len(named), np.int64)
    label_of[named] = np.arange(len(named))
    has_others = any(rest.values()) or len(lost["source"]) > 0
    labels = [*column.labels(named), *([OTHERS] if has_others else [])]
    return labels, {side: label_of[column.codes(side)] for side in SIDES}
