"""Response models of a table's profile, and of the comparison of a release with its source."""

from pydantic import JsonValue
from pydantic.json_schema import SkipJsonSchema

from app.api.report_schemas import ResponseModel


class ValueCount(ResponseModel):
    """Number of rows with a value."""

    value: str
    """The value as text in the form of a CSV, cut after 200 characters."""
    count: int


class Histogram(ResponseModel):
    """Numbers of values in equal bins."""

    edges: list[str]
    """Edges of the bins as text, one more than there are bins. A bin includes its lower edge; for numbers
    with a fraction, the last bin includes its upper edge too."""
    counts: list[int]
    """Number of values in each bin."""


class FieldProfile(ResponseModel):
    """One field of a table, in the rows that were read."""

    name: str
    type: str
    nulls: int
    distinct: int
    """Number of different values, without null."""
    distinct_is_exact: bool
    """false: counting stopped because the field has many values, or values that cannot be counted;
    `distinct` is a lower bound."""
    runs: int | SkipJsonSchema[None] = None
    """Number of runs of equal values in adjacent rows. Equal to `distinct`: the table is grouped by the
    field, as by a household."""
    largest_count: int | SkipJsonSchema[None] = None
    """Number of rows with the most frequent value, if `distinct` is exact."""
    minimum: str | SkipJsonSchema[None] = None
    """Smallest finite number, or earliest time."""
    maximum: str | SkipJsonSchema[None] = None
    """Largest finite number, or latest time."""
    values: list[ValueCount] | SkipJsonSchema[None] = None
    """The most frequent values, at most 12, of a field with a repeated value that has no histogram."""
    histogram: Histogram | SkipJsonSchema[None] = None
    """Histogram of a field of numbers or times with more than 12 different values."""


class TableProfile(ResponseModel):
    """Fields and first rows of a table."""

    row_count: int
    """Number of rows of the table."""
    rows_read: int
    """Number of first rows that the profile covers: all, or 100 million cells of a larger table."""
    field_count: int
    """Number of fields of the table; the first 300 are profiled."""
    fields: list[FieldProfile]
    first_rows: list[list[JsonValue]]
    """First rows, each with one text or null for each field."""


class ComparedField(ResponseModel):
    """One field of a comparison."""

    name: str
    type: str
    """Type in the source."""
    changed: int | SkipJsonSchema[None] = None
    """Number of rows in which the release has another value; absent if rows are not aligned."""


class ComparedRow(ResponseModel):
    """One row before and after the run."""

    row: int
    """0-based row in both tables."""
    before: list[JsonValue]
    """One text or null for each field, from the source."""
    after: list[JsonValue]
    """One text or null for each field, from the release."""


class CrossTable(ResponseModel):
    """Numbers of rows with each pair of values of two fields, before and after the run."""

    field: str
    by: str
    values: list[JsonValue]
    """Values of `field` as text or null, one for each row of the cross table. The most frequent of the source
    come first."""
    by_values: list[JsonValue]
    """Values of `by` as text or null, one for each column of the cross table."""
    before: list[list[int]]
    after: list[list[int]]


class RowComparison(ResponseModel):
    """Rows and values of a release compared with its source."""

    aligned: bool
    """Whether row i of the release was made of row i of the source. Otherwise (rows were dropped or shuffled)
    the two halves of a row do not belong together."""
    rows_read: int
    """Number of rows that were compared."""
    fields: list[ComparedField]
    rows: list[ComparedRow]
    categories: list[str]
    """Fields with at most 24 different values in the source, which may be crossed."""
    crosstab: CrossTable | SkipJsonSchema[None] = None
    error: str | SkipJsonSchema[None] = None
    """Reason why a trial run cannot be made on only the first rows."""
