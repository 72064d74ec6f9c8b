"""CSV dialect: delimiter, null tokens, character encoding and decimal mark."""

import codecs
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from app.formats.bounded_file import BoundedFile
from app.formats.errors import FormatError

Encoding = Literal[
    "utf-8", "utf-16", "iso-8859-1", "iso-8859-2", "iso-8859-15",
    "windows-1250", "windows-1251", "windows-1252", "shift_jis", "gb18030", "big5", "euc-kr",
]  # fmt: skip
"""Supported encodings, by their names in the IANA registry."""

DecimalMark = Literal["point", "comma"]

ENCODINGS: tuple[str, ...] = get_args(Encoding)

_BLOCK_BYTES = 1 << 16

_CONTROLS = re.compile(rb"[\x80-\x9f]")
"""Control characters in ISO 8859, where the Windows code pages have quotes, dashes and the euro sign."""


def known_encoding(name: str) -> str | None:
    """Return the supported encoding for a name or alias such as ``UTF8``, ``latin-1``, ``us-ascii``."""
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return None
    if found in ("ascii", "utf-8-sig"):
        return "utf-8"
    return _BY_CODEC.get(found)


_BY_CODEC: Mapping[str, str] = {codecs.lookup(name).name: name for name in ENCODINGS}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """CSV dialect of a reader."""

    delimiter: str = ","
    null_tokens: tuple[str, ...] = ()
    """Unquoted cells that are null, in addition to the empty one."""
    encoding: str = "utf-8"
    header: bool = True
    """Whether the first line names the fields; else they are named column_1, column_2, ..."""
    decimal_mark: DecimalMark = "point"

    @property
    def nulls(self) -> list[str]:
        """All cells that are null if they are not quoted."""
        return ["", *(token for token in self.null_tokens if token)]

    def text(self, data: BoundedFile) -> "BoundedFile | RecodedFile":
        """Return the data as UTF-8, from its beginning."""
        data.seek(0)
        return data if self.encoding == "utf-8" else RecodedFile(data, self.encoding)


class RecodedFile:
    """File in another encoding, decoded to UTF-8 in sequence, in bounded memory."""

    def __init__(self, data: BoundedFile, encoding: str) -> None:
        self._data = data
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._has_controls = encoding.startswith("iso-8859")
        self._text = b""
        self._ended = False
        self._given = 0

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._data.closed

    def readable(self) -> bool:
        """True."""
        return True

    def writable(self) -> bool:
        """False."""
        return False

    def seekable(self) -> bool:
        """False: positions in the text have no known position in the file."""
        return False

    def tell(self) -> int:
        """Return the number of UTF-8 bytes read so far."""
        return self._given

    def read(self, count: int | None = -1) -> bytes:
        """Read up to `count` bytes of UTF-8. Raises FormatError."""
        wanted = count if count is not None and count >= 0 else None
        gathered, size = [self._text], len(self._text)
        while not self._ended and (wanted is None or size < wanted):
            raw = self._data.read(_BLOCK_BYTES)
            self._ended = not raw
            if self._has_controls and _CONTROLS.search(raw):
                raise FormatError(
                    f"the CSV has bytes that are no characters in {self._encoding}, but may be in "
                    "windows-1252; state the encoding that it was saved in"
                )
            try:
                text = self._decoder.decode(raw, final=self._ended).encode()
            except UnicodeError:
                raise FormatError(
                    f"the CSV is not in {self._encoding}; state the encoding that it was saved in, "
                    "or save it as UTF-8"
                ) from None
            gathered.append(text)
            size += len(text)
        whole = b"".join(gathered)
        wanted = size if wanted is None else wanted
        self._text = whole[wanted:]
        self._given += min(wanted, size)
        return whole[:wanted]

    def close(self) -> None:
        """Stop reads."""
        self._data.close()


class RawRecodedFile(io.RawIOBase):
    """`RawIOBase` view for Python's own text readers."""

    def __init__(self, text: BoundedFile | RecodedFile) -> None:
        super().__init__()
        self._text = text

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        """Fill the buffer, at most to its length."""
        data = self._text.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
