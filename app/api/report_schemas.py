"""Response models of a report: figures, candidates and frontier.

A field that may be absent is left out rather than sent as null, as in all responses.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.json_schema import SkipJsonSchema


class ResponseModel(BaseModel):
    """Base class of response models."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    def document(self) -> dict[str, Any]:
        """Return plain JSON values, without the absent fields."""
        return self.model_dump(mode="json", exclude_none=True)


class CandidateDescription(ResponseModel):
    """One of several candidate runs."""

    index: int
    """Index from 0; candidate 0 has the job's own seed."""
    seed_fingerprint: str
    values: dict[str, float]
    """Figure -> value. A figure that is undefined for this candidate is absent, and ranks last."""
    rank: float
    """Mean of the candidate's ranks over the figures; rank 1 is the best."""
    protects_fewer: bool = False
    """Whether another candidate changed values of all the fields that this one did, and of more."""
    reversible: dict[str, int] = {}
    """Row counts `rows_in_groups_of_two` and `rows_in_groups_of_three`, if not zero. Anyone can restore
    these rows, exactly or nearly so."""


class CandidatesDescription(ResponseModel):
    """Candidate runs from which the result was chosen, and the ranking figures."""

    rank_by: list[str]
    """Figures that distinguish the candidates."""
    chosen: int
    """Index of the candidate that was kept."""
    table: list[CandidateDescription]
    left_out: dict[str, str] = {}
    """Figure -> reason why it did not rank: it does not apply, or it is equal for all candidates."""
    protected: list[str] = []
    """Fields of which at least one candidate changed a value. A figure that is a mean over fields is the
    mean over these."""
    verdict: str = ""
    """Limits of the choice as text: no figure of risk ranked, or anyone can undo the kept candidate."""
    figures: dict[str, JsonValue]
    """Figure -> its measure's title, goal, range, formula and source, the sample of rows if any, and the
    fields over which it is a mean."""


class FrontierPoint(ResponseModel):
    """One service with one set of parameters, and its comparison with the other points."""

    service: str
    parameters: dict[str, JsonValue]
    """Parameters as in the request; a run of the service accepts them unchanged."""
    risk: float | SkipJsonSchema[None] = None
    """Mean over the runs; absent if there is an error."""
    utility: float | SkipJsonSchema[None] = None
    protects: list[str] | SkipJsonSchema[None] = None
    """Fields of which every run changed a value; absent if there is an error."""
    protects_fewer: bool | SkipJsonSchema[None] = None
    """Whether another point protects all these fields and more. Such a point is never called better."""
    unprotected: list[str] | SkipJsonSchema[None] = None
    """Fields that those other points protect and this one does not."""
    reversible: dict[str, int] | SkipJsonSchema[None] = None
    """Row counts `rows_in_groups_of_two` and `rows_in_groups_of_three`, empty if both are zero. Anyone can
    restore these rows, exactly or nearly so. A point with such rows is never called better."""
    dominated: bool
    """false: the point is on the frontier. true: another point that protects the same fields is as good on
    every ranking axis and better on one; or the point cannot be called better, because it protects fewer
    fields than another one, is reversible, has an error, or no figure of risk ranks."""
    error: str | SkipJsonSchema[None] = None
    """Reason why the combination has no point."""


class FrontierGoals(ResponseModel):
    """Direction of each figure: whether low or high values are better."""

    risk: Literal["low", "high"]
    utility: Literal["low", "high"]


class FrontierAxis(ResponseModel):
    """Figure by which the points are compared."""

    figure: str
    """Full name of the figure."""
    ranks: bool
    """Whether the figure distinguishes the points."""
    constant: bool
    """Whether the figure is the same for every point, apart from random differences of a sample of rows."""
    reason: str | SkipJsonSchema[None] = None
    """Reason why the figure does not rank."""
    baseline: float | SkipJsonSchema[None] = None
    """Value of a figure of risk by chance alone, if known."""
    baseline_of: str | SkipJsonSchema[None] = None
    """Meaning of chance for this figure."""


class FrontierAxes(ResponseModel):
    """Both figures by which the points are compared."""

    risk: FrontierAxis
    utility: FrontierAxis


class FrontierDescription(ResponseModel):
    """Risk and utility of every combination."""

    risk: str
    """Full name of the figure of risk."""
    utility: str
    """Full name of the figure of utility."""
    goals: FrontierGoals
    axes: FrontierAxes | SkipJsonSchema[None] = None
    """Whether each figure ranks. An axis that does not rank decides nothing; if the risk axis does not
    rank, no point is best. Absent from a report of revision 1."""
    passed_over: dict[str, str] = {}
    """Figure tried earlier -> reason why it is not an axis."""
    protected: list[str] = []
    """Fields of which at least one run changed a value. A figure that is a mean over fields is the mean
    over these."""
    runs: int
    """Number of runs of each combination."""
    points: list[FrontierPoint]
    best: list[int] = []
    """Indices in `points` of the points on the frontier, from 0."""
    verdict: str = ""
    """Result of the comparison as text. If no point is best: the reason, and what to do."""
    figures: dict[str, JsonValue]
    """Figure -> its measure's title, goal, range, formula and source, the sample of rows if any, and the
    fields over which it is a mean."""


class WeakSeedDescription(ResponseModel):
    """Cost of finding a seed by brute force."""

    bits: int
    seeds_to_try: float
    seeds_a_second_and_core: float
    """Measured rate; see `docs/security.md`."""
    core_seconds: float
    """Seconds that one core needs to try all seeds."""


class Report(ResponseModel):
    """Report of a job: the figures that justify a release."""

    summary: dict[str, JsonValue]
    """Figures that every service reports: rows, groups, took_part, changed, suppressed, unswapped..."""
    measures: dict[str, JsonValue]
    """Measure -> value, goal, range, formula and source. The report `full` adds the measured `fields`, and
    the `sample` of rows if not all rows were measured."""
    provider: dict[str, JsonValue]
    """Figures specific to the service."""
    limits: list[str]
    """Threats that the service does not protect against."""
    left_out: dict[str, str] = {}
    """Measure -> reason why it does not apply; field -> reason why it is not measured. Only in the report
    `full`."""
    weak_seed: WeakSeedDescription | SkipJsonSchema[None] = None
    """Present if the caller gave a seed of less than 64 bits."""
    candidates: CandidatesDescription | SkipJsonSchema[None] = None
    """Present if the result was chosen from several runs: all of them."""
    frontier: FrontierDescription | SkipJsonSchema[None] = None
    """Present for `POST /v1/frontier`: all points."""
    pictures: dict[str, JsonValue] = {}
    """Counts and matrices to draw, without cell counts that would disclose. Only in the report `full`."""
