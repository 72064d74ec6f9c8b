"""Counts and values that a report may show: cells of few rows are withheld, rare values are added up."""

from collections.abc import Mapping, Sequence

import numpy as np

from providers.arrays import Int64Array
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
    """Label the named values, and number each row by its label.

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
    counts = {
        side: np.bincount(column.codes(side), minlength=column.levels).astype(np.int64) for side in SIDES
    }
    named, rest = named_levels(counts, threshold, most, null_code(column))
    label_of = np.full(column.levels, len(named), np.int64)
    label_of[named] = np.arange(len(named))
    labels = [*column.labels(named), *([OTHERS] if any(rest.values()) else [])]
    return labels, {side: label_of[column.codes(side)] for side in SIDES}
