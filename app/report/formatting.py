"""Format numbers and names for readers."""

import math
import unicodedata
from typing import Any

from markupsafe import Markup

GROUP = "\u202f"  # narrow no-break space, as ISO 80000-1 groups digits

MINUS = "\u2212"

TIMES = "\u00d7"

NOT_DEFINED = "not defined"

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_DIGITS = 4


def number(value: Any) -> str:
    """Format a value with four significant digits, an integer with all digits in groups of three."""
    if value is None:
        return NOT_DEFINED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, int) or (value == math.floor(value) and abs(value) < 1e15):
        return _grouped(f"{int(value):d}")
    if abs(value) >= 10**_DIGITS:
        return _grouped(f"{value:.0f}") if abs(value) < 1e15 else _power_of_ten(value)
    if abs(value) < 1e-4:
        return _power_of_ten(value)
    whole = math.floor(math.log10(abs(value))) + 1
    return _grouped(f"{value:.{_DIGITS - whole}f}".rstrip("0").rstrip("."))


def short(value: float) -> str:
    """Format a value for an axis or a cell, where space is scarce."""
    if abs(value) >= 1e15:
        return _power_of_ten(value)
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{GROUP}{letter}".replace("-", MINUS)
    return (
        _grouped(f"{value:.4g}") if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}".replace("-", MINUS)
    )


def percent(share: float) -> str:
    """Format a share in per cent; whole if that is exact, else with a decimal."""
    hundredths = round(100 * share, 9)  # 55, not 55.00000000000001
    if share and not 0.0005 <= share <= 0.9995 and share != 1:
        return f"{_rounded(hundredths)}{GROUP}%"
    return f"{hundredths:.0f}{GROUP}%" if hundredths == int(hundredths) else f"{hundredths:.1f}{GROUP}%"


def visible(text: str) -> str:
    """Escape invisible characters that act on a display: controls and overrides of direction."""
    if not text:
        return "(empty)"
    return "".join(_escape(each) if _acts(each) else each for each in text)


def named(text: str) -> Markup:
    """Mark up a name that the caller chose: escaped, and isolated from the text direction around it."""
    return Markup('<bdi class="name">{}</bdi>').format(visible(text))


def quoted(text: str) -> str:
    """Put a name that the caller chose in quotes, for a sentence without markup."""
    return f"'{visible(text)}'"


def humanised(key: str) -> str:
    """Turn a key of the report into words, for lack of better ones."""
    return key.replace("_", " ")


def fitted(text: str, columns: int) -> str:
    """Cut the text to this number of columns; wide characters take two."""
    text, taken = visible(text), 0
    for index, each in enumerate(text):
        taken += 2 if unicodedata.east_asian_width(each) in "WF" else 1
        if taken > columns:
            return f"{text[: max(1, index - 1)].rstrip()}…"
    return text


def counted(count: int, one: str, many: str) -> str:
    """Format a count with its noun, such as `1 row` or `12 rows`."""
    return f"{number(count)} {one if count == 1 else many}"


def listed(items: list[str]) -> str:
    """Join items, such as `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def _grouped(digits: str) -> str:
    sign, digits = (MINUS, digits[1:]) if digits.startswith("-") else ("", digits)
    whole, point, decimals = digits.partition(".")
    first = len(whole) % 3
    parts = [whole[:first]] if first else []
    parts += [whole[start : start + 3] for start in range(first, len(whole), 3)]
    # a number of four digits is not grouped
    return sign + (GROUP.join(parts) if len(whole) > 4 else whole) + point + decimals


def _power_of_ten(value: float) -> str:
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.replace('-', MINUS)} {TIMES} 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def _rounded(hundredths: float) -> str:
    """Format a percentage near 0 or 100 with as many decimals as distinguish it from them."""
    off = min(abs(hundredths), abs(100 - hundredths))
    decimals = min(8, 1 - math.floor(math.log10(off)))
    shown = f"{hundredths:.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _acts(each: str) -> bool:
    """Whether the character is a control, a surrogate, a line separator, or changes the direction."""
    turns = "\u202a" <= each <= "\u202e" or "\u2066" <= each <= "\u2069"
    return turns or unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")


def _escape(each: str) -> str:
    return each.encode("unicode_escape").decode("ascii")
