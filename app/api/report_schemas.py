"""Response models of a report: figures, candidates and frontier.

A field that may be absent is left out rather than sent as null, as in all responses.
"""

from importlib import import_module
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, GetJsonSchemaHandler, JsonValue
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema
from pydantic_core.core_schema import definition_reference_schema, definitions_schema

from providers.described_model import DescribedModel


class ResponseModel(DescribedModel):
    """Base class of response models."""

    def document(self) -> dict[str, Any]:
        """Return plain JSON values, without the absent fields."""
        return self.model_dump(mode="json", exclude_none=True)


class SchemaOf:
    """Annotation of plain JSON whose schema is that of a model.

    The values are sent as they were stored: a report of an earlier version keeps figures that its model does
    not have any more. The model is imported when a schema is made, which the start of the service does not
    do.

    Parameters
    ----------
    module : str
        Module of the model.
    name : str
        Name of the model's class.
    by_name : bool
        Whether the value is an object whose members are such models.
    """

    def __init__(self, module: str, name: str, by_name: bool = False) -> None:
        self._module = module
        self._name = name
        self._by_name = by_name

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        model: type[BaseModel] = getattr(import_module(self._module), self._name)
        inner = handler(_by_reference(model.__pydantic_core_schema__))
        return {"type": "object", "additionalProperties": inner} if self._by_name else inner


def _by_reference(schema: CoreSchema) -> CoreSchema:
    """Return the schema of a model as a reference to it; pydantic would write it in place."""
    if schema["type"] != "model":
        return schema  # definitions, which end in a reference
    return definitions_schema(definition_reference_schema(schema["ref"]), [schema])


def _without_nulls(value: Any) -> Any:
    """Return the JSON value without the members of objects that are null: an undefined figure is absent."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


_FIGURES = "app.api.figure_schemas"

_ATTACKS = "app.api.attack_schemas"

_RankedFigures = Annotated[dict[str, JsonValue], SchemaOf(_FIGURES, "RankedFigure", by_name=True)]


class PointGuarantee(ResponseModel):
    """Epsilon of one run by the permutation mechanism, as in `guarantee` of its report."""

    epsilon: float | SkipJsonSchema[None] = None
    """Exact epsilon, added up over fields that move independently. Absent if no finite epsilon exists. It
    holds for one release with parameters that do not depend on the source: a choice of parameters by figures
    is not covered."""
    rate: float
    """Probability of a row to be selected; with `target_epsilon`, the smallest one that meets it."""
    by_field: dict[str, float]
    """Swap field, or all locked fields joined by commas -> its epsilon, if finite."""


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
    """Whether another candidate changed values of all the fields that this candidate changed, and of more
    fields."""
    reversible: dict[str, int] = Field(default={})
    """Row counts `rows_in_groups_of_two` and `rows_in_groups_of_three`, if not zero. Anyone can restore
    these rows, exactly or nearly so."""
    guarantee: PointGuarantee | SkipJsonSchema[None] = None
    """Present with mechanism `permutation`: epsilon of this candidate alone. The best of several has none."""


class CandidatesDescription(ResponseModel):
    """Candidate runs from which the result was chosen, and the ranking figures."""

    rank_by: list[str]
    """Figures that distinguish the candidates."""
    chosen: int
    """Index of the candidate that was kept."""
    table: list[CandidateDescription]
    left_out: dict[str, str] = Field(default={})
    """Figure -> reason why it did not rank: it does not apply, or it is equal for all candidates."""
    protected: list[str] = Field(default=[])
    """Fields of which at least one candidate changed a value. A figure that is a mean over fields is the mean
    over these fields."""
    verdict: str = ""
    """Limits of the choice as text: no figure of risk ranked, or anyone can undo the kept candidate."""
    on_other_rows: dict[str, float] | SkipJsonSchema[None] = None
    """Figure that ranked and was measured on a sample of rows -> value of the kept candidate on other random
    rows. The value in the table is usually better, because the best of several values was chosen."""
    figures: _RankedFigures
    """Figure -> its measure's title, goal, range, formula and source, the sample of rows if any, and the
    fields over which it is a mean."""


class FigureInterval(ResponseModel):
    """95 % interval of a figure of a point."""

    low: float
    high: float


class FrontierPoint(ResponseModel):
    """One service with one set of parameters, and its comparison with the other points."""

    service: str
    parameters: dict[str, JsonValue]
    """Parameters as in the request; a run of the service accepts them unchanged."""
    risk: float | SkipJsonSchema[None] = None
    """Mean over the runs; absent if there is an error."""
    utility: float | SkipJsonSchema[None] = None
    risk_interval: FigureInterval | SkipJsonSchema[None] = None
    """Interval of the risk; absent if a single run has none. `figures.<name>.interval_covers` names the
    causes of error."""
    utility_interval: FigureInterval | SkipJsonSchema[None] = None
    """Interval of the utility."""
    figures: dict[str, float] | SkipJsonSchema[None] = None
    """Figure that was tried for an axis -> mean over the runs; absent if there is an error."""
    intervals: dict[str, FigureInterval] | SkipJsonSchema[None] = None
    """Figure -> its interval; a figure without an interval is absent."""
    ranges: dict[str, list[float]] | SkipJsonSchema[None] = None
    """Figure -> least and greatest value over the runs; absent with a single run."""
    protects: list[str] | SkipJsonSchema[None] = None
    """Fields of which every run changed a value; absent if there is an error."""
    protects_fewer: bool | SkipJsonSchema[None] = None
    """Whether another point protects all these fields and more. Such a point is never called better."""
    unprotected: list[str] | SkipJsonSchema[None] = None
    """Fields that another such point protects and this point does not."""
    reversible: dict[str, int] | SkipJsonSchema[None] = None
    """Row counts `rows_in_groups_of_two` and `rows_in_groups_of_three`, empty if both are zero. Anyone can
    restore these rows, exactly or nearly so. A point with such rows is never called better."""
    guarantee: PointGuarantee | SkipJsonSchema[None] = None
    """Present with mechanism `permutation`: epsilon of one run with these parameters."""
    within_uncertainty_of: list[int] | SkipJsonSchema[None] = None
    """Indices of the points that are as good on both axes and better on one, but by no more than the
    uncertainty. Without their intervals they would dominate this point."""
    dominated: bool
    """false: the point is on the frontier. true: another point that protects the same fields is as good on
    every ranking axis and better on one by more than the uncertainty. Also true if the point cannot be called
    better: it protects fewer fields than another point, is reversible, has an error, or no figure of risk
    ranks."""
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
    within_uncertainty: bool | SkipJsonSchema[None] = None
    """true: no two points differ in the figure by more than its uncertainty."""
    baseline: float | SkipJsonSchema[None] = None
    """Value of a figure of risk by chance alone, if known."""
    baseline_of: str | SkipJsonSchema[None] = None
    """Meaning of chance for this figure."""


class FrontierAxes(ResponseModel):
    """Both figures by which the points are compared."""

    risk: FrontierAxis
    utility: FrontierAxis


class AttackedFields(ResponseModel):
    """Fields of the attacks behind `inference_risk` and `linkability_risk`."""

    known: list[str]
    """Fields that the intruder knows: the given fields, or all fields that no combination moves."""
    sensitive: list[str]
    """Fields that the intruder wants to learn: the given fields, or at most 5 fields that a combination
    moves."""


class FiguresInNewRuns(ResponseModel):
    """Mean figures of a point in new runs, with their 95 % intervals."""

    risk: float | SkipJsonSchema[None] = None
    """Absent if the figure is undefined in one of the runs."""
    utility: float | SkipJsonSchema[None] = None
    """Absent if the figure is undefined in one of the runs."""
    risk_interval: FigureInterval | SkipJsonSchema[None] = None
    utility_interval: FigureInterval | SkipJsonSchema[None] = None


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
    passed_over: dict[str, str] = Field(default={})
    """Figure tried earlier -> reason why it is not an axis."""
    protected: list[str] = Field(default=[])
    """Fields of which at least one run changed a value. A figure that is a mean over fields is the mean over
    these fields."""
    runs: int
    """Number of runs of each combination."""
    points: list[FrontierPoint]
    best: list[int] = Field(default=[])
    """Indices in `points` of the points on the frontier, from 0."""
    matters: Literal["both", "risk", "utility"] = "both"
    """Axis that matters more, as in the request."""
    recommended: int | SkipJsonSchema[None] = None
    """Index of the point on the frontier that is best on the axis that matters; absent if both matter."""
    recommended_within_uncertainty: list[int] | SkipJsonSchema[None] = None
    """Indices of the other points on the frontier that differ from the recommended point on this axis by no
    more than the uncertainty; absent if there is none."""
    recommended_in_new_runs: FiguresInNewRuns | SkipJsonSchema[None] = None
    """Figures of the recommended point in as many new runs, with other seeds, and on other rows where a
    figure is taken on a sample. The figures in `points` favour this point, because it was chosen by them."""
    attacked: AttackedFields | SkipJsonSchema[None] = None
    """Known and sensitive fields of the attacks; absent if no figure is an attack."""
    verdict: str = ""
    """Result of the comparison as text. If no point is best: the reason and the remedy."""
    figures: _RankedFigures
    """Figure -> its measure's title, goal, range, formula and source, the sample of rows if any, the fields
    over which it is a mean, and the causes of error that its intervals cover."""


class WeakSeedDescription(ResponseModel):
    """Cost of finding a seed by brute force."""

    bits: int
    seeds_to_try: float
    seeds_a_second_and_core: float
    """Measured rate; see `docs/security.md`."""
    core_seconds: float
    """Seconds that one core needs to try all seeds."""


class SuccessCount(ResponseModel):
    """Number of attacks that succeeded, with Wilson's interval of their rate."""

    successes: int
    tries: int
    rate: float
    low: float
    high: float


class AttackRisk(ResponseModel):
    """Success beyond the success on control rows, (attack - control) / (1 - control), with its interval."""

    value: float
    low: float
    high: float


class AttackFigures(ResponseModel):
    """Successes of one attack, and the risk."""

    attack: SuccessCount
    """Attacks on the release."""
    baseline: SuccessCount | SkipJsonSchema[None] = None
    """The same by guessing, without the link between the fields of a row; absent if the attack has no
    baseline."""
    control: SuccessCount | SkipJsonSchema[None] = None
    """The same attack on control rows; absent without them."""
    risk: AttackRisk | SkipJsonSchema[None] = None
    """Absent without control rows, and if all attacks on them succeed."""
    note: str | SkipJsonSchema[None] = None
    """Limit of the attack that a reader must know."""


class AttackResult(AttackFigures):
    """Result of one attack."""

    details: Annotated[
        dict[str, JsonValue], BeforeValidator(_without_nulls), SchemaOf(_ATTACKS, "AttackDetails")
    ] = Field(default={})
    """Further figures."""


RiskState = Literal["low", "elevated", "high"]


class AttackState(ResponseModel):
    """State of one attack in the verdict; with several intruders, the worst of their states."""

    attack: str
    """Name of the attack."""
    field: str | SkipJsonSchema[None] = None
    """Secret field, for an attack on one field."""
    state: RiskState
    value: float
    """Success beyond the success on control rows; without control rows beyond the baseline; without both the
    success itself. 0 if every attack on control rows, or every guess, succeeds: only the interval is
    meaningful then."""
    low: float
    high: float
    """Interval of the risk."""
    against: Literal["control", "baseline", "nothing"]
    """Success with which the success of the attack is compared."""
    reason: str
    """Reason for the state, as a sentence."""


class AttackVerdict(ResponseModel):
    """Verdict on a release: the state of its worst attack."""

    state: RiskState
    reasons: list[str]
    """Sentences about the attacks that decide, the worst first, then about secrets that are not judged."""
    attacks: list[AttackState]
    """State of each attack, the worst first."""
    thresholds: Annotated[dict[str, JsonValue], SchemaOf(_ATTACKS, "RiskThresholds")]
    """Risks above which an attack is `elevated` and `high`, and other bounds for single attacks."""


class ParameterTry(ResponseModel):
    """One set of parameters, and the risk of its release of a sample."""

    change: dict[str, JsonValue]
    """Parameters that differ from the parameters of the release."""
    state: RiskState | SkipJsonSchema[None] = None
    """Absent if there is an error."""
    risk: float | SkipJsonSchema[None] = None
    """Risk of the worst attack, apart from singling out."""
    attack: str | SkipJsonSchema[None] = None
    """Name of that attack."""
    low: float | SkipJsonSchema[None] = None
    high: float | SkipJsonSchema[None] = None
    """Interval of that risk."""
    error: str | SkipJsonSchema[None] = None
    """Reason why the service could not run."""


class SecondTrial(ResponseModel):
    """The release's own and the best parameters, on another sample, with other control rows and seeds.

    A source of at most 3,000 rows is its own sample in both trials. The risks of this trial favour none of
    the parameters, while the lowest risk of many tries is partly low by chance.
    """

    now: ParameterTry
    best: ParameterTry


class ParameterAdvice(ResponseModel):
    """Parameters that lower the risk, found by trying them on a sample of the source."""

    sentence: str
    parameters: dict[str, JsonValue]
    """Parameters to change; empty if none that was tried lowers the risk in the second trial, too."""
    now: ParameterTry
    """The release's own parameters, on the sample."""
    best: ParameterTry | SkipJsonSchema[None] = None
    tries: list[ParameterTry]
    """All other tries."""
    rows: int
    """Rows of the sample on which the service ran."""
    control_rows: int
    confirmed: SecondTrial | SkipJsonSchema[None] = None
    """Trial of the best parameters that decides on the advice; absent if no try is better."""


class HeadlineFigure(ResponseModel):
    """Figure that decides the state of a headline, next to its value by chance."""

    figure: str
    """`true_values`, `reversible_rows`, or a measure or an attack."""
    value: float
    chance: float
    """Value by chance alone. 0 for an attack, whose value is beyond chance already."""
    field: str | SkipJsonSchema[None] = None
    used: list[str] | SkipJsonSchema[None] = None
    """Known fields by which rows are found, if these are not all known fields: an intruder finds more rows by
    these alone."""


class Headline(ResponseModel):
    """State of a release, and three sentences: on the risk, the utility and the next step."""

    state: Literal["low", "elevated", "high", "unknown"]
    """`unknown`: no figure of the report measures the risk against chance."""
    sentences: list[str]
    risk: float | SkipJsonSchema[None] = None
    """Risk beyond chance. Without attacks it is an upper bound: the smaller risk of two events, which are
    that an intruder finds a row and that the row shows a true value."""
    decided_by: list[HeadlineFigure] = Field(default=[])
    """Figures behind the state."""
    thresholds: dict[str, float] = Field(default={})
    """Risks above which the state is `elevated` and `high`."""


class FieldGuarantee(ResponseModel):
    """Epsilon of one random order: of one swap field, or of all locked fields."""

    fields: list[str] | SkipJsonSchema[None] = None
    """Fields that the order moves; epsilon is for the exchange of all their values at once. Absent from
    reports of older versions."""
    epsilon: float | SkipJsonSchema[None] = None
    """Absent if there is no finite epsilon."""
    paper_bound: float
    """Bound of the paper for an exchange of two people; never below epsilon."""
    largest_group: int
    """Rows, or with `household` or `unit_id` households or units, of the largest group, which determines
    epsilon."""


class GuaranteeDescription(ResponseModel):
    """Guarantee of the permutation mechanism: exact epsilon, its scope, and its invariants."""

    mechanism: Literal["permutation"]
    epsilon: float | SkipJsonSchema[None] = None
    """Exact epsilon for two people of one group whose values are exchanged, added up over fields that move
    independently. Absent if no finite epsilon exists: `holds_for` has the reason."""
    paper_bound: float
    """Sum of the paper's bounds."""
    rate: float
    """Probability that a row is selected."""
    target_epsilon: float | SkipJsonSchema[None] = None
    least_epsilon: float
    """Least epsilon that any rate reaches with these groups."""
    rate_of_least_epsilon: float
    by_field: dict[str, FieldGuarantee]
    """Swap field, or all locked fields joined by commas -> its epsilon."""
    unit: str | SkipJsonSchema[None] = None
    """Field that identifies a household or unit, whose rows move as one; absent: each row moves by itself."""
    member_order: str | SkipJsonSchema[None] = None
    """Order in which the rows of two households or units are exchanged; absent where there is none."""
    holds_for: str
    """Tables that epsilon compares, or the reason why there is no epsilon."""
    invariants: list[str]
    """Statistics of the source that the release has exactly."""
    does_not_mean: list[str]
    """Limits of the guarantee, in plain words."""


class Report(ResponseModel):
    """Report of a job: the figures that justify a release."""

    headline: Headline | SkipJsonSchema[None] = None
    """State and sentences; absent in reports of earlier versions."""
    summary: Annotated[dict[str, JsonValue], SchemaOf(_FIGURES, "SummaryFigures")]
    """Figures that every service reports: rows, groups, took_part, changed, suppressed, unswapped..."""
    measures: Annotated[dict[str, JsonValue], BeforeValidator(_without_nulls), SchemaOf(_FIGURES, "Measures")]
    """Measure -> value, goal, range, formula and source. The report `full` adds the measured `fields`, and
    the `sample` of rows if not all rows were measured."""
    provider: Annotated[
        dict[str, JsonValue], BeforeValidator(_without_nulls), SchemaOf(_FIGURES, "ServiceFigures")
    ]
    """Figures specific to the service. Swaps with `mechanism` set to `permutation` have `guarantee`, as in
    the plan of a run; swaps with `risk` have `risk_selection`, and `risk_deciles` with the rows selected and
    changed by decile of risk; swaps with `household` have `households`, those with `unit_id` `units`, those
    with `series` `series`, those with `household_check` `households_torn`, and those with `checks`
    `checks`."""
    limits: list[str]
    """Threats that the service does not protect against."""
    left_out: dict[str, str] = Field(default={})
    """Measure -> reason why it does not apply; field -> reason why it is not measured; attack and secret,
    joined by a dot -> reason why it is not judged. Only in the report `full`."""
    unjudged: list[str] = Field(default=[])
    """Published fields that could not be compared with the source, if another tool made the release. The
    headline is then never `low`, unless the request names `sensitive_fields`."""
    weak_seed: WeakSeedDescription | SkipJsonSchema[None] = None
    """Present if the caller gave a seed of less than 64 bits."""
    candidates: CandidatesDescription | SkipJsonSchema[None] = None
    """Present if the result was chosen from several runs: all of them."""
    frontier: FrontierDescription | SkipJsonSchema[None] = None
    """Present for `POST /v1/frontier`: all points."""
    attacks: (
        Annotated[dict[str, AttackResult | dict[str, AttackResult]], SchemaOf(_ATTACKS, "Attacks")]
        | SkipJsonSchema[None]
    ) = None
    """Attack -> its result, or an object of results. Present for `POST /v1/attacks`, and for a run with
    `attacks`."""
    control: Literal["given", "sister", "none"] | SkipJsonSchema[None] = None
    """Origin of the control rows: given in the request; withheld from a sister release of the same service,
    which was attacked and thrown away; or none."""
    sampled: dict[str, int] | SkipJsonSchema[None] = None
    """`attacks`: number of attacks of each kind, if the table is too large for the requested number;
    `training_rows`: rows of the release on which a model was trained, if these are not all rows."""
    verdict: AttackVerdict | SkipJsonSchema[None] = None
    """Verdict on the attacks."""
    advice: ParameterAdvice | SkipJsonSchema[None] = None
    """Present if the request has `advice`."""
    pictures: Annotated[dict[str, JsonValue], SchemaOf(_FIGURES, "Pictures")] = Field(default={})
    """Counts and matrices to draw, without cell counts that would disclose. Only in the report `full`."""
