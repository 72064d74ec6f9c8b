"""Reads of the file that Arrow reads from equal those of a plain file, and never exceed it."""

import io
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import Buffer

from app.formats.bounded_file import BoundedFile

CONTENT = bytes(range(256)) * 40


class _InSteps(io.BytesIO):
    """File that gives at most 7 bytes at a time, as a pipe may."""

    def readinto(self, buffer: Buffer, /) -> int:
        return super().readinto(memoryview(buffer)[:7])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300), st.integers(0, len(CONTENT) + 10))))
def test_reads_equal_those_of_a_plain_file(reads: list[tuple[bool, int, int]]) -> None:
    expected = io.BytesIO(CONTENT)
    sources = [BoundedFile(CONTENT), BoundedFile(_InSteps(CONTENT))]
    for as_buffer, count, position in reads:
        expected.seek(position)
        wanted = expected.read(count)
        for source in sources:
            source.seek(position)
            got = bytes(source.read_buffer(count)) if as_buffer else source.read(count)
            assert got == wanted
            assert source.tell() == position + len(wanted)


def test_buffer_takes_no_more_memory_than_the_file_has() -> None:
    assert len(BoundedFile(CONTENT).read_buffer(2**60)) == len(CONTENT)


def test_closed_file_gives_an_empty_buffer() -> None:
    source = BoundedFile(CONTENT)
    source.close()
    assert not len(source.read_buffer(10))


def test_arrow_reads_into_buffers(tmp_path: Path) -> None:
    """Arrow prefers `read_buffer`; without it each batch would be a bytes object in small pages."""
    table = pa.table({"n": range(100_000)})
    with pa.ipc.new_stream(tmp_path / "table", table.schema) as writer:
        writer.write_table(table)
    asked: list[int] = []

    class Noted(BoundedFile):
        def read_buffer(self, count: int):  # type: ignore[no-untyped-def]
            asked.append(count)
            return super().read_buffer(count)

    with (tmp_path / "table").open("rb") as file:
        assert pa.ipc.open_stream(Noted(file)).read_all() == table
    assert max(asked) >= table.nbytes
