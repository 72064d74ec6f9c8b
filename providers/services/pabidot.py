"""PABIDOT: rotate, reflect and translate all numeric fields together, add noise, and shuffle the rows.

Each numeric field is standardised to z-scores. One of 172 rotation angles and one axis of reflection are
selected, so that the least variance of the difference between a field and its perturbed values, phi, is
large. A random translation, noise away from zero (randomised expansion) and a random order of the rows
follow. At the end the fields get back their means and standard deviations.

References
----------
Chamikara et al. 2019, Information Sciences 527, doi:10.1016/j.ins.2019.05.053: sections 3 and 4,
algorithm 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from providers.errors import ParameterError
from providers.params import Params
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Provider, Scaling, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import GroupSize, Plan, SwapResult
from providers.rotation.destination import destination_table
from providers.rotation.fit import fit_numbers, refuse_few_rows
from providers.rotation.out_of_core import RotationRun, perturb_out_of_core, sharing_of_row_ranges
from providers.rotation.report import add_unperturbed_events, constant_field_events, rotation_result
from providers.rotation.settings import RotationSettings
from providers.rotation.transform import choose, perturb
from providers.storage import Resources, Source
from providers.tables.columns import check_movable
from providers.tables.numbers import check_numeric, is_numeric
from providers.tables.schemas import check_names, check_unique_names


class PabidotParams(Params):
    """The parameters of PABIDOT."""

    known_aliases: ClassVar[dict[str, str]] = {"swap_fields": "fields"}

    fields: tuple[str, ...] = Field(default=(), examples=[["age", "income"]])
    """The numeric fields to perturb; their type becomes float64. Default: every numeric field that is not a
    label. [2 or more that are not constant]"""
    label_fields: tuple[str, ...] = Field(default=(), examples=[["class"]])
    """Numeric fields that are labels, such as a class: they keep their values and move with their row. Other
    fields that are not perturbed, such as text, need not be named: they also keep their values and move with
    their row."""
    sigma: Annotated[
        float, Field(ge=0, le=1e6, allow_inf_nan=False, title="Standard deviation of the noise (sigma)")
    ] = 0.3
    """Standard deviation of the noise, in standard deviations of each field. At 0.3 values can be
    recovered almost exactly from known marginals. [0 to 1 000 000]"""
    selection: Literal["paper", "definition"] = "paper"
    """Rule that selects angle and axis of reflection. `paper`: the angle whose worst axis is best, with this
    worst axis; `definition`: the angle and axis with the largest phi."""
    shuffle: bool = True
    """true: the destination's rows are in a random order, all fields of a row together; false: the order of
    the source."""
    nulls: Literal["fail", "drop_from_fit"] = "fail"
    """Treatment of a null, NaN or infinity in a field to perturb. `fail`: the job fails; `drop_from_fit`: the
    row is published unperturbed in every field and takes no part in the fit."""


def check(params: PabidotParams, schema: pa.Schema) -> PabidotParams:
    """Return the parameters with every field to perturb by name; raise ParameterError or SourceError."""
    check_unique_names(schema)
    check_names(params.label_fields, schema, lambda index: f"/parameters/label_fields/{index}")
    check_names(params.fields, schema, lambda index: f"/parameters/fields/{index}")
    labels = set(params.label_fields)
    for index, name in enumerate(params.fields):
        pointer = f"/parameters/fields/{index}"
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


def _settings(params: PabidotParams) -> RotationSettings:
    """Convert checked parameters to the settings of the rotation family."""
    return RotationSettings(
        fields=params.fields,
        sigma=params.sigma,
        selection=params.selection,
        shuffle=params.shuffle,
        pass_nulls=params.nulls == "drop_from_fit",
    )


def fields_read(params: PabidotParams, schema: pa.Schema) -> tuple[str, ...]:
    """Return the fields to perturb, or all fields if rows are shuffled."""
    return tuple(schema.names) if params.shuffle else params.fields


def plan(table: pa.Table, params: PabidotParams) -> Plan:
    """Return what `swap` would do, without a random draw; raise SourceError as it would."""
    fit = fit_numbers(table, params.fields, params.nulls == "fail", no_progress)
    rows = table.num_rows
    unperturbed = rows - fit.moments.rows
    perturbed = set(params.fields)
    others = [name for name in table.column_names if name not in perturbed]
    other_bytes = sum(column.nbytes for column in table.select(others).columns)
    return Plan(
        rows=rows,
        groups=1,
        group_size=GroupSize(rows, float(rows), rows),
        unswappable_rows=unperturbed,
        unswappable_groups=int(unperturbed > 0),
        estimated_memory_bytes=int(table.nbytes + fit.values.nbytes + other_bytes + rows * (8 + 4 * 8)),
        expected_part_by_field={
            name: float(fit.moments.rows) if index in set(fit.varying) else 0.0
            for index, name in enumerate(params.fields)
        },
    )


def swap(table: pa.Table, params: PabidotParams, stream: Stream, progress: Progress) -> SwapResult:
    """Perturb the numeric fields together and shuffle the rows: the steps of algorithm 3."""
    settings = _settings(params)
    # Lines 6 and 7: means and standard deviations for D^N, and its covariance, which is D's correlation.
    fit = fit_numbers(table, params.fields, params.nulls == "fail", progress)
    # Lines 9 to 23: the rotation angle and the axis of reflection with the largest guarantee Phi.
    choice = choose(fit.correlation, params.selection, sub_progress(progress, 0.4, 0.5))
    # Lines 8 and 24 (eqs. 5 and 18): reflect, translate by uniform noise, rotate; line 25 (eq. 19):
    # randomised expansion; line 26: reverse the standardisation.
    names = [params.fields[index] for index in fit.varying]
    changed, outside = perturb(
        fit.values, fit.absent, fit.moments, fit.varying, names, choice, params.sigma, stream,
        sub_progress(progress, 0.5, 0.8),
    )  # fmt: skip
    # Line 27: randomly swap the tuples.
    destination, order = destination_table(
        table, params.fields, fit.values, fit.valid, stream.key("shuffle") if params.shuffle else None,
        sub_progress(progress, 0.8, 1.0),
    )  # fmt: skip
    events = constant_field_events(settings, fit.varying)
    if fit.absent is not None:
        add_unperturbed_events(events, fit.absent)
    result = rotation_result(
        destination, table.num_rows, settings, fit.varying, choice.phi, fit.moments.rows, changed, outside,
        events,
    )  # fmt: skip
    return replace(result, origin=order)


def swap_out_of_core(
    source: Source, params: PabidotParams, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Do the same as `swap` in two passes over ranges of rows; shuffled rows go through scratch space."""
    return perturb_out_of_core(RotationRun(source, _settings(params), stream, resources), progress)


PROVIDER = Provider(
    identifier="PABIDOT",
    title="Perturbation by rotation, reflection, translation and noise",
    summary="Rotates, reflects and translates all numeric fields together, adds noise, and shuffles rows.",
    revision=2,
    draws_revision=1,
    params=PabidotParams,
    check=check,
    check_rows=lambda params, rows: refuse_few_rows(rows),
    plan=plan,
    swap=swap,
    guarantees=(
        "Distances between rows, and the results of distance-based learners, are kept except for the noise.",
        "Labels, and every other field that is not perturbed, stay with their row as it moves.",
        "The order of the rows is uniformly random and independent of the values, unless shuffle is false.",
        "Neither anonymity nor differential privacy: see the section on what it does not protect against.",
    ),
    changes=(
        "Every numeric field that is neither a label nor constant: values, distribution, and type (float64).",
        "Values leave their field's range (1 to 53 % of the cells). Whole numbers do not stay whole, and "
        "signs may change.",
        "Correlations between fields, and the meaning of a field, since each becomes a mixture of all.",
    ),
    limits=(
        "PABIDOT is neither anonymity nor differential privacy.",
        "Phi measures naive guessing only: the difference between a perturbed value and the original value "
        "of the same cell.",
        "There are 172 transforms per field, few enough to try them all. With the fields' known marginals "
        "and sigma 0.3 the exact angle and axis are found in nearly all trials and the values recovered with "
        "R2 of about 0.97; sigma 1.0 still gives 0.67 to 0.75. At 2.0 one attack found nothing, and another, "
        "by quantiles, still got 0.3 to 0.4 on three tables of four.",
        "Angle and axis follow from the source's correlations: anyone who knows these correlations need not "
        "search.",
        "The paper's Table 7 (about 0.7 everywhere) is the result of any attack when rows are merely "
        "shuffled.",
        "Values leave their original range: 1 to 53 % of the cells.",
        "Rows with nulls that pass through unperturbed are published as they are.",
        "Angle, axis, translation and order are secrets like the seed: no report or manifest contains them.",
    ),
    repeated_releases=(
        "Angle and axis depend on the source alone and are the same for every seed: only translation, noise "
        "and order differ. Anyone who knows some rows of one release can invert all releases.",
        "Least squares on a tenth of the rows recovers the others with R2 of 0.91 to 0.96 at sigma 0.3 "
        "(four tables), and with 0.92 to 0.96 another release of the same source. With 20 known people it "
        "is 0.91 and 0.92 for tables of 7 and 11 fields, and 0.57 and 0.59 for tables of 10 and 16 fields.",
        "Release a source once. A rerun with the same seed gives the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=fields_read,
        memory=lambda params, rows, nbytes: 2 * nbytes + rows * (8 * len(params.fields) + 44),
        cut="Into ranges of rows. One pass sums the moments block by block in the order of the rows, the "
        "next perturbs. Shuffled rows go to scratch space by ranges of the buckets of their random order. "
        "The units of a divided job are ranges of rows. Pieces take the moments of the blocks of their rows, "
        "which every unit joins.",
        swap=swap_out_of_core,
        sharing=sharing_of_row_ranges(_settings),
    ),
    cost="O(n p^2) time for the fit and the rotation, O(p^3) per angle for the choice; 16 bytes per cell.",
    special_values=(
        "A table of fewer than two rows, also without rows, is an error. So are fewer than two fields that "
        "vary.",
        "A constant field keeps its values, as float64, with the event `constant`. 0.0 and -0.0 are equal.",
        "Numbers count as the nearest float64: integers beyond 2^53 lose digits, and a field whose integers "
        "are equal as float64 is constant.",
        "`nulls` decides about nulls, NaN and infinities. A variance that float64 cannot hold is an error.",
    ),
    instead=(
        "RWN, if each value must stay one that occurs, and a row's neighbourhood is to protect it.",
        "MEWS or MEDS, if every field must keep its values.",
        "DSWAP, if a field must be separated from its row.",
    ),
    references=(
        "Chamikara, Bertok, Liu, Camtepe, Khalil 2019, Efficient privacy preservation of big data for "
        "accurate data mining, Information Sciences 527, doi:10.1016/j.ins.2019.05.053",
        "Wichura 1988, Applied Statistics 37(3), doi:10.2307/2347330 (normal numbers)",
    ),
    errata=(
        "Eqs. 41 and 42 and Algorithm 3 lack the factor -2 of eq. 22. Only with it do they equal the "
        "variance of the difference, so it is used here.",
        "'1' in the paper's equations 21, 22, 41 and 42 means C_ii.",
        "Eqs. 16 and 17 select the worst axis at the chosen angle, which contradicts the paper's own "
        "Definition 3.1. Selection `paper` follows the equations, `definition` the definition.",
        "Table 2 counts the class as an attribute for six of its seven sets.",
        "Table 7 is an artefact of the shuffle: see what PABIDOT does not protect against.",
    ),
)
