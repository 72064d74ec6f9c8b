"""Check of the quotes of a CSV, before Arrow reads it.

A cell that begins with a quote ends with one, and a quote inside of it is doubled (RFC 4180, section 2).
Arrow drops a quote in the middle of a cell, and may take the rows up to the next quote for one cell. A file
whose writer escapes quotes by a backslash, like Spark, would lose values without an error. A quote within a
cell that does not begin with one is a character like others.
"""

from __future__ import annotations

import codecs
from typing import Protocol

import numpy as np
import numpy.typing as npt

from app.formats.errors import FormatError

_BLOCK_BYTES = 1 << 20

_QUOTE = ord('"')


class Readable(Protocol):
    """File in UTF-8."""

    def read(self, count: int, /) -> bytes:
        """Return up to `count` bytes, none at the end."""


def check_quotes(text: Readable, delimiter: str) -> None:
    """Raise FormatError for text after a closing quote, or for a quoted cell that is not closed."""
    check = _QuoteCheck(delimiter)
    block = text.read(_BLOCK_BYTES).removeprefix(codecs.BOM_UTF8)
    while block:
        check.see(block)
        block = text.read(_BLOCK_BYTES)
    check.see(b"\n")
    if check.is_open:
        raise FormatError('a quoted cell is not closed; write a quote inside a cell as ""')


class _QuoteCheck:
    """Quotes of the text so far; its last byte is looked at together with the next one."""

    def __init__(self, delimiter: str) -> None:
        self.is_open = False
        """Whether a quoted cell is open."""
        self._tail = b"\n"
        """Last byte that was looked at, and the one that was not; before the text a line end."""
        self._just_closed = False
        """Whether the byte looked at last is a quote that closes a cell, or the first one of a pair."""
        self._lines = 1
        self._borders = frozenset(delimiter.encode() + b"\r\n")
        self._is_border = np.zeros(256, np.bool_)
        self._is_border[list(self._borders)] = True

    def see(self, block: bytes) -> None:
        """Add bytes. Raises FormatError."""
        text = self._tail + block
        codes = np.frombuffer(text, np.uint8)
        closed = 0 if self._just_closed else -1
        places = np.flatnonzero(codes[1:-1] == _QUOTE) + 1
        if len(places):
            regular = self._closed_if_regular(codes, places, closed)
            closed = self._closed(text, places, closed) if regular is None else regular
        self._just_closed = closed == len(text) - 2
        self._lines += _line_ends(text, len(text) - 1)
        self._tail = text[-2:]

    def _closed_if_regular(
        self, codes: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], closed: int
    ) -> int | None:
        """Return the place of the closing quote that is last; None if cells without quotes have some inside.

        Without such cells each second quote opens a cell, or is the second one of a doubled quote.
        """
        opening = (np.arange(len(places)) % 2 == 0) != self.is_open
        doubled = places - 1 == np.concatenate([[closed], places[:-1]])
        after = codes[places + 1]
        regular = np.where(
            opening, doubled | self._is_border[codes[places - 1]], self._is_border[after] | (after == _QUOTE)
        )
        if not regular.all():
            return None
        self.is_open = bool(opening[-1])
        return -1 if self.is_open else int(places[-1])

    def _closed(self, text: bytes, places: npt.NDArray[np.int64], closed: int) -> int:
        """Return the place of the closing quote that is last, looking at one quote after the other."""
        for place in places.tolist():
            if self.is_open:
                self.is_open, closed = False, place
                if text[place + 1] not in self._borders and text[place + 1] != _QUOTE:
                    raise FormatError(
                        f"line {self._lines + _line_ends(text, place)} of the CSV has text after the closing "
                        'quote of a cell; write a quote inside a cell as "", and not after a backslash'
                    )
            elif closed == place - 1 or text[place - 1] in self._borders:
                self.is_open = True
        return closed


def _line_ends(text: bytes, end: int) -> int:
    """Count the line ends from the second byte on; those of CR and LF once."""
    return max(text.count(mark, 1, end) for mark in (b"\n", b"\r"))
