"""Build the report of a perturbation: summary, events and the provider's figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from providers.arrays import BoolArray, Int64Array
from providers.results import Event, Events, GroupSize, Summary, SwapResult
from providers.rotation.settings import RotationSettings
from providers.rotation.transform import ANGLES


def add_unperturbed_events(events: Events, absent: BoolArray, first_row: int = 0) -> None:
    """Record an event for each unperturbed row; ``first_row``: number of the first row."""
    message = "a null, NaN or infinity: the row passes through unperturbed"
    events.add_rows("unperturbed", message, first_row + np.flatnonzero(absent))


def constant_field_events(settings: RotationSettings, varying: Sequence[int]) -> Events:
    """Return an event for each field that is constant; ``varying``: indices of the other fields."""
    events = Events()
    for index in sorted(set(range(len(settings.fields))) - set(varying)):
        message = "the field is constant and passes through unchanged"
        events.add(Event("constant", message, field=settings.fields[index]))
    return events


def rotation_result(
    destination: pa.Table, rows: int, settings: RotationSettings, varying: Sequence[int], phi: float,
    took_part: int, changed: Int64Array, outside: Int64Array, events: Events,
) -> SwapResult:  # fmt: skip
    """Build the result of a run.

    Parameters
    ----------
    destination : pa.Table
    rows : int
        Rows of the source.
    settings : RotationSettings
    varying : sequence of int
        Indices of the perturbed fields: those that are not constant.
    phi : float
        Minimum privacy guarantee phi of the chosen angle and axis.
    took_part : int
        Rows that were perturbed.
    changed, outside : ndarray of int64, shape (varying fields,)
        Cells that differ from the source's, and cells outside the source's range.
    events : Events
    """
    names = [settings.fields[index] for index in varying]
    transforms = len(ANGLES) * len(names)
    shares_outside = (outside / took_part).tolist()
    return SwapResult(
        destination,
        _summary(rows, settings, took_part, dict(zip(names, changed.tolist(), strict=True))),
        events,
        {
            "phi": phi,
            "selection": settings.selection,
            "transforms": transforms,
            "outside_range": dict(zip(names, shares_outside, strict=True)),
        },
        {"phi": phi, "inversion_bits": math.log2(transforms)},
    )


def _summary(rows: int, settings: RotationSettings, took_part: int, changed: dict[str, int]) -> Summary:
    took_part_by_field = {name: took_part if name in changed else 0 for name in settings.fields}
    return Summary(
        rows=rows,
        groups=1,
        group_size=GroupSize(rows, float(rows), rows),
        took_part=took_part,
        took_part_by_field=took_part_by_field,
        changed={name: changed.get(name, 0) for name in settings.fields},
        suppressed=0,
        unswapped=rows - took_part,
        unswapped_reasons={"null": rows - took_part} if rows > took_part else {},
        achieved_rate=sum(took_part_by_field.values()) / (rows * len(settings.fields)),
    )
