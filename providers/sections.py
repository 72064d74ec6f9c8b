"""Cut the rows of a destination into sections, which several workers assemble at the same time.

A section begins at a multiple of 2^20 rows of the destination, as a chunk of the digest does
(`providers.tables.digest`). If the run drops rows, its first row in the source is known only after the units.
The ranges in which the units' spools hold the rows need not: a range may belong to two sections.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.storage import Spool
from providers.tables.digest import CHUNK_ROWS

PLACE = "place"
"""Column of a spool with the places of dropped rows in their range, from 0 on. A row may be there twice."""


@dataclass(frozen=True, slots=True)
class Section:
    """Consecutive rows of the source, whose rows in the destination are consecutive, too."""

    first: int
    stop: int
    """Number of the row after the last one."""

    def ranges(self, starts: Sequence[int]) -> range:
        """Return the numbers of the ranges with rows of the section; ``starts``: first row of each range."""
        if self.first >= self.stop or not len(starts):
            return range(0)
        first = int(np.searchsorted(starts, self.first, "right")) - 1
        return range(first, int(np.searchsorted(starts, self.stop, "left")))

    def cut(self, first: int, table: pa.Table) -> pa.Table:
        """Return the rows of a table that belong to the section; ``first``: number of its first row."""
        begin = max(0, self.first - first)
        return table.slice(begin, max(0, min(table.num_rows, self.stop - first) - begin))


@dataclass(frozen=True, slots=True)
class Sections:
    """Sections of a destination, and the files in which each unit stores the rows for them."""

    sections: tuple[Section, ...]
    """One or more, in order; together they have all rows."""
    file_of_range: tuple[int, ...]
    """File of each range of rows. Ranges that the same sections read are in the same file."""

    @property
    def files(self) -> int:
        """Number of files of a unit, one or more."""
        return max(1, len(set(self.file_of_range)))

    def file_of_part(self, part: int) -> int:
        """Return the file of a part of a unit's spool: part p has rows of the range p modulo their number."""
        return self.file_of_range[part % len(self.file_of_range)] if self.file_of_range else 0

    def files_of(self, section: Section, starts: Sequence[int]) -> list[int]:
        """Return the files with rows of a section; ``starts``: first row of each range."""
        if not self.file_of_range:
            return [0]
        return sorted({self.file_of_range[number] for number in section.ranges(starts)})


def sections_of(rows: int, starts: Sequence[int], wanted: int, step: int = CHUNK_ROWS) -> Sections:
    """Cut the rows into at most `wanted` sections of about the same length.

    Parameters
    ----------
    rows : int
        Rows of the destination.
    starts : sequence of int
        First row of each range, in order; empty: the destination is not cut.
    wanted : int
    step : int
        A section begins at a multiple of this number of rows.
    """
    limits = [*_first_rows(rows, wanted if len(starts) else 1, step), rows]
    sections = tuple(Section(first, stop) for first, stop in itertools.pairwise(limits))
    readers: list[list[int]] = [[] for _ in starts]
    for number, section in enumerate(sections):
        for index in section.ranges(starts):
            readers[index].append(number)
    files = itertools.groupby(range(len(starts)), key=lambda index: readers[index])
    numbered = ((number, list(indices)) for number, (_, indices) in enumerate(files))
    return Sections(sections, tuple(number for number, indices in numbered for _ in indices))


def _first_rows(rows: int, wanted: int, step: int) -> list[int]:
    """Return the first row of each section, for at most `wanted` sections of about the same length."""
    chunks = -(-rows // step)
    count = max(1, min(wanted, chunks))
    return [chunks * number // count * step for number in range(count)]


def sections_of_kept(
    cut: Sections,
    rows: int,
    starts: Sequence[int],
    dropped: Callable[[int], Iterator[pa.Table]],
    wanted: int,
    step: int = CHUNK_ROWS,
) -> Sections:
    """Cut the rows again where some are dropped: a multiple of `step` rows is kept before each section.

    Parameters
    ----------
    cut : Sections
        Sections of a destination with all rows, for which the units have stored their rows.
    rows : int
        Rows of the source.
    starts : sequence of int
        First row of each range, in order.
    dropped : callable
        Number of a range -> tables with the column `PLACE`: its dropped rows.
    wanted : int
    step : int
    """

    def places(number: int) -> Int64Array:
        found = [table.column(PLACE).to_numpy() for table in dropped(number)]
        return np.unique(np.concatenate([np.zeros(0, np.uint32), *found])).astype(np.int64)

    lost = np.cumsum([0, *(len(places(number)) for number in range(len(starts)))])
    kept_before = np.array(starts, np.int64) - lost[:-1]
    limits = [0]
    for kept in _first_rows(rows - int(lost[-1]), wanted, step)[1:]:
        number = int(np.searchsorted(kept_before, kept, "right")) - 1
        within, gone = kept - int(kept_before[number]), places(number)
        skipped = int(np.searchsorted(gone - np.arange(len(gone)), within, "right"))
        limits.append(starts[number] + within + skipped)
    sections = tuple(Section(first, stop) for first, stop in itertools.pairwise([*limits, rows]))
    return Sections(sections, cut.file_of_range)


def rows_of_section(spool: Spool, section: Section, starts: Sequence[int]) -> Iterator[pa.Table]:
    """Yield a section's rows from a spool that has each range as a part, with the rows in order."""
    for number in section.ranges(starts):
        first = starts[number]
        for table in spool.read(number):
            cut = section.cut(first, table)
            if cut.num_rows:
                yield cut
            first += table.num_rows
