"""What is judged, a release beside its source, in the forms that the measures take."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.closest import Closest, closest
from providers.measures.columns import Column, Float64Array, Int32Array, Side, column_of
from providers.measures.kinds import why_not
from providers.measures.measure import NotApplicable
from providers.measures.options import MeasureOptions
from providers.measures.sampling import sample_rows
from providers.params import Params
from providers.provider import Progress, no_progress
from providers.radix import IndexArray, Int64Array
from providers.rng import Stream
from providers.space import Points, encode

BLOCK = 1 << 15
"""Rows of a block in which matrices are made: part of the result, since it cuts sums."""


@dataclass(frozen=True)
class Released:
    """A release, and what is known of how it was made."""

    source: pa.Table
    destination: pa.Table
    origin: IndexArray | None = None
    """The source's row of each row of the destination; None: that of the same number."""
    aligned: bool = True
    """False: nothing is known of which row became which; measures row by row are left out."""
    service: str | None = None
    parameters: Params | None = None
    run_values: Mapping[str, Any] = field(default_factory=dict)
    """Measures that the run itself gave."""
    perturb: Callable[[pa.Table, Stream], pa.Table] | None = None
    """Runs the same service on another table; None where that is not known."""


@dataclass(frozen=True)
class Finding:
    """The value of one measure, and what it was taken on."""

    value: Any
    """Plain JSON."""
    fields: Sequence[str] = ()
    sample: int | None = None
    """Rows, where it was not all of them."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Other figures that belong beside it."""


@dataclass(frozen=True)
class Drawn:
    """A random sample of rows: of both tables the same ones where it is known which became which."""

    source: Int64Array
    destination: Int64Array
    size: int | None
    """None where it is all rows of both."""


class Case:
    """Both tables, field by field; what is costly is made once, when it is first asked for."""

    def __init__(self, released: Released, options: MeasureOptions, stream: Stream) -> None:
        self.released = released
        self.options = options
        self.stream = stream
        self.progress: Progress = no_progress
        self.explained: object = None
        """The regressions of `providers.measures.explained`, once made, or why there are none."""
        self.correlations: tuple[Float64Array, Float64Array] | None = None
        """Of the fields of numbers in both tables, once made."""
        self.columns: dict[str, Column] = {}
        self.left_out: dict[str, str] = {}
        """Field -> why it is not measured."""
        self.rows: dict[Side, int] = {
            "source": released.source.num_rows,
            "destination": released.destination.num_rows,
        }
        for name in self._named():
            source, destination = released.source, released.destination
            categorical = name in options.categorical_fields
            reason = why_not(source.schema.field(name), destination.schema.field(name), categorical)
            if reason is None:
                column = column_of(name, source.column(name), destination.column(name), categorical)
                self.columns[name] = column
            else:
                self.left_out[name] = reason

    def _named(self) -> Iterator[str]:
        source, destination = self.released.source.schema.names, set(self.released.destination.schema.names)
        wanted = set(self.options.fields or source)
        for name in source:
            if name not in destination and not self.options.fields:
                self.left_out[name] = "the destination has no field of this name"
            elif name in wanted:
                yield name
        for name in sorted(destination - set(source)) if not self.options.fields else ():
            self.left_out[name] = "the source has no field of this name"

    # -------------------------------------------------------------------------------- what there is

    @cached_property
    def numeric(self) -> list[str]:
        """Fields of numbers and times."""
        return [name for name, column in self.columns.items() if column.kind != "category"]

    @cached_property
    def categorical(self) -> list[str]:
        """Fields of categories."""
        return [name for name, column in self.columns.items() if column.kind == "category"]

    def need_rows(self, least: int = 1) -> None:
        """Raise NotApplicable where one of the tables has fewer rows."""
        if min(self.rows.values()) < least:
            raise NotApplicable(f"it needs {least} row{'s' * (least > 1)} or more in both tables")

    def need_numeric(self, least: int = 1) -> list[str]:
        """The fields of numbers. Raises NotApplicable where there are fewer."""
        if len(self.numeric) < least:
            raise NotApplicable(
                f"it needs {least} field{'s' * (least > 1)} of numbers or more; there "
                f"{'is' if len(self.numeric) == 1 else 'are'} {len(self.numeric) or 'none'}"
            )
        return self.numeric

    def need_pairs(self) -> None:
        """Raise NotApplicable where it is not known which row became which."""
        if not self.aligned:
            raise NotApplicable("it compares row with row, and which row became which is not known")

    # --------------------------------------------------------------------------- row beside its row

    @cached_property
    def aligned(self) -> bool:
        """Whether it is known of each row of the destination which row of the source it was."""
        same = self.released.origin is not None or len(set(self.rows.values())) == 1
        return self.released.aligned and same

    def became(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of the source's rows in the order of the destination's."""
        origin = self.released.origin
        return values if origin is None else np.asarray(values[origin])

    def pairs(self, name: str) -> tuple[Float64Array, Float64Array]:
        """The field's numbers of each row before and after, by the destination's rows."""
        column = self.columns[name]
        return self.became(column.numbers("source")), column.numbers("destination")

    def code_pairs(self, name: str) -> tuple[Int32Array, Int32Array]:
        """The field's codes of each row before and after, by the destination's rows."""
        column = self.columns[name]
        return self.became(column.codes("source")), column.codes("destination")

    # -------------------------------------------------------------------------------------- sampled

    @cached_property
    def drawn(self) -> Drawn:
        """The sample; of as many rows of both tables."""
        size = self.options.sample
        all_rows = max(self.rows.values()) <= size and len(set(self.rows.values())) == 1
        if self.aligned:
            after = sample_rows(self.rows["destination"], size, self.stream, "rows")
            origin = self.released.origin
            before = after if origin is None else origin[after].astype(np.int64)
        else:
            size = min(size, *self.rows.values())
            before = sample_rows(self.rows["source"], size, self.stream, "rows")
            after = sample_rows(self.rows["destination"], size, self.stream, "rows of the destination")
        return Drawn(before, after, None if all_rows else len(after))

    def sampled_numbers(self, name: str) -> tuple[Float64Array, Float64Array]:
        """The field's numbers of the sample."""
        column = self.columns[name]
        drawn = self.drawn
        return column.numbers("source")[drawn.source], column.numbers("destination")[drawn.destination]

    @cached_property
    def sampled_matrices(self) -> tuple[Float64Array, Float64Array]:
        """The numbers of the sample, NaN where missing; shape (rows, numeric fields)."""
        both = [self.sampled_numbers(name) for name in self.numeric]
        before, after = (np.empty((len(self.drawn.source), len(both)), order="F") for _ in range(2))
        for at, (source, destination) in enumerate(both):
            before[:, at], after[:, at] = source, destination
        return before, after

    def points(self, fields: Sequence[str]) -> tuple[Points, Points]:
        """The sample as points of one space: numbers by the source's range, categories as codes.

        A missing number is the source's median beside a flag, a missing category one of its own.
        """
        drawn = self.drawn
        columns: dict[str, pa.Array] = {}
        for name in fields:
            column = self.columns[name]
            if column.kind == "category":
                codes = column.codes("source")[drawn.source], column.codes("destination")[drawn.destination]
                columns[name] = pa.array(np.concatenate(codes))
            else:
                columns[name] = pa.array(np.concatenate(self.sampled_numbers(name)))
        categorical = [name for name in fields if self.columns[name].kind == "category"]
        count = len(drawn.source)
        both = encode(pa.table(columns), list(fields), categorical, fitted_on=count)
        if not np.isfinite(both.numbers).all():
            raise NotApplicable("numbers are too far from the source's range for a distance")
        return both.slice(0, count), both.slice(count, 2 * count)

    @cached_property
    def closest(self) -> Closest:
        """For each row of the source's sample what is closest in the destination's, by all fields."""
        return closest(*self.points(list(self.columns)), self.progress)

    # ------------------------------------------------------------------------------------- in blocks

    def blocks(self, side: Side, fields: Sequence[str]) -> Iterator[Float64Array]:
        """The fields' numbers, a block of rows after the other; NaN where missing; shape (rows, fields)."""
        for start in range(0, self.rows[side], BLOCK):
            stop = min(start + BLOCK, self.rows[side])
            block = np.empty((stop - start, len(fields)))
            for at, name in enumerate(fields):
                block[:, at] = self.columns[name].numbers(side, start, stop)
            yield block
