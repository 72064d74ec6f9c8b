"""A field's values as whole units wherever its type has such: integers, days, decimals by their scale."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import SourceError
from providers.literals import value_type
from providers.radix import Int64Array, UInt64Array
from providers.table import combined, null_mask, unwrapped, words_of

FloatArray = npt.NDArray[np.float64]


def below_encodings(kind: pa.DataType) -> pa.DataType:
    """The type of the values below all encodings."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif value_type(kind) != kind:
            kind = value_type(kind)
        else:
            return kind


def whole_units(kind: pa.DataType, decimals: int) -> tuple[int, int] | None:
    """The least and greatest whole unit of the type, where so many decimals are just its own; else None."""
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return (max(-most, -(2**63)), min(most, 2**63 - 1)) if decimals == kind.scale else None
    if decimals:
        return None
    if pa.types.is_date(kind):  # the years 1 to 9999
        return -719_162, 2_932_896
    if not pa.types.is_integer(kind):
        return None
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


@dataclass(frozen=True, slots=True)
class Numbers:
    """The values of a field that are not null, in record order."""

    rows: Int64Array
    """Their rows."""
    values: FloatArray
    """Each the nearest float64; dates in days since 1970."""
    units: UInt64Array | None
    """As whole units from the least on; None for floats."""
    least: int
    """The least value in units."""
    scale: int
    """A unit is 10**-scale."""


@dataclass(slots=True)
class NumberFaults:
    """How many values of a field are no numbers to compute with."""

    not_finite: int = 0
    long: int = 0
    """Decimals of over 64 bits without the point."""

    def add(self, other: "NumberFaults") -> None:
        """Those of more rows."""
        self.not_finite += other.not_finite
        self.long += other.long

    def refuse(self, name: str) -> None:
        """Raise SourceError where there is any."""
        if self.not_finite:
            several = self.not_finite > 1
            raise SourceError(
                f"field '{name}' holds {self.not_finite} value{'s' * several} that "
                f"{'are' if several else 'is'} not finite; make NaN and infinities null, which pass through"
            )
        if self.long:
            raise SourceError(
                f"field '{name}' holds {self.long} decimal{'s' * (self.long > 1)} of over 64 bits without "
                "the point; cast it to double"
            )


def numbers_of(column: pa.ChunkedArray, name: str) -> Numbers:
    """The field's values as numbers. Raises SourceError where one is not finite, or a decimal too long."""
    numbers, faults = numbers_read(column)
    faults.refuse(name)
    return numbers


def numbers_read(column: pa.ChunkedArray) -> tuple[Numbers, NumberFaults]:
    """The values as numbers, to be relied on where nothing is at fault."""
    column = unwrapped(column)
    if pa.types.is_dictionary(column.type):
        column = unwrapped(column.cast(value_type(column.type)))
    missing = null_mask(column)
    if pa.types.is_date64(column.type):
        column = pc.cast(column, pa.date32())
    kind, array = column.type, combined(column)
    rows = np.flatnonzero(~missing)
    if pa.types.is_floating(kind):
        words = words_of(array)
        floats = words.view(f"f{words.dtype.itemsize}")[rows].astype(np.float64)
        wrong = int(np.count_nonzero(~np.isfinite(floats)))
        return Numbers(rows, floats, None, 0, 0), NumberFaults(not_finite=wrong)
    faults = NumberFaults()
    if pa.types.is_decimal(kind):
        scale = kind.scale
        unscaled, faults.long = _unscaled(array)
        whole: npt.NDArray[Any] = unscaled[rows]
    else:
        scale, whole = 0, _whole(array)[rows]
    least = int(whole.min()) if len(whole) else 0
    units = (whole - whole.dtype.type(least)).view(f"u{whole.dtype.itemsize}").astype(np.uint64)
    return Numbers(rows, whole.astype(np.float64) / 10.0**scale, units, least, scale), faults


def counted_from(numbers: Numbers, least: int) -> Numbers:
    """The same numbers, their units counted from the least of more rows than these."""
    if numbers.units is None or numbers.least == least:
        return numbers
    units = numbers.units + np.uint64(numbers.least - least) if len(numbers.units) else numbers.units
    return replace(numbers, units=units, least=least)


def _whole(array: pa.Array) -> npt.NDArray[Any]:
    words = words_of(array)
    letter = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    return words.view(f"{letter}{words.dtype.itemsize}")


def _unscaled(array: pa.Array) -> tuple[Int64Array, int]:
    """Decimals as whole units, int64, and how many are too long for that."""
    width = array.type.bit_width // 8
    if width <= 8:
        return words_of(array).view(f"i{width}").astype(np.int64), 0
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), np.int64), 0
    words = np.frombuffer(data, np.int64, len(array) * width // 8, array.offset * width).reshape(
        -1, width // 8
    )
    lowest = words[:, 0]
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    long = int(np.count_nonzero((words[:, 1:] != (lowest >> 63)[:, None]).any(axis=1) & valid))
    return np.ascontiguousarray(lowest), long
