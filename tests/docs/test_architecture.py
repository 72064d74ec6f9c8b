"""The page on architecture is a short map whose places exist."""

import re

from tests.docs.blocks import PAGES, ROOT

TEXT = (PAGES / "architecture.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """Return the text below a heading, up to the next one."""
    _, _, rest = TEXT.partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


def test_every_place_exists() -> None:
    """Each path in the page is a file or a folder of the repository."""
    paths = re.findall(r"`((?:app|providers|tests|website|deploy)/[\w/.]*)`", TEXT)
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert len(paths) > 50
    assert not missing


def test_the_page_stays_a_map() -> None:
    """Seven hops, and at most 25 rows."""
    hops = re.findall(r"^(\d)\. ", section("The walk of one request"), flags=re.MULTILINE)
    assert hops == list("1234567")
    rows = [line for line in section("To change X, go to Y").splitlines() if line.startswith("| ")]
    assert 15 <= len(rows) - 2 <= 25
