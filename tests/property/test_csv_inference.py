"""A CSV field's type is that of all its cells, however they come."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from app.formats.csv_inference import FieldType
from providers.tables.type_names import type_name
from tests.naive.csv_types import inferred

WORDS = [
    "1", "0", "-5", "-0", "007", "9007199254740992", "9007199254740993", "9223372036854775808",
    "18446744073709551615", "18446744073709551616", "-9223372036854775808", "9" * 30,
    "1234567890123456.78", "1234567890123456.75", "123456789012.3456", "1234567890123.45678",
    "1234567890123456.8",
    "12E3", "12e3", "1E3", "-12E3", "12E+3", "12.0E3", "1e-5",
    "0.5", ".5", "5.", "1e3", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1.5e", "true", "false",
    "True", "x", " 1", "1 ", "1\n", "", "NA", "2024-02-29", "\u0661",
]  # fmt: skip
NUMBERS = [word for word in WORDS if word[:1] in "-.0123456789NI"]
CELLS = st.sampled_from([WORDS, NUMBERS, ["true", "false", ""], ["1", "2", ""]]).flatmap(
    lambda words: st.lists(st.none() | st.sampled_from(words), max_size=12)
)


@given(CELLS, st.integers(1, 60), st.integers(1, 5))
def test_the_type_does_not_depend_on_how_the_cells_come(
    cells: list[str | None], times: int, parts: int
) -> None:
    """Few cells are looked at by Python and many by Arrow; both find what the naive reading finds."""
    nulls = ("", "NA")
    column = pa.array(cells * times, pa.string())
    found = FieldType(frozenset(nulls))
    for part in range(parts):
        start, end = len(column) * part // parts, len(column) * (part + 1) // parts
        if not found.is_text:
            found.see(column.slice(start, end - start))
    assert type_name(found.result()) == inferred(cells * times, nulls)
