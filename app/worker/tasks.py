"""Task records sent to workers, one for each kind of task; they carry data and no code.

A task holds only the data that its worker needs, and only the keys of its own blobs.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from app.store.blobs.sealed_files import BlobAccess
from providers.swapping.composition import RunEpsilon
from providers.tables.digest import DigestForm

PREPARED_SPOOL, PIECE_SPOOL = "prepared", "piece"
"""Names of the preparation's spools, and with its number of a piece's, in place of the number of a unit."""
WRITTEN: Final = "written"
"""Key in the metadata of a task's field: the task writes this blob. It reads all others."""


class EarlierSource(NamedTuple):
    """Source that was released before, with all tables that were recognised as it."""

    family: str
    destinations: bytes
    """Set of the digests of its different releases: see `app.worker.digest_sets`."""
    releases: int
    """Number of its different releases."""
    last_released_at: str
    epsilons: tuple[RunEpsilon | None, ...] = ()
    """Epsilon of each release with draws of its own, whatever its bytes; None: not finite. Empty: none
    is finite."""
    draws: bytes = b""
    """Set of the fingerprints of the draws behind `epsilons`, as far as they are known: see
    `app.worker.digest_sets`."""
    streams: bytes = b""
    """Set of the fingerprints of the seeds of these draws."""
    dependent: int = 0
    """Number of these draws that have the seed of another one."""


class EarlierSources(NamedTuple):
    """Sources among which a worker looks for its own; one task has 200 of them."""

    sources: tuple[bytes, ...] = ()
    """Pickle of each `EarlierSource`, made once for all tasks: most workers read none of them."""
    sketches: bytes = b""
    """Packed sketches of the tables of each source, end to end."""
    sizes: bytes = b""
    """Bytes of each sketch; int64."""
    counts: bytes = b""
    """Number of the sketches of each source; int64."""
    other_digests: Mapping[str, int] = {}
    """Digest, in the other form than the job's, of each table with as many rows -> the number of its
    source."""
    seen: str = ""
    """State of the ledger in which they were found, as `app.store.sql.ledger.added_since` takes it."""

    def source(self, number: int) -> EarlierSource:
        """Return a source."""
        found: EarlierSource = pickle.loads(self.sources[number])  # noqa: S301 - the service made it
        return found


@dataclass(frozen=True, slots=True)
class ReleaseQuestion:
    """Earlier releases among which a worker looks for its source, and the policy for another release."""

    key: bytes = field(repr=False)
    """Key of the sketches."""
    source_digest: str
    policy: str
    reason: bool
    """Whether the request gives a reason for another release."""
    earlier: EarlierSources = field(repr=False)
    known_sketch: dict[str, Any] | None = field(default=None, repr=False)
    """Sketch of the source, if a table of its digest was released before; then ``earlier`` has its family
    alone."""


@dataclass(frozen=True, slots=True)
class SeriesTask:
    """Pairs of a job's series."""

    name: str
    wave: int
    """Number of the wave that the job makes if it pairs new units."""
    key: bytes = field(repr=False)
    pairs: bytes = field(repr=False)
    """Pairs of the waves before: see `providers.tables.series_pairs`."""
    ids: str | None
    adds: bool
    """Whether new pairs are stored; not of a rerun, whose pairs are stored already."""


FIRST_RELEASE = "first_release"
"""Option of a rerun by another revision than the first job's, which the rerun must name."""


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
    destination: BlobAccess = field(metadata={WRITTEN: True})
    rows: int
    """Rows of the source."""
    report: str
    options: dict[str, Any]
    """``measures``: options of the measures in a `full` report and of the ranking of candidates;
    ``candidates``: number of candidates and the measure that ranks them; ``attacks``: options of the attacks
    on the release, with ``thresholds`` and ``advice``; `FIRST_RELEASE`."""
    progress_path: str
    memory_bytes: int
    """Memory budget of the job in bytes."""
    scratch_folder: str
    """Folder for its scratch files."""
    trace_parent: str | None = None
    """Span of the request (W3C Trace Context), if traces are recorded."""
    units: int = 1
    """Largest number of units that it may be divided into."""
    small_bytes: int = 0
    """Largest destination in bytes that comes back with the result; a larger one is written to its blob."""
    release: ReleaseQuestion | None = None
    """Earlier releases to compare the source with; None: the run is not recorded in the ledger."""
    digest_form: DigestForm = DigestForm.PARTS
    """Form of the destination's digest: that of the source's, so that a rerun can be compared."""
    series: SeriesTask | None = None
    inline: bool = False
    """Whether a small destination is also returned as the rows of a JSON response."""

    @property
    def first_release(self) -> dict[str, Any] | None:
        """Revision and destination digest of the first job, if another revision reruns it."""
        return self.options.get(FIRST_RELEASE)

    @property
    def spool_folder(self) -> Path:
        """Folder for the spools that the units of one attempt share; deleted when the attempt ends."""
        return Path(self.scratch_folder) / Path(self.progress_path).name


@dataclass(frozen=True, slots=True)
class PrepareTask:
    """Prepare a divided job: write the rows that all of its units need."""

    job: SwapTask
    division: bytes = field(repr=False)
    """Pickle of the division, made by a worker for workers: the service only passes it on."""
    run: int = 0
    """Number of this run of the preparation: 0, and one more each time that it is started again."""

    @property
    def spool_prefix(self) -> str:
        """Beginning of the name of the spool that this run makes."""
        return f"{PREPARED_SPOOL}-{self.run}-"


@dataclass(frozen=True, slots=True)
class PieceTask:
    """Complete a piece of a preparation: write rows that the units need."""

    job: SwapTask
    division: bytes = field(repr=False)
    """Pickle of the division, as for `PrepareTask`."""
    prepared: bytes | None = field(repr=False)
    """Pickle of the preparation's data and spools; None if the job has none."""
    number: int
    run: int = 0
    """Number of this run of the piece: 0, and one more each time that it is started again."""
    spools: tuple[str, ...] = ()
    """Names of the files of the preparation's spools."""

    @property
    def spool_prefix(self) -> str:
        """Beginning of the name of the spool that this run makes."""
        return f"{PIECE_SPOOL}{self.number}-{self.run}-"


@dataclass(frozen=True, slots=True)
class UnitTask:
    """Run one unit of a divided job."""

    job: SwapTask
    division: bytes = field(repr=False)
    """Pickle of the division, as for `PrepareTask`."""
    prepared: bytes | None = field(repr=False)
    """Pickle of the preparation's data and spools; None if the job has none."""
    number: int
    run: int = 0
    """Number of this run of the unit: 0, and one more each time that it is started again."""
    spools: tuple[str, ...] = ()
    """Names of the files of the spools of the preparation, or of its pieces if there are some."""
    pieces: tuple[bytes, ...] = field(default=(), repr=False)
    """Pickle of the data and spools of each piece for this unit, in order."""

    @property
    def spool_prefix(self) -> str:
        """Beginning of the names of the spools that this run makes."""
        return f"{self.number}-{self.run}-"


class DoneUnit(NamedTuple):
    """Results of a unit for a task that assembles its rows."""

    figures: bytes
    """Pickle of its figures."""
    files: tuple[bytes, ...]
    """Pickle of each file of its spool that the task reads."""


@dataclass(frozen=True, slots=True)
class GatherTask:
    """Assemble the whole destination from the results of all units of a job."""

    job: SwapTask
    division: bytes = field(repr=False)
    prepared: bytes | None = field(repr=False)
    """Pickle of the preparation, as for `UnitTask`."""
    done: tuple[DoneUnit, ...] = field(repr=False)
    """Results of all units, in order."""
    spools: tuple[str, ...] = ()
    """Names of the files of the spools that it reads."""


@dataclass(frozen=True, slots=True)
class AlignTask:
    """Find where the sections of a destination without the dropped rows begin in the source."""

    job: SwapTask
    division: bytes = field(repr=False)
    done: tuple[DoneUnit, ...] = field(repr=False)
    """Results of all units, in order, with the files that have the places of dropped rows."""
    spools: tuple[str, ...] = ()
    """Names of the files of the spools that it reads."""


@dataclass(frozen=True, slots=True)
class SectionTask:
    """Assemble one section of the destination from the results of all units, as a part of its blob."""

    job: SwapTask
    division: bytes = field(repr=False)
    done: tuple[DoneUnit, ...] = field(repr=False)
    """Results of all units, in order, with the files that have rows of the section."""
    number: int
    run: int = 0
    """Number of this run of the section: 0, and one more each time that it is started again."""
    spools: tuple[str, ...] = ()
    """Names of the files of the spools that it reads."""


@dataclass(frozen=True, slots=True)
class FinishTask:
    """Join the sections of the destination, and report."""

    job: SwapTask
    division: bytes = field(repr=False)
    prepared: bytes | None = field(repr=False)
    """Pickle of the preparation, as for `UnitTask`."""
    units: tuple[bytes, ...] = field(repr=False)
    """Pickle of the figures of each unit, in order."""
    sections: tuple[bytes, ...] = field(repr=False)
    """Pickle of each stored section and its figures, in order."""


@dataclass(frozen=True, slots=True)
class MeasureTask:
    """Measure a table against its source."""

    job_id: str
    seed: bytes = field(repr=False)
    source: BlobAccess
    destination: BlobAccess
    """The table to measure."""
    parameters: dict[str, Any]
    options: dict[str, Any]
    progress_path: str
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class FrontierTask:
    """Run many combinations of services and parameters on a source, and report their measures."""

    job_id: str
    seed: bytes = field(repr=False)
    seed_bits: int
    source: BlobAccess
    parameters: dict[str, Any]
    options: dict[str, Any]
    progress_path: str
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class AttackTask:
    """Attack a release of a source."""

    job_id: str
    seed: bytes = field(repr=False)
    source: BlobAccess
    destination: BlobAccess
    """The release to attack."""
    control: BlobAccess | None
    """Rows that were not in the source."""
    parameters: dict[str, Any]
    options: dict[str, Any]
    progress_path: str
    trace_parent: str | None = None


JobTask = SwapTask | MeasureTask | FrontierTask | AttackTask
"""Task of a job of any kind."""


@dataclass(frozen=True, slots=True)
class PlanTask:
    """Plan a run; nothing is stored."""

    service: str
    parameters: dict[str, Any]
    source: bytes | BlobAccess = field(repr=False)
    """An Arrow IPC stream, or the blob that holds one."""
    rows: int
    """Rows of the source."""


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Check an upload and write its table to a blob."""

    upload: BlobAccess
    media_type: str
    options: Mapping[str, Any] = field(repr=False)
    """Further arguments of `app.formats.open_table`, by name."""
    table: BlobAccess = field(metadata={WRITTEN: True})
    max_bytes: int
    """Largest size of the decoded table in bytes."""
    draft: str = ""
    """File with reserved disk space, which becomes the table's draft; empty: there is none."""
    digest_form: DigestForm = DigestForm.PARTS
    """Form of the table's digest."""
