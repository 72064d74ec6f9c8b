"""Units of a swap: single rows, or households and persons whose rows moved as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from providers.arrays import BoolArray, Int64Array
from providers.attacks.methods.groups import MovedFields


@dataclass(frozen=True, slots=True)
class Movers:
    """Values of the units that moved as one; arrays of shape (movers,) unless stated.

    A household of m rows shows the m values of one other household, row by row in the order of their groups.
    An intruder who knows them all finds that household, however often each single value occurs.
    """

    true: Int64Array
    """Code of the true values."""
    shown: Int64Array
    """Code of the values that the release shows."""
    group: Int64Array
    """Group of the exchange, `OUTSIDE` for one that kept its values."""
    first: Int64Array
    """First row of each."""
    of_row: Int64Array
    """Mover of each row; shape (rows,)."""
    place: Int64Array
    """Place of each row among those of its mover, 0 if these have one value; shape (rows,)."""
    rows: Int64Array
    """Rows, mover by mover; shape (rows,)."""
    starts: Int64Array
    """Start of each mover in `rows`."""

    def __len__(self) -> int:
        return len(self.true)

    @classmethod
    def of(cls, moved: MovedFields, true: Int64Array, shown: Int64Array) -> Movers:
        """Return the movers of some fields.

        Parameters
        ----------
        moved : MovedFields
        true, shown : ndarray of int64, shape (rows,)
            Codes of the true values and of those that the release shows, equal where the values are.
        """
        units = np.arange(len(shown)) if moved.units is None else moved.units
        rows = np.lexsort((moved.group, units))
        sizes = np.bincount(units)
        starts = np.cumsum(sizes) - sizes
        place = np.empty(len(units), np.int64)
        place[rows] = np.arange(len(units)) - np.repeat(starts, sizes)
        first = rows[starts]
        if moved.one_value:
            place[:] = 0
            sizes = np.ones_like(sizes)
        both = np.stack([true, shown])
        codes = both[:, first]
        for index in range(1, int(sizes.max(initial=0))):  # the codes of the first rows, one more each time
            longer = sizes > index
            values = np.full_like(codes, -1)
            values[:, longer] = both[:, rows[starts[longer] + index]]
            pairs = codes * (int(both.max()) + 2) + values + 1
            codes = np.unique(pairs, return_inverse=True)[1].reshape(codes.shape).astype(np.int64)
        return cls(codes[0], codes[1], moved.group[first], first, units, place, rows, starts)

    def any_of(self, rows: BoolArray) -> BoolArray:
        """Mask of the movers with a row in a mask of rows."""
        found = np.zeros(len(self), np.bool_)
        found[self.of_row[rows]] = True
        return found

    def values_at(self, row: int, holders: Int64Array, values: Int64Array) -> Int64Array:
        """Return the values that movers show at the place that a row has in its own; shape (holders,).

        ``values``: value of each row; ``holders``: movers of the row's group.
        """
        found: Int64Array = values[self.rows[self.starts[holders] + self.place[row]]]
        return found
