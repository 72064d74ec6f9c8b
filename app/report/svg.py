"""Drawing: elements of SVG made of escaped text, scales, and the ticks of an axis.

A drawing is small enough to be legible at 320 pixels. It says nothing by colour alone: before is a
plain area, after a thick line or a hatched area, below zero is hatched. Colours and hatches are
those of ``report.css``; a style attribute would be refused by the page's own policy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.report.tables import Table
from app.report.words import fitted

WIDTH = 360.0
LETTER = 6.6
"""Mean width of a letter at the size of `report.css`."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Drawings of one matter, the words beneath them, and the table that stands behind."""

    title: Markup | str
    drawings: Sequence[Markup]
    caption: Markup | str
    table: Table
    keys: Sequence[Markup | str] = ()
    """What numbers at the axes stand for, from 1."""
    is_open: bool = False
    """Whether the table is seen at once."""


def element(tag: str, *children: Markup | str, **attributes: str | float) -> Markup:
    """``<tag ...>children</tag>``; underscores of an attribute's name become hyphens."""
    parts = [
        Markup(' {}="{}"').format(
            name.rstrip("_").replace("_", "-"), value if isinstance(value, str) else coordinate(value)
        )
        for name, value in attributes.items()
    ]
    inner = Markup("").join(children)
    return Markup("<{0}{1}>{2}</{0}>").format(tag, Markup("").join(parts), inner)


def coordinate(value: float) -> str:
    """The number with a decimal at most."""
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def drawing(identifier: str, title: str, description: str, height: float, *children: Markup) -> Markup:
    """The whole, with a title and a description for who cannot see it."""
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
    """One line of text, which is not cut."""
    return element("text", words, x=x, y=y, text_anchor=anchor, **attributes)


def name(x: float, y: float, words: str, width: float) -> Markup:
    """A name cut to the width; its whole is in the table."""
    return text(x, y, fitted(words, int(width / LETTER)), class_="name")


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    """A rectangle."""
    return element("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), class_=kind)


def path(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    """An open line through the points."""
    steps = " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)
    return element("polyline", points=steps, class_=kind)


@dataclass(frozen=True, slots=True)
class Scale:
    """From figures to places on the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a figure."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


_ROUND = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def nice(value: float, of: Sequence[float] = _ROUND) -> float:
    """The least round figure that is not less than the value; 1 of 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in of if step * power >= value * (1 - 1e-12))


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round figures from low to high, about so many."""
    if not high > low:
        return [low]
    step = nice((high - low) / about, _STEPS)
    first = math.ceil(low / step - 1e-9)
    return [at * step for at in range(first, math.floor(high / step + 1e-9) + 1)]
