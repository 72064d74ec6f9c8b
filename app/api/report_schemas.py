"""What goes over the wire of a report: the figures, and the evidence of a choice.

A field that may be absent is left out rather than sent as null, as everywhere.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.json_schema import SkipJsonSchema


class ResponseModel(BaseModel):
    """Something the service answers."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    def document(self) -> dict[str, Any]:
        """As plain JSON values, without the absent fields."""
        return self.model_dump(mode="json", exclude_none=True)


class CandidateDescription(ResponseModel):
    """One of several runs."""

    index: int
    """From 0; the first has the job's own seed."""
    seed_fingerprint: str
    values: dict[str, float]
    """Figure -> value; a figure that is not defined for it is absent, and ranks last."""
    rank: float
    """The mean of its ranks over the figures, the best being 1."""


class CandidatesDescription(ResponseModel):
    """The runs from which the result was chosen, and by what."""

    rank_by: list[str]
    chosen: int
    """The index of the one that was kept."""
    table: list[CandidateDescription]
    left_out: dict[str, str] = {}
    """Figure -> why it ranked nobody."""
    figures: dict[str, JsonValue]
    """Figure -> its measure's title, goal, range, formula and source, and the sample of rows if any."""


class FrontierPoint(ResponseModel):
    """What one service did with one set of parameters."""

    service: str
    parameters: dict[str, JsonValue]
    """As they were asked for; ready to be given to the service."""
    risk: float | SkipJsonSchema[None] = None
    """The mean over the runs; absent where there is an error."""
    utility: float | SkipJsonSchema[None] = None
    dominated: bool
    """Whether another point is as good in both figures and better in one. true where there is an error."""
    error: str | SkipJsonSchema[None] = None
    """Why there is no point."""


class FrontierGoals(ResponseModel):
    """Which values are the better ones."""

    risk: Literal["low", "high"]
    utility: Literal["low", "high"]


class FrontierDescription(ResponseModel):
    """Risk and utility of every combination."""

    risk: str
    """The figure of risk, in full."""
    utility: str
    """The figure of utility, in full."""
    goals: FrontierGoals
    runs: int
    """Runs of each combination."""
    points: list[FrontierPoint]
    figures: dict[str, JsonValue]
    """Figure -> its measure's title, goal, range, formula and source, and the sample of rows if any."""


class WeakSeedDescription(ResponseModel):
    """What it takes to find a seed by trying."""

    bits: int
    seeds_to_try: float
    seeds_a_second_and_core: float
    """As measured; `docs/security.md` says how."""
    core_seconds: float
    """Seconds of one core to try them all."""


class Report(ResponseModel):
    """What a release is defended with."""

    summary: dict[str, JsonValue]
    """The figures every service has: rows, groups, took_part, changed, suppressed, unswapped..."""
    measures: dict[str, JsonValue]
    """Measure -> value, goal, range, formula and source; in the report `full` also the `fields` that
    were measured, and the `sample` of rows where it was not all of them."""
    provider: dict[str, JsonValue]
    """The service's own figures."""
    limits: list[str]
    """What the service does not protect against."""
    left_out: dict[str, str] = {}
    """Of the report `full`: measure -> why it does not apply here; field -> why it is not measured."""
    weak_seed: WeakSeedDescription | SkipJsonSchema[None] = None
    """Of a job whose caller gave a seed of less than 64 bits."""
    candidates: CandidatesDescription | SkipJsonSchema[None] = None
    """Of a run that was chosen from several: all of them."""
    frontier: FrontierDescription | SkipJsonSchema[None] = None
    """Of `POST /v1/frontier`: all points."""
    pictures: dict[str, JsonValue] = {}
    """Of the report `full`: the counts and matrices to draw, without a cell count that would disclose."""
