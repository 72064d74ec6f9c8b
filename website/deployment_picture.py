"""Drawing of a deployment with several processes: its parts, and the connections between them."""

from app.report.svg import coordinate, element, rectangle, text
from website.svg_file import svg_file

_PARTS = {
    "callers": (20, 40, 150, "Callers", "browser, pipeline, SDK"),
    "proxy": (220, 40, 150, "Proxy", "TLS, limits"),
    "service": (430, 40, 170, "service", "API, queue, sealing"),
    "prometheus": (20, 160, 150, "Prometheus", "metrics, alerts"),
    "postgres": (670, 40, 170, "postgres", "jobs, sealed seeds, audit"),
    "scheduler": (430, 160, 170, "scheduler", "Dask"),
    "worker": (430, 280, 170, "worker", "one or more machines"),
    "shared": (670, 280, 170, "shared folder", "sealed tables"),
    "keys": (190, 280, 150, "secrets", "master key, certificates"),
}
"""Part -> left edge, upper edge, width, title, purpose. Titles in lower case are names in `compose.yaml`."""

_CONNECTIONS = (
    ("callers", "proxy", "HTTPS"),
    ("proxy", "service", "HTTP"),
    ("prometheus", "service", "/metrics"),
    ("service", "postgres", "SQL"),
    ("service", "scheduler", "mutual TLS"),
    ("scheduler", "worker", "mutual TLS"),
    ("worker", "shared", "files"),
    ("service", "shared", ""),
    ("keys", "service", "files"),
    ("keys", "worker", "files"),
)

_BOX = 56.0
_WIDTH, _HEIGHT = 860.0, 356.0
_STYLE = (
    "text{font:13px sans-serif;fill:#20242c}.title{font-weight:bold}.note{font-size:11px;fill:#4a4f5c}"
    ".ground{fill:#fff}.box{fill:#e9eef6;stroke:#5a6070}path{fill:none;stroke:#5a6070;stroke-width:1.5}"
    ".head{fill:#5a6070;stroke:none}"
)


def deployment_picture() -> str:
    """Draw the parts of `compose.yaml` and what stands around them, as SVG."""
    head = element(
        "marker",
        element("path", d="M0 0L8 4L0 8z", class_="head"),
        id="head", viewBox="0 0 8 8", refX="7", refY="4", markerWidth="7", markerHeight="7", orient="auto",
    )  # fmt: skip
    shapes = [rectangle(0, 0, _WIDTH, _HEIGHT, "ground"), element("defs", head)]
    for source, target, label in _CONNECTIONS:
        (x, y), (to_x, to_y) = _ends(source, target)
        shapes.append(
            element(
                "path",
                d=f"M{coordinate(x)} {coordinate(y)}L{coordinate(to_x)} {coordinate(to_y)}",
                marker_end="url(#head)",
            )
        )
        shift = 6.0 if y != to_y else 0.0
        anchor = "start" if shift else "middle"
        middle = (y + to_y) / 2 + (shift or -5.0)
        shapes.append(text((x + to_x) / 2 + shift, middle, label, anchor, class_="note"))
    for x, y, width, title, purpose in _PARTS.values():
        shapes += [
            rectangle(x, y, width, _BOX, "box"),
            text(x + width / 2, y + 24, title, "middle", class_="title"),
            text(x + width / 2, y + 42, purpose, "middle", class_="note"),
        ]
    return svg_file("Parts of a deployment and their connections", _STYLE, _WIDTH, _HEIGHT, shapes)


def _ends(source: str, target: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return start and end of a connection, on the edges of the two boxes."""
    x, y, width, *_ = _PARTS[source]
    to_x, to_y, to_width, *_ = _PARTS[target]
    if y == to_y:
        return (x + width, y + _BOX / 2), (to_x, to_y + _BOX / 2)
    if x == to_x:
        return (x + width / 2, y + _BOX), (to_x + to_width / 2, to_y)
    if y < to_y:
        return (x + width * 0.85, y + _BOX), (to_x + to_width * 0.15, to_y)
    return (x + width * 0.85, y), (to_x + to_width * 0.15, to_y + _BOX)
