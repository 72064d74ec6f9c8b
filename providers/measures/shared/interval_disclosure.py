"""Share of rows whose values are within intervals around the released ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from providers.arrays import BoolArray, Float64Array


def share_near_by_chance(near: Sequence[Float64Array]) -> float:
    """Return the expected share of rows near in every field if each field's values are dealt at random.

    Parameters
    ----------
    near : sequence of ndarray of float64, shape (rows,)
        For each field, the share of its values that are near each row's; NaN where a row's value is missing.

    Notes
    -----
    The fields are dealt independently, so that the probability of a row is a product over its fields. Rows
    without a value in any field are not counted, as in `IntervalDisclosure`.
    """
    every, known = np.ones(len(near[0])), np.zeros(len(near[0]), np.bool_)
    for share in near:
        present = ~np.isnan(share)
        every[present] *= share[present]
        known |= present
    return float(every[known].mean()) if known.any() else 0.0


class IntervalDisclosure:
    """Share of rows of which every value is near the released one, and the same share field by field.

    Fields are added one by one. A value that is missing in the source has nothing to disclose and is not
    counted; a value that is missing only in the release is not near.

    Parameters
    ----------
    rows : int
    """

    def __init__(self, rows: int) -> None:
        self.by_field: list[float] = []
        self._near = np.ones(rows, np.bool_)
        self._known = np.zeros(rows, np.bool_)

    def add(self, source: Float64Array, destination: Float64Array, width: float) -> None:
        """Count one field: its numbers before and after, NaN where missing, shape (rows,).

        Parameters
        ----------
        source, destination : ndarray of float64, shape (rows,)
        width : float
            Half the width of an interval.
        """
        self.add_near(~np.isnan(source), np.abs(source - destination) <= width)

    def add_near(self, known: BoolArray, near: BoolArray) -> None:
        """Count one field: the rows that have a value, and those whose value is near; shape (rows,)."""
        self.by_field.append(float(near[known].mean()) if known.any() else 0.0)
        self._near &= near | ~known
        self._known |= known

    @property
    def share(self) -> float:
        """Share of the rows that have a value."""
        return float(self._near[self._known].mean()) if self._known.any() else 0.0

    def value(self, fields: Sequence[str]) -> dict[str, Any]:
        """Return both shares, given the names of the fields that were added."""
        return {"share": self.share, "by_field": dict(zip(fields, self.by_field, strict=True))}
