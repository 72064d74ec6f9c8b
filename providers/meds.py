"""MEDS: the values of several numeric fields move together between the rows of bins of k near rows.

The two most distant rows that are left each take the k - 1 rows nearest to them into a bin, again and
again; within a bin the swap fields of a row are exchanged together with another row's. Every bin holds k
rows, be the table crowded or thin around it, and correlations among the swap fields stay exactly as they
are.

A remainder of two rows or more, always fewer than 2k, is a last bin; a single row joins the bin whose
centroid is nearest. The bins are made of the rows' numbers alone: no draw decides about them.

References
----------
Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118,
pp. 208-215: algorithm 2.
Domingo-Ferrer and Mateo-Sanz 2002, doi:10.1109/69.979982: maximum distance to average vector (MDAV).
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from providers.bins import (
    BinParams,
    Bins,
    FieldValues,
    Float64Array,
    bin_fields_read,
    bin_memory,
    check_bins,
    plan_in_bins,
    swap_in_bins,
)
from providers.boxes import MOST_ROWS as MOST_BINNED
from providers.diametral import partition
from providers.errors import SourceError
from providers.exact_sums import standardised
from providers.groups import Groups
from providers.measures.bin_privacy import P_PRIVACY, p_meds
from providers.params import MOST_ROWS
from providers.provider import Event, Plan, Progress, Provider, Scaling, SwapResult
from providers.radix import radix_order
from providers.rng import Stream

_EXACT_FIELDS = 6
_EXACT_WORK = 10**11


class MedsParams(BinParams):
    """The parameters of MEDS: one of `k` and `degree` says how many rows a bin holds."""

    k: Annotated[int, Field(ge=2, le=MOST_ROWS)] | SkipJsonSchema[None] = Field(default=None, examples=[50])
    """Rows of a bin, the depth. The last bin may hold up to 2k - 1. [2 or more]"""
    degree: Annotated[int, Field(ge=1, le=MOST_ROWS)] | SkipJsonSchema[None] = None
    """Wanted number of bins, in place of `k`: k is the number of rows divided by it, rounded down, and
    at least 2. The report says how many there are. [1 or more]"""
    standardise: bool = True
    """true: every field is measured in its population standard deviations; false: in its own units, so
    that the field with the largest numbers decides who is near."""
    method: Literal["auto", "exact", "mdav"] = "auto"
    """How the two distant rows are chosen. `exact`: the two most distant ones, as the paper says;
    `mdav`: the row farthest from the centroid of what is left, and the row farthest from that one, which
    is quicker in many fields; `auto`: `exact` in up to 6 fields, or where rows^2 * fields is at most
    10^11. The report says which was used."""

    @model_validator(mode="after")
    def _one_says_how_deep(self) -> Self:
        if (self.k is None) == (self.degree is None):
            raise PydanticCustomError(
                "one_of_two",
                "give one of 'k' and 'degree', which say how many rows a bin holds; given: {given}",
                {"given": "none" if self.k is None else "k, degree"},
            )
        return self


def check(params: MedsParams, schema: pa.Schema) -> MedsParams:
    """The parameters with every field by name."""
    return check_bins(params, schema, "MEDS")


def plan(table: pa.Table, params: MedsParams) -> Plan:
    """What `swap` would do; it makes the bins, which is most of the work."""
    return plan_in_bins(table, params, partial(make_bins, params))


def swap(table: pa.Table, params: MedsParams, stream: Stream, progress: Progress) -> SwapResult:
    """The table with the swap fields' values exchanged together within bins of near rows."""
    return swap_in_bins(table, params, partial(make_bins, params), stream, progress, binning_share=0.9)


def make_bins(params: MedsParams, fields: Sequence[FieldValues], progress: Progress) -> Bins:
    """The rows in bins of k, around rows that are far from each other."""
    rows = len(fields[0].values)
    size = depth(params, rows)
    method = method_used(params, rows, len(fields))
    progress(0.0, "measuring fields")
    values = _points(params, fields)
    bin_of = partition(values, size, method, lambda share: progress(share, "making bins"))
    order = radix_order([bin_of.astype(np.uint64)])
    sizes = np.bincount(bin_of)
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    events: tuple[Event, ...] = ()
    if len(sizes) == 1 and rows > 1:
        message = f"{rows} rows are fewer than two bins of {size}: all are one bin; lower k, or raise degree"
        events = (Event("one_bin", message),)
    privacy = p_meds(rows)
    return Bins(
        groups=Groups(rows, order, starts, order[starts[:-1]].astype(np.uint64)),
        degree=len(sizes),
        singletons=int(np.count_nonzero(sizes == 1)),
        figures={"k": size, "method": method},
        events=events,
        measures={} if privacy is None else {P_PRIVACY.key: privacy},
    )


def depth(params: MedsParams, rows: int) -> int:
    """k: rows of a bin."""
    return params.k if params.k is not None else max(2, rows // (params.degree or 1))


def method_used(params: MedsParams, rows: int, fields: int) -> str:
    """`exact` or `mdav`."""
    if params.method != "auto":
        return params.method
    return "exact" if fields <= _EXACT_FIELDS or rows * rows * fields <= _EXACT_WORK else "mdav"


def _points(params: MedsParams, fields: Sequence[FieldValues]) -> Float64Array:
    """What distances are taken of; shape (fields, rows).

    Raises
    ------
    SourceError
        The table is too long, or a squared distance would leave float64.
    """
    rows = len(fields[0].values)
    if rows > MOST_BINNED:
        raise SourceError(f"MEDS takes up to {MOST_BINNED} rows; this table holds {rows}: cut it into parts")
    points = np.empty((len(fields), rows))
    with np.errstate(over="ignore", under="ignore"):
        widest = sum(np.square(field.high - field.low) for field in fields)
    if not params.standardise and not (np.isfinite(widest) and (widest > 0 or _all_equal(fields))):
        named = ", ".join(f"'{field.name}'" for field in fields)
        raise SourceError(
            f"squared distances of {named} are too large or too small for float64; set 'standardise' to "
            "true, or scale the fields by a power of ten"
        )
    for point, field in zip(points, fields, strict=True):
        point[:] = standardised(field.values) if params.standardise else field.values
    return points


def _all_equal(fields: Sequence[FieldValues]) -> bool:
    return all(field.low == field.high for field in fields)


PROVIDER = Provider(
    identifier="MEDS",
    title="Multivariate equi-depth swapping",
    summary="Moves several numeric fields together between the rows of bins of k near rows.",
    revision=1,
    params=MedsParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "Every bin holds k rows; the last one 2 to 2k - 1, or another one k + 1.",
        "The swap fields of a row stay together: their correlations, and all else that is between them, "
        "are exactly what they were.",
        "Every field keeps its values: only their rows change, unless something is suppressed.",
        "Every row receives another row's values; the pairs are uniformly random, and some of them known, "
        "nothing is learnt of the rest.",
        "Bins depend on the numbers alone: `exact` is the paper's choice of pairs in every tie.",
    ),
    changes=(
        "Which row of its bin a combination of values stands in.",
        "Correlations of the swap fields with the remaining fields: they come nearer to those between bins.",
        "Outliers most: their bin reaches as far as it must to hold k rows.",
    ),
    limits=(
        "In a bin of m rows an intruder who knows the bins guesses a row's own values with chance 1/(m - 1). "
        "Bins are made of published values, so that who knows k and the method can make them again.",
        "No bound on how far a value moves: in thin regions a bin is wide, in crowded ones narrow.",
        "Whoever knows some values of a row knows the others as well as its bin is narrow.",
        "The combinations of values are those of real rows, and are all published: a combination that "
        "names a person still does.",
        "Fields that do not move stay with their row.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: bin_fields_read(params, schema),
        memory=lambda params, rows, nbytes: bin_memory(params, rows, nbytes),
        cut="Not cut: every bin depends on all those made before it, so that the swap fields must fit in "
        "memory, at about 76 bytes a row for two float64 fields and 22 for each more; the other fields need "
        "not. DDSWAP takes any number of rows.",
    ),
    cost="About n log n time in up to six fields for n rows; more for small k and in more fields, where "
    "`exact` comes near to n^2 in the worst case and `mdav` does not. Memory: 16 bytes a row and field, and "
    "about 40 a row. A plan makes the bins as well.",
    instead=(
        "MEWS, where no value shall move further than a given width, or for tens of millions of rows.",
        "DDSWAP, where one field, not several, says who is a neighbour.",
        "CDSWAP, where classes are given and not made of numbers.",
    ),
    references=(
        "Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, "
        "LNAI 6118, pp. 208-215",
        "Domingo-Ferrer and Mateo-Sanz 2002, IEEE TKDE 14, 189-201, doi:10.1109/69.979982 (MDAV)",
    ),
    errata=(
        "The paper drops a remainder of fewer than 2k rows: here two rows or more are a last bin, and a "
        "single row joins the bin whose centroid is nearest.",
        "The paper does not say how ties are broken: here the smallest rows are taken.",
        "Table 2 cannot be reproduced in any reading: swapping all fields changes no correlation, and the "
        "units of its rows differ.",
        "MEWS does not always distort less than MEDS at equal degree, as the paper claims: at degree 100 "
        "MEDS distorts less on abalone and magic_gamma.",
    ),
)
