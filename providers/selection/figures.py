"""Named figures: the numbers of measures by which runs are ranked.

A figure is named by its measure's key, or by key and path if the measure has several numbers: ``pscr``,
``dcr.mean``, ``dcr.at_zero``. The key alone means the first part that the measure declares.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from providers.errors import ParameterError, did_you_mean
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.measure import Goal, Measure, Part
from providers.measures.shared.options import ROLES
from providers.measures.shared.repeats import Interval, share_interval
from providers.progress import Progress, no_progress, sub_progress
from providers.randomness.chacha20 import Stream
from providers.selection import inference_risk, linkability_risk
from providers.selection.repeated_attacks import Attempts
from providers.selection.sampled_attacks import SampledRisk
from providers.tables.units import unit_codes, unit_of_params


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one measure."""

    name: str
    """Full name, such as ``dcr.mean``."""
    measure: Measure
    part: Part
    goal: Goal
    """Better values of the figure."""

    def of(self, value: Any) -> float | None:
        """Return the number in the measure's value, the mean of numbers by field; None if there is none."""
        value = self._in(value)
        if isinstance(value, dict):
            return mean(_numbers_of(value).values())
        return float(value) if _is_number(value) else None

    def by_field(self, value: Any) -> dict[str, float]:
        """Return the numbers in the measure's value by field; empty if the figure is a single number."""
        value = self._in(value)
        return _numbers_of(value) if isinstance(value, dict) else {}

    def interval_in(self, intervals: Any) -> Interval | None:
        """Return the figure's interval in those of the measure's report; None if there is none."""
        found = intervals if isinstance(intervals, dict) and "low" in intervals else self._in(intervals)
        return (
            {"low": found["low"], "high": found["high"]}
            if isinstance(found, dict) and "low" in found
            else None
        )

    def _in(self, value: Any) -> Any:
        for key in self.part.path.split(".") if self.part.path else ():
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def is_share(self) -> bool:
        """Whether its values are shares, 0 to 1, and not distances or numbers of bits."""
        return self.measure.range == "0 to 1" or self.part.share_of_rows

    @property
    def words(self) -> str:
        """Name for people, such as ``Change of correlations, mean``."""
        path = self.part.path
        path = self.part.words or self.measure.words.get(path) or path.replace(".", ", ").replace("_", " ")
        return f"{self.measure.title}, {path}" if path else self.measure.title

    def described(self, samples: Mapping[str, int], fields: Sequence[str] = ()) -> dict[str, Any]:
        """Return the measure's title, goal, range, formula and source, and the figure's words.

        Parameters
        ----------
        samples : mapping of str to int
            Measure -> number of sampled rows, for measures taken on a sample.
        fields : sequence of str
            Fields over which the figure is a mean; empty if it is a single number.
        """
        described = self.measure.report(None) | {"key": self.measure.key, "goal": self.goal}
        described["words"] = self.words  # the console has no other names for figures
        del described["value"]
        if self.measure.key in samples:
            described["sample"] = samples[self.measure.key]
        if fields:
            described["fields"] = list(fields)
        return described


def mean(numbers: Iterable[float]) -> float | None:
    """Mean of the numbers; None if there is none."""
    listed = list(numbers)
    return math.fsum(listed) / len(listed) if listed else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if _is_number(value)}


ATTACK_RISKS: Mapping[str, tuple[Measure, Callable[..., SampledRisk]]] = MappingProxyType(
    {
        inference_risk.MEASURE.key: (inference_risk.MEASURE, inference_risk.inference_risk),
        linkability_risk.MEASURE.key: (linkability_risk.MEASURE, linkability_risk.linkability_risk),
    }
)
"""Figure of an attack on a sample -> its description, and the function that takes it."""


def _figures() -> dict[str, Figure]:
    found = {}
    for key, measure in MEASURES.items():
        for part in measure.parts:
            name = f"{key}.{part.path}" if part.path else key
            found[name] = Figure(name, measure, part, _goal(measure, part))
    for key, (measure, _) in ATTACK_RISKS.items():
        found[key] = Figure(key, measure, measure.parts[0], "low")
    return found


def _goal(measure: Measure, part: Part) -> Goal:
    """Return the better values of a part. One of a measure with the goal "near" must declare its own."""
    goal = part.goal or measure.goal
    if goal == "near":
        raise ValueError(f"part '{part.path}' of measure '{measure.key}' needs a goal: low or high")
    return goal


FIGURES: Mapping[str, Figure] = MappingProxyType(_figures())
"""Full name -> figure."""

DEFAULT_UTILITY = (
    "delta_rho.ranks.mean",
    "association.correlation_ratio",
    "association.cramers_v",
    "marginals.mean_distance",
)
"""Figures of utility if none is named, in the order in which they are tried."""

_DEFAULT_RISK = ("interval_sd.robust.by_field", "changed_share")


def default_risk(options: MeasureOptions) -> tuple[str, ...]:
    """Return the figures of risk if none is named, in the order in which they are tried.

    If the options name fields that an intruder knows, and other sensitive fields, the first figure is the
    share of these that the intruder infers; then comes record linkage. The other figures are means over the
    protected fields: the share of their numbers that are published nearly unchanged, and the share of their
    values that changed.
    """
    known = options.known_fields or options.key_fields
    if not known:
        return _DEFAULT_RISK
    secret = set(options.sensitive_fields) - set(known)
    inferred = (inference_risk.MEASURE.key,) if secret else ()
    return (*inferred, "record_linkage.rate", *_DEFAULT_RISK)


def comparison_risk(options: MeasureOptions, roles: MeasureOptions) -> tuple[str, ...]:
    """Return the figures of risk of a comparison if none is named, in the order in which they are tried.

    Parameters
    ----------
    options : MeasureOptions
        As the caller gave them.
    roles : MeasureOptions
        Known and sensitive fields of the attacks, see `assumed_roles`. With both, the attacks come first.
    """
    others = tuple(name for name in default_risk(options) if name not in ATTACK_RISKS)
    attacked = (roles.known_fields or roles.key_fields) and roles.sensitive_fields
    return (*ATTACK_RISKS, *others) if attacked else others


UTILITIES: Mapping[str, str] = MappingProxyType(
    {
        "marginals": "marginals.mean_distance",
        "correlations": "delta_rho.ranks.mean",
        "model": "prediction.destination",
        "queries": "range_averages.bounded",
    }
)
"""Use of a release -> figure of utility that measures it."""


_KNOWN_TO_INTRUDER = frozenset({"key_fields", "known_fields"})
"""Options that name fields known to an intruder: a measure that needs one of them reads only these fields,
and the fields of its `needs_each`."""


def cannot_change(figure: Figure, options: MeasureOptions, changed: Iterable[str]) -> str | None:
    """Return the reason for which runs that change these fields alone cannot change the figure, or None.

    Parameters
    ----------
    figure : Figure
    options : MeasureOptions
        Options with which the figure is taken.
    changed : iterable of str
        Fields of which at least one run changes a value.
    """
    known = (getattr(options, name) for name in figure.measure.needs if name in _KNOWN_TO_INTRUDER)
    fields = next(filter(None, known), options.fields)
    if fields:
        fields += tuple(name for option in figure.measure.needs_each for name in getattr(options, option))
    if not fields or not set(fields).isdisjoint(changed):
        return None
    names = ", ".join(f"'{name}'" for name in fields)
    return f"it is taken only on {names}, of which no run changes a value"


def named_figure(name: str, options: MeasureOptions, pointer: str) -> Figure:
    """Look up a figure by its name.

    Parameters
    ----------
    name : str
        Full name, a measure's key alone, or a use in `UTILITIES`.
    options : MeasureOptions
        Options with which the measure will be taken.
    pointer : str
        JSON pointer of the name in the request.

    Raises
    ------
    ParameterError
        There is no such figure, or it cannot be taken with these options.
    """
    full = UTILITIES.get(name, name)
    if not options.query_fields:
        full = _of_range_averages(full)
    if name in MEASURES and full not in FIGURES:
        full = f"{name}.{MEASURES[name].parts[0].path}"
    if full not in FIGURES:
        raise ParameterError(f"unknown figure '{name}'{did_you_mean(name, FIGURES)}", pointer)
    figure = FIGURES[full]
    needs = figure.measure.needs
    missing = [] if not needs or any(getattr(options, option) for option in needs) else [needs[0]]
    missing += [option for option in figure.measure.needs_each if not getattr(options, option)]
    if missing:
        raise ParameterError(f"'{full}' needs 'measures.{missing[0]}', which is not given", pointer)
    return figure


def _of_range_averages(name: str) -> str:
    """Return the name of a figure of `range_averages`, whose key was `query_error` in earlier versions.

    Jobs of these versions, which name no fields of queries, keep their candidates in a rerun.
    """
    key, _, path = name.partition(".")
    return f"range_averages.{path or 'bounded'}" if key == "query_error" else name


_OF_REPORTS_ALONE = ("only",)
"""Options that no figure uses."""


def _options_of(measure: Measure) -> tuple[str, ...]:
    """Options that only some measures read, this one among them."""
    return (*measure.needs, *measure.needs_each, *measure.uses)


def refuse_unused(options: MeasureOptions, figures: Sequence[Figure]) -> None:
    """Raise ParameterError if an option is given that none of the figures uses.

    This is for runs of which only these figures are measured.
    """
    of_some_measures = {name for measure in MEASURES.values() for name in _options_of(measure)} - set(ROLES)
    used = {name for figure in figures for name in _options_of(figure.measure)}
    for option in MeasureOptions.model_fields:
        checked = option in of_some_measures or option in _OF_REPORTS_ALONE
        given = option in options.model_fields_set and getattr(options, option)
        if checked and given and option not in used:
            names = ", ".join(f"'{figure.name}'" for figure in figures)
            raise ParameterError(
                f"'{option}' is used by none of the figures that are taken: {names}", f"/measures/{option}"
            )


@dataclass(frozen=True, slots=True)
class Taken:
    """Figures of one run."""

    values: dict[str, float]
    """Full name -> number."""
    undefined: dict[str, str]
    """Full name -> reason for which there is no number."""
    samples: dict[str, int]
    """Measure -> number of sampled rows, for measures that were not taken on all rows."""
    by_field: dict[str, dict[str, float]]
    """Full name -> numbers by field, for the figures that are means over fields."""
    intervals: dict[str, Interval] = field(default_factory=dict)
    """Full name -> own interval (95 %) of the figure, if it has one."""
    attempts: dict[str, tuple[Attempts, ...]] = field(default_factory=dict)
    """Full name of an attack -> the single attacks; on the same rows in all runs."""

    def over(self, fields: Iterable[str]) -> "Taken":
        """Copy the figures; means over fields become means over only these fields."""
        wanted = set(fields)
        taken = replace(self, values=dict(self.values), undefined=dict(self.undefined))
        for name, numbers in self.by_field.items():
            value = mean(number for field, number in numbers.items() if field in wanted)
            taken.values.pop(name, None)
            if value is None:
                taken.undefined[name] = "it is not defined for any field that is protected"
            else:
                taken.values[name] = value
        return taken


def averaged_fields(figure: Figure, runs: Iterable[Taken], protected: Iterable[str]) -> list[str]:
    """Return the fields over which a figure is the mean: protected ones of which a run has a number.

    Empty if the figure is a single number.
    """
    known = {name for taken in runs for name in taken.by_field.get(figure.name, ())}
    return [name for name in protected if name in known]


def take_figures(
    figures: Sequence[Figure],
    release: Release,
    options: MeasureOptions,
    stream: Stream,
    progress: Progress = no_progress,
    roles: MeasureOptions | None = None,
) -> Taken:
    """Take the figures of a release.

    Parameters
    ----------
    figures : sequence of Figure
    release : Release
    options : MeasureOptions
    stream : Stream
        Shared by the releases that are compared, hence also the sample.
    progress : Progress
    roles : MeasureOptions, optional
        Options of the attacks, with their known and sensitive fields; default: `options`.
    """
    taken = Taken({}, {}, {}, {})
    attacks = [figure.name for figure in figures if figure.name in ATTACK_RISKS]
    for index, name in enumerate(attacks):
        part = sub_progress(progress, 0.5 * index / len(attacks), 0.5 * (index + 1) / len(attacks))
        _take_attack(taken, name, release, roles or options, stream, part)
    if attacks:
        figures = [figure for figure in figures if figure.name not in ATTACK_RISKS]
        progress = sub_progress(progress, 0.5, 1.0)
    if not figures:
        return taken
    only = tuple(dict.fromkeys(figure.measure.key for figure in figures))
    assessment = assess(release, options.model_copy(update={"only": only}), stream, progress, pictures=False)
    for figure in figures:
        key = figure.measure.key
        if key not in assessment.measures:
            taken.undefined[figure.name] = assessment.left_out[key]
            continue
        report = assessment.measures[key]
        record(taken, figure, report["value"])
        if figure.name not in taken.values:
            continue
        interval = figure.interval_in(report.get("interval"))
        if interval is None and figure.part.share_of_rows:
            interval = share_interval(taken.values[figure.name], _independent_rows(release, options))
        if interval is not None:
            taken.intervals[figure.name] = interval
        if "sample" in report:
            taken.samples[key] = report["sample"]
    return taken


def _independent_rows(release: Release, options: MeasureOptions) -> int:
    """Return the number of rows of a release, or of the units or households to which they belong."""
    unit = options.unit_field or unit_of_params(release.parameters)
    units = unit_codes(release.source, unit)
    return release.destination.num_rows if units is None else int(units.max(initial=0)) + 1


def record(taken: Taken, figure: Figure, value: Any) -> None:
    """Add the figure in a measure's value to those that were taken, or the reason for having none."""
    if by_field := figure.by_field(value):
        taken.by_field[figure.name] = by_field
    number = figure.of(value)
    if number is None:
        taken.undefined[figure.name] = "it is not defined for these tables"
    else:
        taken.values[figure.name] = number


def _take_attack(
    taken: Taken, name: str, release: Release, roles: MeasureOptions, stream: Stream, progress: Progress
) -> None:
    """Add the figure of an attack, or the reason for which there is none."""
    try:
        risk = ATTACK_RISKS[name][1](release, roles, stream, progress)
    except NotApplicable as reason:
        taken.undefined[name] = str(reason)
        return
    taken.values[name], taken.intervals[name] = risk.value, risk.interval
    taken.attempts[name] = risk.tried
    if risk.sampled is not None:
        taken.samples[name] = risk.sampled
