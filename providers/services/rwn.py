"""RWN: replace values by values of randomly drawn near neighbours.

Randomization within neighbourhoods. The neighbourhood of a row contains its k nearest rows or all rows
within the distance epsilon, whichever are more, but never the row itself. Each value of the perturbed
fields is replaced with probability q. The new value is the source value of a row that is drawn uniformly
from the neighbourhood. All values are drawn independently, so that one row may give its value to several
rows or to none.

Distances are Euclidean. Numbers, dates and times are scaled to [0, 1] by their range in the source. Text,
bytes and booleans are categories and count as if one-hot encoded: two different categories add twice the
square of `categorical_weight` to the squared distance. The encoding of a column, such as a dictionary, makes
no difference. A missing category is a category of its own. A missing number counts as the median, and adds
2 to the squared distance from a row whose number is present. A null can be drawn like any other value.

By default all rows are candidates for a neighbourhood. If that takes too long, `neighbours` restricts the
candidates to a random sample of rows, to a random sample of pairs of rows, or to a random part of the
table. In a sample of pairs a row may have fewer than k candidates; then all of them are its neighbours. A
row without any candidate draws k other rows at random. The report counts the rows of both kinds.

References
----------
Perry, Matloff and Tendick 2024, RWN: a novel neighborhood-based method for statistical disclosure
control, arXiv:2210.06687, sections 4 and 8 to 10.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from providers.errors import ParameterError, did_you_mean
from providers.neighbours.candidates import CandidateRows, Method, OrderKeys, draw_from_candidates
from providers.neighbours.out_of_core.distribute import sharing_of_neighbours
from providers.neighbours.out_of_core.release import release_out_of_core
from providers.neighbours.points import Points, category_codes, check_kinds, encode
from providers.neighbours.release import ReleaseTally, check_rows, donor_keys, kept_rows, neighbour_rule
from providers.params import MOST_ROWS, Params
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Provider, Scaling, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import GroupSize, Plan, SwapResult, group_size
from providers.storage import Resources, Source
from providers.tables.columns import check_movable, gathered
from providers.tables.schemas import check_unique_names

SEARCHED_ROWS = 10_000
"""Most rows of a table whose neighbourhoods a plan searches: tenths of a second in few dimensions."""


class RwnParams(Params):
    """Parameters of RWN."""

    known_aliases: ClassVar[dict[str, str]] = {"swap_fields": "perturb_fields"}

    k: Annotated[int, Field(ge=1, le=MOST_ROWS, title="Neighbourhood size (k)")] = 5
    """Number of nearest rows in a neighbourhood. A table with fewer other rows uses all of them.
    [1 or more]"""
    epsilon: Annotated[
        float, Field(ge=0, le=1e6, allow_inf_nan=False, title="Distance of neighbours (epsilon)")
    ] = 0.0
    """Distance within which all rows are neighbours, even if there are more than k such rows. The range of a
    numeric field has length 1. [0 or more]"""
    q: Annotated[float, Field(gt=0, le=1, title="Share of values replaced (q)")] = 1.0
    """Probability with which each value is replaced. [over 0, up to 1]"""
    distance_fields: tuple[str, ...] = Field(default=(), examples=[["age", "income", "city"]])
    """Fields from which distances between rows are computed. Default: all fields."""
    perturb_fields: tuple[str, ...] = Field(default=(), examples=[["income", "city"]])
    """Fields whose values are replaced. Default: all fields."""
    categorical_fields: tuple[str, ...] = ()
    """Distance fields that are categories although their values are numbers, such as codes."""
    ordinal_fields: dict[str, tuple[JsonValue, ...]] = Field(
        default={}, examples=[{"size": ["small", "medium", "large"]}]
    )
    """Distance fields whose values have an order: field -> its levels from first to last. A value counts
    as the position of its level, scaled like a number."""
    categorical_weight: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 1.0
    """Weight of the categories in a distance. 0 leaves them out. [0 or more]"""
    ties: Literal["include", "index"] = "include"
    """Treatment of rows as far away as the k-th nearest row (within a relative 1e-9): `include` takes all of
    them, `index` takes those with the smallest row numbers."""
    neighbours: Literal["exact", "sample", "own_sample", "pairs", "partition"] = "exact"
    """Candidate rows for the neighbourhood of a row. `exact`: all rows. `sample`: a random sample of
    `sample_size` rows, the same for every row; only these rows give values (the paper's method 1, section
    10.3.1). `own_sample`: a separate random sample of `sample_size` rows for each row, so that any row may
    give values (the variant in the same section). `pairs`: the rows with which a row is paired in a random
    sample of all pairs of rows; a pair makes each of its rows a candidate of the other (method 2, section
    10.3.2). `partition`: the rows of the same part, after the table has been divided at random into `parts`
    parts (method 3, section 10.3.3)."""
    within: Method = "exact"
    """Candidate rows within a part, if `neighbours` is `partition`. `exact`: all rows of the part (first
    approach of method 3). `sample`, `own_sample` or `pairs`: as for `neighbours`, separately in each part
    (second approach)."""
    sample_size: Annotated[int, Field(ge=0, le=MOST_ROWS)] = 0
    """Number of rows in a sample, for `sample`, `own_sample` and `pairs` (the paper's m). With `pairs`, the
    number of pairs is half of m times the number of rows, rounded down: on average a row is paired with m
    others. [2 or more; 0: not given]"""
    parts: Annotated[int, Field(ge=0, le=MOST_ROWS)] = 0
    """Number of random parts into which the rows are divided, if `neighbours` is `partition` (the paper's
    u). [1 or more; 0: not given]"""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        is_partition = self.neighbours == "partition"
        if self.within != "exact" and not is_partition:
            raise PydanticCustomError(
                "within_unused",
                "'within' goes with neighbours 'partition', not '{given}'",
                {"given": self.neighbours},
            )
        mode, value = ("within", self.within) if is_partition else ("neighbours", self.neighbours)
        samples = "'sample', 'own_sample' or 'pairs'"
        self._check_size("sample_size", 2, mode, value, value in ("sample", "own_sample", "pairs"), samples)
        self._check_size("parts", 1, "neighbours", self.neighbours, is_partition, "'partition'")
        return self

    def _check_size(self, name: str, least: int, mode: str, value: str, is_needed: bool, modes: str) -> None:
        """Raise PydanticCustomError if a size is missing, or is given but not used."""
        given = getattr(self, name)
        context = {"name": name, "least": least, "mode": mode, "value": value, "modes": modes}
        if is_needed and given < least:
            raise PydanticCustomError(
                "size_missing", "{mode} '{value}' needs '{name}' of {least} or more", context
            )
        if not is_needed and given:
            raise PydanticCustomError(
                "size_unused", "'{name}' goes with {mode} {modes}, not '{value}'", context
            )

    @property
    def candidates(self) -> CandidateRows:
        """Candidate rows as the search takes them."""
        if self.neighbours == "partition":
            return CandidateRows(self.within, self.sample_size, self.parts)
        return CandidateRows(self.neighbours, self.sample_size)


# ------------------------------------------------------------------------------- the method, section 4.1


def release(source: pa.Table, params: RwnParams, stream: Stream, progress: Progress) -> ReleaseTally:
    """Form the released data W' from the source W (section 4.1).

    Row i has the record r_i and the neighbourhood S_i. Field j runs over the perturbed fields. Each field
    has a random stream of its own, so that the p choices of step 3 are independent of each other.
    """
    n = source.num_rows
    tally = ReleaseTally(source.schema, params)
    rule, keys = neighbour_rule(n, params), donor_keys(params, stream)

    # Step 1, equation 1: the record r_i = (w_i1, ..., w_ip), as a point.
    progress(0.0, "scaling")
    points = _points(source, params)

    # Step 2: S_i holds the k nearest records of r_i or those within epsilon, whichever are more, without
    # r_i itself. All neighbourhoods together would not fit in memory. Therefore a record of S_i is drawn for
    # every j, with replacement, while S_i is at hand; step 3 decides if it is used.
    donors, tally.neighbourhoods.shortage = draw_from_candidates(
        points, params.candidates, OrderKeys.of(stream), rule, keys, sub_progress(progress, 0.05, 0.8)
    )  # fmt: skip
    tally.neighbourhoods.add_sizes(donors.sizes[:: rule.count_every])
    del points  # frees memory that the next step needs

    # Step 3: for j = 1, ..., p: with probability q, w'_ij is the value of the drawn record, else w_ij.
    columns = {name: source.column(name) for name in source.schema.names}
    for j, name in enumerate(params.perturb_fields):
        progress(0.8 + 0.2 * j / len(keys), f"moving {name}")
        kept = kept_rows(keys[j], params.q, 0, n)
        if params.q < 1:
            donors.rows[j][kept] = np.flatnonzero(kept)
        columns[name], changed = gathered(columns[name], donors.rows[j])
        tally.add(name, kept, changed)
    tally.end_range()

    # Step 4, equation 2: the released record r'_i = (w'_i1, ..., w'_ip).
    tally.table = pa.Table.from_arrays(list(columns.values()), schema=source.schema)
    return tally


def _points(source: pa.Table, params: RwnParams) -> Points:
    """Scale the numbers to [0, 1] and encode the categories (section 4.1, step 2)."""
    return encode(
        source,
        params.distance_fields,
        params.categorical_fields,
        params.ordinal_fields,
        params.categorical_weight,
    )


# ------------------------------------------------------------------------------------ check, plan and swap


def check(params: RwnParams, schema: pa.Schema) -> RwnParams:
    """Check the parameters against a schema, and return them with all field names filled in.

    Raises
    ------
    ParameterError
        A field is unknown, is named twice, or has a type that has no distances or cannot be moved. Or a
        categorical or ordinal field is no distance field, or is both. Or a level does not fit its field.
    SourceError
        Two fields of the source have the same name.
    """
    check_unique_names(schema)
    chosen = {
        name: getattr(params, name) or tuple(schema.names) for name in ("distance_fields", "perturb_fields")
    }
    known = set(schema.names)
    distance_fields, categorical_fields = set(chosen["distance_fields"]), set(params.categorical_fields)
    for parameter, names in (*chosen.items(), ("categorical_fields", params.categorical_fields)):
        seen: set[str] = set()
        for index, name in enumerate(names):
            pointer = f"/parameters/{parameter}/{index}"
            if name not in known:
                raise ParameterError(f"unknown field '{name}'{did_you_mean(name, schema.names)}", pointer)
            if name in seen:
                raise ParameterError(f"field '{name}' is named twice; name it once", pointer)
            seen.add(name)
            if parameter == "perturb_fields":
                check_movable(schema.field(name), pointer)
            if parameter == "categorical_fields" and name not in distance_fields:
                raise ParameterError(f"categorical field '{name}' is not among the distance fields", pointer)
    for name in params.ordinal_fields:
        if name not in distance_fields:
            hint = did_you_mean(name, chosen["distance_fields"])
            raise ParameterError(
                f"ordinal field '{name}' is not among the distance fields{hint}", "/parameters/ordinal_fields"
            )
        if name in categorical_fields:
            raise ParameterError(
                f"field '{name}' is both categorical and ordinal: values have an order, or have none",
                "/parameters/ordinal_fields",
            )
    check_kinds(chosen["distance_fields"], params.ordinal_fields, schema)
    return params.model_copy(update=chosen)


def plan(table: pa.Table, params: RwnParams) -> Plan:
    """Return the plan of a run.

    Each row has a neighbourhood of its own. Ties and the rows within epsilon are known only after the search,
    which takes about as long as the run. The plan searches tables of at most `SEARCHED_ROWS` rows if all rows
    are candidates; else it states a lower bound of the sizes.
    """
    check_rows(table.num_rows, params)
    points = _points(table, params)
    rows = table.num_rows
    least = params.candidates.least(rows, params.k)
    perturbed = sum(table.column(name).nbytes for name in params.perturb_fields)
    search = 3 * (points.numbers.nbytes + points.codes.nbytes) + 16 * rows
    search += params.candidates.work_bytes(rows, params.k)
    memory = int(table.nbytes + search + 4 * rows * len(params.perturb_fields) + perturbed)
    is_searched = (
        rows <= SEARCHED_ROWS and params.candidates.method == "exact" and not params.candidates.parts
    )
    return Plan(
        rows=rows,
        groups=rows,
        group_size=_sizes(points, params) if is_searched else GroupSize(least, float(least), least),
        unswappable_rows=0,
        unswappable_groups=0,
        estimated_memory_bytes=memory,
        group_size_is_exact=is_searched,
        expected_part_by_field=dict.fromkeys(params.perturb_fields, params.q * rows),
    )


def _sizes(points: Points, params: RwnParams) -> GroupSize:
    """Return the sizes of the neighbourhoods that a run counts, with all rows as candidates."""
    rule, no_draw = neighbour_rule(len(points.numbers), params), Stream(bytes(32), "RWN", 0)
    donors, _ = draw_from_candidates(
        points, params.candidates, OrderKeys.of(no_draw), rule, [no_draw.key("plan")], no_progress
    )
    return group_size(donors.sizes[:: rule.count_every].astype(np.int64))


def swap(table: pa.Table, params: RwnParams, stream: Stream, progress: Progress) -> SwapResult:
    """Replace values by those of random neighbours."""
    check_rows(table.num_rows, params)
    return release(table, params, stream, progress).result(lambda name: _varies(table.column(name)))


def _varies(column: pa.ChunkedArray) -> bool:
    """Whether the column holds two different values. Null counts as one, unused dictionary entries do not."""
    codes = category_codes(column)
    return bool((codes != codes[0]).any())


def swap_out_of_core(
    source: Source, params: RwnParams, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Replace values by values of random neighbours, in a table larger than memory; equal to `swap`."""
    return release_out_of_core(source, params, stream, progress, resources)


PROVIDER = Provider(
    identifier="RWN",
    title="Randomization within neighbourhoods",
    summary="Replaces each value by the value of a random row among the row's near neighbours.",
    revision=3,
    draws_revision=2,
    params=RwnParams,
    check=check,
    check_rows=lambda params, rows: check_rows(rows, params),
    plan=plan,
    swap=swap,
    guarantees=(
        "Every new value is the source value of a neighbour: no value is invented.",
        "A row is never its own neighbour, even if other rows are identical to it.",
        "In each field, all neighbours of a row are equally likely to give the value.",
        "Donors are drawn independently of each other. With `neighbours` `exact`, anyone who learns some "
        "donors learns nothing about the others. With the other settings a known donor reveals part of the "
        "sample or of the partition. The seed stays hidden.",
    ),
    changes=(
        "Frequencies of values: a row may give its value to several rows or to none. Rows far from all "
        "others rarely give a value.",
        "Means and totals, slightly. Relations between fields, as far as neighbours differ.",
        "Relations within a row, because each field has a donor of its own.",
    ),
    limits=(
        "RWN provides neither k-anonymity nor differential privacy: nothing bounds what an intruder learns.",
        "At `categorical_weight` 1 the categorical fields of a row never change if more than k rows share "
        "its combination of categories.",
        "At q below 1 some rows are released unchanged: 27 % of svcensus at q = 0.5 and k = 10.",
        "For 11 % of the rows of svcensus at k = 5, and 2 % at k = 75, the closest released row is their "
        "own; at q = 0.5 these are 49 % and 32 %.",
        "Values stay near the truth: an intruder who needs no exact value learns about as much as before.",
    ),
    repeated_releases=(
        "At q below 1 the value that a row has most often over several releases tends to be its own: 20 "
        "releases with different seeds reveal 96 % of svcensus' incomes at q = 0.5 and k = 5, 99 % at k = 25 "
        "and at k = 75; 52 % "
        "at q = 0.8 and k = 5.",
        "At q = 1 a row never receives its own value, but 20 releases show the values of its neighbours: in "
        "31 % of the rows at k = 5 the most frequent value equals the row's own income, because many "
        "neighbours share a value.",
        "Release a source once. A rerun with the same seed returns the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: tuple(dict.fromkeys([*params.distance_fields, *params.perturb_fields])),
        memory=lambda params, rows, nbytes: (
            4 * nbytes
            + rows * (16 + 4 * len(params.perturb_fields))
            + params.candidates.work_bytes(rows, params.k)
        ),
        least=lambda params, rows: params.candidates.needed_bytes(rows),
        cut="The k-d tree is stored on disk, divided into cells that fit in memory. The search for a row's "
        "neighbours starts in its own cell and continues in every cell that may hold a nearer row. With few "
        "numeric fields these are the adjacent cells. With many fields all cells are read again for every "
        "few thousand rows, and so are the cells that overlap neighbourhoods too large to be listed. "
        "The k nearest rows of a batch of rows are in memory, at 12 bytes each; a k is refused if those of "
        "16 rows do not fit. A search wholly in memory takes about 88 bytes a row for two float64 fields and "
        "36 for each further field. With `neighbours` `own_sample` or `pairs` candidates are anywhere in the "
        "table, so that all rows must fit in memory, with `pairs` also 6 n m bytes for the pairs. `sample` "
        "and `partition` have no such limit. With `within` `own_sample` or `pairs` one part at a time must "
        "fit: more parts need less memory. The units of a divided job are ranges of the tree's leaves, or of "
        "whole parts; all workers build the tree, and one stores the parts.",
        swap=swap_out_of_core,
        sharing=sharing_of_neighbours(),
        can_cut=lambda params: params.neighbours not in ("own_sample", "pairs"),
    ),
    cost=(
        "O(n log n) time in few numeric fields, growing towards O(n^2) beyond about twenty, where bounds "
        "exclude few rows. Memory: about 24 bytes for each number of the distance fields and 4 for each "
        "replaced value. Neighbourhoods are not stored, and those of over 1024 rows are not listed. "
        "`own_sample` and `pairs` take O(n m) time for samples of m rows, in any number of fields, which is "
        "slower than `exact` in few fields. `pairs` takes up to 6 n m bytes of memory."
    ),
    special_values=(
        "A table without rows is a valid result. A single row has no neighbour, which is an error.",
        "Of equal rows all are neighbours with `ties` `include`, and those with the k smallest row numbers "
        "with `index`. If every value drawn equals the one that it replaces, the event `nothing_changed` "
        "names the field.",
        "A field without two different values has no part in distances.",
        "NaN counts as a missing number. An infinity in a distance field is an error; in another field it "
        "moves like any value.",
        "0.0 and -0.0 are at distance 0. Numbers are counted from the least of their field, so that integers "
        "beyond 2^53 that are close to each other keep their distances. Released values are exact.",
    ),
    instead=(
        "MEWS or MEDS, if every value must occur as often as before.",
        "DDSWAP, if a single field determines which rows are near each other.",
        "LOCALITY, if the values themselves may not be published.",
    ),
    references=(
        "Perry, Matloff and Tendick 2024, RWN: a novel neighborhood-based method for statistical "
        "disclosure control, arXiv:2210.06687, sections 4 and 8 to 10",
    ),
    errata=(
        "Equation 2 should end in w'_ip.",
        "IL2 needs the signs of the loadings aligned, because the sign of a principal component is "
        "arbitrary.",
        "The paper's random forest figures are reproduced only by perturbing the training rows and testing "
        "on unperturbed rows; perturbing before the split leaks.",
        "In that table the baseline .628 and one cell, .682, cannot be reproduced.",
        "The authors' core code is not published. The paper does not specify the treatment of ties, nulls, "
        "constants and identical rows; the treatment here is described above. Of the three methods for large "
        "tables (section 10.3), `sample` is method 1, `own_sample` its variant with a distinct sample for "
        "each row, `pairs` method 2, and `partition` method 3, with `within` as its second approach.",
        "A sample of the distance matrix may leave a row with fewer than k candidates, or with none; section "
        "10.3.2 specifies neither case. Here a row with fewer takes all of them as its neighbours, and a row "
        "with none draws k other rows. The report counts the rows of both kinds.",
    ),
)
