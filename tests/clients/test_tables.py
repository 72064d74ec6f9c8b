"""Tables in and out of the Python client."""

import warnings
from typing import Any

import pandas as pd
import polars as pl
import pytest

from rowveil_client.tables import as_arrow


@pytest.mark.parametrize("labels", [[5, 3, 0], ["x", "y", "z"], [1, 2, 3]])
def test_a_lost_index_is_announced(labels: list[object]) -> None:
    """pandas would align the release with the source by it."""
    with pytest.warns(UserWarning, match=r"the index of the DataFrame is not sent.*reset_index"):
        table, back = as_arrow(pd.DataFrame({"a": [1, 2, 3]}, index=labels))
    assert back(table).index.equals(pd.RangeIndex(3))


def test_the_usual_index_needs_no_warning() -> None:
    frames = [
        pd.DataFrame({"a": [1, 2, 3]}),
        pd.DataFrame({"a": [1, 2]}, index=[0, 1]),
        pd.DataFrame({"a": []}),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for frame in frames:
            assert as_arrow(frame)[0].column_names == ["a"]


@pytest.mark.parametrize(
    "columns",
    [[0, 1], pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]), pd.Index(["a", "b"], name="field")],
)
def test_columns_keep_their_names(columns: Any) -> None:
    """Arrow has texts alone, so that `release[0]` was no column."""
    frame = pd.DataFrame([[1, 2], [3, 4]], columns=columns)
    table, back = as_arrow(frame)
    pd.testing.assert_frame_equal(back(table), frame)


def test_a_subclass_of_a_data_frame_is_one() -> None:
    class Survey(pd.DataFrame):
        pass

    assert as_arrow(Survey({"a": [1, 2]}))[0].column_names == ["a"]


def test_objects_of_polars_are_refused() -> None:
    """Their addresses in memory were sent, and came back as bytes."""
    with pytest.raises(TypeError, match="type Object has no values"):
        as_arrow(pl.DataFrame({"a": pl.Series([object(), object()], dtype=pl.Object)}))
