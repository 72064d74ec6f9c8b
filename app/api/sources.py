"""From a request's ``source`` (or ``destination``) to a table, or to the buffer that it names."""

from dataclasses import dataclass

import pyarrow as pa
from anyio import to_thread

from app.api.formats import FormatError, table_from_columns, table_from_rows
from app.api.schemas import Source
from app.errors import InvalidRequest, NotFound
from app.jobs.service import JobService
from providers.digest import table_digest
from providers.types import parse_type


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Where a run's rows come from, and what identifies them."""

    table_or_buffer: pa.Table | str
    schema: pa.Schema
    rows: int
    buffer_digest: str = ""

    @property
    def digest(self) -> str:
        """The table's digest; computed where the rows came in the request."""
        return self.buffer_digest or table_digest(self.table_or_buffer)

    @property
    def inline(self) -> bool:
        """Whether the rows came in the request, so that the answer brings rows along."""
        return not isinstance(self.table_or_buffer, str)


def _inline_table(source: Source, place: str) -> pa.Table:
    try:
        if source.rows is not None:
            return table_from_rows(source.rows, source.fields)
        assert source.columns is not None
        return table_from_columns(source.columns, source.fields)
    except FormatError as error:
        raise FormatError(error.message, f"{place}{error.pointer}") from None


async def read_source(source: Source, jobs: JobService, place: str = "/source") -> SourceTable:
    """The source's table, parsed in a thread; or its buffer's id and schema.

    Parameters
    ----------
    source : Source
    jobs : JobService
    place : str
        JSON pointer to it in the request.

    Raises
    ------
    FormatError
        The rows do not make a table; the pointer says where.
    InvalidRequest
        There is no such buffer.
    """
    if source.buffer is None:
        table = await to_thread.run_sync(_inline_table, source, place)
        return SourceTable(table, table.schema, table.num_rows)
    try:
        buffer = await jobs.get_buffer(source.buffer)
    except NotFound as error:
        raise InvalidRequest(error.message, f"{place}/buffer") from None
    schema = pa.schema([(field["name"], parse_type(field["type"])) for field in buffer.fields])
    return SourceTable(buffer.id, schema, buffer.row_count, buffer.digest)
