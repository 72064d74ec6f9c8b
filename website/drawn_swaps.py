"""Drawings of small swaps: a real run of each service on eight rows, with a line for each value, as SVG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from markupsafe import Markup

from app.report.svg import line, rectangle, text
from providers import PROVIDERS
from website.svg_file import svg_file

_SEED = bytes(range(32))

_ROWS: dict[str, list[Any]] = {
    "row": [1, 2, 3, 4, 5, 6, 7, 8],
    "age": [23, 27, 31, 38, 44, 52, 61, 70],
    "town": ["Oslo", "Porto", "Oslo", "Porto", "Oslo", "Porto", "Oslo", "Porto"],
    "income": [21, 34, 29, 47, 38, 66, 52, 25],
    "savings": [4, 9, 2, 15, 7, 31, 18, 12],
}
"""Made-up people; all incomes differ, and so do all savings, so that each value can be followed."""

_CASES: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "DSWAP": (
        {"swap_fields": ["income", "savings"]},
        None,
        "Each field moves on its own, between pairs of any rows.",
    ),
    "CDSWAP": (
        {"swap_fields": ["income", "savings"], "control_field": "town", "locked": True},
        "town",
        "Locked: income and savings move together, and stay in their town.",
    ),
    "DDSWAP": (
        {"swap_fields": ["income"], "control_field": "age", "block_size": 4},
        "age",
        "Incomes move among four rows that are neighbours by age.",
    ),
}
"""Service -> parameters, field that the rows are sorted by, and a caption."""

_SHADE_OF_GROUP = {
    "CDSWAP": lambda row: _ROWS["town"][row] == "Porto",
    "DDSWAP": lambda row: row >= 4,
}

_COLUMN, _LINE, _TOP, _GAP, _EDGE = 62.0, 26.0, 62.0, 200.0, 12.0
_STYLE = (
    "text{font:13px sans-serif;fill:#20242c}.title{font-weight:bold}.head{fill:#4a4f5c}.ground{fill:#fff}"
    ".group{fill:#e9eef6}.border{fill:none;stroke:#9aa1b0}"
    ".income{stroke:#2b5fa8;stroke-width:2}.savings{stroke:#c2571a;stroke-width:2;stroke-dasharray:6 3}"
    ".income-text{fill:#2b5fa8;font-weight:bold}.savings-text{fill:#c2571a;font-weight:bold}"
)


def drawn_swaps() -> dict[Path, bytes]:
    """Return the drawing of each service that has one: path in the repository -> content."""
    return {Path(f"docs/services/{service}.svg"): _drawing(service).encode() for service in _CASES}


def picture_of(service: str) -> str | None:
    """Return the Markdown of the service's drawing; None if it has none."""
    if service not in _CASES:
        return None
    caption = _CASES[service][2]
    return f"![Eight rows before and after {service}, with a line for each value. {caption}]({service}.svg)"


def _drawing(service: str) -> str:
    parameters, sorted_by, caption = _CASES[service]
    before, after = _run(service, parameters)
    order = sorted(range(len(before["row"])), key=lambda row: before[sorted_by][row] if sorted_by else row)
    names = list(before)
    right = _EDGE + len(names) * _COLUMN
    left = right + _GAP
    width, height = left + len(names) * _COLUMN + _EDGE, _TOP + len(order) * _LINE + _EDGE
    shaded = _SHADE_OF_GROUP.get(service)
    shapes = [
        rectangle(0, 0, width, height, "ground"),
        text(_EDGE, 20, f"{service}: {caption}", class_="title"),
    ]
    for x in (_EDGE, left):
        for place, row in enumerate(order):
            if shaded is not None and shaded(row):
                shapes.append(rectangle(x, _TOP + place * _LINE, len(names) * _COLUMN, _LINE, "group"))
        shapes.append(rectangle(x, _TOP, len(names) * _COLUMN, len(order) * _LINE, "border"))
    shapes += _table(before, order, _EDGE, ()) + _table(after, order, left, tuple(parameters["swap_fields"]))
    for field in reversed(parameters["swap_fields"]):
        shift = 4.0 if field == "savings" else -4.0
        for place, row in enumerate(order):
            source = before[field].index(after[field][row])
            start, end = _middle(order.index(source)) + shift, _middle(place) + shift
            shapes.append(line(right + 3, start, left - 3, end, field))
    title = f"Eight rows before and after {service}"
    return svg_file(title, _STYLE, width, height, shapes)


def _run(service: str, parameters: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Run the service on the rows; return them before and after, by field."""
    provider = PROVIDERS[service]
    table = pa.table(_ROWS)
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    result = provider.swap(table, params, provider.stream(_SEED), lambda *_: None)
    return table.to_pydict(), result.table.to_pydict()


def _middle(place: int) -> float:
    return _TOP + (place + 0.5) * _LINE


def _table(rows: dict[str, list[Any]], order: Sequence[int], x: float, moved: Sequence[str]) -> list[Markup]:
    shapes = []
    for number, (name, values) in enumerate(rows.items()):
        at = x + (number + 0.5) * _COLUMN
        kind = f"{name}-text" if name in moved else "value"
        shapes.append(text(at, _TOP - 8, name, "middle", class_="head"))
        shapes += [
            text(at, _middle(place) + 4.5, str(values[row]), "middle", class_=kind)
            for place, row in enumerate(order)
        ]
    return shapes
