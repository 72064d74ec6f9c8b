"""Headline of a report: the state of a release, and three sentences on risk, utility and what to do.

The risk is the risk of the attacks if the report has attacks. Otherwise it is the probability that an
intruder finds a person's row and reads a true value there. This probability is at most the smaller of the
probabilities of both events (the upper Fréchet bound). Each is taken beyond chance, like the attacks (Giomi
et al. 2023): (rate - chance) / (1 - chance). The thresholds are those of the attacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pyarrow as pa

from providers.attacks.intruders import USED
from providers.attacks.thresholds import Bounds, Thresholds
from providers.attacks.verdict import SINGLING_OUT, STATES
from providers.measures.assessment import MeasureOptions
from providers.selection.baseline import chance_of_fields
from providers.selection.figures import FIGURES, Figure
from providers.selection.headline_words import (
    ACTIONS,
    NO_FIGURE_OF_RISK,
    NONE_IS_BETTER,
    NOTHING_MEASURED,
    ONE_ROW,
    constant_words,
    fields_of,
    lowered,
    names_of,
    reading_words,
    risk_words,
    share_words,
    state_words,
    threshold_words,
    unjudged_words,
    utility_words,
)

HeadlineState = Literal["low", "elevated", "high", "unknown"]

LINKAGE, TRUE_VALUES, REVERSIBLE = "record_linkage", "true_values", "reversible_rows"
"""Names of the figures that decide; thresholds of single attacks may name them, too."""

_NARROW, _CHANGED = "interval_sd.narrow.by_field", "changed_share"


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure of risk next to its value by chance."""

    figure: str
    value: float
    chance: float
    field: str | None = None
    """Field whose values are read; None for a figure of rows."""
    used: tuple[str, ...] | None = None
    """Known fields by which rows are found, if these are not all known fields."""

    @property
    def risk(self) -> float:
        """Value beyond chance as a share of what chance leaves; 0 at least."""
        return max(0.0, (self.value - self.chance) / (1 - self.chance)) if self.chance < 1 else 0.0


@dataclass(frozen=True, slots=True)
class Headline:
    """State of a release, and the sentences with its reason and the next step."""

    state: HeadlineState
    sentences: list[str]
    """Three sentences: on the risk, the utility and the next step."""
    risk: float | None = None
    """Risk beyond chance that was compared with the thresholds; None if it is unknown."""
    decided_by: list[dict[str, Any]] = field(default_factory=list)
    """Figures that decide, with ``figure``, ``value``, ``chance`` and maybe ``field``."""
    thresholds: dict[str, Any] = field(default_factory=dict)
    """Bounds of the figure that decides."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON, without what is None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def headline(
    report: Mapping[str, Any],
    thresholds: Thresholds,
    *,
    source: pa.Table | None = None,
    options: MeasureOptions | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Headline:
    """Return the headline of a report.

    Parameters
    ----------
    report : mapping
        Report without its headline.
    thresholds : Thresholds
        Those of the caller's project.
    source : pa.Table, optional
        Needed for the values by chance; without it no true values are judged.
    options : MeasureOptions, optional
        Options with which the report was measured.
    parameters : mapping, optional
        All parameters of the run, defaults included, to name those that lower the risk.
    """
    if report.get("frontier"):
        return _of_comparison(report["frontier"], thresholds)
    state, sentence, found = _risk(report, thresholds, source, options or MeasureOptions())
    unjudged = report.get("unjudged") or []
    if report.get("measures"):
        rows = (report.get("summary") or {}).get("rows") or 0
        utility = utility_words(report["measures"], report.get("pictures") or {}, rows, whole=not unjudged)
    else:
        utility = _count_of_attacks(report) if report.get("verdict") else NOTHING_MEASURED
    fixed = _fixed_fields(report, found.get("decided_by") or (), options or MeasureOptions())
    action = ACTIONS["one_row"] if sentence == ONE_ROW else _action(state, report, parameters or {}, fixed)
    if state == "low" and unjudged and not (options or MeasureOptions()).sensitive_fields:
        state, sentence, action = "unknown", unjudged_words(unjudged, sentence), ACTIONS["unjudged"]
    return Headline(state, [sentence, utility, action], **found)


def _risk(
    report: Mapping[str, Any], thresholds: Thresholds, source: pa.Table | None, options: MeasureOptions
) -> tuple[HeadlineState, str, dict[str, Any]]:
    """Return the state, the sentence on risk, and the figures that decide."""
    if verdict := report.get("verdict"):
        return _of_attacks(verdict)
    rows = int((report.get("summary") or {}).get("rows") or 0)
    if (rows if source is None else source.num_rows) == 1:
        return "unknown", ONE_ROW, {}
    readings, constant = readings_of(report, source, options)
    value, bounds, decisive = _decisive(readings, thresholds)
    reversible = _reversible(report)
    own = thresholds.of(REVERSIBLE)
    if (
        reversible is not None
        and reversible.risk > own.elevated
        and _worse(reversible.risk, own, value, bounds)
    ):
        value, bounds, decisive = reversible.risk, own, [reversible]
    if value is None:
        return "unknown", constant_words(constant) if constant else NO_FIGURE_OF_RISK, {}
    state = _state(value, bounds)
    words = reading_words(
        {each.figure: (each.value, each.chance, each.field) for each in decisive},
        options.known_fields or options.key_fields,
        next((each.used for each in decisive if each.used), ()),
        _moving_noun(report),
        lambda share: share_words(share, rows, options.threshold),
    )
    risk = risk_words(value, rows, options.threshold, bounds, bound=len(decisive) > 1)
    sentence = f"{state_words(state)}: {words}; the risk beyond chance is {risk}."
    return state, sentence, _found(value, decisive, bounds)


def _found(value: float, decisive: Sequence[Reading], bounds: Bounds) -> dict[str, Any]:
    listed = [{name: each for name, each in asdict(one).items() if each is not None} for one in decisive]
    return {
        "risk": value,
        "decided_by": listed,
        "thresholds": {"elevated": bounds.elevated, "high": bounds.high},
    }


def readings_of(
    report: Mapping[str, Any], source: pa.Table | None, options: MeasureOptions
) -> tuple[dict[str, Reading], list[str]]:
    """Return the readings of a report by figure, and the fields that cannot be judged.

    The readings are the rows that are found, and the true values of the worst field. A field whose value is
    the same in all rows is not judged: everybody knows it without the release, and chance leaves nothing.
    """
    measures = report.get("measures") or {}
    found: dict[str, Reading] = {}
    linkage = measures.get(LINKAGE) or {}
    if linked := linkage.get("value"):
        used = tuple(linkage["fields"]) if "all_known" in linkage else None
        found[LINKAGE] = Reading(LINKAGE, float(linked["rate"]), float(linked["chance"]), used=used)
    true = _true_values(measures, source, options)
    judged = [each for each in true if each.chance < 1 or each.value < 1]
    if judged:
        found[TRUE_VALUES] = max(judged, key=lambda each: each.risk)
    return found, list(dict.fromkeys(str(each.field) for each in true if each not in judged))


def _true_values(
    measures: Mapping[str, Any], source: pa.Table | None, options: MeasureOptions
) -> list[Reading]:
    """Share of the rows that show the true value of each protected field, and of those with a close number.

    A number is close within a twentieth of a standard deviation, as in `interval_sd`. A field of numbers has
    both readings: one extreme value makes nearly all others close to each other, so that chance leaves
    nothing, although they may all be unchanged.
    """
    changed = (measures.get(_CHANGED) or {}).get("value")
    if not changed or source is None or not source.num_rows:
        return []
    known = options.known_fields or options.key_fields
    near = FIGURES[_NARROW].by_field((measures.get("interval_sd") or {}).get("value"))
    of_run = (measures[_CHANGED].get("per_row") or {}).get("fields") or list(changed)
    wanted = [name for name in options.sensitive_fields or of_run if name in changed and name not in known]
    by_chance = chance_of_fields(FIGURES[_NARROW], source, options, wanted)
    different = chance_of_fields(FIGURES[_CHANGED], source, options, wanted)
    readings = []
    for name in wanted:
        if name in near and name in by_chance:
            readings.append(Reading(TRUE_VALUES, near[name], by_chance[name], name))
        if name in different:
            readings.append(Reading(TRUE_VALUES, 1 - float(changed[name]), 1 - different[name], name))
    return readings


def _decisive(
    readings: Mapping[str, Reading], thresholds: Thresholds
) -> tuple[float | None, Bounds, list[Reading]]:
    """Return the risk, its bounds, and the readings behind it.

    Both events must happen for a disclosure, so that the one with the lower risk decides.
    """
    if not readings:
        return None, thresholds, []
    least = min(readings.values(), key=lambda each: each.risk)
    ordered = [readings[name] for name in (LINKAGE, TRUE_VALUES) if name in readings]
    return least.risk, thresholds.of(least.figure), ordered


def _reversible(report: Mapping[str, Any]) -> Reading | None:
    """Share of the rows whose exchange anybody can undo who knows the groups; None if it is unknown.

    If households or units move, both the groups and the whole are counted in these.
    """
    provider = report.get("provider") or {}
    bits = provider.get("group_bits")
    noun = _moving_noun(report)
    whole = ((report.get("summary") or {}) if noun == "row" else provider[f"{noun}s"]).get(f"{noun}s")
    if not provider.get("reversible") or not isinstance(bits, Mapping) or not whole:
        return None
    undone = sum(float(bits.get(f"rows_in_groups_of_{size}") or 0) for size in ("two", "three"))
    return Reading(REVERSIBLE, min(1.0, undone / whole), 0.0)


def _moving_noun(report: Mapping[str, Any]) -> str:
    """Return the unit that a run exchanges: ``row``, ``household`` or ``unit``."""
    provider = report.get("provider") or {}
    return next(
        (noun for noun in ("household", "unit") if isinstance(provider.get(f"{noun}s"), Mapping)), "row"
    )


def _worse(risk: float, bounds: Bounds, other: float | None, other_bounds: Bounds) -> bool:
    """Whether a risk that is not low has a higher state than another one, or the same and a higher value."""
    if _state(risk, bounds) == "low" or other is None:
        return _state(risk, bounds) != "low"
    states = [STATES.index(_state(*each)) for each in ((risk, bounds), (other, other_bounds))]
    return states[0] > states[1] or (states[0] == states[1] and risk > other)


def _state(risk: float, bounds: Bounds) -> Literal["low", "elevated", "high"]:
    return "high" if risk > bounds.high else "elevated" if risk > bounds.elevated else "low"


def _of_attacks(verdict: Mapping[str, Any]) -> tuple[HeadlineState, str, dict[str, Any]]:
    """Return the state of the verdict, and the reason of its worst attack that does more than single out."""
    state: HeadlineState = verdict["state"]
    attacks = verdict.get("attacks") or []
    if not attacks:
        return state, f"{state_words(state)}: {lowered(verdict['reasons'][0])}", {}
    deciding = [each for each in attacks if each["state"] == state]
    worst = next((each for each in deciding if each["attack"] not in SINGLING_OUT), attacks[0])
    bounds = Thresholds.model_validate(verdict.get("thresholds") or {}).of(worst["attack"])
    decided = {"figure": worst["attack"], "value": worst["value"], "chance": 0.0}
    if worst.get("field") is not None:
        decided["field"] = worst["field"]
    return (
        state,
        f"{state_words(state)}: {lowered(worst['reason'])}",
        {
            "risk": worst["value"],
            "decided_by": [decided],
            "thresholds": {"elevated": bounds.elevated, "high": bounds.high},
        },
    )


def _count_of_attacks(report: Mapping[str, Any]) -> str:
    states = [each["state"] for each in report["verdict"].get("attacks") or ()]
    counts = [f"{states.count(state)} {state}" for state in reversed(STATES) if state in states]
    if not counts:
        return "No attack could be made on this release."
    return f"Of {len(states)} attacks the risk is: {', '.join(counts)}."


def _fixed_fields(
    report: Mapping[str, Any], decided_by: Sequence[Mapping[str, Any]], options: MeasureOptions
) -> list[str]:
    """Return the fields that the deciding figures read, if the run changes none of them; otherwise empty.

    No parameter of the method changes such a figure, unless the run works on one of these fields, too.
    """
    worked_on = set((report.get("summary") or {}).get("changed") or ())
    if not worked_on:  # of a release whose run is not known
        return []
    fields: list[str] = []
    for figure in decided_by:
        if report.get("verdict"):
            own = {} if "field" in figure else (report.get("attacks") or {}).get(figure["figure"]) or {}
            read = (own.get("details") or {}).get(USED) or ()
        elif figure["figure"] == LINKAGE:
            read = figure.get("used") or options.known_fields or options.key_fields
        else:
            read = (figure["field"],) if "field" in figure else ()
        if not read or not worked_on.isdisjoint(read):
            return []
        fields += read
    return list(dict.fromkeys(fields))


def _action(
    state: HeadlineState, report: Mapping[str, Any], parameters: Mapping[str, Any], fixed: Sequence[str]
) -> str:
    """Return the sentence with the action; ``fixed``: the result of `_fixed_fields`."""
    if state in ("elevated", "high") and (advice := report.get("advice")):
        return str(advice["sentence"])
    if state == "low":
        return ACTIONS["attacked" if report.get("verdict") else "low"]
    if state == "unknown":
        return ACTIONS["unknown"]
    if not parameters and report.get("verdict"):
        return f"{ACTIONS[state]} {ACTIONS['advice']}"
    if fixed:
        more = f"change more fields, such as {fields_of(fixed)}"
        return (
            f"{ACTIONS[state]} To lower the risk, {more}: it is read in fields that the method leaves alone."
        )
    changes = []
    rate = parameters.get("rate")
    if isinstance(rate, float) and rate < 1:
        changes.append("raise 'rate'")
    larger = [f"'{name}'" for name in ("k", "block_size") if parameters.get(name) is not None]
    if larger:
        changes.append(f"make the groups larger ({names_of(larger, 3)})")
    if "min_group_size" in parameters and (report.get("provider") or {}).get("reversible"):
        changes.append("leave out small groups ('min_group_size')")
    changes.append("change more fields")
    return f"{ACTIONS[state]} To lower the risk, {', or '.join(changes)}, and compare several settings."


def _of_comparison(frontier: Mapping[str, Any], thresholds: Thresholds) -> Headline:
    """Headline of a comparison: the state of the combination with the least risk that no other one beats."""
    best = [
        point
        for point in frontier["points"]
        if not point.get("error") and not point["dominated"] and point.get("risk") is not None
    ]
    axis = (frontier.get("axes") or {}).get("risk") or {}
    figure = FIGURES.get(str(frontier["risk"]))
    baseline = axis.get("baseline")
    said = _range_of_utility(frontier, best) if best else NONE_IS_BETTER
    if not best or figure is None or baseline is None or not figure.is_share:
        return Headline("unknown", [NO_FIGURE_OF_RISK, said, ACTIONS["compared" if best else "incomparable"]])
    least = min(best, key=lambda point: point["risk"] if figure.goal == "low" else -point["risk"])
    again = frontier.get("recommended_in_new_runs") or {}
    measured_again = frontier.get("matters") == "risk" and "risk" in again
    if measured_again:  # the least of several risks is low by chance, too
        least = {"service": frontier["points"][frontier["recommended"]]["service"], **again}
    value, chance = float(least["risk"]), float(baseline)
    if figure.goal == "high":  # a share of values that changed
        value, chance = 1 - value, 1 - chance
    reading = Reading(figure.measure.key, value, chance)
    bounds = thresholds.of(figure.measure.key)
    state = _state(reading.risk, bounds)
    limits = _limits(least, figure, chance)
    words = f"({lowered(figure.measure.title)}), {threshold_words(reading.risk, bounds)}"
    sentence = (
        f"{state_words(state)}: of the combinations that no other one beats, {least['service']} has the "
    )
    if len(best) == 1:
        sentence += f"least risk, {reading.risk:.3f}{limits} beyond chance {words}."
    elif measured_again:
        sentence += f"least risk; in new runs of it the risk beyond chance is {reading.risk:.3f}{limits} "
        sentence += f"{words}."
    else:
        sentence += f"least risk, {reading.risk:.3f}{limits} beyond chance {words}"
        sentence += "; the least of several is low by chance, too."
    found = _found(reading.risk, [reading], bounds)
    return Headline(state, [sentence, said, ACTIONS["compared"]], **found)


def _limits(point: Mapping[str, Any], figure: Figure, chance: float) -> str:
    """Return the interval of a point's risk beyond chance in words; empty if it has none.

    ``chance`` is that of the risk, for which low values are better.
    """
    interval = point.get("risk_interval")
    if interval is None:
        return ""
    values = (interval["low"], interval["high"])
    if figure.goal == "high":
        values = (1 - interval["high"], 1 - interval["low"])
    low, high = (Reading(figure.measure.key, value, chance).risk for value in values)
    return f" (95 % interval {low:.3f} to {high:.3f})"


def _range_of_utility(frontier: Mapping[str, Any], best: Sequence[Mapping[str, Any]]) -> str:
    points = len(frontier["points"])
    beaten = f"{len(best)} of {points} combination{'' if points == 1 else 's'} "
    beaten += "is beaten by no other one" if len(best) == 1 else "are beaten by no other one"
    figure = FIGURES.get(str(frontier["utility"]))
    found = sorted(float(point["utility"]) for point in best if point.get("utility") is not None)
    if figure is None or not found:
        return f"{beaten}."
    title = lowered(figure.measure.title)
    values = f"{found[0]:.3g}" if found[0] == found[-1] else f"from {found[0]:.3g} to {found[-1]:.3g}"
    better = "less" if figure.goal == "low" else "more"
    return f"{beaten}; their utility ({title}, {better} is better) is {values}."
