"""Statistics of grid cells: with an entry for each cell, and with the cells that hold rows only."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from providers.binning import cell_sums
from providers.binning.cell_sums import MOST_DENSE, CellSums, new_cell_sums
from providers.errors import SourceError

ROWS = 5000


def batches(
    cells: int,
) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], list[npt.NDArray[np.float64]]]]:
    """Yield cell ids, row numbers and two columns: some cells hold one row, some many, some none."""
    random = np.random.default_rng(cells)
    ids = (random.geometric(0.01, ROWS) * 7 % cells).astype(np.uint64)
    columns = [random.normal(0.1, 10.0**power, ROWS) for power in (0, 9)]
    for start, stop in ((0, 1), (1, 2000), (2000, ROWS)):
        span = slice(start, stop)
        yield ids[np.newaxis, span], np.arange(start, stop), [column[span].copy() for column in columns]


def summed(cells: list[int], memory: int = 10**9) -> CellSums:
    sums = new_cell_sums(cells, np.array([[0.1, 3.0], [-7.0, 0.7]]), memory)
    for ids, rows, columns in batches(int(np.prod(cells))):
        sums.add(ids, rows, columns)
    return sums.found()


@pytest.mark.parametrize("cells", [[1, 1], [40, 25], [256, 256]])
def test_entries_of_all_cells_have_the_same_sums_as_sorted_ones(
    cells: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are equal to the last bit, and are what plain Python adds up."""
    dense = summed(cells)
    monkeypatch.setattr(cell_sums, "MOST_DENSE", 0)
    sparse = summed(cells)
    for name in ("words", "sizes", "first", "sums"):
        assert np.array_equal(getattr(dense, name), getattr(sparse, name)), name
    plain: dict[int, list[float]] = {}
    for ids, rows, columns in batches(int(np.prod(cells))):
        for at, cell in enumerate(ids[0].tolist()):
            held = plain.setdefault(cell, [0, float(rows[at]), 0.0, 0.0])
            held[0] += 1
            held[2] += (float(columns[0][at]) - 0.1) / 3.0
            held[3] += (float(columns[1][at]) + 7.0) / 0.7
    assert dense.words[0].tolist() == sorted(plain)
    found = np.column_stack([dense.sizes, dense.first, dense.sums])
    assert found.tolist() == [plain[cell] for cell in sorted(plain)]
    assert (dense.count, dense.singletons) == (len(plain), sum(held[0] == 1 for held in plain.values()))


def test_larger_grids_and_little_memory_have_entries_of_cells_with_rows_only() -> None:
    """A grid within `MOST_DENSE` whose entries do not fit the memory is refused only if its rows fill it."""
    assert summed([MOST_DENSE, 2]).count < ROWS
    assert summed([MOST_DENSE, 1], memory=1).count == summed([MOST_DENSE, 1]).count
    sums = new_cell_sums([10**6], np.array([[0.0, 1.0]]), 1)
    rows = np.arange(10_000)
    with pytest.raises(SourceError, match="more than 4096 cells hold rows"):
        sums.add(rows.astype(np.uint64)[np.newaxis], rows, [rows.astype(np.float64)])


def test_nothing_is_found_without_rows() -> None:
    for cells in ([3], [MOST_DENSE + 1]):
        found = new_cell_sums(cells, np.zeros((1, 2)), 10**9).found()
        assert (found.count, found.singletons, found.sums.shape) == (0, 0, (0, 1))
