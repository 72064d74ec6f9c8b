"""RWN: each value is replaced by that of a random row among its row's near neighbours.

Randomization within neighbourhoods. The neighbourhood of a row is the larger of its k nearest rows and
the rows within epsilon, itself never among them. Each value of the fields to be perturbed is, with
probability q, replaced by the value that a uniformly drawn row of the neighbourhood has in the source:
field by field, each draw on its own, so that one row may give its value to several or to none.

Distances are Euclidean, on numbers scaled to [0, 1] by the source's range, dates and times among them,
and on one-hot categories: two that differ add twice the square of `categorical_weight` to the squared
distance. Text, bytes and booleans are categories; what carries a value, such as a dictionary, makes no
difference. A null can be given like any value. For a distance a missing category is a category of its
own; a missing number is the median, and adds 2 to the squared distance from a row that has one.

References
----------
Perry, Matloff and Tendick 2024, RWN: a novel neighborhood-based method for statistical disclosure
control, arXiv:2210.06687, sections 4 and 8 to 10.
"""

import itertools
from collections import Counter
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from providers import donors as draws
from providers.donors import Donors, Rule, draw_donors, keep_own
from providers.errors import ParameterError, SourceError, did_you_mean
from providers.kernels import Groups, shuffle_groups
from providers.params import MOST_ROWS, Params
from providers.provider import (
    Event,
    Events,
    GroupSize,
    Plan,
    Progress,
    Provider,
    Scaling,
    Summary,
    SwapResult,
    part_of,
)
from providers.rng import Stream
from providers.space import Points, category_codes, check_kinds, encode, kind_of
from providers.table import BoolArray, check_movable, gathered

Int32Array = npt.NDArray[np.int32]

COUNTED = 10_000
"""Neighbourhoods of a table with an epsilon that are counted at most, or nearly so."""

_HARDLY = 0.01  # a category that changes in less of the draws is told of
_MOST_ROWS = 2**31 - 1


class RwnParams(Params):
    """The parameters of RWN."""

    k: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 5
    """Nearest rows that are neighbours; all others where there are no more. [1 or more]"""
    epsilon: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    """Distance up to which all rows are neighbours; a number's range is 1 wide. [0 or more]"""
    q: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability with which a value is replaced. [over 0, up to 1]"""
    distance_fields: tuple[str, ...] = Field(default=(), examples=[["age", "income", "city"]])
    """The fields by which rows are near each other. Default: all fields."""
    perturb_fields: tuple[str, ...] = Field(default=(), examples=[["income", "city"]])
    """The fields whose values are replaced. Default: all fields."""
    categorical_fields: tuple[str, ...] = ()
    """Distance fields that are categories though they look like numbers, such as codes."""
    ordinal_fields: dict[str, tuple[JsonValue, ...]] = Field(
        default={}, examples=[{"size": ["small", "medium", "large"]}]
    )
    """Distance fields whose values have an order: field -> its levels from first to last. They count
    by the place of their level, scaled like a number."""
    categorical_weight: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 1.0
    """Weight of the categories in a distance; 0: they do not count. [0 or more]"""
    ties: Literal["include", "index"] = "include"
    """Of rows that are as far as the k-th nearest (within a relative 1e-9): `include` takes all,
    `index` those with the smallest row numbers."""
    neighbours: Literal["exact", "sample", "partition"] = "exact"
    """Among which rows neighbours are looked for: `exact`, all; `sample`, a random sample of
    `sample_size` rows, the same for every row, which alone give values (the paper's method 1);
    `partition`, those of the row's own part, of `parts` random ones (its method 3)."""
    sample_size: Annotated[int, Field(ge=0, le=MOST_ROWS)] = 0
    """The paper's m, for `neighbours` `sample`: rows of the sample. [2 or more; 0: not given]"""
    parts: Annotated[int, Field(ge=0, le=MOST_ROWS)] = 0
    """The paper's u, for `neighbours` `partition`: parts into which the rows are cut at random.
    [1 or more; 0: not given]"""

    @model_validator(mode="after")
    def _mode_has_its_size(self) -> Self:
        for mode, name, least in (("sample", "sample_size", 2), ("partition", "parts", 1)):
            given = getattr(self, name)
            if self.neighbours == mode and given < least:
                raise PydanticCustomError(
                    "size_missing",
                    "neighbours '{mode}' needs '{name}' of {least} or more",
                    {"mode": mode, "name": name, "least": least},
                )
            if self.neighbours != mode and given:
                raise PydanticCustomError(
                    "size_unused",
                    "'{name}' goes with neighbours '{mode}', not '{given}'",
                    {"mode": mode, "name": name, "given": self.neighbours},
                )
        return self


# --------------------------------------------------------------------------- against a schema, no data


def check(params: RwnParams, schema: pa.Schema) -> RwnParams:
    """The parameters with every field by name.

    Raises
    ------
    ParameterError
        A field is unknown, named twice, or of a type that has no distance or cannot be moved; a field
        is categorical or ordinal and no distance field, or both; a level does not fit.
    SourceError
        Two fields of the source have one name.
    """
    for name, times in Counter(schema.names).items():
        if times > 1:
            raise SourceError(f"the source holds {times} fields named '{name}'")
    chosen = {
        name: getattr(params, name) or tuple(schema.names) for name in ("distance_fields", "perturb_fields")
    }
    for parameter, names in (*chosen.items(), ("categorical_fields", params.categorical_fields)):
        named: set[str] = set()
        for at, name in enumerate(names):
            pointer = f"/parameters/{parameter}/{at}"
            if name not in schema.names:
                raise ParameterError(f"unknown field '{name}'{did_you_mean(name, schema.names)}", pointer)
            if name in named:
                raise ParameterError(f"field '{name}' is named twice", pointer)
            named.add(name)
            if parameter == "perturb_fields":
                check_movable(schema.field(name), pointer)
            if parameter == "categorical_fields" and name not in chosen["distance_fields"]:
                raise ParameterError(f"categorical field '{name}' is not among the distance fields", pointer)
    for name in params.ordinal_fields:
        if name not in chosen["distance_fields"]:
            hint = did_you_mean(name, chosen["distance_fields"])
            raise ParameterError(
                f"ordinal field '{name}' is not among the distance fields{hint}", "/parameters/ordinal_fields"
            )
        if name in params.categorical_fields:
            raise ParameterError(
                f"field '{name}' is both categorical and ordinal: values have an order, or have none",
                "/parameters/ordinal_fields",
            )
    check_kinds(chosen["distance_fields"], params.ordinal_fields, schema)
    return params.model_copy(update=chosen)


# --------------------------------------------------------------------------------------- plan and swap


def plan(table: pa.Table, params: RwnParams) -> Plan:
    """What `swap` would do. Each row has a neighbourhood of its own: of the size said here at least,
    since ties and the rows within epsilon are known only when they have been looked for.
    """  # noqa: D205 - one thought
    _check_rows(table, params)
    points = _points(table, params)
    rows = table.num_rows
    candidates = min(params.sample_size, rows) if params.neighbours == "sample" else rows
    candidates = rows // params.parts if params.neighbours == "partition" else candidates
    least = max(0, min(params.k, candidates - 1))
    moved = sum(table.column(name).nbytes for name in params.perturb_fields)
    searched = 3 * (points.numbers.nbytes + points.codes.nbytes) + 16 * rows
    memory = int(table.nbytes + searched + 4 * rows * len(params.perturb_fields) + moved)
    return Plan(rows, rows, GroupSize(least, float(least), least), 0, 0, memory)


def _check_rows(table: pa.Table, params: RwnParams) -> None:
    """Raise SourceError where the table has too few rows, or too many."""
    rows = table.num_rows
    if rows == 1:
        raise SourceError("the source holds 1 row, which has no neighbour; RWN needs 2 rows or more")
    if rows > _MOST_ROWS:
        raise SourceError(f"the source holds {rows} rows; RWN takes at most {_MOST_ROWS}")
    if params.neighbours == "partition" and rows and params.parts > rows // 2:
        raise SourceError(
            f"{params.parts} parts of {rows} rows leave a row without a neighbour in its part; "
            f"use at most {rows // 2} parts",
            "/parameters/parts",
        )


def _points(table: pa.Table, params: RwnParams) -> Points:
    return encode(
        table,
        params.distance_fields,
        params.categorical_fields,
        params.ordinal_fields,
        params.categorical_weight,
    )


def _parts(rows: int, params: RwnParams, stream: Stream) -> list[tuple[Int32Array, Int32Array]]:
    """Rows, and the candidates for their neighbourhoods."""
    everyone = np.arange(rows, dtype=np.int32)
    if params.neighbours == "exact" or (params.neighbours == "sample" and params.sample_size >= rows):
        return [(everyone, everyone)]
    whole = Groups(rows, None, np.array([0, rows], np.int64), np.zeros(1, np.uint64))
    order = shuffle_groups(whole, stream.key("neighbours"), 1.0).order.astype(np.int32)
    if params.neighbours == "sample":
        return [(everyone, np.sort(order[: params.sample_size]))]
    cuts = [rows * part // params.parts for part in range(params.parts + 1)]
    cut = [np.sort(order[start:stop]) for start, stop in itertools.pairwise(cuts)]
    return [(part, part) for part in cut]


def swap(table: pa.Table, params: RwnParams, stream: Stream, progress: Progress) -> SwapResult:
    """Replace values by those of random neighbours."""
    _check_rows(table, params)
    rows = table.num_rows
    progress(0.0, "scaling")
    points = _points(table, params)
    every = max(1, -(-rows // COUNTED)) if params.epsilon > 0 else 1
    include = params.ties == "include"
    k = min(params.k, max(rows, 1))
    rule = Rule(k, float(params.epsilon), include, every, draws.LISTED, draws.COVER)
    keys = [stream.key(f"donor/{name}") for name in params.perturb_fields]
    drawn = Donors(np.zeros((len(keys), 0), np.int32), np.zeros(0, np.int32))
    if rows:
        parts = _parts(rows, params, stream)
        drawn = draw_donors(points, parts, rule, keys, part_of(progress, 0.05, 0.8))
    del points
    columns = {name: table.column(name) for name in table.schema.names}
    moves = _Moves(rows)
    for at, name in enumerate(params.perturb_fields):
        progress(0.8 + 0.2 * at / len(keys), f"moving {name}")
        kept = np.zeros(rows, np.bool_)
        if params.q < 1:
            keep_own(keys[at], params.q, drawn.rows[at], kept)
        columns[name], changed = gathered(columns[name], drawn.rows[at])
        moves.add(name, kept, changed)
    moved = pa.Table.from_arrays(list(columns.values()), schema=table.schema)
    sizes = drawn.sizes[::every]
    summary = moves.summary(sizes)
    figures = _figures(rows, params, sizes, moves)
    return SwapResult(moved, summary, _events(table, params, moves), figures)


class _Moves:
    """Who drew a donor, and what changed by it, field by field."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.took_part: dict[str, int] = {}
        self.changed: dict[str, int] = {}
        self._drew: BoolArray = np.zeros(rows, np.bool_)
        self._kept: BoolArray = np.zeros(rows, np.bool_)
        self._changed: BoolArray = np.zeros(rows, np.bool_)

    def add(self, name: str, kept: BoolArray, changed: BoolArray) -> None:
        """Count one field's moves."""
        self.took_part[name] = self.rows - int(np.count_nonzero(kept))
        self.changed[name] = int(np.count_nonzero(changed))
        self._drew |= ~kept
        self._kept |= kept
        self._changed |= changed

    @property
    def unchanged(self) -> int:
        """Rows of which no value differs from the source's."""
        return self.rows - int(np.count_nonzero(self._changed))

    def summary(self, sizes: Int32Array) -> Summary:
        """The figures that every report says. A row's group is its neighbourhood."""
        kept = int(np.count_nonzero(self._kept))
        shares = [count / self.rows for count in self.took_part.values() if self.rows]
        size = GroupSize(0, 0.0, 0)
        if len(sizes):
            size = GroupSize(int(sizes.min()), float(np.median(sizes)), int(sizes.max()))
        return Summary(
            rows=self.rows,
            groups=self.rows,
            group_size=size,
            took_part=int(np.count_nonzero(self._drew)),
            took_part_by_field=self.took_part,
            changed=self.changed,
            suppressed=0,
            unswapped=kept,
            unswapped_reasons={"rate": kept} if kept else {},
            achieved_rate=sum(shares) / len(shares) if shares else 0.0,
        )


def _figures(rows: int, params: RwnParams, sizes: Int32Array, moves: _Moves) -> dict[str, Any]:
    """What RWN itself reports.

    The bits are those of all donors that could have been drawn; where only some neighbourhoods were
    counted, those stand for the others.
    """
    distinct, times = np.unique(sizes, return_counts=True)
    bits = float(np.sum(times * np.log2(distinct + (params.q < 1)))) if len(sizes) else 0.0
    scale = rows / len(sizes) if len(sizes) else 0.0
    effective = float(params.k)
    if params.neighbours == "sample":
        effective = params.k * rows / max(1, min(params.sample_size, rows))
    if params.neighbours == "partition":
        effective = float(params.k * params.parts)
    return {
        "neighbourhood_size": {
            "smallest": int(sizes.min()) if len(sizes) else 0,
            "median": float(np.median(sizes)) if len(sizes) else 0.0,
            "mean": float(sizes.mean(dtype=np.float64)) if len(sizes) else 0.0,
            "largest": int(sizes.max()) if len(sizes) else 0,
            "rows_counted": len(sizes),
        },
        "effective_k": effective,
        "unchanged_rows": moves.unchanged,
        "unchanged_share": moves.unchanged / rows if rows else 0.0,
        "matching_bits": bits * scale * len(params.perturb_fields),
    }


def _events(table: pa.Table, params: RwnParams, moves: _Moves) -> Events:
    """What the user has to know of: categories that do not change, rows that leave as they came."""
    events = Events()
    for name, drew in moves.took_part.items():
        changed = moves.changed[name]
        hardly = drew and changed < _HARDLY * drew
        if hardly and _is_nominal(name, params, table.schema) and _varies(table.column(name)):
            message = (
                f"{changed / drew:.2%} of the values drawn differ from those they replaced: nearly "
                f"all neighbours agree on the categorical fields, whose cells hold more than k = {params.k} "
                "rows; "
                "a smaller categorical_weight or a larger k changes more"
            )
            events.add(Event("category_kept", message, field=name))
        elif drew and not changed:
            events.add(Event("nothing_changed", "every value was replaced by an equal one", field=name))
    if moves.unchanged:
        remedy = "a larger q changes more" if params.q < 1 else "their neighbours are like them"
        message = (
            f"{moves.unchanged} of {moves.rows} rows ({moves.unchanged / moves.rows:.1%}) leave as they "
            f"came, with no value changed: {remedy}"
        )
        events.add(Event("rows_unchanged", message))
    return events


def _is_nominal(name: str, params: RwnParams, schema: pa.Schema) -> bool:
    """Whether the field counts in distances as a category."""
    if name not in params.distance_fields or name in params.ordinal_fields or not params.categorical_weight:
        return False
    return name in params.categorical_fields or kind_of(schema.field(name).type) == "nominal"


def _varies(column: pa.ChunkedArray) -> bool:
    """Whether the column holds two values that differ, null being one; an unused entry is none."""
    codes = category_codes(column)
    return bool((codes != codes[0]).any())


PROVIDER = Provider(
    identifier="RWN",
    title="Randomization within neighbourhoods",
    summary="Replaces values by those of random rows among each row's near neighbours.",
    revision=1,
    params=RwnParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "Every value is one that a row within reach has in the source: none is made up.",
        "A row never gives a value to itself, even among rows that are the same.",
        "Each of a row's neighbours is equally likely to give the value, field by field.",
        "Of some donors known, nothing is learnt of the rest.",
    ),
    changes=(
        "Which values occur, and how often: a row may give its value to several rows or to none. Rows far "
        "from all others hardly give to any.",
        "Means and totals a little; relations between fields as far as neighbours differ.",
        "Relations within a row, since each field has a donor of its own.",
    ),
    limits=(
        "Neither anonymity nor differential privacy: nothing bounds what an intruder learns.",
        "Where cells of the categorical fields hold more than k rows, those fields never change at "
        "categorical_weight 1.",
        "At q below 1 part of the rows leaves unchanged: 27 % of svcensus at q = 0.5 and k = 10.",
        "Of svcensus' rows 11 % are closest to what they themselves became at k = 5, 2 % at k = 75; at "
        "q = 0.5 it is 49 % and 32 %.",
        "Values stay near the truth: who needs no exact value learns about as much as before.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: tuple(dict.fromkeys([*params.distance_fields, *params.perturb_fields])),
        memory=lambda params, rows, nbytes: 4 * nbytes + rows * (16 + 4 * len(params.perturb_fields)),
        cut="Not cut: a row's neighbours may stand anywhere, so that the fields which are compared or "
        "replaced must fit in memory, at about 88 bytes a row for two float64 fields and 36 for each more; "
        "the other fields need not. Tables that do not fit can be cut at random "
        "by the caller, one call a part, which is what `neighbours` `partition` does.",
    ),
    cost=(
        "O(n log n) time in few numeric fields, towards O(n^2) beyond some twenty, where no bound excludes "
        "much. Memory: about 24 bytes for each number of the distance fields and 4 for each value "
        "replaced; neighbourhoods are not kept, and those of over 1024 rows not even listed."
    ),
    instead=(
        "MEWS or MEDS, where every value must occur as often as before.",
        "DDSWAP, where one field says who is near.",
        "LOCALITY, where the values themselves may not be published.",
    ),
    references=(
        "Perry, Matloff and Tendick 2024, RWN: a novel neighborhood-based method for statistical "
        "disclosure control, arXiv:2210.06687, sections 4 and 8 to 10",
    ),
    errata=(
        "Equation 2 should end in w'_ip.",
        "IL2 needs the signs of the loadings aligned: a principal component has none of its own.",
        "The figures of its random forest come only from perturbing the training part and testing on "
        "untouched rows; perturbing before the split leaks.",
        "The baseline .628 of that table and one cell, .682, do not reproduce.",
        "The authors' core code is not published; where the text is silent on ties, nulls, constants and "
        "identical rows, what is done here is said above. Of its ways to scale up, a common sample and a "
        "partition are offered.",
    ),
)
