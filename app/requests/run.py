"""Request to run a service, and its validation against the schema of the source."""

from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import BeforeValidator, Field, WithJsonSchema, create_model, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.requests.seed import SeedValue
from app.requests.source import SentTo, Source
from app.requests.submission import SubmissionBody
from providers.measures.assessment import MeasureOptions, check_options
from providers.params import Params, whole_number
from providers.provider import Provider
from providers.selection.candidates import (
    CHOICE_REVISION,
    MOST_CANDIDATES,
    CandidateOptions,
    ranking_figures,
)
from providers.selection.figures import refuse_unused

ReportLevel = Literal["none", "summary", "full"]


def _counted(value: Any) -> Any:
    value = whole_number(value)
    if type(value) is int:
        return {"count": value}
    if isinstance(value, str | bool | float | list):
        raise PydanticCustomError(
            "candidates", 'give the number of candidates, such as 5, or an object, such as {"count": 5}'
        )
    return value


Candidates = Annotated[
    CandidateOptions,
    BeforeValidator(_counted),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MOST_CANDIDATES},
                {"$ref": "#/components/schemas/CandidateOptions"},
            ],
            "default": 1,
            "examples": [5],
        }
    ),
]


class RunRequest(SubmissionBody):
    """Request members that all services share; each service's own request model adds its parameters."""

    source: Source
    """The source buffer."""
    parameters: Params
    """Parameters of the service. Optim's operand names are accepted as aliases."""
    seed: SeedValue | SkipJsonSchema[None] = Field(default=None, examples=["8f1c7a0b52e94d63"])
    """Seed of the run, a secret: anyone who has it can undo the swap. 1 to 64 hex digits, or an integer
    below 2**53. Default: 128 bits from the operating system."""
    validate_only: bool = False
    """true: check the request and return the plan of the run; run nothing, store nothing."""
    report: ReportLevel = "summary"
    """Amount of detail in the report: `summary` has the cheap figures of the run itself; `full` adds every
    applicable measure of risk and utility, and the data of the pictures."""
    measures: MeasureOptions = MeasureOptions()
    """Options of the measures in the report `full`, and of the figures that rank candidates."""
    candidates: Candidates = CandidateOptions()
    """Number of runs from which the best one is chosen, or an object that also names the ranking figures.
    The first candidate uses the job's own seed, so one candidate is the plain run. The other seeds are
    derived from it."""
    retain_source: bool = False
    """true: keep the source, sealed, as long as the job, so that a rerun needs no source."""
    destination: SentTo | SkipJsonSchema[None] = None
    """Reference to write the destination buffer to, in addition to keeping it for `GET
    /v1/jobs/{id}/rows`."""

    @model_validator(mode="after")
    def _measures_are_used(self) -> Self:
        if "measures" in self.model_fields_set and self.report != "full" and self.candidates.count == 1:
            raise PydanticCustomError(
                "measures_unused",
                "'measures' says what the report 'full' holds, and how candidates are ranked; add "
                '"report": "full" or "candidates": 5, or leave it out',
            )
        if self.candidates.rank_by and self.candidates.count == 1:
            raise PydanticCustomError(
                "rank_by_unused", "'rank_by' ranks candidates, and there is one; give a 'count' of 2 to 100"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _take_optim_seed(cls, data: Any) -> Any:
        """Move SWAP_SEED, which Optim has among its operands, from the parameters to `seed`."""
        if isinstance(data, dict) and isinstance(data.get("parameters"), dict):
            parameters = data["parameters"]
            if "SWAP_SEED" in parameters:
                if "seed" in data:
                    raise PydanticCustomError(
                        "given_twice", "'SWAP_SEED' is Optim's name for 'seed': give one of the two"
                    )
                rest = {name: value for name, value in parameters.items() if name != "SWAP_SEED"}
                return data | {"parameters": rest, "seed": parameters["SWAP_SEED"]}
        return data


def run_request_model(provider: Provider[Any]) -> type[RunRequest]:
    """Create the request model of one service, so that a generated client has real parameter types."""
    return create_model(
        f"{provider.identifier.title()}Request",
        __base__=RunRequest,
        __doc__=f"A call of {provider.identifier}: {provider.summary}",
        parameters=(provider.params, ...),
        # The fields have their descriptions; pydantic would read the source of every calling frame for more.
        __cls_kwargs__={"use_attribute_docstrings": False},
    )


def checked_run(
    provider: Provider[Any], request: RunRequest, schema: pa.Schema
) -> tuple[Params, dict[str, Any]]:
    """Return the parameters and options of the job, checked against the source's schema.

    Raises
    ------
    ParameterError
        A parameter or an option does not fit the source.
    """
    parameters: Params = provider.check(request.parameters, schema)
    check_options(request.measures, schema, schema)
    options: dict[str, Any] = {}
    if request.candidates.count > 1:
        figures = ranking_figures(request.candidates, request.measures)
        if request.report != "full":
            refuse_unused(request.measures, figures)
        options["candidates"] = request.candidates.model_dump(mode="json")
        options["choice_revision"] = CHOICE_REVISION
    if request.report == "full" or request.candidates.count > 1:
        options["measures"] = request.measures.model_dump(mode="json", exclude_unset=True)
    return parameters, options
