"""Tables in and out: pandas and polars DataFrames as Arrow tables, and Arrow streams over HTTP."""

import io
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import httpx
import pyarrow as pa

T = TypeVar("T")
"""Type of the table, in and out."""

ARROW = "application/vnd.apache.arrow.stream"

_END = b"\xff\xff\xff\xff\0\0\0\0"
"""Marker at the end of an Arrow stream."""


def as_arrow(table: T) -> tuple[pa.Table, Callable[[pa.Table], T]]:
    """Return the Arrow table, and a function that converts back to the input's type. Raises TypeError."""
    given: Any = table
    if isinstance(given, pa.Table):
        return given, lambda released: released
    if _is_frame_of("pandas", given):
        _warn_of_index(given)
        sent, columns = pa.Table.from_pandas(given, preserve_index=False), given.columns
        return sent, lambda released: _as_pandas(released, sent.column_names, columns)
    if _is_frame_of("polars", given):
        import polars

        if polars.Object in given.dtypes:  # polars writes their addresses in memory
            raise TypeError(
                "a column of the type Object has no values that can be sent; cast it to another type"
            )
        return given.to_arrow(), lambda released: polars.from_arrow(released)  # type: ignore[return-value]
    raise TypeError(
        f"a table is a pandas or polars DataFrame, or a pyarrow Table; this is {type(given).__qualname__}"
    )


def _is_frame_of(library: str, given: Any) -> bool:
    """Return whether this is a DataFrame of the library, or of a subclass; nothing is imported for it."""
    module = sys.modules.get(library)
    return module is not None and isinstance(given, module.DataFrame)


def _warn_of_index(frame: Any) -> None:
    """Warn that labels of rows are lost: pandas aligns by them, and would give values to other rows."""
    import pandas

    if not frame.index.equals(pandas.RangeIndex(len(frame))):
        warnings.warn(
            "the index of the DataFrame is not sent, and rows of results are numbered from 0: call "
            "reset_index() to make it a field, or reset_index(drop=True)",
            stacklevel=2,
        )


def _as_pandas(released: pa.Table, names: list[str], columns: Any) -> Any:
    """Convert to a DataFrame. Integers with nulls become pandas' nullable integers, not rounded floats.

    Arrow has texts as names. ``columns`` are the source's own, such as numbers, in the order of ``names``.
    """
    import pandas

    frame = released.to_pandas()
    for name, values in zip(released.column_names, released.columns, strict=True):
        if pa.types.is_integer(values.type) and values.null_count:
            sign = "" if pa.types.is_signed_integer(values.type) else "U"
            exact = pandas.api.types.pandas_dtype(f"{sign}Int{values.type.bit_width}")
            frame[name] = values.to_pandas(types_mapper=lambda _, exact=exact: exact)
    if released.column_names == names:
        frame.columns = columns
    return frame


def arrow_stream(table: pa.Table) -> Iterator[bytes]:
    """Encode the table as an Arrow stream, one batch at a time."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=65_536):
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


class ByteReader(io.RawIOBase):
    """File that reads the bytes of a response as they arrive."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = b""
        self._tail = b""
        self._exhausted = False

    @property
    def ended_early(self) -> bool:
        """Whether the bytes have ended without the marker of the end of an Arrow stream."""
        return self._exhausted and self._tail != _END

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer, at most to the rest of a chunk."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                self._exhausted = True
                return 0
            self._left = piece
            self._tail = (self._tail + piece[-len(_END) :])[-len(_END) :]
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def whole_table(source: ByteReader) -> pa.Table:
    """Return the table of an Arrow stream. Raises httpx.RemoteProtocolError if its end is missing.

    A proxy may end its answer normally although the service's answer was cut. Arrow accepts the end of the
    bytes after a batch as the end of the table, so that rows would be missing.
    """
    # Arrow takes a short read for the end of the file: the buffer completes each read.
    with io.BufferedReader(source) as content:
        try:
            table = pa.ipc.open_stream(content).read_all()
        except (pa.ArrowInvalid, OSError):
            if not source.ended_early:
                raise
            table = None
    if table is None or source.ended_early:
        raise httpx.RemoteProtocolError("the table was cut: its stream has no end")
    return table
