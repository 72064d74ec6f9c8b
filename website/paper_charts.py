"""Charts of the papers' pages as SVG files, from stored numbers."""

import math
from typing import Any

from markupsafe import Markup

from app.report.svg import Scale, coordinate, element, line, path, rectangle, text, ticks

_WIDTH, _HEIGHT = 560.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 34.0, 48.0
_LEGEND = 18.0
_LETTER = 6.4
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "12 4")
_FILLS = ("#2b5fa8", "#c2571a", "#4c8a3f", "#8a4fa3", "#8c7a1f", "#4a4f5c", "#b03060", "#1f8a8a")
_STYLE = (
    "text{font:12px sans-serif;fill:#20242c}.title{font-weight:bold}"
    ".ground{fill:#fff}.grid{stroke:#dde0e6}.axis{stroke:#5a6070}"
    "polyline{fill:none;stroke-width:2}"
)


def chart_svg(chart: dict[str, Any]) -> str:
    """Draw a stored chart; series differ in colour and in dashes or markers."""
    series = chart["series"]
    top = _TOP + _LEGEND * _legend_lines(series)
    height = _HEIGHT + _LEGEND * _legend_lines(series)
    bars = chart["kind"] == "bars"
    categories = _categories(series) if bars else []
    shapes = [
        rectangle(0, 0, _WIDTH, height, "ground"),
        text(8, 18, chart["title"], class_="title"),
        *_legend(series, bars),
    ]
    low, high = _range([value for each in series for value in each["y"]], chart["log_y"], bars)
    up = Scale(low, high, height - _BOTTOM, top)
    for tick in _ticks(low, high, chart["log_y"]):
        y = up(tick)
        shapes += [
            line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"),
            text(_LEFT - 6, y + 4, _label(tick, chart["log_y"]), "end"),
        ]
    if bars:
        shapes += _bars(series, categories, up, chart["log_y"])
    else:
        shapes += _points(chart, up, height)
    shapes += [
        line(_LEFT, top, _LEFT, height - _BOTTOM, "axis"),
        line(_LEFT, height - _BOTTOM, _WIDTH - _RIGHT, height - _BOTTOM, "axis"),
        text((_LEFT + _WIDTH - _RIGHT) / 2, height - 8, chart["x"], "middle"),
        text(14, 0, chart["y"], "middle", transform=f"translate(0 {(top + height - _BOTTOM) / 2:.0f}) "
             "rotate(-90 14 0)"),
    ]  # fmt: skip
    root = element(
        "svg",
        element("style", Markup(_STYLE)),  # noqa: S704 # a constant
        *shapes,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {coordinate(_WIDTH)} {coordinate(height)}",
        width=_WIDTH,
        role="img",
        aria_label=chart["title"],
    )
    return f"{root}\n".replace("><", ">\n<")


def _points(chart: dict[str, Any], up: Scale, height: float) -> list[Markup]:
    series = chart["series"]
    low, high = _range([value for each in series for value in each["x"]], chart["log_x"], False)
    across = Scale(low, high, _LEFT, _WIDTH - _RIGHT)
    shapes = []
    for tick in _ticks(low, high, chart["log_x"]):
        shapes += [
            line(across(tick), height - _BOTTOM, across(tick), height - _BOTTOM + 4, "axis"),
            text(across(tick), height - _BOTTOM + 17, _label(tick, chart["log_x"]), "middle"),
        ]
    for index, each in enumerate(series):
        pairs = zip(each["x"], each["y"], strict=True)
        places = [
            (across(_value(x, chart["log_x"])), up(_value(y, chart["log_y"])))
            for x, y in pairs
            if x is not None and y is not None
        ]
        if chart["kind"] == "line":
            shapes.append(_styled(places, index))
        if chart["kind"] == "points" or len(places) <= 30:
            shapes += [_marker(x, y, index) for x, y in places]
    return shapes


def _bars(series: list[dict[str, Any]], categories: list[str], up: Scale, logarithmic: bool) -> list[Markup]:
    step = (_WIDTH - _LEFT - _RIGHT) / len(categories)
    wide = 0.8 * step / len(series)
    shapes = []
    for index, each in enumerate(series):
        for name, value in zip(each["x"], each["y"], strict=True):
            if value is None:
                continue
            x = _LEFT + step * (categories.index(str(name)) + 0.1) + wide * index
            ends = sorted((up(_value(value, logarithmic)), up(up.low if logarithmic else 0.0)))
            shapes.append(
                element(
                    "rect",
                    x=x,
                    y=ends[0],
                    width=max(1.0, wide - 1),
                    height=ends[1] - ends[0],
                    fill=_FILLS[index % len(_FILLS)],
                )
            )
    shown = max(1, math.ceil(len(categories) * _LETTER * max(map(len, categories)) / (_WIDTH - _LEFT)))
    for place, name in enumerate(categories):
        if place % shown == 0:
            shapes.append(text(_LEFT + step * (place + 0.5), up.start + 17, name, "middle"))
    return shapes


def _styled(places: list[tuple[float, float]], index: int) -> Markup:
    drawn = path(places, "curve")
    dash = _DASHES[index % len(_DASHES)]
    look = f' stroke="{_FILLS[index % len(_FILLS)]}"' + (f' stroke-dasharray="{dash}"' if dash else "")
    return Markup(str(drawn).replace("<polyline", f"<polyline{look}", 1))  # noqa: S704 # our own constants


def _marker(x: float, y: float, index: int) -> Markup:
    fill = _FILLS[index % len(_FILLS)]
    if index % 3 == 0:
        return element("circle", cx=x, cy=y, r=3, fill=fill)
    if index % 3 == 1:
        return element("rect", x=x - 3, y=y - 3, width=6, height=6, fill=fill)
    corners = f"{coordinate(x)},{coordinate(y - 4)} {coordinate(x + 4)},{coordinate(y + 3)} "
    return element("polygon", points=f"{corners}{coordinate(x - 4)},{coordinate(y + 3)}", fill=fill)


def _legend_places(series: list[dict[str, Any]]) -> list[tuple[float, int]]:
    places, x, row = [], _LEFT, 0
    for each in series:
        wide = 40 + _LETTER * len(each["name"])
        if x + wide > _WIDTH and x > _LEFT:
            x, row = _LEFT, row + 1
        places.append((x, row))
        x += wide
    return places


def _legend_lines(series: list[dict[str, Any]]) -> int:
    return 1 + _legend_places(series)[-1][1]


def _legend(series: list[dict[str, Any]], bars: bool) -> list[Markup]:
    shapes = []
    for index, (each, (x, row)) in enumerate(zip(series, _legend_places(series), strict=True)):
        y = _TOP + _LEGEND * row
        if bars:
            shapes.append(
                element("rect", x=x, y=y - 9, width=18, height=10, fill=_FILLS[index % len(_FILLS)])
            )
        else:
            shapes += [_styled([(x, y - 4), (x + 20, y - 4)], index), _marker(x + 10, y - 4, index)]
        shapes.append(text(x + 26, y, each["name"]))
    return shapes


def _categories(series: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(name) for each in series for name in each["x"]))


def _value(value: float, logarithmic: bool) -> float:
    return math.log10(value) if logarithmic else value


def _range(values: list[float | None], logarithmic: bool, from_zero: bool) -> tuple[float, float]:
    known = [_value(value, logarithmic) for value in values if value is not None]
    low, high = min(known), max(known)
    if from_zero and not logarithmic:
        low, high = min(low, 0.0), max(high, 0.0)
    if logarithmic:
        return math.floor(low + 1e-9), math.ceil(high - 1e-9) if high > math.floor(low) else high + 1
    if low == high:
        return low - 1, high + 1
    space = 0.04 * (high - low)
    return (low if from_zero and low == 0 else low - space), high + space


def _ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    if not logarithmic:
        return ticks(low, high, 5)
    step = max(1, math.ceil((high - low) / 7))
    return [float(power) for power in range(math.ceil(low), math.floor(high) + 1, step)]


def _label(tick: float, logarithmic: bool) -> str:
    value = 10.0**tick if logarithmic else tick
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10g}" if abs(value) >= 1 else f"{value:.3g}"
