"""Source, release and control rows, in the forms that the attacks need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Float64Array, IndexArray, Int32Array, Int64Array
from providers.attacks.options import AttackOptions
from providers.attacks.units import row_of_each
from providers.errors import ParameterError
from providers.grouping.shuffle import shuffle_rows
from providers.measures.shared.columns import (
    Column,
    column_of,
    in_one_type,
    not_measurable,
    plain_column,
)
from providers.measures.shared.entropy import range_is_stretched
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.roles import role_of
from providers.measures.shared.sampling import sample_rows
from providers.progress import Progress, no_progress
from providers.randomness.chacha20 import Stream
from providers.tables.ranks import ranks_among
from providers.tables.units import unit_codes, unit_field

Rows = Literal["source", "release", "control"]

PAIRS = 200_000_000
"""Most pairs of an attacked row and a released row that a search compares; larger tables are attacked less
often."""

LEAST_ATTACKS = 100
"""Number of attacks of each kind below which no table size brings it."""


MOST_CHANGED = 0.05
"""Share of rows up to which a field that differs from the source counts as unchanged."""


@dataclass(frozen=True, slots=True)
class MethodUsed:
    """Service that made a release, with its parameters, which an intruder is assumed to know."""

    service: str
    parameters: dict[str, Any]
    """Parameters as plain JSON, as in a request."""

    @property
    def unit_field(self) -> str | None:
        """Field whose equal values are the rows of one person or household; None: rows stand alone."""
        return unit_field(self.parameters)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows as points for Gower's distance."""

    numbers: Float64Array
    """Numbers as shares of the field's range, NaN if missing; shape (fields of numbers, rows)."""
    codes: Int32Array
    """Codes of categories, the same in all tables; shape (fields of categories, rows)."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.numbers.shape[1])

    def take(self, rows: Int64Array) -> Encoded:
        """Return these rows."""
        return Encoded(self.numbers[:, rows], self.codes[:, rows])


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Success of the attack, and of the guess of its baseline, at each attacked row; shape (attacks,)."""

    attack: BoolArray
    baseline: BoolArray


class AttackTables:
    """Tables of one attacked release field by field; costly intermediate results are computed once.

    Parameters
    ----------
    source : pa.Table
        Rows that were released, after a sister release without the withheld tenth.
    release : pa.Table
    control : pa.Table, optional
        Rows that were not in the source.
    options : AttackOptions
        Checked by `check_attack_options`.
    method : MethodUsed, optional
        Service that made the release, if known.
    aligned : bool
        Whether row i of the release was made from row `origin[i]` of the source, or from row i without
        `origin`.
    stream : Stream
        Randomness of the attacks.
    origin : ndarray of int, shape (rows of the release,), optional
        Source row of each row of the release; None: the row of the same number. Used to judge attacks only.
    kept : ndarray of int, shape (rows of the source,), optional
        Row of the given source of each row of `source`; None: the row of the same number.

    Raises
    ------
    ParameterError
        The timestamps of a known or secret field are in two units and have no common one.
    """

    def __init__(
        self,
        source: pa.Table,
        release: pa.Table,
        control: pa.Table | None,
        options: AttackOptions,
        *,
        method: MethodUsed | None,
        aligned: bool,
        stream: Stream,
        origin: IndexArray | None = None,
        kept: IndexArray | None = None,
    ) -> None:
        self._kept = kept
        self.source, self.release, self.control = source, release, control
        self.options, self.method, self.stream, self.origin = options, method, stream, origin
        self.aligned = aligned and (origin is not None or source.num_rows == release.num_rows)
        self.progress: Progress = no_progress
        self.sampled: dict[str, int] = {}
        """Sizes of samples in place of the requested sizes; see `AttackFigures.sampled`."""
        self.outcomes: dict[str, Outcomes] = {}
        """Secret, or name of an attack -> which attacks of the source's rows succeeded, for some attacks."""
        self._unchanged: dict[str, bool] = {}
        self.columns: dict[str, Column] = {}
        """Fields that take part: as side "source" the rows of the source and then the control rows, as side
        "destination" those of the release."""
        self.left_out: dict[str, str] = {}
        """Field -> reason for which no attack uses it."""
        found = {name: column for name in source.schema.names if (column := self._column(name)) is not None}
        self.unit_field = options.unit_field or (method.unit_field if method else None)
        """Field whose equal values are rows that depend on each other; None: rows stand alone."""
        named = {*options.known, *options.secret}
        judged = {name: column for name, column in found.items() if name not in named}
        roles = _roles(judged.values(), options, self.unit_field, source)
        self.left_out |= roles
        self.columns = {name: column for name, column in found.items() if name not in roles}

    def _column(self, name: str) -> Column | None:
        if name not in self.release.schema.names:
            self.left_out[name] = "the release has no field of this name"
            return None
        categorical = name in self.options.categorical_fields
        reason = not_measurable(self.source.schema.field(name), self.release.schema.field(name), categorical)
        if reason is not None:
            self.left_out[name] = reason
            return None
        attacked = plain_column(self.source.column(name))
        try:
            if self.control is not None:
                attacked = _joined(attacked, plain_column(self.control.column(name)))
            return column_of(name, attacked, self.release.column(name), categorical)
        except NotApplicable as error:
            self._refuse_if_named(name, str(error))
            self.left_out[name] = str(error)
            return None

    def _refuse_if_named(self, name: str, reason: str) -> None:
        """Raise ParameterError if the field, which cannot be attacked, is known or secret."""
        for option in ("known", "secret"):
            named: tuple[str, ...] = getattr(self.options, option)
            if name in named:
                raise ParameterError(
                    f"field '{name}' cannot be attacked: {reason}", f"/{option}/{named.index(name)}"
                )

    # ------------------------------------------------------------------------------------ requirements

    def need_rows(self, least: int = 1) -> None:
        """Raise NotApplicable if source or release has fewer rows."""
        if min(self.source.num_rows, self.release.num_rows) < least:
            raise NotApplicable(
                f"it needs {least} row{'s' * (least > 1)} or more in the source and in the release"
            )

    def need_known(self, least: int = 1) -> list[str]:
        """Return the known fields. Raises NotApplicable if there are fewer."""
        if len(self.options.known) < least:
            fields = "a field" if least == 1 else f"{least} fields or more"
            raise NotApplicable(f"name {fields} that an intruder knows in 'known'")
        return list(self.options.known)

    def need_aligned(self) -> None:
        """Raise NotApplicable if the source row of each released row is unknown."""
        if not self.aligned:
            raise NotApplicable("its success is judged row by row, and which row became which is not known")

    # --------------------------------------------------------------------------------- known rows

    @cached_property
    def named_rows(self) -> BoolArray | None:
        """Mask of the source's rows that `known_rows` names; None: it names none. Shape (rows,).

        Raises
        ------
        NotApplicable
            A sister release was made without any of them.
        """
        if not self.options.known_rows:
            return None
        kept = np.arange(self.source.num_rows) if self._kept is None else self._kept
        named = np.isin(kept, self.options.known_rows)
        if not named.any():
            raise NotApplicable("the sister release was made without any of the rows that 'known_rows' names")
        return named

    # ------------------------------------------------------------------------------------ attacked rows

    @cached_property
    def attacks(self) -> int:
        """Number of attacks of each kind; fewer than asked for if the release is too large."""
        wanted = self.options.attacks
        most = max(LEAST_ATTACKS, PAIRS // max(1, self.release.num_rows))
        if wanted > most and self.source.num_rows > most:
            self.sampled["attacks"] = most
        return int(min(wanted, most))

    @cached_property
    def targets(self) -> Int64Array:
        """Random rows of the source that are attacked, ascending; shape (at most `attacks`,).

        Of each unit of several rows one random row at most, so that attacks are independent of each other.
        """
        return self._attacked_rows(self.source, "targets")

    @cached_property
    def control_targets(self) -> Int64Array:
        """Random control rows that are attacked, ascending, one of each unit; without control rows none."""
        if self.control is None:
            return np.empty(0, np.int64)
        return self._attacked_rows(self.control, "control targets")

    @cached_property
    def control_halves(self) -> tuple[Int64Array, Int64Array]:
        """Two halves of the attacked control rows, as places in `control_targets`; both ascending.

        Withheld rows are random ones, so that every other one is a half. The order of given ones may mean
        something, such as two kinds of rows in turn: their halves are random.
        """
        order: IndexArray = np.arange(len(self.control_targets))
        if self._kept is None:
            order = shuffle_rows(len(order), self.stream.key("halves of the control rows")).order
        return np.sort(order[::2]).astype(np.int64), np.sort(order[1::2]).astype(np.int64)

    def _attacked_rows(self, table: pa.Table, purpose: str) -> Int64Array:
        units = unit_codes(table, self.unit_field)
        if units is None:
            return sample_rows(table.num_rows, self.attacks, self.stream, purpose)
        one_each = row_of_each(units, self.stream, purpose)
        return np.sort(one_each[sample_rows(len(one_each), self.attacks, self.stream, purpose)])

    # ----------------------------------------------------------------------------------------- persons

    @property
    def one_person(self) -> bool:
        """Whether the rows of a unit belong to one person; the rows of a household belong to several."""
        of_run = self.method.parameters.get("unit_id") if self.method else None
        return self.unit_field is not None and self.unit_field in (self.options.unit_field, of_run)

    def units(self, rows: Rows) -> Int64Array | None:
        """Return the unit of each row of a table, from 0 on; None if rows stand alone. Shape (rows,)."""
        table = {"source": self.source, "release": self.release, "control": self.control}[rows]
        found = None if table is None else unit_codes(table, self.unit_field)
        if found is None and rows == "release" and self.aligned:
            source = unit_codes(self.source, self.unit_field)
            found = source if source is None or self.origin is None else source[self.origin]
        return found

    # ------------------------------------------------------------------------------- unchanged fields

    def unchanged_among(self, fields: Sequence[str]) -> list[str]:
        """Return the fields of which the release has changed few values; empty if these are all fields.

        An intruder who looks for a row ignores the other ones: exchanged values are noise. Fields that differ
        in a few rows stay, so that a single suppressed value does not hide this intruder. Empty also if the
        source row of each released row is not known.
        """
        if not self.aligned or not self.release.num_rows:
            return []
        found = [name for name in fields if self._is_unchanged(name)]
        return found if len(found) < len(fields) else []

    def _is_unchanged(self, name: str) -> bool:
        if name not in self._unchanged:
            rows = slice(None) if self.origin is None else self.origin
            if self.is_number(name):
                before, after = self.numbers(name, "source")[rows], self.numbers(name, "release")
                different = (before != after) & ~(np.isnan(before) & np.isnan(after))
            else:
                different = self.codes(name, "source")[rows] != self.codes(name, "release")
            self._unchanged[name] = bool(np.mean(different) <= MOST_CHANGED)
        return self._unchanged[name]

    # ------------------------------------------------------------------------------------------ values

    def numbers(self, name: str, rows: Rows) -> Float64Array:
        """Return the numbers of a field less its offset, NaN for null, NaN and infinities; shape (rows,)."""
        column = self.columns[name]
        if rows == "release":
            return column.numbers("destination")
        count = self.source.num_rows
        return column.numbers("source", 0, count) if rows == "source" else column.numbers("source", count)

    def codes(self, name: str, rows: Rows) -> Int32Array:
        """Return the codes of a field's values, the same in all tables; shape (rows,)."""
        column = self.columns[name]
        if rows == "release":
            return column.codes("destination")
        codes = column.codes("source")
        return codes[: self.source.num_rows] if rows == "source" else codes[self.source.num_rows :]

    def is_number(self, name: str) -> bool:
        """Whether a field has numbers or times; all others are categories."""
        return self.columns[name].kind != "category"

    def encode(self, fields: Sequence[str], rows: Rows) -> Encoded:
        """Encode all rows of a table for Gower's distance on these fields.

        A number is its share of the field's range over all tables, so that a difference is at most 1; numbers
        that are all equal count nothing. If extreme values stretch that range, it is the rank among all
        tables: else one value would make all others equal.
        """
        count = {"source": self.source, "release": self.release, "control": self.control}[rows]
        length = 0 if count is None else count.num_rows
        numeric = [name for name in fields if self.is_number(name)]
        categorical = [name for name in fields if not self.is_number(name)]
        numbers, codes = np.empty((len(numeric), length)), np.empty((len(categorical), length), np.int32)
        for index, name in enumerate(numeric):
            numbers[index] = self._share_of_range(name, rows)
        for index, name in enumerate(categorical):
            codes[index] = self.codes(name, rows)
        return Encoded(numbers, codes)

    def _share_of_range(self, name: str, rows: Rows) -> Float64Array:
        found, column = self.numbers(name, rows), self.columns[name]
        numbers = np.concatenate([column.numbers("source"), column.numbers("destination")])
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return found
        if range_is_stretched(numbers):
            return ranks_among(found, numbers) / len(numbers)
        low, high = float(numbers.min()), float(numbers.max())
        span = high / 2 - low / 2  # halves: the difference of two huge numbers may overflow
        return (found / 2 - low / 2) / (span if span > 0 else 1.0)


def _joined(source: pa.ChunkedArray, control: pa.ChunkedArray) -> pa.ChunkedArray:
    source, control = in_one_type(source, control, "control rows")
    return pa.chunked_array([*source.chunks, *control.chunks], source.type)


def _roles(
    columns: Collection[Column], options: AttackOptions, unit: str | None, source: pa.Table
) -> dict[str, str]:
    """Return field -> reason for the fields that take no part, judged by the source's rows alone."""
    found = {}
    for column in columns:
        if column.name in options.identifiers:
            found[column.name] = "it was given as an identifier"
            continue
        if column.name == unit:
            found[column.name] = "it identifies the rows of a person or household"
            continue
        if column.name in options.weights:
            found[column.name] = "it was given as a weight"
            continue
        values = column.tables["source"].slice(0, source.num_rows)
        role = role_of(Column(column.name, column.kind, {"source": values, "destination": values}))
        if role is not None:
            found[column.name] = f"{role}; name it in 'known' or 'secret' if it is an attribute"
    return found
