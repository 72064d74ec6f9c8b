"""Settings on the pages exist, and a default that a page states is the default."""

import re
from collections.abc import Iterator

import pytest

from app.settings import Settings, unknown_variables
from app.webhooks.delivery import seconds_to_next
from tests.docs.blocks import ELSEWHERE, PAGES, ROOT

_DEFAULTS = {f"ROWVEIL_{name.upper()}": field.default for name, field in Settings.model_fields.items()}

_UNITS = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 24 * 3600, "week": 7 * 24 * 3600}
_SIZES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

_QUANTITY = (
    r"(?P<number>\d[\d, ]*(?:\.\d+)?|an?|every)[ \n]*(?P<unit>[KMGT]iB|(?:second|minute|hour|day|week)s?\b)?"
)

_BEHIND = re.compile(rf"`(?P<name>ROWVEIL_\w+)`(?: \(|, ){_QUANTITY}[);,]")
"""Default after the name: "`ROWVEIL_TRASH_DAYS` (7)", "(`ROWVEIL_BUFFER_TTL`, a day)"."""

_BEFORE = re.compile(rf"\b{_QUANTITY}(?: \w+){{0,2}}[ \n]\(`(?P<name>ROWVEIL_\w+)`[);]")
"""Default before the name: "up to 128 KiB each (`ROWVEIL_SMALL_TABLE_BYTES`)"."""

_COLUMNS = ("default", "limit", "deleted after")
"""Columns of a table with settings whose cell starts with the default."""


def _value(found: re.Match[str], name: str) -> float | None:
    """Return the number that a page states; None if it is not that of the setting's unit."""
    text, unit = found["number"], (found["unit"] or "").removesuffix("s")
    if text in ("a", "an", "every") and not unit:
        return None
    number = 1.0 if text in ("a", "an", "every") else float(text.replace(",", "").replace(" ", ""))
    if name.endswith("_DAYS"):
        return number
    return number * (_SIZES | _UNITS)[unit]


def _in_tables(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    header: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        header = header if header and cells else cells
        if "setting" not in header or len(cells) != len(header):
            continue
        name = cells[header.index("setting")].strip("`")
        for column in _COLUMNS:
            if name in _DEFAULTS and column in header:
                found = re.match(_QUANTITY, cells[header.index(column)])
                if found is not None:
                    yield name, found


def _stated(text: str) -> Iterator[tuple[str, float]]:
    """Yield name and value of each default that a page states."""
    found = [*((each["name"], each) for each in (*_BEHIND.finditer(text), *_BEFORE.finditer(text)))]
    for name, match in (*found, *_in_tables(text)):
        value = _value(match, name)
        if value is not None:
            yield name, value


def _texts() -> Iterator[tuple[str, str]]:
    pages = [path for path in sorted(PAGES.glob("*.md")) if path.name != "settings.md"]  # made from the code
    for path in (*pages, *(ROOT / name for name in ELSEWHERE)):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_settings_of_the_pages_exist() -> None:
    names = {name for _, text in _texts() for name in re.findall(r"\bROWVEIL_[A-Z][A-Z_]*[A-Z]\b", text)}
    assert unknown_variables(names) == []


def test_stated_defaults_are_the_defaults() -> None:
    stated = [(page, *each) for page, text in _texts() for each in _stated(text)]
    assert [each for each in stated if _DEFAULTS[each[1]] != each[2]] == []
    assert len(stated) >= 30, "the pages state more defaults than that"


@pytest.mark.parametrize("page", ["webhooks.md", "alerts.md"])
def test_the_time_for_which_a_message_is_tried(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    first, attempts = _DEFAULTS["ROWVEIL_WEBHOOK_RETRY_SECONDS"], _DEFAULTS["ROWVEIL_WEBHOOK_ATTEMPTS"]
    hours = round(sum(seconds_to_next(attempt, first) for attempt in range(1, attempts)) / 3600)
    text = " ".join((PAGES / page).read_text(encoding="utf-8").split())
    assert re.findall(r"about (\d+) hours", text) == [str(hours)]
