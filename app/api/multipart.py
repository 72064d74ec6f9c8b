"""Reader of multipart/form-data with one file (RFC 7578), in bounded memory and without a disk.

The framework's own form parser would first write the file, unsealed, into a temporary folder.
"""

from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.errors import BadRequest, InvalidParameter, TooLarge
from providers.errors import did_you_mean

_FILE = "file"

_MOST_PARTS = 300

_LONGEST_BOUNDARY = 70

_MOST_VALUE_BYTES = 1 << 20


class FileForm:
    """Form of a request: `chunks` yields the content of the file; afterwards all other fields are known."""

    def __init__(self, content_type: str, known: list[str]) -> None:
        """``known``: names of the allowed fields apart from the file. Raises BadRequest (no boundary)."""
        boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
        self._known = [_FILE, *known]
        if not 1 <= len(boundary) <= _LONGEST_BOUNDARY:
            raise BadRequest("multipart/form-data needs a boundary of 1 to 70 characters (RFC 2046)")
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_name,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )
        self.values: dict[str, list[str]] = {}
        """Field -> its values in order, without the empty values that browsers send."""
        self.file_type = self.file_name = ""
        self._has_file = self._ended = False
        self._parts = self._value_bytes = 0
        self._headers: dict[str, bytes] = {}
        self._header = (b"", b"")
        self._field = ""
        self._value = b""
        self._pending: list[bytes] = []

    async def chunks(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the content of the file. Raises BadRequest, InvalidRequest, TooLarge."""
        async for data in body:
            try:
                self._parser.write(data)
            except FormParserError:
                raise BadRequest("the body is not a valid form (RFC 7578)") from None
            if self._pending:
                piece = b"".join(self._pending)
                self._pending.clear()
                yield piece
        if not self._ended:
            raise BadRequest("the form is truncated; send all of it")
        if not self._has_file:
            raise InvalidParameter("the form lacks its part 'file', which holds the table", _FILE)

    def _on_part_begin(self) -> None:
        self._parts += 1
        self._headers = {}
        self._header = (b"", b"")
        if self._parts > _MOST_PARTS:
            raise TooLarge(f"the form has more than {_MOST_PARTS} parts")

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0] + data[start:end], self._header[1])

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0], self._header[1] + data[start:end])

    def _on_header_end(self) -> None:
        self._headers[self._header[0].decode("latin-1").lower()] = self._header[1]
        self._header = (b"", b"")

    def _on_headers_finished(self) -> None:
        disposition = parse_options_header(self._headers.get("content-disposition", b""))[1]
        self._field = disposition.get(b"name", b"").decode(errors="replace")
        if self._field not in self._known:
            field = self._field[:100]
            raise InvalidParameter(f"unknown form field '{field}'{did_you_mean(field, self._known)}", field)
        if self._field != _FILE:
            return
        if self._has_file:
            raise InvalidParameter("the form has two files; a buffer is made from one", _FILE)
        self._has_file = True
        self.file_name = disposition.get(b"filename", b"").decode(errors="replace")
        self.file_type = self._headers.get("content-type", b"").decode("latin-1")

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field == _FILE:
            self._pending.append(data[start:end])
            return
        self._value_bytes += end - start
        if self._value_bytes > _MOST_VALUE_BYTES:
            raise TooLarge(f"the form's fields other than the file take more than {_MOST_VALUE_BYTES} bytes")
        self._value += data[start:end]

    def _on_part_end(self) -> None:
        if self._field != _FILE and self._value:
            try:
                self.values.setdefault(self._field, []).append(self._value.decode())
            except UnicodeDecodeError:
                message = f"the form field '{self._field}' is not UTF-8; send it in UTF-8"
                raise InvalidParameter(message, self._field) from None
        self._value = b""

    def _on_end(self) -> None:
        self._ended = True
