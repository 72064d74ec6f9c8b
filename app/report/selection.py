"""Evidence of a choice: the best of several seeds, or the frontier of services and parameters."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.report.formatting import counted, humanised, listed, named, number, quoted, visible
from app.report.measure_tables import GOALS, words_of
from app.report.page_table import Cell, Table
from app.report.plots import Axis, Point
from app.report.plots import frontier as plot
from app.report.small_counts import Discretion
from app.report.svg import Picture
from providers.measures import MEASURES
from providers.selection.figures import FIGURES

_NO_VALUE = "-"

_AXES = ("risk", "utility")

_BEYOND = " by more than the uncertainty of all differences together, at 95 %"


@dataclass(frozen=True, slots=True)
class Choice:
    """Sentences, a chart of the frontier if there is one, and a table of all that was compared."""

    sentences: list[str]
    picture: Picture | None
    table: Table
    further: Table | None = None
    """Figures that were tried and are on no axis."""


def axis(key: str, figures: Mapping[str, Mapping[str, Any]]) -> Axis:
    """Build the axis of a figure: of a measure, such as `pscr`, or of a part of one, such as `dcr.p05`.

    Parameters
    ----------
    key : str
    figures : mapping
        Key of a figure or of a measure -> its entry in the report; entries that it lacks are looked up.
    """
    measure, _, path = key.partition(".")
    figure = FIGURES.get(key)
    declared = figure.measure if figure else MEASURES.get(measure)
    known = figures.get(key) or figures.get(measure) or (declared.report(None) if declared else {})
    title = str(known.get("title") or humanised(measure))
    goal = figure.goal if figure else str(known.get("goal"))
    words = (figure.part.words if figure else "") or words_of(path, measure)
    return Axis(f"{title}, {words}" if path else title, GOALS.get(goal, "").partition(" ")[2])


def frontier(given: Mapping[str, Any], discretion: Discretion) -> Choice | None:
    """Describe the releases that were tried; those that are not dominated are marked."""
    points = given.get("points") or []
    if not points:
        return None
    risk, utility = (axis(str(given[which]), given.get("figures") or {}) for which in ("risk", "utility"))
    drawn, rows, marked = [], [], {}
    guaranteed = any(point.get("guarantee") for point in points)
    for number_of_point, point in enumerate(points, 1):
        whole = point.get("risk") is not None and point.get("utility") is not None and not point.get("error")
        best = whole and not point.get("dominated")
        if whole:
            place = float(point["risk"]), float(point["utility"])
            limits = _limits(point.get("risk_interval")), _limits(point.get("utility_interval"))
            drawn.append(Point(number_of_point, *place, best, *limits))
        if best:
            marked[number_of_point - 1] = "not dominated"
        found = (
            _of_the_frontier(point)
            if best
            else _outcome(point, discretion)
            if whole
            else str(point.get("error") or "no figures")
        )
        rows.append(
            (
                str(number_of_point),
                str(point.get("service", "")),
                _parameters(point.get("parameters") or {}),
                _with_limits(point.get("risk"), _limits(point.get("risk_interval")), discretion),
                _with_limits(point.get("utility"), _limits(point.get("utility_interval")), discretion),
                *([_epsilon(point)] if guaranteed else []),
                visible(", ".join(map(str, point.get("protects") or [])) or _NO_VALUE),
                visible(found),
            )
        )
    head = ("number", "service", "parameters", risk.words, utility.words)
    head += (*(("epsilon",) if guaranteed else ()), "protects", "outcome")
    table = Table(
        "All combinations",
        head,
        rows,
        words=frozenset({1, 2, len(head) - 2, len(head) - 1} | ({5} if guaranteed else set())),
        marked=marked,
    )
    runs = int(given.get("runs") or 1)
    failed = len(points) - len(drawn)
    tried = f"{counted(len(points), 'combination was', 'combinations were')} tried"
    sentences = [f"{tried}.", *_comparison(given, len(marked))]
    if (preferred := given.get("recommended")) is not None:
        what = {"risk": "risk", "utility": "loss of utility"}[str(given["matters"])]
        sentences.append(f"You said that {what} matters more: number {preferred + 1} has the least.")
        if close := [str(index + 1) for index in given.get("recommended_within_uncertainty") or ()]:
            sentences.append(f"Number {listed(close)} differs from it by no more than the uncertainty.")
        sentences += _new_runs(given)
    if runs > 1:
        sentences.append(f"Each point is the mean of {number(runs)} runs.")
    if failed:
        sentences.append(f"{counted(failed, 'has', 'have')} no figures; the table says why.")
    return Choice(sentences, plot(drawn, risk, utility, table), table, _further_figures(given, discretion))


def _comparison(given: Mapping[str, Any], best: int) -> list[str]:
    """Sentences on the verdict, the fields that were changed, and the axes."""
    figures = given.get("figures") or {}
    sentences = [visible(str(given["verdict"]))] if given.get("verdict") else []
    if best:
        if not sentences:
            sentences.append(f"{counted(best, 'is', 'are')} not dominated.")
        sentences.append(
            "Not dominated means that no other one that protects the same fields is as good in both "
            f"figures and better in one{_BEYOND if _has_intervals(given) else ''}. The curator decides which "
            "of them to use."
        )
    if attacked := given.get("attacked"):
        known, sensitive = (
            listed([quoted(str(name)) for name in attacked[role]]) for role in ("known", "sensitive")
        )
        sentences.append(f"Attacks: an intruder who knows {known} wants to learn {sensitive}.")
    covers = {str(given[which]): figures.get(given[which], {}).get("interval_covers") for which in _AXES}
    sentences += [
        f"In brackets after {axis(key, figures).title}: its 95 % interval for other {causes}."
        for key, causes in covers.items()
        if causes
    ]
    if protected := given.get("protected"):
        names = listed([quoted(str(name)) for name in protected])
        sentences.append(f"Fields that were changed: {names}.")
    for which, each in (given.get("axes") or {}).items():
        if each.get("constant"):
            sentences.append(
                f"The figure of {which} ({axis(str(each['figure']), figures).title}) is constant and ranks "
                f"nothing: {visible(str(each.get('reason', '')))}."
            )
        if each.get("baseline") is not None:
            sentences.append(
                f"By chance alone the figure of {which} is {number(each['baseline'])}: "
                f"{visible(str(each.get('baseline_of', '')))}."
            )
    sentences += [
        f"{axis(str(key), figures).title} was not used: {visible(str(why))}."
        for key, why in (given.get("passed_over") or {}).items()
    ]
    return sentences


def _new_runs(given: Mapping[str, Any]) -> list[str]:
    """Sentences on the recommended point in new runs; none in reports of older versions."""
    found = given.get("recommended_in_new_runs") or {}
    values = [
        f"{which} is {number(found[which])}{_bracketed(_limits(found.get(f'{which}_interval')))}"
        for which in _AXES
        if which in found
    ]
    if not values:
        return []
    return [
        "The figures by which it was picked are partly good by chance: in new runs with other seeds "
        f"{' and '.join(values)}."
    ]


def _bracketed(limits: tuple[float, float] | None) -> str:
    return f" ({number(limits[0])} to {number(limits[1])})" if limits else ""


def _has_intervals(given: Mapping[str, Any]) -> bool:
    """Whether the report is of a version whose points have intervals."""
    return any("intervals" in point for point in given.get("points") or ())


def _epsilon(run: Mapping[str, Any]) -> str:
    """Return the epsilon of a run, and those of its fields if there are several."""
    guarantee = run.get("guarantee")
    if not guarantee or guarantee.get("epsilon") is None:
        return "none"
    by_field = guarantee.get("by_field") or {}
    parts = [f"{visible(str(name))}: {number(value)}" for name, value in by_field.items()]
    return number(guarantee["epsilon"]) + (f" ({', '.join(parts)})" if len(parts) > 1 else "")


def _further_figures(given: Mapping[str, Any], discretion: Discretion) -> Table | None:
    """Return the table of the figures of the points that are on no axis; None without any."""
    points = given["points"]
    tried = dict.fromkeys(name for point in points for name in point.get("figures") or {})
    names = [name for name in tried if name not in (given["risk"], given["utility"])]
    if not names:
        return None
    head = ("number", *(axis(name, given.get("figures") or {}).words for name in names))
    rows = [
        (str(index), *(_figure(point, name, discretion) for name in names))
        for index, point in enumerate(points, 1)
    ]
    return Table("Other figures of the combinations", head, rows)


def _figure(point: Mapping[str, Any], name: str, discretion: Discretion) -> str:
    """Return a figure of a point, with its interval; in reports without intervals its range over the runs."""
    value = (point.get("figures") or {}).get(name)
    if value is None:
        return _NO_VALUE
    if "intervals" in point:
        return _with_limits(value, _limits(point["intervals"].get(name)), discretion)
    least, most = (point.get("ranges") or {}).get(name) or (value, value)
    return _with_limits(value, (least, most), discretion)


def _limits(interval: Mapping[str, float] | None) -> tuple[float, float] | None:
    return (float(interval["low"]), float(interval["high"])) if interval else None


def _with_limits(value: float | None, limits: tuple[float, float] | None, discretion: Discretion) -> str:
    """Return a figure and its limits in brackets, if there are any that differ from it.

    A share of few rows is masked, and has no limits, since it is near their middle.
    """
    if value is None:
        return _NO_VALUE
    shown = discretion.figure(value)
    if limits is None or limits[0] == limits[1] == value or shown != number(value):
        return shown
    return shown + _bracketed(limits)


def _of_the_frontier(point: Mapping[str, Any]) -> str:
    """Return the outcome of a point that is not dominated, with the points that are hardly better."""
    better = [str(index + 1) for index in point.get("within_uncertainty_of") or ()]
    if not better:
        return "not dominated"
    return f"not dominated: worse than {listed(better)} by no more than the uncertainty"


def _outcome(point: Mapping[str, Any], discretion: Discretion) -> str:
    """Return the reasons for which a point with figures is not on the frontier."""
    reasons = []
    if counts := point.get("reversible"):
        rows = [f"{discretion.count(count)} {humanised(key)}" for key, count in counts.items()]
        reasons.append(f"anybody can undo it: {listed(rows)}")
    if (missing := point.get("unprotected")) is None and point.get("protects_fewer"):
        reasons.append("protects fewer fields than another one")
    if missing:
        reasons.append(f"protects fewer fields: not {listed([quoted(str(name)) for name in missing])}")
    return "; ".join(reasons) or "dominated"


def candidates(given: Mapping[str, Any], discretion: Discretion) -> Choice | None:
    """Describe the candidates and the kept candidate."""
    table = given.get("table") or []
    if not table:
        return None
    keys = [str(key) for key in given.get("rank_by") or ()]
    axes = [axis(key, given.get("figures") or {}) for key in keys]
    fingerprints = any(each.get("seed_fingerprint") for each in table)
    flagged = any(_is_flagged(each) for each in table)
    guaranteed = any(each.get("guarantee") for each in table)
    rows: list[list[Cell]] = []
    marked = {}
    for row, each in enumerate(table):
        chosen = each.get("index", row) == given.get("chosen")
        if chosen:
            marked[row] = "chosen"
        values = each.get("values") or {}
        rows.append(
            [
                f"{int(each.get('index', row)) + 1}{' (chosen)' if chosen else ''}",
                *(
                    [Markup("<code>{}</code>").format(each.get("seed_fingerprint", ""))]
                    if fingerprints
                    else []
                ),
                *(
                    discretion.figure(values[key]) if values.get(key) is not None else _NO_VALUE
                    for key in keys
                ),
                number(each.get("rank")),
                *([_epsilon(each)] if guaranteed else []),
                *([visible(_outcome(each, discretion)) if _is_flagged(each) else ""] if flagged else []),
            ]
        )
    head = ["candidate", *(["seed's fingerprint"] if fingerprints else []), *(a.words for a in axes), "rank"]
    if guaranteed:
        head.append("epsilon alone")
    if flagged:
        head.append("to note")
    by = f", ranked by {listed([a.words for a in axes])}" if axes else ""
    return Choice(
        [
            f"{counted(len(table), 'candidate was', 'candidates were')} run, each with a seed of its own "
            f"that follows from the job's{by}. {_KEPT if axes else _FIRST}",
            *([visible(str(given["verdict"]))] if given.get("verdict") else []),
            *([_NO_EPSILON] if guaranteed else []),
            *(
                f"{axis(key, given.get('figures') or {}).title} ranked nothing: {why}."
                for key, why in (given.get("left_out") or {}).items()
            ),
        ],
        None,
        Table(
            "The candidates",
            head,
            rows,
            words=frozenset({1} if fingerprints else ())
            | (frozenset({len(head) - 1}) if flagged else frozenset())
            | (frozenset({head.index("epsilon alone")}) if guaranteed else frozenset()),
            marked=marked,
        ),
    )


_KEPT = "The best one is this job's result."

_NO_EPSILON = (
    "Each epsilon is for this run of the candidate alone. The kept candidate has no finite epsilon, "
    "because the choice depends on the source."
)

_FIRST = "The first one is this job's result."


def _is_flagged(candidate: Mapping[str, Any]) -> bool:
    """Whether anyone can undo the candidate, or whether it protects fewer fields than another one."""
    return bool(candidate.get("reversible") or candidate.get("protects_fewer"))


def _parameters(parameters: Mapping[str, Any]) -> Markup:
    """Join names and values by commas."""
    parts = [
        Markup("{}&nbsp;= {}").format(
            key, named(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        )
        for key, value in parameters.items()
    ]
    return Markup(", ").join(parts)
