"""Attacks on a release: verdict, bars of release, guessing and control with intervals, and a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.report.formatting import counted, humanised, listed, number, percent, visible
from app.report.page_table import Cell, Table
from app.report.svg import WIDTH, Picture, drawing, line, name, rectangle, text
from providers.attacks.registry import ATTACKS

_IN_A_DRAWING = 5

_BARS = (
    ("attack", "release", "after"),
    ("baseline", "guessing", "dominated"),
    ("control", "control", "before"),
)
"""Member of a result, words, and class of its bar: hatched, empty with a frame, and plain."""

_LEFT, _RIGHT, _BAR, _STEP, _GAP = 62.0, WIDTH - 62, 12.0, 17.0, 14.0

_VERDICTS = {
    "low": "Low risk: no attack succeeds beyond the thresholds.",
    "elevated": "Elevated risk: look at the attacks below before this release is published.",
    "high": "High risk: do not publish this release as it is.",
}

_CONTROLS = {
    "given": "The control rows were given with the request; they were not in the source.",
    "sister": "The control rows are a tenth of the source's rows, or of its units or households if the "
    "parameters name these. They were withheld from a sister release by the same service with the "
    "same parameters. The sister release was attacked, and thrown away.",
    "none": "There are no control rows: the risks are relative to guessing, and count facts that hold for "
    "everybody as disclosed.",
}


@dataclass(frozen=True, slots=True)
class AttackSection:
    """Section of the page about attacks."""

    state: str
    headline: str
    reasons: Sequence[str]
    sentences: Sequence[str]
    """Origin of the control, thresholds, and sizes of samples."""
    picture: Picture | None
    meanings: Sequence[tuple[str, str]]
    """Title of an attack, and what its success means, or a limit of the attack."""
    advice: str
    tries: Table | None


def attack_section(report: Mapping[str, Any]) -> AttackSection | None:
    """Build the section from a report; None if the report has no attacks."""
    verdict = report.get("verdict")
    if not verdict:
        return None
    found = list(_each(report.get("attacks") or {}))
    states = {(each["attack"], each.get("field")): each for each in verdict.get("attacks") or ()}
    advice = report.get("advice") or {}
    state = str(verdict.get("state"))
    return AttackSection(
        state,
        _VERDICTS.get(state, state),
        [visible(str(reason)) for reason in verdict.get("reasons") or ()],
        list(_sentences(report, verdict)),
        _picture(found, states) if found else None,
        list(_meanings(found)),
        visible(str(advice["sentence"])) if advice else "",
        _tries(advice) if advice.get("tries") else None,
    )


def title_of(attack: str) -> str:
    """Return the title of an attack."""
    return ATTACKS[attack].title if attack in ATTACKS else humanised(attack).capitalize()


def _each(attacks: Mapping[str, Any]) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    """Yield name, secret field and result of each attack."""
    for key, result in attacks.items():
        if "attack" in result and "tries" in result["attack"]:
            yield key, None, result
        else:
            for field, each in result.items():
                yield key, field, each


def _words(attack: str, field: str | None) -> str:
    return title_of(attack) if field is None else f"{title_of(attack)}: {field}"


def _sentences(report: Mapping[str, Any], verdict: Mapping[str, Any]) -> Iterator[str]:
    yield _CONTROLS.get(str(report.get("control")), "")
    bounds = verdict.get("thresholds") or {}
    if bounds:
        yield (
            f"A risk above {number(bounds['elevated'])} is elevated, one above {number(bounds['high'])} "
            "high; these are the thresholds of the project."
        )
    for attack, own in (bounds.get("attacks") or {}).items():
        yield f"{title_of(str(attack))}: {number(own['elevated'])} and {number(own['high'])}."
    for what, count in (report.get("sampled") or {}).items():
        yield f"The table is large: {humanised(str(what))} are limited to {number(count)}, at random."


def _picture(
    found: Sequence[tuple[str, str | None, Mapping[str, Any]]],
    states: Mapping[tuple[str, str | None], Mapping[str, Any]],
) -> Picture:
    parts = [found[first : first + _IN_A_DRAWING] for first in range(0, len(found), _IN_A_DRAWING)]
    rows, marked = [], {}
    for row, (attack, field, result) in enumerate(found):
        state = states.get((attack, field)) or {}
        if state.get("state") in ("elevated", "high"):
            marked[row] = str(state["state"])
        rows.append(
            [
                visible(_words(attack, field)),
                *(_share(result.get(which)) for which, _, _ in _BARS),
                number(state["value"]) if state else "",
                f"{number(state['low'])} to {number(state['high'])}" if state else "",
                str(state.get("state", "")),
            ]
        )
    title = "Success of each attack on the release, by guessing, and on control rows"
    return Picture(
        title,
        [_drawing(f"attacks-{index}", part) for index, part in enumerate(parts, 1)],
        "Three bars for each attack: the release (hatched), guessing (frame only) and control rows (plain). "
        "The whole width is every attempt; a line is the interval. An attack whose first bar is no longer "
        "than the third learns nothing from the release that is not true of everybody.",
        Table(
            title,
            ("attack", "release", "guessing", "control", "risk", "interval of the risk", "verdict"),
            rows,
            words=frozenset({6}),
            marked=marked,
        ),
        is_open=True,
    )


def _share(found: Mapping[str, Any] | None) -> str:
    if not found:
        return "-"
    return f"{percent(float(found['rate']))} of {number(found['tries'])}"


def _drawing(identifier: str, part: Sequence[tuple[str, str | None, Mapping[str, Any]]]) -> Markup:
    elements: list[Markup] = []
    wide, y = _RIGHT - _LEFT, 0.0
    for attack, field, result in part:
        y += _GAP
        elements.append(name(1, y, _words(attack, field), WIDTH - 2))
        y += 5
        for which, words, kind in _BARS:
            each = result.get(which)
            middle = y + _BAR / 2
            elements.append(text(_LEFT - 4, y + _BAR - 2, words, "end", class_="small"))
            if each:
                low, high = (_LEFT + wide * float(each[end]) for end in ("low", "high"))
                elements += [
                    rectangle(_LEFT, y, wide * float(each["rate"]), _BAR, kind),
                    line(low, middle, high, middle, "axis"),
                    line(low, middle - 3, low, middle + 3, "axis"),
                    line(high, middle - 3, high, middle + 3, "axis"),
                ]
            shown = percent(float(each["rate"])) if each else "none"
            elements.append(text(WIDTH - 1, y + _BAR - 2, shown, "end", class_="small"))
            y += _STEP
        y += 4
    for at in (_LEFT, _LEFT + wide / 2, _RIGHT):
        elements.insert(0, line(at, 6, at, y, "rule"))
    named = visible(listed([_words(*each[:2]) for each in part]))
    return drawing(
        identifier,
        "Success of each attack",
        f"Bars of {counted(len(part), 'attack', 'attacks')}: {named}. The figures are in the table below.",
        y + 4,
        *elements,
    )


def _meanings(
    found: Sequence[tuple[str, str | None, Mapping[str, Any]]],
) -> Iterator[tuple[str, str]]:
    """Yield what the success of each attack means, and its limits, each once."""
    shown: set[tuple[str, str]] = set()
    for attack, _, result in found:
        texts = [ATTACKS[attack].meaning] if attack in ATTACKS else []
        texts += [str(result["note"])] if result.get("note") else []
        for each in texts:
            if (attack, each) not in shown:
                shown.add((attack, each))
                yield title_of(attack), visible(each)


def _tries(advice: Mapping[str, Any]) -> Table:
    """Build the table of the parameters that were tried; the best one is marked."""
    best = advice.get("parameters")
    every = [advice["now"], *advice["tries"]]
    rows: list[list[Cell]] = []
    marked = {}
    for row, each in enumerate(every):
        change = each.get("change") or {}
        if change and change == best:
            marked[row] = "best"
        words = "; ".join(f"{key} = {_value(value)}" for key, value in change.items())
        rows.append(
            [
                visible(words) if change else "as released",
                "-" if each.get("risk") is None else number(each["risk"]),
                str(each.get("state") or visible(str(each.get("error") or ""))),
                visible(str(each.get("attack") or "")),
            ]
        )
    return Table(
        f"Parameters that were tried on {number(advice['rows'])} rows",
        ("parameters", "risk", "verdict", "worst attack"),
        rows,
        words=frozenset({2, 3}),
        marked=marked,
    )


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
