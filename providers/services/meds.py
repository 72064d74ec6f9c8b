"""MEDS: exchange several numeric fields together between rows of bins of k neighbouring rows.

While at least 2k rows are left, the two most distant ones, x_r and x_s, each form a bin with their k - 1
nearest neighbours, by the Euclidean distance in the swap fields. Within every bin random pairs of rows
exchange their values of all swap fields together; three rows form a cycle if the number is odd. Every bin
holds k rows, in dense and in sparse regions, and correlations among the swap fields stay exactly as they
are.

A remainder of two or more rows, always fewer than 2k, is the last bin; a single row joins the bin with the
nearest centroid. The bins depend on the numbers alone and on no random draw.

With `method` `partitioned` the rows are first cut into `parts` parts of about equally many rows, in each of
which bins are formed in this way. The rows are cut in two at the median of the field with the largest range,
and each half again. All parts but the last hold a multiple of 2k rows. This is not in the paper: it forms
bins of tables larger than memory, and on several machines, at the price of wider bins at the borders of
parts. `within_bin_variance` in the report, with every method, is the share of the variance of the swap
fields that is within bins.

With `risk`, only some rows of each bin exchange values: those whose combination of key fields is rare, and
others up to `rate`, each with a probability in proportion to its risk. The bins stay the same.

References
----------
Bentley 1975, doi:10.1145/361002.361007: the k-d tree, by which `partitioned` cuts the rows.
Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities.
Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118,
pp. 208-215: algorithm 1 (section 3.1), lemma 1 (section 4).
Domingo-Ferrer and Mateo-Sanz 2002, doi:10.1109/69.979982: maximum distance to average vector (MDAV).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from providers.arrays import Float64Array
from providers.binning.first_cut import PartRule, Spread, bins_in_parts, check_parts
from providers.binning.privacy import P_PRIVACY_KEY, privacy_of_meds
from providers.binning.shrinking_tree import MOST_ROWS as MOST_BINNED
from providers.binning.stored_parts import PartService, sharing_of_parts, swap_in_parts
from providers.binning.swap import (
    BinParams,
    Bins,
    as_swap,
    bin_fields_read,
    bin_memory,
    check_bins,
    plan_in_bins,
    swap_in_bins,
)
from providers.binning.values import FieldValues
from providers.errors import SourceError
from providers.grouping.groups import Groups
from providers.kernels.exact_sum import Standard
from providers.kernels.radix_sort import radix_order
from providers.params import MOST_ROWS
from providers.progress import Progress
from providers.provider import Provider, Run, Scaling, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import Event, Plan, SwapResult
from providers.storage import Resources, Source
from providers.swapping.reversible_groups import uniform_pairs
from providers.swapping.risk_report import RISK_GUARANTEE, RISK_LIMIT
from providers.swapping.swap import MOVED_VALUES, ONE_ROW, least_memory

_EXACT_FIELDS = 6
"""Most swap fields for which `auto` always chooses the exact pairs: the tree search is quick there."""

_EXACT_WORK = 10**11
"""Largest rows^2 * fields for which `auto` chooses the exact pairs in more fields."""


class MedsParams(BinParams):
    """The parameters of MEDS. Give one of `k` and `degree`, which define how many rows a bin holds."""

    k: Annotated[int, Field(ge=2, le=MOST_ROWS)] | SkipJsonSchema[None] = Field(
        default=None, examples=[50], title="Group size (k)"
    )
    """Number of rows in a bin (depth, the paper's swapping distance k). The last bin may hold up to 2k - 1.
    With `k` 2 an intruder who knows `k` is certain of every row's partner. [2 or more]"""
    degree: Annotated[int, Field(ge=1, le=MOST_ROWS)] | SkipJsonSchema[None] = None
    """Wanted number of bins, in place of `k`: k is the number of rows divided by it, rounded down, and
    at least 2. The report states the number of bins that were formed. [1 or more]"""
    standardise: bool = True
    """true: distances are measured in population standard deviations of each field; false: in the fields'
    own units, so that the field with the largest numbers decides which rows are near."""
    method: Literal["auto", "exact", "mdav", "partitioned"] = "auto"
    """Choice of the two distant rows. `exact`: the two most distant rows, as in the paper; `mdav`: the row
    farthest from the centroid of the remaining rows, and the row farthest from this row, which is faster with
    many fields; `auto`: `exact` in up to 6 fields, or if rows^2 * fields is at most 10^11. `partitioned`:
    like `auto`, separately in each of `parts` parts of neighbouring rows. The report states the method that
    was used."""
    parts: Annotated[int, Field(ge=2, le=MOST_ROWS)] | SkipJsonSchema[None] = Field(
        default=None, title="Number of parts"
    )
    """Number of parts into which the rows are cut first, with `method` `partitioned`. Each part has at least
    as many rows as two bins. With `degree`, at most half of `degree`. [2 or more]"""

    def larger_groups(self) -> str:
        """Return advice for bins of two or three rows."""
        name, change = ("k", "raise") if self.k is not None else ("degree", "lower")
        return f"{change} '{name}' until bins hold four rows or more"

    @model_validator(mode="after")
    def _one_defines_the_depth(self) -> Self:
        if (self.k is None) == (self.degree is None):
            raise PydanticCustomError(
                "one_of_two",
                "give one of 'k' and 'degree', which say how many rows a bin holds; given: {given}",
                {"given": "none" if self.k is None else "k, degree"},
            )
        return self

    @model_validator(mode="after")
    def _parts_go_with_partitioned(self) -> Self:
        if self.method == "partitioned" and self.parts is None:
            raise PydanticCustomError(
                "size_missing", "method 'partitioned' needs 'parts', the number of parts, 2 or more"
            )
        if self.method != "partitioned" and self.parts is not None:
            raise PydanticCustomError(
                "size_unused",
                "'parts' goes with method 'partitioned', not '{given}'",
                {"given": self.method},
            )
        return self

    @model_validator(mode="after")
    def _parts_hold_two_bins(self) -> Self:
        """Refuse parts that no number of rows n fills.

        2 k parts <= n holds for some n if it does for the largest n with k = 2, which is 3 degree - 1: then
        k is n // degree, and 2 k parts grows faster than n.
        """
        if self.degree is not None and self.parts is not None and 4 * self.parts > 3 * self.degree - 1:
            raise PydanticCustomError(
                "parts_too_many",
                "no table has {parts} parts with two bins each if 'degree' is {degree}: give a 'degree' of "
                "{least} or more, or fewer 'parts'",
                {"parts": self.parts, "degree": self.degree, "least": 2 * self.parts},
            )
        return self


def check(params: MedsParams, schema: pa.Schema) -> MedsParams:
    """Return the parameters with every field by name; raise ParameterError or SourceError."""
    return check_bins(params, schema, "MEDS")


def check_rows(params: MedsParams, rows: int) -> None:
    """Raise SourceError if no table of `rows` rows can be divided as the parameters say.

    With `nulls` `keep` the bins are formed of the rows without nulls, whose number only a run knows.
    """
    if rows and params.nulls == "fail":
        _check_length(rows)
        check_parts(rows, part_rule(params, rows, len(params.swap_fields)), params.swap_fields)


# ------------------------------------------- algorithm 1, lines 2 to 4: bins of k rows around x_r and x_s


def make_bins(params: MedsParams, fields: Sequence[FieldValues], progress: Progress) -> Bins:
    """Partition the rows into bins of k rows around pairs of distant rows.

    Parameters
    ----------
    params : MedsParams
    fields : sequence of FieldValues
        The fields in which distances are measured.
    progress : Progress
    """
    rows = len(fields[0].values)
    rule = part_rule(params, rows, len(fields))
    progress(0.0, "measuring fields")
    _check_distances(params, fields, rows)
    check_parts(rows, rule, [field.name for field in fields])
    standards = [Standard.of_values(field.values) for field in fields]
    points = _points(params, fields, standards)  # x[S] of every tuple
    ranges = [(field.low, field.high) for field in fields]
    spread = Spread.of_fields(ranges, standards, params.standardise)
    bin_of, within = bins_in_parts(rule, points, spread, lambda share: progress(share, "making bins"))
    order = radix_order([bin_of.astype(np.uint64)])
    sizes = np.bincount(bin_of)
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    events: tuple[Event, ...] = ()
    if len(sizes) == 1 and rows > 1:
        message = (
            f"{rows} rows are fewer than two bins of {rule.k}: all are one bin; lower k, or raise degree"
        )
        events = (Event("one_bin", message),)
    return Bins(
        groups=Groups(rows, order, starts, order[starts[:-1]].astype(np.uint64)),
        degree=len(sizes),
        singletons=int(np.count_nonzero(sizes == 1)),
        figures=_figures(rule, spread.share(within, rows)),
        events=events,
        measures={P_PRIVACY_KEY: privacy_of_meds(rule.part_sizes(rows)[0], int(sizes.min()))},  # lemma 1
    )


def part_rule(params: MedsParams, rows: int, fields: int) -> PartRule:
    """Return the rule of the bins of a table of `rows` rows."""
    parts = params.parts or 1
    return PartRule(depth(params, rows), parts, method_used(params, -(-rows // parts), fields))


def _figures(rule: PartRule, within: float) -> dict[str, Any]:
    """Figures of MEDS alone; ``within``: share of the variance that is within bins."""
    figures: dict[str, Any] = {"k": rule.k, "method": rule.method, "within_bin_variance": within}
    if rule.parts > 1:
        figures |= {"method": "partitioned", "method_in_parts": rule.method, "parts": rule.parts}
    return figures


def depth(params: MedsParams, rows: int) -> int:
    """Return k, the number of rows in a bin."""
    return params.k if params.k is not None else max(2, rows // (params.degree or 1))


def method_used(params: MedsParams, rows: int, fields: int) -> str:
    """Return the choice of distant rows in a table or part of `rows` rows: ``exact`` or ``mdav``."""
    if params.method in ("exact", "mdav"):
        return params.method
    return "exact" if fields <= _EXACT_FIELDS or rows * rows * fields <= _EXACT_WORK else "mdav"


def _check_distances(params: MedsParams, fields: Sequence[FieldValues], rows: int) -> None:
    """Raise SourceError if the table is too long, or a squared distance is outside the range of float64.

    ``fields``: ranges of the fields; their values are not used.
    """
    _check_length(rows)
    with np.errstate(over="ignore", under="ignore"):
        largest_square = sum(np.square(field.high - field.low) for field in fields)
    usable = np.isfinite(largest_square) and (largest_square > 0 or _all_constant(fields))
    if not params.standardise and not usable:
        named = ", ".join(f"'{field.name}'" for field in fields)
        raise SourceError(
            f"squared distances of {named} are too large or too small for float64; set 'standardise' to "
            "true, or scale the fields by a power of ten"
        )


def _check_length(rows: int) -> None:
    """Raise SourceError if the table has more rows than bins can be formed of."""
    if rows > MOST_BINNED:
        raise SourceError(f"MEDS takes up to {MOST_BINNED} rows; this table holds {rows}: cut it into parts")


def _points(params: MedsParams, fields: Sequence[FieldValues], standards: Sequence[Standard]) -> Float64Array:
    """Return the coordinates that distances are computed of, standardised or not; shape (fields, rows)."""
    points = np.empty((len(fields), len(fields[0].values)))
    for point, field, standard in zip(points, fields, standards, strict=True):
        point[:] = standard.standardised(field.values) if params.standardise else field.values
    return points


def _all_constant(fields: Sequence[FieldValues]) -> bool:
    return all(field.low == field.high for field in fields)


# --------------------------------------- algorithm 1, lines 5 to 7: swap the values of S within every bin


def plan(table: pa.Table, params: MedsParams) -> Plan:
    """Return what `swap` would do, without a random draw. Making the bins is most of the work."""
    return plan_in_bins(table, params, partial(make_bins, params))


def swap(table: pa.Table, params: MedsParams, stream: Stream, progress: Progress) -> SwapResult:
    """Exchange the swap fields' values together between uniformly random pairs of rows of one bin."""
    return swap_in_bins(table, params, partial(make_bins, params), stream, progress, binning_share=0.9)


_PARTS: PartService[MedsParams] = PartService(
    rule=part_rule,
    check=_check_distances,
    standardise=lambda params: params.standardise,
    figures=_figures,
    swap=lambda params, schema: as_swap(params, schema, params.suppression),
)


def swap_out_of_core(
    source: Source, params: MedsParams, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Do the same as `swap`, with one part of the first cut in memory; `method` is ``partitioned``."""
    return swap_in_parts(_PARTS, Run(source, params, stream, resources), progress)


PROVIDER = Provider(
    identifier="MEDS",
    title="Multivariate equi-depth swapping",
    summary="Exchanges several numeric fields together between rows of bins of k neighbouring rows.",
    revision=3,
    draws_revision=1,
    params=MedsParams,
    check=check,
    check_rows=check_rows,
    plan=plan,
    swap=swap,
    guarantees=(
        "Every bin holds k rows. One may differ: the last bin holds a remainder of 2 to 2k - 1 rows, or a "
        "single remaining row makes one bin k + 1 rows.",
        "The swap fields of a row stay together: their correlations, and every other relation between them, "
        "are exactly what they were.",
        "Every field keeps its values: only their rows change, unless something is suppressed.",
        "Without `risk`, every row receives another row's values.",
        RISK_GUARANTEE,
        uniform_pairs("bin", "bins"),
        "Bins depend on the numbers alone. `exact` always chooses the paper's pair; ties go to the smallest "
        "rows. `partitioned` does so within each part, whose borders depend on the numbers as well.",
    ),
    changes=(
        "The row of its bin that a combination of values belongs to.",
        "Correlations of the swap fields with the remaining fields: they come nearer to those of the bins.",
        "Outliers most: their bin extends as far as it must to hold k rows.",
        "With `partitioned`, relations more than with `exact`, since no bin reaches into another part. At 16 "
        "parts and k 5, 20 or 50, `within_bin_variance` is 1.05 to 1.27 times that of `exact` on abalone "
        "(two and seven fields), 1.06 to 1.12 times on magic_gamma (two and ten), and 1.20 to 1.22 times on "
        "wine_quality_white (four). On svcensus (age and income) it is 2.46 times at k 5 and 1.17 at k 50: a "
        "cut divides the rows with the top-coded income, and one bin of each part joins some with others.",
    ),
    limits=(
        "In a bin of m rows an intruder who knows the bins guesses a row's own values with chance 1/(m - 1). "
        "Bins follow from published values, so that anyone who knows k and the method can compute them: at "
        "k = 2 the intruder is certain of every row's own values, whatever P says.",
        "There is no bound on the distance that a value moves: bins are wide in sparse regions and narrow in "
        "dense ones.",
        "Anyone who knows some values of a row knows the others as closely as its bin is narrow.",
        "The combinations of values are those of real rows, and all of them are published: a combination "
        "that identifies a person still does.",
        "Fields that are not swapped stay with their row.",
        RISK_LIMIT,
    ),
    repeated_releases=(
        "The bins follow from the published values, and no row ever receives its own values. The values "
        "that 20 releases with different seeds never show in a row are its own: this recovers 99 % of "
        "svcensus at k = 5 and 65 % at k = 10.",
        "Release a source once. A rerun with the same seed gives the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=bin_fields_read,
        memory=bin_memory,
        cut="With `method` `partitioned`: the rows are cut into parts in scratch space, and the bins of one "
        "part at a time are formed in memory; the units of a divided job are ranges of whole parts. With the "
        "other methods the table is not cut, since every bin depends on all bins formed before it, and with "
        "`others` `univariate` or `risk` neither. The swap fields must then fit in memory, at about 76 bytes "
        "a row for two float64 fields and 22 for each further field; the other fields need not. DDSWAP takes "
        "any number of rows.",
        swap=swap_out_of_core,
        can_cut=lambda params: (
            params.method == "partitioned" and params.others == "keep" and params.risk is None
        ),
        sharing=sharing_of_parts(_PARTS),
        least=least_memory,
    ),
    cost="About n log n time in up to six fields for n rows; more for small k and in more fields, where "
    "`exact` comes near to n^2 in the worst case and `mdav` does not. Memory: 16 bytes per row and field, "
    "and about 40 per row. A plan forms the bins as well. `partitioned` sorts the rows log2(parts) times.",
    special_values=(
        *MOVED_VALUES,
        f"{ONE_ROW} Fewer rows than two bins are one bin, with the event `one_bin`.",
        "Of equal rows those with the smallest row numbers come first. 0.0 and -0.0 are equal.",
        "Distances are computed in float64: integers beyond 2^53 count as the nearest float64, so that close "
        "ones count as equal. The released values are exact.",
        "`nulls` decides about nulls, NaN and infinities of a field that defines bins.",
    ),
    instead=(
        "MEWS, if no value shall move further than a given width, or for tens of millions of rows.",
        "DDSWAP, if one field, not several, defines which rows are close.",
        "CDSWAP, if classes are given and not derived from numbers.",
    ),
    references=(
        "Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities",
        "Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, "
        "LNAI 6118, pp. 208-215",
        "Domingo-Ferrer and Mateo-Sanz 2002, IEEE TKDE 14, 189-201, doi:10.1109/69.979982 (MDAV)",
    ),
    errata=(
        "The paper drops a remainder of fewer than 2k rows. Here two or more rows form the last bin, and a "
        "single row joins the bin with the nearest centroid.",
        "The paper does not say how ties are broken. Here the smallest row numbers are taken.",
        "The paper does not cut the rows into parts: `partitioned` is an addition.",
        "The sum for P that Lemma 1 prints (eq. 2) is not the one that follows from eq. 1. The report has "
        "both: `p` as printed, and `p_eq1` (abalone: .003846 and .003939).",
        "Table 2 cannot be reproduced under any interpretation: swapping all fields changes no correlation, "
        "and the units of its rows differ.",
        "MEWS does not always distort less than MEDS at equal degree, as the paper claims: at degree 100 "
        "MEDS distorts less on abalone and magic_gamma.",
    ),
)
