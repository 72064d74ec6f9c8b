"""LOCALITY: redraws numeric values at random and keeps which of two values is nearer to a third.

Each field is cut into segments of consecutive records. A locality compares three values of a segment: it
says which of the outer two is nearer to the middle one. For sorted values this is a linear inequality. The
order of the values is always kept, and so is a share of the localities. The points that satisfy all kept
relations form a polytope. A random walk finds a random point of it, which replaces the segment's values.
Every field and every segment is drawn independently of the others.

All kept relations hold exactly for the published numbers, without a tolerance.

Relations of your own (`relations`, definition 1) are kept in addition to the share of localities. The
polytope of a segment with such relations contains the bounds as well, because the relations may change when
all values are shifted or stretched. Segments without such relations are redrawn as if there were none.

References
----------
Xue, Karras, Raissi and Pung 2011, Utility-driven anonymization in data publishing, CIKM: definitions 1 and
2, algorithm 1, section 4, equations 1 to 6.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from providers.localities.domains import check_fields, domain_of
from providers.localities.out_of_core import redraw_out_of_core, sharing_of_segments
from providers.localities.properties import (
    Relations,
    check_records,
    check_relations,
    properties_by_field,
)
from providers.localities.redraw import RATES_BYTES, Batch, RedrawSettings, redraw
from providers.localities.relations import BOTH_SIDED, FREE, NEAREST, ONE_SIDED, UNIFORM, WIDEST
from providers.localities.report import destination
from providers.localities.segment_arrays import COLUMN, FORWARD, KEEP, ROUNDED, SEGMENT, WHOLE_CHORD
from providers.localities.segmentation import FieldSettings, Segmentation, bytes_of_row
from providers.localities.segments import segment_counts
from providers.params import Params, StrictModel
from providers.progress import Progress, sub_progress
from providers.provider import Provider, Scaling, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import Plan, SwapResult, group_size_of_counts
from providers.storage import Resources, Source
from providers.tables.numbers import whole_units
from providers.tables.type_names import below_encodings

# ------------------------------------------------------------------------------------ parameters

PAPER: dict[str, Any] = {
    "segment_size": 100,
    "bounds": "column",
    "walk": "paper",
    "start": "data",
    "iterations": {"total": 4000},
}
"""Values that replace the defaults in the profile `paper` (sections 4.1 and 5.1)."""


class Steps(StrictModel):
    """A number of steps that is the same for every segment."""

    total: Annotated[int, Field(ge=1, le=10_000_000)]
    """Steps of each segment's walk. [1 to 10000000]"""


class LocalityParams(Params):
    """The parameters of LOCALITY."""

    known_aliases: ClassVar[dict[str, str]] = {"swap_fields": "fields"}

    fields: tuple[str, ...] = Field(min_length=1, examples=[["age", "hours-per-week"]])
    """Fields whose values are redrawn: numbers, or dates, which count as days since 1970. [1 or more]"""
    profile: Literal["rowveil", "paper"] = "rowveil"
    """`paper` changes the defaults to the paper's values: segment_size 100, bounds column, walk paper, start
    data and iterations {"total": 4000}. Order, strict relations, pruning, repair and the exact check stay."""
    segment_size: Annotated[int, Field(ge=3, le=1000)] = 20
    """Number of consecutive records in a segment. A last segment with fewer than half as many records joins
    the segment before it. [3 to 1000]"""
    sigma: Annotated[float, Field(gt=0, le=1, title="Share of localities kept (sigma)")] = 0.1
    """Share of a segment's localities that are kept; their number is rounded up. [over 0, up to 1]"""
    bounds: Literal["segment", "column", "keep"] = "segment"
    """Range of a segment's new values. `segment`: the segment's own range, widened by `margin` at each end
    and limited by the domain. `column`: the whole domain. `keep`: between the segment's least and greatest
    value, which are published unchanged."""
    margin: Annotated[float, Field(ge=0, le=1000)] | Literal["gap"] = "gap"
    """Widening at each end with bounds `segment`, as a share of the segment's range. `gap`: 1/(n-1) for n
    distinct values, which is the mean distance between neighbouring values. [0 to 1000]"""
    domain: dict[str, Annotated[tuple[JsonValue, ...], Field(min_length=2, max_length=2)]] = Field(
        default={}, examples=[{"age": [0, 120]}]
    )
    """Field -> least and greatest value that may be published. Default with bounds `column`: the field's own
    range, which is then disclosed. Default with bounds `segment`: the range of the field's type."""
    relations: Relations = Field(
        default=(), examples=[[{"coefficients": {"max": 1, "min": -1}, "at_most": 500}]]
    )
    """Relations of your own (properties of interest) that are kept in addition to the localities. Each says
    that a sum of coefficients times values is at most a number, and must hold on the source. [up to 100]"""
    selection: Literal["uniform", "nearest", "widest"] = "uniform"
    """Choice of the localities that are kept. `uniform`: a random sample. `nearest`: the localities with the
    smallest reach, which is the distance between the outer two of the three values. `widest`: the localities
    with the largest reach. Localities of equal reach are taken in ascending order of the middle value, then
    of the least value."""
    ties: Literal["free", "one_sided", "equal"] = "free"
    """Treatment of three values at equal distances. `free`: no relation is kept. `one_sided`: the upper value
    does not become the nearer value, as in the paper's algorithm. `equal`: the distances stay equal."""
    duplicates: Literal["collapse", "spread"] = "collapse"
    """Treatment of equal values in a segment. `collapse`: they stay equal. `spread`: each is drawn
    separately, and every kept relation holds for all of them."""
    walk: Literal["rounded", "hit_and_run", "paper"] = "rounded"
    """Directions and steps of the random walk. `rounded`: along the axes of the rounded polytope.
    `hit_and_run`: in Gaussian directions. `paper`: in Gaussian directions, forward only, and with the two
    ends of the segment as variables of the walk (unless bounds is `keep`)."""
    iterations: Annotated[int, Field(ge=1, le=100_000)] | Steps = 40
    """Steps of a segment's walk per distinct value (per value with duplicates `spread`), or
    {"total": steps} for the same number of steps in every segment. [1 to 100000]"""
    start: Literal["centre", "data"] = "centre"
    """Starting point of the walk. `centre`: the analytic centre of the polytope. `data`: the source's values;
    if ties place these on the boundary, 1/1024 of the way from them to the centre."""
    decimals: Annotated[int, Field(ge=0, le=15)] | Literal["off"] = "off"
    """Decimals to which values are rounded; every kept relation holds for the rounded values. Integers and
    dates at 0, and decimals at their own scale, keep their type; all other results are float64. [0 to 15]"""

    @model_validator(mode="before")
    @classmethod
    def _apply_profile(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("profile") == "paper":
            return PAPER | data
        return data

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.margin != "gap" and self.bounds != "segment":
            raise PydanticCustomError(
                "margin_unused",
                "a margin goes with bounds 'segment', not '{bounds}'",
                {"bounds": self.bounds},
            )
        for other, value in (
            ("duplicates", "spread" if self.duplicates == "spread" else None),
            ("bounds", "keep" if self.bounds == "keep" else None),
            ("decimals", self.decimals if self.decimals != "off" else None),
        ):
            if self.ties == "equal" and value is not None:
                raise PydanticCustomError(
                    "ties_unfit",
                    "ties 'equal' to the last bit do not go with {other} {value}; use 'one_sided' or 'free'",
                    {"other": other, "value": str(value)},
                )
        return self


_TIES = {"free": FREE, "one_sided": ONE_SIDED, "equal": BOTH_SIDED}

_SELECTIONS = {"uniform": UNIFORM, "nearest": NEAREST, "widest": WIDEST}

_BOUNDS = {"segment": SEGMENT, "column": COLUMN, "keep": KEEP}

_DIRECTIONS = {"rounded": ROUNDED, "hit_and_run": WHOLE_CHORD, "paper": FORWARD}

_SWEEPS = 40
"""Sweeps of the walk on the grid if `iterations` is a total."""


def check(params: LocalityParams, schema: pa.Schema) -> LocalityParams:
    """Return the parameters. Raise ParameterError if a field, a domain or a relation does not fit."""
    check_fields(params.fields, params.domain, schema)
    check_relations(params.relations, params.fields, params.ties)
    return params


def _check_records(params: LocalityParams, rows: int) -> None:
    """Raise ParameterError if a relation names records that a table of this many rows does not have."""
    check_records(params.relations, params.segment_size, rows)


# ------------------------------------------------------------------------------------ the method


def segmentation_of(params: LocalityParams, schema: pa.Schema, stream: Stream) -> Segmentation:
    """Return the segments of every field and the constraints H on their values (section 4.2 and H of 4)."""
    fields = {}
    properties = properties_by_field(params.relations, params.fields)
    for name in params.fields:
        field = schema.field(name)
        kind = below_encodings(field.type)
        fields[name] = FieldSettings(
            key=stream.key(f"localities/{name}"),
            domain=domain_of(params.domain, field),
            type_range=None if params.decimals == "off" else whole_units(kind, params.decimals),
            properties=tuple(properties.get(name, ())),
        )
    return Segmentation(
        fields=fields,
        size=params.segment_size,
        margin=None if params.margin == "gap" else float(params.margin),
        decimals=None if params.decimals == "off" else params.decimals,
        settings=_redraw_settings(params),
        anonymise=anonymise,
    )


def anonymise(batch: Batch) -> None:
    """Replace the values of each segment of a batch separately: the two phases of the paper.

    D = (d_1, ..., d_n) are the sorted values of a segment, X = (x_1, ..., x_n) the variables that replace
    them, and Q is the set of relations that X keeps.
    """
    # Section 3, properties extraction phase. Definition 2 and algorithm 1: the localities of D; a share sigma
    # of them is kept, and those that others imply are left out (rules 1 and 2).
    batch.extract_localities()
    # Definition 1: relations sum c_i x_i <= lambda of the user's own.
    batch.add_relations()
    # Section 4, value substitution phase: Q and the bounds H define the polytope S. Unlike in the paper, the
    # walk may start at the analytic centre of S and take its directions from the shape of S.
    batch.find_centres()
    # Section 4.1: steps X + theta dX. Equations 1 to 5 give the range of theta from the slacks V and their
    # rates dV; theta is uniform on the whole range or, with walk `paper`, on [0, l].
    batch.walk()
    # Not in the paper: round X to numbers that can be published, and verify every relation of Q exactly.
    batch.publish()


def _redraw_settings(params: LocalityParams) -> RedrawSettings:
    return RedrawSettings(
        ties=_TIES[params.ties],
        sigma=params.sigma,
        bounds=_BOUNDS[params.bounds],
        directions=_DIRECTIONS[params.walk],
        from_data=params.start == "data",
        spread=params.duplicates == "spread",
        iterations=params.iterations if isinstance(params.iterations, int) else _SWEEPS,
        total=0 if isinstance(params.iterations, int) else params.iterations.total,
        selection=_SELECTIONS[params.selection],
    )


# ------------------------------------------------------------------------------------ plan and swap


def _bytes_of_row(params: LocalityParams) -> int:
    properties = properties_by_field(params.relations, params.fields)
    return bytes_of_row(len(params.fields), properties.values(), params.segment_size)


def plan(table: pa.Table, params: LocalityParams) -> Plan:
    """Return the segments that `swap` would redraw, and an estimate of its memory."""
    _check_records(params, table.num_rows)
    segments = segment_counts(table.num_rows, params.segment_size)
    return Plan(
        rows=table.num_rows,
        groups=segments.total(),
        group_size=group_size_of_counts(segments),
        unswappable_rows=0,
        unswappable_groups=0,
        estimated_memory_bytes=int(table.nbytes + table.num_rows * _bytes_of_row(params) + 2 * RATES_BYTES),
    )


def swap(table: pa.Table, params: LocalityParams, stream: Stream, progress: Progress) -> SwapResult:
    """Redraw the values of the fields so that every kept relation holds."""
    progress(0.0, "sorting")
    _check_records(params, table.num_rows)
    segmentation = segmentation_of(params, table.schema, stream)
    segmented = segmentation.of_table(table)
    redrawn = redraw(segmented, segmentation.settings, anonymise, sub_progress(progress, 0.05, 0.95))
    progress(0.95, "reporting")
    redrawn_table, figures = destination(table, redrawn)
    return segmentation.report(redrawn_table, figures, table.num_rows)


def swap_out_of_core(
    source: Source, params: LocalityParams, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Redraw as `swap` in ranges of whole segments: one pass finds the fields' ranges, the next redraws."""
    _check_records(params, source.rows)
    return redraw_out_of_core(source, segmentation_of(params, source.schema, stream), progress, resources)


# ------------------------------------------------------------------------------------ declaration

PROVIDER = Provider(
    identifier="LOCALITY",
    title="Redrawing by localities",
    summary="Redraws numeric values at random, and keeps which of two values is nearer to a third value.",
    revision=3,
    draws_revision=1,
    params=LocalityParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "Every kept locality holds in the destination; this is checked exactly on the published numbers.",
        "Every relation of your own holds in each segment to which it applies: its sum, computed exactly "
        "from the published float64 numbers and rounded once, is at most the limit.",
        "The values of a segment keep their order. Equal values stay equal unless duplicates is 'spread'.",
        "No value lies outside the domain given for its field. Nulls stay where they are.",
        "The new values of a segment are a random point of the polytope that its kept relations and bounds "
        "define. They depend on nothing else in the source as far as the walk has mixed; the report "
        "estimates this.",
    ),
    changes=(
        "Every value of the fields; no field keeps its set of values.",
        "The type: integers, decimals and dates (as days since 1970) become float64, unless the parameter "
        "decimals lets them keep their type.",
        "Localities that are not kept: the report states the share of all localities that still hold.",
        "Correlations between fields; they change more in larger segments.",
    ),
    limits=(
        "There is no formal guarantee: neither anonymity nor differential privacy.",
        "All localities together fix the values of a segment of 100 or more records almost completely. "
        "Rounding the released ages of adult recovers the source's age in 94 % of the records (segments of "
        "100, the paper's own walk), 96 % (bounds keep), 38 % (other settings) and 18 % (segments of 20).",
        "An intruder learns the order within a segment, and so which record has the least and the greatest "
        "value.",
        "The bounds of a segment follow its own range; bounds keep publishes its least and greatest value.",
        "Bounds column discloses the field's range unless a domain is given.",
        "Additive noise of the same size answers range-average queries just as accurately.",
        "A relation of your own discloses its content to anyone who knows it. Tight limits bring the "
        "source's values back: a segment whose relations allow no other values is published unchanged, and "
        "an event counts such segments.",
    ),
    repeated_releases=(
        "Each release draws the values again within the same relations and bounds, so the mean of several "
        "releases with different seeds approaches the source. Distance of adult's ages from the mean of 20 "
        "releases, in standard deviations (in brackets: from one release): segments of 20, all localities "
        "kept, 4.9 % (18 %); a tenth of them kept, 15 % (35 %); segments of 100, a tenth kept, 2.8 % (11 %).",
        "Release a source once. A rerun with the same seed gives the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: params.fields,
        memory=lambda params, rows, nbytes: (
            2 * nbytes + rows * _bytes_of_row(params) + min(2 * RATES_BYTES, 4096 * rows * len(params.fields))
        ),
        cut="Into row ranges of whole segments. Segments are independent of each other except for the range "
        "and the unit of their field: one pass finds these, the next redraws. The units of a divided job are "
        "row ranges; jobs of a million rows or more are divided even if they fit into memory.",
        swap=swap_out_of_core,
        sharing=sharing_of_segments(segmentation_of, _check_records),
    ),
    cost=(
        "For a segment of n distinct values: O(n^2) to extract the localities and O(n^3) to find the centre. "
        "A step of the walk is linear in the number of constraints left after pruning, at most about "
        "n^2 / 4, so 40 n steps are O(n^3). Memory: 110 bytes per value, and 128 MB. A segment with "
        "relations of your own took 1.4 to 3.4 times as long (20 and 100 records; a tenth and all of the "
        "localities), and each mean in them adds 160 bytes per value."
    ),
    special_values=(
        "A table without rows is a valid result. A segment with fewer than three different values has no "
        "locality: only its order is kept, with the event `no_localities`.",
        "A segment of one value, such as a single row, has no range: with `bounds` `segment` or `keep` it is "
        "published as it is, with `column` it moves within the domain.",
        "Nulls stay where they are. NaN and infinities are errors.",
        "0.0 and -0.0 are one value, and are published as one number.",
        "Integers and decimals of up to 64 bits are compared exactly, and published as float64: beyond 2^53 "
        "different values may become equal. With `decimals` 0 integers stay integers.",
    ),
    instead=(
        "MEWS or MEDS, if every field must keep its own set of values.",
        "RWN, if records must stay plausible combinations of categories and numbers.",
    ),
    references=(
        "Xue, Karras, Raissi and Pung 2011, Utility-driven anonymization in data publishing, CIKM",
        "Smith 1984, Operations Research 32(6), doi:10.1287/opre.32.6.1296",
    ),
    errata=(
        "The pseudocode's >= makes a relation of every tie, while the text is strict; this service follows "
        "the text. With >=, integers do not move at all: age and education-num of adult at 100 rows.",
        "|x_i - x_j| is linear only if the order is known, and the paper does not keep the order: a third to "
        "two thirds of its relations break. Here the order is always kept.",
        "The paper's forward step, uniform on [0, l], does not lead to a uniform point of the polytope: in "
        "one dimension the result follows the arcsine law. Here a step is uniform on the whole chord, unless "
        "walk is 'paper'.",
        "A walk that starts at the source's values cannot leave the boundary if ties place them on it. Here "
        "it starts at the centre, or a little inside.",
        "Segments of sorted values would hold a single age each; segments are taken in record order.",
        "With the bounds of the whole column, a segment of close values spreads over the whole column. By "
        "default a segment is bounded by its own range, slightly widened.",
        "Definition 1 requires a limit lambda greater than 0. Here it may be any number; otherwise a lower "
        "bound could not be expressed.",
        "The paper mentions other ways to select localities than at random and gives none. 'nearest' and "
        "'widest' select by the reach d_k - d_i of a locality.",
        "The paper keeps relations that others imply as constraints; a third of them are sufficient.",
        "Clustering is better than after random perturbation in the paper's own setting, within 5 %, but not "
        "in general.",
    ),
)
