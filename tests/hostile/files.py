"""Hostile uploads, each created on demand and not stored."""

import gzip
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.api.calls import ARROW, PARQUET

CSV = "text/csv"
MIB = 2**20


@dataclass(frozen=True)
class Hostile:
    """One upload, and its expected errors."""

    name: str
    media_type: str
    make: Callable[[], bytes]
    status: tuple[int, ...] = (422,)
    says: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def arrow(*batches: pa.RecordBatch, codec: str | None = None) -> bytes:
    """Encode an Arrow stream."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def parquet(table: pa.Table) -> bytes:
    """Encode a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _people() -> pa.Table:
    return pa.table({"age": pa.array(np.arange(5000) % 90), "town": ["Oslo", "Bergen"] * 2500})


def _one(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


def _repeated_batch() -> bytes:
    """Create a stream with one compressed batch repeated a hundred times: 800 MiB of zeros."""
    batch = _one(zeros=pa.array(np.zeros(MIB, np.int64)))
    empty, whole = arrow(batch.slice(0, 0), codec="zstd"), arrow(batch, codec="zstd")
    head = len(arrow_schema(batch.schema))
    message = whole[head:-8]
    assert whole[:head] == empty[:head]
    return whole[:head] + message * 100 + whole[-8:]


def arrow_schema(schema: pa.Schema) -> bytes:
    """Return the first message of a stream."""
    sink = io.BytesIO()
    pa.ipc.new_stream(sink, schema).close()
    return sink.getvalue()[:-8]


def _lying_buffer_length() -> bytes:
    """Create a compressed buffer with a stated length of 4 EiB."""
    size = 800_000
    whole = arrow(_one(a=pa.array(np.zeros(size // 8, np.int64))), codec="zstd")
    assert struct.pack("<q", size) in whole
    return whole.replace(struct.pack("<q", size), struct.pack("<q", 2**62))


def _lying_message_length(bytes_more: int) -> Callable[[], bytes]:
    """Create a message whose stated body length exceeds its data."""

    def make() -> bytes:
        batch = _one(a=pa.array(np.arange(1000)))
        whole = arrow(batch)
        body = struct.pack("<q", 8000)
        assert whole.count(body) >= 1
        return whole.replace(body, struct.pack("<q", 8000 + bytes_more))

    return make


def _list_views() -> bytes:
    """Create a hundred thousand rows that all reference the same hundred thousand elements."""
    rows = 100_000
    offsets, sizes = pa.array(np.zeros(rows, np.int32)), pa.array(np.full(rows, rows, np.int32))
    return arrow(_one(a=pa.ListViewArray.from_arrays(offsets, sizes, pa.array(np.arange(rows)))))


def _text_views() -> bytes:
    """Create half a million views of the same megabyte."""
    rows, size = 500_000, MIB
    view = struct.pack("<i4sii", size, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(b"x" * size)]
    return arrow(_one(a=pa.Array.from_buffers(pa.string_view(), rows, buffers)))


def _dictionary() -> bytes:
    """Create a million rows of one byte each, which refer to a megabyte each."""
    indices = pa.array(np.zeros(10**6, np.int8))
    return arrow(_one(a=pa.DictionaryArray.from_arrays(indices, pa.array(["x" * MIB]))))


def _rows_of_nothing() -> bytes:
    """Create 10**12 nulls, which take no space."""
    rows = 1_234_567
    whole = arrow(_one(a=pa.nulls(rows)))
    assert whole.count(struct.pack("<q", rows)) == 3  # lengths of batch and field, null count
    return whole.replace(struct.pack("<q", rows), struct.pack("<q", 2**40))


def _dictionary_in_struct() -> bytes:
    """Create rows of 4 MB that have one value of a dictionary in a struct: 8 GB."""
    codes = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int8()), ["x" * 4_000_000])
    return arrow(_one(a=pa.StructArray.from_arrays([codes], ["a"])))


def _long_run() -> bytes:
    """Create rows of 4 MB in one run: 8 GB, which no array of Arrow can hold."""
    return arrow(_one(a=pa.RunEndEncodedArray.from_arrays([2000], pa.array(["x" * 4_000_000]))))


def _runs() -> bytes:
    """Create two thousand million rows in one run."""
    return arrow(_one(a=pa.RunEndEncodedArray.from_arrays([2**31 - 1], pa.array(["x"]))))


def _nested(depth: int) -> pa.DataType:
    data_type = pa.int8()
    for _ in range(depth):
        data_type = pa.list_(data_type)
    return data_type


def _varint(number: int) -> bytes:
    """Encode a zigzag varint of Thrift's compact protocol."""
    number *= 2
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _promised_rows() -> bytes:
    """Create a Parquet file whose footer states 200 million rows, with 135 000 000 bytes less."""
    whole = parquet(pa.table({"a": pa.array(np.arange(200_000_000 // 1000))}))
    stated, lie = _varint(200_000), _varint(1_000_000)
    assert len(stated) == len(lie)
    assert stated in whole[-1000:]
    return whole[:-1000] + whole[-1000:].replace(stated, lie)


def _footer_length(length: int) -> Callable[[], bytes]:
    return lambda: parquet(_people())[:-8] + struct.pack("<I", length) + b"PAR1"


def _cut(make: Callable[[], bytes], share: float) -> Callable[[], bytes]:
    def cut() -> bytes:
        whole = make()
        return whole[: int(len(whole) * share)]

    return cut


def _fields(number: int) -> Callable[[], bytes]:
    return lambda: ",".join(f"f{field}" for field in range(number)).encode() + b"\n"


def _arrow_fields(number: int) -> Callable[[], bytes]:
    return lambda: arrow_schema(pa.schema([(f"f{field}", pa.int8()) for field in range(number)]))


def _large_metadata() -> bytes:
    name = pa.field("a", pa.int8(), metadata={"k": "x" * (65 * MIB)})
    return arrow_schema(pa.schema([name]))


def _people_arrow() -> bytes:
    return arrow(*_people().to_batches())


def _people_parquet() -> bytes:
    return parquet(_people())


FILES = [
    *(Hostile(f"empty {kind}", kind, lambda: b"") for kind in (ARROW, PARQUET, CSV)),
    *(Hostile(f"noise as {kind}", kind, lambda: bytes(range(256)) * 40) for kind in (ARROW, PARQUET, CSV)),
    *(
        Hostile(f"{kind} cut at {share}", kind, _cut(make, share), says="complete")
        for kind, make in ((ARROW, _people_arrow), (PARQUET, _people_parquet))
        for share in (0.02, 0.5, 0.98)
    ),
    Hostile("Arrow file", ARROW, lambda: b"ARROW1\0\0" + bytes(64), says="stream"),
    Hostile("Arrow, compressed to a hundredth many times over", ARROW, _repeated_batch, (413,), "decoded"),
    Hostile("Arrow, rows of nothing", ARROW, _rows_of_nothing, (413,), "decoded"),
    Hostile("Arrow, one run", ARROW, _runs, (413,), "decoded"),
    Hostile("Arrow, overlapping lists", ARROW, _list_views, (413,)),
    Hostile("Arrow, overlapping texts", ARROW, _text_views, (422,), "smaller batches"),
    Hostile("Arrow, a dictionary of one", ARROW, _dictionary, (413,), "decoded"),
    Hostile("Arrow, a dictionary of one in a struct", ARROW, _dictionary_in_struct, (413,), "decoded"),
    Hostile("Arrow, a run of a long text", ARROW, _long_run, (413,), "decoded"),
    Hostile("Arrow, a buffer of 4 EiB", ARROW, _lying_buffer_length, (413, 422)),
    Hostile("Arrow, a message a little too long", ARROW, _lying_message_length(64), (422,), "complete"),
    Hostile("Arrow, a message far too long", ARROW, _lying_message_length(2**60), (422,), "complete"),
    Hostile(
        "Arrow, 50 levels deep",
        ARROW,
        lambda: arrow_schema(pa.schema([("a", _nested(50))])),
        (422,),
        "levels",
    ),
    Hostile("Arrow, 200 000 fields", ARROW, _arrow_fields(200_000), (422,), "100000"),
    Hostile("Arrow, 65 MiB of metadata", ARROW, _large_metadata, (422,), "64 MiB"),
    Hostile(
        "Parquet, zeros",
        PARQUET,
        lambda: parquet(pa.table({"a": np.zeros(20 * 10**6, np.int64)})),
        (413,),
        "decoded",
    ),
    Hostile("Parquet, more rows promised", PARQUET, _promised_rows),
    Hostile(
        "Parquet, 33 levels deep", PARQUET, lambda: parquet(pa.table({"a": pa.nulls(1, _nested(33))})), (422,)
    ),
    Hostile("Parquet, a footer before its file", PARQUET, _footer_length(2**31 - 1), says="complete"),
    Hostile("Parquet, a footer of nothing", PARQUET, _footer_length(0), says="complete"),
    Hostile("CSV, a million fields", CSV, _fields(10**6), says="100000"),
    Hostile("CSV, twenty million fields", CSV, lambda: b"," * (20 * MIB), says="header"),
    Hostile("CSV, an endless name", CSV, lambda: b"x" * (20 * MIB), says="header"),
    Hostile(
        "CSV, a row of a million cells", CSV, lambda: b"a,b\n1,2\n" + b"1," * 10**6, says="1000001 cells"
    ),
    Hostile("CSV, an open quote", CSV, lambda: b'a,b\n1,"' + b"2\n3,4\n" * 10**5, says="not closed"),
    Hostile("CSV, a row of 65 MiB", CSV, lambda: b"a,b\n1," + b"x" * (65 * MIB), (413, 422)),
    Hostile(
        "CSV, a late byte that is no UTF-8",
        CSV,
        lambda: b"a,b\n" + b"1,2\n" * 10**6 + b"\xff,2\n",
        says="row 1000000",
    ),
    Hostile(
        "gzip, cut",
        CSV,
        lambda: gzip.compress(b"a,b\n1,2\n" * 1000)[:-9],
        (400,),
        "truncated",
        {"content-encoding": "gzip"},
    ),
    Hostile("gzip, none", CSV, lambda: b"a,b\n1,2\n", (400,), "gzip", {"content-encoding": "gzip"}),
    Hostile(
        "gzip, zeros",
        CSV,
        lambda: gzip.compress(bytes(300 * MIB), 1),
        (413,),
        "",
        {"content-encoding": "gzip"},
    ),
    Hostile(
        "gzip in gzip",
        CSV,
        lambda: gzip.compress(gzip.compress(b"a\n1\n")),
        (415,),
        "gzip",
        {"content-encoding": "gzip, gzip"},
    ),
    Hostile("form without a boundary", "multipart/form-data", lambda: b"--x\r\n", (400,), "boundary"),
    Hostile(
        "form without an end",
        "multipart/form-data; boundary=x",
        lambda: b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.csv"\r\n\r\na,b\r\n1,2\r\n',
        (400,),
        "truncated",
    ),
    Hostile(
        "form with an endless header",
        "multipart/form-data; boundary=x",
        lambda: b"--x\r\ncontent-disposition: " + b"y" * MIB,
        (400,),
    ),
    Hostile(
        "form with a great value",
        "multipart/form-data; boundary=x",
        lambda: b'--x\r\ncontent-disposition: form-data; name="fields"\r\n\r\n' + b"y" * (2 * MIB),
        (413,),
    ),
    Hostile(
        "form with many parts",
        "multipart/form-data; boundary=x",
        lambda: (
            b'--x\r\ncontent-disposition: form-data; name="null_tokens"\r\n\r\nNA\r\n' * 1000 + b"--x--\r\n"
        ),
        (413,),
    ),
    Hostile(
        "form of noise", "multipart/form-data; boundary=x", lambda: json.dumps(["x"] * 1000).encode(), (400,)
    ),
]
"""All hostile uploads."""
