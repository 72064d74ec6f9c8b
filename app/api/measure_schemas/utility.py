"""Response models of measures of utility."""

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.api.measure_schemas.shared import BeforeAndAfter, ChangeFromBefore, Interval, MeasureFigure
from app.api.report_schemas import ResponseModel


class Quartiles(ResponseModel):
    """Quartiles of the source and of the release."""

    before: list[float]
    after: list[float]


class MarginalOfField(ResponseModel):
    """Distribution of one field before and after."""

    distance: float
    by: str
    """Kind of distance: `Kolmogorov-Smirnov` or `total variation`."""
    identical: bool
    """Whether the release has the very same values, in any order."""
    mean: BeforeAndAfter | SkipJsonSchema[None] = None
    """Present for numbers, as are `sd` and `quartiles`."""
    sd: BeforeAndAfter | SkipJsonSchema[None] = None
    quartiles: Quartiles | SkipJsonSchema[None] = None


class MarginalDistances(ResponseModel):
    """Distances of the fields' distributions."""

    identical: float
    """Share of fields with the very same values."""
    mean_distance: float
    by_field: dict[str, MarginalOfField]


class Marginals(MeasureFigure):
    """Change of the fields' distributions."""

    value: MarginalDistances


class MeanAndDeviation(ResponseModel):
    """Mean and standard deviation."""

    mean: float
    sd: float


class CorrelationChanges(MeanAndDeviation):
    """Changes of correlations."""

    ranks: MeanAndDeviation | SkipJsonSchema[None] = None
    """Changes of Spearman's rank correlations, which no extreme value decides. Absent from older reports."""


class CorrelationChange(MeasureFigure):
    """Change of the correlations between pairs of fields."""

    value: CorrelationChanges


class AssociationChanges(ResponseModel):
    """Mean changes of association; a change is absent without pairs of fields of its kind."""

    cramers_v: float | SkipJsonSchema[None] = None
    """Pairs of categories: change of Cramer's V."""
    correlation_ratio: float | SkipJsonSchema[None] = None
    """Pairs of a category and a number: change of the correlation ratio."""


class AssociationChange(MeasureFigure):
    """Change of association of categories with one another and with numbers."""

    value: AssociationChanges


class VarianceShare(BeforeAndAfter):
    """Share of the variance of the standardised fields that a principal component has."""

    component: int
    """Number of the component, from 1 on."""


class ComponentChanges(ResponseModel):
    """Mean changes of loadings."""

    pc1: float
    """First component."""
    pc2: float
    """Second component."""
    variance_shares: list[VarianceShare] = Field(default=[])
    """Shares of all components, in descending order; empty in older reports."""


class ComponentChange(MeasureFigure):
    """Change of the first two principal components."""

    value: ComponentChanges


class CoefficientChange(MeasureFigure):
    """Change of the regression coefficients of the target."""

    value: float


class ExplainedVariance(MeasureFigure):
    """R squared of the target on the other fields."""

    value: ChangeFromBefore


class TotalCorrelation(MeasureFigure):
    """Total correlation of all fields, in nats."""

    value: ChangeFromBefore


class LeftOutCells(ResponseModel):
    """Shares of cells that are not counted."""

    zero: float
    missing: float


class Distortion(MeasureFigure):
    """Mean relative change of the numbers."""

    value: float
    left_out_share: LeftOutCells


class ClusteringError(MeasureFigure):
    """Share of rows that change their cluster."""

    value: float
    interval: Interval
    clusters: int
    draws: int
    """Number of draws of the starts."""


class QueryErrors(ResponseModel):
    """Relative errors of random queries."""

    bounded: float | SkipJsonSchema[None] = None
    """Mean of the errors, larger ones counted as 1; absent in reports of earlier versions."""
    mean: float
    q25: float
    median: float
    q75: float


class QueryErrorIntervals(ResponseModel):
    """Intervals of the quartiles and of `bounded`.

    The mean has no interval, because single queries decide it.
    """

    bounded: Interval | SkipJsonSchema[None] = None
    q25: Interval
    median: Interval
    q75: Interval


class RangeAverages(MeasureFigure):
    """Relative error of averages over random ranges."""

    value: QueryErrors
    interval: QueryErrorIntervals
    queries: int | SkipJsonSchema[None] = None
    """Number of queries that have an answer other than 0; absent in reports of earlier versions."""


class AggregateQueryErrors(QueryErrors):
    """Relative errors of random instances of three queries, of all and of each."""

    by_field: dict[str, QueryErrors] = Field(default={})
    """Averaged field -> errors of its query. Empty in reports of earlier versions, which gave the present
    `range_averages` under this name."""


class QueryError(RangeAverages):
    """Relative error of averages under two thresholds and a set of categories."""

    value: AggregateQueryErrors


class PredictionScores(ResponseModel):
    """Accuracy (categories) or R squared (numbers) of the target."""

    source: float
    """Trained on the source."""
    destination: float
    """Trained on the release."""


class PredictionIntervals(ResponseModel):
    """Intervals of the scores."""

    source: Interval
    destination: Interval


class Prediction(MeasureFigure):
    """Prediction of the target by forests trained on the source and on the release."""

    value: PredictionScores
    interval: PredictionIntervals
    draws: int
    """Number of random splits."""


class RelationsKept(MeasureFigure):
    """Share of the localities that hold in the release."""

    value: float
    interval: Interval | SkipJsonSchema[None] = None
    """Present if random triples were measured."""
    triples: int | SkipJsonSchema[None] = None
    """Number of random triples of rows."""
    chance: float | SkipJsonSchema[None] = None
    """Value if each field's released values are dealt to the rows at random; present with `triples`."""
