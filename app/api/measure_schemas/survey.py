"""Response models of measures with survey weights, and of the regression without."""

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.api.measure_schemas.shared import BeforeAndAfter, MeasureFigure
from app.api.report_schemas import ResponseModel


class PopulationUniquesOfTable(ResponseModel):
    """Estimates for one table. An estimate that cannot be computed is absent."""

    population: int | SkipJsonSchema[None] = None
    """Persons of the population: the sum of the weights."""
    unique: float | SkipJsonSchema[None] = None
    """Share of rows that are unique in the table."""
    benedetti_franconi: float | SkipJsonSchema[None] = None
    """Share of rows unique in the population, by Benedetti and Franconi."""
    pitman: float | SkipJsonSchema[None] = None
    """Share of rows unique in the population, by Pitman's formula."""
    zayatz: float | SkipJsonSchema[None] = None
    """Share of rows unique in the population, by Zayatz."""
    reidentified: float | SkipJsonSchema[None] = None
    """Expected share of rows that are re-identified."""
    correct_match: float | SkipJsonSchema[None] = None
    """Probability that a unique match is correct."""
    household_risk: float | SkipJsonSchema[None] = None
    """Expected share of households of which at least one member is re-identified; absent without a field of
    households."""


class PopulationUniquesValue(ResponseModel):
    """Uniques in the population, by the source and by the release."""

    before: PopulationUniquesOfTable
    after: PopulationUniquesOfTable


class PopulationUniques(MeasureFigure):
    """Expected share of the rows that are unique in the population."""

    value: PopulationUniquesValue


class Estimates(ResponseModel):
    """Estimate from the source and from the release."""

    before: float | SkipJsonSchema[None] = None
    after: float | SkipJsonSchema[None] = None
    after_source_weights: float | SkipJsonSchema[None] = None
    """Estimate from the release with the source's weights; absent if the weights are the same."""


class EstimatesWithErrors(Estimates):
    """Estimate from the source and from the release, with standard errors."""

    change: float
    before_error: float | SkipJsonSchema[None] = None
    after_error: float | SkipJsonSchema[None] = None
    after_source_weights_error: float | SkipJsonSchema[None] = None


class WeightedQuartiles(ResponseModel):
    """Weighted quartiles of the source and of the release."""

    before: list[float]
    after: list[float]
    after_source_weights: list[float] | SkipJsonSchema[None] = None


class WeightedMarginal(ResponseModel):
    """Weighted distribution of one field before and after."""

    distance: float
    by: str
    """Kind of distance: `Kolmogorov-Smirnov` or `total variation`."""
    mean: Estimates | SkipJsonSchema[None] = None
    """Present for numbers with enough rows, as are the following figures."""
    standard_error: Estimates | SkipJsonSchema[None] = None
    variance: Estimates | SkipJsonSchema[None] = None
    quartiles: WeightedQuartiles | SkipJsonSchema[None] = None


class CategoryShare(EstimatesWithErrors):
    """Weighted share of one category."""

    field: str
    category: str


class WeightedMarginalDistances(ResponseModel):
    """Distances of the fields' weighted distributions."""

    mean_distance: float
    by_field: dict[str, WeightedMarginal]
    shares: list[CategoryShare] = Field(default=[])


class WeightedMarginals(MeasureFigure):
    """Change of the fields' weighted distributions."""

    value: WeightedMarginalDistances


class WeightedPair(EstimatesWithErrors):
    """Weighted correlation of two fields."""

    field: str
    with_: str = Field(alias="with")
    """Other field."""


class WeightedCorrelationChanges(ResponseModel):
    """Mean and standard deviation of the absolute changes, and all pairs."""

    mean: float
    sd: float
    pairs: list[WeightedPair]


class WeightedCorrelations(MeasureFigure):
    """Change of the weighted correlations between pairs of fields."""

    value: WeightedCorrelationChanges


class RegressionCoefficient(BeforeAndAfter):
    """Coefficient of a regression, with its standard errors."""

    term: str
    change: float
    before_error: float
    after_error: float
    change_in_errors: float | SkipJsonSchema[None] = None
    """Change in standard errors of the source."""
    overlap: float | SkipJsonSchema[None] = None
    """Length that both 95 % intervals have in common, as the mean of its shares of their lengths."""


class RegressionChanges(ResponseModel):
    """Changes of a regression."""

    change_in_errors: float
    """Mean absolute change in standard errors of the source."""
    overlap: float
    """Mean overlap of the 95 % intervals."""
    coefficients: list[RegressionCoefficient]
    not_defined: list[str] = Field(default=[])
    """Terms without a coefficient, because they are linear combinations of other terms."""


class Regression(MeasureFigure):
    """Change of the coefficients of the regression of the target."""

    value: RegressionChanges


class WeightedCoefficient(EstimatesWithErrors):
    """Coefficient of a weighted regression."""

    term: str
    change_in_errors: float | SkipJsonSchema[None] = None
    """Change in standard errors of the source."""
    overlap: float | SkipJsonSchema[None] = None
    """Length that both 95 % intervals have in common, as the mean of its shares of their lengths."""


class WeightedRegressionChanges(ResponseModel):
    """Changes of a weighted regression."""

    change_in_errors: float
    """Mean absolute change in standard errors of the source."""
    overlap: float
    """Mean overlap of the 95 % intervals."""
    r_squared: Estimates
    coefficients: list[WeightedCoefficient]
    not_defined: list[str] = Field(default=[])
    """Terms without a coefficient, because they are linear combinations of other terms."""


class WeightedRegression(MeasureFigure):
    """Change of the weighted regression of the target."""

    value: WeightedRegressionChanges


class DomainTotal(EstimatesWithErrors):
    """Weighted total of a field in one domain."""

    domain_field: str
    domain: str
    field: str
    change_percent: float | SkipJsonSchema[None] = None
    change_in_errors: float | SkipJsonSchema[None] = None
    """Change in standard errors of the source."""


class DomainTotalChanges(ResponseModel):
    """Changes of the totals."""

    percent: float | SkipJsonSchema[None] = None
    """Mean absolute change in percent."""
    change_in_errors: float | SkipJsonSchema[None] = None
    """Mean absolute change in standard errors of the source."""
    totals: list[DomainTotal]
    withheld: int | SkipJsonSchema[None] = None
    """Number of totals that are not shown because they have few rows."""


class DomainTotals(MeasureFigure):
    """Weighted totals by domain."""

    value: DomainTotalChanges
