"""Profile of a table's fields: nulls, distinct values, range and a small histogram, read batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.formats.value_text import to_text
from providers.tables.joining import joined_arrays
from providers.tables.type_names import type_name

MOST_FIELDS = 300
"""Largest number of fields that one profile describes."""
BINS = 12
"""Largest number of bins of a histogram, and of values that are listed with their counts."""
MOST_DISTINCT = 50_000
"""Distinct values up to which a field's values are counted exactly."""

_MOST_CELLS = 100_000_000
_MOST_COUNTED_BYTES = 1 << 28  # of the counted values of all fields together
_LEAST_ROWS = 1_000
_LONGEST = 200  # characters of a value that is shown
_MOST_DIGITS = 76  # of a decimal of 256 bits; one of 128 bits has half of them

Open: TypeAlias = "Callable[[], Iterable[pa.RecordBatch]]"
"""Function that reads the table from its beginning."""


def rows_to_read(fields: int) -> int:
    """Return the number of first rows that a profile of this number of fields reads."""
    return max(_LEAST_ROWS, _MOST_CELLS // max(1, fields))


def profile_fields(schema: pa.Schema, read: Open) -> list[dict[str, Any]]:
    """Profile each field of the schema.

    Parameters
    ----------
    schema : pa.Schema
        Fields to profile; the batches may have more fields after them.
    read : callable
        Returns the batches. It is called twice: the bins of a histogram follow from the range.

    Returns
    -------
    list of dict
        One profile for each field, as `app.api.table_schemas.FieldProfile`.
    """
    states = [_FieldState(field, max(1, len(schema))) for field in schema]
    for batch in read():
        for place, state in enumerate(states):
            state.see(flat(batch.column(place)))
    binned = [(place, state) for place, state in enumerate(states) if state.set_bins()]
    if binned:
        for batch in read():
            for place, state in binned:
                state.count_bins(flat(batch.column(place)))
    return [state.described() for state in states]


def flat(array: pa.Array) -> pa.Array:
    """Return the array without encodings, extension type, and types whose values Arrow cannot compare."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_date64(array.type):
        return array.cast(pa.date32())
    if pa.types.is_decimal(array.type):
        return _comparable_decimals(array)
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def _comparable_decimals(array: pa.Array) -> pa.Array:
    """Return the decimals in at least 128 bits and with a scale of 0 or more; as text if none holds them."""
    kind = array.type
    if kind.bit_width >= 128 and kind.scale >= 0:
        return array
    digits = kind.precision - min(kind.scale, 0)
    if digits > _MOST_DIGITS:
        return array.cast(pa.string())
    wide = pa.decimal128 if digits <= _MOST_DIGITS // 2 else pa.decimal256
    return array.cast(wide(digits, max(kind.scale, 0)))


def shown_texts(array: pa.Array) -> list[str | None]:
    """Return each value as text, as a CSV has it, cut at 200 characters; nested values as JSON-like text."""
    array = flat(array)
    if _has_text(array.type):
        texts = to_text(array).to_pylist()
    else:
        texts = [None if value is None else str(value) for value in array.to_pylist()]
    return [text if text is None or len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in texts]


def text_rows(table: pa.Table) -> list[list[str | None]]:
    """Return the table's rows as texts."""
    columns = [[text for chunk in column.chunks for text in shown_texts(chunk)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _has_text(data_type: pa.DataType) -> bool:
    return not (pa.types.is_nested(data_type) or pa.types.is_interval(data_type))


def _is_ordered(data_type: pa.DataType) -> bool:
    """Return whether values of the type have a range that a histogram can show."""
    kind = pa.types
    return bool(
        kind.is_integer(data_type)
        or kind.is_floating(data_type)
        or kind.is_decimal(data_type)
        or kind.is_date(data_type)
        or kind.is_timestamp(data_type)
    )


@dataclass(slots=True)
class _Bins:
    """Equal bins between two numbers, the last one closed."""

    edges: np.ndarray
    """Edges of the bins, ascending; integers for fields of integers and times."""
    counts: np.ndarray


class _FieldState:
    """Figures of one field, as far as it has been read."""

    def __init__(self, field: pa.Field, fields: int) -> None:
        self._name = field.name
        self._type_name = type_name(field.type)
        self._nulls = self._rows = 0
        self._runs = 0
        self._before: Any = None
        self._last: pa.Array | None = None
        self._counts: pa.Table | None = None
        self._exact = True
        self._most_bytes = _MOST_COUNTED_BYTES // fields
        self._least: pa.Scalar | None = None
        self._most: pa.Scalar | None = None
        self._bins: _Bins | None = None
        self._type: pa.DataType | None = None

    def see(self, values: pa.Array) -> None:
        """Add values to the counts and the range."""
        self._type = values.type
        self._rows += len(values)
        self._nulls += values.null_count
        if not len(values) or not _has_text(values.type) or pa.types.is_null(values.type):
            self._exact = self._exact and not pa.types.is_nested(values.type)
            return
        self._count_runs(values)
        known = values.drop_null()
        if len(known):
            self._count(known)
            self._extend_range(known)

    def _count_runs(self, values: pa.Array) -> None:
        joined = values if self._last is None else joined_arrays([self._last, values])
        one, other = joined.slice(0, len(joined) - 1), joined.slice(1)
        differ = pc.fill_null(pc.not_equal(one, other), pc.xor(pc.is_null(one), pc.is_null(other)))
        self._runs += (pc.sum(differ).as_py() or 0) + (self._last is None)
        self._last = values.slice(len(values) - 1)

    def _count(self, known: pa.Array) -> None:
        if not self._exact:
            return
        found = pc.value_counts(known)
        fresh = pa.table({"value": found.field("values"), "count": found.field("counts")})
        if self._counts is not None:
            both = pa.concat_tables([self._counts, fresh])
            fresh = both.group_by("value").aggregate([("count", "sum")]).rename_columns(["value", "count"])
        self._counts = fresh
        if len(fresh) > MOST_DISTINCT or fresh.nbytes > self._most_bytes:
            self._exact = False

    def _extend_range(self, known: pa.Array) -> None:
        if not _is_ordered(known.type):
            return
        if pa.types.is_floating(known.type):
            known = known.filter(pc.is_finite(known))
            if not len(known):
                return
        found = pc.min_max(known)
        least, most = found["min"], found["max"]
        if self._least is None or pc.less(least, self._least).as_py():
            self._least = least
        if self._most is None or pc.greater(most, self._most).as_py():
            self._most = most

    @property
    def _distinct(self) -> int:
        return 0 if self._counts is None else len(self._counts)

    def set_bins(self) -> bool:
        """Lay bins over the range; return False for a field whose values are listed, or that has no range."""
        if self._least is None or self._most is None or (self._exact and self._distinct <= BINS):
            return False
        low, high = (_numbers(_one(end))[0] for end in (self._least, self._most))
        assert self._type is not None
        if pa.types.is_floating(self._type) or pa.types.is_decimal(self._type):
            edges = np.linspace(float(low), float(high), BINS + 1)
        else:
            width = max(1, -(-(int(high) - int(low) + 1) // BINS))
            bins = -(-(int(high) - int(low) + 1) // width)
            edges = np.array([int(low) + width * place for place in range(bins + 1)], dtype=object)
        self._bins = _Bins(edges, np.zeros(len(edges) - 1, np.int64))
        return True

    def count_bins(self, values: pa.Array) -> None:
        """Add values to the bins."""
        assert self._bins is not None
        known = values.drop_null()
        if pa.types.is_floating(known.type):
            known = known.filter(pc.is_finite(known))
        if not len(known):
            return
        edges, numbers = self._bins.edges, _numbers(known)
        if edges.dtype == object:  # whole numbers, of which float64 has not all
            offsets = numbers.view(np.uint64) - np.uint64(edges[0] % 2**64)
            places = (offsets // np.uint64(edges[1] - edges[0])).astype(np.int64)
        else:
            places = np.searchsorted(edges, numbers, side="right") - 1
            places = np.clip(places, 0, len(edges) - 2)  # the last bin is closed
        self._bins.counts += np.bincount(places, minlength=len(edges) - 1)

    def described(self) -> dict[str, Any]:
        """Return the profile of the field."""
        profile: dict[str, Any] = {
            "name": self._name,
            "type": self._type_name,
            "nulls": self._nulls,
            "distinct": min(self._distinct, MOST_DISTINCT),
            "distinct_is_exact": self._exact,
        }
        if self._runs:
            profile["runs"] = self._runs
        if self._least is not None and self._most is not None:
            ends = (self._least, self._most)
            profile["minimum"], profile["maximum"] = (shown_texts(_one(end))[0] for end in ends)
        if self._exact and self._counts is not None:
            profile |= self._listed()
        if self._bins is not None:
            profile["histogram"] = {"edges": self._edge_texts(), "counts": self._bins.counts.tolist()}
        return profile

    def _listed(self) -> dict[str, Any]:
        """Return the count of the most frequent value, and the most frequent values if any repeats."""
        assert self._counts is not None
        counts = np.asarray(self._counts["count"].combine_chunks())
        found: dict[str, Any] = {"largest_count": int(counts.max())}
        if found["largest_count"] > 1 and self._bins is None:
            values = self._counts["value"].combine_chunks()
            first = np.argsort(-counts, kind="stable")[:BINS]
            texts = shown_texts(values.take(pa.array(first)))
            pairs = sorted(zip(-counts[first], texts, strict=True), key=lambda pair: (pair[0], pair[1]))
            found["values"] = [{"value": text, "count": int(-count)} for count, text in pairs]
        return found

    def _edge_texts(self) -> list[str]:
        assert self._bins is not None
        assert self._type is not None
        edges = self._bins.edges
        if pa.types.is_floating(self._type) or pa.types.is_decimal(self._type):
            return [f"{edge:.6g}" for edge in edges]
        if pa.types.is_integer(self._type):
            return [str(edge) for edge in edges]
        width = pa.int32() if self._type.bit_width == 32 else pa.int64()
        most = np.iinfo(np.int32 if self._type.bit_width == 32 else np.int64).max
        stored = pa.array([min(int(edge), int(most)) for edge in edges], width)
        return [text or "" for text in shown_texts(stored.cast(self._type))]


def _one(value: pa.Scalar) -> pa.Array:
    """Return an array of the one value, which may be finer than a value of Python."""
    return pa.repeat(value, 1)


def _numbers(values: pa.Array) -> np.ndarray:
    """Return the values as numbers of 64 bits: times in units of their type since its origin."""
    kind = pa.types
    if kind.is_decimal(values.type) or kind.is_floating(values.type):
        return np.asarray(values.cast(pa.float64()))
    if kind.is_integer(values.type):
        return np.asarray(values.cast(pa.uint64() if values.type == pa.uint64() else pa.int64()))
    stored = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return np.asarray(stored.cast(pa.int64()))
