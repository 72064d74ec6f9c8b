"""Take all measures of a release: values, reasons for those that do not apply, and data for charts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from providers.measures import MEASURES
from providers.measures.chart_data import chart_data
from providers.measures.extremes import caution
from providers.measures.shared import options
from providers.measures.shared.comparison import Comparison, Release
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Measure
from providers.measures.shared.options import MeasureOptions
from providers.progress import Progress, no_progress, sub_progress
from providers.randomness.chacha20 import Stream

__all__ = ["Assessment", "MeasureOptions", "Release", "assess", "check_options"]


@dataclass(frozen=True)
class Assessment:
    """Values of all measures of a release that apply, and data for charts."""

    measures: dict[str, dict[str, Any]]
    """Key -> value, texts of the measure, fields, and the number of sampled rows if not all were used."""
    left_out: dict[str, str]
    """Key of a measure, or ``fields.`` and a field's name -> reason why it was not measured."""
    pictures: dict[str, Any]
    """Data for charts; empty if none were requested."""
    unjudged: list[str] = field(default_factory=list)
    """Published fields that cannot be compared with the source, of a release whose changed fields are
    unknown."""


def check_options(options_given: MeasureOptions, source: pa.Schema, destination: pa.Schema) -> None:
    """Raise ParameterError, with a pointer below /measures, if an option does not fit the tables."""
    options.check_options(options_given, source, destination, MEASURES)


def assess(
    release: Release,
    given: MeasureOptions,
    stream: Stream,
    progress: Progress = no_progress,
    pictures: bool = True,
) -> Assessment:
    """Take every requested measure that applies, and collect the data for charts.

    Parameters
    ----------
    release : Release
    given : MeasureOptions
        Checked by `check_options`.
    stream : Stream
        Randomness of samples, learners' seeds and splits.
    progress : Progress
        Called before each measure.
    pictures : bool
        Whether to collect data for charts, and values by chance that need a computation of their own. There
        are no charts if `given.only` names measures. A comparison of runs takes its values by chance once for
        all of them.

    Notes
    -----
    Linear in the rows, except for sorting and for measures on the sample. Libraries that cut sums by their
    number of threads run single-threaded, so that no value depends on the number of cores.
    """
    comparison = Comparison(release, given, stream)
    wanted = [key for key in MEASURES if not given.only or key in given.only]
    measures: dict[str, dict[str, Any]] = {}
    left_out = {f"fields.{name}": reason for name, reason in comparison.left_out.items()}
    steps = len(wanted) + 1
    with threadpool_limits(limits=1), np.errstate(all="ignore"):
        for done, key in enumerate(wanted):
            comparison.progress = sub_progress(progress, done / steps, (done + 1) / steps)
            comparison.progress(0.0, f"measuring {key}")
            try:
                found = _find(comparison, key)
                measures[key] = _report(key, found, comparison)
                if pictures:
                    _add_chances(measures[key], MEASURES[key], comparison)
            except NotApplicable as reason:
                left_out[key] = str(reason)
        if pictures and not given.only:
            comparison.progress = sub_progress(progress, len(wanted) / steps, 1.0)
            comparison.progress(0.0, "drawing")
            charts = chart_data(comparison, measures)
        else:
            charts = {}
    progress(1.0, "measured")
    return Assessment(measures, left_out, charts, comparison.unjudged)


def _find(comparison: Comparison, key: str) -> Finding:
    find = MEASURES[key].find
    if find is not None:
        return find(comparison)
    value = comparison.release.run_values.get(key)
    if value is None:
        service = comparison.release.service
        raise NotApplicable(f"{service} does not give it" if service else "only a run of a service gives it")
    return Finding(value)


def _report(key: str, found: Finding, comparison: Comparison) -> dict[str, Any]:
    if not _is_finite(found.value):
        raise NotApplicable(BEYOND_FLOAT64)
    report = MEASURES[key].report(found.value) | dict(found.notes)
    if found.fields:
        report["fields"] = list(found.fields)
    if found.sample is not None:
        report["sample"] = found.sample
    if cautious := caution(MEASURES[key], comparison, found.fields):
        report["caution"] = cautious
    return report


def _add_chances(report: dict[str, Any], measure: Measure, comparison: Comparison) -> None:
    """Add the values by chance to the report of a measure, and their intervals if they are drawn."""
    chances = _chances(measure, report["value"], comparison)
    if measure.by_chance is not None:
        with contextlib.suppress(NotApplicable):
            together = measure.by_chance(comparison)
            chances = _united(chances, together.value)
            if together.interval:
                report["interval"] = report.get("interval", {}) | {"chance": together.interval}
    if chances:
        report["chance"] = chances


def _united(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of both; mappings that both have are united, too."""
    both = {key: _united(one[key], other[key]) for key in one.keys() & other.keys()}
    return {**other, **one, **both}


def _chances(measure: Measure, value: Any, comparison: Comparison) -> dict[str, Any]:
    """Return the values by chance of the parts that declare them, by field, at their places in the value.

    They are those of releases whose values are dealt to the rows at random.
    """
    chances: dict[str, Any] = {}
    for part in measure.parts:
        if part.chance is None:
            continue
        path = part.path.split(".") if part.path else []
        by_field, place = value, chances
        for name in path:
            by_field, place = by_field[name], place.setdefault(name, {})
        for name in by_field:
            chance = part.chance(comparison.columns[name]) if name in comparison.columns else None
            if chance is not None:
                place[name] = chance
    return chances


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_finite(part) for part in value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_is_finite(part) for part in value)
    return not isinstance(value, float) or math.isfinite(value)
