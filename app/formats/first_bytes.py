"""Formats by their first bytes: refuse an upload whose format is not that of its media type."""

import codecs

from app.formats.errors import FormatError
from app.formats.media_types import ARROW_STREAM, CSV, PARQUET

FIRST_BYTES = 8
"""Number of first bytes that are looked at."""

_UTF_16 = "the CSV is UTF-16; state it as 'encoding', or save the CSV as UTF-8"

_PACKED = {
    b"\x1f\x8b": (
        "the body is gzip data; send it with the header 'Content-Encoding: gzip', or name the file {gz}"
    ),
    b"\x28\xb5\x2f\xfd": "the body is Zstandard data; send it uncompressed, or as gzip",
    b"PK\x03\x04": "the body is a ZIP file or a workbook such as .xlsx; save the sheet as CSV (UTF-8)",
    b"\xd0\xcf\x11\xe0": "the body is a workbook such as .xls; save the sheet as CSV (UTF-8)",
}
"""First bytes of data that no media type of a table has, and the remedy; ``{gz}``: suffix of packed files."""

_TABLES = {
    PARQUET: (b"PAR1\x15", f"the body is a Parquet file; send it as {PARQUET}, or name the file .parquet"),
    ARROW_STREAM: (
        b"\xff\xff\xff\xff",
        f"the body is an Arrow stream; send it as {ARROW_STREAM}, or name the file .arrow",
    ),
}
"""Media type -> first bytes, and the remedy where another type was stated.

A text may begin with ``PAR1``, but not with the byte after it in a Parquet file.
"""

_ARROW_FILE = (b"ARROW1\0\0", f"the body is an Arrow file; send an Arrow stream, as {ARROW_STREAM}")

_TEXT = f"the body is text; if it is CSV, send it as {CSV}, or name the file .csv"

_JSON = (
    "the body is JSON, which is not uploaded; send its rows in 'source' of a call, or upload the table as "
    f"{CSV}"
)

_LEAST_TEXT = 4
"""Least number of bytes by which a text is known: as four bytes of an Arrow stream they are a length of over
150 MB."""

_TEXT_BYTES = frozenset(b"\t\r\n") | frozenset(range(0x20, 0x7F))

_SUFFIXES = {CSV: ".csv.gz", ARROW_STREAM: ".arrow.gz", PARQUET: ".parquet.gz"}


def refuse_other_format(media_type: str, first_bytes: bytes, encoding: str | None = "utf-8") -> None:
    """Raise FormatError if the content is evidently of another format; the message names it and the remedy.

    Parameters
    ----------
    media_type : str
        Stated media type, without parameters.
    first_bytes : bytes
        First `FIRST_BYTES` bytes of the content, or all if there are fewer.
    encoding : str or None
        Encoding of a CSV. Any bytes may begin a text that is not UTF-8. None: it is not known yet.
    """
    if media_type == CSV and encoding not in ("utf-8", None):
        if first_bytes.startswith(codecs.BOM_UTF8):
            raise FormatError(
                f"the CSV begins with the byte order mark of UTF-8 and is not {encoding}; "
                "state the encoding 'utf-8'"
            )
        return
    for mark, message in _marks(media_type, encoding).items():
        if first_bytes.startswith(mark):
            raise FormatError(message)
    text = first_bytes.removeprefix(codecs.BOM_UTF8)
    if media_type == CSV or (media_type == PARQUET and text == b"PAR1"):
        return
    if len(text) >= _LEAST_TEXT and all(byte in _TEXT_BYTES for byte in text):
        raise FormatError(_JSON if text.lstrip().startswith((b"{", b"[")) else _TEXT)


def _marks(media_type: str, encoding: str | None) -> dict[bytes, str]:
    """Return first bytes -> message, of all formats that the media type does not stand for."""
    marks = {mark: message.format(gz=_SUFFIXES[media_type]) for mark, message in _PACKED.items()}
    marks |= dict(found for kind, found in _TABLES.items() if kind != media_type)
    marks |= [_ARROW_FILE]
    if media_type == CSV and encoding is not None:
        marks |= dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), _UTF_16)
    return marks
