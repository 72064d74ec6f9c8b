"""MEWS: exchange several numeric fields together between rows of one cell of an equal-width grid.

The domain of every swap field is partitioned into intervals of equal width t (`width`), and the intervals
of all swap fields form a grid of cells. The rows of a cell are a bin. Within every bin random pairs of rows
exchange their values of all swap fields together; three rows form a cycle if the number is odd. No value
changes by more than a width, and correlations among the swap fields stay exactly as they are.

The paper leaves a row that is alone in its cell as it is. Here `singletons` decides: by default such a row
joins the bin with the nearest mean, and then a value may change by more than a width.

With `risk`, only some rows of each bin exchange values: those whose combination of key fields is rare, and
others up to `rate`, each with a probability in proportion to its risk. The bins stay the same.

References
----------
Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities.
Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, LNAI 6118,
pp. 208-215: algorithm 2 and definition 1 (section 3.2), lemma 2 (section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from providers.binning.degree import nearest_degree
from providers.binning.distribute import Cells, sharing_of_cells
from providers.binning.grid import (
    MOST_CELLS,
    Axis,
    axis_of_cells,
    axis_of_width,
    coarse_numbers,
    grid_figures,
    rows_by_cell,
)
from providers.binning.out_of_core import Numbers, swap_in_cells
from providers.binning.privacy import P_PRIVACY_KEY, minimal_depths, privacy_of_mews
from providers.binning.singletons import NOTHING_TO_MERGE_INTO, merge_singletons
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
from providers.binning.values import FieldValues, standard_deviation
from providers.errors import ParameterError, SourceError
from providers.grouping.groups import Groups
from providers.params import MOST_ROWS, Suppression, SwapParams
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Provider, Scaling, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import Event, Plan, SwapResult
from providers.storage import Resources, Source
from providers.swapping.reversible_groups import uniform_pairs
from providers.swapping.risk_report import RISK_GUARANTEE, RISK_LIMIT
from providers.swapping.swap import MOVED_VALUES, least_memory
from providers.tables.columns import unused

Width = Annotated[float, Field(gt=0, allow_inf_nan=False)]

Count = Annotated[int, Field(ge=1, le=MOST_CELLS)]

Origin = Annotated[float, Field(allow_inf_nan=False)]


class MewsParams(BinParams):
    """The parameters of MEWS. Give one of `width`, `bins` and `degree`, which define how fine the grid is."""

    width: Width | tuple[Width, ...] | SkipJsonSchema[None] = Field(default=None, examples=[0.5, [5, 1000]])
    """Width of a cell, the paper's t, in the units of `scale`: one number for every swap field, or a list
    with one number for each. [over 0]"""
    bins: Count | tuple[Count, ...] | SkipJsonSchema[None] = Field(default=None, examples=[20, [20, 50]])
    """Number of cells that a field's range is cut into: one number for every swap field, or a list with one
    number for each. [1 to 2^52]"""
    degree: Annotated[int, Field(ge=1, le=MOST_ROWS)] | SkipJsonSchema[None] = None
    """Wanted partition degree, the number of bins that hold rows. Every field is cut into the same number of
    cells: the number whose degree is nearest to the wanted one, or the smaller number on ties. Often no
    number of cells gives exactly this degree; the report states the degree that was reached. [1 or more]"""
    scale: Literal["field", "range", "sd"] = "field"
    """Unit of `width`. `field`: the field's own units; `range`: the field's range; `sd`: its population
    standard deviation."""
    origin: Origin | tuple[Origin, ...] | SkipJsonSchema[None] = None
    """Lower end of the first cell: one number for every swap field, or a list with one number for each.
    Default: each field's smallest value. With `bins` or `degree`, it must be at most the smallest value."""
    singletons: Literal["merge", "keep", "suppression"] = "merge"
    """Treatment of a row that is alone in its bin. `merge`: the row joins the bin of two or more rows
    whose mean is nearest, measured in widths; on ties, the first cell. `keep`: the row keeps its values.
    `suppression`: the parameter `suppression` decides. That parameter also decides if no bin holds two
    rows."""
    widest: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Upper bound of the width that an intruder considers possible, as a share of each swap field's range:
    t_ub of the paper. It only selects the grids over which the figure `p_privacy` averages. At 1 the
    grid of a single cell counts as well. [over 0, up to 1]"""

    def larger_groups(self) -> str:
        """Return advice for bins of two or three rows."""
        name = next(name for name in ("width", "bins", "degree") if getattr(self, name) is not None)
        return f"{'raise' if name == 'width' else 'lower'} '{name}', so that cells are wider"

    @model_validator(mode="after")
    def _one_defines_the_grid(self) -> Self:
        given = [name for name in ("width", "bins", "degree") if getattr(self, name) is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "one_of_three",
                "give one of 'width', 'bins' and 'degree', which say how fine the grid is; given: {given}",
                {"given": ", ".join(given) or "none"},
            )
        if self.scale != "field" and self.width is None:
            raise PydanticCustomError(
                "scale_unused", "scale goes with 'width', not '{given}'", {"given": given[0]}
            )
        if self.singletons == "keep" and self.suppression.policy not in ("suppress", "keep"):
            raise PydanticCustomError(
                "suppression_unused",
                "singletons 'keep' leaves rows that cannot be swapped as they are; for policy '{policy}' "
                "use singletons 'suppression'",
                {"policy": self.suppression.policy},
            )
        return self


def check(params: MewsParams, schema: pa.Schema) -> MewsParams:
    """Return the parameters with every field by name; raise ParameterError or SourceError."""
    resolved = check_bins(params, schema, "MEWS")
    fields = len(resolved.swap_fields)
    for name in ("width", "bins", "origin"):
        given = getattr(resolved, name)
        if isinstance(given, tuple) and len(given) != fields:
            raise ParameterError(
                f"{name} has {len(given)} entr{'ies' if len(given) != 1 else 'y'} for {fields} swap "
                f"field{'s' if fields != 1 else ''}; give one for each, or one number for all",
                f"/parameters/{name}",
            )
        if isinstance(given, tuple) and resolved.others == "univariate":
            raise ParameterError(
                f"a list of one {name} for each swap field does not cover the remaining fields, which "
                "'univariate' swaps as well; give one number for all",
                f"/parameters/{name}",
            )
    return resolved


# ------------------------------------------------------ algorithm 2, line 1: partition the domain by S and t


def partition_domain(
    params: MewsParams,
    fields: Sequence[FieldValues],
    spread: Callable[[FieldValues], float],
    progress: Progress,
    events: list[Event],
) -> list[Axis]:
    """Cut the domain of each field into intervals of equal width.

    Parameters
    ----------
    params : MewsParams
    fields : sequence of FieldValues
        The values are read only with `degree`; otherwise the ranges suffice.
    spread : callable
        Returns the population standard deviation of a field, for `scale` `sd`.
    progress : Progress
    events : list of Event
        Gets an event if the search for the wanted degree ended early.
    """
    origins = [_origin(params, field, index) for index, field in enumerate(fields)]
    if params.width is not None:
        pairs = enumerate(zip(fields, origins, strict=True))
        return [_axis_of_width(params, field, origin, index, spread) for index, (field, origin) in pairs]
    if params.degree is None:
        cells = [int(_entry(params.bins, index)) for index in range(len(fields))]
    else:
        found = nearest_degree(fields, origins, params.degree, progress)  # definition 1
        cells = [found.cells] * len(fields)
        if found.ended:
            message = (
                f"the search for a degree of {params.degree} ended before it was passed: a few values far "
                "from the rest stretch the range; give 'width' or 'bins', or cap such values"
            )
            events.append(Event("degree_search_ended", message))
    return [axis_of_cells(*each) for each in zip(fields, origins, cells, strict=True)]


def _origin(params: MewsParams, field: FieldValues, index: int) -> float:
    """Return the lower end of a field's first cell; raise SourceError or ParameterError."""
    origin = field.low if params.origin is None else float(_entry(params.origin, index))
    if not (math.isfinite(field.high - origin) and math.isfinite(field.high - field.low)):
        raise SourceError(
            f"the values of field '{field.name}' are further apart, or further from the origin, than "
            "float64 can hold; divide them by a power of ten first"
        )
    if origin > field.low and params.width is None:
        raise ParameterError(
            f"the origin lies above the smallest value of field '{field.name}'; with 'bins' or 'degree' let "
            "cells begin at the smallest value or below it",
            "/parameters/origin",
        )
    return origin


def _axis_of_width(
    params: MewsParams, field: FieldValues, origin: float, index: int, spread: Callable[[FieldValues], float]
) -> Axis:
    """Convert the width to the field's own units and cut the field; raise ParameterError."""
    width = float(_entry(params.width, index))
    if params.scale != "field" and field.low < field.high:
        width *= field.high - field.low if params.scale == "range" else spread(field)
    axis = axis_of_width(field, origin, width) if width > 0 else None
    if axis is None:
        raise ParameterError(
            f"field '{field.name}' would be cut into more than 2^52 cells, which float64 cannot "
            "distinguish; raise its width",
            "/parameters/width",
        )
    return axis


def _entry(given: Any, index: int) -> Any:
    """Return the field's own entry of a list, or the one value for all fields."""
    return given[index] if isinstance(given, tuple) else given


# ----------------------------------------------------- algorithm 2, line 2: allocate each tuple into its bin


def allocate(params: MewsParams, fields: Sequence[FieldValues], progress: Progress) -> Bins:
    """Put every row into the bin of its cell; then merge singletons if the parameters say so.

    Parameters
    ----------
    params : MewsParams
    fields : sequence of FieldValues
        The fields that define the grid, with their values.
    progress : Progress
    """
    events: list[Event] = []
    searched = 0.0 if params.degree is None else 0.5
    axes = partition_domain(params, fields, _spread, sub_progress(progress, 0.0, searched), events)
    progress = sub_progress(progress, searched, 1.0)
    order, starts = rows_by_cell(fields, axes, progress)
    sizes = np.diff(starts)
    singletons = int(np.count_nonzero(sizes == 1))
    merged = 0
    groups = Groups(len(order), order, starts, order[starts[:-1]].astype(np.uint64))
    if singletons and params.singletons == "merge":  # not in the paper
        if singletons < len(sizes):
            groups = merge_singletons(fields, axes, order, starts, progress)
            merged = singletons
        else:
            events.append(NOTHING_TO_MERGE_INTO)
    events += coarse_numbers(fields, axes)
    return Bins(groups, len(sizes), singletons, grid_figures(merged, fields, axes), tuple(events))


def _spread(field: FieldValues) -> float:
    return standard_deviation(field, len(field.values), lambda: [field.values])


# ---------------------------------------- algorithm 2, lines 3 to 6: swap the values of S within every bin


def plan(table: pa.Table, params: MewsParams) -> Plan:
    """Return what `swap` would do, without a random draw."""
    return plan_in_bins(table, params, partial(allocate, params), _suppression(params))


def swap(table: pa.Table, params: MewsParams, stream: Stream, progress: Progress) -> SwapResult:
    """Exchange the swap fields' values together between uniformly random pairs of rows of one bin."""

    def allocate_and_measure(fields: Sequence[FieldValues], bin_progress: Progress) -> Bins:
        bins = allocate(params, fields, bin_progress)
        swap_fields = tuple(field.name for field in fields) == params.swap_fields
        if not swap_fields or params.risk is not None:
            return bins  # P is a measure of the swap fields, of which every row takes part
        depths = minimal_depths(fields, params.widest)  # N* of lemma 2
        privacy = privacy_of_mews(depths or (), int(bins.groups.sizes.min()))
        return replace(bins, measures={P_PRIVACY_KEY: privacy})

    return swap_in_bins(table, params, allocate_and_measure, stream, progress, _suppression(params))


def swap_out_of_core(
    source: Source, params: MewsParams, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Do the same as `swap` with the rows sorted by cell and only some of the cells in memory.

    Raises
    ------
    SourceError
        As `swap`; or the cells are too many to merge singletons within the memory.
    """
    progress(0.0, "reading numbers")
    numbers = Numbers(source, params.swap_fields, params.nulls, unused("row", source.schema.names))
    axes = _axes(params, numbers) if numbers.rows.count else []
    return swap_in_cells(
        source, _swap_params(params, source.schema), numbers, axes,
        _CELLS.merge(params), _CELLS.widest(params), stream, progress, resources,
    )  # fmt: skip


def _axes(params: MewsParams, numbers: Numbers) -> list[Axis]:
    return partition_domain(params, numbers.fields, numbers.spread, no_progress, [])


def _swap_params(params: MewsParams, schema: pa.Schema) -> SwapParams:
    return as_swap(params, schema, _suppression(params))


def _suppression(params: MewsParams) -> Suppression:
    """Return the treatment of the rows that stay alone in their bin."""
    return Suppression(policy="keep") if params.singletons == "keep" else params.suppression


_CELLS = Cells(
    axes=_axes,
    swap=_swap_params,
    merge=lambda params: params.singletons == "merge",
    widest=lambda params: params.widest,
)

PROVIDER = Provider(
    identifier="MEWS",
    title="Multivariate equi-width swapping",
    summary="Exchanges several numeric fields together between rows of one cell of an equal-width grid.",
    revision=3,
    draws_revision=1,
    params=MewsParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "No value moves further than the width of a cell, in any swap field; only in a bin that singletons "
        "have joined (`merge`) can values move further.",
        "The swap fields of a row stay together: their correlations, and every other relation between them, "
        "are exactly what they were.",
        "Every field keeps its values: only their rows change, unless something is suppressed.",
        "Any count of the swap fields alone, such as a histogram, stays as it is. If nothing is merged, so "
        "does every total and mean of a remaining field by cell.",
        "Without `risk`, every row of a bin of two or more receives another row's values.",
        RISK_GUARANTEE,
        uniform_pairs("bin", "bins"),
    ),
    changes=(
        "The row of its bin that a combination of values belongs to.",
        "Correlations of the swap fields with the remaining fields: they come nearer to those of the bins.",
        "A row that is alone in its bin: its values move as far as the nearest bin, or `singletons` decides.",
    ),
    limits=(
        "In a bin of m rows an intruder who knows the grid guesses a row's own values with chance "
        "1/(m - 1): in a bin of two the intruder is certain. `minimal_depth` is the smallest m.",
        "Anyone who knows a row's value of a swap field exactly knows that field of every row in its bin to "
        "within a width: the narrower the cells, the less is hidden.",
        "The combinations of values are those of real rows, and all of them are published: a combination "
        "that identifies a person still does.",
        "Outliers stretch the range: then most rows share few bins, and others are alone.",
        "Fields that are not swapped stay with their row.",
        "Cells are formed of float64 numbers. Integers beyond 2^53 and decimals of more than 15 digits are "
        "rounded for that; the event `coarse_numbers` names a field whose cells are narrow next to it, in "
        "which values may move further than the width.",
        RISK_LIMIT,
    ),
    repeated_releases=(
        "The grid follows from the published values, and no row ever receives its own values. In 20 "
        "releases with different seeds the values that a row never shows are its own: this recovers 99 % of "
        "the rows in cells of two to five rows, and 1 % in cells of over 50 rows (svcensus, age and income, "
        "40 cells a field).",
        "Release a source once. A rerun with the same seed gives the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=bin_fields_read,
        memory=bin_memory,
        cut="Rows are sorted by cell into scratch space and exchanged bin by bin. While singletons are "
        "merged, every cell that holds rows takes about 130 bytes of memory, and 40 more for each field "
        "beyond two. With `degree`, whose search reads all rows for each grid that it tries, and with "
        "`others` set to `univariate` the table is not cut: the fields must then fit in memory, at about 76 "
        "bytes a row for two float64 fields and 22 for each further field. With `risk` the run is not cut "
        "either, since risks depend on the whole table. The units of a divided job are runs of consecutive "
        "whole cells.",
        swap=swap_out_of_core,
        can_cut=lambda params: params.degree is None and params.others == "keep" and params.risk is None,
        least=least_memory,
        sharing=sharing_of_cells(_CELLS),
    ),
    cost="O(n p) time for n rows and p swap fields; `degree` takes the same again for each number of cells "
    "that it tries. Each singleton costs a search of the nearest bin, quick in few fields. Memory: 8 n "
    "bytes for each 64 bits of a cell's id, with at most 53 bits per field.",
    special_values=(
        *MOVED_VALUES,
        "A table of one row has no other bin: `suppression` decides about its values, unless `singletons` is "
        "`keep`.",
        "A field without two different values is one cell. 0.0 and -0.0 are in the same cell.",
        "`nulls` decides about nulls, NaN and infinities of a field that defines bins. A range that float64 "
        "cannot hold is an error.",
    ),
    instead=(
        "MEDS, if every bin shall hold about the same number of rows.",
        "DDSWAP, if one field, not several, defines which rows are close.",
        "CDSWAP, if classes are given and not derived from numbers.",
    ),
    references=(
        "Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities",
        "Li and Shen 2010, Multivariate equi-width data swapping for private data publication, PAKDD, "
        "LNAI 6118, pp. 208-215",
    ),
    errata=(
        "Table 2 cannot be reproduced under any interpretation: swapping all fields changes no correlation, "
        "and the units of its rows differ.",
        "MEWS does not always distort less than MEDS at equal degree, as the paper claims: at degree 100 "
        "MEDS distorts less on abalone and magic_gamma.",
        "Table 1 integrates over a square that ends at 2, outside of the paper's own range.",
        "The paper does not mention rows that are alone in their bin; its algorithm leaves their values as "
        "they are. Here they are merged by default.",
    ),
)
