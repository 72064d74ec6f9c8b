"""A table as a job is given it: the rows themselves, an uploaded buffer, or what a reference gave."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table that was checked and lies in the store under no name yet: a job's row is to name it."""

    blob: str
    digest: str
    fields: list[dict[str, Any]] = field(repr=False)
    rows: int
    byte_size: int
    """Plain bytes of the blob."""
    reference: str | None = None
    """Where it was read."""


GivenTable = pa.Table | str | StoredTable
"""The rows, the id of a buffer, or a table in the store."""


@dataclass(frozen=True, slots=True)
class SendTo:
    """Where a job's destination is to be written, and as what."""

    reference: str
    media_type: str
