"""Rows by their labels, a part of them in memory at a time.

Splitters are drawn from the rows; between two of them lies a part, which is put aside and later sorted in
memory. Ties go by row number, so that no part is much larger than the others, whatever the labels are.

References
----------
Frazer and McKellar 1970, doi:10.1145/321592.321600: samplesort.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.external.parts import Rows, scatter
from providers.ordering import packed, sort_keys
from providers.radix import IndexArray, UInt64Array, radix_order
from providers.storage import Scratch
from providers.table import take_rows

Labels = Callable[[pa.Table], list[pa.ChunkedArray]]
"""Columns that order the rows of a piece of the table, the same for a row in every piece."""

_SAMPLED = 2**14
"""Rows that splitters are drawn from, about."""


def label_keys(labels: Sequence[pa.ChunkedArray]) -> list[UInt64Array]:
    """Keys of a piece's rows, in the order of the labels."""
    return packed([key for label in labels for key in sort_keys(label)])


def sorted_parts(
    rows: Rows, fields: Sequence[str], controls: Sequence[str], labels: Labels, row: str,
    part_rows: int, scratch: Scratch, memory: int,
) -> Iterator[pa.Table]:  # fmt: skip
    """All rows in parts of about `part_rows`: each part's labels come after those of the part before.

    Within a part rows are in their own order; so are equal labels from one part to the next.
    """
    count = max(1, -(-rows.count // part_rows))
    if count == 1:
        yield pa.concat_tables(rows.read(fields))
        return
    splitters = Splitters(splitting_rows(rows, controls, labels, count), labels, row)
    spool = scratch.spool(count, memory)
    for table in rows.read(fields):
        scatter(spool, splitters.parts_of(table.select([*controls, row])), table)
    for part in range(count):
        pieces = list(spool.read(part))
        spool.clear(part)
        if pieces:
            yield pa.concat_tables(pieces)


def splitting_rows(rows: Rows, controls: Sequence[str], labels: Labels, parts: int) -> pa.Table:
    """One row fewer than there are parts, in order, so that there are about as many rows between them."""
    every = max(1, rows.count // max(_SAMPLED, 4 * parts))
    pieces, before = [], 0
    for table in rows.read(controls):
        pieces.append(take_rows(table, np.arange(-before % every, table.num_rows, every)))
        before += table.num_rows
    sample = pa.concat_tables(pieces)
    order = radix_order(label_keys(labels(sample)))
    places = [len(order) * part // parts for part in range(1, parts)]
    return take_rows(sample, order[np.array(places, np.int64)])


@dataclass(frozen=True)
class Splitters:
    """Rows in order, each the first of its part."""

    rows: pa.Table
    labels: Labels
    row: str | None
    """The column that settles ties; None where equal labels stay in one part, be it ever so large."""

    def parts_of(self, table: pa.Table) -> npt.NDArray[np.int64]:
        """The part of each row: the number of splitters that are not after it."""
        together = pa.concat_tables([self.rows.select(table.column_names), table])
        keys = label_keys(self.labels(together))
        if self.row is not None:
            keys = packed([*keys, together.column(self.row).to_numpy().astype(np.uint64)])
        order: IndexArray = radix_order(keys)  # stable: a splitter comes before rows that are equal to it
        parts = np.empty(len(order), np.int64)
        parts[order] = np.cumsum(order < self.rows.num_rows)
        return parts[self.rows.num_rows :]
