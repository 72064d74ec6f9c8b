"""What a worker is told: one record for each kind of task, which carries no code.

A task holds all that its worker needs and nothing more: of the keys only those of its own blobs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from app.store.blobs import BlobAccess
from app.store.scratch import Shelf
from providers.provider import Division

OpenTable = Callable[..., tuple[pa.Schema, Iterator[pa.RecordBatch]]]
"""(media type, binary file, options by name) -> schema, rows batch by batch.

A function of a module, so that a worker can look it up. It raises a ValueError with a ``message``
and a ``pointer`` that are meant for the caller, at once or when the batch at fault is reached.
"""


StreamTable = Callable[[str, pa.Schema, Iterable[pa.RecordBatch]], Iterator[bytes]]
"""(media type, schema, batches) -> the table's file, piece by piece.

It raises a ValueError with a ``message`` that is meant for the caller where the type cannot carry the table.
"""


@runtime_checkable
class Told(Protocol):
    """An error whose message is meant for the caller, such as a format's."""

    message: str
    pointer: str


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
    rows: int
    """Rows of the source."""
    report: str
    options: dict[str, Any]
    """``measures``: how the report `full` measures, and how figures rank the candidates;
    ``candidates``: how many there are, and what ranks them."""
    progress_path: str
    memory_bytes: int
    """What the job may take."""
    scratch_folder: str
    """Where it may put aside what does not fit."""
    trace_parent: str | None = None
    """The span of the request, where traces are taken."""
    units: int = 1
    """In how many units it may be shared out among workers."""

    @property
    def shelves(self) -> Path:
        """The folder of what its units put aside for each other; it is there as long as this attempt runs."""
        return Path(self.scratch_folder) / Path(self.progress_path).name


@dataclass(frozen=True, slots=True)
class UnitTask:
    """Do one unit of a job that was divided."""

    job: SwapTask
    division: Division = field(repr=False)
    number: int


@dataclass(frozen=True, slots=True)
class GatherTask:
    """Put together what all units of a job have made."""

    job: SwapTask
    division: Division = field(repr=False)
    done: tuple[tuple[Shelf, Any], ...] = field(repr=False)
    """Rows and figures of each unit, in their order."""


@dataclass(frozen=True, slots=True)
class MeasureTask:
    """Judge a table beside its source."""

    job_id: str
    seed: bytes = field(repr=False)
    source: BlobAccess
    destination: BlobAccess
    """The table that is judged."""
    parameters: dict[str, Any]
    options: dict[str, Any]
    progress_path: str
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class FrontierTask:
    """Run many combinations of services and parameters on a source, and keep their figures alone."""

    job_id: str
    seed: bytes = field(repr=False)
    seed_bits: int
    source: BlobAccess
    parameters: dict[str, Any]
    options: dict[str, Any]
    progress_path: str
    trace_parent: str | None = None


JobTask = SwapTask | MeasureTask | FrontierTask
"""What a worker is told of a job."""


@dataclass(frozen=True, slots=True)
class PlanTask:
    """Say what a run would do, and store nothing."""

    service: str
    parameters: dict[str, Any]
    source: bytes | BlobAccess = field(repr=False)
    """An Arrow IPC stream, or the blob that holds one."""
    rows: int
    """Rows of the source."""


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Turn an upload into a table of ours."""

    upload: BlobAccess
    open_table: OpenTable
    media_type: str
    options: Mapping[str, Any] = field(repr=False)
    """What else `open_table` is to be told."""
    table: BlobAccess
    max_bytes: int
    """The most that the table may take."""
