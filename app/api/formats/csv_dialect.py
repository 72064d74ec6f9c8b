"""How a CSV text is written: its separator, its words for null, its character encoding."""

import codecs
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from app.api.formats.errors import FormatError
from app.api.formats.source import Bounded

Encoding = Literal[
    "utf-8", "utf-16", "iso-8859-1", "iso-8859-2", "iso-8859-15",
    "windows-1250", "windows-1251", "windows-1252", "shift_jis", "gb18030", "big5", "euc-kr",
]  # fmt: skip
"""The encodings that are read, by their names in the IANA registry."""

ENCODINGS: tuple[str, ...] = get_args(Encoding)
_BLOCK_BYTES = 1 << 16


def known_encoding(name: str) -> str | None:
    """The encoding that a name or alias stands for (``UTF8``, ``latin-1``, ``us-ascii``), if it is read."""
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
    """What a reader of CSV must be told."""

    delimiter: str = ","
    null_tokens: tuple[str, ...] = ()
    """Cells that are null besides the empty one, where they are not quoted."""
    encoding: str = "utf-8"

    @property
    def nulls(self) -> list[str]:
        """All cells that are null where they are not quoted."""
        return ["", *(token for token in self.null_tokens if token)]

    def text(self, data: Bounded) -> "Bounded | Recoded":
        """The data in UTF-8, from its beginning."""
        data.seek(0)
        return data if self.encoding == "utf-8" else Recoded(data, self.encoding)


class Recoded:
    """A file in another encoding, read as UTF-8 from its beginning to its end, in bounded memory."""

    def __init__(self, data: Bounded, encoding: str) -> None:
        self._data = data
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._text = b""
        self._ended = False
        self._given = 0

    @property
    def closed(self) -> bool:
        """Whether nobody may read on."""
        return self._data.closed

    def readable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never: what a place in the text is in the file is not known."""
        return False

    def tell(self) -> int:
        """Bytes of UTF-8 read so far."""
        return self._given

    def read(self, count: int | None = -1) -> bytes:
        """So many bytes of UTF-8, or what is left. Raises FormatError."""
        wanted = count if count is not None and count >= 0 else None
        gathered, size = [self._text], len(self._text)
        while not self._ended and (wanted is None or size < wanted):
            raw = self._data.read(_BLOCK_BYTES)
            self._ended = not raw
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
        """Let nobody read on."""
        self._data.close()


class Raw(io.RawIOBase):
    """The same for Python's own readers."""

    def __init__(self, text: Bounded | Recoded) -> None:
        super().__init__()
        self._text = text

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        """Up to the buffer's length."""
        data = self._text.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
