"""Every picture of the documentation is shown by a page, has a text for the blind, and stays small."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES
from website.drawn_swaps import drawn_swaps

SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
LARGEST = 120_000
LARGEST_TOGETHER = 1_000_000


def shown() -> list[tuple[Path, str, Path]]:
    """Page, text and file of every picture that a page shows."""
    found = []
    for page in sorted(PAGES.rglob("*.md")):
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        found += [(page, text, (page.parent / target).resolve()) for text, target in SHOWN.findall(prose)]
    return found


def test_every_picture_exists_and_has_a_text() -> None:
    assert [(page.name, target.name) for page, _, target in shown() if not target.is_file()] == []
    assert [(page.name, target.name) for page, text, target in shown() if len(text) < 15] == []


def test_every_file_of_a_picture_is_shown() -> None:
    files = {path.resolve() for path in PAGES.rglob("*") if path.suffix in {".png", ".svg"}}
    assert files == {target for _, _, target in shown()}


def test_photographs_of_the_screen_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (PAGES / "pictures").iterdir()}
    assert len(sizes) >= 6
    assert max(sizes.values()) < LARGEST
    assert sum(sizes.values()) < LARGEST_TOGETHER


@pytest.mark.parametrize("path", drawn_swaps(), ids=lambda path: path.stem)
def test_a_drawn_swap_keeps_the_values_of_each_field(path: Path) -> None:
    """The drawing comes from a run: eight lines for each field that moved, between the middles of rows."""
    drawing = drawn_swaps()[path].decode()
    fields = [name for name in ("income", "savings") if f'class="{name}"' in drawing]
    assert fields
    for name in fields:
        lines = re.findall(rf'<line [^>]*class="{name}"[^>]*>', drawing)
        assert len(lines) == 8
        for edge in ("y1", "y2"):
            assert len({re.search(rf'{edge}="([\d.]+)"', line)[1] for line in lines}) == 8  # type: ignore[index]
