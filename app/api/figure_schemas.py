"""Response models of the figures of a run: summary, figures of the service, charts.

They are schemas alone, as those of `app.api.measure_schemas` are.
"""

from typing import Literal

from pydantic import Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from app.api.measure_schemas import risk, survey, utility
from app.api.report_schemas import GuaranteeDescription, ResponseModel


class GroupSizes(ResponseModel):
    """Rows of the smallest, the median and the largest group; all 0 without groups.

    Households or units, if a swap has `household` or `unit_id`.
    """

    smallest: int
    median: float
    largest: int


class SummaryFigures(ResponseModel):
    """Figures that do not depend on the service. Figures of runs are absent from reports of other jobs."""

    rows: int
    """Rows of the source."""
    groups: int | SkipJsonSchema[None] = None
    group_size: GroupSizes | SkipJsonSchema[None] = None
    took_part: int | SkipJsonSchema[None] = None
    """Rows that took part in an exchange of at least one swap field."""
    took_part_by_field: dict[str, int] | SkipJsonSchema[None] = None
    changed: dict[str, int] | SkipJsonSchema[None] = None
    """Swap field -> rows whose value differs from the source's, before suppression."""
    suppressed: int | SkipJsonSchema[None] = None
    """Rows in which a value was nulled or replaced, and rows that were dropped."""
    unswapped: int | SkipJsonSchema[None] = None
    """Rows in which at least one swap field kept its place."""
    unswapped_reasons: dict[str, int] | SkipJsonSchema[None] = None
    """Reason (`alone`, `group_too_small`, `null`, `rate`, `check`) -> rows."""
    achieved_rate: float | SkipJsonSchema[None] = None
    """Mean over the swap fields of the share of rows that took part."""
    destination_rows: int | SkipJsonSchema[None] = None
    """Rows of the given release (measures and attacks)."""
    control_rows: int | SkipJsonSchema[None] = None
    """Given control rows (attacks)."""
    aligned: bool | SkipJsonSchema[None] = None
    """Whether row i of the release was row i of the source (measures and attacks)."""
    points: int | SkipJsonSchema[None] = None
    """Combinations of service and parameters (frontier)."""
    not_dominated: int | SkipJsonSchema[None] = None
    """Combinations on the frontier."""
    failed: int | SkipJsonSchema[None] = None
    """Combinations that could not run (frontier)."""


class GroupBits(ResponseModel):
    """Bits of a search for the exchange within single groups."""

    smallest: float | SkipJsonSchema[None] = None
    p05: float | SkipJsonSchema[None] = None
    """Percentile 5 over the groups."""
    rows_in_groups_of_two: int
    rows_in_groups_of_three: int


class SelectionByRisk(ResponseModel):
    """Rows, or households, selected by their risk."""

    required: int
    """Selected because they are at risk."""
    drawn: int
    """Selected at random."""
    partners: int
    """Rows that were not selected, and exchanged with a selected row."""
    required_unswapped: int
    """At risk, and could not be swapped."""
    no_epsilon: str
    """Reason why no epsilon holds."""
    unique_before: int | SkipJsonSchema[None] = None
    """Unique combinations of key fields in the source; absent if a field gives the risks."""
    unique_after: int | SkipJsonSchema[None] = None
    """Unique combinations in the release."""


class RiskDecile(ResponseModel):
    """Rows, or households, of one tenth by risk. RSWAP reports `required` and `swapped` households."""

    from_risk: float
    to_risk: float
    rows: int | SkipJsonSchema[None] = None
    households: int | SkipJsonSchema[None] = None
    required: int
    """Selected because they are at risk."""
    selected: int | SkipJsonSchema[None] = None
    took_part: int | SkipJsonSchema[None] = None
    changed: int | SkipJsonSchema[None] = None
    swapped: int | SkipJsonSchema[None] = None
    unique_before: int | SkipJsonSchema[None] = None
    unique_after: int | SkipJsonSchema[None] = None


class HouseholdFigures(ResponseModel):
    """Households that were swapped as a whole."""

    households: int
    took_part_by_field: dict[str, int]
    """Swap field -> households that took part."""
    without_partner: int
    rows_without_partner: int


class UnitFigures(ResponseModel):
    """Units that were swapped as a whole."""

    units: int
    took_part_by_field: dict[str, int]
    """Swap field -> units that took part."""
    without_partner: int
    rows_without_partner: int


class SeriesFigures(ResponseModel):
    """Units of a table of a series."""

    name: str
    wave: int
    """Number of the wave that the run added; if it has no new pairs, number of the wave that the next run
    adds."""
    known: int
    """Units that have a partner from an earlier table."""
    kept_partner: int
    """Known units that got their partner's values. A unit that a rate has left in place is its own
    partner."""
    partner_missing: int
    """Known units whose partner is not in the table."""
    partner_size_differs: int
    """Known units whose partner has another number of rows."""
    partner_class_differs: int
    """Known units whose partner is in another class (CDSWAP)."""
    arrivals: int
    """Units that have no partner from an earlier table."""
    new_pairs: int
    """Arrivals that have a partner now, for this and all later tables."""


class TornField(ResponseModel):
    """Households whose rows a run has separated in one field."""

    mixed: int
    """Households with values of several households."""
    torn: int
    """Households whose rows had one value before and have several now."""


class TornHouseholds(ResponseModel):
    """Households that a swap of single rows has torn."""

    households: int
    with_several_rows: int
    by_field: dict[str, TornField]


class MeanAndLargest(ResponseModel):
    """Mean and largest of a distance; absent if nothing moved."""

    mean: float | SkipJsonSchema[None] = None
    largest: float | SkipJsonSchema[None] = None


class DistanceInUnits(MeanAndLargest):
    """Distance of exchanged values in a unit."""

    unit: str
    """Unit: `field` (the unit of the control field) or a unit of time."""


class SwappingDistance(ResponseModel):
    """Distance in the control field between rows that exchanged values."""

    ranks: MeanAndLargest
    units: DistanceInUnits | SkipJsonSchema[None] = None
    """Absent if the control field has no distances."""


class BinFigures(ResponseModel):
    """Bins of MEWS and MEDS."""

    partition_degree: int | SkipJsonSchema[None] = None
    """Number of bins."""
    minimal_depth: int | SkipJsonSchema[None] = None
    """Rows of the smallest bin in which values are exchanged."""
    singletons: int | SkipJsonSchema[None] = None
    """Bins of one row."""
    merged: int | SkipJsonSchema[None] = None
    """Singletons that joined another bin (MEWS)."""
    cells: dict[str, int] | SkipJsonSchema[None] = None
    """Field -> cells of its axis (MEWS)."""
    widths: dict[str, float] | SkipJsonSchema[None] = None
    """Field -> width of a cell (MEWS)."""
    k: int | SkipJsonSchema[None] = None
    """Rows of a bin (MEDS)."""
    method: str | SkipJsonSchema[None] = None
    """Method by which bins were formed (MEDS)."""
    within_bin_variance: float | SkipJsonSchema[None] = None
    """Share of the variance of the swap fields that is within bins, 0 to 1 (MEDS)."""
    method_in_parts: str | SkipJsonSchema[None] = None
    """Method by which bins were formed in each part, if the rows were cut into parts (MEDS)."""
    parts: int | SkipJsonSchema[None] = None
    """Number of parts into which the rows were cut (MEDS)."""


class NeighbourhoodSize(ResponseModel):
    """Rows of a neighbourhood."""

    smallest: int
    median: float
    mean: float
    largest: int
    rows_counted: int
    """Number of neighbourhoods that were counted."""


class Mixing(ResponseModel):
    """Mixing of the random walks of LOCALITY."""

    sweeps: float
    autocorrelation_after_a_sweep: float
    independent_draws: float


class LocalityCounts(ResponseModel):
    """Segments and relations of LOCALITY, of one field or of all."""

    segments: int | SkipJsonSchema[None] = None
    relations_found: int | SkipJsonSchema[None] = None
    relations_chosen: int | SkipJsonSchema[None] = None
    rows_after_pruning: int | SkipJsonSchema[None] = None
    """Inequalities that remain after redundant ones were removed."""
    violations: int | SkipJsonSchema[None] = None
    segments_repaired: int | SkipJsonSchema[None] = None
    segments_collapsed: int | SkipJsonSchema[None] = None
    segments_not_rounded: int | SkipJsonSchema[None] = None
    segments_without_localities: int | SkipJsonSchema[None] = None
    relations_kept: float | SkipJsonSchema[None] = None
    """Share of the found localities that hold in the release."""
    distortion: float | SkipJsonSchema[None] = None
    """Mean relative change of the values; absent for dates and without other values than zero."""


class RelationFigures(ResponseModel):
    """One of the request's relations between the values of a segment."""

    segments: int
    violations: int


class LevelFigures(ResponseModel):
    """One level of RSWAP's hierarchy of areas."""

    areas: int
    required_households: int
    unmatched_households: int
    swapped_households: int | SkipJsonSchema[None] = None
    """Households whose swap was made at this level."""
    obliged_swaps: int | SkipJsonSchema[None] = None
    """Swaps made at this level for households at risk."""
    added_swaps: int | SkipJsonSchema[None] = None
    """Swaps made at this level to meet the rate."""
    moved_households: int
    """Households in another area of this level."""
    moved_persons: int


class AreaPopulations(ResponseModel):
    """Change of the areas' households and persons by RSWAP."""

    areas_with_other_households: int
    areas_with_other_persons: int
    largest_change_of_persons: int
    largest_share_of_persons: float
    total_change_of_persons: int


class TableChange(ResponseModel):
    """Change of a table of areas by values of a field by RSWAP."""

    cells: int
    changed_cells: int
    largest_change: int
    total_change: int


class BrokenRows(ResponseModel):
    """Rows that break one check."""

    before: int
    """Rows of the source that break it."""
    after: int
    """Rows of the release that break it."""
    newly_broken: int
    """Rows that break it in the release and met it in the source."""


class CheckFigures(ResponseModel):
    """Checks of rows, and the effects of a repair."""

    by_check: dict[str, BrokenRows]
    """Expression -> rows that break it."""
    rows_newly_broken: int
    """Rows that break a check in the release and met it in the source."""
    rows_broken_by_exchange: int | SkipJsonSchema[None] = None
    """Rows that break a check because of the first draw. Present with a repair, like the following
    figures."""
    rounds: int | SkipJsonSchema[None] = None
    """Number of times that exchanges were drawn again."""
    rows_drawn_again: int | SkipJsonSchema[None] = None
    rows_restored: int | SkipJsonSchema[None] = None
    """Rows that keep their own values, because no tried exchange meets the checks."""


class ServiceFigures(LocalityCounts, BinFigures):
    """Figures of the service that ran: each service has some of them."""

    matching_bits: float | SkipJsonSchema[None] = None
    """Bits of a search for the whole exchange."""
    group_bits: GroupBits | SkipJsonSchema[None] = None
    reversible: bool | SkipJsonSchema[None] = None
    """Whether anyone can undo the exchange of some rows."""
    guarantee: GuaranteeDescription | SkipJsonSchema[None] = None
    """Present with mechanism `permutation`."""
    epsilon: dict[str, float] | SkipJsonSchema[None] = None
    """Swap field, or all locked fields joined by commas -> its epsilon, as in `guarantee`. Absent where no
    finite epsilon holds for the run."""
    epsilon_total: float | SkipJsonSchema[None] = None
    """Epsilon of the run: the sum of `epsilon`."""
    epsilon_bound: float | SkipJsonSchema[None] = None
    """Sum of the paper's bounds, at least `epsilon_total`."""
    invariants: list[str] | SkipJsonSchema[None] = None
    """Statistics of the source that the release has exactly. Present with mechanism `permutation`."""
    risk_selection: SelectionByRisk | SkipJsonSchema[None] = None
    """Present with `risk`."""
    risk_deciles: dict[str, RiskDecile] | SkipJsonSchema[None] = None
    """Decile, 1 to 10 -> its rows or households; equal risks share a decile. Present with `risk`, and for
    RSWAP."""
    households: int | HouseholdFigures | SkipJsonSchema[None] = None
    """RSWAP: number of households. Others: figures, present with `household`."""
    units: UnitFigures | SkipJsonSchema[None] = None
    """Present with `unit_id`."""
    series: SeriesFigures | SkipJsonSchema[None] = None
    """Present with `series`."""
    households_torn: TornHouseholds | SkipJsonSchema[None] = None
    """Present with `household_check`."""
    checks: CheckFigures | SkipJsonSchema[None] = None
    """Present with `checks`."""
    classes: int | SkipJsonSchema[None] = None
    """Classes of the control field (CDSWAP)."""
    singleton_classes: int | SkipJsonSchema[None] = None
    """Classes of one row (CDSWAP)."""
    blocks: int | SkipJsonSchema[None] = None
    """Blocks of neighbouring rows (DDSWAP)."""
    blocks_by_field: dict[str, int] | SkipJsonSchema[None] = None
    """Swap field with blocks of its own -> their number (DDSWAP)."""
    swapping_distance: SwappingDistance | SkipJsonSchema[None] = None
    """DDSWAP."""
    others: dict[str, BinFigures] | SkipJsonSchema[None] = None
    """Remaining field that was swapped on its own -> its bins (MEWS and MEDS)."""
    neighbourhood_size: NeighbourhoodSize | SkipJsonSchema[None] = None
    """RWN."""
    effective_k: float | SkipJsonSchema[None] = None
    """Rows among which a donor is effectively one of the nearest (RWN)."""
    unchanged_rows: int | SkipJsonSchema[None] = None
    """Rows without a changed value (RWN)."""
    unchanged_share: float | SkipJsonSchema[None] = None
    rows_below_k: int | SkipJsonSchema[None] = None
    """Rows with fewer than k candidates (RWN)."""
    rows_without_pair: int | SkipJsonSchema[None] = None
    """Rows without a candidate (RWN)."""
    phi: float | SkipJsonSchema[None] = None
    """Minimum privacy guarantee of the rotation (PABIDOT)."""
    selection: str | SkipJsonSchema[None] = None
    """Rule by which the transform was selected (PABIDOT)."""
    transforms: int | SkipJsonSchema[None] = None
    """Number of possible transforms (PABIDOT)."""
    outside_range: dict[str, float] | SkipJsonSchema[None] = None
    """Field -> share of rows outside the source's range (PABIDOT)."""
    distortion_zeros_left_out: int | SkipJsonSchema[None] = None
    """Values of zero, which have no relative change (LOCALITY)."""
    mixing: Mixing | SkipJsonSchema[None] = None
    """Absent if no walk had three sweeps (LOCALITY)."""
    by_field: dict[str, LocalityCounts] | SkipJsonSchema[None] = None
    """LOCALITY."""
    segments_unchanged: int | SkipJsonSchema[None] = None
    """LOCALITY with relations."""
    relations: dict[str, RelationFigures] | SkipJsonSchema[None] = None
    """Number of a relation in the request -> its segments (LOCALITY)."""
    swapped_households: int | SkipJsonSchema[None] = None
    """RSWAP, as are all following figures."""
    swapped_share: float | SkipJsonSchema[None] = None
    wanted_swaps: int | SkipJsonSchema[None] = None
    """Swaps by the rate."""
    obliged_swaps: int | SkipJsonSchema[None] = None
    """Swaps of households at risk."""
    added_swaps: int | SkipJsonSchema[None] = None
    """Swaps to meet the rate."""
    overshoot: int | SkipJsonSchema[None] = None
    """Swaps beyond the rate."""
    unmatched_households: int | SkipJsonSchema[None] = None
    """Households at risk without a similar household elsewhere."""
    swaps_by_profile: dict[str, int] | SkipJsonSchema[None] = None
    """Match profile -> swaps."""
    unmatched_by_profile: dict[str, int] | SkipJsonSchema[None] = None
    """Match profile -> households at risk that found no donor by it; a later profile may have given one."""
    levels: dict[str, LevelFigures] | SkipJsonSchema[None] = None
    """Field of the hierarchy -> its figures."""
    area_populations: dict[str, AreaPopulations] | SkipJsonSchema[None] = None
    similar_by_area: dict[str, TableChange] | SkipJsonSchema[None] = None


class RankedFigure(ResponseModel):
    """Figure by which runs are compared, and the texts of its measure."""

    key: str
    """Name of the measure or of the attack."""
    words: str
    """Title of the figure."""
    title: str
    concerns: Literal["risk", "utility"]
    goal: Literal["low", "high", "near"]
    """Better values."""
    range: str
    formula: str
    source: str
    """Publication that the formula is from."""
    sample: int | SkipJsonSchema[None] = None
    """Number of rows in the random sample; absent if all rows were measured."""
    fields: list[str] = Field(default=[])
    """Fields over which the figure is a mean."""
    interval_covers: str | SkipJsonSchema[None] = None
    """Causes of error that the intervals of points cover, such as `rows and seeds`: the choice of rows like
    these (`rows`), the draws of the measure (`draws`), the seeds of the runs. Absent without intervals."""


class CellCounts(ResponseModel):
    """Numbers of the source and of the release. A number that would disclose a small count is null."""

    source: JsonValue = None
    destination: JsonValue = None


class FieldPicture(ResponseModel):
    """Distribution of a field before and after. Counts that would disclose are null."""

    field: str
    kind: Literal["number", "category"]
    source: list[JsonValue]
    """Rows of each cell, or null."""
    destination: list[JsonValue]
    """Rows of each cell, or null."""
    missing: CellCounts
    edges: list[float] | SkipJsonSchema[None] = None
    """Edges of the cells, of numbers."""
    edge_labels: list[str] | SkipJsonSchema[None] = None
    """Edges as dates and times."""
    open_ends: list[bool] | SkipJsonSchema[None] = None
    """Whether numbers are below the first edge, and above the last."""
    labels: list[str] | SkipJsonSchema[None] = None
    """Names of the cells, of categories."""
    categories: CellCounts | SkipJsonSchema[None] = None
    """Number of categories."""
    suppressed_left_out: bool | SkipJsonSchema[None] = None
    """true: values that few rows have lost, and the values that took their place, are left out."""


class CorrelationPicture(ResponseModel):
    """Correlations of the fields. An undefined correlation is null."""

    fields: list[str]
    source: list[list[JsonValue]]
    destination: list[list[JsonValue]]
    difference: list[list[JsonValue]]
    source_ranks: list[list[JsonValue]] | SkipJsonSchema[None] = None
    """Spearman's rank correlations of the source. Absent from weighted ones and from older reports."""


class ChangedPicture(ResponseModel):
    """Changed shares of the fields."""

    fields: list[str]
    share: list[float]


class DistancePicture(ResponseModel):
    """Quantiles of the distances to the closest released row."""

    share: list[float]
    distance: list[float]
    sample: int


class KeyAndValue(ResponseModel):
    """Measure and its value."""

    key: str
    value: float


class RiskUtilityPoint(ResponseModel):
    """Risk and utility of the release."""

    risk: KeyAndValue
    utility: KeyAndValue


class Measures(ResponseModel):
    """Measures of a release. A measure that does not apply is absent; `left_out` has the reason."""

    changed_share: risk.ChangedShare | SkipJsonSchema[None] = None
    unique_combinations: risk.UniqueCombinations | SkipJsonSchema[None] = None
    mean_k: risk.MeanK | SkipJsonSchema[None] = None
    k_anonymity: risk.KAnonymity | SkipJsonSchema[None] = None
    l_diversity: risk.LDiversity | SkipJsonSchema[None] = None
    t_closeness: risk.TCloseness | SkipJsonSchema[None] = None
    suda: risk.SpecialUniques | SkipJsonSchema[None] = None
    population_uniques: survey.PopulationUniques | SkipJsonSchema[None] = None
    pscr: risk.OwnRowClosest | SkipJsonSchema[None] = None
    dcr: risk.DistanceToClosest | SkipJsonSchema[None] = None
    interval_sd: risk.IntervalBySd | SkipJsonSchema[None] = None
    interval_ranks: risk.IntervalByRanks | SkipJsonSchema[None] = None
    interval_rmd: risk.IntervalByRobustDistance | SkipJsonSchema[None] = None
    record_linkage: risk.RecordLinkage | SkipJsonSchema[None] = None
    outlier_exposure: risk.OutlierExposure | SkipJsonSchema[None] = None
    inversion_bits: risk.InversionBits | SkipJsonSchema[None] = None
    phi: risk.Phi | SkipJsonSchema[None] = None
    enumeration_attack: risk.EnumerationAttack | SkipJsonSchema[None] = None
    p_privacy: risk.PPrivacy | SkipJsonSchema[None] = None
    entropy_increase: risk.EntropyIncrease | SkipJsonSchema[None] = None
    marginals: utility.Marginals | SkipJsonSchema[None] = None
    delta_rho: utility.CorrelationChange | SkipJsonSchema[None] = None
    association: utility.AssociationChange | SkipJsonSchema[None] = None
    il2: utility.ComponentChange | SkipJsonSchema[None] = None
    il3: utility.CoefficientChange | SkipJsonSchema[None] = None
    regression: survey.Regression | SkipJsonSchema[None] = None
    r_squared: utility.ExplainedVariance | SkipJsonSchema[None] = None
    total_correlation: utility.TotalCorrelation | SkipJsonSchema[None] = None
    distortion: utility.Distortion | SkipJsonSchema[None] = None
    clustering_error: utility.ClusteringError | SkipJsonSchema[None] = None
    query_error: utility.QueryError | SkipJsonSchema[None] = None
    range_averages: utility.RangeAverages | SkipJsonSchema[None] = None
    prediction: utility.Prediction | SkipJsonSchema[None] = None
    relations_kept: utility.RelationsKept | SkipJsonSchema[None] = None
    weighted_marginals: survey.WeightedMarginals | SkipJsonSchema[None] = None
    weighted_correlations: survey.WeightedCorrelations | SkipJsonSchema[None] = None
    weighted_regression: survey.WeightedRegression | SkipJsonSchema[None] = None
    domain_totals: survey.DomainTotals | SkipJsonSchema[None] = None


class Pictures(ResponseModel):
    """Counts and matrices to draw."""

    threshold: int | SkipJsonSchema[None] = None
    """Disclosure threshold: smallest count that is shown."""
    fields: list[FieldPicture] = Field(default=[])
    fields_left_out: int | SkipJsonSchema[None] = None
    """Number of fields that are not drawn."""
    correlations: CorrelationPicture | SkipJsonSchema[None] = None
    changed: ChangedPicture | SkipJsonSchema[None] = None
    dcr: DistancePicture | SkipJsonSchema[None] = None
    risk_utility: RiskUtilityPoint | SkipJsonSchema[None] = None
    survey_correlations: CorrelationPicture | SkipJsonSchema[None] = None
    """Weighted correlations."""
    survey_totals: list[survey.DomainTotal] | SkipJsonSchema[None] = None
