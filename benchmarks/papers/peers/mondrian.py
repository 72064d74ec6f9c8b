"""Mondrian with distinct l-diversity, written plainly: LOCALITY's queries are compared with it.

LeFevre, DeWitt and Ramakrishnan 2006, Mondrian multidimensional k-anonymity, ICDE; Machanavajjhala et al.
2007, l-diversity, doi:10.1145/1217299.1217302 (distinct l-diversity).
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Conditions = list[tuple[int, tuple[float, float]]]
"""Columns and the ranges they must lie in."""


def boxes(table: Floats, sensitive: npt.NDArray[np.int64], diversity: int) -> tuple[Floats, Floats]:
    """Each row's least and greatest values in its group, shape (rows, columns).

    A group is cut at the median of its widest column (relative to the table's range), the next widest where
    a half would hold fewer than `diversity` distinct sensitive values, until no column can be cut.
    """
    ranges = table.max(axis=0) - table.min(axis=0)
    low, high = np.empty_like(table), np.empty_like(table)
    waiting = [np.arange(len(table))]
    while waiting:
        rows = waiting.pop()
        values = table[rows]
        for column in np.argsort(-(values.max(axis=0) - values.min(axis=0)) / ranges, kind="stable"):
            middle = np.median(values[:, column])
            left = values[:, column] <= middle
            if left.all():
                left = values[:, column] < middle
            halves = rows[left], rows[~left]
            if all(len(np.unique(sensitive[half])) >= diversity for half in halves):
                waiting += halves
                break
        else:
            low[rows], high[rows] = values.min(axis=0), values.max(axis=0)
    return low, high


def average(table: Floats, conditions: Conditions, of: int) -> float:
    """The average of a column over the rows within the ranges; NaN of none."""
    within = np.ones(len(table), np.bool_)
    for column, (low, high) in conditions:
        within &= (table[:, column] >= low) & (table[:, column] <= high)
    return float(table[within, of].mean()) if within.any() else float("nan")


def average_of_boxes(low: Floats, high: Floats, conditions: Conditions, of: int) -> float:
    """The same, each row spread evenly over its group's box."""
    weight, value = np.ones(len(low)), (low[:, of] + high[:, of]) / 2
    for column, (least, most) in conditions:
        width = high[:, column] - low[:, column]
        common = np.minimum(high[:, column], most) - np.maximum(low[:, column], least)
        point = (low[:, column] >= least) & (low[:, column] <= most)
        weight *= np.where(width > 0, np.clip(common, 0, None) / np.where(width > 0, width, 1), point)
        if column == of:
            value = np.clip((np.maximum(low[:, of], least) + np.minimum(high[:, of], most)) / 2, least, most)
    return float((weight * value).sum() / weight.sum()) if weight.sum() > 0 else float("nan")
