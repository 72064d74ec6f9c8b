"""Heat maps of the correlations before, after, and of their difference."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from app.report.formatting import MINUS, named, number, short
from app.report.page_table import Cell, Table
from app.report.svg import WIDTH, Picture, drawing, element, nice, rectangle, text

Matrix = Sequence[Sequence[float | None]]

_BOUNDS = (0.05, 0.2, 0.4, 0.6, 0.8)
"""Upper bounds of the shades but the darkest, as shares of the greatest value."""
_LEFT, _TOP, _BELOW = 24.0, 22.0, 54.0


def correlations(given: Mapping[str, Any], weighted: bool = False) -> Picture | None:
    """Draw heat maps, with a table of all pairs, the most changed first; None for fewer than two fields.

    Parameters
    ----------
    given : mapping
        Names of the fields, and the matrices of the source, the destination, and their difference.
    weighted : bool
        Whether the correlations are those by survey weights.
    """
    fields = [str(field) for field in given.get("fields") or ()]
    if len(fields) < 2:
        return None
    before, after, difference = given["source"], given["destination"], given["difference"]
    greatest = nice(max((abs(r) for row in difference for r in row if r is not None), default=0.0))
    name, noun = ("weighted-correlations", "weighted correlations") if weighted else ("correlations",) * 2
    drawings = [
        _map(f"{name}-before", f"{noun.capitalize()} before", before, 1.0),
        _map(f"{name}-after", f"{noun.capitalize()} after", after, 1.0),
        _map(
            f"{name}-difference",
            f"Difference of the {noun}, after minus before",
            difference,
            greatest,
        ),
    ]
    pairs = [(one, two) for one in range(len(fields)) for two in range(one)]
    pairs.sort(key=lambda pair: -abs(difference[pair[0]][pair[1]] or 0.0))
    rows: list[Sequence[Cell]] = [
        (
            Markup("{} and {}").format(named(fields[two]), named(fields[one])),
            *(number(matrix[one][two]) for matrix in (before, after, difference)),
        )
        for one, two in pairs
    ]
    table = Table(
        f"{noun.capitalize().removesuffix('s')} of each pair of fields, the most changed first",
        ("pair", "before", "after", "difference"),
        rows,
    )
    return Picture(
        f"{noun.capitalize()} of the numeric fields",
        drawings,
        "Before, after, and after minus before. The stronger the shade, the farther from zero. Hatched: "
        "below zero. Crossed out: not defined. The difference has a scale of its own, up to "
        f"{short(greatest)}. Numbers at the edges stand for the fields.",
        table,
        keys=[named(field) for field in fields],
    )


def _map(identifier: str, title: str, matrix: Matrix, greatest: float) -> Markup:
    count = len(matrix)
    side = (WIDTH - _LEFT - 8) / count
    cells: dict[str, list[str]] = {}
    for row in range(count):
        for column in range(row + 1):
            value = matrix[row][column]
            x, y = _LEFT + column * side, _TOP + row * side
            for kind in _kinds(value, greatest):
                outline = f"M{x:.2f} {y:.2f}h{side:.2f}v{side:.2f}h-{side:.2f}z"
                cells.setdefault(kind, []).append(outline)
            if value is None:
                cross = f"M{x:.2f} {y:.2f}l{side:.2f} {side:.2f}m0-{side:.2f}l-{side:.2f} {side:.2f}"
                cells.setdefault("undefined", []).append(cross)
    parts = [element("path", d="".join(corners), class_=kind) for kind, corners in sorted(cells.items())]
    if count <= 7:
        parts += _values(matrix, side, greatest)
    parts += _numbers(count, side)
    bottom = _TOP + count * side
    return drawing(
        identifier,
        title,
        f"Heat map of {count} fields, lower triangle. The values are in the table below.",
        bottom + _BELOW,
        text(_LEFT, 13, title, class_="strong"),
        *parts,
        *_legend(bottom + 24, greatest),
    )


def _shade(value: float, greatest: float) -> int:
    return sum(abs(value) > bound * greatest for bound in _BOUNDS)


def _kinds(value: float | None, greatest: float) -> tuple[str, ...]:
    """Return the CSS classes of a cell: its shade and, over it, a hatch for values below zero."""
    if value is None:
        return ("cell shade-0",)
    shade = _shade(value, greatest)
    below = (
        ("hatch-dark",) if value < 0 and 0 < shade < 3 else ("hatch-light",) if value < 0 and shade else ()
    )
    return (f"cell shade-{shade}", *(f"over {hatch}" for hatch in below))


def _values(matrix: Matrix, side: float, greatest: float) -> list[Markup]:
    parts = []
    for row, values in enumerate(matrix):
        for column, value in enumerate(values[: row + 1]):
            if value is None or (row == column and greatest == 1.0):
                continue
            shown = f"{value:.2f}".replace("-", MINUS).replace("0.", ".")
            shown = "0" if float(f"{value:.2f}") == 0 else shown
            parts.append(
                text(
                    _LEFT + (column + 0.5) * side,
                    _TOP + (row + 0.5) * side + 4,
                    shown,
                    "middle",
                    class_="small value" if _shade(value, greatest) < 3 else "small value on-dark",
                )
            )
    return parts


def _numbers(count: int, side: float) -> list[Markup]:
    """Write the numbers of the fields at the left and below, as many as fit."""
    step = next(step for step in (1, 2, 5, 10, 20, 50) if step * side >= 16)
    shown = [index for index in range(1, count + 1) if index == 1 or index % step == 0]
    y = _TOP + count * side + 14
    parts = [text(_LEFT - 5, _TOP + (i - 0.5) * side + 4, str(i), "end", class_="small") for i in shown]
    return parts + [text(_LEFT + (i - 0.5) * side, y, str(i), "middle", class_="small") for i in shown]


def _legend(y: float, greatest: float) -> list[Markup]:
    """Draw eleven swatches from the least to the greatest value, with numbers at their ends."""
    middles = [
        *(-(low + high) / 2 for low, high in _steps()[::-1]),
        0.0,
        *((low + high) / 2 for low, high in _steps()),
    ]
    width = (WIDTH - _LEFT - 8) / len(middles)
    parts = [
        rectangle(_LEFT + index * width, y, width, 10, kind)
        for index, middle in enumerate(middles)
        for kind in _kinds(middle * greatest, greatest)
    ]
    half = WIDTH - 8
    parts.append(text(_LEFT, y + 21, short(-greatest), class_="small"))
    parts.append(text((_LEFT + half) / 2, y + 21, "0", "middle", class_="small"))
    parts.append(text(half, y + 21, short(greatest), "end", class_="small"))
    return parts


def _steps() -> list[tuple[float, float]]:
    return list(zip(_BOUNDS, (*_BOUNDS[1:], 1.0), strict=True))
