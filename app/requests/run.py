"""Request to run a service, and its validation against the schema of the source."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import BeforeValidator, Field, WithJsonSchema, create_model, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from app.requests.annotations import Reason
from app.requests.run_attacks import RunAttacks, attack_options_of_run
from app.requests.seed import SeedValue
from app.requests.source import SentTo, Source
from app.requests.submission import SubmissionBody
from providers.attacks.options import check_attack_options
from providers.attacks.thresholds import Thresholds
from providers.errors import ParameterError
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
    """true: check the request and return the plan of the run; run nothing, store nothing. The plan of another
    caller's table needs the scope `read`."""
    preview_rows: Annotated[int, Field(ge=0, le=50)] = 0
    """With `validate_only`: number of rows to show before and after a trial run on the first 1,000 rows. It
    needs the scope `read`."""
    report: ReportLevel = "summary"
    """Amount of detail in the report: `summary` has the cheap figures of the run itself; `full` adds every
    applicable measure of risk and utility, and the data of the pictures."""
    measures: MeasureOptions = MeasureOptions()
    """Options of the measures in the report `full`, and of the figures that rank candidates."""
    candidates: Candidates = CandidateOptions()
    """Number of runs from which the best one is chosen, or an object that also names the ranking figures.
    The first candidate uses the job's own seed, so one candidate is the plain run. The other seeds are
    derived from it."""
    attacks: RunAttacks = None
    """Attacks on the release, in the report `full`: the fields that an intruder knows and those to protect,
    and other options as in `POST /v1/attacks`. true: `known_fields` or `key_fields`, and `sensitive_fields`
    or `target`, of `measures`."""
    retain_source: bool = False
    """true: keep the source, sealed, as long as the job, so that a rerun needs no source."""
    release_reason: Reason | SkipJsonSchema[None] = Field(
        default=None, examples=["corrected rows replace the release of May"]
    )
    """Reason for releasing a source again, for `GET /v1/ledger`. Some projects require it. [up to 500
    characters]"""
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
        if self.attacks is not None and self.report != "full":
            raise PydanticCustomError(
                "attacks_unused",
                "'attacks' adds to the report 'full'; add \"report\": \"full\", or leave it out",
            )
        if self.candidates.rank_by and self.candidates.count == 1:
            raise PydanticCustomError(
                "rank_by_unused", "'rank_by' ranks candidates, and there is one; give a 'count' of 2 to 100"
            )
        return self

    @model_validator(mode="after")
    def _preview_is_a_preview(self) -> Self:
        if self.preview_rows and not self.validate_only:
            raise PydanticCustomError(
                "preview_unused",
                "'preview_rows' belongs to a preview; add \"validate_only\": true, or leave it out",
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _refuse_members_among_parameters(cls, data: Any) -> Any:
        """Refuse a member of the request, such as `seed`, that was put into the parameters."""
        parameters = data.get("parameters") if isinstance(data, dict) else None
        if isinstance(parameters, dict):
            model = cls.model_fields["parameters"].annotation
            own = model.model_fields if isinstance(model, type) and issubclass(model, Params) else {}
            for name in parameters:
                if name in cls.model_fields and name not in own:
                    raise PydanticCustomError(
                        "unknown_name",
                        "'{name}' is no parameter of the service but a member of the request: put it next to "
                        "'parameters'",
                        {"name": name, "within": "parameters"},
                    )
        return data

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
    )


def checked_run(
    provider: Provider[Any], request: RunRequest, schema: pa.Schema, rows: int, thresholds: Thresholds
) -> tuple[Params, dict[str, Any]]:
    """Return the parameters and options of the job, checked against the source's schema and number of rows.

    Parameters
    ----------
    provider : Provider
    request : RunRequest
    schema : pa.Schema
        Schema of the source.
    rows : int
        Number of rows of the source.
    thresholds : Thresholds
        Thresholds of the attacks' verdict.

    Raises
    ------
    InvalidRequest
        Attacks were requested, and no option names a field to attack.
    ParameterError
        A parameter or an option does not fit the source.
    SourceError
        The service refuses every table of this number of rows, or two fields have the same name.
    """
    parameters: Params = provider.check(request.parameters, schema)
    provider.check_rows(parameters, rows)
    check_options(request.measures, schema, schema)
    options: dict[str, Any] = {}
    if request.candidates.count > 1:
        if getattr(parameters, "series", None) is not None:
            raise ParameterError(
                "a unit of a series has one partner, which no choice among candidates may change: leave "
                "'candidates' or 'series' out",
                "/candidates",
            )
        figures = ranking_figures(request.candidates, request.measures)
        if request.report != "full":
            refuse_unused(request.measures, figures)
        options["candidates"] = request.candidates.model_dump(mode="json", exclude_none=True)
        options["choice_revision"] = CHOICE_REVISION
    if request.report == "full" or request.candidates.count > 1:
        options["measures"] = request.measures.model_dump(mode="json", exclude_unset=True)
    if request.report == "full":
        options["thresholds"] = thresholds.model_dump(mode="json")
    if request.attacks is not None:
        attacks = attack_options_of_run(request.attacks, request.measures)
        check_attack_options(attacks, schema, schema, pointer="/attacks")
        options["attacks"] = attacks.model_dump(mode="json", exclude_unset=True)
        if request.attacks.advice:
            options["advice"] = True
    if request.release_reason is not None:
        options["release_reason"] = request.release_reason
    return parameters, options
