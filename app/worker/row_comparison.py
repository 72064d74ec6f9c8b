"""Comparison of a release with its source: rows side by side, changed values, and a cross table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.worker.field_profile import flat, shown_texts, text_rows
from providers.errors import ParameterError, did_you_mean
from providers.tables.encodings import canonical_array
from providers.tables.equality import equality_codes
from providers.tables.joining import joined_arrays
from providers.tables.numbers import floats_of
from providers.tables.type_names import canonical_type, type_name

MOST_CATEGORIES = 24
"""Different values up to which a field counts as categorical, and has a cross table."""

Open: TypeAlias = "Callable[[], Iterable[pa.RecordBatch]]"
"""Function that reads a table from its beginning."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Parts of a comparison."""

    aligned: bool
    """Whether row i of the release was made of row i of the source."""
    rows: int
    """Number of rows to show."""
    only_changed: bool
    """Whether to show the first rows in which a value differs."""
    field: str | None
    by: str | None
    """Fields of the cross table; None: there is none."""


def compare_rows(schema: pa.Schema, source: Open, release: Open, wanted: Wanted) -> dict[str, Any]:
    """Compare the two tables.

    Parameters
    ----------
    schema : pa.Schema
        Fields of the source that are compared; the release has fields of the same names.
    source, release : callable
        Return the batches of each table.
    wanted : Wanted
        Rows and cross table to return.

    Returns
    -------
    dict
        As `app.api.table_schemas.RowComparison`.

    Raises
    ------
    ParameterError
        A field of the cross table is unknown or not categorical.
    """
    categories = _Categories(schema)
    for batch in source():
        categories.see(batch)
    for name in (wanted.field, wanted.by):
        if name is not None:
            categories.check(name)
    changed = np.zeros(len(schema), np.int64)
    shown: list[dict[str, Any]] = []
    done = 0
    for before, after in _paired(source(), release(), schema.names):
        differs = np.zeros(before.num_rows, np.bool_)
        if wanted.aligned:
            for place in range(len(schema)):
                mask = _differ(before.column(place), after.column(place))
                changed[place] += int(mask.sum())
                differs |= mask
        if len(shown) < wanted.rows:
            candidates = np.flatnonzero(differs) if wanted.only_changed else np.arange(before.num_rows)
            chosen = candidates[: wanted.rows - len(shown)]
            olds, news = (
                text_rows(pa.Table.from_batches([table.take(pa.array(chosen))])) for table in (before, after)
            )
            shown += [
                {"row": done + int(row), "before": old, "after": new}
                for row, old, new in zip(chosen, olds, news, strict=True)
            ]
        done += before.num_rows
    compared: dict[str, Any] = {
        "aligned": wanted.aligned,
        "rows_read": done,
        "fields": [
            {"name": field.name, "type": type_name(field.type)}
            | ({"changed": int(count)} if wanted.aligned else {})
            for field, count in zip(schema, changed, strict=True)
        ],
        "rows": shown,
        "categories": categories.names,
    }
    if wanted.field is not None and wanted.by is not None:
        compared["crosstab"] = _crosstab(wanted.field, wanted.by, source, release)
    return compared


class _Categories:
    """Fields of the source with few different values."""

    def __init__(self, schema: pa.Schema) -> None:
        self._known = list(schema.names)
        self._values: dict[str, pa.Array | None] = {
            field.name: None
            for field in schema
            if not (pa.types.is_nested(kind := canonical_type(field.type)) or pa.types.is_interval(kind))
        }

    def see(self, batch: pa.RecordBatch) -> None:
        """Add the values of a batch; drop the fields that have too many."""
        for name, before in list(self._values.items()):
            values = pc.unique(flat(batch.column(name)))
            if before is not None:
                values = pc.unique(joined_arrays([before, values]))
            if len(values) > MOST_CATEGORIES:
                del self._values[name]
            else:
                self._values[name] = values

    @property
    def names(self) -> list[str]:
        """Names of the fields, in the order of the table."""
        return list(self._values)

    def check(self, name: str) -> None:
        """Raise ParameterError unless the field has a cross table."""
        if name not in self._known:
            raise ParameterError(f"there is no field '{name}'{did_you_mean(name, self._known)}")
        if name not in self._values:
            raise ParameterError(
                f"field '{name}' has more than {MOST_CATEGORIES} different values; a cross table is for "
                "categories"
            )


def _paired(
    source: Iterable[pa.RecordBatch], release: Iterable[pa.RecordBatch], names: list[str]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield batches of equal rows of the two tables, as far as both have rows."""
    others = iter(release)
    rest: pa.RecordBatch | None = None
    for batch in source:
        one = batch.select(names)
        while one.num_rows:
            if rest is None or not rest.num_rows:
                rest = next(others, None)
                if rest is None:
                    return
                rest = rest.select(names)
                continue
            rows = min(one.num_rows, rest.num_rows)
            yield one.slice(0, rows), rest.slice(0, rows)
            one, rest = one.slice(rows), rest.slice(rows)


def _as_floats(array: pa.Array) -> pa.Array:
    """Return numbers as the nearest float64."""
    if pa.types.is_decimal(array.type):
        return floats_of(pa.chunked_array([array])).chunk(0)
    return array.cast(pa.float64(), safe=False)


def _differ(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Return a mask of the values that differ; a null equals a null, and NaN equals NaN."""
    one, other = flat(one), flat(other)
    if pa.types.is_nested(one.type) or pa.types.is_interval(one.type):
        one, other = canonical_array(one), canonical_array(other)
        if one.type == other.type:
            codes = equality_codes(joined_arrays([one, other]))
            return np.asarray(codes[: len(one)] != codes[len(one) :])
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.array([before != after for before, after in pairs], np.bool_)
    if pa.types.is_null(one.type) and pa.types.is_null(other.type):
        return np.zeros(len(one), np.bool_)
    if one.type != other.type:  # LOCALITY and PABIDOT publish integers as float64
        one, other = _as_floats(one), _as_floats(other)
    unequal = pc.not_equal(one, other)
    if pa.types.is_floating(one.type):
        unequal = pc.and_(unequal, pc.invert(pc.and_(pc.is_nan(one), pc.is_nan(other))))
    filled = pc.if_else(pc.is_null(unequal), pc.xor(one.is_null(), other.is_null()), unequal)
    return np.asarray(filled.cast(pa.uint8())).astype(np.bool_)


def _crosstab(field: str, by: str, source: Open, release: Open) -> dict[str, Any]:
    """Count the pairs of values of two fields in both tables, the most frequent values first."""
    before, after = _pair_counts(field, by, source), _pair_counts(field, by, release)
    rows, columns = (_by_frequency(place, before, after) for place in (0, 1))

    def filled(counts: Counter[tuple[str | None, str | None]]) -> list[list[int]]:
        return [[counts[row, column] for column in columns] for row in rows]

    return {
        "field": field,
        "by": by,
        "values": rows,
        "by_values": columns,
        "before": filled(before),
        "after": filled(after),
    }


def _pair_counts(field: str, by: str, read: Open) -> Counter[tuple[str | None, str | None]]:
    counts: Counter[tuple[str | None, str | None]] = Counter()
    for batch in read():
        pairs = pa.table({"field": flat(batch.column(field)), "by": flat(batch.column(by))})
        found = pairs.group_by(["field", "by"]).aggregate([([], "count_all")]).combine_chunks()
        if not found.num_rows:
            continue
        texts = (shown_texts(found[name].chunk(0)) for name in ("field", "by"))
        for one, other, count in zip(*texts, found["count_all"].to_pylist(), strict=True):
            counts[one, other] += count
    return counts


def _by_frequency(
    place: int,
    before: Counter[tuple[str | None, str | None]],
    after: Counter[tuple[str | None, str | None]],
) -> list[str | None]:
    """Return the values of one field, the most frequent in the source first, null last."""
    totals: Counter[str | None] = Counter()
    for pair, count in before.items():
        totals[pair[place]] += count
    for pair in after:
        totals[pair[place]] += 0
    return sorted(totals, key=lambda value: (value is None, -totals[value], value or ""))
