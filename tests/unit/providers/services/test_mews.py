"""MEWS: refusals and their messages, edge cases, and the search for a degree."""

import math
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from providers import PROVIDERS
from providers.binning import degree as degree_search
from providers.binning.degree import Degree, nearest_degree
from providers.binning.grid import fewest_cells
from providers.binning.privacy import minimal_depths
from providers.binning.values import SUMMED, FieldValues, standard_deviation
from providers.errors import ParameterError, SourceError, UnswappableError
from providers.progress import no_progress
from providers.services.mews import MewsParams
from tests.naive.agreement import assert_agree, swap
from tests.property.out_of_core import assert_same

TABLE = pa.table({"x": [0.0, 1.0, 9.0, 10.0], "y": [1, 2, 3, 4], "label": list("abcd")})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "give one of 'width', 'bins' and 'degree'.*given: none"),
        ({"bins": 2, "degree": 3}, "given: bins, degree"),
        ({"bins": 2, "scale": "sd"}, "scale goes with 'width', not 'bins'"),
        ({"width": 0}, "greater than 0"),
        ({"width": [1, -1]}, "greater than 0"),
        ({"width": math.inf}, "finite number"),
        ({"bins": 0}, "greater than or equal to 1"),
        ({"bins": 2**53}, "less than or equal to 4503599627370496"),
        ({"degree": 0}, "greater than or equal to 1"),
        ({"bins": 2, "locked": True}, "unknown name 'locked'"),
        (
            {"bins": 2, "singletons": "keep", "suppression": {"policy": "drop"}},
            "use singletons 'suppression'",
        ),
        ({"bins": 2, "swap_fields": []}, "give the swap fields by name"),
    ],
)
def test_parameters_that_cannot_be(parameters: dict[str, Any], message: str) -> None:
    """The model refuses them, and the message names the remedy."""
    with pytest.raises(ValidationError, match=message):
        MewsParams.model_validate({"swap_fields": ["x"], **parameters})


@pytest.mark.parametrize(
    ("parameters", "message", "pointer"),
    [
        ({"swap_fields": ["xx"]}, "unknown field 'xx'; did you mean 'x'", "/parameters/swap_fields/0"),
        ({"swap_fields": ["x", "x"]}, "'x' is named twice", "/parameters/swap_fields/1"),
        ({"swap_fields": ["x", "label"]}, "'label' has type string; MEWS", "/parameters/swap_fields/1"),
        ({"swap_field_indices": [3]}, "'label' has type string", "/parameters/swap_field_indices/0"),
        ({"swap_field_indices": [4]}, "there is no field 4", "/parameters/swap_field_indices/0"),
        ({"swap_fields": ["x", "y"], "bins": [2]}, "bins has 1 entry for 2 swap fields", "/parameters/bins"),
        ({"swap_fields": ["x"], "origin": [0, 0]}, "origin has 2 entries for 1", "/parameters/origin"),
        (
            {"swap_fields": ["x"], "bins": [2], "others": "univariate"},
            "a list of one bins for each swap field",
            "/parameters/bins",
        ),
        (
            {"swap_fields": ["x", "y"], "others": "univariate"},
            "no remaining field is numeric",
            "/parameters/others",
        ),
        (
            {"others": "univariate", "suppression": {"policy": "replace", "replacement": {"x": 0}}},
            "a replacement for 'y' is missing",
            "/parameters/suppression/replacement",
        ),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit(parameters: dict[str, Any], message: str, pointer: str) -> None:
    """The check against the schema refuses them, before any row is read."""
    provider = PROVIDERS["MEWS"]
    if "swap_field_indices" not in parameters:
        parameters = {"swap_fields": ["x"], **parameters}
    params = MewsParams.model_validate({"bins": 2, **parameters})
    with pytest.raises(ParameterError, match=message) as refused:
        provider.check(params, TABLE.schema)
    assert refused.value.pointer == pointer


def test_a_proper_subset_of_the_fields() -> None:
    """Swapping every field together would only reorder rows."""
    with pytest.raises(ParameterError, match="every field is a swap field"):
        swap("MEWS", TABLE.select(["x", "y"]), {"swap_fields": ["x", "y"], "bins": 2})


@pytest.mark.parametrize(
    ("values", "parameters", "error", "message"),
    [
        ([0.0, 1e300], {"width": 1e-300}, ParameterError, "'x' would be cut into more than 2.52 cells"),
        ([0, 2**60], {"width": 1}, ParameterError, "raise its width"),
        ([-1e308, 1e308], {"bins": 2}, SourceError, "are further apart"),
        ([1.0, 2.0], {"bins": 2, "origin": -1.7e308}, None, ""),
        ([1e308, 1.1e308], {"bins": 2, "origin": -1e308}, SourceError, "or further from the origin"),
        ([1.0, 2.0], {"bins": 2, "origin": 1.5}, ParameterError, "the origin lies above the smallest value"),
        ([1.0, 2.0], {"degree": 2, "origin": 1.5}, ParameterError, "the origin lies above"),
        ([1.0, 2.0], {"width": 2, "origin": 1.5}, None, ""),
        ([1.0, None, math.nan, -math.inf], {"bins": 2}, SourceError, "holds 3 values that are null, NaN"),
    ],
)
def test_values_that_cannot_be(
    values: list[float], parameters: dict[str, Any], error: type[Exception] | None, message: str
) -> None:
    """Errors that depend on the rows name the field, never a value."""
    table = pa.table({"x": values, "label": ["a"] * len(values)})
    if error is None:
        assert_agree("MEWS", table, {"swap_fields": ["x"], **parameters})
        return
    with pytest.raises(error, match=message) as refused:
        swap("MEWS", table, {"swap_fields": ["x"], **parameters})
    assert "e+" not in str(refused.value)


@pytest.mark.parametrize("singletons", ["merge", "keep", "suppression"])
@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_few_rows(rows: int, singletons: str) -> None:
    """No row, one row, and the smallest table that can be swapped."""
    table = pa.table({"x": pa.array([float(at) for at in range(rows)], pa.float64()), "label": ["a"] * rows})
    parameters = {
        "swap_fields": ["x"],
        "bins": 1,
        "singletons": singletons,
        "suppression": {"policy": "keep"},
    }
    fast, _ = assert_agree("MEWS", table, parameters)
    assert fast is not None
    assert fast.summary.took_part == (rows if rows > 1 else 0)


def test_rows_all_equal() -> None:
    """Constant fields make one bin, and the report says that nothing changed."""
    table = pa.table({"x": [7] * 9, "y": [1.5] * 9, "label": ["a"] * 9})
    for how in ({"bins": 5}, {"width": 1e-9}, {"degree": 4}, {"width": 1, "scale": "sd"}):
        fast, _ = assert_agree("MEWS", table, {"swap_fields": ["x", "y"], **how})
        assert fast is not None
        assert fast.provider["partition_degree"] == 1
        assert fast.events.counts == {"nothing_changed": 2}


def test_a_table_that_cannot_be_swapped_fails_when_requested() -> None:
    """Policy ``fail``, and no bin of two rows to merge into."""
    parameters = {
        "swap_fields": ["x"],
        "bins": 4,
        "suppression": {"policy": "fail"},
        "singletons": "suppression",
    }
    with pytest.raises(UnswappableError, match=r"^2 rows of 2 groups"):
        swap("MEWS", pa.table({"x": [0, 0, 5, 10], "label": list("abcd")}), parameters)


def values_of(*columns: list[float]) -> list[FieldValues]:
    """Fields as `nearest_degree` takes them."""
    fields = []
    for at, column in enumerate(columns):
        values = np.array(column, np.float64)
        values.flags.writeable = False
        fields.append(FieldValues(f"x{at}", values, float(values.min()), float(values.max())))
    return fields


@pytest.mark.parametrize("others", [[], [[0.0, 1.0, 0.0, 1.0, 0.0]]])
def test_the_search_for_a_degree_ends(others: list[list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    """An outlier keeps two values in one cell: the search ends at its bound and reports that."""
    monkeypatch.setattr(degree_search, "MOST_STEPS", 30)
    monkeypatch.setattr(degree_search, "_FEWEST_STEPS", 30)
    fields = values_of([0.0, 1e-9, 2e-9, 3e-9, 1.0], *others)
    assert nearest_degree(fields, [0.0] * len(fields), 4 + len(others), no_progress).ended
    assert nearest_degree(fields, [0.0] * len(fields), 2 + len(others), no_progress) == Degree(2, False)


def test_an_ended_search_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event names the remedy."""
    monkeypatch.setattr(degree_search, "MOST_STEPS", 30)
    monkeypatch.setattr(degree_search, "_FEWEST_STEPS", 30)
    table = pa.table({"x": [0.0, 1e-9, 2e-9, 3e-9, 1.0], "label": list("abcde")})
    result = swap("MEWS", table, {"swap_fields": ["x"], "degree": 4})
    assert result.events.counts["degree_search_ended"] == 1
    assert result.provider["partition_degree"] == 2


def test_a_degree_of_the_whole_way() -> None:
    """Degree 1 gives one bin; a degree above the number of rows gives one bin for each distinct row."""
    for degree, bins in ((1, 1), (1000, 4)):
        assert (
            swap("MEWS", TABLE, {"swap_fields": ["x"], "degree": degree}).provider["partition_degree"] == bins
        )


def test_standard_deviation_of_any_size() -> None:
    """It is the population standard deviation, even if squares would overflow."""
    random = np.random.default_rng(4)
    for scale in (1e-300, 1.0, 1e300):
        values = random.normal(size=5000) * scale
        (field,) = values_of(list(values))
        of_whole = standard_deviation(field, 5000, partial(list, [field.values]))
        assert of_whole == pytest.approx(np.std(values / scale) * scale, rel=1e-12)
        pieces = np.split(field.values, [3 * SUMMED, 4 * SUMMED])
        assert standard_deviation(field, 5000, partial(list, pieces)) == of_whole


def test_minimal_depths_are_left_out_of_large_tables() -> None:
    """At least 16 partitionings are tried, with at most 2^22 values."""
    (field,) = values_of([0.0] * (2**18 + 1))
    assert minimal_depths([field], widest=1.0) is None


def test_minimal_depths_are_those_of_admissible_widths() -> None:
    """A single cell is as wide as the range; a grid with a singleton has no depth."""
    (field,) = values_of([0.0, 0.0, 1.0, 1.0, 1.0])
    assert minimal_depths([field], widest=1.0) == {2, 5}
    assert minimal_depths([field], widest=0.5) == {2}
    (singleton,) = values_of([0.0, 0.0, 0.0, 1.0])
    assert minimal_depths([singleton], widest=1.0) == {4}
    assert minimal_depths([singleton], widest=0.9) == set()


@pytest.mark.parametrize("widest", [5e-324, 1e-308, 2.0**-53])
def test_no_partitioning_has_cells_that_float64_cannot_distinguish(widest: float) -> None:
    """The smallest widths would need more cells than floats have places, or infinitely many."""
    table = pa.table({"a": [1.0, 1.0, 2.0, 2.0], "b": [3.0, 3.0, 4.0, 4.0], "kept": [1, 2, 3, 4]})
    result = swap("MEWS", table, {"swap_fields": ["a", "b"], "bins": 2, "widest": widest})
    assert result.measures["p_privacy"]["p"] is None
    assert fewest_cells(2.0**-52) == 2**52


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 10, 49, 98, 103, 107, 161, 187, 197])
def test_a_width_of_a_whole_number_of_cells_is_admissible(cells: int) -> None:
    """The share 1 / m, however it is rounded, admits m cells and not m - 1."""
    least = fewest_cells(1 / cells)
    assert 1 / least <= 1 / cells
    assert least == 1 or 1 / (least - 1) > 1 / cells
    assert least == cells


BASE = 2**62
"""Here float64 numbers are 1,024 apart."""


@pytest.mark.parametrize(
    ("kind", "base", "coarse"),
    [
        (pa.int64(), 0, False),
        (pa.int64(), BASE, True),
        (pa.uint64(), 3 * BASE, True),
        (pa.decimal128(38, 2), 10**25, True),
        (pa.decimal128(38, 18), 1, False),  # rounded, but by far less than a cell
        (pa.float64(), BASE, False),  # every value is a float64
    ],
    ids=str,
)
def test_cells_narrower_than_the_rounding_of_float64_are_an_event(
    kind: pa.DataType, base: int, coarse: bool
) -> None:
    """Values move further than the width of a cell only where the event says so, also out of core."""
    values = [base + at * 37 % 2000 for at in range(200)]
    table = pa.table({"x": pa.array(values, pa.decimal256(40, 0)).cast(kind), "row": range(200)})
    parameters = {"swap_fields": ["x"], "width": 100, "singletons": "keep", "on_reversible": "warn"}
    result = assert_same("MEWS", table, parameters, 65536, 50)
    assert result is not None
    moves = [
        abs(int(a) - int(b))
        for a, b in zip(result.table["x"].to_pylist(), table["x"].to_pylist(), strict=True)
    ]
    assert (max(moves) > 100) == coarse
    assert result.events.counts.get("coarse_numbers", 0) == coarse
    if coarse:
        assert result.events.listed[-1].field == "x"
