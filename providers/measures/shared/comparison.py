"""A release next to its source, in the forms that the measures need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import Float64Array, IndexArray, Int32Array, Int64Array
from providers.measures.shared.anonymity import ClassSizes, class_codes, class_sizes
from providers.measures.shared.block_sums import correlations
from providers.measures.shared.columns import SIDES, Column, Side, column_of, not_measurable
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.options import MeasureOptions
from providers.measures.shared.roles import roles_of
from providers.measures.shared.sampling import sample_rows
from providers.neighbours.closest_record import Closest, closest
from providers.neighbours.points import Points, encode
from providers.params import Params
from providers.progress import Progress, no_progress
from providers.randomness.chacha20 import Stream
from providers.tables.ranks import MISSING, doubled_ranks, ranks_among
from providers.tables.units import unit_codes, unit_of_params

BLOCK_ROWS = 1 << 15
"""Rows of a block of a matrix. The blocks cut the sums, so that another size changes their last digits."""


@dataclass(frozen=True)
class Release:
    """A published table, its source, and the known facts about the run that made it."""

    source: pa.Table
    destination: pa.Table
    origin: IndexArray | None = None
    """Source row of each row of the destination; None: the row of the same number."""
    aligned: bool = True
    """False: source rows of destination rows are unknown; measures that compare row by row do not apply."""
    service: str | None = None
    parameters: Params | None = None
    run_values: Mapping[str, Any] = field(default_factory=dict)
    """Key of a measure -> its value as provided by the run."""
    perturb: Callable[[pa.Table, Stream], pa.Table] | None = None
    """Run the same service on another table; None if the service is unknown."""


@dataclass(frozen=True)
class Sample:
    """Row indices of a random sample; if the tables are aligned, of the same rows in both."""

    source: Int64Array
    destination: Int64Array
    size: int | None
    """Number of rows; None if the sample is all rows of both tables."""


class Comparison:
    """Source and destination field by field; costly intermediate results are computed once, on first use."""

    def __init__(self, release: Release, options: MeasureOptions, stream: Stream) -> None:
        self.release = release
        self.options = options
        self.stream = stream
        self.progress: Progress = no_progress
        self.target_regressions: object = None
        """Cache of `target_regression.target_regressions`: the result, or the reason for having none."""
        self.extremes: dict[object, bool] = {}
        """Cache of `extremes.caution`: criterion, field and table -> whether the criterion holds."""
        self._scaling_ranks: dict[str, Float64Array] = {}
        self.columns: dict[str, Column] = {}
        """Fields that are measured one by one."""
        self.unjudged: list[str] = []
        """Published fields that cannot be compared with the source's, if no run and no option names those to
        be compared."""
        self.left_out: dict[str, str] = {}
        """Field -> reason why it is not measured."""
        self.rows: dict[Side, int] = {
            "source": release.source.num_rows,
            "destination": release.destination.num_rows,
        }
        for name in self._common_fields():
            source, destination = release.source, release.destination
            categorical = name in options.categorical_fields
            reason = not_measurable(source.schema.field(name), destination.schema.field(name), categorical)
            if reason is None:
                try:
                    column = column_of(name, source.column(name), destination.column(name), categorical)
                    self.columns[name] = column
                except NotApplicable as error:
                    self.left_out[name] = str(error)
            else:
                self.left_out[name] = reason
        if release.service is None and not options.fields:
            self.unjudged = [name for name in release.destination.schema.names if name not in self.columns]
        named = {*options.fields, *options.key_fields, *options.known_fields, options.target or ""}
        named |= set(options.sensitive_fields)
        together = {self.rows_together, options.household_field or ""}
        identifiers = {*options.identifier_fields, *(together - named)}
        roles = roles_of(self.columns.values(), identifiers, options.weight_fields, named)
        self.left_out |= roles
        self.compared = {name: column for name, column in self.columns.items() if name not in roles}
        """Fields for distances, linkage, relations and models: no identifiers and no weights."""

    def _common_fields(self) -> Iterator[str]:
        source, destination = self.release.source.schema.names, set(self.release.destination.schema.names)
        wanted = set(self.options.fields or source)
        for name in source:
            if name not in destination and not self.options.fields:
                self.left_out[name] = "the destination has no field of this name"
            elif name in wanted:
                yield name
        for name in sorted(destination - set(source)) if not self.options.fields else ():
            self.left_out[name] = "the source has no field of this name"

    # ------------------------------------------------------------------------- fields and requirements

    @cached_property
    def numeric(self) -> list[str]:
        """Compared fields of numbers and times."""
        return [name for name, column in self.compared.items() if column.kind != "category"]

    @cached_property
    def categorical(self) -> list[str]:
        """Compared fields of categories."""
        return [name for name, column in self.compared.items() if column.kind == "category"]

    @cached_property
    def identifying(self) -> set[str]:
        """Categories whose values identify rows: more than 20 values, and more than a tenth of the rows."""
        limit = max(20, self.rows["source"] // 10)
        return {name for name in self.categorical if self.columns[name].levels > limit}

    def need_rows(self, least: int = 1) -> None:
        """Raise NotApplicable if one of the tables has fewer rows."""
        if min(self.rows.values()) < least:
            raise NotApplicable(f"it needs {least} row{'s' * (least > 1)} or more in both tables")

    def need_compared(self) -> list[str]:
        """Return the compared fields. Raises NotApplicable if there is none, or no row."""
        self.need_rows()
        if not self.compared:
            raise NotApplicable("no field can be compared")
        return list(self.compared)

    def need_numeric(self, least: int = 1) -> list[str]:
        """Return the compared fields of numbers. Raises NotApplicable if there are fewer."""
        if len(self.numeric) < least:
            raise NotApplicable(
                f"it needs {least} field{'s' * (least > 1)} of numbers or more; there "
                f"{'is' if len(self.numeric) == 1 else 'are'} {len(self.numeric) or 'none'}"
            )
        return self.numeric

    def need_target(self) -> str:
        """Return the target. Raises NotApplicable if none is named, or if it is not measured."""
        target = self.options.target
        if target is None:
            raise NotApplicable("name the field that the others explain in 'target'")
        if target not in self.columns:
            reason = self.left_out.get(target, "unknown")
            raise NotApplicable(f"the target '{target}' is not measured: {reason}")
        self.need_rows(2)
        return target

    def need_key_fields(self) -> tuple[str, ...]:
        """Return the key fields. Raises NotApplicable if none is named, or if a table has no row."""
        if not self.options.key_fields:
            raise NotApplicable("name what an intruder may know in 'key_fields'")
        self.need_rows()
        return self.options.key_fields

    def need_sensitive_fields(self) -> tuple[str, ...]:
        """Return the sensitive fields. Raises NotApplicable if none, or no key field, is named, or no row."""
        self.need_key_fields()
        if not self.options.sensitive_fields:
            raise NotApplicable("name what an intruder must not learn in 'sensitive_fields'")
        return self.options.sensitive_fields

    def need_aligned(self) -> None:
        """Raise NotApplicable if the source rows of the destination's rows are unknown."""
        if not self.aligned:
            raise NotApplicable("it compares row with row, and which row became which is not known")

    # ------------------------------------------------------------------------------------------- units

    @cached_property
    def unit_field(self) -> str | None:
        """Field whose equal values are the rows of one person; None: each row is a person's only one."""
        of_run = getattr(self.release.parameters, "unit_id", None)
        return self.options.unit_field or (None if of_run is None else str(of_run))

    @cached_property
    def units(self) -> dict[Side, Int64Array | None]:
        """Unit of each row, from 0 on, on each side; None: rows stand alone. Shape (rows,)."""
        source = unit_codes(self.release.source, self.unit_field)
        destination = unit_codes(self.release.destination, self.unit_field)
        if destination is None and source is not None and self.aligned:
            destination = self.by_destination_row(source)
        return {"source": source, "destination": destination}

    @property
    def unit_note(self) -> dict[str, object]:
        """Note of a measure that counts the rows of a unit as one person; empty without units."""
        return {} if self.unit_field is None else {"unit": self.unit_field}

    @cached_property
    def rows_together(self) -> str:
        """Field of units or of households; empty if there is none."""
        return self.options.unit_field or unit_of_params(self.release.parameters) or ""

    @cached_property
    def clusters(self) -> Int64Array | None:
        """Unit or household of the source row of each row of the destination; None: rows are independent."""
        found = unit_codes(self.release.source, self.rows_together)
        return self.by_destination_row(found) if found is not None and self.aligned else None

    @cached_property
    def sampled_clusters(self) -> Int64Array | None:
        """Unit or household of each source row of the sample; None: they are independent. Shape (rows,)."""
        found = unit_codes(self.release.source, self.rows_together)
        return None if found is None else found[self.sample.source]

    # ----------------------------------------------------------------------------------- aligned rows

    @cached_property
    def aligned(self) -> bool:
        """Whether the source row of every row of the destination is known."""
        same_rows = self.release.origin is not None or len(set(self.rows.values())) == 1
        return self.release.aligned and same_rows

    def by_destination_row(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Reorder values of the source's rows by the rows of the destination."""
        origin = self.release.origin
        return values if origin is None else np.asarray(values[origin])

    def number_pairs(self, name: str) -> tuple[Float64Array, Float64Array]:
        """Return the field's numbers before and after, both in the order of the destination's rows."""
        column = self.columns[name]
        return self.by_destination_row(column.numbers("source")), column.numbers("destination")

    def code_pairs(self, name: str) -> tuple[Int32Array, Int32Array]:
        """Return the field's codes before and after, both in the order of the destination's rows."""
        column = self.columns[name]
        return self.by_destination_row(column.codes("source")), column.codes("destination")

    def changed_share(self, name: str) -> float:
        """Share of the rows whose value of the field differs from the source row's; 0 without rows."""
        before, after = self.code_pairs(name)
        return float(np.mean(before != after)) if len(after) else 0.0

    # ------------------------------------------------------------------------- classes of the key fields

    @cached_property
    def key_classes(self) -> dict[Side, Int64Array]:
        """Code of each row's class of equal, rounded key fields, from 0 on; shape (rows,) on each side."""
        tables: dict[Side, pa.Table] = {
            "source": self.release.source,
            "destination": self.release.destination,
        }
        fields, steps = self.options.key_fields, self.options.rounding
        return {side: class_codes(tables[side], fields, steps) for side in SIDES}

    @cached_property
    def class_sizes(self) -> dict[Side, ClassSizes]:
        """Sizes of the classes of `key_classes` on each side."""
        return {side: class_sizes(self.key_classes[side], self.units[side]) for side in SIDES}

    def named_column(self, name: str) -> Column:
        """Return a field that an option names as a column, also if the option `fields` leaves it out."""
        if name in self.columns:
            return self.columns[name]
        source, destination = self.release.source.column(name), self.release.destination.column(name)
        return column_of(name, source, destination, name in self.options.categorical_fields)

    # -------------------------------------------------------------------------------------- the sample

    @cached_property
    def sample(self) -> Sample:
        """Sample of `options.sample` rows, or fewer; the same number from both tables."""
        size = self.options.sample
        all_rows = max(self.rows.values()) <= size and len(set(self.rows.values())) == 1
        if self.aligned:
            after = sample_rows(self.rows["destination"], size, self.stream, "rows")
            origin = self.release.origin
            before = after if origin is None else origin[after].astype(np.int64)
        else:
            size = min(size, *self.rows.values())
            before = sample_rows(self.rows["source"], size, self.stream, "rows")
            after = sample_rows(self.rows["destination"], size, self.stream, "rows of the destination")
        return Sample(before, after, None if all_rows else len(after))

    def sampled_numbers(self, name: str) -> tuple[Float64Array, Float64Array]:
        """Return the field's numbers in the sample, before and after."""
        column, sample = self.columns[name], self.sample
        return column.numbers("source")[sample.source], column.numbers("destination")[sample.destination]

    @cached_property
    def sampled_matrices(self) -> tuple[Float64Array, Float64Array]:
        """Numbers of the sample before and after, NaN if missing; shape (rows, numeric fields)."""
        fields = [self.sampled_numbers(name) for name in self.numeric]
        before, after = (np.empty((len(self.sample.source), len(fields)), order="F") for _ in range(2))
        for column, (source, destination) in enumerate(fields):
            before[:, column], after[:, column] = source, destination
        return before, after

    def points(
        self,
        fields: Sequence[str],
        by_ranks: bool = False,
        dealt: Mapping[str, IndexArray] = MappingProxyType({}),
    ) -> tuple[Points, Points]:
        """Encode the sample as points of one space, scaled by the ranges of the whole source.

        A missing number becomes the median of the whole source and sets a flag; a missing category is a
        category.

        Parameters
        ----------
        fields : sequence of str
        by_ranks : bool
            Whether each number is its rank among those of the whole source, so that one extreme value does
            not make all others equal.
        dealt : mapping of str to ndarray, optional
            Field -> order in which its released values are dealt to the sample's rows; shape (rows,).
            Default: each field keeps its order.
        """
        sample = self.sample
        columns: dict[str, pa.Array] = {}
        for name in fields:
            column = self.columns[name]
            if column.kind == "category":
                before, after = column.codes("source"), column.codes("destination")
                codes = before[sample.source], _ordered(after[sample.destination], dealt.get(name))
                columns[name] = pa.array(np.concatenate(codes))
            else:
                known, released = self.sampled_numbers(name)
                numbers = np.concatenate((known, _ordered(released, dealt.get(name))))
                columns[name] = pa.array(self._ranks(name, numbers) if by_ranks else numbers)
        categorical = [name for name in fields if self.columns[name].kind == "category"]
        count = len(sample.source)
        fitted_on = self._source_ranks if by_ranks else self._source_numbers
        both = encode(pa.table(columns), list(fields), categorical, fitted_on=fitted_on)
        if not np.isfinite(both.numbers).all():
            raise NotApplicable("numbers are too far from the source's range for a distance")
        return both.slice(0, count), both.slice(count, 2 * count)

    def _source_numbers(self, name: str) -> Float64Array:
        return self.columns[name].numbers("source")

    def _source_ranks(self, name: str) -> Float64Array:
        """Return the least, the middle and the greatest of the ranks, by which all are scaled."""
        if name not in self._scaling_ranks:
            numbers = self._source_numbers(name)
            present = np.sort(numbers[~np.isnan(numbers)])
            count = len(present)
            places = [0, (count - 1) // 2, count // 2, count - 1] if count else []
            self._scaling_ranks[name] = ranks_among(present[places], present)
        return self._scaling_ranks[name]

    def _ranks(self, name: str, numbers: Float64Array) -> Float64Array:
        return ranks_among(numbers, self._source_numbers(name))

    @cached_property
    def closest(self) -> Closest:
        """Closest destination row of each source row of the sample, over the compared fields."""
        return closest(*self.points(list(self.compared)), self.progress)

    # -------------------------------------------------------------------------------- all rows, in blocks

    def blocks(self, side: Side, fields: Sequence[str]) -> Iterator[Float64Array]:
        """Yield the fields' numbers in blocks of rows, NaN if missing; shape (rows, fields)."""
        for start in range(0, self.rows[side], BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, self.rows[side])
            block = np.empty((stop - start, len(fields)))
            for index, name in enumerate(fields):
                block[:, index] = self.columns[name].numbers(side, start, stop)
            yield block

    @cached_property
    def correlations(self) -> tuple[Float64Array, Float64Array]:
        """Correlations of the numeric fields before and after. Raises NotApplicable if fewer than two."""
        fields = self.need_numeric(2)
        self.need_rows(2)
        return (
            correlations(lambda: self.blocks("source", fields), len(fields)),
            correlations(lambda: self.blocks("destination", fields), len(fields)),
        )

    @cached_property
    def rank_correlations(self) -> tuple[Float64Array, Float64Array]:
        """Spearman's rank correlations of the numeric fields, as `correlations`.

        The ranks of a field are those among all its numbers; equal numbers have the mean of their ranks. A
        pair is correlated over the rows that have both.
        """
        fields = self.need_numeric(2)
        self.need_rows(2)
        before, after = (self._rank_correlations(side, fields) for side in SIDES)
        return before, after

    def _rank_correlations(self, side: Side, fields: Sequence[str]) -> Float64Array:
        ranks = [doubled_ranks(self.columns[name].numbers(side)) for name in fields]

        def blocks() -> Iterator[Float64Array]:
            for start in range(0, self.rows[side], BLOCK_ROWS):
                block = np.stack([each[start : start + BLOCK_ROWS] for each in ranks], axis=1)
                yield np.where(block == MISSING, np.nan, block)

        return correlations(blocks, len(fields))


def _ordered(values: npt.NDArray[Any], order: IndexArray | None) -> npt.NDArray[Any]:
    return values if order is None else np.asarray(values[order])
