"""Values fetched from the rows that give them, out of core: asked for by donor, put together by row."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from providers.external.donors import Drawn
from providers.external.exchanging import Ranges
from providers.external.parts import Span, in_ranges, scatter
from providers.external.swaps import Sizes
from providers.provider import Progress
from providers.storage import Room, Source
from providers.table import BoolArray, gathered, take

Kept = Callable[[str, int, int], BoolArray]
"""(field, first row, rows) -> which of the rows keep their own value."""
Moved = Callable[[str, BoolArray, BoolArray], None]
"""Told of each field and range which rows keep their own value, and which values differ from the source's."""


class Giving:
    """What rows give to each other, field by field."""

    def __init__(self, source: Source, fields: Sequence[str], room: Room) -> None:
        """``fields``: those whose values are given."""
        self._source = source
        self._fields = tuple(fields)
        self._sizes = Sizes.of(source, self._fields, room.memory_bytes // 2)  # own values beside those given
        parts = Ranges.parts(source.rows, self._sizes.range_rows, len(self._fields))
        asked, given = (room.scratch.spool(parts, self._sizes.waiting) for _ in range(2))
        count = -(-source.rows // self._sizes.range_rows)
        self._asked = [Span([asked], which * count, count) for which in range(len(self._fields))]
        self._given = Ranges([given], source.rows, self._sizes.range_rows, len(self._fields))

    def ask(self, drawn: Drawn) -> None:
        """Have these rows get the values of their donors."""
        for asked, donors in zip(self._asked, drawn.donors, strict=True):
            of_range, at = np.divmod(donors, np.int32(min(self._sizes.range_rows, 2**31 - 1)))
            table = pa.table({"at": pa.array(at), "row": pa.array(drawn.rows)})
            scatter(asked, of_range.astype(np.int64), table)

    def fetch(self, progress: Progress) -> None:
        """Read what was asked for, and put it aside by the rows that get it; all rows have asked."""
        for first, table in in_ranges(self._source, self._fields, self._sizes.range_rows):
            progress(first / self._source.rows, "fetching values")
            number = first // self._sizes.range_rows
            for which, name in enumerate(self._fields):
                column = table.column(name)
                for wanted in self._asked[which].read(number):
                    values = take(column, wanted.column("at").combine_chunks())
                    rows = np.asarray(wanted.column("row").to_numpy()).astype(np.int64)
                    self._given.put(which, rows, [values], np.zeros(len(rows), np.uint8))
                self._asked[which].clear(number)

    def pieces(self, kept: Kept, moved: Moved) -> Iterator[pa.Table]:
        """The source's rows with the values that they were given, range by range; once."""
        names = self._source.schema.names
        for first, table in in_ranges(self._source, names, self._sizes.range_rows):
            columns = dict(zip(names, table.columns, strict=True))
            for which, name in enumerate(self._fields):
                (given,), _ = self._given.get(which, first // self._sizes.range_rows)
                own = kept(name, first, table.num_rows)
                columns[name], differs = _in_place_of(columns[name], given, own)
                moved(name, own, differs)
            yield pa.Table.from_arrays([columns[name] for name in names], schema=self._source.schema)


def _in_place_of(
    column: pa.ChunkedArray, given: pa.ChunkedArray, kept: BoolArray
) -> tuple[pa.ChunkedArray, BoolArray]:
    """The values given in the place of a column's own but for those kept, and which differ."""
    rows = len(column)
    both = pa.chunked_array([*column.chunks, *given.chunks], type=column.type)
    order = np.arange(2 * rows, dtype=np.int64)
    order[:rows][~kept] += rows
    moved, differs = gathered(both, order)
    return moved.slice(0, rows), differs[:rows]
