"""Evidence of a choice: the best of several seeds, or the frontier of services and parameters."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.report.formatting import counted, humanised, listed, named, number, visible
from app.report.measure_tables import GOALS, words_of
from app.report.page_table import Cell, Table
from app.report.plots import Axis, Point
from app.report.plots import frontier as plot
from app.report.small_counts import Discretion
from app.report.svg import Picture
from providers.measures import MEASURES
from providers.selection.figures import FIGURES

_NO_VALUE = "-"


@dataclass(frozen=True, slots=True)
class Choice:
    """Sentences, a chart of the frontier if there is one, and a table of all that was compared."""

    sentences: list[str]
    picture: Picture | None
    table: Table


def axis(key: str, figures: Mapping[str, Mapping[str, Any]]) -> Axis:
    """Build the axis of a figure: of a measure, such as `pscr`, or of a part of one, such as `dcr.p05`.

    Parameters
    ----------
    key : str
    figures : mapping
        Key of a figure or of a measure -> its entry in the report; entries that it lacks are looked up.
    """
    measure, _, path = key.partition(".")
    known = (
        figures.get(key)
        or figures.get(measure)
        or (MEASURES[measure].report(None) if measure in MEASURES else {})
    )
    title = str(known.get("title") or humanised(measure))
    figure = FIGURES.get(key)
    goal = figure.goal if figure else str(known.get("goal"))
    words = (figure.part.words if figure else "") or words_of(path, measure)
    return Axis(f"{title}, {words}" if path else title, GOALS.get(goal, "").partition(" ")[2])


def frontier(given: Mapping[str, Any]) -> Choice | None:
    """Describe the releases that were tried; those that are not dominated are marked."""
    points = given.get("points") or []
    if not points:
        return None
    risk, utility = (axis(str(given[which]), given.get("figures") or {}) for which in ("risk", "utility"))
    drawn, rows, marked = [], [], {}
    for number_of_point, point in enumerate(points, 1):
        whole = point.get("risk") is not None and point.get("utility") is not None and not point.get("error")
        best = whole and not point.get("dominated")
        if whole:
            drawn.append(Point(number_of_point, float(point["risk"]), float(point["utility"]), best))
        if best:
            marked[number_of_point - 1] = "not dominated"
        found = (
            "not dominated" if best else _outcome(point) if whole else str(point.get("error") or "no figures")
        )
        rows.append(
            (
                str(number_of_point),
                str(point.get("service", "")),
                _parameters(point.get("parameters") or {}),
                number(point["risk"]) if point.get("risk") is not None else _NO_VALUE,
                number(point["utility"]) if point.get("utility") is not None else _NO_VALUE,
                visible(found),
            )
        )
    table = Table(
        "All combinations",
        ("number", "service", "parameters", risk.words, utility.words, "outcome"),
        rows,
        words=frozenset({1, 2, 5}),
        marked=marked,
    )
    runs = int(given.get("runs") or 1)
    failed = len(points) - len(drawn)
    tried = f"{counted(len(points), 'combination was', 'combinations were')} tried"
    sentences = [f"{tried}.", *_comparison(given, len(marked))]
    if runs > 1:
        sentences.append(f"Each point is the mean of {number(runs)} runs.")
    if failed:
        sentences.append(f"{counted(failed, 'has', 'have')} no figures; the table says why.")
    return Choice(sentences, plot(drawn, risk, utility, table), table)


def _comparison(given: Mapping[str, Any], best: int) -> list[str]:
    """Sentences on the verdict, the fields that were changed, and the axes."""
    figures = given.get("figures") or {}
    sentences = [visible(str(given["verdict"]))] if given.get("verdict") else []
    if best:
        if not sentences:
            sentences.append(f"{counted(best, 'is', 'are')} not dominated.")
        sentences.append(
            "Not dominated means that no other one that protects the same fields is as good in both "
            "figures and better in one. The curator decides which of them to use."
        )
    if protected := given.get("protected"):
        names = listed([visible(str(name)) for name in protected])
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


def _outcome(point: Mapping[str, Any]) -> str:
    """Return the reasons for which a point with figures is not on the frontier."""
    reasons = []
    if counts := point.get("reversible"):
        rows = [f"{number(count)} {humanised(key)}" for key, count in counts.items()]
        reasons.append(f"anybody can undo it: {listed(rows)}")
    if (missing := point.get("unprotected")) is None and point.get("protects_fewer"):
        reasons.append("protects fewer fields than another one")
    if missing:
        reasons.append(f"protects fewer fields: not {listed([str(name) for name in missing])}")
    return "; ".join(reasons) or "dominated"


def candidates(given: Mapping[str, Any], discretion: Discretion) -> Choice | None:
    """Describe the candidates and the one that was kept."""
    table = given.get("table") or []
    if not table:
        return None
    keys = [str(key) for key in given.get("rank_by") or ()]
    axes = [axis(key, given.get("figures") or {}) for key in keys]
    fingerprints = any(each.get("seed_fingerprint") for each in table)
    flagged = any(_is_flagged(each) for each in table)
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
                *([visible(_outcome(each)) if _is_flagged(each) else ""] if flagged else []),
            ]
        )
    head = ["candidate", *(["seed's fingerprint"] if fingerprints else []), *(a.words for a in axes), "rank"]
    if flagged:
        head.append("to note")
    by = f", ranked by {listed([a.words for a in axes])}" if axes else ""
    return Choice(
        [
            f"{counted(len(table), 'candidate was', 'candidates were')} run, each with a seed of its own "
            f"that follows from the job's{by}. {_KEPT if axes else _FIRST}",
            *([visible(str(given["verdict"]))] if given.get("verdict") else []),
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
            | (frozenset({len(head) - 1}) if flagged else frozenset()),
            marked=marked,
        ),
    )


_KEPT = "The best one is this job's result."

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
