"""Response models that several measures share."""

from typing import Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.api.report_schemas import ResponseModel


class Interval(ResponseModel):
    """Confidence interval of 95 %. An end that is not finite is absent."""

    low: float | SkipJsonSchema[None] = None
    high: float | SkipJsonSchema[None] = None


class MeasureFigure(ResponseModel):
    """Texts, fields and sample of a measure; its value is in the model of the measure."""

    title: str
    concerns: Literal["risk", "utility"]
    goal: Literal["low", "high", "near"]
    """Better values of the release: low ones, high ones, or those near the source's."""
    range: str
    """Possible values, and their unit if they have one."""
    formula: str
    source: str
    """Publication that the formula is from."""
    fields: list[str] = Field(default=[])
    """Measured fields."""
    sample: int | SkipJsonSchema[None] = None
    """Number of rows in the random sample; absent if all rows were measured."""
    caution: str | SkipJsonSchema[None] = None
    """Present if a few extreme values of a field decide the figure: names the field and the remedy."""


class FigureOfPersons(MeasureFigure):
    """Measure that counts the rows of a unit as one person."""

    unit: str | SkipJsonSchema[None] = None
    """Field that identifies the units, from `unit_field`, or from `unit_id` of the run; absent if each row is
    a person."""


class BeforeAndAfter(ResponseModel):
    """Figure of the source and of the release."""

    before: float
    after: float


class ChangeFromBefore(BeforeAndAfter):
    """Figure of the source and of the release, and its absolute change."""

    change: float
