"""Charts of each field before and after: histograms of numbers, bar charts of categories."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from app.report.formatting import MINUS, TIMES, counted, fitted, named, number, short
from app.report.page_table import Cell, Table
from app.report.svg import (
    WIDTH,
    Picture,
    Scale,
    drawing,
    element,
    line,
    name,
    nice,
    path,
    rectangle,
    text,
    ticks,
)

NOT_SHOWN = "not shown"
BARS = 12
"""Most values that get a bar; the table has every value that is named."""

_LEFT, _TOP, _BOTTOM, _HEIGHT = 44.0, 10.0, 26.0, 190.0
_OTHERS = "(others)"
_DIGIT = 7.7
"""Width of a digit at the font size of `report.css`."""
_LONG = 36
"""Characters of two labels that do not fit next to each other."""
_LARGE = 1e15
"""Numbers from here on have powers of ten as labels, which many neighbours share."""


def distributions(fields: Sequence[Mapping[str, Any]], threshold: int) -> list[Picture]:
    """Draw a chart of each field."""
    return [_field(field, f"field-{index}", threshold) for index, field in enumerate(fields, 1)]


def _field(field: Mapping[str, Any], identifier: str, threshold: int) -> Picture:
    of_numbers = field["kind"] == "number"
    if of_numbers:
        edges = field.get("edge_labels") or _distinct(field["edges"])
        heads: list[Cell] = [f"{low} to {high}" for low, high in pairwise(edges)]
        drawings = [_histogram(field, edges, identifier)] if edges else []
    else:
        heads = [
            label if _is_rest(field, index) else named(str(label))
            for index, label in enumerate(field["labels"])
        ]
        drawings = [_bars(field, identifier)]
    before, after = field["source"], field["destination"]
    rows: list[Sequence[Cell]] = [
        (head, _count(one), _count(two)) for head, one, two in zip(heads, before, after, strict=True)
    ]
    missing = field.get("missing") or {}
    if missing:
        rows.append(("missing", _count(missing.get("source")), _count(missing.get("destination"))))
    table = Table(
        f"Rows of {fitted(field['field'], 80)}, before and after",
        ("from, up to" if of_numbers else "value", "before", "after"),
        rows,
    )
    return Picture(named(field["field"]), drawings, _caption(field, threshold), table)


def _caption(field: Mapping[str, Any], threshold: int) -> str:
    parts = []
    before, after = field["source"], field["destination"]
    missing = field.get("missing") or {}
    counts = [*before, *after, *missing.values()]
    if field["kind"] == "number" and not field["edges"]:
        parts.append(
            f"Not drawn: there are fewer than {2 * threshold} numbers, or they are too large or too small."
        )
    elif before == after and missing.get("source") == missing.get("destination"):
        parts.append("All counts that are shown are the same before and after.")
    if any(count != 0 for count in missing.values()):
        parts.append(
            f"Missing: {_count(missing.get('source'))} before, {_count(missing.get('destination'))} after."
        )
    if field.get("suppressed_left_out"):
        parts.append(
            f"Fewer than {threshold} values that the release lost are left out, as are the values in their "
            "place."
        )
    if field["kind"] != "number":
        parts += _categories(field)
    if None in counts:
        parts.append(f"A count that is not shown (open circle) is below {threshold}, or would reveal one.")
    return " ".join(parts)


def _bars_of(field: Mapping[str, Any], kept: Sequence[int]) -> str:
    own = sum(not _is_rest(field, index) for index in kept)
    return f"Bars of {counted(own, 'value', 'values')}{' and of all others together' * (own < len(kept))}."


def _categories(field: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the number of values that have bars; none if all have one."""
    own = [index for index in _drawn(field) if not _is_rest(field, index)]
    labels = sum(not _is_rest(field, index) for index in range(len(field["labels"])))
    counts = field.get("categories") or {"source": labels, "destination": labels}
    before, after = counts["source"], counts["destination"]
    if len(own) >= max(before, after):
        return []
    occur = number(before) if before == after else f"{number(before)} (after: {number(after)})"
    return [f"{number(len(own))} of {occur} values have bars of their own."]


def _is_rest(field: Mapping[str, Any], index: int) -> bool:
    """Whether the label stands for all values without a name; only the last label can, whatever its text."""
    return index == len(field["labels"]) - 1 and field["labels"][index] == _OTHERS


def _drawn(field: Mapping[str, Any]) -> list[int]:
    """Return the labels that get bars: the most frequent values, and the rest together if there is any."""
    source, destination = field["source"], field["destination"]
    values = [index for index in range(len(field["labels"])) if not _is_rest(field, index)]
    values.sort(key=lambda index: (-max(source[index] or 0, destination[index] or 0), index))
    rest = len(field["labels"]) - 1
    has_rest = rest >= 0 and _is_rest(field, rest) and (source[rest] != 0 or destination[rest] != 0)
    return values[:BARS] + [rest] * has_rest


def _count(count: int | None) -> str:
    return NOT_SHOWN if count is None else number(count)


def _histogram(field: Mapping[str, Any], edges: Sequence[str], identifier: str) -> Markup:
    """Draw before as a plain area, after as a thick line; areas are counts if intervals are uneven."""
    places = [float(edge) for edge in field["edges"]]
    widths = [high - low for low, high in pairwise(places)]
    uneven = bool(widths) and max(widths) > min(widths) * (1 + 1e-6)
    unit = min(widths) if uneven and min(widths) > 0 else 1.0
    sizes = [width / unit if uneven else 1.0 for width in widths]
    before, after = (
        [None if count is None else count / size for count, size in zip(field[key], sizes, strict=True)]
        for key in ("source", "destination")
    )
    most = nice(max((count for count in (*before, *after) if count is not None), default=0))
    bottom = _HEIGHT - _BOTTOM
    across = Scale(places[0], places[-1], _LEFT, WIDTH - 10)
    up = Scale(0, most, bottom, _TOP)
    parts = [] if uneven else _rules(up, most)
    parts += [
        rectangle(across(low), up(count), across(high) - across(low), bottom - up(count), "before")
        for low, high, count in zip(places, places[1:], before, strict=False)
        if count is not None
    ]
    parts += _outline(places, after, across, up)
    parts += [
        _hidden((across(low) + across(high)) / 2, bottom - 5)
        for low, high, one, two in zip(places, places[1:], before, after, strict=False)
        if one is None or two is None
    ]
    parts.append(line(_LEFT, bottom, WIDTH - 10, bottom, "axis"))
    if field.get("edge_labels"):
        parts += _edge_labels((edges[0], edges[-1]), places, across, bottom)
    else:
        ends = _ends(places[0], places[-1])
        parts += _edge_labels(ends, places, across, bottom)
        parts += _round_figures(ends, places, across, bottom)
    return drawing(
        identifier,
        f"{fitted(field['field'], 80)} before and after",
        f"Histogram in {len(widths)} intervals from {edges[0]} to {edges[-1]}. "
        "Plain area: before. Thick line: after. The counts are in the table below.",
        _HEIGHT,
        *parts,
    )


def _rules(up: Scale, most: float) -> list[Markup]:
    parts = []
    for tick in ticks(0, most, 3):
        parts.append(line(_LEFT, up(tick), WIDTH - 10, up(tick), "rule"))
        parts.append(text(_LEFT - 6, up(tick) + 4, short(tick), "end"))
    return parts


def _outline(
    places: Sequence[float], counts: Sequence[float | None], across: Scale, up: Scale
) -> list[Markup]:
    """Draw steps over the intervals whose counts are shown."""
    lines: list[list[tuple[float, float]]] = [[]]
    for low, high, count in zip(places, places[1:], counts, strict=False):
        if count is None:
            lines.append([])
            continue
        lines[-1] += [(across(low), up(count)), (across(high), up(count))]
    return [path(points, "after-line") for points in lines if points]


def _hidden(x: float, y: float) -> Markup:
    return element("circle", cx=x, cy=y, r=2.5, class_="hidden")


def _edge_labels(ends: Sequence[str], places: Sequence[float], across: Scale, bottom: float) -> list[Markup]:
    """Label the first and the last edge, smaller if both are long, and mark every edge."""
    first, last = (fitted(each, 20) for each in ends)
    size = {"class_": "small"} if len(first) + len(last) > _LONG else {}
    return [
        text(across(places[0]), bottom + 17, first, **size),
        text(across(places[-1]), bottom + 17, last, "end", **size),
        *(line(across(place), bottom, across(place), bottom + 4, "axis") for place in places),
    ]


def _distinct(edges: Sequence[float]) -> list[str]:
    """Format edges; large ones that would look the same have all digits."""
    shown = [number(edge) for edge in edges]
    return shown if len(set(shown)) == len(shown) else [number(int(edge)) for edge in edges]


def _ends(low: float, high: float) -> tuple[str, str]:
    """Format the first and the last edge for the axis; large ones that would look alike have all digits."""
    ends = short(low), short(high)
    if ends[0] != ends[1] or abs(high) < _LARGE:
        return ends
    return f"{int(low)}".replace("-", MINUS), f"{int(high)}".replace("-", MINUS)


def _width(words: str) -> float:
    """Return the width of a number: digits are wider than the letters of a name, signs narrower."""
    return sum(_DIGIT if each.isdigit() or each == TIMES else _DIGIT / 2 for each in words)


def _round_figures(
    ends: tuple[str, str], places: Sequence[float], across: Scale, bottom: float
) -> list[Markup]:
    """Label round numbers between the labels of the first and the last edge, where they fit."""
    left = across(places[0]) + max(30.0, _width(ends[0]))
    right = across(places[-1]) - max(32.0, _width(ends[1]))
    labels = []
    for tick in ticks(places[0], places[-1], 4):
        words = short(tick)
        half = max(20.0, _width(words) / 2)
        if left < across(tick) - half and across(tick) + half < right:
            labels.append(text(across(tick), bottom + 17, words, "middle"))
            left = across(tick) + half
    return labels


def _bars(field: Mapping[str, Any], identifier: str) -> Markup:
    """Draw two bars for each of the most frequent categories; before is plain, after hatched."""
    kept = _drawn(field)
    most = max(
        (count for index in kept for count in (field["source"][index], field["destination"][index]) if count),
        default=1,
    )
    along = Scale(0, most, 1, WIDTH - 60)
    parts: list[Markup] = []
    for place, index in enumerate(kept):
        y = 12.0 + 42 * place
        parts.append(name(1, y, str(field["labels"][index]), WIDTH - 2))
        for offset, key, kind in ((4.0, "source", "before"), (15.0, "destination", "after")):
            count = field[key][index]
            if count is None:
                parts += [
                    _hidden(5, y + offset + 4),
                    text(12, y + offset + 9, NOT_SHOWN, class_="small"),
                ]
                continue
            parts.append(rectangle(1, y + offset, along(count) - 1, 9, kind))
            parts.append(text(along(count) + 4, y + offset + 9, short(count), class_="small"))
    return drawing(
        identifier,
        f"{fitted(field['field'], 80)} before and after",
        f"{_bars_of(field, kept)} Plain: before. Hatched: after. The counts are in the table below.",
        42.0 * len(kept) + 2,
        *parts,
    )
