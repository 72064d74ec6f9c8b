"""Bindings of the sealed columns: the fields of a row that must not change for the value to open.

Somebody who can write to the database can thus neither give a job or a buffer to another owner or project,
nor name a foreign blob in a row, nor have a job run with other parameters or write to another reference, nor
have a message signed that the service did not write.
"""

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import orjson
import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute

from app.job_kinds import kind_of
from app.store.crypto.canonical_json import canonical_json
from app.store.crypto.sealing import Binding
from app.store.sql.models import Buffer, Delivery, Job, Series, SeriesPart

Role: TypeAlias = Literal["source", "destination", "control"]
"""Table of a job. Only an attack has a control."""

ROLES: tuple[Role, ...] = get_args(Role)

JobColumns: TypeAlias = Job | sa.Row[Any]
"""A job, or a row of a query with the columns of its binding."""


BUFFER: Final = "buffer"
"""Kind of a buffer's binding, in place of a job's service."""


@dataclass(frozen=True, slots=True)
class NamedBlob:
    """A blob as a row names it."""

    blob: str
    sealed_key: bytes | None = field(repr=False)
    """Data key of the blob, sealed to the row; None in rows of older versions."""
    binding: Binding
    """The row."""


TERMS: tuple[InstrumentedAttribute[Any], ...] = (
    Job.revision,
    Job.parameters,
    Job.options,
    Job.seed_bits,
    Job.report_level,
    Job.retain_source,
    Job.inline,
    Job.rerun_of,
    Job.destination_reference,
    Job.destination_media_type,
    Job.destination_options,
    Job.series_id,
    Job.control_digest,
)
"""Columns that decide what a job does and where its result goes, which never change after its acceptance."""

_TERMS = tuple(column.key for column in TERMS)


def seed_binding(job: JobColumns) -> Binding:
    """Return the binding of a job's seed, without which no job runs: it includes the job's terms."""
    return replace(seed_binding_without_terms(job), terms=_terms_digest(job))


def seed_binding_without_terms(job: JobColumns) -> Binding:
    """Return the binding of a job's seed in versions before terms were bound."""
    return Binding("seed", job.service, job.id, job.owner, job.project)


def _terms_digest(job: JobColumns) -> str:
    terms = {name: getattr(job, name) for name in _TERMS}
    if kind_of(job.service).reads_destination:  # then it is not written, and is set with the job's tables
        del terms["destination_reference"]
    return hashlib.sha256(_written(terms)).hexdigest()


def _written(terms: dict[str, Any]) -> bytes:
    """Return the same bytes before the columns are stored and after they are read; see `engines._json`."""
    try:
        return orjson.dumps(terms, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, or half a surrogate pair
        return json.dumps(terms, sort_keys=True).encode()


def report_binding(job: JobColumns) -> Binding:
    """Return the binding of a job's report."""
    return Binding("report", job.service, job.id, job.owner, job.project)


def table_binding(job: JobColumns, role: Role) -> Binding:
    """Return the binding of the data key of one of a job's tables; the store adds the blob."""
    return Binding(role, job.service, job.id, job.owner, job.project)


def rows_binding(job: JobColumns, role: Role) -> Binding:
    """Return the binding of a small table that the job's row holds."""
    return Binding(f"{role} rows", job.service, job.id, job.owner, job.project)


def buffer_binding(buffer: Buffer | sa.Row[Any]) -> Binding:
    """Return the binding of the data key of a buffer's table; the store adds the blob."""
    return Binding("table", BUFFER, buffer.id, buffer.owner, buffer.project)


def series_binding(series: Series | sa.Row[Any]) -> Binding:
    """Return the binding of the key of a series."""
    return Binding("key", "series", series.id, series.owner, series.project)


def pairs_binding(part: SeriesPart | sa.Row[Any]) -> Binding:
    """Return the binding of pairs to their place; their series is bound to its owner by its key."""
    return Binding("pairs", "series", f"{part.series_id}/{part.wave}/{part.part}", "", None)


def message_binding(message: Delivery | sa.Row[Any]) -> Binding:
    """Return the binding of a message's webhook, without which nothing is sent: it includes job and body."""
    terms = hashlib.sha256(canonical_json([message.job_id, message.body])).hexdigest()
    return Binding("webhook", "delivery", message.id, "", None, terms=terms)


def blob_of_job(job: Job, role: Role) -> NamedBlob | None:
    """Return the blob of a job's table; None if the job does not name one (any more)."""
    blob, sealed_key = getattr(job, f"{role}_blob"), getattr(job, f"sealed_{role}_key")
    return None if blob is None else NamedBlob(blob, sealed_key, table_binding(job, role))


def blob_of_buffer(buffer: Buffer) -> NamedBlob:
    """Return the blob of a buffer's table."""
    return NamedBlob(buffer.blob, buffer.sealed_key, buffer_binding(buffer))
