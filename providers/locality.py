"""LOCALITY: values are redrawn so that who is nearer to whom stays as it was.

Each field is cut into segments of consecutive records. Within a segment, a locality says of three values
which of two neighbours is the nearer; it is a linear relation among the sorted values. A share of them is
kept, and always the order. What satisfies them is a polytope, and a random point of it, found by a random
walk, takes the place of the segment's values. Each field and each segment is drawn on its own.

All relations that are kept hold in the destination exactly, in its float64 numbers, without a tolerance.

References
----------
Xue, Karras, Raissi and Pung 2011, Utility-driven anonymization in data publishing, CIKM: definitions 1 and
2, algorithm 1, section 4, equations 1 to 6.
"""

from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from providers.errors import ParameterError, SourceError, did_you_mean, reference_token
from providers.external.redrawing import redraw_outside, sharing_of_segments
from providers.literals import literal
from providers.localities import BOTH_SIDED, FREE, ONE_SIDED
from providers.numeric import is_numeric
from providers.params import Params, StrictModel
from providers.provider import Plan, Progress, Provider, Scaling, Streamed, SwapResult, part_of
from providers.publication import COLUMN, KEEP, SEGMENT
from providers.redrawing import RATES_BYTES, Law, redraw
from providers.redrawn import destination
from providers.rng import Stream
from providers.segmentation import BYTES_OF_A_VALUE, FieldLaw, Segmentation
from providers.segmented import segment_counts
from providers.storage import Room, Source
from providers.swapping import group_size_of_counts
from providers.units import below_encodings, whole_units
from providers.walk import FORWARD, ROUNDED, WHOLE_CHORD

_TIES = {"free": FREE, "one_sided": ONE_SIDED, "equal": BOTH_SIDED}
_BOUNDS = {"segment": SEGMENT, "column": COLUMN, "keep": KEEP}
_DIRECTIONS = {"rounded": ROUNDED, "hit_and_run": WHOLE_CHORD, "paper": FORWARD}

PAPER: dict[str, Any] = {
    "segment_size": 100,
    "bounds": "column",
    "walk": "paper",
    "start": "data",
    "iterations": {"total": 4000},
}
"""What the profile `paper` puts in the place of defaults."""


class Steps(StrictModel):
    """A number of steps that does not depend on the segment."""

    total: Annotated[int, Field(ge=1, le=10_000_000)]
    """Steps of each segment's walk. [1 to 10000000]"""


class LocalityParams(Params):
    """The parameters of LOCALITY."""

    fields: tuple[str, ...] = Field(min_length=1, examples=[["age", "hours-per-week"]])
    """The fields whose values are redrawn: numbers, or dates, which count as days since 1970. [1 or more]"""
    profile: Literal["rowveil", "paper"] = "rowveil"
    """`paper`: where not given, segment_size 100, bounds column, walk paper, start data and iterations
    {"total": 4000}; the order, strict relations, pruning, repair and check stay."""
    segment_size: Annotated[int, Field(ge=3, le=1000)] = 20
    """Records of a segment; a last piece of under half of it joins the one before. [3 to 1000]"""
    sigma: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of a segment's localities that are kept, rounded up. [over 0, up to 1]"""
    bounds: Literal["segment", "column", "keep"] = "segment"
    """Where a segment's values may lie: `segment`, in its own range, widened by `margin` at each end but not
    beyond the domain; `column`, in the domain; `keep`, between its two ends, which are published."""
    margin: Annotated[float, Field(ge=0, le=1000)] | Literal["gap"] = "gap"
    """Share of a segment's range by which bounds `segment` widens it at each end; `gap`: 1/(n-1) for n
    distinct values, the mean distance of neighbours. [0 to 1000]"""
    domain: dict[str, Annotated[tuple[JsonValue, ...], Field(min_length=2, max_length=2)]] = Field(
        default={}, examples=[{"age": [0, 120]}]
    )
    """Field -> the least and the greatest value that may be published. Default: with bounds `column` the
    field's own range, which is then disclosed; with `segment` what the type can hold."""
    ties: Literal["free", "one_sided", "equal"] = "free"
    """Of three values at equal distances: `free` keeps nothing, `one_sided` that the upper is no nearer, as
    the paper's algorithm has it, `equal` that they are at equal distances."""
    duplicates: Literal["collapse", "spread"] = "collapse"
    """Equal values of a segment: `collapse`, they stay equal; `spread`, each is drawn on its own, and every
    relation holds for all of them."""
    walk: Literal["rounded", "hit_and_run", "paper"] = "rounded"
    """`rounded`: along the axes of the polytope made round; `hit_and_run`: in Gaussian directions; `paper`:
    in Gaussian directions, forward only, the ends walked along (unless bounds is `keep`)."""
    iterations: Annotated[int, Field(ge=1, le=100_000)] | Steps = 40
    """Steps of a segment's walk for each distinct value (for each value with duplicates `spread`), or
    {"total": steps}. [1 to 100000]"""
    start: Literal["centre", "data"] = "centre"
    """Where the walk starts: at the polytope's analytic centre, or at the source's own values (with ties on
    the boundary, 1/1024 of the way from them to the centre)."""
    decimals: Annotated[int, Field(ge=0, le=15)] | Literal["off"] = "off"
    """Decimals that values are rounded to, every kept relation holding for the rounded values. Integers and
    dates at 0, and decimals at their own scale, keep their type; all else comes out as float64. [0 to 15]"""

    @model_validator(mode="before")
    @classmethod
    def _profile_fills_in(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("profile") == "paper":
            return PAPER | data
        return data

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
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


# ------------------------------------------------------------------------------------ against a schema


def check(params: LocalityParams, schema: pa.Schema) -> LocalityParams:
    """The parameters, every field of which is there and a number or a date, every domain of its type."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SourceError(f"the source holds {schema.names.count(name)} fields named '{name}'")
    for at, name in enumerate(params.fields):
        pointer = f"/parameters/fields/{at}"
        if name not in schema.names:
            raise ParameterError(f"unknown field '{name}'{did_you_mean(name, schema.names)}", pointer)
        if name in params.fields[:at]:
            raise ParameterError(f"field '{name}' is named twice", pointer)
        field = schema.field(name)
        if not _is_number(below_encodings(field.type)):
            raise ParameterError(
                f"field '{name}' has type {field.type}; LOCALITY computes with numbers: "
                "integers, floats, decimals or dates",
                pointer,
            )
    for name in params.domain:
        pointer = f"/parameters/domain/{reference_token(name)}"
        if name not in params.fields:
            raise ParameterError(
                f"domain for '{name}', which is not redrawn{did_you_mean(name, params.fields)}", pointer
            )
        domain = _domain(params, schema.field(name))
        if domain is not None and not domain[0] <= domain[1]:
            raise ParameterError(f"domain of '{name}' must be [least, greatest], in this order", pointer)
    return params


def _is_number(kind: pa.DataType) -> bool:
    return is_numeric(kind) or bool(pa.types.is_date(kind))


def _domain(params: LocalityParams, field: pa.Field) -> tuple[Any, Any] | None:
    """The field's domain, in whole units where its type has such; None where it is the field's own range."""
    if field.name not in params.domain:
        return None
    kind = below_encodings(field.type)
    pointer = f"/parameters/domain/{reference_token(field.name)}"
    ends = []
    for at, value in enumerate(params.domain[field.name]):
        scalar = literal(value, pa.field(field.name, kind), "domain", f"{pointer}/{at}")
        if pa.types.is_date(kind):
            ends.append(scalar.cast(pa.date32()).cast(pa.int32()).as_py())
        elif pa.types.is_decimal(kind):
            ends.append(int(scalar.as_py().scaleb(kind.scale)))
        else:
            ends.append(scalar.as_py())
    return ends[0], ends[1]


def plan(table: pa.Table, params: LocalityParams) -> Plan:
    """What `swap` would do."""
    segments = segment_counts(table.num_rows, params.segment_size)
    return Plan(
        rows=table.num_rows,
        groups=segments.total(),
        group_size=group_size_of_counts(segments),
        unswappable_rows=0,
        unswappable_groups=0,
        estimated_memory_bytes=int(
            table.nbytes + table.num_rows * len(params.fields) * BYTES_OF_A_VALUE + 2 * RATES_BYTES
        ),
    )


# ------------------------------------------------------------------------------------ the swap


def swap(table: pa.Table, params: LocalityParams, stream: Stream, progress: Progress) -> SwapResult:
    """The table with the fields' values redrawn, every kept relation holding."""
    progress(0.0, "sorting")
    segmentation = _segmentation(params, table.schema, stream)
    redrawn = redraw(segmentation.of_table(table), segmentation.law, part_of(progress, 0.05, 0.95))
    progress(0.95, "reporting")
    made, figures = destination(table, redrawn)
    return segmentation.report(made, figures, table.num_rows)


def _segmentation(params: LocalityParams, schema: pa.Schema, stream: Stream) -> Segmentation:
    fields = {}
    for name in params.fields:
        field = schema.field(name)
        kind = below_encodings(field.type)
        fields[name] = FieldLaw(
            key=stream.key(f"localities/{name}"),
            domain=_domain(params, field),
            whole=None if params.decimals == "off" else whole_units(kind, params.decimals),
        )
    return Segmentation(
        fields=fields,
        size=params.segment_size,
        bounds=_BOUNDS[params.bounds],
        margin=None if params.margin == "gap" else float(params.margin),
        decimals=None if params.decimals == "off" else params.decimals,
        law=_law(params),
    )


def swap_out_of_core(
    source: Source, params: LocalityParams, stream: Stream, progress: Progress, room: Room
) -> Streamed:
    """As `swap`, in ranges of whole segments: once to know the fields' own ranges, once to redraw."""
    return redraw_outside(source, _segmentation(params, source.schema, stream), progress, room)


def _law(params: LocalityParams) -> Law:
    return Law(
        ties=_TIES[params.ties],
        sigma=params.sigma,
        bounds=_BOUNDS[params.bounds],
        directions=_DIRECTIONS[params.walk],
        from_data=params.start == "data",
        spread=params.duplicates == "spread",
        iterations=params.iterations if isinstance(params.iterations, int) else _SWEEPS,
        total=0 if isinstance(params.iterations, int) else params.iterations.total,
    )


_SWEEPS = 40
"""Sweeps of a walk on the grid, where the iterations are given in all."""


PROVIDER = Provider(
    identifier="LOCALITY",
    title="Redrawing by localities",
    summary="Redraws numeric values at random so that relations of nearness among them stay as they were.",
    revision=1,
    params=LocalityParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "Every locality that is kept holds in the destination, checked exactly on the published numbers.",
        "Within a segment values keep their order; equal values stay equal unless they are spread.",
        "No value leaves the domain given for its field. Nulls stay where they are.",
        "A segment's values are a random point of what its kept relations and its bounds leave; they depend "
        "on nothing else of the source, as far as the walk has mixed, which the report tells.",
    ),
    changes=(
        "Every value of the fields; no field keeps its set of values.",
        "Integers, decimals and dates (as days since 1970) become float64, unless decimals keep their type.",
        "Localities that are not kept: the report says how many of all still hold.",
        "Correlations between fields, the more so the larger the segments.",
    ),
    limits=(
        "There is no formal guarantee: neither anonymity nor differential privacy.",
        "All relations of segments of 100 or more fix the data almost completely. Rounding recovers, of "
        "adult's ages in segments of 100, 94 % after the paper's own walk, 96 % with bounds keep, 38 % "
        "otherwise; in segments of 20, 18 %.",
        "An intruder learns the order within a segment, and with it who has the least and greatest value.",
        "A segment's bounds follow its own range; bounds keep publishes its least and greatest value.",
        "Bounds column disclose the field's range, unless a domain is given.",
        "Additive noise of the same size answers range-average queries as well.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: params.fields,
        memory=lambda params, rows, nbytes: (
            2 * nbytes
            + rows * len(params.fields) * BYTES_OF_A_VALUE
            + min(2 * RATES_BYTES, 4096 * rows * len(params.fields))
        ),
        cut="Into ranges of whole segments, which are independent of each other but for the range and the "
        "unit of their field: one pass finds these, the next redraws. Units of a shared job are ranges of "
        "rows; from a million rows on a job is shared even where it fits.",
        swap=swap_out_of_core,
        sharing=sharing_of_segments(_segmentation),
    ),
    cost=(
        "For n distinct values of a segment O(n^2) to extract, O(n^3) for the centre, and a step for each of "
        "the rows that are left after pruning, up to about n^2 / 4: 40 n steps make O(n^3) again. Memory: "
        "110 bytes a value, and 128 MB."
    ),
    instead=(
        "MEWS or MEDS, where every field is to keep its own values.",
        "RWN, where values are to stay possible combinations of categories and numbers.",
    ),
    references=(
        "Xue, Karras, Raissi and Pung 2011, Utility-driven anonymization in data publishing, CIKM",
        "Smith 1984, Operations Research 32(6), doi:10.1287/opre.32.6.1296",
    ),
    errata=(
        "The pseudocode's >= takes ties for relations; the prose is strict, and so are we. Under >= integers "
        "do not move at all: age and education-num of adult at 100 rows.",
        "|x_i - x_j| is linear only under a known order, which the paper does not keep: a third to two "
        "thirds of its relations break. Here the order is always kept.",
        "The forward step of the walk, uniform on [0, l], is not uniform in the polytope: in one dimension "
        "it is the arcsine law. Here it is uniform on the whole chord, unless walk is paper.",
        "From the data, where ties put them on the boundary, the walk does not get away; it starts at the "
        "centre, or a little inside.",
        "Segments of sorted values hold a single age each; segments are taken in record order.",
        "Bounds of the whole column let a segment of close values spread over all of it; by default the "
        "segment's own range, a little widened, bounds it.",
        "Relations that others imply are kept by the paper as rows; a third of them are enough.",
        "That clustering is always better than after random perturbation holds in the paper's own setting, "
        "within 5 %, and not in general.",
    ),
)
