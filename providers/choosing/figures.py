"""The figures by which runs are ranked and compared: a measure, and one number of its value.

A figure is named by its measure's key, or by key and place where a measure has several numbers:
``pscr``, ``dcr.mean``, ``dcr.at_zero``. The key alone stands for the first that is listed here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from providers.choosing.ranking import Goal
from providers.errors import ParameterError, did_you_mean
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, Released, assess
from providers.measures.measure import Measure
from providers.provider import Progress, no_progress
from providers.rng import Stream


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one measure."""

    name: str
    """In full, such as ``dcr.mean``."""
    measure: Measure
    place: tuple[str, ...]
    """Where it stands in the measure's value; empty where the value is the number."""
    goal: Goal
    needs: str
    """The option of `MeasureOptions` without which the measure is left out; empty for none."""

    def of(self, value: Any) -> float | None:
        """The number in the measure's value; of numbers by field, their mean. None where there is none."""
        for part in self.place:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, dict):
            numbers = [number for number in value.values() if isinstance(number, int | float)]
            value = math.fsum(numbers) / len(numbers) if numbers else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return float(value)

    def described(self, samples: Mapping[str, int]) -> dict[str, Any]:
        """What it is, as a report says it of a measure, and the rows of the sample where there was one."""
        described = self.measure.report(None) | {"key": self.measure.key, "goal": self.goal}
        del described["value"]
        if self.measure.key in samples:
            described["sample"] = samples[self.measure.key]
        return described


_OPPOSITE: Mapping[Goal, Goal] = {"low": "high", "high": "low"}

_PLACES: Mapping[str, Sequence[str]] = {
    "unique_combinations": ("after",),
    "mean_k": ("after",),
    "dcr": ("mean", "p05", "at_zero", "raw_mean"),
    "interval_sd": ("share", "narrow.share"),
    "interval_rmd": ("source", "own"),
    "record_linkage": ("rate",),
    "outlier_exposure": ("after",),
    "marginals": ("mean_distance", "identical"),
    "delta_rho": ("mean", "sd"),
    "association": ("cramers_v", "correlation_ratio"),
    "il2": ("pc1", "pc2"),
    "r_squared": ("after",),
    "total_correlation": ("after",),
    "query_error": ("mean", "q25", "median", "q75"),
    "prediction": ("destination",),
    "entropy_increase": ("mean",),
}
"""Measure -> the places of its figures, the first one standing for the measure; elsewhere the value."""

_AGAINST_THE_MEASURES_GOAL = {"dcr.at_zero", "marginals.identical"}

_NEEDS: Mapping[str, str] = {
    "unique_combinations": "key_fields",
    "mean_k": "key_fields",
    "record_linkage": "known_fields",
    "outlier_exposure": "target",
    "il3": "target",
    "r_squared": "target",
    "prediction": "target",
}


def _figures() -> dict[str, Figure]:
    found = {}
    for key, measure in MEASURES.items():
        for place in _PLACES.get(key, ("",)):
            name = f"{key}.{place}" if place else key
            goal = _OPPOSITE[measure.goal] if name in _AGAINST_THE_MEASURES_GOAL else measure.goal
            found[name] = Figure(
                name, measure, tuple(place.split(".")) if place else (), goal, _NEEDS.get(key, "")
            )
    return found


FIGURES: Mapping[str, Figure] = MappingProxyType(_figures())
"""Full name -> figure."""

UTILITY = "delta_rho.mean"
"""The figure of utility where none is named."""


def default_risk(options: MeasureOptions) -> str:
    """The figure of risk where none is named: it depends on whether it is said what an intruder knows."""
    return "record_linkage.rate" if options.known_fields or options.key_fields else "pscr"


def named_figure(name: str, options: MeasureOptions, pointer: str) -> Figure:
    """The figure of this name.

    Parameters
    ----------
    name : str
        In full, or a measure's key alone.
    options : MeasureOptions
        With which the measure will be taken.
    pointer : str
        Where the name stands in the request.

    Raises
    ------
    ParameterError
        There is no such figure, or it cannot be taken with these options.
    """
    full = name
    if name in MEASURES and name not in FIGURES:
        full = f"{name}.{_PLACES[name][0]}"
    if full not in FIGURES:
        raise ParameterError(f"unknown figure '{name}'{did_you_mean(name, FIGURES)}", pointer)
    figure = FIGURES[full]
    given = {"known_fields": options.known_fields or options.key_fields}
    if figure.needs and not given.get(figure.needs, getattr(options, figure.needs)):
        raise ParameterError(f"'{full}' needs 'measures.{figure.needs}', which is not given", pointer)
    return figure


_USES: Mapping[str, Sequence[str]] = {
    "key_fields": ("unique_combinations", "mean_k", "record_linkage"),
    "rounding": ("unique_combinations", "mean_k"),
    "known_fields": ("record_linkage",),
    "target": ("outlier_exposure", "il3", "r_squared", "prediction"),
    "only": (),
    "threshold": (),
}


def refuse_unused(options: MeasureOptions, figures: Sequence[Figure]) -> None:
    """Raise ParameterError where an option is given that none of the figures uses.

    For runs of which these figures are all that is measured.
    """
    taken = {figure.measure.key for figure in figures}
    for option, users in _USES.items():
        if option in options.model_fields_set and getattr(options, option) and not taken & set(users):
            names = ", ".join(f"'{figure.name}'" for figure in figures)
            raise ParameterError(
                f"'{option}' is used by none of the figures that are taken: {names}", f"/measures/{option}"
            )


@dataclass(frozen=True, slots=True)
class Taken:
    """The figures of one run."""

    values: dict[str, float]
    """Full name -> number."""
    undefined: dict[str, str]
    """Full name -> why there is no number."""
    samples: dict[str, int]
    """Measure -> rows, where it was not taken on all of them."""


def take_figures(
    figures: Sequence[Figure],
    released: Released,
    options: MeasureOptions,
    stream: Stream,
    progress: Progress = no_progress,
) -> Taken:
    """The figures of a release; of several, give the same stream: their samples are then the same rows."""
    only = tuple(dict.fromkeys(figure.measure.key for figure in figures))
    judged = assess(released, options.model_copy(update={"only": only}), stream, progress, pictures=False)
    taken = Taken({}, {}, {})
    for figure in figures:
        key = figure.measure.key
        if key not in judged.measures:
            taken.undefined[figure.name] = judged.left_out[key]
            continue
        value = figure.of(judged.measures[key]["value"])
        if value is None:
            taken.undefined[figure.name] = "it is not defined for these tables"
            continue
        taken.values[figure.name] = value
        if "sample" in judged.measures[key]:
            taken.samples[key] = judged.measures[key]["sample"]
    return taken
