"""Content of another format than the stated one, by its first bytes."""

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.formats.errors import FormatError
from app.formats.first_bytes import FIRST_BYTES, refuse_other_format
from app.formats.media_types import ARROW_STREAM, CSV, PARQUET

TABLE = pa.table({"PAR1": [1, 2]})


def arrow(new: object = pa.ipc.new_stream, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = io.BytesIO()
    with new(sink, TABLE.schema, options=options) as writer:  # type: ignore[operator]
        writer.write_table(TABLE)
    return sink.getvalue()


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink)
    return sink.getvalue()


CONTENT = {
    "stream": arrow(),
    "file": arrow(pa.ipc.new_file),
    "parquet": parquet(),
    "csv": b"PAR1,town\n1,a\n",
    "json": b' [{"a": 1}]',
    "gzip": gzip.compress(b"a,b\n"),
    "utf-16": "town\n".encode("utf-16"),
    "excel": "\ufefftown\n".encode(),
}

REFUSED = [
    (CSV, "stream", f"is an Arrow stream; send it as {ARROW_STREAM}"),
    (CSV, "file", "is an Arrow file; send an Arrow stream"),
    (CSV, "parquet", f"is a Parquet file; send it as {PARQUET}"),
    (CSV, "gzip", "is gzip data; send it with the header 'Content-Encoding: gzip', or name the file .csv.gz"),
    (CSV, "utf-16", "the CSV is UTF-16; state it as 'encoding'"),
    (ARROW_STREAM, "file", "is an Arrow file; send an Arrow stream"),
    (ARROW_STREAM, "parquet", f"is a Parquet file; send it as {PARQUET}"),
    (ARROW_STREAM, "csv", f"is text; if it is CSV, send it as {CSV}"),
    (ARROW_STREAM, "excel", f"is text; if it is CSV, send it as {CSV}"),
    (ARROW_STREAM, "json", "is JSON, which is not uploaded; send its rows in 'source'"),
    (ARROW_STREAM, "gzip", "or name the file .arrow.gz"),
    (PARQUET, "stream", f"is an Arrow stream; send it as {ARROW_STREAM}"),
    (PARQUET, "file", "is an Arrow file; send an Arrow stream"),
    (PARQUET, "csv", f"is text; if it is CSV, send it as {CSV}"),
]


@pytest.mark.parametrize(("media_type", "content", "message"), REFUSED)
def test_another_format_is_named_with_its_media_type(media_type: str, content: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        refuse_other_format(media_type, CONTENT[content][:FIRST_BYTES])
    assert message in caught.value.message


def test_the_stated_format_is_accepted() -> None:
    legacy = arrow(options=pa.ipc.IpcWriteOptions(use_legacy_format=True))
    assert legacy[:4] != b"\xff\xff\xff\xff"
    for content in (CONTENT["stream"], legacy):
        refuse_other_format(ARROW_STREAM, content[:FIRST_BYTES])
    refuse_other_format(PARQUET, CONTENT["parquet"][:FIRST_BYTES])
    for name in ("csv", "excel"):
        refuse_other_format(CSV, CONTENT[name][:FIRST_BYTES])
    refuse_other_format(CSV, CONTENT["utf-16"][:FIRST_BYTES], "utf-16")
    refuse_other_format(CSV, CONTENT["utf-16"][:FIRST_BYTES], None)
