"""Arrow streams and Parquet files: preserved properties, and data rejected before use."""

import io
import re
from collections.abc import Sequence

import pyarrow as pa
import pytest

from app.formats.arrow import open_arrow
from app.formats.errors import FormatError
from app.formats.media_types import ARROW_STREAM, PARQUET
from providers.tables.digest import table_digest
from tests.whole_tables import read_table, write_table


def body(media_type: str, table: pa.Table) -> bytes:
    return b"".join(write_table(media_type, table))


def stream(batch: pa.RecordBatch, codec: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def test_arrow_keeps_encodings_and_extension_types() -> None:
    table = pa.table(
        {
            "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
            "id": pa.array([bytes(16), None, bytes(16)], pa.uuid()),
            "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        }
    )
    assert read_table(ARROW_STREAM, body(ARROW_STREAM, table)).equals(table)
    assert read_table(ARROW_STREAM, io.BytesIO(body(ARROW_STREAM, table))).equals(table)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [(1, pa.int64()), (40_000, pa.int64()), (9_000_000, pa.int64()), (1, pa.list_(pa.int8()))],
    ids=str,
)
def test_a_stream_without_its_end_is_refused(rows: int, kind: pa.DataType) -> None:
    """Arrow takes the end of the bytes after a batch for the end of the table: rows would be missing."""
    values = pa.array(range(rows)) if kind == pa.int64() else pa.array([[1]] * rows, kind)
    batch = pa.record_batch({"a": values})
    one = stream(batch)
    marker = b"\xff\xff\xff\xff\0\0\0\0"
    assert one.endswith(marker)
    assert read_table(ARROW_STREAM, one).num_rows == rows
    for damaged, words in (
        (one.removesuffix(marker), "without its end marker"),
        (one[:-4], "without its end marker|not a complete"),
        (one + one, "bytes after the end"),
        (one + b"\0", "bytes after the end"),
    ):
        with pytest.raises(FormatError, match=words):
            read_table(ARROW_STREAM, damaged)


def test_values_like_an_end_marker_are_no_end() -> None:
    """The last eight bytes of a batch may be those of the marker."""
    batch = pa.record_batch({"a": pa.array([7] + 7 * [2**32 - 1])})
    cut = stream(batch)[:-8]
    assert cut.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    with pytest.raises(FormatError, match="without its end marker"):
        read_table(ARROW_STREAM, cut)


def test_a_stream_of_the_format_before_arrow_1_is_read() -> None:
    sink = io.BytesIO()
    batch = pa.record_batch({"a": [1, 2, 3]})
    old = pa.ipc.IpcWriteOptions(use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.ipc.new_stream(sink, batch.schema, options=old) as writer:
        writer.write_batch(batch)
    assert read_table(ARROW_STREAM, sink.getvalue()).to_pydict() == {"a": [1, 2, 3]}
    with pytest.raises(FormatError, match="without its end marker"):
        read_table(ARROW_STREAM, sink.getvalue()[:-4])


def test_views_and_runs_are_laid_out_plainly() -> None:
    views = pa.array(["a", None, "x" * 20], pa.string_view())
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, None]))
    table = pa.table({"view": views, "runs": runs, "inside": pa.StructArray.from_arrays([views], ["view"])})
    back = read_table(ARROW_STREAM, body(ARROW_STREAM, table))
    inside = pa.struct([("view", pa.string())])
    assert [field.type for field in back.schema] == [pa.string(), pa.int64(), inside]
    assert back.to_pylist() == table.to_pylist()
    assert table_digest(back) == table_digest(table)


def test_a_wild_view_behind_a_null_is_never_followed() -> None:
    wild = (-5).to_bytes(4, "little", signed=True) + b"\xff" * 12
    fine = (3).to_bytes(4, "little") + b"abc" + bytes(9)
    views = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(wild + fine)])
    table = pa.table({"a": pa.array([None, "abc"])})
    assert table_digest(pa.table({"a": views})) == table_digest(table)
    assert read_table(ARROW_STREAM, stream(pa.record_batch({"a": views}))).equals(table)


def test_what_parquet_changes() -> None:
    changed = {
        "timestamp[s]": (pa.array([1], pa.timestamp("s", "UTC")), pa.timestamp("ms", "UTC")),
        "time[s]": (pa.array([1], pa.time32("s")), pa.time32("ms")),
        "runs": (pa.RunEndEncodedArray.from_arrays([1], ["a"]), pa.string()),
        "list view": (pa.array([[1]], pa.list_view(pa.int8())), pa.list_(pa.int8())),
    }
    kept = {
        "uint32": pa.array([2**32 - 1], pa.uint32()),
        "uint64": pa.array([2**64 - 1], pa.uint64()),
        "ns": pa.array([1], pa.timestamp("ns")),
        "duration": pa.array([1], pa.duration("s")),
        "dictionary": pa.array(["a"]).dictionary_encode(),
        "uuid": pa.array([bytes(16)], pa.uuid()),
        "null": pa.nulls(1),
    }
    table = pa.table({**kept, **{name: array for name, (array, _) in changed.items()}})
    back = read_table(PARQUET, body(PARQUET, table))
    assert {name: back.schema.field(name).type for name in kept} == {name: kept[name].type for name in kept}
    assert {name: back.schema.field(name).type for name in changed} == {
        n: to for n, (_, to) in changed.items()
    }


@pytest.mark.parametrize(
    "array",
    [
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([b""], pa.binary(0)),
        pa.array([{}], pa.struct([])),
        pa.array([None], pa.decimal128(5, -2)),
    ],
    ids=lambda array: str(array.type),
)
def test_parquet_names_the_field_that_it_cannot_carry(array: pa.Array) -> None:
    with pytest.raises(
        FormatError, match=r"field 'odd' is of type .*, which Parquet cannot carry; use Arrow"
    ):
        write_table(PARQUET, pa.table({"fine": [1], "odd": array}))


def test_parquet_says_so_when_an_instant_is_too_far_off() -> None:
    with pytest.raises(FormatError, match="outside of Parquet's range"):
        body(PARQUET, pa.table({"a": pa.array([2**62], pa.timestamp("s"))}))


@pytest.mark.parametrize("media_type", [ARROW_STREAM, PARQUET])
def test_fields_of_a_binary_table_are_checked(media_type: str) -> None:
    twins = pa.list_(pa.struct([("m", pa.int8()), ("m", pa.int8())]))
    cases: Sequence[tuple[pa.Table, str]] = [
        (pa.table([[1], [2]], names=["a", "a"]), "field 'a' is there 2 times"),
        (pa.table([[1]], names=[""]), "field 1 has an empty name"),
        (pa.table({"a": pa.array([None], twins)}), "field 'a' has two members of one name"),
    ]  # fmt: skip
    for table, words in cases:
        with pytest.raises(FormatError, match=re.escape(words)):
            read_table(media_type, body(media_type, table))
    with pytest.raises(FormatError, match="leave 'fields' out"):
        read_table(media_type, body(media_type, pa.table({"a": [1]})), {"a": "int8"})


def test_a_union_or_an_arrow_file_is_refused_by_name() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(FormatError, match=r"field 'a': type .* is not supported"):
        read_table(ARROW_STREAM, stream(pa.record_batch({"a": union})))
    with pytest.raises(FormatError, match="is an Arrow file; send an Arrow stream"):
        read_table(ARROW_STREAM, b"ARROW1\0\0")


def test_names_that_are_not_utf8_are_refused() -> None:
    cases = [
        ("fäld", pa.int8()),
        ("a", pa.struct({"fälder": pa.int8()})),
        ("a", pa.timestamp("s", "Züri")),
    ]
    for name, data_type in cases:
        whole = stream(pa.record_batch({name: pa.nulls(1, data_type)}))
        broken = whole.replace("ä".encode(), b"\xff\xff").replace("ü".encode(), b"\xff\xff")
        with pytest.raises(FormatError, match=r"not UTF-8"):
            read_table(ARROW_STREAM, broken)


def test_damaged_buffers_are_found_before_they_are_used() -> None:
    offsets = pa.array([0, 1_000_000, 2], pa.int32()).buffers()[1]
    wild = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"ab"))
    latin = pa.StringArray.from_buffers(
        1, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")
    )
    late = pa.array([90_000], pa.int32()).view(pa.time32("s"))
    for array in (wild, latin, late):
        with pytest.raises(FormatError, match=r"damaged|not a complete"):
            read_table(ARROW_STREAM, stream(pa.record_batch({"a": array})))


@pytest.mark.parametrize("media_type", [ARROW_STREAM, PARQUET])
@pytest.mark.parametrize("data", [b"", b"junk", b"PAR1", b"\xff" * 64, b"PAR1" + bytes(64) + b"PAR1"])
def test_what_is_no_binary_table_is_refused(media_type: str, data: bytes) -> None:
    with pytest.raises(FormatError, match=r"is not a complete|is text|is an Arrow stream"):
        read_table(media_type, data)


def test_long_values_of_runs_are_laid_out_in_pieces() -> None:
    """2,000 rows of one run of 64 KiB: 131 MB, of which a piece has at most 16 MiB."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2000], pa.int32()), pa.array(["x" * 65536]))
    _, batches = open_arrow(stream(pa.record_batch({"a": runs})))
    assert [batch.num_rows for batch in batches] == [256] * 7 + [208]


def test_a_run_of_any_number_of_rows_is_laid_out_in_pieces() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array(["x"]))
    _, batches = open_arrow(stream(pa.record_batch({"a": runs})))
    assert next(iter(batches)).num_rows == 1 << 16


def test_a_row_of_runs_that_no_array_can_hold_is_refused() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([40_000], pa.int32()), pa.array(["x" * 65536]))
    lists = pa.ListArray.from_arrays(pa.array([0, 40_000], pa.int32()), runs)
    _, batches = open_arrow(stream(pa.record_batch({"a": lists})))
    with pytest.raises(FormatError, match="a row takes more than 1024 MiB when its runs"):
        next(iter(batches))
