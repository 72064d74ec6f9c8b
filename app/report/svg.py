"""SVG elements with escaped text, scales, and ticks of an axis.

A drawing is legible at a width of 320 pixels. Colour is never the only distinction: before is a plain area,
after a thick line or a hatched area, and values below zero are hatched. Colours and hatches are those of
``report.css``, because the page's content security policy forbids style attributes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from app.report.formatting import fitted
from app.report.page_table import Table

WIDTH = 360.0
LETTER = 6.6
"""Mean width of a letter at the font size of `report.css`."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Drawings of one subject with a caption and a table of their data."""

    title: Markup | str
    drawings: Sequence[Markup]
    caption: Markup | str
    table: Table
    keys: Sequence[Markup | str] = ()
    """Meaning of the numbers at the axes, from 1."""
    is_open: bool = False
    """Whether the table is open when the page is loaded."""


def element(tag: str, *children: Markup | str, **attributes: str | float) -> Markup:
    """Build ``<tag ...>children</tag>``; underscores in names of attributes become hyphens."""
    # `escape` and f-strings instead of `Markup.format`, which takes four times as long.
    parts = [
        f" {escape(name.rstrip('_').replace('_', '-'))}="
        f'"{escape(value) if isinstance(value, str) else coordinate(value)}"'
        for name, value in attributes.items()
    ]
    name, inner = escape(tag), "".join([escape(child) for child in children])
    return Markup(f"<{name}{''.join(parts)}>{inner}</{name}>")  # noqa: S704 - all parts are escaped


def coordinate(value: float) -> str:
    """Format a coordinate with at most one decimal."""
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def drawing(identifier: str, title: str, description: str, height: float, *children: Markup) -> Markup:
    """Build the SVG root, with a title and a description for screen readers."""
    return element(
        "svg",
        element("title", title, id=f"{identifier}-title"),
        element("desc", description, id=f"{identifier}-desc"),
        *children,
        viewBox=f"0 0 {coordinate(WIDTH)} {coordinate(height)}",
        role="img",
        aria_labelledby=f"{identifier}-title {identifier}-desc",
    )


def text(x: float, y: float, words: str, anchor: str = "start", **attributes: str | float) -> Markup:
    """Build one line of text, uncut."""
    return element("text", words, x=x, y=y, text_anchor=anchor, **attributes)


def name(x: float, y: float, words: str, width: float) -> Markup:
    """Build a name, cut to the width; the table has the full name."""
    return text(x, y, fitted(words, int(width / LETTER)), class_="name")


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Build a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    """Build a rectangle."""
    return element("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), class_=kind)


def path(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    """Build an open line through the points."""
    steps = " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)
    return element("polyline", points=steps, class_=kind)


@dataclass(frozen=True, slots=True)
class Scale:
    """Linear scale from values to coordinates of the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


_ROUND = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def nice(value: float, steps: Sequence[float] = _ROUND) -> float:
    """Round up to a step times a power of ten; 1 for values up to 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in steps if step * power >= value * (1 - 1e-12))


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return about this many equidistant round numbers from low to high."""
    if not high > low:
        return [low]
    step = nice((high - low) / about, _STEPS)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]
