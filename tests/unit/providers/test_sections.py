"""Sections cover all rows once, begin where they may, and read the files that have their rows."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.store.blobs.scratch import SealedScratch
from providers.sections import PLACE, Section, rows_of_section, sections_of, sections_of_kept


@given(
    st.integers(0, 300),
    st.integers(1, 9),
    st.integers(1, 40),
    st.sets(st.integers(1, 299)),
)
def test_every_range_is_read_by_the_sections_that_need_it(
    rows: int, wanted: int, step: int, cuts: set[int]
) -> None:
    starts = [0, *sorted(cut for cut in cuts if cut < rows)]
    found = sections_of(rows, starts, wanted, step)
    assert 1 <= len(found.sections) <= wanted
    assert found.sections[0].first == 0
    assert found.sections[-1].stop == rows
    for one, two in itertools.pairwise(found.sections):
        assert one.stop == two.first
        assert two.first % step == 0
    sizes = [section.stop - section.first for section in found.sections]
    assert max(sizes) - min(sizes) < 2 * step
    stops = [*starts[1:], rows]
    for section in found.sections:
        numbers = [
            number
            for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
            if start < section.stop and section.first < stop
        ]
        assert list(section.ranges(starts)) == numbers
        assert {found.file_of_part(number) for number in numbers} == set(found.files_of(section, starts))
    assert found.files <= max(1, 2 * len(found.sections) - 1)
    assert found.file_of_part(len(starts)) == found.file_of_part(0)


@given(
    st.integers(1, 300),
    st.integers(1, 9),
    st.integers(1, 40),
    st.sets(st.integers(1, 299)),
    st.lists(st.integers(0, 299), max_size=400),
)
def test_sections_without_dropped_rows_begin_with_a_chunk_of_what_is_kept(
    rows: int, wanted: int, step: int, cuts: set[int], lost: list[int]
) -> None:
    """A dropped row may be reported by several units, or for several fields."""
    starts = [0, *sorted(cut for cut in cuts if cut < rows)]
    stops = [*starts[1:], rows]
    lost = [row for row in lost if row < rows]

    def dropped(number: int) -> Iterator[pa.Table]:
        for row in lost:
            if starts[number] <= row < stops[number]:
                yield pa.table({PLACE: pa.array([row - starts[number]], pa.uint32())})

    cut = sections_of(rows, starts, wanted, step)
    found = sections_of_kept(cut, rows, starts, dropped, wanted, step)
    assert found.files == cut.files
    assert found.sections[0].first == 0
    assert found.sections[-1].stop == rows
    kept = [len(set(range(section.first, section.stop)) - set(lost)) for section in found.sections]
    assert all(one.stop == two.first for one, two in itertools.pairwise(found.sections))
    assert all(count and count % step == 0 for count in kept[:-1])
    chunks = -(-sum(kept) // step)
    assert len(found.sections) == max(1, min(wanted, chunks))
    assert max(kept) - min(kept) < 2 * step


def test_rows_that_cannot_be_cut_are_one_section() -> None:
    found = sections_of(10**9, (), 16)
    assert found.sections == (Section(0, 10**9),)
    assert (found.files, found.file_of_part(7)) == (1, 0)


def test_sections_of_a_large_table_begin_with_a_chunk_of_the_digest() -> None:
    found = sections_of(5 * 2**20 + 1, tuple(range(0, 5 * 2**20 + 1, 2**16)), 4)
    assert [section.first for section in found.sections] == [0, 2**20, 3 * 2**20, 4 * 2**20]


@pytest.mark.parametrize("step", [3, 7])
def test_a_section_has_its_rows_of_a_range_that_two_share(step: int, tmp_path: Path) -> None:
    starts, rows = (0, 5, 12), 20
    values = np.arange(rows)
    with SealedScratch(tmp_path) as scratch:
        spool = scratch.spool(3, 10**6)
        for part, (start, stop) in enumerate(itertools.pairwise((*starts, rows))):
            for first in range(start, stop, 2):
                spool.add(part, pa.table({"x": values[first : min(stop, first + 2)]}))
        for section in sections_of(rows, starts, 5, step).sections:
            found = [x for table in rows_of_section(spool, section, starts) for x in table["x"].to_pylist()]
            assert found == list(range(section.first, section.stop))
