"""PABIDOT: all rows are rotated, reflected and moved together, given noise, and shuffled.

Each numeric field becomes z-scores. Of 172 rotations, each with a reflection of any one field, the one
is taken that makes the least variance of a field's difference large; a random translation, noise away
from zero and a random order of the rows follow, and the fields get back their means and deviations.

References
----------
Chamikara et al. 2019, Information Sciences 527, doi:10.1016/j.ins.2019.05.053, sections 3 and 4.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from numba import get_num_threads, njit, prange
from pydantic import Field

from providers.errors import ParameterError, SourceError, did_you_mean
from providers.external.assembly import append_events
from providers.external.parts import Reader, Span, in_ranges
from providers.external.shuffling import Shuffle
from providers.kernels import reorder, shuffle_rows
from providers.moments import BLOCK, FloatArray, Moments, MomentsSoFar, moments
from providers.numeric import check_numeric, float_values, is_numeric
from providers.params import Params
from providers.provider import (
    Division,
    Event,
    Events,
    GroupSize,
    Plan,
    Progress,
    Provider,
    Run,
    Scaling,
    Sharing,
    Streamed,
    Summary,
    SwapResult,
    UnitDone,
    no_progress,
    part_of,
)
from providers.radix import IndexArray, Int64Array
from providers.rng import Stream
from providers.rotation import ANGLES, Choice, choose, perturb
from providers.storage import Room, Source, Spool
from providers.table import BoolArray, check_movable, combined, null_mask, take, words_array, words_of


class PabidotParams(Params):
    """The parameters of PABIDOT."""

    fields: tuple[str, ...] = Field(default=(), examples=[["age", "income"]])
    """The numeric fields to perturb; they come out as float64. Default: every numeric field that is no
    label. [2 or more that are not constant]"""
    label_fields: tuple[str, ...] = Field(default=(), examples=[["class"]])
    """Numeric fields that are labels, such as a class: they keep their values and move with their row.
    Other fields that are not perturbed, text among them, do the same without being named."""
    sigma: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.3
    """Standard deviation of the noise, in standard deviations of each field. At 0.3 values can be
    recovered almost exactly from known marginals. [0 to 1 000 000]"""
    selection: Literal["paper", "definition"] = "paper"
    """`paper`: the angle whose worst axis of reflection is best, and that worst axis; `definition`:
    the angle and axis with the largest phi."""
    shuffle: bool = True
    """true: the rows come out in a random order, all fields of a row together; false: in their own."""
    nulls: Literal["fail", "drop_from_fit"] = "fail"
    """`fail`: a null, NaN or infinity in a field to perturb is an error; `drop_from_fit`: its row
    passes through unperturbed in every field, in the open, and takes no part in the fit."""


# --------------------------------------------------------------------------- against a schema, no data


def check(params: PabidotParams, schema: pa.Schema) -> PabidotParams:
    """The parameters with every field to perturb by name."""
    for name, times in Counter(schema.names).items():
        if times > 1:
            raise SourceError(f"the source holds {times} fields named '{name}'")
    _check_names(params.label_fields, "label_fields", schema)
    _check_names(params.fields, "fields", schema)
    labels = set(params.label_fields)
    for at, name in enumerate(params.fields):
        pointer = f"/parameters/fields/{at}"
        if name in labels:
            raise ParameterError(f"field '{name}' is both to be perturbed and a label", pointer)
        check_numeric(schema.field(name), "PABIDOT", pointer)
    numeric = tuple(field.name for field in schema if is_numeric(field.type) and field.name not in labels)
    fields = params.fields or numeric
    if len(fields) < 2:
        raise ParameterError(
            f"PABIDOT rotates two or more numeric fields together; {'given' if params.fields else 'there'} "
            f"{'is' if len(fields) == 1 else 'are'} {len(fields)}",
            "/parameters/fields",
        )
    if params.shuffle:
        for field in schema:
            check_movable(field, "/parameters/shuffle")
    return params.model_copy(update={"fields": fields})


def _check_names(names: tuple[str, ...], parameter: str, schema: pa.Schema) -> None:
    named: set[str] = set()
    known = set(schema.names)
    for at, name in enumerate(names):
        pointer = f"/parameters/{parameter}/{at}"
        if name not in known:
            raise ParameterError(f"unknown field '{name}'{did_you_mean(name, schema.names)}", pointer)
        if name in named:
            raise ParameterError(f"field '{name}' is named twice", pointer)
        named.add(name)


# ------------------------------------------------------------------------------------------- the fit


@njit(cache=True, nogil=True, parallel=True)
def _take_in(numbers, values, absent, chunks):
    """Copy the numbers, mark the rows whose number is not finite; how many are NaN, how many infinite."""
    rows = len(numbers)
    counts = np.zeros((chunks, 16), np.int64)  # a cache line each
    for chunk in prange(chunks):
        for row in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            number = numbers[row]
            values[row] = number
            if not np.isfinite(number):
                absent[row] = True
                counts[chunk, 1 if np.isinf(number) else 0] += 1
    return counts[:, 0].sum(), counts[:, 1].sum()


@dataclass(frozen=True, slots=True)
class _Fit:
    """The source's numbers, and what is known of them."""

    values: FloatArray
    """Shape (fields, rows); NaN where null."""
    valid: dict[str, BoolArray]
    """Field -> where it is not null, of the fields that hold nulls."""
    absent: BoolArray | None
    """Rows that pass through unperturbed."""
    moments: Moments
    varying: list[int]
    """The fields that are not constant."""

    @property
    def correlation(self) -> FloatArray:
        """Of the fields that are not constant."""
        return self.moments.correlation(np.array(self.varying, np.int64))


def _numbers(column: pa.ChunkedArray) -> FloatArray:
    """The column's numbers, NaN for null, read-only; without a copy where they are float64 in one chunk."""
    if column.type == pa.float64() and column.null_count == 0:
        return words_of(combined(column)).view(np.float64)
    numbers = float_values(column)
    numbers.flags.writeable = False
    return numbers


class _Faults:
    """How many values of which field cannot be rotated."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._counts)

    def add(self, name: str, nulls: int, nan: int, infinite: int) -> None:
        """Count those of some rows of a field."""
        if nulls or nan or infinite:
            found = self._counts.setdefault(name, Counter())
            found.update({"null": nulls, "NaN": nan, "infinite": infinite})

    def refuse(self, params: PabidotParams) -> None:
        """Raise SourceError where there is any, and that is to fail."""
        if not self or params.nulls != "fail":
            return
        at_fault = []
        for name in params.fields:
            if name in self._counts:
                counts = self._counts[name].items()
                at_fault.append(
                    f"'{name}' ({', '.join(f'{count} {what}' for what, count in counts if count)})"
                )
        raise SourceError(
            f"values that cannot be rotated in {_listed(at_fault)}: each would spoil its whole row; fill "
            "them or leave the rows out, or let them pass unperturbed by nulls: 'drop_from_fit'"
        )


def _read(
    table: pa.Table, params: PabidotParams, faults: _Faults, progress: Progress
) -> tuple[FloatArray, BoolArray, dict[str, BoolArray]]:
    """Values, the rows that hold one which cannot be rotated, and where fields are not null; as in `_Fit`."""
    rows = table.num_rows
    values = np.empty((len(params.fields), rows))
    absent = np.zeros(rows, np.bool_)
    valid: dict[str, BoolArray] = {}
    chunks = get_num_threads() if rows > 65536 else 1
    for at, name in enumerate(params.fields):
        progress(at / len(params.fields), f"reading {name}")
        column = table.column(name)
        nan, infinite = _take_in(_numbers(column), values[at], absent, chunks)
        missing = null_mask(column) if nan else absent[:0]
        nulls = int(np.count_nonzero(missing))
        if nulls:
            valid[name] = ~missing
        faults.add(name, nulls, nan - nulls, infinite)
    return values, absent, valid


def _varying(found: Moments, params: PabidotParams, faults: _Faults) -> list[int]:
    """The fields that are not constant.

    Raises
    ------
    SourceError
        Too few rows, or fields that are not constant; numbers too large, or too close to each other, for
        float64.
    """
    if found.rows < 2:
        aside = ", others having nulls" if faults else ""
        raise SourceError(f"PABIDOT needs two rows or more; there are {found.rows}{aside}")
    varying = [at for at in range(len(params.fields)) if found.smallest[at] != found.largest[at]]
    if len(varying) < 2:
        raise SourceError(
            f"PABIDOT needs two fields or more that are not constant; there are {len(varying)} among "
            f"{_listed([repr(name) for name in params.fields])}"
        )
    for at in varying:
        if not _LEAST_VARIANCE <= found.products[at, at] / (found.rows - 1) < math.inf:
            raise SourceError(
                f"the variance of field '{params.fields[at]}' does not fit float64: use another unit"
            )
    return varying


def _fit(table: pa.Table, params: PabidotParams, progress: Progress) -> _Fit:
    """The numbers of the fields, and their moments.

    Raises
    ------
    SourceError
        A null, NaN or infinity where that is to fail; or as `_varying`.
    """
    faults = _Faults()
    values, absent, valid = _read(table, params, faults, part_of(progress, 0.0, 0.2))
    faults.refuse(params)
    found = moments(values, absent if faults else None, part_of(progress, 0.2, 0.4))
    return _Fit(values, valid, absent if faults else None, found, _varying(found, params, faults))


_LEAST_VARIANCE = 1e-280  # below it, products of deviations would lose their digits


def _listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


# ------------------------------------------------------------------------------------- plan and swap


def plan(table: pa.Table, params: PabidotParams) -> Plan:
    """What `swap` would do. Raises SourceError where that would."""
    fit = _fit(table, params, no_progress)
    rows = table.num_rows
    unperturbed = rows - fit.moments.rows
    others = sum(column.nbytes for column in table.select(_others(table, params)).columns)
    return Plan(
        rows=rows,
        groups=1,
        group_size=GroupSize(rows, float(rows), rows),
        unswappable_rows=unperturbed,
        unswappable_groups=int(unperturbed > 0),
        estimated_memory_bytes=int(table.nbytes + fit.values.nbytes + others + rows * (8 + 4 * 8)),
    )


def fields_read(params: PabidotParams, schema: pa.Schema) -> tuple[str, ...]:
    """The fields to perturb, or all of them where rows are shuffled."""
    return tuple(schema.names) if params.shuffle else params.fields


def _others(table: pa.Table, params: PabidotParams) -> list[str]:
    perturbed = set(params.fields)
    return [name for name in table.column_names if name not in perturbed]


def swap(table: pa.Table, params: PabidotParams, stream: Stream, progress: Progress) -> SwapResult:
    """The table with its numeric fields perturbed together and its rows shuffled."""
    fit = _fit(table, params, progress)
    chosen = choose(fit.correlation, params.selection, part_of(progress, 0.4, 0.5))
    names = [params.fields[at] for at in fit.varying]
    changed, outside = perturb(
        fit.values, fit.absent, fit.moments, fit.varying, names, chosen, params.sigma, stream,
        part_of(progress, 0.5, 0.8),
    )  # fmt: skip
    events = _events_of_constants(params, fit.varying)
    if fit.absent is not None:
        events.add_rows("unperturbed", _UNPERTURBED, np.flatnonzero(fit.absent))
    destination, order = _destination(table, params, fit, stream, part_of(progress, 0.8, 1.0))
    took_part = fit.moments.rows
    result = _report(
        destination, table.num_rows, params, names, chosen.phi, took_part, changed, outside, events
    )
    return replace(result, origin=order)


_UNPERTURBED = "a null, NaN or infinity: the row passes through unperturbed"


def _events_of_constants(params: PabidotParams, varying: list[int]) -> Events:
    events = Events()
    for at in sorted(set(range(len(params.fields))) - set(varying)):
        message = "the field is constant and passes through unchanged"
        events.add(Event("constant", message, field=params.fields[at]))
    return events


def _report(
    destination: pa.Table, rows: int, params: PabidotParams, names: list[str], phi: float, took_part: int,
    changed: Int64Array, outside: Int64Array, events: Events,
) -> SwapResult:  # fmt: skip
    """The result; ``changed`` and ``outside``: cells of each of the perturbed fields ``names``."""
    transforms = len(ANGLES) * len(names)
    shares = (outside / took_part).tolist()
    return SwapResult(
        destination,
        _summary(rows, params, took_part, dict(zip(names, changed.tolist(), strict=True))),
        events,
        {
            "phi": phi,
            "selection": params.selection,
            "transforms": transforms,
            "outside_range": dict(zip(names, shares, strict=True)),
        },
        {"phi": phi, "inversion_bits": math.log2(transforms)},
    )


def _destination(
    table: pa.Table, params: PabidotParams, fit: _Fit, stream: Stream, progress: Progress
) -> tuple[pa.Table, IndexArray | None]:
    """The perturbed fields and all others, their rows shuffled together; and where each came from."""
    rows = table.num_rows
    pairing, order = None, None
    if params.shuffle:
        progress(0.0, "shuffling")
        pairing = shuffle_rows(rows, stream.key("shuffle"))
        order = pairing.order
    scratch = np.empty(rows if params.shuffle else 0)
    position = {name: at for at, name in enumerate(params.fields)}
    columns, fields = [], []
    for done, field in enumerate(table.schema):
        progress((1 + done) / (1 + table.num_columns), "shuffling")
        if field.name in position:
            values, valid = fit.values[position[field.name]], fit.valid.get(field.name)
            if pairing is not None and order is not None:
                reorder(values, pairing, order, scratch)
                valid = valid if valid is None else valid[order]
            bits = values.view(np.uint64)
            if valid is not None:
                bits[~valid] = 0  # what lies below a null is zero
            columns.append(pa.chunked_array([words_array(bits, pa.float64(), valid)]))
            fields.append(pa.field(field.name, pa.float64(), field.nullable, field.metadata))
        else:
            column = table.column(field.name)
            columns.append(column if order is None else take(column, pa.array(order)))
            fields.append(field)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata)), order


def _summary(rows: int, params: PabidotParams, took_part: int, changed: dict[str, int]) -> Summary:
    took_part_by_field = {name: took_part if name in changed else 0 for name in params.fields}
    return Summary(
        rows=rows,
        groups=1,
        group_size=GroupSize(rows, float(rows), rows),
        took_part=took_part,
        took_part_by_field=took_part_by_field,
        changed={name: changed.get(name, 0) for name in params.fields},
        suppressed=0,
        unswapped=rows - took_part,
        unswapped_reasons={"null": rows - took_part} if rows > took_part else {},
        achieved_rate=sum(took_part_by_field.values()) / (rows * len(params.fields)),
    )


# ---------------------------------------------------------------------------------------- out of core


@dataclass(frozen=True, slots=True, repr=False)
class _Fitted:
    """What all rows together say, and how they are perturbed: a secret, which shows nothing of itself."""

    moments: Moments
    faulty: bool
    """Whether there are values that cannot be rotated."""
    varying: list[int]
    choice: Choice
    most: int
    """Rows that are perturbed at a time."""


def swap_out_of_core(
    source: Source, params: PabidotParams, stream: Stream, progress: Progress, room: Room
) -> Streamed:
    """As `swap`, in ranges of rows: once for the moments, once to perturb; shuffled rows put aside."""
    run = Run(source, params, stream, room)
    fitted = _fitted(run, progress, 1)
    perturbing = _Perturbing(run, fitted)
    in_order = perturbing.pieces(0, source.rows, progress)
    pieces = _shuffled(run, fitted, in_order) if params.shuffle else (piece for _, piece in in_order)
    schema = _schema(source.schema, params)
    return Streamed(schema, pieces, lambda: _result(run, fitted, perturbing.totals, perturbing.events))


def _fitted(run: Run[PabidotParams], progress: Progress, wanted: int) -> _Fitted:
    """Fit, in one pass over the rows. Raises SourceError."""
    source, params = run.source, run.params
    of_row = 40 * len(params.fields) + 4 * source.nbytes // max(1, source.rows) + 64
    most = min(int(0.3 * run.room.memory_bytes) // of_row, source.rows // wanted)
    most = max(BLOCK, most // BLOCK * BLOCK)
    faults, so_far = _Faults(), MomentsSoFar(len(params.fields))
    for first, table in in_ranges(source, params.fields, most):
        progress(0.4 * first / source.rows, "fitting")
        values, absent, _ = _read(table, params, faults, no_progress)
        so_far.add(values, absent, no_progress)
    faults.refuse(params)
    found = so_far.finish()
    varying = _varying(found, params, faults)
    correlation = found.correlation(np.array(varying, np.int64))
    chosen = choose(correlation, params.selection, part_of(progress, 0.4, 0.5))
    return _Fitted(found, bool(faults), varying, chosen, most)


class _Perturbing:
    """Perturbs ranges of rows, and counts what that does."""

    def __init__(self, run: Run[PabidotParams], fitted: _Fitted) -> None:
        self._run = run
        self._fitted = fitted
        self.totals = np.zeros((2, len(fitted.varying)), np.int64)
        """Of each varying field the cells that are changed, and those outside of its range."""
        self.events = Events()

    def pieces(self, start: int, stop: int, progress: Progress) -> Iterator[tuple[int, pa.Table]]:
        """The rows from one up to another, range by range in their own order, with the first one's number."""
        run, fit = self._run, self._fitted
        params, names = run.params, [run.params.fields[at] for at in fit.varying]
        unshuffled = params.model_copy(update={"shuffle": False})
        reader = Reader(run.source, run.source.schema.names)
        reader.skip(start)
        for first in range(start, stop, fit.most):
            progress(0.5 + 0.4 * first / run.source.rows, "perturbing")
            table = reader.take(min(fit.most, stop - first))
            values, absent, valid = _read(table, params, _Faults(), no_progress)
            if absent.any():
                self.events.add_rows("unperturbed", _UNPERTURBED, first + np.flatnonzero(absent))
            self.totals += perturb(
                values, absent if fit.faulty else None, fit.moments, fit.varying, names, fit.choice,
                params.sigma, run.stream, no_progress, first,
            )  # fmt: skip
            of_range = _Fit(values, valid, None, fit.moments, fit.varying)
            yield first, _destination(table, unshuffled, of_range, run.stream, no_progress)[0]


def _shuffle(run: Run[PabidotParams], fitted: _Fitted) -> Shuffle:
    schema = _schema(run.source.schema, run.params)
    return Shuffle(schema, run.source.rows, run.stream.key("shuffle"), fitted.most)


def _shuffled(
    run: Run[PabidotParams], fitted: _Fitted, pieces: Iterator[tuple[int, pa.Table]]
) -> Iterator[pa.Table]:
    shuffle = _shuffle(run, fitted)
    spool = run.room.scratch.spool(shuffle.parts, run.room.memory_bytes // 8)
    for first, piece in pieces:
        shuffle.put(spool, first, piece)
    yield from shuffle.pieces(spool)


def _result(
    run: Run[PabidotParams], fitted: _Fitted, totals: Int64Array, events_of_rows: Events
) -> SwapResult:
    params, rows = run.params, run.source.rows
    events = _events_of_constants(params, fitted.varying)
    append_events(events, events_of_rows)
    names = [params.fields[at] for at in fitted.varying]
    empty = _schema(run.source.schema, params).empty_table()
    changed, outside = totals
    took_part = fitted.moments.rows
    return _report(empty, rows, params, names, fitted.choice.phi, took_part, changed, outside, events)


def _divide(run: Run[PabidotParams], progress: Progress, wanted: int) -> Division:
    fitted = _fitted(run, progress, wanted)
    starts = list(range(0, run.source.rows, fitted.most))
    firsts = [starts[len(starts) * nth // wanted] for nth in range(wanted)]
    ranges = list(itertools.pairwise([*dict.fromkeys(firsts), run.source.rows]))
    return Division(tuple(ranges), _shuffle(run, fitted).parts if run.params.shuffle else 1, fitted)


def _work(
    run: Run[PabidotParams], division: Division, number: int, spool: Spool
) -> tuple[Int64Array, Events]:
    perturbing = _Perturbing(run, division.common)
    shuffle = _shuffle(run, division.common) if run.params.shuffle else None
    start, stop = division.units[number]
    for first, piece in perturbing.pieces(start, stop, no_progress):
        if shuffle is None:
            spool.add(0, piece)
        else:
            shuffle.put(spool, first, piece)
    return perturbing.totals, perturbing.events


def _gather(
    run: Run[PabidotParams], progress: Progress, division: Division, done: Sequence[UnitDone]
) -> Streamed:
    fitted: _Fitted = division.common
    spool = Span([unit.rows for unit in done], 0, division.parts)
    events = Events()
    for unit in done:
        append_events(events, unit.figures[1])
    totals = np.sum([unit.figures[0] for unit in done], axis=0)
    pieces = _shuffle(run, fitted).pieces(spool) if run.params.shuffle else spool.read(0)
    schema = _schema(run.source.schema, run.params)
    return Streamed(schema, pieces, lambda: _result(run, fitted, totals, events))


def _schema(schema: pa.Schema, params: PabidotParams) -> pa.Schema:
    """The destination's: what is perturbed is float64."""
    for name in params.fields:
        at = schema.get_field_index(name)
        schema = schema.set(at, schema.field(at).with_type(pa.float64()))
    return schema


PROVIDER = Provider(
    identifier="PABIDOT",
    title="Perturbation by rotation, reflection, translation and noise",
    summary="Rotates, reflects and moves all numeric fields together, adds noise, and shuffles the rows.",
    revision=1,
    params=PabidotParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "Distances between rows are kept up to the noise, and with them what learners by distance find.",
        "Labels, and every other field that is not perturbed, stay with their row as it moves.",
        "The order of the rows is uniformly random and independent of the values, unless shuffle is false.",
        "Not anonymity, and not differential privacy: read what it does not protect against.",
    ),
    changes=(
        "Every numeric field that is no label and not constant: values, distribution, and type (float64).",
        "Values leave their field's range (1 to 53 % of the cells), whole numbers and signs included.",
        "Correlations between fields; what one field means, since each becomes a mixture of all.",
    ),
    limits=(
        "PABIDOT is neither anonymity nor differential privacy.",
        "Phi measures naive guessing only: how far a perturbed value is from the value in its own place.",
        "There are 172 transforms a field, few enough to try them all. With the fields' known marginals and "
        "sigma 0.3 the exact angle and axis are found in nearly all trials and the values recovered with R2 "
        "of about 0.97; sigma 1.0 still gives 0.67 to 0.75. At 2.0 one attack found nothing, and another, by "
        "quantiles, still got 0.3 to 0.4 on three tables of four.",
        "Angle and axis follow from the source's correlations: whoever knows those needs to try nothing.",
        "The paper's Table 7 (about 0.7 everywhere) is what any attack scores when rows are merely shuffled.",
        "Values leave their original range: 1 to 53 % of the cells.",
        "Rows with nulls that pass through unperturbed are published as they are.",
        "Angle, axis, translation and order are secrets like the seed: no report or manifest tells them.",
    ),
    scaling=Scaling(
        reads=fields_read,
        memory=lambda params, rows, nbytes: 2 * nbytes + rows * (8 * len(params.fields) + 44),
        cut="Into ranges of rows: one pass sums the moments block by block in the order of the rows, the "
        "next perturbs; shuffled rows are put aside by ranges of the buckets that their random order has. "
        "Units of a shared job are ranges of rows; the first pass is one worker's.",
        swap=swap_out_of_core,
        sharing=Sharing(_divide, _work, _gather),
    ),
    cost="O(n p^2) time for the fit and the rotation, O(p^3) an angle for the choice; 16 bytes a cell.",
    instead=(
        "RWN, where each value must stay one that occurs, and a row's neighbourhood is to protect it.",
        "MEWS or MEDS, where every field must keep its values.",
        "DSWAP, where a field must be cut loose from its row.",
    ),
    references=(
        "Chamikara, Bertok, Liu, Camtepe, Khalil 2019, Efficient privacy preservation of big data for "
        "accurate data mining, Information Sciences 527, doi:10.1016/j.ins.2019.05.053",
        "Wichura 1988, Applied Statistics 37(3), doi:10.2307/2347330 (normal numbers)",
    ),
    errata=(
        "Eqs. 41 and 42 and Algorithm 3 have lost the factor -2 of eq. 22; only with it do they equal the "
        "variance of the difference, and it is used here.",
        "'1' stands for C_ii in the paper's equations.",
        "Eqs. 16 and 17 pick the worst axis at the chosen angle, against the paper's own Definition 3.1: "
        "selection `paper` does the former, `definition` the latter.",
        "Table 2 counts the class as an attribute for six of its seven sets.",
        "Table 7 is an artefact of the shuffle, see above.",
    ),
)
