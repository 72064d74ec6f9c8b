"""Charts of the changed share by field, of distances to the closest record, and of risk and utility."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.report.formatting import counted, named, number, percent, short
from app.report.page_table import Table
from app.report.small_counts import Discretion
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

_IN_A_DRAWING = 12
_LEFT, _TOP, _BOTTOM, _HEIGHT = 44.0, 40.0, 54.0, 284.0
_RIGHT = WIDTH - 12


def changed(given: Mapping[str, Any], discretion: Discretion) -> Picture | None:
    """Draw the share of rows that changed in each field, in descending order."""
    shares = dict(zip(map(str, given.get("fields") or ()), given.get("share") or (), strict=True))
    if not shares:
        return None
    fields = sorted(shares, key=lambda field: -(shares[field] or 0.0))
    parts = [fields[first : first + _IN_A_DRAWING] for first in range(0, len(fields), _IN_A_DRAWING)]
    rows = [(named(field), discretion.share(shares[field] or 0.0)) for field in fields]
    return Picture(
        "Share of the rows that changed, by field",
        [_shares(f"changed-{index}", part, shares, discretion) for index, part in enumerate(parts, 1)],
        "Rows whose value differs from the source's. The frame is all rows.",
        Table("Share of the rows that changed, by field", ("field", "changed"), rows),
    )


def _shares(
    identifier: str, fields: list[str], shares: Mapping[str, float], discretion: Discretion
) -> Markup:
    parts: list[Markup] = []
    wide = WIDTH - 2
    for place, field in enumerate(fields):
        y, share = 13.0 + 32 * place, float(shares[field] or 0.0)
        shown = discretion.share(share)
        parts += [
            name(1, y, field, wide - 8 * len(shown)),
            text(WIDTH - 1, y, shown, "end"),
            rectangle(1, y + 5, wide, 9, "frame"),
            rectangle(1, y + 5, wide * share, 9, "after"),
        ]
    return drawing(
        identifier,
        "Share of the rows that changed, by field",
        f"Bars of {counted(len(fields), 'field', 'fields')}. The shares are in the table below.",
        32.0 * len(fields) + 2,
        *parts,
    )


def closest(given: Mapping[str, Any], rows: int) -> Picture | None:
    """Draw the share of rows within each distance to their closest record, as a curve."""
    shares, distances = given.get("share") or [], given.get("distance") or []
    if not distances or any(distance is None for distance in distances):
        return None
    plane = _plane((0.0, nice(max(distances))), (0.0, 1.0))
    points = [(plane.across(d), plane.up(s)) for s, d in zip(shares, distances, strict=True)]
    sampled = int(given.get("sample") or rows)
    sample = f" On a random sample of {number(sampled)} rows." if sampled < rows else ""
    drawn = drawing(
        "closest",
        "Distance to the closest record",
        "Curve of the share of rows over their distance to the closest released row, rising from 0 to 1. "
        "The figures are in the table below.",
        _HEIGHT,
        *plane.axes(
            Axis("distance", "0 is the same row; scaled by the fields' ranges"),
            Axis("share of rows", "that are no farther"),
        ),
        path(points, "after-line"),
    )
    at_zero = max((s for s, d in zip(shares, distances, strict=True) if d == 0), default=0.0)
    zero = f" At least {percent(at_zero)} of the rows are at distance 0." if at_zero else ""
    return Picture(
        "Distance to the closest record",
        [drawn],
        "How far each source row is from the released row closest to it. "
        f"A curve that starts at 0 and rises steeply shows rows that are as good as published.{zero}{sample}",
        Table(
            "Distance to the closest record",
            ("share of rows no farther", "distance"),
            [(percent(s), number(d)) for s, d in zip(shares, distances, strict=True)],
        ),
    )


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of a plot: title of the figure, and its better direction."""

    title: str
    goal: str

    @property
    def words(self) -> str:
        """Title with the better direction, such as `PSCR (lower is better)`."""
        return f"{self.title} ({self.goal})" if self.goal else self.title


@dataclass(frozen=True, slots=True)
class Point:
    """Risk and utility of one release; `number` refers to its row in the table."""

    number: int
    risk: float
    utility: float
    marked: bool
    risk_limits: tuple[float, float] | None = None
    """Limits of the interval of the risk; None if it is unknown."""
    utility_limits: tuple[float, float] | None = None
    """Limits of the interval of the utility."""


def risk_utility(
    given: Mapping[str, Any], risk: Axis, utility: Axis, shown: tuple[str, str]
) -> Picture | None:
    """Draw one release as a point; both scales begin at 0, so that points of several reports compare.

    ``shown``: texts of both values, where shares of few rows are masked.
    """
    x, y = given["risk"].get("value"), given["utility"].get("value")
    if x is None or y is None:
        return None
    plane = _plane(_from_zero(x), _from_zero(y))
    across, up = plane.across(x), plane.up(y)
    anchor = "end" if across > WIDTH / 2 else "start"
    words = "; ".join(shown)
    drawn = drawing(
        "risk-utility",
        "Risk and utility of this release",
        f"Point at risk {shown[0]} and utility {shown[1]}. The figures are in the table below.",
        _HEIGHT,
        *plane.axes(risk, utility),
        _mark(across, up, marked=True),
        text(
            across + (-10 if anchor == "end" else 10), max(_TOP + 4, up - 8), words, anchor, class_="strong"
        ),
    )
    table = Table(
        "Risk and utility of this release",
        ("measure", "value", "better"),
        [(risk.title, shown[0], risk.goal), (utility.title, shown[1], utility.goal)],
        words=frozenset({2}),
    )
    return Picture(
        "Risk and utility of this release",
        [drawn],
        f"Across: {risk.words}. Up: {utility.words}. The best corner is {_best(risk, utility)}.",
        table,
    )


def frontier(points: Sequence[Point], risk: Axis, utility: Axis, table: Table) -> Picture | None:
    """Draw all releases; those that are not dominated are marked and joined by a line."""
    if not points:
        return None
    risks = [value for p in points for value in (p.risk, *(p.risk_limits or ()))]
    utilities = [value for p in points for value in (p.utility, *(p.utility_limits or ()))]
    plane = _plane(_around(risks), _around(utilities))
    front = sorted((p for p in points if p.marked), key=lambda p: (p.risk, p.utility))
    parts = [*plane.axes(risk, utility)]
    parts.append(path([(plane.across(p.risk), plane.up(p.utility)) for p in front], "front"))
    bars = [bar for point in points for bar in _bars(plane, point)]
    parts += bars
    taken: list[tuple[float, float]] = []
    for point in [*front, *(p for p in points if not p.marked)]:
        x, y = plane.across(point.risk), plane.up(point.utility)
        parts.append(_mark(x, y, point.marked))
        label = (x + 8, y - 6) if x < WIDTH - 40 else (x - 8, y - 6)
        if all(abs(label[0] - a) > 16 or abs(label[1] - b) > 11 for a, b in taken):
            taken.append(label)
            anchor = "start" if x < WIDTH - 40 else "end"
            parts.append(
                text(*label, str(point.number), anchor, class_="small strong" if point.marked else "small")
            )
    return Picture(
        "Risk and utility of all combinations",
        [
            drawing(
                "frontier",
                "Risk and utility of all combinations",
                f"Scatter of {counted(len(points), 'point', 'points')}, of which {len(front)} are not "
                "dominated and joined by a line. The figures are in the table below.",
                _HEIGHT,
                *parts,
            )
        ],
        f"Across: {risk.words}. Up: {utility.words}. The best corner is {_best(risk, utility)}. "
        "Full diamonds, joined: no other combination that protects the same fields is as good in both and "
        f"better in one{' by more than the uncertainty' if bars else ''}. Open circles: not on the frontier; "
        "the table says why. Numbers are the table's rows."
        f"{' Thin lines are 95 % intervals.' if bars else ''}",
        table,
        is_open=True,
    )


def _bars(plane: "_Plane", point: Point) -> list[Markup]:
    """Draw the intervals of a point as lines across it."""
    x, y = plane.across(point.risk), plane.up(point.utility)
    bars = []
    if point.risk_limits:
        low, high = (plane.across(limit) for limit in point.risk_limits)
        bars.append(line(low, y, high, y, "whisker"))
    if point.utility_limits:
        low, high = (plane.up(limit) for limit in point.utility_limits)
        bars.append(line(x, low, x, high, "whisker"))
    return bars


def _mark(x: float, y: float, marked: bool) -> Markup:
    if marked:
        corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in ((x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)))
        return element("polygon", points=corners, class_="point")
    return element("circle", cx=x, cy=y, r=4, class_="dominated")


def _best(risk: Axis, utility: Axis) -> str:
    sides = {"lower is better": ("left", "bottom"), "higher is better": ("right", "top")}
    across, up = sides.get(risk.goal, ("", ""))[0], sides.get(utility.goal, ("", ""))[1]
    return f"{up} {across}".strip() or "not known"


def _from_zero(value: float) -> tuple[float, float]:
    """Return the scale 0 to 1 for a share, else from 0 to a round number beyond the value."""
    if 0 <= value <= 1:
        return 0.0, 1.0
    return (0.0, nice(value * 1.2)) if value > 0 else (-nice(-value * 1.2), 0.0)


def _around(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or abs(high) * 0.1 or 0.5
    step = ticks(0.0, high - low + 2 * margin, 5)[1]
    low = 0.0 if 0 <= low < 0.4 * high else (low - margin) // step * step
    return low, -((-(high + margin)) // step) * step


@dataclass(frozen=True, slots=True)
class _Plane:
    across: Scale
    up: Scale

    def axes(self, across: Axis, up: Axis) -> list[Markup]:
        """Draw rules with numbers, and both titles: of the vertical axis above, of the other below."""
        bottom = _HEIGHT - _BOTTOM
        parts: list[Markup] = []
        for tick in ticks(self.up.low, self.up.high, 4):
            y = self.up(tick)
            parts += [
                line(_LEFT, y, _RIGHT, y, "rule"),
                text(_LEFT - 6, y + 4, short(round(tick, 12)), "end"),
            ]
        for tick in ticks(self.across.low, self.across.high, 4):
            x = self.across(tick)
            parts += [
                line(x, bottom, x, bottom + 4, "axis"),
                text(x, bottom + 17, short(round(tick, 12)), "middle"),
            ]
        parts += [line(_LEFT, bottom, _RIGHT, bottom, "axis"), line(_LEFT, _TOP - 4, _LEFT, bottom, "axis")]
        for arrow, axis, y in (("↑", up, 12.0), ("→", across, bottom + 35)):
            parts.append(name(2, y, f"{arrow} {axis.title}", WIDTH - 4))
            parts.append(text(16, y + 15, axis.goal, class_="small"))
        return parts


def _plane(across: tuple[float, float], up: tuple[float, float]) -> _Plane:
    return _Plane(Scale(*across, _LEFT, _RIGHT), Scale(*up, _HEIGHT - _BOTTOM, _TOP))
