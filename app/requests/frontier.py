"""Request to compare services and parameters by risk and utility, and its validation."""

from typing import Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.errors import InvalidRequest
from app.requests.seed import SeedValue
from app.requests.source import Source, SourceTable
from app.requests.submission import SubmissionBody
from providers.attacks.thresholds import Thresholds
from providers.errors import ParameterError
from providers.measures.assessment import MeasureOptions, check_options
from providers.selection.combinations import combinations_of
from providers.selection.frontier import FrontierOptions, frontier_figures

_KEY_FIELDS = "/measures/key_fields"


class FrontierRequest(SubmissionBody, FrontierOptions):
    """Table, combinations of services and parameters to try on it, and the two figures to compare them by."""

    source: Source
    """The table to protect."""
    key_fields: tuple[str, ...] = Field(default=(), examples=[["age", "sex", "city"]])
    """Fields that an intruder may know about a person; short for `measures.key_fields`."""
    measures: MeasureOptions = MeasureOptions()
    """Options of the measures behind the two figures."""
    seed: SeedValue | SkipJsonSchema[None] = Field(default=None, examples=["8f1c7a0b52e94d63"])
    """Seed from which the seeds of all runs are derived. Default: 128 bits from the operating system."""
    validate_only: bool = False
    """true: check every combination; run nothing, store nothing."""
    retain_source: bool = False
    """true: keep the source, sealed, as long as the job, so that a rerun needs no source."""


def checked_frontier(
    request: FrontierRequest, source: SourceTable, thresholds: Thresholds
) -> tuple[FrontierOptions, dict[str, Any]]:
    """Return the parameters and options of the job, after a check of every combination.

    Raises
    ------
    InvalidRequest
        `key_fields` is given twice.
    ParameterError
        A combination or an option does not fit the source.
    """
    measures = request.measures
    if request.key_fields:
        if measures.key_fields:
            raise InvalidRequest("'key_fields' is short for 'measures.key_fields': give one", "/key_fields")
        measures = MeasureOptions(
            **measures.model_dump(exclude_unset=True) | {"key_fields": request.key_fields}
        )
    try:
        check_options(measures, source.schema, source.schema)
        combinations = combinations_of(request.services, source.schema)
        frontier_figures(request, measures, combinations, source.schema)
    except ParameterError as error:
        # Point to the short form if the caller used that one.
        if request.key_fields and error.pointer.startswith(_KEY_FIELDS):
            pointer = error.pointer.removeprefix("/measures")
            raise ParameterError(error.message, pointer) from None
        raise
    parameters = FrontierOptions(**{name: getattr(request, name) for name in FrontierOptions.model_fields})
    return parameters, {
        "measures": measures.model_dump(mode="json", exclude_unset=True),
        "thresholds": thresholds.model_dump(mode="json"),
    }
