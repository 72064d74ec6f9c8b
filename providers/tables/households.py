"""Households of a table: the members of each, the codes of its fields, and its address in random streams."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import Int64Array
from providers.errors import ParameterError, SourceError
from providers.tables.codes import codes, codes_and_nulls, is_text
from providers.tables.columns import combined, take, unwrapped


@dataclass(frozen=True, slots=True)
class Households:
    """Households, numbered in the order of their first rows."""

    of_row: Int64Array
    """Household of each row, shape (rows,)."""
    first: Int64Array
    """First row of each household, ascending, shape (households,)."""
    sizes: Int64Array
    """Rows of each household, shape (households,)."""
    identity: npt.NDArray[np.uint64]
    """64-bit number of each household that depends on its id alone, shape (households,)."""

    def __len__(self) -> int:
        return len(self.first)


def check_household_field(
    field: pa.Field, pointer: str = "/parameters/household", noun: str = "household"
) -> None:
    """Raise ParameterError unless the field's values are integers or text."""
    kind = _plain_type(field.type)
    if not (pa.types.is_integer(kind) or is_text(kind)):
        message = f"field '{field.name}' of type {field.type} cannot identify {noun}s: integers and text can"
        raise ParameterError(message, pointer)


def households_of(
    table: pa.Table,
    household: str | None,
    pointer: str = "/parameters/household",
    noun: str = "household",
) -> Households:
    """Group the rows by the household field; without one, every row is a household.

    Raises
    ------
    SourceError
        A row has no household.

    Notes
    -----
    O(rows). The identity of an integer is its two's complement in 64 bits, that of a text the first 8 bytes
    of its BLAKE2b hash, that of a row without a household field its number.
    """
    rows = table.num_rows
    if household is None:
        numbers = np.arange(rows, dtype=np.int64)
        return Households(numbers, numbers, np.ones(rows, np.int64), numbers.view(np.uint64))
    column = table.column(household)
    of_row, count, absent = codes_and_nulls(column)
    if absent:
        message = (
            f"field '{household}' is null in {absent} row{'s' if absent > 1 else ''}: give each a {noun}"
        )
        raise SourceError(message, pointer)
    first = np.empty(count, np.int64)
    first[of_row[::-1]] = np.arange(rows - 1, -1, -1)
    sizes = np.bincount(of_row, minlength=count).astype(np.int64)
    column = unwrapped(column)
    if pa.types.is_dictionary(column.type):  # read: its indices may be wider than those of its chunks
        column = pa.chunked_array([combined(column)])
    return Households(of_row, first, sizes, _identities(take(column, pa.array(first))))


def household_codes(
    table: pa.Table, name: str, households: Households, pointer: str
) -> tuple[Int64Array, int]:
    """Return the codes of a field by household, shape (households,), and their number.

    Raises
    ------
    SourceError
        The field differs within a household.
    """
    found, count = codes(table.column(name))
    found = np.require(found, requirements="W")  # kernels are compiled for arrays that may be written
    if len(households) == len(found):
        return found, count
    by_household = found[households.first]
    different = np.flatnonzero(by_household[households.of_row] != found)
    if len(different):
        torn = len(np.unique(households.of_row[different]))
        message = (
            f"field '{name}' differs within {torn} household{'s' if torn > 1 else ''}, first in row "
            f"{different[0]}: a household has one value of it"
        )
        raise SourceError(message, pointer)
    return by_household, count


def _identities(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return the identity of each id; see `households_of`."""
    column = plain_ids(column)
    if pa.types.is_integer(column.type):
        numbers: npt.NDArray[Any] = combined(column).to_numpy(zero_copy_only=False)
        return numbers.astype(np.uint64 if numbers.dtype.kind == "u" else np.int64).view(np.uint64)
    hashes = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in column.to_pylist())
    return np.frombuffer(hashes, "<u8").astype(np.uint64)


def plain_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids as integers or text, without extension types and encodings."""
    column = unwrapped(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values below extension types, run-end encodings and dictionaries."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_run_end_encoded(kind) or pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    return kind
