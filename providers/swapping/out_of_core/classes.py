"""Equivalence classes as groups of an out-of-core swap: the grouping and the report figures of CDSWAP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import Int64Array
from providers.grouping.equivalence_classes import Classifier, class_labels
from providers.grouping.groups import Groups, Pairing
from providers.kernels.radix_sort import radix_runs
from providers.out_of_core.samplesort import label_keys
from providers.swapping.out_of_core.exchange import Tally
from providers.swapping.out_of_core.swap import Listing


class ClassGrouping:
    """Grouping of a table's batches into equivalence classes of the control fields.

    Parameters
    ----------
    controls : tuple of str
        Control fields.
    classifiers, pointers : sequences
        For each control field its classifier, and the JSON pointer that an error about it names.
    schema : pa.Schema
        Schema of the source.
    """

    def __init__(
        self,
        controls: tuple[str, ...],
        classifiers: Sequence[Classifier],
        pointers: Sequence[str],
        schema: pa.Schema,
    ) -> None:
        self.controls = controls
        fields = [schema.field(name) for name in controls]
        self._classified_fields = list(zip(fields, classifiers, pointers, strict=True))

    def labels(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """Return label columns that are equal for rows of one class."""
        return [
            label
            for field, classifier, pointer in self._classified_fields
            for label in class_labels(table.column(field.name), classifier, field, pointer)
        ]

    def listing(self, table: pa.Table, rows: Int64Array, final: bool) -> Listing:
        """Return the classes of a sorted batch; the identity of a class is its smallest row."""
        order, starts = radix_runs(label_keys(self.labels(table)))
        return Listing(order, starts, rows[order[starts[:-1]]].astype(np.uint64))


class ClassFigures:
    """Report figures `classes` and `singleton_classes`; the tally already holds both counts."""

    def observe(self, groups: Groups, table: pa.Table, name: str, pairing: Pairing) -> None:
        """Ignore the unit."""

    def merge(self, other: ClassFigures) -> None:
        """Ignore the other figures."""

    def figures(self, tally: Tally) -> dict[str, Any]:
        """Return the provider's figures."""
        return {"classes": tally.groups.total(), "singleton_classes": tally.groups[1]}
