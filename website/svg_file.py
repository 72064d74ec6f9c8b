"""SVG files of the documentation: the root element with its title and style."""

from collections.abc import Iterable

from markupsafe import Markup

from app.report.svg import coordinate, element


def svg_file(title: str, style: str, width: float, height: float, shapes: Iterable[Markup]) -> str:
    """Build the content of an SVG file.

    Parameters
    ----------
    title : str
        Text for readers who do not see the picture.
    style : str
        Style sheet, a constant of the program: it is not escaped.
    width, height : float
        Size in pixels.
    shapes : iterable
        Elements, from back to front.
    """
    root = element(
        "svg",
        element("title", title),
        element("style", Markup(style)),  # noqa: S704 # a constant
        *shapes,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
        width=width,
        height=height,
        role="img",
    )
    return f"{root}\n"
