"""CDSWAP: exchange the values of the swap fields between random pairs of rows of one equivalence class.

A classifier assigns each row to an equivalence class by the values of the control fields. Within every class
values are exchanged as in DSWAP: between random pairs of rows, and in a cycle of three rows if their number
is odd. A class of one row has no pair; `suppression` decides about its values.

With `mechanism` set to `permutation`, each row of a class is selected with probability `rate`, and the
selected rows are permuted at random so that none keeps its place. The report then states an exact epsilon.

With `risk`, rows whose combination of key fields is rare always take part, and the others up to `rate`, each
with a probability in proportion to its risk.

With `household`, whole households of equal size are exchanged if their members have the same classes. Each
member is exchanged with a member of the same class, in the order of classes, then of rows.

With `unit_id`, units such as persons who occur in several rows move in the same way. In a `series` a unit
keeps its partner in every table.

References
----------
Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm.
Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities.
Optim data privacy providers 11.3 and 11.7, module Data Swapping: "Class-based Data Swapping".
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from providers.grouping.equivalence_classes import (
    Classifier,
    Quantiles,
    check_classifier,
    classes,
    keeps_values_apart,
)
from providers.grouping.groups import Groups
from providers.params import ControlFields, SwapParams
from providers.progress import Progress
from providers.provider import Provider, Scaling, StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import Plan, SwapResult
from providers.storage import Resources, Source
from providers.swapping.fields import check_control_fields, control_pointer, fields_read, resolve_fields
from providers.swapping.guarantee import PERMUTATION_RELEASES, permutation_guarantee
from providers.swapping.households import (
    HOUSEHOLD_GUARANTEE,
    HOUSEHOLD_LIMIT,
    Members,
    absent_households,
    alike,
    classes_of,
    moving_members,
    plan_households,
    swap_households,
)
from providers.swapping.out_of_core.classes import ClassFigures, ClassGrouping
from providers.swapping.out_of_core.distribute import Groupings, sharing_of_groups
from providers.swapping.out_of_core.swap import swap_outside
from providers.swapping.participation import Exchange
from providers.swapping.reversible_groups import uniform_pairs
from providers.swapping.risk_report import RISK_GUARANTEE, RISK_LIMIT
from providers.swapping.row_checks import CHECK_GUARANTEE, CHECK_LIMIT, report_checks
from providers.swapping.series import (
    SERIES_GUARANTEE,
    SERIES_LIMIT,
    refuse_series,
    swap_series,
)
from providers.swapping.swap import (
    MOVED_VALUES,
    NAN_IS_A_VALUE,
    estimated_memory,
    least_memory,
    memory_needed,
    plan_within,
    refuse_reordering,
    reordering_notices,
    swap_within,
)
from providers.swapping.torn_households import TornHouseholds
from providers.tables.series_pairs import SeriesPairs
from providers.tables.sort_keys import check_orderable


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


class CdswapParams(SwapParams):
    """The parameters of CDSWAP."""

    control_field: ControlFields
    """The field whose classes limit the exchange: no value leaves its class. Several fields: a class is a
    combination of their classes."""
    classifier: Annotated[
        tuple[Classifier, ...],
        Field(min_length=1),
        BeforeValidator(_as_list, json_schema_input_type=Classifier | tuple[Classifier, ...]),
    ] = ("identity",)
    """The rule that assigns a control field's values to classes. Several control fields: a list with one
    rule for each."""

    @model_validator(mode="after")
    def _one_classifier_for_each_field(self) -> Self:
        given, wanted = len(self.classifier), len(self.control_field)
        if given != wanted and self.classifier != ("identity",):
            raise PydanticCustomError(
                "classifier_count",
                "the control fields are {wanted} and the classifiers {given}: give a list with one "
                "classifier for each control field",
                {"given": given, "wanted": wanted},
            )
        return self

    def larger_groups(self) -> str:
        """Return advice for classes of two or three rows."""
        return "make classes wider, or set 'min_group_size' to 4, so that 'suppression' decides about them"

    @property
    def whole_table(self) -> str | None:
        """The parameter for which a run needs the whole table in memory; None if it runs out of core."""
        by_quantiles = any(isinstance(each, Quantiles) for each in self.classifier)
        return super().whole_table or ("classifier" if by_quantiles else None)

    @property
    def classifiers(self) -> tuple[Classifier, ...]:
        """Classifiers, one for each control field."""
        return self.classifier if len(self.classifier) > 1 else self.classifier * len(self.control_field)


def check(params: CdswapParams, schema: pa.Schema) -> CdswapParams:
    """Return the parameters with every field by name; raise ParameterError or SourceError."""
    check_control_fields(params.control_field, schema)
    resolved = resolve_fields(params, schema, params.control_field)
    fields = [schema.field(name) for name in params.control_field]
    for index, field in enumerate(fields):
        check_orderable(field, control_pointer(params.control_field, index))
    for field, classifier, pointer in zip(
        fields, params.classifiers, _classifier_pointers(params), strict=True
    ):
        check_classifier(classifier, field, pointer)
    refuse_reordering(resolved, schema, _constant_fields(resolved))
    return resolved


def _classifier_pointers(params: CdswapParams) -> list[str]:
    """Return the JSON pointer of each control field's classifier, for error messages."""
    fields = params.control_field
    return [control_pointer(fields, index, "classifier") for index in range(len(fields))]


def _constant_fields(params: CdswapParams) -> list[str]:
    """Return the control fields that have a single value within every class."""
    pairs = zip(params.control_field, params.classifiers, strict=True)
    return [name for name, classifier in pairs if keeps_values_apart(classifier)]


def equivalence_classes(table: pa.Table, params: CdswapParams) -> Groups:
    """Group the rows by the classes of their control fields; a class is named by its smallest row."""
    return classes(table, params.control_field, params.classifiers, _classifier_pointers(params))


def plan(table: pa.Table, params: CdswapParams) -> Plan:
    """Return what `swap` would do, without a random draw; a series has no plan."""
    refuse_series(params)
    memory = estimated_memory(table, params, key_arrays=len(params.control_field))
    if params.moving_unit is not None:
        members, exchanges = household_exchanges(table, params)
        return plan_households(table, params, members, exchanges, memory)
    return plan_within(table, params, equivalence_classes(table, params), memory)


def swap(
    table: pa.Table,
    params: CdswapParams,
    stream: Stream,
    progress: Progress,
    series: SeriesPairs | None = None,
) -> SwapResult:
    """Exchange values between uniformly random pairs of rows of one class; ``series``: earlier pairs."""
    if series is None:
        refuse_series(params)
    progress(0.0, "classifying")
    if series is not None and params.series is not None:
        run = swap_series(table, params, household_exchanges, stream, progress, series)
        groups, result = run.exchanges[0].groups, run.result
    elif params.moving_unit is not None:
        members, exchanges = household_exchanges(table, params)
        groups = exchanges[0].groups
        result = swap_households(table, params, members, exchanges, stream, progress)
    else:
        torn = None if params.household_check is None else TornHouseholds(table, params)
        groups = equivalence_classes(table, params)
        watch = None if torn is None else torn.add
        result = swap_within(table, params, groups, stream, progress, watch)
        if torn is not None:
            torn.report(result)
    result.provider["classes"] = len(groups.identities)
    result.provider["singleton_classes"] = int(np.count_nonzero(groups.sizes == 1))
    return report_checks(table, params, result)


def household_exchanges(table: pa.Table, params: CdswapParams) -> tuple[Members, list[Exchange]]:
    """Group the households of equal size whose members have the same classes."""
    classes_by_row = classes_of(equivalence_classes(table, params))
    members = replace(moving_members(table, params, classes_by_row), order=_order_of_members(params))
    absent = absent_households(table, params, members)
    return members, [Exchange(params.swap_fields, alike(members, classes_by_row), params.locked, absent)]


def _order_of_members(params: CdswapParams) -> str:
    """Return the order of a household's members in words; other classifiers may order them differently."""
    classifiers = params.model_dump(mode="json")["classifier"]
    if len(classifiers) < len(params.control_field):
        classifiers *= len(params.control_field)
    named = [
        f"'{name}'" if each == "identity" else f"'{name}' (classifier {_short_digest(each)})"
        for name, each in zip(params.control_field, classifiers, strict=True)
    ]
    return f"the classes of {', '.join(named)}, then of rows"


def _short_digest(document: Any) -> str:
    """Return eight hex digits of the BLAKE2b hash of a JSON value."""
    written = json.dumps(document, sort_keys=True).encode()
    return hashlib.blake2b(written, digest_size=4).hexdigest()


def swap_out_of_core(
    source: Source, params: CdswapParams, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Do the same as `swap` with the rows sorted by class and only some of the classes in memory."""
    grouping = _class_grouping(params, source.schema)
    return swap_outside(source, params, stream, progress, resources, lambda rows: grouping, ClassFigures())


def _class_grouping(params: CdswapParams, schema: pa.Schema) -> ClassGrouping:
    return ClassGrouping(params.control_field, params.classifiers, _classifier_pointers(params), schema)


_CLASSES: Groupings[CdswapParams] = Groupings(
    grouping=lambda params, schema, rows, rank: _class_grouping(params, schema),
    watcher=lambda params, schema: ClassFigures(),
    group_rows=lambda params: 0,
    by_count=lambda params: False,
)

PROVIDER = Provider(
    identifier="CDSWAP",
    title="Class-based data swapping",
    summary="Exchanges values between rows of one equivalence class of the control fields.",
    revision=3,
    draws_revision=2,
    params=CdswapParams,
    check=check,
    plan=plan,
    swap=swap,
    swap_series=swap,
    notices=lambda params, schema: reordering_notices(params, schema, _constant_fields(params)),
    guarantees=(
        "No value leaves its class: every statistic of the swap fields by class stays as it is, "
        "unless something is suppressed.",
        "At rate 1 every row of a class of two or more rows receives another row's value.",
        uniform_pairs("class", "classes"),
        "A row that is alone in its class is suppressed unless the caller says otherwise.",
        permutation_guarantee("class"),
        RISK_GUARANTEE,
        HOUSEHOLD_GUARANTEE,
        SERIES_GUARANTEE,
        CHECK_GUARANTEE,
    ),
    changes=(
        "The row of its class that a value belongs to.",
        "Correlations of the swap fields with fields that are not control fields, within each class.",
        "Rows that are alone in their class lose the values of the swap fields, unless the caller says "
        "otherwise.",
    ),
    limits=(
        "A small class hides little: in a class of two each row has the other's value, and anyone who knows "
        "one value knows both.",
        "The values of each class are published, without their rows: if all rows of a class share a value, "
        "everyone learns it.",
        "Fields that are not swapped stay with their row.",
        RISK_LIMIT,
        HOUSEHOLD_LIMIT,
        SERIES_LIMIT,
        CHECK_LIMIT,
    ),
    repeated_releases=(
        "At rate 1 no row ever receives its own value, so that each release excludes one of the values of "
        "its class. In a class of m rows about m ln(m) releases leave one value: 20 releases recover 99 % "
        "of classes of five, and 0.2 % of a class of 501 rows.",
        "At a rate below 1 the most frequent value of a row is its own, as for DSWAP: 20 releases at rate "
        "0.3 recover over 99.9 % of svcensus' incomes.",
        PERMUTATION_RELEASES,
        "Release a source once. A rerun with the same seed gives the same bytes and reveals nothing more.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: fields_read(params, params.control_field),
        memory=lambda params, rows, nbytes: memory_needed(
            params, rows, nbytes, key_arrays=len(params.control_field)
        ),
        cut="Rows are sorted by class into scratch space and exchanged class by class. A class that is too "
        "large for memory is exchanged by ranges of the buckets of its random order. The units of a divided "
        "job are runs of whole classes, consecutive in the order of their labels."
        " With `risk`, `household`, `household_check`, `unit_id`, `checks` or a classifier by `quantiles` "
        "the run is not cut, since it needs the whole table.",
        swap=swap_out_of_core,
        can_cut=lambda params: params.whole_table is None,
        least=least_memory,
        sharing=sharing_of_groups(_CLASSES),
    ),
    cost="O(n) time per swap field and per control field; O(d log d) for d distinct texts of a control "
    "field.",
    special_values=(
        *MOVED_VALUES,
        "A class of one row, and so a table of one row, has no partner: `suppression` decides about its "
        "values.",
        NAN_IS_A_VALUE,
        "In a control field all nulls are one class and all NaN another, whatever the classifier is. 0.0 and "
        "-0.0 are in one class, and integers of any size are distinguished.",
    ),
    instead=(
        "DSWAP, if nothing is published by class.",
        "DDSWAP, if the control field is a number and classes would need breaks.",
    ),
    references=(
        "Bailie, Gong and Meng 2025, arXiv:2501.08449: the permutation swapping algorithm",
        "Hartley and Rao 1962, Ann. Math. Statist. 33, 350-374: systematic sampling, unequal probabilities",
        "Optim data privacy providers 11.3 and 11.7, module Data Swapping",
    ),
)
