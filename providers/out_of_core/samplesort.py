"""Sort rows by labels out of core (sample sort).

Splitters are sampled from the rows. The rows between two splitters form a part, which is spooled and later
sorted in memory. Ties are ordered by row number, so that no part is much larger than the others, whatever
the labels.

References
----------
Frazer and McKellar 1970, doi:10.1145/321592.321600: samplesort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.arrays import IndexArray, UInt64Array
from providers.kernels.radix_sort import radix_order
from providers.out_of_core.partitions import Rows, scatter
from providers.storage import Scratch
from providers.tables.columns import take_rows
from providers.tables.sort_keys import packed, sort_keys

Labels: TypeAlias = "Callable[[pa.Table], list[pa.ChunkedArray]]"
"""Callback(table): columns by which rows are sorted; a row's values do not depend on the piece."""

_SAMPLED = 2**14
"""Approximate rows from which splitters are chosen."""


def label_keys(labels: Sequence[pa.ChunkedArray]) -> list[UInt64Array]:
    """Return keys that sort rows like their labels."""
    return packed([key for label in labels for key in sort_keys(label)])


def sorted_parts(
    rows: Rows, fields: Sequence[str], controls: Sequence[str], labels: Labels, row: str,
    part_rows: int, scratch: Scratch, memory: int,
) -> Iterator[pa.Table]:  # fmt: skip
    """Yield all rows in parts of about `part_rows` rows, in the order of their labels.

    Rows within a part are in row order, and so are equal labels across parts.

    Parameters
    ----------
    rows : Rows
    fields : sequence of str
        Fields to yield.
    controls : sequence of str
        Fields that `labels` needs.
    labels : Labels
    row : str
        Column of row numbers.
    part_rows : int
    scratch : Scratch
    memory : int
        Bytes buffered before writing.
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
    """Choose sorted splitters, one fewer than `parts`, with about equally many rows between them."""
    step = max(1, rows.count // max(_SAMPLED, 4 * parts))
    pieces, before = [], 0
    for table in rows.read(controls):
        pieces.append(take_rows(table, np.arange(-before % step, table.num_rows, step)))
        before += table.num_rows
    sample = pa.concat_tables(pieces)
    order = radix_order(label_keys(labels(sample)))
    places = [len(order) * part // parts for part in range(1, parts)]
    return take_rows(sample, order[np.array(places, np.int64)])


@dataclass(frozen=True)
class Splitters:
    """Sorted rows, each the first of its part."""

    rows: pa.Table
    labels: Labels
    row: str | None
    """Column that orders ties; None: equal labels stay in one part, whatever its size."""

    def parts_of(self, table: pa.Table) -> npt.NDArray[np.int64]:
        """Return the part of each row: the number of splitters at or before it."""
        together = pa.concat_tables([self.rows.select(table.column_names), table])
        keys = label_keys(self.labels(together))
        if self.row is not None:
            keys = packed([*keys, together.column(self.row).to_numpy().astype(np.uint64)])
        order: IndexArray = radix_order(keys)  # stable: a splitter precedes equal rows
        parts = np.empty(len(order), np.int64)
        parts[order] = np.cumsum(order < self.rows.num_rows)
        return parts[self.rows.num_rows :]
