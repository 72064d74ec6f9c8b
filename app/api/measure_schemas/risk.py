"""Response models of measures of risk."""

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from app.api.measure_schemas.shared import BeforeAndAfter, FigureOfPersons, Interval, MeasureFigure
from app.api.report_schemas import ResponseModel


class ChangedRows(ResponseModel):
    """Changes over the swap fields of a row."""

    fields: list[str]
    """Fields that the run was requested to change, or fields that differ."""
    mean: float
    """Mean share of these fields that differ in a row."""
    none: float | SkipJsonSchema[None] = None
    """Share of rows in which none of these fields differs; absent for a table without rows, and if one of the
    fields cannot be compared."""


class ChangedShare(MeasureFigure):
    """Share of the rows whose value differs from the source's."""

    value: dict[str, float]
    """Field -> share."""
    per_row: ChangedRows | SkipJsonSchema[None] = None
    chance: dict[str, float] | SkipJsonSchema[None] = None
    """Field -> share if values are dealt to the rows at random; absent from older reports."""


class UniqueCombinations(FigureOfPersons):
    """Share of the rows whose combination of key fields no other row has."""

    value: BeforeAndAfter


class MeanK(FigureOfPersons):
    """Mean number of rows that share a row's key fields."""

    value: BeforeAndAfter


class KAnonymityOfTable(ResponseModel):
    """Sizes of the classes of rows that share their key fields, in one table."""

    k: int
    """Rows of the smallest class."""
    small: float
    """Share of rows in classes below the disclosure threshold."""
    by_size: dict[str, float]
    """Number of rows in a class, or its range such as `3-4` -> share of rows in such classes."""


class KAnonymityValue(ResponseModel):
    """k-anonymity of the source and of the release."""

    before: KAnonymityOfTable
    after: KAnonymityOfTable


class KAnonymity(FigureOfPersons):
    """Sizes of the classes of rows that share their key fields."""

    value: KAnonymityValue


class LDiversityOfTable(ResponseModel):
    """Diversity of a sensitive field in the classes of one table."""

    distinct: float
    """Least number of different values in a class."""
    entropy: float
    """Least exponential of the entropy in a class."""
    homogeneous: float
    """Share of rows in classes with a single value."""


class LDiversityValue(ResponseModel):
    """l-diversity of the source and of the release."""

    before: LDiversityOfTable
    after: LDiversityOfTable


class LDiversityByField(LDiversityValue):
    """l-diversity of the worst sensitive field, and of each."""

    by_field: dict[str, LDiversityValue] = Field(default={})
    """Sensitive field -> its own figures."""


class LDiversity(FigureOfPersons):
    """Diversity of sensitive values among rows with equal key fields."""

    value: LDiversityByField


class TClosenessOfTable(ResponseModel):
    """Distances between the distributions of a sensitive field in the classes and in the whole table."""

    t: float
    """Greatest distance of a class."""
    mean: float
    """Mean over the rows."""


class TClosenessValue(ResponseModel):
    """t-closeness of the source and of the release."""

    before: TClosenessOfTable
    after: TClosenessOfTable


class TClosenessByField(TClosenessValue):
    """t-closeness of the worst sensitive field, and of each."""

    by_field: dict[str, TClosenessValue] = Field(default={})
    """Sensitive field -> its own figures."""


class TCloseness(FigureOfPersons):
    """Distance between the distributions of a sensitive field in a class and in the table."""

    value: TClosenessByField


class SpecialUniquesOfTable(ResponseModel):
    """Special uniques of one table."""

    special: float
    """Share of rows that are special uniques."""
    mean: float
    """Mean score of the rows."""
    max: float
    """Largest score."""
    by_size: dict[str, float]
    """Number of key fields in the smallest unique set -> share of rows."""
    contribution: dict[str, float]
    """Key field -> its share of the scores."""


class SpecialUniquesValue(ResponseModel):
    """Special uniques of the source and of the release."""

    before: SpecialUniquesOfTable
    after: SpecialUniquesOfTable


class SpecialUniques(FigureOfPersons):
    """Rows that are unique on few key fields (SUDA)."""

    value: SpecialUniquesValue


class OwnRowClosest(MeasureFigure):
    """Share of the rows whose own released row is the closest one."""

    value: float
    chance: float | SkipJsonSchema[None] = None
    """Value if the released rows are dealt to the source's rows at random. Absent from older reports."""
    interval: Interval | SkipJsonSchema[None] = None
    """Present if a sample of rows was measured."""


class DistancesOnRanks(ResponseModel):
    """Distances from each source row to the closest released row, on the ranks of the numbers."""

    mean: float
    p05: float
    """Percentile 5."""


class DistancesToRelease(ResponseModel):
    """Distances from each source row to the closest released row."""

    mean: float
    p05: float
    """Percentile 5."""
    at_zero: float
    """Share of rows at distance 0."""
    raw_mean: float | SkipJsonSchema[None] = None
    """Mean in the fields' own units; absent without complete rows of numbers."""
    ranks: DistancesOnRanks | SkipJsonSchema[None] = None
    """Distances on ranks in place of numbers; absent without numbers, and from older reports."""


class DistanceOnRanksIntervals(ResponseModel):
    """Intervals of the distances on ranks."""

    mean: Interval
    p05: Interval


class DistanceIntervals(ResponseModel):
    """Intervals of the distances."""

    mean: Interval | SkipJsonSchema[None] = None
    p05: Interval | SkipJsonSchema[None] = None
    at_zero: Interval | SkipJsonSchema[None] = None
    raw_mean: Interval | SkipJsonSchema[None] = None
    ranks: DistanceOnRanksIntervals | SkipJsonSchema[None] = None


class DrawnDistanceIntervals(DistanceIntervals):
    """Intervals of the distances, and of the distances by chance."""

    chance: DistanceIntervals | SkipJsonSchema[None] = None
    """Intervals of `chance`. Absent from older reports. The others are present if a sample of rows was
    measured."""


class DistanceToClosest(MeasureFigure):
    """Distance from each source row to the closest released row."""

    value: DistancesToRelease
    chance: DistancesToRelease | SkipJsonSchema[None] = None
    """Value if each field's released values are dealt to the rows at random. Absent from older reports."""
    interval: DrawnDistanceIntervals | SkipJsonSchema[None] = None


class IntervalShare(ResponseModel):
    """Share of rows whose source value is within an interval about the released one."""

    share: float
    """Share of rows within the interval in every field."""
    by_field: dict[str, float]
    """Field -> share of rows."""


class IntervalShares(IntervalShare):
    """Shares by intervals of one standard deviation."""

    narrow: IntervalShare
    """Shares by intervals of a twentieth of a standard deviation."""
    robust: IntervalShare | SkipJsonSchema[None] = None
    """Shares by intervals of a twentieth of a robust standard deviation of the source, from its quartiles.
    Absent from older reports."""


class NearByChance(ResponseModel):
    """Shares of rows within the interval if values are dealt to the rows at random."""

    share: float | SkipJsonSchema[None] = None
    """Share of rows within the interval in every field. Absent from older reports."""
    by_field: dict[str, float]
    """Field -> share of rows."""


class IntervalsByChance(NearByChance):
    """Shares of rows within the intervals if values are dealt to the rows at random."""

    narrow: NearByChance
    robust: NearByChance | SkipJsonSchema[None] = None


class IntervalBySd(MeasureFigure):
    """Interval disclosure by standard deviation."""

    value: IntervalShares
    chance: IntervalsByChance | SkipJsonSchema[None] = None
    """Absent from older reports."""


class RankIntervalShares(IntervalShare):
    """Shares by intervals of a tenth of the ranks on either side."""

    narrow: IntervalShare
    """Shares by intervals of a hundredth of the ranks on either side."""


class IntervalByRanks(MeasureFigure):
    """Interval disclosure by ranks."""

    value: RankIntervalShares
    chance: IntervalsByChance


class RobustIntervalShares(ResponseModel):
    """Shares of rows within an interval by robust distance."""

    own: float
    """Share with each table scaled by its own covariance."""
    source: float
    """Share with both tables scaled by the source's covariance."""
    chance: float
    """Share by chance alone."""
    support: float
    """Share of rows that the covariance rests on."""


class RobustIntervals(ResponseModel):
    """Intervals of both shares."""

    own: Interval
    source: Interval


class IntervalByRobustDistance(MeasureFigure):
    """Interval disclosure by robust Mahalanobis distance."""

    value: RobustIntervalShares
    interval: RobustIntervals


class LinkageRate(ResponseModel):
    """Success of an intruder who links rows by known fields."""

    rate: float
    """Share of rows that are re-identified."""
    chance: float
    """Share by chance alone."""


class LinkageInterval(ResponseModel):
    """Interval of the rate."""

    rate: Interval


class AllKnownFields(ResponseModel):
    """Success of an intruder who uses all known fields, some of which the release has changed."""

    fields: list[str]
    """All known fields that were compared."""
    rate: float
    """Share of rows that are re-identified."""


class RecordLinkage(MeasureFigure):
    """Share of rows that the known fields alone re-identify."""

    value: LinkageRate
    unit: str | SkipJsonSchema[None] = None
    """Present with `unit_field`, or if the run has `unit_id`: any row of the same unit then counts as the
    person's row."""
    by_ranks: bool | SkipJsonSchema[None] = None
    """true: more rows are found by the ranks of numbers in the source than by the numbers, since extreme
    values stretch the range of a field."""
    all_known: AllKnownFields | SkipJsonSchema[None] = None
    """Present if an intruder finds more rows by `fields` than by all known fields; `fields` leaves out the
    known fields that the release has changed most."""
    interval: LinkageInterval | SkipJsonSchema[None] = None
    """Present if a sample of rows was measured."""


class LeadingRow(BeforeAndAfter):
    """Greatest influence of a row on the regression."""

    same_row: bool | SkipJsonSchema[None] = None
    """Whether the same row has the greatest influence in both tables; absent if the rows are not aligned."""


class OutlierExposure(MeasureFigure):
    """Influence of the most exposed row on the regression of the target."""

    value: LeadingRow


class InversionBits(MeasureFigure):
    """Bits of a search that undoes the run."""

    value: float


class Phi(MeasureFigure):
    """Minimum privacy guarantee (phi) of a rotation."""

    value: float


class EnumerationAttack(MeasureFigure):
    """R squared of the values that an attack recovers by trying every transform."""

    value: float
    interval: Interval | SkipJsonSchema[None] = None
    """Present if a sample of rows was measured."""


class BinPrivacy(ResponseModel):
    """Probability that an intruder undoes the exchange within bins."""

    p: float | SkipJsonSchema[None] = None
    """P of an intruder who does not know the bins; absent if the bins have too many values to compute it, and
    if no grid (MEWS) leaves every row a partner, or the rows cannot form two bins (MEDS)."""
    minimal_depth: int
    """Rows of the smallest bin."""
    chance: float | SkipJsonSchema[None] = None
    """Probability in the smallest bin for an intruder who knows the bins; absent if it holds a single row,
    which is exchanged with none."""
    p_eq1: float | SkipJsonSchema[None] = None
    """P by equation 1."""


class PPrivacy(MeasureFigure):
    """P-privacy of an exchange within bins."""

    value: BinPrivacy


class EntropyChanges(ResponseModel):
    """Increase of entropy in bits."""

    mean: float
    by_field: dict[str, float]
    """Field -> increase in bits."""


class EntropyIncrease(MeasureFigure):
    """Increase of the fields' entropy."""

    value: EntropyChanges
