"""Response models of the attacks of a report, of their details, and of the thresholds of a verdict.

They are schemas alone, as those of `app.api.measure_schemas` are.
"""

from pydantic.json_schema import SkipJsonSchema

from app.api.report_schemas import AttackFigures, AttackResult, AttackRisk, ResponseModel, SuccessCount


class AttackRun(ResponseModel):
    """One of several intruders of an attack."""

    attack: SuccessCount
    control: SuccessCount | SkipJsonSchema[None] = None
    baseline: SuccessCount | SkipJsonSchema[None] = None
    risk: AttackRisk | SkipJsonSchema[None] = None
    fields: list[str] | SkipJsonSchema[None] = None
    """Fields that the intruder used, if these are not all known fields."""


class ComposedAttack(SuccessCount):
    """One attack on several releases together."""

    baseline: float
    """Rate by guessing."""
    curve: dict[str, float]
    """Number of releases -> rate."""
    tolerance: float | SkipJsonSchema[None] = None
    r_squared: dict[str, float] | SkipJsonSchema[None] = None
    """Number of releases -> share of the variance that the guesses explain."""


class SegmentsSolved(ResponseModel):
    """Segments by the way in which linear programming guessed them."""

    solved: int
    interpolated: int
    copied: int


class AttackDetails(ResponseModel):
    """Further figures of an attack: each attack has some of them."""

    control_rows: int | SkipJsonSchema[None] = None
    isolated_in_control: int | SkipJsonSchema[None] = None
    """Predicates that match exactly one control row."""
    linked: list[list[str]] | SkipJsonSchema[None] = None
    """Known fields of each of the two linked tables, as the strongest intruder used them."""
    neighbours: int | SkipJsonSchema[None] = None
    intruder: str | SkipJsonSchema[None] = None
    """Strongest of the intruders, by the name of the member that describes it."""
    used: list[str] | SkipJsonSchema[None] = None
    """Fields that the strongest intruder used, if these are only the unchanged fields, which at most 5 % of
    the released rows have changed."""
    nearest: AttackRun | SkipJsonSchema[None] = None
    """Intruder who takes the value of the nearest released row."""
    model: AttackRun | SkipJsonSchema[None] = None
    """Intruder who trains a model on the release."""
    nearest_unchanged: AttackRun | SkipJsonSchema[None] = None
    """The same as `nearest`, but only by the known fields that at most 5 % of the released rows have changed.
    Absent if no known field or every known field is unchanged in this sense."""
    model_unchanged: AttackRun | SkipJsonSchema[None] = None
    """The same as `model`, but only by the unchanged known fields."""
    all_fields: AttackRun | SkipJsonSchema[None] = None
    """Linkability and membership: intruder who uses all fields, if another intruder uses only the unchanged
    fields."""
    unchanged_fields: AttackRun | SkipJsonSchema[None] = None
    """Linkability and membership: intruder who uses only the unchanged fields."""
    area_under_curve: float | SkipJsonSchema[None] = None
    fields: list[str] | SkipJsonSchema[None] = None
    known_rows: int | SkipJsonSchema[None] = None
    """Rows that the intruder knows."""
    rate: float | SkipJsonSchema[None] = None
    rates: list[float] | SkipJsonSchema[None] = None
    mechanism: str | SkipJsonSchema[None] = None
    selection_by_risk: bool | SkipJsonSchema[None] = None
    """Whether the intruder computes from the release which rows the run selected by risk."""
    rows_not_exchanged: int | SkipJsonSchema[None] = None
    without_known_rows: int | SkipJsonSchema[None] = None
    """Successes of an intruder who knows no rows."""
    certain: int | SkipJsonSchema[None] = None
    """Rows of whose value the intruder is certain; without those that show none, which may be suppressed."""
    certain_and_right: int | SkipJsonSchema[None] = None
    mean_belief: float | SkipJsonSchema[None] = None
    exact: int | SkipJsonSchema[None] = None
    """Number of values found exactly."""
    moved: list[list[str]] | SkipJsonSchema[None] = None
    """Known fields that were moved together."""
    stayed: list[str] | SkipJsonSchema[None] = None
    """Known fields that kept their values."""
    median_candidates: float | SkipJsonSchema[None] = None
    without_the_rule: int | SkipJsonSchema[None] = None
    """Successes of an intruder who does not know the rule."""
    rows: int | SkipJsonSchema[None] = None
    tolerance: float | SkipJsonSchema[None] = None
    tolerance_in_deviations: float | SkipJsonSchema[None] = None
    r_squared: float | SkipJsonSchema[None] = None
    """Share of the variance that the guesses explain."""
    r_squared_by_field: dict[str, float] | SkipJsonSchema[None] = None
    fitted_rows: int | SkipJsonSchema[None] = None
    tried_rows: int | SkipJsonSchema[None] = None
    quantiles: int | SkipJsonSchema[None] = None
    known: list[str] | SkipJsonSchema[None] = None
    k: int | SkipJsonSchema[None] = None
    q: float | SkipJsonSchema[None] = None
    mean_receivers: float | SkipJsonSchema[None] = None
    """Mean number of rows that a row may have given its value to."""
    by: str | SkipJsonSchema[None] = None
    """Strongest attack on several releases."""
    releases: int | SkipJsonSchema[None] = None
    one_release: SuccessCount | SkipJsonSchema[None] = None
    gain_over_one_release: AttackRisk | SkipJsonSchema[None] = None
    curve: dict[str, float] | SkipJsonSchema[None] = None
    """Number of releases -> rate of the strongest attack."""
    attacks: dict[str, ComposedAttack] | SkipJsonSchema[None] = None
    left_out: dict[str, str] | SkipJsonSchema[None] = None
    """Attack -> reason why it does not apply."""


class RecoveryDetails(ResponseModel):
    """Further figures of an attack that recovers values of LOCALITY."""

    exact: bool
    """Whether a value counts as recovered only if it is exact: whole numbers, decimals and dates."""
    within_tolerance: int
    tolerance: float
    mean_error: float
    mean_error_in_deviations: float | SkipJsonSchema[None] = None
    known_rows: int | SkipJsonSchema[None] = None
    """Rows that the intruder knows."""
    segments: SegmentsSolved | SkipJsonSchema[None] = None


class RecoveryResult(AttackFigures):
    """Result of an attack that recovers values of LOCALITY."""

    details: RecoveryDetails
    """Further figures."""


_OneResult = AttackResult | SkipJsonSchema[None]
_BySecret = dict[str, AttackResult] | SkipJsonSchema[None]
_Recovery = dict[str, RecoveryResult] | SkipJsonSchema[None]


class Attacks(ResponseModel):
    """Results of the attacks that apply to the release; an object has one for each secret field or case."""

    # One member for each attack, in place of one union of both types of results, which OpenAPI Generator's
    # clients cannot read.

    singling_out_univariate: _OneResult = None
    singling_out_multivariate: _OneResult = None
    linkability: _OneResult = None
    inference: _BySecret = None
    membership: _OneResult = None
    reidentification: _BySecret = None
    """DSWAP, CDSWAP, DDSWAP, MEWS and MEDS. Fields that are swapped together are joined by commas."""
    rule_linkage: _OneResult = None
    """The same services."""
    donor_inference: _BySecret = None
    """RWN."""
    naive_guess: _OneResult = None
    """PABIDOT, as are the next three."""
    ica: _OneResult = None
    known_io: _BySecret = None
    enumeration: _OneResult = None
    rounding: _Recovery = None
    """LOCALITY."""
    linear_programming: _Recovery = None
    """LOCALITY."""
    area_linkage: _OneResult = None
    """RSWAP."""
    composition: _BySecret = None
    """Several releases of one source."""


class RiskBounds(ResponseModel):
    """Risks above which an attack is elevated and high."""

    elevated: float
    high: float


class RiskThresholds(RiskBounds):
    """Risks above which attacks are elevated and high."""

    attacks: dict[str, RiskBounds]
    """Attack -> its own bounds, if they differ from the others."""
