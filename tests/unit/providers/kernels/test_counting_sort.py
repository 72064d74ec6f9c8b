"""Places of rows by their parts, against numpy's stable sort."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from providers.kernels.counting_sort import places_by_part


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
@pytest.mark.parametrize(("rows", "parts"), [(0, 1), (1, 1), (7, 1), (50, 3), (50, 200), (9000, 60)])
def test_rows_are_ascending_within_each_part(kind: type, rows: int, parts: int) -> None:
    random = np.random.default_rng(rows + parts)
    part_of_row: npt.NDArray[np.integer[Any]] = random.integers(0, parts, rows).astype(kind)
    places, starts = places_by_part(part_of_row, parts)
    assert np.argsort(places).tolist() == np.argsort(part_of_row, kind="stable").tolist()
    assert starts.tolist() == [int(np.count_nonzero(part_of_row < part)) for part in range(parts + 1)]
