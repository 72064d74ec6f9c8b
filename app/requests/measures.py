"""Request to measure a table against its source, and its validation."""

from typing import Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.errors import InvalidRequest
from app.job_kinds import MeasureParameters
from app.requests.seed import SeedValue
from app.requests.source import Source, SourceTable
from app.requests.submission import SubmissionBody
from providers.attacks.thresholds import Thresholds
from providers.measures.assessment import MeasureOptions, check_options


class MeasureRequest(SubmissionBody):
    """Source and destination to compare, and the options of the measures."""

    source: Source
    """Original table."""
    destination: Source
    """Table to be released, produced by any tool. Measures use the fields that both tables have with
    comparable types; `left_out` in the report lists the others."""
    measures: MeasureOptions = MeasureOptions()
    """Options of the measures."""
    aligned: bool | SkipJsonSchema[None] = None
    """Whether row i of the destination was row i of the source. false: measures that compare row with row
    are left out. Default: true if both tables have the same number of rows."""
    seed: SeedValue | SkipJsonSchema[None] = Field(default=None, examples=["8f1c7a0b52e94d63"])
    """Seed from which samples of rows are drawn. Default: 128 bits from the operating system."""
    validate_only: bool = False
    """true: check everything; measure nothing, store nothing."""
    retain_source: bool = False
    """true: keep both tables, sealed, as long as the job, so that a rerun needs neither."""


def checked_measures(
    request: MeasureRequest, source: SourceTable, destination: SourceTable, thresholds: Thresholds
) -> tuple[MeasureParameters, dict[str, Any]]:
    """Return the parameters and options of the job, checked against both tables.

    Raises
    ------
    InvalidRequest
        The tables cannot be aligned as requested, or have no common field.
    ParameterError
        An option does not fit the tables.
    """
    same_length = source.rows == destination.rows
    if request.aligned and not same_length:
        raise InvalidRequest(
            f"the source has {source.rows} rows and the destination {destination.rows}: row i cannot have "
            "become row i; leave 'aligned' out, or make it false",
            "/aligned",
        )
    if not set(source.schema.names) & set(destination.schema.names):
        raise InvalidRequest("the destination has no field of a name that the source has", "/destination")
    check_options(request.measures, source.schema, destination.schema)
    aligned = same_length if request.aligned is None else request.aligned
    options = {
        "measures": request.measures.model_dump(mode="json", exclude_unset=True),
        "thresholds": thresholds.model_dump(mode="json"),
    }
    return MeasureParameters(aligned=aligned), options
