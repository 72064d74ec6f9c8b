"""A release judged: every measure that applies, why the others do not, and what pictures are made of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from providers.measures import MEASURES, options
from providers.measures.case import Case, Finding, Released
from providers.measures.findings import FINDERS
from providers.measures.measure import NotApplicable
from providers.measures.options import MeasureOptions
from providers.measures.pictures import pictures_of
from providers.provider import Progress, no_progress, part_of
from providers.rng import Stream

__all__ = ["Assessment", "MeasureOptions", "Released", "assess", "check_options"]


@dataclass(frozen=True)
class Assessment:
    """The figures that a release is defended with."""

    measures: dict[str, dict[str, Any]]
    """Key -> value, what it means, the fields, and the sample where it was not all rows."""
    left_out: dict[str, str]
    """Key of a measure, or ``fields.`` and a field's name -> why it was not measured."""
    pictures: dict[str, Any]


def check_options(options_given: MeasureOptions, source: pa.Schema, destination: pa.Schema) -> None:
    """Raise ParameterError, with a pointer below /measures, where an option does not fit the tables."""
    options.check_options(options_given, source, destination, MEASURES)


def assess(
    released: Released,
    given: MeasureOptions,
    stream: Stream,
    progress: Progress = no_progress,
    pictures: bool = True,
) -> Assessment:
    """Every measure asked for that applies, and the data of the pictures.

    Parameters
    ----------
    released : Released
    given : MeasureOptions
        Checked: see `check_options`.
    stream : Stream
        Of the samples, the learners' seeds and the training part of `prediction`.
    progress : Progress
        Told before each measure.
    pictures : bool
        Also where `given.only` names measures, there are no pictures.

    Notes
    -----
    Linear in the rows, but for sorting and what is sampled. Libraries that would cut sums by their
    number of threads have one, so that no figure depends on the machine's cores.
    """
    case = Case(released, given, stream)
    wanted = [key for key in MEASURES if not given.only or key in given.only]
    measures: dict[str, dict[str, Any]] = {}
    left_out = {f"fields.{name}": reason for name, reason in case.left_out.items()}
    steps = len(wanted) + 1
    with threadpool_limits(limits=1), np.errstate(all="ignore"):
        for at, key in enumerate(wanted):
            case.progress = part_of(progress, at / steps, (at + 1) / steps)
            case.progress(0.0, f"measuring {key}")
            try:
                found = _finding(case, key)
                measures[key] = _described(case, key, found)
            except NotApplicable as reason:
                left_out[key] = str(reason)
        if pictures and not given.only:
            case.progress = part_of(progress, len(wanted) / steps, 1.0)
            case.progress(0.0, "drawing")
            drawn = pictures_of(case, measures)
        else:
            drawn = {}
    progress(1.0, "measured")
    return Assessment(measures, left_out, drawn)


def _finding(case: Case, key: str) -> Finding:
    given = case.released.run_values
    if key in FINDERS:
        if key in given and given[key] is not None and key != "changed_share":
            return Finding(given[key])
        return FINDERS[key](case)
    if given.get(key) is None:
        service = case.released.service
        raise NotApplicable(f"{service} does not give it" if service else "only a run of a service gives it")
    return Finding(given[key])


def _described(case: Case, key: str, found: Finding) -> dict[str, Any]:
    if not _is_finite(found.value):
        raise NotApplicable("the numbers are too large, or too close to each other, for float64")
    report = MEASURES[key].report(found.value) | dict(found.notes)
    if found.fields:
        report["fields"] = list(found.fields)
    if found.sample is not None:
        report["sample"] = found.sample
    return report


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_finite(part) for part in value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_is_finite(part) for part in value)
    return not isinstance(value, float) or math.isfinite(value)
