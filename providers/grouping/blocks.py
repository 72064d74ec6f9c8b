"""Rank rows on control fields and cut them into blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from providers.arrays import IndexArray
from providers.grouping.groups import Groups
from providers.kernels.bucket_sort import Layout, bucket_layout
from providers.kernels.radix_sort import radix_order
from providers.tables.sort_keys import packed, sort_keys


def ranked(table: pa.Table, control_fields: tuple[str, ...]) -> IndexArray | Layout:
    """Return the rows in ascending order of control fields, nulls last, ties by row; or a layout if many."""
    keys = packed([key for name in control_fields for key in sort_keys(table.column(name), name)])
    layout = bucket_layout(keys[0]) if len(keys) == 1 else None
    return radix_order(keys) if layout is None else layout


def blocks(order: IndexArray | Layout, block_size: int, rows: int | None = None) -> Groups:
    """Cut rows in a given order into blocks, numbered from 0.

    A remainder of one row joins the last block; any other remainder is a block of its own.

    Parameters
    ----------
    order : ndarray or Layout
        Rows that take part.
    block_size : int
    rows : int, optional
        Rows of the table, if more than those that take part.
    """
    listing, layout = (None, order) if isinstance(order, Layout) else (order, None)
    listed_rows = len(order.places if isinstance(order, Layout) else order)
    starts = np.append(np.arange(0, listed_rows, block_size, dtype=np.int64), listed_rows)
    if listed_rows > 1 and listed_rows % block_size == 1:
        starts = np.delete(starts, -2)
    identities = np.arange(len(starts) - 1, dtype=np.uint64)
    return Groups(listed_rows if rows is None else rows, listing, starts, identities, layout)
