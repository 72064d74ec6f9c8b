"""RSWAP: exchange the geography of whole households with similar ones elsewhere, the riskiest first.

Households with a member whose combination of risk fields is rare in an area must be swapped out of that area.
More households are then added until the swap rate is met, riskier households with a higher probability. Each
is swapped with a household of another area that has equal values of a match profile. The members of both
exchange the fields of the hierarchy and the fields carried along; nothing else moves.

References
----------
Office for National Statistics 2011, Targeted record swapping; Centre of Excellence on SDC (Eurostat) 2019,
Testing of perturbative methods for the European census; R package sdcMicro, `recordSwap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from providers.errors import ParameterError, UnswappableError
from providers.params import MOST_ROWS, Params
from providers.progress import Progress
from providers.provider import Provider, Scaling
from providers.randomness.chacha20 import Stream
from providers.record_swapping.exchange import describe_unmatched, exchange, rows_by_area
from providers.record_swapping.risk import check_risk_field
from providers.record_swapping.settings import RecordSwapSettings
from providers.record_swapping.swaps import choose_swaps, read_survey, without_donor
from providers.results import Event, Events, Plan, SwapResult, group_size
from providers.tables.columns import check_movable
from providers.tables.households import check_household_field
from providers.tables.schemas import check_names, check_unique_names

MatchProfile = Annotated[
    tuple[str, ...], Field(min_length=1, description="Fields of one match profile, equal within a household.")
]


class RswapParams(Params):
    """The parameters of RSWAP."""

    household: str | SkipJsonSchema[None] = Field(default=None, examples=["household"])
    """The field, of integers or text, that identifies a household. Default: every row is a household."""
    hierarchy: Annotated[tuple[str, ...], Field(min_length=1, examples=[["region", "district"]])]
    """Fields of geography that are exchanged, coarse to fine, equal for all members of a household. [1 or
    more]"""
    similar: Annotated[
        tuple[MatchProfile, ...], Field(examples=[[["household_size", "tenure"], ["household_size"]]])
    ] = ()
    """Match profiles, the strictest first. A household is swapped with a household that has equal values
    of the fields of the first profile, or if there is none, of the next profile. Default: any household
    matches."""
    risk_fields: tuple[str, ...] = Field(default=(), examples=[["age", "sex"]])
    """Fields of persons that an intruder may know. The risk of a person in an area is 1 divided by the number
    of persons there with the same values. The risk of a household is the largest risk of its members."""
    k_anonymity: Annotated[int, Field(ge=0, le=MOST_ROWS, title="Least group size (k-anonymity)")] = 3
    """A household must be swapped if the risk fields of a member occur fewer than `k_anonymity` times in an
    area; its partner is in another area of the same level. 0: no household must be swapped. It applies to
    `risk_fields` alone: without them no household must be swapped, unless `risk` says so. [0 or more]"""
    swap_rate: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Share of the households that are swapped. Half of this share is chosen in each finest area, and
    exchanged with households of other areas. Therefore the shares of areas differ in size: with areas of 900
    and 100 households and a share of 0.05, they are 3 % and 25 %. Households that must be swapped count only
    in their own area, so that areas with many of them exceed the share. [0 to 1]"""
    carry_along: tuple[str, ...] = Field(default=(), examples=[["grid_cell"]])
    """Fields that are exchanged with the hierarchy, equal for all members of a household."""
    risk: tuple[str, ...] = Field(default=(), examples=[["risk"]])
    """Numeric fields with given risks, in place of `risk_fields`: one for each field of `hierarchy`, or one
    for all. The largest risk in a household counts."""
    risk_threshold: Annotated[float, Field(ge=0, allow_inf_nan=False)] | SkipJsonSchema[None] = None
    """A household with a given risk above it must be swapped. With `risk` only. [0 or more]"""
    unmatched: Literal["keep", "suppress", "fail"] = "keep"
    """Policy for a household that must be swapped but has no donor. `keep`: it keeps its values, and an event
    reports it; `suppress`: its fields of `hierarchy` and `carry_along` become null; `fail`: the job fails."""

    @model_validator(mode="after")
    def _risks_are_given_or_computed(self) -> Self:
        if self.risk and self.risk_fields:
            raise PydanticCustomError("risk_twice", "give 'risk' or 'risk_fields', one of the two")
        if bool(self.risk) != (self.risk_threshold is not None):
            raise PydanticCustomError("risk_threshold", "'risk' and 'risk_threshold' go together: give both")
        if len(self.risk) > 1 and len(self.risk) != len(self.hierarchy):
            raise PydanticCustomError(
                "risk_count",
                "there are {given} fields in 'risk' and {wanted} in 'hierarchy': give one for each, or one "
                "for all",
                {"given": len(self.risk), "wanted": len(self.hierarchy)},
            )
        return self


def check(params: RswapParams, schema: pa.Schema) -> RswapParams:
    """Return the parameters; raise ParameterError or SourceError if they do not fit the schema."""
    check_unique_names(schema)
    if params.household is not None:
        check_names((params.household,), schema, lambda index: "/parameters/household")
    for role in ("hierarchy", "carry_along", "risk_fields", "risk"):
        check_names(getattr(params, role), schema, _pointers(role))
    profiles: set[frozenset[str]] = set()
    for number, profile in enumerate(params.similar):
        check_names(profile, schema, _pointers(f"similar/{number}"))
        if frozenset(profile) in profiles:
            raise ParameterError("this profile repeats an earlier one", f"/parameters/similar/{number}")
        profiles.add(frozenset(profile))
    _check_roles(params)
    if params.household is not None:
        check_household_field(schema.field(params.household))
    for index, name in enumerate(params.risk):
        check_risk_field(schema.field(name), f"/parameters/risk/{index}")
    for role in ("hierarchy", "carry_along"):
        for index, name in enumerate(getattr(params, role)):
            check_movable(schema.field(name), f"/parameters/{role}/{index}")
    return params


def _pointers(role: str) -> Callable[[int], str]:
    """Return a function from the index of a name in a parameter to its JSON pointer."""
    return lambda index: f"/parameters/{role}/{index}"


def _check_roles(params: RswapParams) -> None:
    """Raise ParameterError if a field that moves has another role too."""
    moved = dict.fromkeys(params.hierarchy, "hierarchy")
    others = [
        ("carry_along", "carry_along", params.carry_along),
        ("risk_fields", "risk_fields", params.risk_fields),
    ]
    others += [("risk", "risk", params.risk)]
    others += [(f"similar/{at}", "similar", fields) for at, fields in enumerate(params.similar)]
    if params.household in {*params.hierarchy, *params.carry_along}:
        raise ParameterError(
            f"field '{params.household}' is the household, and cannot move", "/parameters/household"
        )
    for path, role, names in others:
        for index, name in enumerate(names):
            if name in moved:
                raise ParameterError(
                    f"field '{name}' is in both '{moved[name]}' and '{role}': a field that moves has "
                    "no other use",
                    f"/parameters/{path}/{index}",
                )
            if role == "carry_along":
                moved[name] = role


def notices(params: RswapParams, schema: pa.Schema) -> tuple[Event, ...]:
    """Return an event if a `k_anonymity` other than the default has no `risk_fields` to count by."""
    default = RswapParams.model_fields["k_anonymity"].default
    if params.risk_fields or params.k_anonymity in (0, default):
        return ()
    obliging = "'risk_threshold' alone decides" if params.risk else "no household must be swapped"
    message = (
        f"'k_anonymity' {params.k_anonymity} has no effect without 'risk_fields', whose combinations are "
        f"counted: {obliging}; name the fields that an intruder may know"
    )
    return (Event("k_anonymity_unused", message),)


def settings_of(params: RswapParams) -> RecordSwapSettings:
    """Return the parameters in the form that the steps of a swap take."""
    return RecordSwapSettings(
        household=params.household,
        hierarchy=params.hierarchy,
        similar=params.similar or ((),),
        risk_fields=params.risk_fields,
        k=params.k_anonymity,
        swap_rate=params.swap_rate,
        carry_along=params.carry_along,
        risk=params.risk,
        threshold=params.risk_threshold or 0.0,
        unmatched=params.unmatched,
    )


def fields_read(params: RswapParams) -> tuple[str, ...]:
    """Return all fields that the parameters name, once each."""
    household = () if params.household is None else (params.household,)
    similar = [name for profile in params.similar for name in profile]
    named = [*household, *params.hierarchy, *similar, *params.risk_fields, *params.risk, *params.carry_along]
    return tuple(dict.fromkeys(named))


def memory_needed(params: RswapParams, rows: int, nbytes: int) -> int:
    """Estimate the peak memory in bytes of a swap that reads `nbytes` of fields."""
    profiles = max(1, len(params.similar))
    fields = len(fields_read(params))
    return 2 * nbytes + rows * (120 + 8 * fields + 72 * profiles + 16 * len(params.hierarchy))


def plan(table: pa.Table, params: RswapParams) -> Plan:
    """Return what `swap` would do, without a random draw; raise SourceError or UnswappableError as it would.

    Only households that match none of another area count as unswappable. A run may leave more without a
    donor, where donors are fewer than the households that need one.
    """
    survey = read_survey(table, settings_of(params), Events())
    sizes = rows_by_area(survey)
    unmatched = without_donor(survey)
    rows = int(survey.households.sizes[unmatched].sum())
    if params.unmatched == "fail" and rows:
        raise UnswappableError(describe_unmatched(rows, int(np.count_nonzero(unmatched))))
    read = sum(table.column(name).nbytes for name in fields_read(params))
    return Plan(
        rows=table.num_rows,
        groups=len(sizes),
        group_size=group_size(sizes),
        unswappable_rows=rows,
        unswappable_groups=len(np.unique(survey.areas[-1].of_household[unmatched])),
        estimated_memory_bytes=memory_needed(params, table.num_rows, read),
    )


def swap(table: pa.Table, params: RswapParams, stream: Stream, progress: Progress) -> SwapResult:
    """Exchange the geography of whole households with similar ones of other areas."""
    settings, events = settings_of(params), Events()
    progress(0.0, "reading households")
    survey = read_survey(table, settings, events)
    swaps = choose_swaps(survey, settings, stream, progress)
    progress(0.8, "exchanging")
    return exchange(table, survey, swaps, settings, events)


PROVIDER = Provider(
    identifier="RSWAP",
    title="Targeted record swapping",
    summary="Exchanges the geography of whole households with similar ones elsewhere, the riskiest first.",
    revision=1,
    draws_revision=1,
    params=RswapParams,
    check=check,
    plan=plan,
    swap=swap,
    notices=notices,
    guarantees=(
        "Households stay whole: their members move together, and each household is swapped at most once, "
        "with one other household.",
        "Every area keeps its number of households, at every level. Only the hierarchy and the fields "
        "carried along move.",
        "A household with a member whose risk fields occur fewer than k_anonymity times in an area is "
        "swapped with a household outside this area, or reported as unmatched.",
        "Two swapped households agree on all fields of a match profile: tables of the first profile's fields "
        "by area stay exactly equal, except for swaps by a weaker profile.",
    ),
    changes=(
        "The area of the swapped households: tables by area of fields outside the profiles.",
        "Persons by area, where no field of the profile holds the size of the household.",
    ),
    limits=(
        "Most households are not swapped: at a swap rate of 5 % an intruder who finds a record in its area "
        "is right in about 95 % of the cases: less often for households of high risk, more often in an area "
        "that has most of the households.",
        "Only geography moves: a person who is unique in the whole table without it stays unique.",
        "No differential privacy and no k-anonymity: the selection depends on the data, and a combination "
        "that is rare in an area can still be rare there after the swap, with another household.",
        "Which households moved is a secret like the seed: no report or manifest names them.",
    ),
    repeated_releases=(
        "The most frequent area of a household in several releases is its own: 20 releases at a swap rate of "
        "30 % without obligations recover 99.8 % of the districts of a generated survey.",
        "Households that must be swapped never show their own area: the areas that 20 releases never show "
        "narrow it down.",
        "Release a source once. A rerun with the same seed gives the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: fields_read(params),
        memory=memory_needed,
        cut="The table is not cut, since every swap depends on the donors of the swaps before it. The "
        "fields that the parameters name must fit in memory; the other fields need not.",
    ),
    cost="O(n) time for the codes of each field named, O(h log h) per level and profile for h households.",
    special_values=(
        "A table without rows is a valid result. In a single area there are no donors, so that nothing is "
        "swapped.",
        "A null in `household` is an error. In every other field nulls are equal to each other, and so are "
        "NaN.",
        "0.0 and -0.0 are different values of an area, a profile or a risk field. Integers of any size are "
        "distinguished.",
        "A given risk that is null, NaN, infinite or negative is an error.",
    ),
    instead=(
        "CDSWAP, if rows are not members of households, and values are to be exchanged within classes.",
        "RWN, if no area moves and each person's values are to come from similar persons.",
    ),
    references=(
        "Shlomo, Tudor and Groom 2010, Data swapping for protecting census tables, PSD 2010, LNCS 6344, "
        "doi:10.1007/978-3-642-15838-4_4",
        "Templ, Kowarik and Meindl 2015, Statistical disclosure control for micro-data using the R package "
        "sdcMicro, doi:10.18637/jss.v067.i04 (recordSwap, version 5.8.1)",
    ),
)
