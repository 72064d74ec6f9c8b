"""CDSWAP: values are exchanged between rows of one equivalence class of the control fields.

References
----------
Optim data privacy providers 11.3 and 11.7, module Data Swapping: class-based data swapping.
"""

from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from providers.classes import Classifier, check_classifier, class_labels, classes
from providers.external.exchanging import Tally
from providers.external.sharing import Groupings, sharing_of_groups
from providers.external.sorting import label_keys
from providers.external.swaps import Listing, swap_outside
from providers.groups import Groups, Pairing
from providers.ordering import check_orderable
from providers.params import ControlFields, SwapParams
from providers.provider import Plan, Progress, Provider, Scaling, Streamed, SwapResult
from providers.radix import Int64Array, radix_runs
from providers.rng import Stream
from providers.storage import Room, Source
from providers.swapping import (
    check_control_fields,
    control_pointer,
    estimated_memory,
    fields_read,
    memory_needed,
    plan_within,
    resolve_fields,
    swap_within,
)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


class CdswapParams(SwapParams):
    """The parameters of CDSWAP."""

    control_field: ControlFields
    """The field whose classes the values stay in; several fields: the combination of their classes."""
    classifier: Annotated[
        tuple[Classifier, ...],
        Field(min_length=1),
        BeforeValidator(_as_list, json_schema_input_type=Classifier | tuple[Classifier, ...]),
    ] = ("identity",)
    """How a control field's values fall into classes; several control fields: a list of one for each."""

    @model_validator(mode="after")
    def _one_classifier_for_each_field(self) -> Self:
        given, wanted = len(self.classifier), len(self.control_field)
        if given != wanted and self.classifier != ("identity",):
            raise PydanticCustomError(
                "classifier_count",
                "there are {wanted} control fields and {given} classifiers: give a list of one for each",
                {"given": given, "wanted": wanted},
            )
        return self

    @property
    def classifiers(self) -> tuple[Classifier, ...]:
        """One classifier for each control field."""
        return self.classifier if len(self.classifier) > 1 else self.classifier * len(self.control_field)


def _pointers(params: CdswapParams) -> list[str]:
    fields = params.control_field
    return [control_pointer(fields, at, "classifier") for at in range(len(fields))]


def check(params: CdswapParams, schema: pa.Schema) -> CdswapParams:
    """The parameters with every field by name."""
    check_control_fields(params.control_field, schema)
    resolved = resolve_fields(params, schema, params.control_field)
    fields = [schema.field(name) for name in params.control_field]
    for at, field in enumerate(fields):
        check_orderable(field, control_pointer(params.control_field, at))
    for field, classifier, pointer in zip(fields, params.classifiers, _pointers(params), strict=True):
        check_classifier(classifier, field, pointer)
    return resolved


def _groups(table: pa.Table, params: CdswapParams) -> Groups:
    return classes(table, params.control_field, params.classifiers, _pointers(params))


def plan(table: pa.Table, params: CdswapParams) -> Plan:
    """What `swap` would do."""
    memory = estimated_memory(table, params, key_arrays=len(params.control_field))
    return plan_within(table, params, _groups(table, params), memory)


def swap(table: pa.Table, params: CdswapParams, stream: Stream, progress: Progress) -> SwapResult:
    """The table with the swap fields' values exchanged between rows of one class."""
    progress(0.0, "classifying")
    groups = _groups(table, params)
    result = swap_within(table, params, groups, stream, progress)
    result.provider["classes"] = len(groups.identities)
    result.provider["singleton_classes"] = int(np.count_nonzero(groups.sizes == 1))
    return result


class _Classes:
    """Classes of a table that comes in pieces."""

    def __init__(self, params: CdswapParams, schema: pa.Schema) -> None:
        self.controls = params.control_field
        fields = [schema.field(name) for name in self.controls]
        self._parts = list(zip(fields, params.classifiers, _pointers(params), strict=True))

    def labels(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """Equal for rows of one class."""
        return [
            label
            for field, classifier, pointer in self._parts
            for label in class_labels(table.column(field.name), classifier, field, pointer)
        ]

    def listing(self, table: pa.Table, rows: Int64Array, final: bool) -> Listing:
        """The classes of a piece, each named by its smallest row."""
        order, starts = radix_runs(label_keys(self.labels(table)))
        return Listing(order, starts, rows[order[starts[:-1]]].astype(np.uint64))


def swap_out_of_core(
    source: Source, params: CdswapParams, stream: Stream, progress: Progress, room: Room
) -> Streamed:
    """As `swap`, the rows in the order of their classes, some of them in memory at a time."""
    return swap_outside(source, params, stream, progress, room, _Classes(params, source.schema), _Counted())


class _Counted:
    """The provider's own figures, which the tally has: nothing has to be seen of a unit."""

    def see(self, groups: Groups, table: pa.Table, name: str, pairing: Pairing) -> None:
        """Nothing."""

    def include(self, other: "_Counted") -> None:
        """Nothing."""

    def figures(self, tally: Tally) -> dict[str, Any]:
        """The report's."""
        return {"classes": tally.groups.total(), "singleton_classes": tally.groups[1]}


_CLASSES: Groupings[CdswapParams] = Groupings(
    grouping=lambda params, schema, rows, rank: _Classes(params, schema),
    watcher=lambda params, schema: _Counted(),
    group_rows=lambda params: 0,
)


PROVIDER = Provider(
    identifier="CDSWAP",
    title="Class-based data swapping",
    summary="Exchanges values between rows of one equivalence class of the control fields.",
    revision=1,
    params=CdswapParams,
    check=check,
    plan=plan,
    swap=swap,
    guarantees=(
        "No value leaves its class: every figure of the swap fields by class stays as it is, "
        "unless something is suppressed.",
        "At rate 1 every row of a class of two or more rows receives another row's value.",
        "Within a class the pairs are uniformly random; some of them known, nothing is learnt of the rest.",
        "A row alone in its class is suppressed unless the caller says otherwise.",
    ),
    changes=(
        "Which row of its class a value stands in.",
        "Correlations of the swap fields with fields that are not control fields, within each class.",
        "Rows alone in their class lose the values of the swap fields, unless the caller says otherwise.",
    ),
    limits=(
        "A small class hides little: of two rows each has the other's value; who knows one knows both.",
        "The multiset of each class is published: where all of a class share a value, it is everyone's.",
        "Fields that are not swapped stay with their row.",
    ),
    scaling=Scaling(
        reads=lambda params, schema: fields_read(params, params.control_field),
        memory=lambda params, rows, nbytes: memory_needed(
            params, rows, nbytes, key_arrays=len(params.control_field)
        ),
        cut="Rows are put aside in the order of their classes and exchanged class by class; a class that is "
        "too large for memory by ranges of the buckets that its random order has. Units of a shared job are "
        "whole classes that lie side by side in the order of their labels; a class is in one unit.",
        swap=swap_out_of_core,
        sharing=sharing_of_groups(_CLASSES),
    ),
    cost="O(n) time a field and a control field; O(d log d) for d distinct texts of a control field.",
    instead=(
        "DSWAP, where nothing by class is published.",
        "DDSWAP, where the control field is a number and classes would need breaks.",
    ),
    references=("Optim data privacy providers 11.3 and 11.7, module Data Swapping",),
)
