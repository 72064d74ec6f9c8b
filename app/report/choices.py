"""The evidence of a choice: of the best of several seeds, and of a service with its parameters."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.report.discretion import Discretion
from app.report.figures import GOALS, words_of
from app.report.plots import Axis, Point
from app.report.plots import frontier as plot
from app.report.svg import Picture
from app.report.tables import Cell, Table
from app.report.words import counted, humanised, listed, named, number, visible
from providers.measures import MEASURES

_NO_VALUE = "-"
_GOALS_OF_PARTS = {"dcr.at_zero": "low"}
"""Where a part of a measure has another goal than the whole."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Sentences, and a picture of the frontier or a table of the candidates."""

    sentences: list[str]
    picture: Picture | None
    table: Table


def axis(key: str, figures: Mapping[str, Mapping[str, Any]]) -> Axis:
    """The axis of a figure: a measure's, such as `pscr`, or a part of one, such as `dcr.p05`.

    Parameters
    ----------
    key : str
    figures : mapping
        Key of a figure or of a measure -> what the report says of it; what is not in it is looked up.
    """
    whole, _, part = key.partition(".")
    known = (
        figures.get(key) or figures.get(whole) or (MEASURES[whole].report(None) if whole in MEASURES else {})
    )
    title = str(known.get("title") or humanised(whole))
    goal = _GOALS_OF_PARTS.get(key, str(known.get("goal")))
    return Axis(f"{title}, {words_of(part, whole)}" if part else title, GOALS.get(goal, "").partition(" ")[2])


def frontier(given: Mapping[str, Any]) -> Choice | None:
    """The releases that were tried, and which of them no other one is better than."""
    points = given.get("points") or []
    if not points:
        return None
    risk, utility = (axis(str(given[which]), given.get("figures") or {}) for which in ("risk", "utility"))
    drawn, rows, marked = [], [], {}
    for at, point in enumerate(points, 1):
        whole = point.get("risk") is not None and point.get("utility") is not None and not point.get("error")
        best = whole and not point.get("dominated")
        if whole:
            drawn.append(Point(at, float(point["risk"]), float(point["utility"]), best))
        if best:
            marked[at - 1] = "not dominated"
        found = "not dominated" if best else "dominated" if whole else str(point.get("error") or "no figures")
        rows.append(
            (
                str(at),
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
    sentences = [
        f"{counted(len(points), 'combination was', 'combinations were')} tried; "
        f"{counted(len(marked), 'is', 'are')} not dominated: no other one is as good in both figures "
        "and better in one. Which of those to take is for the curator to decide.",
    ]
    if runs > 1:
        sentences.append(f"Each point is the mean of {number(runs)} runs.")
    if failed:
        sentences.append(f"{counted(failed, 'has', 'have')} no figures; the table says why.")
    return Choice(sentences, plot(drawn, risk, utility, table), table)


def candidates(given: Mapping[str, Any], discretion: Discretion) -> Choice | None:
    """The candidates, and the one that was kept."""
    table = given.get("table") or []
    if not table:
        return None
    keys = [str(key) for key in given.get("rank_by") or ()]
    axes = [axis(key, given.get("figures") or {}) for key in keys]
    fingerprints = any(each.get("seed_fingerprint") for each in table)
    rows: list[list[Cell]] = []
    marked = {}
    for at, each in enumerate(table):
        chosen = each.get("index", at) == given.get("chosen")
        if chosen:
            marked[at] = "chosen"
        values = each.get("values") or {}
        rows.append(
            [
                f"{int(each.get('index', at)) + 1}{' (chosen)' if chosen else ''}",
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
            ]
        )
    head = ["candidate", *(["seed's fingerprint"] if fingerprints else []), *(a.words for a in axes), "rank"]
    by = f", ranked by {listed([a.words for a in axes])}" if axes else ""
    return Choice(
        [
            f"{counted(len(table), 'candidate was', 'candidates were')} run, each with a seed of its own "
            f"that follows from the job's{by}. The best one is this job's result.",
            *(
                f"{axis(key, given.get('figures') or {}).title} ranked nobody: {why}."
                for key, why in (given.get("left_out") or {}).items()
            ),
        ],
        None,
        Table("The candidates", head, rows, words=frozenset({1} if fingerprints else ()), marked=marked),
    )


def _parameters(parameters: Mapping[str, Any]) -> Markup:
    """Name and value of each, apart by commas."""
    parts = [
        Markup("{}&nbsp;= {}").format(
            key, named(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        )
        for key, value in parameters.items()
    ]
    return Markup(", ").join(parts)
