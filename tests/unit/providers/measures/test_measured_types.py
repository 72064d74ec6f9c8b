"""Types of source and destination: every pair is measured, or left out with a reason."""

import numpy as np
import pyarrow as pa
import pytest

from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.shared.columns import column_of, not_measurable
from providers.measures.shared.finding import NotApplicable
from providers.randomness.chacha20 import Stream
from tests.every_type import COLUMNS, in_two_chunks

BEYOND = 2**53 + 1


@pytest.mark.parametrize("source", COLUMNS)
def test_each_pair_of_types_has_figures_or_a_reason(source: str) -> None:
    """Numbers, codes, labels and text of both tables exist for every field that is not left out."""
    before = in_two_chunks(COLUMNS[source])
    compared = 0
    for name, array in COLUMNS.items():
        after = in_two_chunks(array)
        for categorical in (False, True):
            fields = pa.field("f", before.type), pa.field("f", after.type)
            if not_measurable(*fields, categorical) is not None:
                continue
            try:
                column = column_of("f", before, after, categorical)
            except NotApplicable:  # a time beyond the range of the other unit
                assert pa.types.is_timestamp(array.type)
                assert source != name
                continue
            compared += 1
            for codes in (column.codes("source"), column.codes("destination")):
                assert len(codes) == len(before), name
            labels = column.labels(np.unique(column.codes("source")).tolist())
            assert len(set(labels)) == len(labels) or categorical
            if column.kind != "category":
                assert not np.isinf(column.numbers("source")).any()
                assert not np.isinf(column.numbers("destination")).any()
                column.as_text([0.0])
            if source == name:
                assert np.array_equal(column.codes("source"), column.codes("destination"))
    assert compared or not_measurable(pa.field("f", before.type), pa.field("f", before.type)) is not None


def test_integers_beyond_float64_are_compared_as_the_destination_holds_them() -> None:
    """An int64 that became float64 equals the nearest float64 and no other."""
    source = pa.chunked_array([pa.array([BEYOND, BEYOND + 2, -BEYOND, 7], pa.int64())])
    nearest = pa.chunked_array([pa.array([float(BEYOND), 7.0, float(-BEYOND), None])])
    column = column_of("f", source, nearest, False)
    same = column.codes("source") == column.codes("destination")
    assert same.tolist() == [True, False, True, False]
    assert column.numbers("source").tolist() == [float(BEYOND), float(BEYOND + 2), -float(BEYOND), 7.0]


@pytest.mark.parametrize(("one", "two"), [(pa.int64(), pa.uint64()), (pa.int32(), pa.uint64())])
def test_integers_of_two_widths_are_compared_exactly(one: pa.DataType, two: pa.DataType) -> None:
    """Integers of two widths keep all digits, so that neighbours beyond 2**53 differ."""
    small = pa.chunked_array([pa.array([7, None, 2**31 - 1], one)])
    wide = pa.chunked_array([pa.array([7, None, 2**31], two)])
    column = column_of("f", small, wide, False)
    assert (column.codes("source") == column.codes("destination")).tolist() == [True, True, False]
    if one == pa.int64():
        neighbours = pa.chunked_array([pa.array([BEYOND + 1, BEYOND], one)])
        column = column_of("f", neighbours, pa.chunked_array([pa.array([BEYOND, BEYOND], two)]), False)
        assert (column.codes("source") == column.codes("destination")).tolist() == [False, True]


@pytest.mark.parametrize("categorical", [False, True])
def test_a_whole_report_of_integers_that_became_floats(categorical: bool) -> None:
    """All measures accept the types that LOCALITY and PABIDOT publish for such a field."""
    numbers = np.arange(40, dtype=np.int64) * 4096 + 2**60 + 1
    source = pa.table({"amount": numbers, "other": np.arange(40.0)})
    destination = pa.table({"amount": numbers[::-1].astype(np.float64), "other": np.arange(40.0)})
    options = MeasureOptions(categorical_fields=("amount",) if categorical else (), sample=20)
    judged = assess(Release(source, destination), options, Stream(bytes(32), "measures", 1))
    assert judged.measures["changed_share"]["value"]["other"] == 0
    assert judged.measures["changed_share"]["value"]["amount"] > 0.9
