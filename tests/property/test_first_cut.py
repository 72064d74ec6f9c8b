"""The rows of a first half are those that a sort by all fields puts first."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from providers.binning.first_cut import first_rows


@given(st.data())
def test_the_first_rows_are_those_of_a_sort(data: st.DataObject) -> None:
    """Ties in one field are cut by the next widest one, and at the end by row number; -0.0 is 0.0."""
    fields, rows = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 40))
    values = st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, 1e300]) | st.floats(-1e9, 1e9)
    column = st.lists(values, min_size=rows, max_size=rows)
    points = np.array([data.draw(column) for _ in range(fields)])
    count = data.draw(st.integers(1, rows))
    widths = points.max(axis=1) - points.min(axis=1)
    by_width = sorted(range(fields), key=lambda field: -widths[field])
    order = sorted(range(rows), key=lambda row: tuple(points[field, row] for field in by_width))
    assert np.flatnonzero(first_rows(points, count)).tolist() == sorted(order[:count])
