"""Picture of the layers: the folders of `app` and `providers` and the imports between them, as SVG.

The graph is read from the code, so that the picture always agrees with it. A box is a folder with its
subfolders; only `app/store` is drawn as its subfolders, which hold unlike things. Modules directly in `app`
or `providers` share one dashed box on each floor. Every box is above all that it imports. An arrow that
follows from other arrows is left out.

References
----------
Sugiyama, Tagawa and Toda 1981, Methods for visual understanding of hierarchical system structures,
IEEE Transactions on Systems, Man, and Cybernetics 11.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("app", "providers")
"""The packages, from the top of the picture to its bottom."""
_DIVIDED = ("app.store",)
"""Folders that are drawn as their subfolders."""

_FLOOR = 70.0
"""Distance of two floors in pixels."""
_BOX = 28.0
"""Height of a box in pixels."""
_GAP = 26.0
"""Least distance of two boxes on a floor, in pixels."""
_LETTER = 7.3
"""Width of a letter of the labels in pixels."""
_WRAP = 46
"""Maximum length of a label's line, in letters."""
_PASSAGE = 8.0
"""Width in pixels that an arrow takes on a floor that it only crosses."""
_SWEEPS = 24
"""Passes over all floors that order and move the boxes."""

_STYLE = """
text { font: 12px ui-monospace, monospace; fill: #1a1c2c; text-anchor: middle; dominant-baseline: central }
.app { fill: #e3e8fb; stroke: #4a5fc1 } .providers { fill: #e2f3e8; stroke: #2f8557 }
.modules { stroke-dasharray: 4 3 } path { fill: none; stroke: #7a7f92; stroke-width: 1.1 }
.ground { fill: #ffffff; stroke: none } .border { stroke: #b9bdcc; stroke-dasharray: 2 4 }
.package { font-weight: bold; text-anchor: start; fill: #555b70 }
"""


class Graph(NamedTuple):
    """Boxes of the picture on their floors."""

    floors: list[list[str]]
    """Names of the boxes of each floor, from the top."""
    arrows: set[tuple[str, str]]
    """(importing box, imported box), without those that follow from others."""


class _Point(NamedTuple):
    """A box, or the passage of an arrow through a floor."""

    floor: int
    name: str
    target: str = ""
    """End of the arrow that passes here; empty for a box."""


def layers_picture(root: Path = ROOT) -> str:
    """Return the picture as SVG; equal code gives equal bytes."""
    return _drawn(layers(root))


def layers(root: Path = ROOT) -> Graph:
    """Return the boxes on floors, each above all that it imports, and the arrows between them."""
    imports = module_imports(root)
    folders = {module: _folder(module, root) for module in imports}
    edges: dict[str, set[str]] = {folder: set() for folder in sorted(folders.values())}
    for module, targets in imports.items():
        edges[folders[module]] |= {folders[target] for target in targets} - {folders[module]}
    boxes: dict[str, str] = {}
    floors: list[list[str]] = []
    for package in PACKAGES:
        own = {name: edges[name] for name in edges if name.split(".")[0] == package}
        depths = _depths(own)
        for depth in range(max(depths.values()), -1, -1):
            floor = [name for name in own if depths[name] == depth]
            loose = [name for name in floor if name == package or not _path(root, name).is_dir()]
            shared = f"{package}: " + ", ".join(
                "__init__" if name == package else name.rpartition(".")[2] for name in loose
            )
            boxes |= {name: shared if name in loose else name for name in floor}
            floors.append(sorted({boxes[name] for name in floor}))
    merged: dict[str, set[str]] = {box: set() for box in boxes.values()}
    for name, targets in edges.items():
        merged[boxes[name]] |= {boxes[target] for target in targets}
    return Graph(floors, _reduced(merged))


def module_imports(root: Path = ROOT) -> dict[str, set[str]]:
    """Return for each module the modules of the packages that it imports, also inside of its functions."""
    paths = {
        _module_name(path.relative_to(root)): path
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    return {
        module: set(_imported(ast.parse(path.read_bytes()), paths.keys())) - {module}
        for module, path in paths.items()
    }


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module, modules: Collection[str]) -> Iterator[str]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names = (f"{node.module}.{alias.name}", str(node.module))
                yield from [name for name in names if name in modules][:1]


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node, also those of functions, handlers and cases, but no expression."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            yield child
            yield from _statements(child)


def _folder(module: str, root: Path) -> str:
    """Return the folder that stands for a module; one directly in a package stands for itself."""
    parts = module.split(".")
    folders = parts if _path(root, module).is_dir() else parts[:-1]
    if len(folders) < 2:
        return module
    level = 3 if ".".join(folders[:2]) in _DIVIDED else 2
    return ".".join(folders[:level])


def _path(root: Path, name: str) -> Path:
    return root.joinpath(*name.split("."))


def _depths(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the length of the longest way down from each node. ValueError: the imports form a circle."""
    depths: dict[str, int] = {}

    def visit(node: str, way: tuple[str, ...]) -> int:
        if node in way:
            raise ValueError(f"folders import each other: {' -> '.join((*way, node))}")
        if node not in depths:
            below = [visit(target, (*way, node)) for target in sorted(edges[node] & edges.keys())]
            depths[node] = 1 + max(below, default=-1)
        return depths[node]

    for node in edges:
        visit(node, ())
    return depths


def _reduced(edges: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Transitive reduction of a graph without circles."""
    reached: dict[str, set[str]] = {}

    def reach(node: str) -> set[str]:
        if node not in reached:
            reached[node] = edges[node].union(*(reach(target) for target in sorted(edges[node])))
        return reached[node]

    return {
        (node, target)
        for node, targets in edges.items()
        for target in targets
        if not any(target in reach(other) for other in targets if other != target)
    }


def _drawn(graph: Graph) -> str:
    rows, ways = _rows(graph)
    centres = _centres(rows, ways)
    left = min(centres[point] - _width(point) / 2 for row in rows for point in row) - 24
    centres = {point: centre - left for point, centre in centres.items()}
    right = max(centres[point] + _width(point) / 2 for row in rows for point in row) + 24
    height = _FLOOR * len(rows) + 24
    shapes = [f'<rect class="ground" width="{right:.0f}" height="{height:.0f}"/>']
    shapes += [f'<path d="{_curve(way, centres)}" marker-end="url(#head)"/>' for way in ways]
    for row in rows:
        shapes += [_box(point, centres[point]) for point in row if not point.target]
    for package in PACKAGES:
        first = next(number for number, floor in enumerate(graph.floors) if floor[0].startswith(package))
        y = _FLOOR * first + 12
        if first:
            shapes.append(f'<path class="border" d="M0 {y - 10:.0f}H{right:.0f}"/>')
        shapes.append(f'<text class="package" x="12" y="{y:.0f}">{package}/</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:.0f} {height:.0f}" '
            f'width="{right:.0f}" role="img" aria-label="Layers of app and providers">',
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#7a7f92;stroke:none"/></marker></defs>',
            *shapes,
            "</svg>\n",
        ]
    )


def _rows(graph: Graph) -> tuple[list[list[_Point]], list[list[_Point]]]:
    """Return the points of each floor, and of each arrow: one on every floor that it touches."""
    floors = {name: number for number, floor in enumerate(graph.floors) for name in floor}
    rows = [[_Point(number, name) for name in floor] for number, floor in enumerate(graph.floors)]
    ways = []
    for source, target in sorted(graph.arrows):
        between = [_Point(floor, source, target) for floor in range(floors[source] + 1, floors[target])]
        for point in between:
            rows[point.floor].append(point)
        ways.append([_Point(floors[source], source), *between, _Point(floors[target], target)])
    return rows, ways


def _centres(rows: list[list[_Point]], ways: list[list[_Point]]) -> dict[_Point, float]:
    """Order each floor by the mean place of its points' neighbours, and return the centres on the x-axis.

    The barycentre method (Sugiyama et al. 1981, section IV): floors downwards and upwards in turn.
    """
    above: dict[_Point, list[_Point]] = {point: [] for row in rows for point in row}
    below: dict[_Point, list[_Point]] = {point: [] for row in rows for point in row}
    for way in ways:
        for upper, lower in pairwise(way):
            above[lower].append(upper)
            below[upper].append(lower)
    centres: dict[_Point, float] = {}
    for row in rows:
        _spread(row, dict.fromkeys(row, 0.0), centres)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        last = sweep >= _SWEEPS - 2
        for row in rows if downwards else reversed(rows):
            wanted = {}
            for point in row:
                near = above[point] + below[point] if last else (above if downwards else below)[point]
                near = near or above[point] + below[point]
                wanted[point] = sum(centres[other] for other in near) / len(near) if near else centres[point]
            row.sort(key=lambda point: (wanted[point], point))
            _spread(row, wanted, centres)
    return centres


def _spread(row: list[_Point], wanted: Mapping[_Point, float], centres: dict[_Point, float]) -> None:
    """Place the points of one floor as near to the wanted centres as their widths allow, in their order.

    Neighbours that would overlap form a block, which is placed at the mean of what its members want.
    """
    blocks: list[tuple[float, float, list[tuple[_Point, float]]]] = []  # place, width, members with offsets
    for point in row:
        half = _width(point) / 2
        block = (wanted[point] - half, 2 * half, [(point, half)])
        while blocks and blocks[-1][0] + blocks[-1][1] + _GAP > block[0]:
            place, width, members = blocks.pop()
            offset = width + _GAP
            members = members + [(member, offset + within) for member, within in block[2]]
            width = offset + block[1]
            place = sum(wanted[member] - within for member, within in members) / len(members)
            block = (place, width, members)
        blocks.append(block)
    for place, _, members in blocks:
        for member, within in members:
            centres[member] = place + within


def _lines(point: _Point) -> list[str]:
    _, folder = re.split("[.:]", point.name, maxsplit=1)
    lines = [""]
    for word in (folder.strip() if ":" in point.name else folder.replace(".", "/") + "/").split():
        if lines[-1] and len(lines[-1]) + len(word) > _WRAP:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _width(point: _Point) -> float:
    return _PASSAGE if point.target else _LETTER * max(map(len, _lines(point))) + 20


def _height(point: _Point) -> float:
    return 0.0 if point.target else _BOX + 15 * (len(_lines(point)) - 1)


def _middle(point: _Point) -> float:
    return _FLOOR * point.floor + 44


def _curve(way: list[_Point], centres: Mapping[_Point, float]) -> str:
    """A smooth line through the points, which leaves and arrives vertically."""
    commands = [f"M{centres[way[0]]:.1f} {_middle(way[0]) + _height(way[0]) / 2:.1f}"]
    for upper, lower in pairwise(way):
        start, end = _middle(upper) + _height(upper) / 2, _middle(lower) - _height(lower) / 2
        bend = (end - start) / 2
        commands.append(
            f"C{centres[upper]:.1f} {start + bend:.1f} {centres[lower]:.1f} {end - bend:.1f} "
            f"{centres[lower]:.1f} {end:.1f}"
        )
    return "".join(commands)


def _box(point: _Point, centre: float) -> str:
    width, height, middle = _width(point), _height(point), _middle(point)
    package = point.name.split(".")[0].split(":")[0]
    look = f"{package} modules" if ":" in point.name else package
    lines = _lines(point)
    first = middle - 7.5 * (len(lines) - 1)
    texts = [
        f'<text x="{centre:.1f}" y="{first + 15 * number:.1f}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    frame = (
        f'<rect class="{look}" x="{centre - width / 2:.1f}" y="{middle - height / 2:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="5"/>'
    )
    return frame + "".join(texts)
