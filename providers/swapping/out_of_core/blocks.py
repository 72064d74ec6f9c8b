"""Blocks of consecutive ranks as groups of an out-of-core swap: grouping and report figures of DDSWAP."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.errors import SourceError
from providers.grouping.groups import Groups, Pairing
from providers.grouping.shuffle import ONE_BUCKET
from providers.kernels.radix_sort import radix_order
from providers.out_of_core.samplesort import label_keys
from providers.out_of_core.unit_sizes import Sizes
from providers.storage import Resources, Source
from providers.swapping.distance import Distances
from providers.swapping.out_of_core.exchange import Tally
from providers.swapping.out_of_core.swap import Listing
from providers.tables.joining import empty_table


class BlockGrouping:
    """Grouping of a table's batches into blocks, in the order of the ranks on the control fields.

    Parameters
    ----------
    controls : tuple of str
        Control fields.
    block_size : int
        Rows of a block.
    rows : int
        All rows that take part.
    rank : int
        Rank of the first row, which starts a block.
    """

    def __init__(self, controls: tuple[str, ...], block_size: int, rows: int, rank: int = 0) -> None:
        self.controls = controls
        self._block_size = block_size
        self._rows = rows
        self._next_rank = rank  # rank of the first row that is not yet in a complete block

    def labels(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """Return the control fields, which are the labels."""
        return [table.column(name) for name in self.controls]

    def listing(self, table: pa.Table, rows: Int64Array, final: bool) -> Listing:
        """Return the blocks of a sorted batch. The last one is the incomplete remainder, possibly empty."""
        order = radix_order(label_keys(self.labels(table)))
        starts = np.append(np.arange(0, len(order), self._block_size, dtype=np.int64), len(order))
        # A remainder of a single row joins the block before it: its start is not a block's start.
        remainder_start = self._rows - 1 - self._next_rank
        if self._rows > 1 and self._rows % self._block_size == 1 and remainder_start in starts[:-1]:
            starts = np.delete(starts, np.flatnonzero(starts == remainder_start)[0])
        first_block = self._next_rank // self._block_size
        identities = (first_block + np.arange(len(starts) - 1)).astype(np.uint64)
        self._next_rank += int(starts[-1 if final else -2])
        return Listing(order, starts, identities)


def refuse_large_blocks(
    source: Source, fields: tuple[str, ...], block_size: int, resources: Resources
) -> None:
    """Raise SourceError if a single block does not fit in memory.

    Parameters
    ----------
    source : Source
    fields : tuple of str
        Control and swap fields, each once.
    block_size : int
        Rows of a block.
    resources : Resources
    """
    most = max(ONE_BUCKET, Sizes.of(source, fields, resources.memory_bytes).unit_rows)
    if block_size > most:
        raise SourceError(
            f"blocks of {block_size} rows do not fit into a job's memory budget, but blocks of {most} do: "
            "lower block_size, or raise the budget"
        )


class BlockFigures:
    """Report figures of an out-of-core run: number of blocks and swapping distances.

    Parameters
    ----------
    control : str or None
        The control field in whose units distances are measured; None if there are several.
    fields_with_own_blocks : tuple of str
        Swap fields whose blocks are counted by field, since each of them has its own.
    schema : pa.Schema
        Schema of the source.
    """

    def __init__(
        self, control: str | None, fields_with_own_blocks: tuple[str, ...], schema: pa.Schema
    ) -> None:
        self._control = control
        self._distances = Distances(self._control_column(empty_table(schema)))
        self._blocks_by_field: Counter[str] = Counter()
        self._fields_with_own_blocks = fields_with_own_blocks

    def observe(self, groups: Groups, table: pa.Table, name: str, pairing: Pairing) -> None:
        """Add the blocks and the moves of a unit."""
        self._blocks_by_field[name] += len(groups.identities)
        unit_distances = Distances(self._control_column(table))
        unit_distances.add(name, pairing)
        self._distances.include(unit_distances)

    def _control_column(self, table: pa.Table) -> pa.ChunkedArray | None:
        return None if self._control is None else table.column(self._control)

    def merge(self, other: BlockFigures) -> None:
        """Add the figures of other units."""
        self._distances.include(other._distances)
        self._blocks_by_field.update(other._blocks_by_field)

    def figures(self, tally: Tally) -> dict[str, Any]:
        """Return the provider's figures."""
        figures: dict[str, Any] = {"blocks": tally.groups.total()}
        if self._fields_with_own_blocks:
            figures["blocks_by_field"] = {
                name: self._blocks_by_field[name] for name in self._fields_with_own_blocks
            }
        return figures | {"swapping_distance": self._distances.figures()}
