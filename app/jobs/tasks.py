"""What a worker is told: one record for each kind of task, which carries no code.

A task holds all that its worker needs and nothing more: of the keys only those of its own blobs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa

from app.store.blobs import BlobAccess

ReadTable = Callable[[str, BinaryIO], pa.Table]
"""(media type, bytes) -> table; a function of a module, so that a worker can look it up."""


@dataclass(frozen=True, slots=True)
class SwapTask:
    """Run a service on a source and write its destination."""

    job_id: str
    service: str
    revision: int
    parameters: dict[str, Any]
    seed: bytes = field(repr=False)
    seed_bits: int
    source: BlobAccess
    destination: BlobAccess
    report: str
    progress_path: str


@dataclass(frozen=True, slots=True)
class PlanTask:
    """Say what a run would do, and store nothing."""

    service: str
    parameters: dict[str, Any]
    source: bytes | BlobAccess = field(repr=False)
    """An Arrow IPC stream, or the blob that holds one."""


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Turn an upload into a table of ours."""

    upload: BlobAccess
    media_type: str
    table: BlobAccess
    read_table: ReadTable
