"""Forms with one file, read in chunks of any size."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.api.multipart import FileForm
from app.errors import AppError, BadRequest, InvalidParameter, TooLarge

TYPE = "multipart/form-data; boundary=edge"
FILE = (
    b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a b.csv"\r\n'
    b"Content-Type: text/csv\r\n\r\n"
)
CONTENT = b"a,b\r\n1,--edg\r\n--edgy\r\n\r\n"
VALUE = '--edge\r\nContent-Disposition: form-data; name="word"\r\n\r\nné\r\n'.encode()
END = b"--edge--\r\n"


def taken(body: bytes, size: int, content_type: str = TYPE) -> tuple[bytes, FileForm]:
    form = FileForm(content_type, ["word"])

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    async def gathered() -> bytes:
        return b"".join([piece async for piece in form.chunks(chunks())])

    return asyncio.run(gathered()), form


@pytest.mark.parametrize("size", [*range(1, 40), 1000])
def test_file_and_values_are_found_wherever_the_body_is_cut(size: int) -> None:
    for body in (
        VALUE + VALUE + FILE + CONTENT + b"\r\n" + END,
        FILE + CONTENT + b"\r\n" + VALUE + VALUE + END,
    ):
        content, form = taken(body, size)
        assert content == CONTENT
        assert form.values == {"word": ["né", "né"]}
        assert (form.file_name, form.file_type) == ("a b.csv", "text/csv")


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (FILE + CONTENT, BadRequest, "truncated"),
        (b"", BadRequest, "truncated"),
        (b"no form", BadRequest, "RFC 7578"),
        (VALUE + END, InvalidParameter, "lacks its part 'file'"),
        (FILE + b"\r\n" + FILE + b"\r\n" + END, InvalidParameter, "two files"),
        (VALUE.replace(b'"word"', b'"wrod"') + END, InvalidParameter, "did you mean 'word'?"),
        (VALUE.replace("né".encode(), b"\xff") + END, InvalidParameter, "'word' is not UTF-8"),
        (VALUE.replace("né".encode(), b"x" * 2**20 * 2) + END, TooLarge, "other than the file"),
        (VALUE * 301 + END, TooLarge, "300 parts"),
        (b"--edge\r\n" + b"x" * 10**6, BadRequest, "RFC 7578"),
    ],
)
def test_a_form_that_is_not_right_is_refused(body: bytes, error: type[AppError], words: str) -> None:
    with pytest.raises(error, match=words):
        taken(body, 5000)


@pytest.mark.parametrize(
    ("body", "field"),
    [(VALUE.replace(b'"word"', b'"wrod"'), "wrod"), (FILE + b"\r\n" + FILE + b"\r\n", "file")],
)
def test_a_refused_field_is_named_for_programs(body: bytes, field: str) -> None:
    """Its problem had no list of errors, which that of an unknown query parameter has."""
    with pytest.raises(InvalidParameter) as refused:
        taken(body + END, 5000)
    (error,) = refused.value.problem()["errors"]
    assert error == {"parameter": field, "message": refused.value.message}


@pytest.mark.parametrize("content_type", ["multipart/form-data", f"multipart/form-data; boundary={'x' * 71}"])
def test_a_form_needs_a_boundary(content_type: str) -> None:
    with pytest.raises(BadRequest, match="boundary"):
        FileForm(content_type, [])
