"""Properties of interest that the user gives: parameters, constraints, and the check on the source.

A property is sum c_i d_i <= lambda, over order statistics of every segment of a field or over named records
of one segment. The quantile q:p of N records is value number ceil(p N) in ascending order (the inverse of the
empirical distribution function). The median is the mean of the two middle values if N is even.

References
----------
Xue, Karras, Raissi and Pung 2011, Utility-driven anonymization in data publishing, CIKM: definition 1.
Hyndman and Fan 1996, doi:10.1080/00031305.1996.10473566: definitions 1 and 2 of sample quantiles.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, FiniteFloat, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from providers.arrays import Float64Array, Int64Array
from providers.errors import ParameterError, did_you_mean, reference_token
from providers.localities.property_constraints import PropertyConstraints, source_slacks
from providers.localities.segments import SegmentedField, segment_starts
from providers.params import StrictModel

MOST_RELATIONS = 100
"""Maximum number of relations of a call."""

_MOST_NAMED_RECORDS = 1500
"""Maximum number of records that a relation names: the size of the largest segment, rounded up."""

_QUANTILE = re.compile(r"q:(0(?:\.[0-9]{1,15})?|1(?:\.0{1,15})?)")

_STATISTICS = ("min", "max", "median", "mean")


class Relation(StrictModel):
    """A property of interest: a sum of coefficients times values is at most a number.

    Every number counts as the float64 nearest to it, and a date as days since 1970. The sum is computed
    exactly and rounded once to float64 before it is compared.
    """

    coefficients: dict[str, FiniteFloat] = Field(default={}, examples=[{"max": 1, "min": -1}])
    """Statistic -> coefficient, for every segment of the field: `min`, `max`, `median`, `mean`, and quantiles
    such as `q:0.9`, which is value number ceil(0.9 N) of N records in ascending order, duplicates included.
    The median of an even number of records is the mean of the middle two. Give either these or `rows`."""
    rows: dict[str, FiniteFloat] = Field(default={}, examples=[{"17": 1, "42": -1}])
    """Record number -> coefficient of its value. The first record is "0"; all must be in one segment."""
    at_most: FiniteFloat
    """Upper limit of the sum, in units of the field or in days. The source's sum may equal it."""
    field: str | SkipJsonSchema[None] = None
    """Name of the field. Default: the only field that is redrawn."""

    @model_validator(mode="after")
    def _check_only_one(self) -> "Relation":
        if bool(self.coefficients) == bool(self.rows):
            raise PydanticCustomError(
                "relation_of_what",
                "give either order statistics in 'coefficients' or records in 'rows', not both",
            )
        return self


Relations = Annotated[tuple[Relation, ...], Field(max_length=MOST_RELATIONS)]


@dataclass(frozen=True, slots=True)
class Property:
    """A checked relation of one field."""

    number: int
    """Index among the user's relations."""
    statistics: tuple[tuple[str, float], ...]
    """Order statistics and their coefficients; empty if records are named."""
    records: tuple[tuple[int, float], ...]
    """Named records, as row numbers of the table, and their coefficients."""
    at_most: float
    """Upper limit of the sum."""


# ------------------------------------------------------------------------------------ against a schema


def check_relations(relations: Sequence[Relation], fields: Sequence[str], ties: str) -> None:
    """Raise ParameterError if a relation is incomplete, out of range or contradicts another parameter."""
    for number, relation in enumerate(relations):
        pointer = f"/parameters/relations/{number}"
        if ties == "equal":
            raise ParameterError(
                "relations cannot be combined with ties 'equal'; use 'one_sided' or 'free'",
                "/parameters/ties",
            )
        if relation.field is None and len(fields) > 1:
            raise ParameterError("name the relation's field, since several are redrawn", f"{pointer}/field")
        if relation.field is not None and relation.field not in fields:
            suggestion = did_you_mean(relation.field, fields)
            raise ParameterError(
                f"relation of '{relation.field}', which is not redrawn{suggestion}", f"{pointer}/field"
            )
        if not _is_of_size(relation.at_most, 1e-200, 1e300):
            raise ParameterError(
                "at_most must be 0, or from 1e-200 to 1e300 in absolute value", f"{pointer}/at_most"
            )
        for name in relation.coefficients:
            if name not in _STATISTICS and not _QUANTILE.fullmatch(name):
                raise ParameterError(
                    f"unknown order statistic '{name}'; known are 'min', 'max', 'median', 'mean' and "
                    "quantiles from 'q:0' to 'q:1', such as 'q:0.9'",
                    f"{pointer}/coefficients/{reference_token(name)}",
                )
        for name in relation.rows:
            if not re.fullmatch("0|[1-9][0-9]{0,15}", name):
                raise ParameterError(
                    f"'{name}' is not a record number; the first record is \"0\"",
                    f"{pointer}/rows/{reference_token(name)}",
                )
        if len(relation.rows) > _MOST_NAMED_RECORDS:
            raise ParameterError(
                f"a relation names at most {_MOST_NAMED_RECORDS} records; no segment has more",
                f"{pointer}/rows",
            )
        for kind, coefficients in (("coefficients", relation.coefficients), ("rows", relation.rows)):
            for name, coefficient in coefficients.items():
                if coefficient == 0 or not _is_of_size(coefficient, 1e-9, 1e9):
                    raise ParameterError(
                        "a coefficient must be from 1e-9 to 1e9 in absolute value; leave out a "
                        "coefficient of 0",
                        f"{pointer}/{kind}/{reference_token(name)}",
                    )
    _refuse_equations(relations, fields)


def _is_of_size(value: float, least: float, most: float) -> bool:
    return value == 0 or least <= abs(value) <= most


def _refuse_equations(relations: Sequence[Relation], fields: Sequence[str]) -> None:
    """Raise ParameterError if two relations together are an equality."""
    seen: dict[Any, int] = {}
    for number, relation in enumerate(relations):
        field = relation.field or fields[0]
        coefficients = {**relation.coefficients, **relation.rows}
        names = sorted(coefficients)
        scale = abs(Fraction(coefficients[names[0]]))
        scaled = tuple(Fraction(coefficients[name]) / scale for name in names)
        bound = Fraction(relation.at_most) / scale
        opposite = (field, tuple(names), tuple(-coefficient for coefficient in scaled), -bound)
        if opposite in seen:
            raise ParameterError(
                f"relations {seen[opposite]} and {number} together require an equality, which float64 "
                "numbers cannot keep exactly; leave a gap between the two limits",
                f"/parameters/relations/{number}/at_most",
            )
        seen.setdefault((field, tuple(names), scaled, bound), number)


def check_records(relations: Sequence[Relation], size: int, rows: int) -> None:
    """Raise ParameterError if a relation names missing records, or records of several segments."""
    starts = segment_starts(rows, size)
    for number, relation in enumerate(relations):
        segments: dict[int, str] = {}
        for name in relation.rows:
            pointer = f"/parameters/relations/{number}/rows/{name}"
            if int(name) >= rows:
                raise ParameterError(
                    f"there is no record {name}: the table has {rows}, and the first is record 0", pointer
                )
            segments.setdefault(int(np.searchsorted(starts, int(name), side="right")), name)
            if len(segments) > 1:
                one, other = segments.values()
                raise ParameterError(
                    f"records {one} and {other} are in different segments of {size} records; a relation "
                    "applies within one segment",
                    pointer,
                )


def properties_by_field(relations: Sequence[Relation], fields: Sequence[str]) -> dict[str, list[Property]]:
    """Return the relations, which have been checked, by field."""
    by_field: dict[str, list[Property]] = {}
    for number, relation in enumerate(relations):
        by_field.setdefault(relation.field or fields[0], []).append(
            Property(
                number,
                tuple(relation.coefficients.items()),
                tuple((int(name), coefficient) for name, coefficient in relation.rows.items()),
                relation.at_most,
            )
        )
    return by_field


_BYTES_OF_TERM = 160
"""Memory of a term in the constraints and in the arrays that sort them."""


def property_bytes(properties: Sequence[Property], size: int) -> int:
    """Return the most memory in bytes that a field's properties take per record of the table."""
    terms = 0.0
    for one in properties:
        # a mean has a term per record; the other statistics have up to two per segment
        mean = any(name == "mean" for name, _ in one.statistics)
        terms += mean + (2 * len(one.statistics) + 2) / size
    return math.ceil(_BYTES_OF_TERM * terms)


# ------------------------------------------------------------------------------------ constraints


class _Terms(NamedTuple):
    """Terms of one relation in all segments to which it applies; each array has the shape (terms,)."""

    segment: Int64Array
    """Index of the segment."""
    variable: Int64Array
    """Variable, within its segment."""
    coefficient: Float64Array
    """Coefficient c of the term m c x."""
    multiple: Int64Array
    """Whole number m of the term m c x."""


def property_constraints(
    source: SegmentedField, properties: Sequence[Property], first_record: int, records: int
) -> PropertyConstraints:
    """Return the constraints of a field's properties, by segment and then by relation.

    Parameters
    ----------
    source : SegmentedField
        Segments of consecutive records of the table, nulls included.
    properties : sequence of Property
        Properties of interest of the field.
    first_record : int
        Row number of the first of these records.
    records : int
        Number of these records.

    Raises
    ------
    ParameterError
        A named record holds no value.
    """
    terms, relation, segments, bounds, multiples = [], [], [], [], []
    for one in properties:
        if one.records:
            found = list(_terms_of_records(source, one, first_record, records))
        else:
            found = list(_terms_of_statistics(source, one))
        if not found or not len(source):
            continue
        joined = _Terms(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))
        terms.append(joined)
        relation.append(np.full(len(joined.segment), one.number))
        applies_to = np.unique(joined.segment)
        segments.append(applies_to)
        numbers = np.full(len(applies_to), float(one.number))
        bounds.append(np.stack([numbers, np.full(len(applies_to), one.at_most)]))
        multiples.append(_multiple_of(source, one)[applies_to])
    if not terms:
        return _no_constraints(len(source))
    all_terms = _Terms(*(np.concatenate(arrays) for arrays in zip(*terms, strict=True)))
    order = np.lexsort((np.concatenate(relation), all_terms.segment))
    segment_of_constraint = np.concatenate(segments)
    numbers, limits = np.concatenate(bounds, axis=1)
    constraints = np.lexsort((numbers, segment_of_constraint))
    keys = all_terms.segment[order] * MOST_RELATIONS + np.concatenate(relation)[order]
    starts = np.searchsorted(segment_of_constraint[constraints], np.arange(len(source) + 1))
    return PropertyConstraints(
        starts=starts.astype(np.int64),
        term_starts=np.append(np.flatnonzero(np.append(True, keys[1:] != keys[:-1])), len(keys)),
        variable=all_terms.variable[order],
        coefficient=all_terms.coefficient[order],
        multiple=all_terms.multiple[order],
        bound=limits[constraints],
        bound_multiple=np.concatenate(multiples)[constraints],
        relation=numbers[constraints].astype(np.int64),
        base=np.full(len(source), source.numbers.least if source.keeps_type else 0, np.int64),
    )


def _no_constraints(segments: int) -> PropertyConstraints:
    """Return the empty constraints of this many segments without properties."""
    none = np.zeros(0, np.int64)
    return PropertyConstraints(
        np.zeros(segments + 1, np.int64), np.zeros(1, np.int64), none, np.zeros(0), none,
        np.zeros(0), none, none, np.zeros(segments, np.int64),
    )  # fmt: skip


def _multiple_of(source: SegmentedField, one: Property) -> Int64Array:
    """Return the m of the property in each segment: its number of records if a mean is in it, else 1."""
    records = np.diff(source.record_starts)
    return records if any(name == "mean" for name, _ in one.statistics) else np.ones(len(source), np.int64)


def _terms_of_statistics(source: SegmentedField, one: Property) -> Iterator[_Terms]:
    """Yield the terms of each order statistic in every segment."""
    records, every_segment = np.diff(source.record_starts), np.arange(len(source))
    multiple = _multiple_of(source, one)

    def terms_at(rank: Int64Array, coefficient: float) -> _Terms:
        variable = source.record_variables[source.record_starts[:-1] + rank]
        return _Terms(every_segment, variable, np.full(len(source), coefficient), multiple)

    for name, coefficient in one.statistics:
        if name == "mean":
            yield _terms_of_mean(source, coefficient)
        elif name == "median":
            yield terms_at((records - 1) // 2, 0.5 * coefficient)
            yield terms_at(records // 2, 0.5 * coefficient)
        else:
            share = Fraction({"min": "0", "max": "1"}.get(name, name.removeprefix("q:")))
            rank = -(-share.numerator * records // share.denominator)  # ceil(p N)
            yield terms_at(np.maximum(rank, 1) - 1, coefficient)


def _terms_of_mean(source: SegmentedField, coefficient: float) -> _Terms:
    """Return a term for every variable of every segment, times its number of records."""
    starts = np.concatenate([[0], np.cumsum(source.variables)])
    total = int(starts[-1])
    variable_of_record = np.repeat(starts[:-1], np.diff(source.record_starts)) + source.record_variables
    records = np.bincount(variable_of_record, minlength=total)
    segment = np.repeat(np.arange(len(source)), source.variables)
    return _Terms(segment, np.arange(total) - starts[segment], np.full(total, coefficient), records)


def _terms_of_records(
    source: SegmentedField, one: Property, first_record: int, records: int
) -> Iterator[_Terms]:
    """Yield the terms of named records.

    Of duplicates that are spread, the term takes the copy that binds, whatever their order.
    """
    named = np.array([record for record, _ in one.records], np.int64) - first_record
    if not 0 <= named[0] < records:
        return
    indices = np.searchsorted(source.numbers.rows, named)
    present = np.isin(named, source.numbers.rows)
    for (record, _), has_value in zip(one.records, present, strict=True):
        if not has_value:
            raise ParameterError(
                f"record {record} holds no value in field '{source.name}'; name other records",
                f"/parameters/relations/{one.number}/rows/{record}",
            )
    inverse = np.empty(len(source.order), np.int64)
    inverse[source.order] = np.arange(len(source.order))
    for index, (_, coefficient) in zip(indices, one.records, strict=True):
        sorted_index = inverse[index]
        segment = int(np.searchsorted(source.record_starts, sorted_index, side="right")) - 1
        its_values = slice(source.value_starts[segment], source.value_starts[segment + 1])
        value = int(np.searchsorted(source.last[its_values], source.record_variables[sorted_index]))
        variable = (source.last if coefficient > 0 else source.first)[its_values][value]
        yield _Terms(np.array([segment]), np.array([variable]), np.array([coefficient]), np.ones(1, np.int64))


# ------------------------------------------------------------------------------------ on the source


@dataclass(slots=True)
class Breach:
    """Segments in which a relation does not hold on the source."""

    segments: int = 0
    """Number of such segments."""
    excess: float = 0.0
    """Greatest excess over the limit, in units of the field."""
    segment: int = 0
    """Number of the segment with the greatest excess."""

    def add(self, other: "Breach") -> None:
        """Add the breach of later rows of the table."""
        if other.excess > self.excess:
            self.excess, self.segment = other.excess, other.segment
        self.segments += other.segments


def breaches(source: SegmentedField, properties: PropertyConstraints) -> dict[int, Breach]:
    """Return the relations that do not hold exactly for the source's values, by number."""
    slacks = np.zeros(len(properties.bound))
    source_slacks(
        source.value_starts, source.values, source.first, source.last, source.variables, properties, slacks
    )
    segment = np.repeat(np.arange(len(source)), np.diff(properties.starts))
    for constraint in np.flatnonzero(np.isnan(slacks)).tolist():
        slacks[constraint] = _slack_of_tiny_values(source, properties, int(segment[constraint]), constraint)
    found: dict[int, Breach] = {}
    for constraint in np.flatnonzero(slacks < 0).tolist():
        breach = Breach(1, -float(slacks[constraint]), int(source.identities[segment[constraint]]))
        found.setdefault(int(properties.relation[constraint]), Breach()).add(breach)
    return found


def _slack_of_tiny_values(
    source: SegmentedField, properties: PropertyConstraints, segment: int, constraint: int
) -> float:
    """Return the slack of a constraint with values below `LEAST_SIZE`, in exact fractions."""
    its_values = slice(source.value_starts[segment], source.value_starts[segment + 1])
    first, stop = int(properties.term_starts[constraint]), int(properties.term_starts[constraint + 1])
    total = Fraction(0)
    for term in range(first, stop):
        index = int(np.searchsorted(source.last[its_values], properties.variable[term]))
        value = Fraction(float(source.values[its_values][index]))
        total += int(properties.multiple[term]) * Fraction(float(properties.coefficient[term])) * value
    mean = total / int(properties.bound_multiple[constraint])
    return float(properties.bound[constraint]) - float(mean)


def refuse_breaches(found: Mapping[int, Breach], name: str, reach: float, size: int) -> None:
    """Raise ParameterError if a relation does not hold on the source.

    Parameters
    ----------
    found : mapping
        Number of a relation -> its breach.
    name : str
        Name of the field.
    reach : float
        Length of the field's own range. The message gives the excess as a share of it: the excess itself
        would disclose a value of a row, up to a number that the caller knows.
    size : int
        Records of a segment.
    """
    for number in sorted(found):
        breach = found[number]
        share = 100 * breach.excess / reach if reach > 0 else math.inf
        two_digits = float(f"{share:.2g}")  # `:.2g` alone would write 240 as 2.4e+02
        by = f" by {two_digits:.10g} % of the field's range" if math.isfinite(share) else ""
        several = breach.segments > 1
        where = f"in {breach.segments} segments, the farthest" if several else "in"
        first = breach.segment * size
        raise ParameterError(
            f"relation {number} does not hold on field '{name}' of the source {where} segment "
            f"{breach.segment} (from record {first} on){by}; raise its at_most, or leave it out",
            f"/parameters/relations/{number}",
        )
