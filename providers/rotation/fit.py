"""Read the numeric fields of a perturbation, check them, and fit their moments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array
from providers.errors import SourceError
from providers.kernels.parallel import parallel
from providers.numba import get_num_threads, prange
from providers.progress import Progress, sub_progress
from providers.rotation.moments import Moments, moments
from providers.tables.columns import combined, null_mask, words_of
from providers.tables.numbers import float_values


@parallel
def _copy_numbers(numbers, values, absent, chunks):
    """Copy numbers and mark the rows that are not finite; return the number of NaN and of infinities.

    Parameters
    ----------
    numbers : ndarray of float64, shape (rows,)
    values : ndarray of float64, shape (rows,)
        Written.
    absent : ndarray of bool, shape (rows,)
        Set to True where a number is not finite.
    chunks : int
        Number of parallel row ranges.
    """
    rows = len(numbers)
    counts = np.zeros((chunks, 16), np.int64)  # a cache line each
    for chunk in prange(chunks):
        for row in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            number = numbers[row]
            values[row] = number
            if not np.isfinite(number):
                absent[row] = True
                counts[chunk, 1 if np.isinf(number) else 0] += 1
    return counts[:, 0].sum(), counts[:, 1].sum()


@dataclass(frozen=True, slots=True)
class Fit:
    """Numbers of the source, their validity and their moments."""

    values: Float64Array
    """Values, shape (fields, rows); NaN for null."""
    valid: dict[str, BoolArray]
    """Field -> mask of the values that are not null; only fields that hold nulls."""
    absent: BoolArray | None
    """Mask of the rows that pass through unperturbed; None if there is none."""
    moments: Moments
    """Moments over the other rows."""
    varying: list[int]
    """Indices of the fields that are not constant."""

    @property
    def correlation(self) -> Float64Array:
        """Correlation matrix of the fields that are not constant."""
        return self.moments.correlation(np.array(self.varying, np.int64))


def _numbers(column: pa.ChunkedArray) -> Float64Array:
    """Return a column as read-only float64, NaN for null; no copy if it is float64 without nulls."""
    if column.type == pa.float64() and column.null_count == 0:
        return words_of(combined(column)).view(np.float64)
    numbers = float_values(column)
    numbers.flags.writeable = False
    return numbers


class Faults:
    """Counts of the values that cannot be rotated, by field and kind."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._counts)

    def add(self, name: str, nulls: int, nan: int, infinite: int) -> None:
        """Add counts for some rows of a field."""
        if nulls or nan or infinite:
            found = self._counts.setdefault(name, Counter())
            found.update({"null": nulls, "NaN": nan, "infinite": infinite})

    def add_all(self, others: Faults) -> None:
        """Add the counts of other rows."""
        for name, counts in others._counts.items():
            self._counts.setdefault(name, Counter()).update(counts)

    def refuse(self, names: Sequence[str]) -> None:
        """Raise SourceError if there are any; ``names``: all fields, in the order of the message."""
        if not self:
            return
        described = []
        for name in names:
            if name in self._counts:
                counts = self._counts[name].items()
                described.append(
                    f"'{name}' ({', '.join(f'{count} {kind}' for kind, count in counts if count)})"
                )
        raise SourceError(
            f"values that cannot be rotated in {_listed(described)}: each would make its whole row "
            "unusable; fill them in, remove these rows, or set 'nulls' to 'drop_from_fit' so that these "
            "rows pass unperturbed"
        )


def read_numbers(
    table: pa.Table, names: Sequence[str], faults: Faults, progress: Progress
) -> tuple[Float64Array, BoolArray, dict[str, BoolArray]]:
    """Read fields as numbers; return `values`, the mask of absent rows, and `valid`, as in `Fit`.

    Parameters
    ----------
    table : pa.Table
    names : sequence of str
    faults : Faults
        Gets the counts of values that cannot be rotated.
    progress : Progress
    """
    rows = table.num_rows
    values = np.empty((len(names), rows))
    absent = np.zeros(rows, np.bool_)
    valid: dict[str, BoolArray] = {}
    chunks = get_num_threads() if rows > 65536 else 1
    for index, name in enumerate(names):
        progress(index / len(names), f"reading {name}")
        column = table.column(name)
        nan, infinite = _copy_numbers(_numbers(column), values[index], absent, chunks)
        missing = null_mask(column) if nan else absent[:0]
        nulls = int(np.count_nonzero(missing))
        if nulls:
            valid[name] = ~missing
        faults.add(name, nulls, nan - nulls, infinite)
    return values, absent, valid


def refuse_few_rows(rows: int, aside: str = "") -> None:
    """Raise SourceError if there are fewer than two rows; ``aside`` says which rows were counted."""
    if rows < 2:
        raise SourceError(f"PABIDOT needs two rows or more; there are {rows}{aside}")


def varying_fields(found: Moments, names: Sequence[str], faults: Faults) -> list[int]:
    """Return the indices of the fields that are not constant.

    Parameters
    ----------
    found : Moments
    names : sequence of str
        All fields.
    faults : Faults

    Raises
    ------
    SourceError
        There are fewer than two rows, or than two fields that are not constant; or a variance is outside
        the range that float64 can hold.
    """
    refuse_few_rows(found.rows, " without nulls" if faults else "")
    varying = [index for index in range(len(names)) if found.smallest[index] != found.largest[index]]
    if len(varying) < 2:
        raise SourceError(
            f"PABIDOT needs two fields or more that are not constant; there are {len(varying)} among "
            f"{_listed([repr(name) for name in names])}"
        )
    for index in varying:
        if not _LEAST_VARIANCE <= found.products[index, index] / (found.rows - 1) < math.inf:
            raise SourceError(
                f"the variance of field '{names[index]}' does not fit float64: use another unit"
            )
    return varying


def fit_numbers(table: pa.Table, names: Sequence[str], refuse: bool, progress: Progress) -> Fit:
    """Read the fields and compute their moments.

    Parameters
    ----------
    table : pa.Table
    names : sequence of str
    refuse : bool
        Whether a null, NaN or infinity is an error.
    progress : Progress

    Raises
    ------
    SourceError
        A null, NaN or infinity, and `refuse`; or as `varying_fields`.
    """
    faults = Faults()
    values, absent, valid = read_numbers(table, names, faults, sub_progress(progress, 0.0, 0.2))
    if refuse:
        faults.refuse(names)
    found = moments(values, absent if faults else None, sub_progress(progress, 0.2, 0.4))
    return Fit(values, valid, absent if faults else None, found, varying_fields(found, names, faults))


_LEAST_VARIANCE = 1e-280  # products of smaller deviations would lose digits (subnormal numbers)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
