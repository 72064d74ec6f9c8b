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
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import get_num_threads
from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from providers import donors as draws
from providers.donors import Donors, Rule, draw_donors, keepers
from providers.errors import ParameterError, SourceError, did_you_mean
from providers.external.among import Partition, Sample, outside_donors
from providers.external.encoding import Encoding
from providers.external.exchanging import count_sizes
from providers.external.giving import Giving
from providers.groups import Groups
from providers.kernels import shuffle_groups
from providers.own_samples import SAMPLE_BYTES, draw_from_own_samples
from providers.params import MOST_ROWS, Params
from providers.provider import (
    Event,
    Events,
    GroupSize,
    Plan,
    Progress,
    Provider,
    Scaling,
    Streamed,
    Summary,
    SwapResult,
    part_of,
)
from providers.rng import Key, Stream
from providers.space import Points, category_codes, check_kinds, encode, kind_of
from providers.storage import Room, Source
from providers.swapping import group_size_of_counts
from providers.table import BoolArray, check_movable, gathered

Int32Array = npt.NDArray[np.int32]

COUNTED = 10_000
"""Neighbourhoods of a table with an epsilon that are counted at most, or nearly so."""

_HARDLY = 0.01  # a category that changes in less of the draws is told of
_MOST_ROWS = 2**31 - 1


class RwnParams(Params):
    """The parameters of RWN."""

    called_elsewhere: ClassVar[dict[str, str]] = {"swap_fields": "perturb_fields"}

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
    neighbours: Literal["exact", "sample", "own_sample", "partition"] = "exact"
    """Among which rows neighbours are looked for: `exact`, all; `sample`, a random sample of
    `sample_size` rows, the same for every row, which alone give values (the paper's method 1);
    `own_sample`, as many rows drawn for each row anew, so that any may give; `partition`, those of
    the row's own part, of `parts` random ones (its method 3)."""
    sample_size: Annotated[int, Field(ge=0, le=MOST_ROWS)] = 0
    """The paper's m, for `neighbours` `sample` and `own_sample`: rows of a sample.
    [2 or more; 0: not given]"""
    parts: Annotated[int, Field(ge=0, le=MOST_ROWS)] = 0
    """The paper's u, for `neighbours` `partition`: parts into which the rows are cut at random.
    [1 or more; 0: not given]"""

    @model_validator(mode="after")
    def _mode_has_its_size(self) -> Self:
        samples = ("sample", "own_sample")
        for modes, name, least in ((samples, "sample_size", 2), (("partition",), "parts", 1)):
            given = getattr(self, name)
            if self.neighbours in modes and given < least:
                raise PydanticCustomError(
                    "size_missing",
                    "neighbours '{mode}' needs '{name}' of {least} or more",
                    {"mode": self.neighbours, "name": name, "least": least},
                )
            if self.neighbours not in modes and given:
                raise PydanticCustomError(
                    "size_unused",
                    "'{name}' goes with neighbours {modes}, not '{given}'",
                    {"modes": " or ".join(f"'{mode}'" for mode in modes), "name": name,
                     "given": self.neighbours},
                )  # fmt: skip
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
    _check_rows(table.num_rows, params)
    points = _points(table, params)
    rows = table.num_rows
    candidates = rows
    if params.neighbours == "sample":
        candidates = min(params.sample_size, rows)
    elif params.neighbours == "own_sample":
        candidates = min(params.sample_size + 1, rows)  # the row itself is none of its sample
    elif params.neighbours == "partition":
        candidates = rows // params.parts
    least = max(0, min(params.k, candidates - 1))
    moved = sum(table.column(name).nbytes for name in params.perturb_fields)
    searched = 3 * (points.numbers.nbytes + points.codes.nbytes) + 16 * rows
    searched += _sample_bytes(rows, params)
    memory = int(table.nbytes + searched + 4 * rows * len(params.perturb_fields) + moved)
    return Plan(rows, rows, GroupSize(least, float(least), least), 0, 0, memory)


def _check_rows(rows: int, params: RwnParams) -> None:
    """Raise SourceError where the table has too few rows, or too many."""
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
    if params.neighbours in ("exact", "own_sample") or params.sample_size >= rows:
        return [(everyone, everyone)]  # an own sample comes here where it is all others
    whole = Groups(rows, None, np.array([0, rows], np.int64), np.zeros(1, np.uint64))
    order = shuffle_groups(whole, stream.key("neighbours"), 1.0).order.astype(np.int32)
    if params.neighbours == "sample":
        return [(everyone, np.sort(order[: params.sample_size]))]
    cuts = [rows * part // params.parts for part in range(params.parts + 1)]
    cut = [np.sort(order[start:stop]) for start, stop in itertools.pairwise(cuts)]
    return [(part, part) for part in cut]


def _own_sample_is_all(rows: int, params: RwnParams) -> bool:
    """Whether a row's own sample holds all others."""
    return params.neighbours == "own_sample" and params.sample_size >= rows - 1


def _sample_bytes(rows: int, params: RwnParams) -> int:
    """Memory of the samples that are drawn for one row each, by all threads."""
    size = min(params.sample_size, rows) if params.neighbours == "own_sample" else 0
    return SAMPLE_BYTES * size * int(get_num_threads())


def swap(table: pa.Table, params: RwnParams, stream: Stream, progress: Progress) -> SwapResult:
    """Replace values by those of random neighbours."""
    rows = table.num_rows
    _check_rows(rows, params)
    progress(0.0, "scaling")
    points = _points(table, params)
    rule, keys = _rule(rows, params), _keys(params, stream)
    drawn = Donors(np.zeros((len(keys), 0), np.int32), np.zeros(0, np.int32))
    drawing = part_of(progress, 0.05, 0.8)
    if rows and params.neighbours == "own_sample" and not _own_sample_is_all(rows, params):
        order = stream.key("neighbours")
        drawn = draw_from_own_samples(points, params.sample_size, rule, order, keys, drawing)
    elif rows:
        drawn = draw_donors(points, _parts(rows, params, stream), rule, keys, drawing)
    del points
    columns = {name: table.column(name) for name in table.schema.names}
    moves = _Moves(params.perturb_fields)
    for at, name in enumerate(params.perturb_fields):
        progress(0.8 + 0.2 * at / len(keys), f"moving {name}")
        kept = _kept(keys[at], params, 0, rows)
        if params.q < 1:
            drawn.rows[at][kept] = np.flatnonzero(kept)
        columns[name], changed = gathered(columns[name], drawn.rows[at])
        moves.add(name, kept, changed)
    moves.end_range()
    moved = pa.Table.from_arrays(list(columns.values()), schema=table.schema)
    sizes: Counter[int] = Counter()
    count_sizes(sizes, drawn.sizes[:: rule.every].astype(np.int64))
    figures = _figures(rows, params, sizes, moves)
    events = _events(table.schema, params, moves, lambda name: _varies(table.column(name)))
    return SwapResult(moved, moves.summary(sizes), events, figures)


def _rule(rows: int, params: RwnParams) -> Rule:
    every = max(1, -(-rows // COUNTED)) if params.epsilon > 0 else 1
    k = min(params.k, max(rows, 1))
    return Rule(k, float(params.epsilon), params.ties == "include", every, draws.LISTED, draws.COVER)


def _keys(params: RwnParams, stream: Stream) -> list[Key]:
    return [stream.key(f"donor/{name}") for name in params.perturb_fields]


def _kept(key: Key, params: RwnParams, first: int, rows: int) -> BoolArray:
    """Which rows, of so many from one on, keep their own value."""
    from_whole = first % 128
    kept = np.zeros(from_whole + rows, np.bool_)
    if params.q < 1:
        keepers(key, params.q, first - from_whole, kept)
    return kept[from_whole:]


def swap_out_of_core(
    source: Source, params: RwnParams, stream: Stream, progress: Progress, room: Room
) -> Streamed:
    """Replace values by those of random neighbours, found in a tree on the disk, cell by cell."""
    rows = source.rows
    _check_rows(rows, params)
    rule, keys = _rule(rows, params), _keys(params, stream)
    encoding = Encoding(
        source, params.distance_fields, params.categorical_fields, params.ordinal_fields,
        params.categorical_weight, room,
    )  # fmt: skip
    layout = encoding.look(part_of(progress, 0.0, 0.1))
    giving = Giving(source, params.perturb_fields, room)
    sizes: Counter[int] = Counter()
    if rows:
        among: Sample | Partition | None = None
        if params.neighbours == "sample" and params.sample_size < rows:
            among = Sample(params.sample_size)
        elif params.neighbours == "partition":
            among = Partition(params.parts)
        key = stream.key("neighbours")
        found = outside_donors(
            encoding, layout, among, key, rule, keys, room, part_of(progress, 0.1, 0.8)
        )  # fmt: skip
        for drawn in found:
            giving.ask(drawn)
            count_sizes(sizes, drawn.sizes[drawn.rows % rule.every == 0].astype(np.int64))
        giving.fetch(part_of(progress, 0.8, 0.9))
    moves = _Moves(params.perturb_fields)
    key_of = dict(zip(params.perturb_fields, keys, strict=True))

    def kept(name: str, first: int, count: int) -> BoolArray:
        return _kept(key_of[name], params, first, count)

    def pieces() -> Iterator[pa.Table]:
        for piece in giving.pieces(kept, moves.add):
            moves.end_range()
            yield piece

    def result() -> SwapResult:
        events = _events(source.schema, params, moves, encoding.varies)
        figures = _figures(rows, params, sizes, moves)
        return SwapResult(source.schema.empty_table(), moves.summary(sizes), events, figures)

    return Streamed(source.schema, pieces(), result)


class _Moves:
    """Who drew a donor, and what changed by it, field by field, one range of rows after the other."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.rows = 0
        self.took_part: dict[str, int] = dict.fromkeys(fields, 0)
        self.changed: dict[str, int] = dict.fromkeys(fields, 0)
        self.unchanged = 0
        """Rows of which no value differs from the source's."""
        self._drew = self._kept = 0
        self._of_range: tuple[BoolArray, BoolArray, BoolArray] | None = None
        """Which rows of the range drew, kept a value, changed."""

    def add(self, name: str, kept: BoolArray, changed: BoolArray) -> None:
        """Count one field's moves in a range."""
        if self._of_range is None:
            drew, some_kept, some_changed = (np.zeros(len(kept), np.bool_) for _ in range(3))
            self._of_range = drew, some_kept, some_changed
        drew, some_kept, some_changed = self._of_range
        self.took_part[name] += len(kept) - int(np.count_nonzero(kept))
        self.changed[name] += int(np.count_nonzero(changed))
        drew |= ~kept
        some_kept |= kept
        some_changed |= changed

    def end_range(self) -> None:
        """All fields of a range have been counted."""
        if self._of_range is not None:
            drew, kept, changed = self._of_range
            self.rows += len(drew)
            self._drew += int(np.count_nonzero(drew))
            self._kept += int(np.count_nonzero(kept))
            self.unchanged += len(drew) - int(np.count_nonzero(changed))
            self._of_range = None

    def summary(self, sizes: Counter[int]) -> Summary:
        """The figures that every report says. A row's group is its neighbourhood."""
        shares = [count / self.rows for count in self.took_part.values() if self.rows]
        return Summary(
            rows=self.rows,
            groups=self.rows,
            group_size=group_size_of_counts(sizes),
            took_part=self._drew,
            took_part_by_field=self.took_part,
            changed=self.changed,
            suppressed=0,
            unswapped=self._kept,
            unswapped_reasons={"rate": self._kept} if self._kept else {},
            achieved_rate=sum(shares) / len(shares) if shares else 0.0,
        )


def _figures(rows: int, params: RwnParams, sizes: Counter[int], moves: _Moves) -> dict[str, Any]:
    """What RWN itself reports.

    The bits are those of all donors that could have been drawn; where only some neighbourhoods were
    counted, those stand for the others.
    """
    distinct = np.array(sorted(sizes), np.int64)
    times = np.array([sizes[size] for size in distinct.tolist()], np.int64)
    counted = sizes.total()
    bits = float(np.sum(times * np.log2(distinct + (params.q < 1)))) if counted else 0.0
    scale = rows / counted if counted else 0.0
    size = group_size_of_counts(sizes)
    effective = float(params.k)
    if params.neighbours in ("sample", "own_sample"):
        effective = params.k * rows / max(1, min(params.sample_size, rows))
    if params.neighbours == "partition":
        effective = float(params.k * params.parts)
    return {
        "neighbourhood_size": {
            "smallest": size.smallest,
            "median": size.median,
            "mean": int(np.sum(distinct * times)) / counted if counted else 0.0,
            "largest": size.largest,
            "rows_counted": counted,
        },
        "effective_k": effective,
        "unchanged_rows": moves.unchanged,
        "unchanged_share": moves.unchanged / rows if rows else 0.0,
        "matching_bits": bits * scale * len(params.perturb_fields),
    }


def _events(schema: pa.Schema, params: RwnParams, moves: _Moves, varies: Callable[[str], bool]) -> Events:
    """What the user has to know of: categories that do not change, rows that leave as they came.

    ``varies``: whether a category field holds two values that differ.
    """
    events = Events()
    for name, drew in moves.took_part.items():
        changed = moves.changed[name]
        hardly = drew and changed < _HARDLY * drew
        if hardly and _is_nominal(name, params, schema) and varies(name):
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
    revision=2,
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
        memory=lambda params, rows, nbytes: (
            4 * nbytes + rows * (16 + 4 * len(params.perturb_fields)) + _sample_bytes(rows, params)
        ),
        cut="The tree in which neighbours are looked for lies on the disk in cells that fit; a row looks "
        "into its own cell, then into every other that may hold a nearer row. In a few numeric fields "
        "those are the ones beside it; in many, all of them are read again for every few thousand rows, and "
        "so are those within reach of neighbourhoods that are too large to be listed. Of the rows looked "
        "at together the k nearest are in memory, at 12 bytes each: a k of which those of 16 rows do not "
        "fit is refused. In memory as a whole it takes about 88 bytes a row for two float64 fields and 36 "
        "for each more. Not so with `neighbours` `own_sample`, whose rows are anywhere in the table: all "
        "must then fit; `sample` and `partition` need not.",
        swap=swap_out_of_core,
        can_cut=lambda params: params.neighbours != "own_sample",
    ),
    cost=(
        "O(n log n) time in few numeric fields, towards O(n^2) beyond some twenty, where no bound excludes "
        "much. Memory: about 24 bytes for each number of the distance fields and 4 for each value "
        "replaced; neighbourhoods are not kept, and those of over 1024 rows not even listed. With "
        "`own_sample` O(n m) time for samples of m rows, in any number of fields: it is slower than `exact` "
        "in few."
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
        "identical rows, what is done here is said above. Of its three ways to scale up, `sample` is the "
        "first and `partition` the third; `own_sample` is in the place of the second, whose wording we "
        "had no sight of.",
    ),
)
