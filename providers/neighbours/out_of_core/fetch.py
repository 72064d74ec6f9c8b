"""Fetch donor values by row range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray
from providers.neighbours.out_of_core.donors import DrawnDonors
from providers.out_of_core.partitions import Reader, Span, in_ranges, joined, scatter
from providers.out_of_core.row_ranges import Ranges
from providers.out_of_core.unit_sizes import Sizes
from providers.progress import Progress
from providers.sections import Section
from providers.storage import Resources, Source, Spool
from providers.tables.columns import gathered, take

Kept = Callable[[str, int, int], BoolArray]
"""Callback(field, first row, rows) that returns the mask of the rows that keep their own value."""

OnRange = Callable[[str, BoolArray, BoolArray], None]
"""Callback(field, kept, changed): masks of the rows that kept their value and of those that changed."""


class DonorValues:
    """Values of the donors, by field: requested by donor row, read once, returned in row order.

    Parameters
    ----------
    source : Source
    fields : sequence of str
        Fields whose values are replaced.
    resources : Resources
    received : sequence of Spool, optional
        Spools of `parts` parts for the values, by receiving row: the one to write, or those of all units to
        read. Default: one in the scratch space of `resources`.
    """

    def __init__(
        self,
        source: Source,
        fields: Sequence[str],
        resources: Resources,
        received: Sequence[Spool] | None = None,
    ) -> None:
        self._source = source
        self._fields = tuple(fields)
        self._sizes = Sizes.of(
            source, self._fields, resources.memory_bytes // 2
        )  # half, because own values and donor values are in memory together
        parts, scratch = self.parts, resources.scratch
        requests = scratch.spool(parts, self._sizes.waiting)
        count = -(-source.rows // self._sizes.range_rows)
        self._requests = [Span([requests], which * count, count) for which in range(len(self._fields))]
        spools = [scratch.spool(parts, self._sizes.waiting)] if received is None else received
        self._received = Ranges(spools, source.rows, self._sizes.range_rows, len(self._fields))

    @property
    def parts(self) -> int:
        """Number of parts of each spool."""
        return Ranges.parts(self._source.rows, self._sizes.range_rows, len(self._fields))

    def request(self, drawn: DrawnDonors) -> None:
        """Request the donor values of a batch of rows."""
        for requests, donors in zip(self._requests, drawn.donors, strict=True):
            donor_range, offset = np.divmod(donors, np.int32(min(self._sizes.range_rows, 2**31 - 1)))
            table = pa.table({"offset": pa.array(offset), "row": pa.array(drawn.rows)})
            scatter(requests, donor_range.astype(np.int64), table)

    def fetch(self, progress: Progress) -> None:
        """Read the requested values, and store them by receiving row; call after all requests."""
        for first, table in in_ranges(self._source, self._fields, self._sizes.range_rows):
            progress(first / self._source.rows, "fetching values")
            number = first // self._sizes.range_rows
            for which, name in enumerate(self._fields):
                column = table.column(name)
                # Records are joined: of few rows each, the values of a range would be in many tiny tables.
                for requested in joined(self._requests[which].read(number), self._sizes.range_rows):
                    values = take(column, requested.column("offset").chunk(0))
                    rows = np.asarray(requested.column("row").to_numpy()).astype(np.int64)
                    self._received.put(which, rows, [values], np.zeros(len(rows), np.uint8))
                self._requests[which].clear(number)

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of each range of received values."""
        return Ranges.starts(self._source.rows, self._sizes.range_rows)

    def pieces(self, section: Section, kept: Kept, on_range: OnRange) -> Iterator[pa.Table]:
        """Yield a section of the source with the received values, range by range; may be called once."""
        names = self._source.schema.names
        reader = Reader(self._source, names, section.first)
        for number, first, rows in self._received.within(section):
            table = reader.take(rows.stop - rows.start)
            columns = dict(zip(names, table.columns, strict=True))
            for which, name in enumerate(self._fields):
                (received,), _ = self._received.get(which, number, rows)
                own = kept(name, first, table.num_rows)
                columns[name], changed = _replace_values(columns[name], received, own)
                on_range(name, own, changed)
            yield pa.Table.from_arrays([columns[name] for name in names], schema=self._source.schema)


def _replace_values(
    column: pa.ChunkedArray, received: pa.ChunkedArray, kept: BoolArray
) -> tuple[pa.ChunkedArray, BoolArray]:
    """Replace values by the received ones, except in kept rows; return the column and the mask of changes."""
    rows = len(column)
    both = pa.chunked_array([*column.chunks, *received.chunks], type=column.type)
    order = np.arange(2 * rows, dtype=np.int64)
    order[:rows][~kept] += rows
    replaced, changed = gathered(both, order)
    return replaced.slice(0, rows), changed[:rows]
