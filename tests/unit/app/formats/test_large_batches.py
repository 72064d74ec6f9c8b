"""Large batches of an Arrow stream are read piece by piece, with the same content, and damage is found."""

import io
import itertools
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from app.formats import arrow, large_batches
from app.formats.arrow import open_arrow
from app.formats.errors import FormatError
from tests.hostile.files import arrow as stream

ROWS = 5003
PIECE = 1 << 12


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches of 8 kB large, and pieces 4 kB."""
    monkeypatch.setattr(large_batches, "BATCH_BYTES", PIECE)
    monkeypatch.setattr(large_batches, "_LEAST_READ", 1)


def every_third_null(values: list[object], kind: pa.DataType) -> pa.Array:
    return pa.array([value if row % 3 else None for row, value in enumerate(values)], kind)


def columns() -> dict[str, pa.Array]:
    random = np.random.default_rng(1)
    numbers = random.integers(-9, 9, ROWS).tolist()
    texts = ["", "a", "sträng", "x" * 300]
    chosen = [texts[number % 4] for number in numbers]
    return {
        "int8": pa.array(numbers, pa.int8()),
        "int64 with nulls": every_third_null(numbers, pa.int64()),
        "float16": pa.array(np.asarray(numbers, np.float16)),
        "float64": pa.array(random.random(ROWS)),
        "bool": pa.array([number > 0 for number in numbers]),
        "bool with nulls": every_third_null([number > 0 for number in numbers], pa.bool_()),
        "date": pa.array([date(2020, 1, 10 + number) for number in numbers]),
        "timestamp": pa.array([datetime(2020, 1, 10 + number, tzinfo=UTC) for number in numbers]),
        "decimal": every_third_null([Decimal(number) for number in numbers], pa.decimal128(5, 1)),
        "fixed": pa.array([bytes([number + 9] * 3) for number in numbers], pa.binary(3)),
        "string": pa.array(chosen),
        "string with nulls": every_third_null(chosen, pa.large_string()),
        "binary": every_third_null([text.encode() for text in chosen], pa.binary()),
        "empty texts": pa.array([""] * ROWS),
        "null": pa.nulls(ROWS),
    }


def read(content: bytes) -> list[pa.RecordBatch]:
    schema, batches = open_arrow(io.BytesIO(content))
    found = list(batches)
    assert all(batch.schema.equals(schema, check_metadata=True) for batch in found)
    return found


@pytest.mark.parametrize("name", columns())
def test_every_type_in_pieces(name: str) -> None:
    column = columns()[name]
    batch = pa.record_batch({"other": pa.array(range(ROWS)), name: column}).replace_schema_metadata(
        {"a": "b"}
    )
    found = read(stream(batch))
    assert len(found) > 5
    assert max(each.nbytes for each in found) < 4 * PIECE
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([batch]), check_metadata=True)


def test_all_types_together_between_small_batches() -> None:
    batch = pa.record_batch(columns())
    several = [batch.slice(0, 3), batch, batch.slice(5, 0), batch.slice(7, 2000), batch.slice(100, 4)]
    found = read(stream(*several))
    assert len(found) > len(several)
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(several))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("before", [0, 2])
def test_a_compressed_stream_is_read_whole(codec: str, before: int) -> None:
    numbers = pa.record_batch({"a": np.random.default_rng(1).random(ROWS)})
    several = [numbers.slice(0, 3)] * before + [numbers, numbers.slice(1), numbers.slice(0, 2)]
    found = read(stream(*several, codec=codec))
    assert [batch.num_rows for batch in found] == [batch.num_rows for batch in several]
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(several))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b"] * ROWS).dictionary_encode(),
        pa.array([[1], []] * ROWS),
        pa.array(["a", "b"] * ROWS, pa.string_view()),
    ],
    ids=lambda column: str(column.type),
)
def test_other_types_are_read_whole(column: pa.Array) -> None:
    batch = pa.record_batch({"a": column, "b": pa.array(range(2 * ROWS))})
    assert sum(each.num_rows for each in read(stream(batch))) == batch.num_rows


def test_a_stream_that_ends_within_a_large_batch() -> None:
    content = stream(pa.record_batch({"a": np.arange(ROWS)}))
    for size in range(1000, len(content) - 16, 999):
        with pytest.raises(FormatError, match="not a complete Arrow stream"):
            read(content[:size])


def damaged(values: list[int]) -> pa.RecordBatch:
    """Return a batch of texts with these offsets in the middle."""
    offsets = np.arange(ROWS + 1, dtype=np.int32)
    offsets[ROWS // 2 : ROWS // 2 + len(values)] = values
    texts = pa.Array.from_buffers(pa.string(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(b"a" * ROWS)])
    return pa.record_batch({"name": texts})


@pytest.mark.parametrize("value", [-1, 0, ROWS + 1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("count", [1, 2, ROWS // 2])
def test_damaged_offsets(value: int, count: int) -> None:
    """Wherever a piece begins, offsets that do not ascend or leave the texts name the field."""
    with pytest.raises(FormatError, match="field 'name' is damaged"):
        read(stream(damaged([value] * count)))


def test_text_that_is_not_utf_8() -> None:
    texts = pa.array([b"a", b"\xff"] * ROWS).view(pa.string())
    with pytest.raises(FormatError, match="field 'a' is damaged"):
        read(stream(pa.record_batch({"a": texts})))


@pytest.mark.parametrize("value", [0, 1, 8 * ROWS - 64, 8 * ROWS + 8, 2**40, 2**64 - 1])
def test_damaged_messages_are_read_as_by_arrow(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of a message is wrong: the same rows as without pieces, or an error in both."""

    def outcome(content: bytes) -> pa.Table | str:
        try:
            schema, batches = open_arrow(content)
            return pa.Table.from_batches(batches, schema)
        except FormatError as error:
            return error.message

    texts = pa.array(["a", None, "bcd"] * ROWS)[:ROWS]
    content = stream(pa.record_batch({"a": np.arange(ROWS), "text": texts}))
    begin = content.index(b"\xff\xff\xff\xff", 8)  # of the batch's message, after the schema's
    end = begin + 8 + int.from_bytes(content[begin + 4 : begin + 8], "little")
    contents = [
        content[:at] + value.to_bytes(8, "little") + content[at + 8 :] for at in range(begin, end - 8, 4)
    ]
    found = [outcome(each) for each in contents]
    monkeypatch.setattr(arrow, "can_cut", lambda schema: False)
    expected = [outcome(each) for each in contents]
    for ours, whole in zip(found, expected, strict=True):
        if isinstance(ours, str) or isinstance(whole, str):
            assert ours == whole
        else:
            assert ours.equals(whole)
    assert sum(isinstance(each, str) for each in expected) > 10


def test_pieces_begin_at_whole_bytes_of_the_validity() -> None:
    """Tables of every small remainder of rows, with nulls in other places."""
    for rows, shift in itertools.product(range(2100, 2110), range(3)):
        column = pa.array([None if (row + shift) % 5 == 0 else row for row in range(rows)])
        batch = pa.record_batch({"a": column})
        assert pa.Table.from_batches(read(stream(batch))).equals(pa.Table.from_batches([batch]))
