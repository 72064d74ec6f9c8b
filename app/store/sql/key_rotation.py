"""Rotate the master key: seal all values again under the first key, so that the others can be removed.

Only values sealed under the master key itself change: seeds, reports, webhooks, small tables, service keys
and the data keys of blobs. Each row is changed only if it still holds the value that was read. So the service
may run meanwhile, and an interrupted rotation can be repeated.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute

from app.store.crypto.sealing import Binding, Sealer, webhook_context
from app.store.sql.bindings import (
    TERMS,
    buffer_binding,
    message_binding,
    pairs_binding,
    report_binding,
    rows_binding,
    seed_binding,
    series_binding,
    table_binding,
)
from app.store.sql.db import Database
from app.store.sql.models import Buffer, Delivery, Job, KeptKey, Series, SeriesPart
from app.store.sql.service_keys import context_of

_PAGE_ROWS = 100


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """Column of sealed values."""

    key: InstrumentedAttribute[str]
    value: InstrumentedAttribute[bytes] | InstrumentedAttribute[bytes | None]
    context: Callable[[Any], str | Binding]
    """Context of a row, which has the columns ``named``."""
    named: tuple[InstrumentedAttribute[Any], ...]
    """Columns that the context is derived from."""


_JOB = (Job.service, Job.id, Job.owner, Job.project)

SEALED_COLUMNS = (
    SealedColumn(Job.id, Job.sealed_seed, seed_binding, (*_JOB, *TERMS)),
    SealedColumn(Job.id, Job.sealed_report, report_binding, _JOB),
    SealedColumn(
        Job.id,
        Job.sealed_source_key,
        lambda row: replace(table_binding(row, "source"), blob=row.source_blob),
        (*_JOB, Job.source_blob),
    ),
    SealedColumn(
        Job.id,
        Job.sealed_destination_key,
        lambda row: replace(table_binding(row, "destination"), blob=row.destination_blob),
        (*_JOB, Job.destination_blob),
    ),
    SealedColumn(
        Job.id,
        Job.sealed_control_key,
        lambda row: replace(table_binding(row, "control"), blob=row.control_blob),
        (*_JOB, Job.control_blob),
    ),
    SealedColumn(Job.id, Job.sealed_source, lambda row: rows_binding(row, "source"), _JOB),
    SealedColumn(Job.id, Job.sealed_destination, lambda row: rows_binding(row, "destination"), _JOB),
    SealedColumn(Job.id, Job.sealed_control, lambda row: rows_binding(row, "control"), _JOB),
    SealedColumn(Job.id, Job.sealed_webhook, lambda row: webhook_context(row.id), (Job.id,)),
    SealedColumn(
        Buffer.id,
        Buffer.sealed_key,
        lambda row: replace(buffer_binding(row), blob=row.blob),
        (Buffer.id, Buffer.owner, Buffer.project, Buffer.blob),
    ),
    SealedColumn(
        Delivery.id,
        Delivery.sealed_webhook,
        message_binding,
        (Delivery.id, Delivery.job_id, Delivery.body),
    ),
    SealedColumn(Series.id, Series.sealed_key, series_binding, (Series.id, Series.owner, Series.project)),
    SealedColumn(
        SeriesPart.id,
        SeriesPart.sealed_pairs,
        pairs_binding,
        (SeriesPart.series_id, SeriesPart.wave, SeriesPart.part),
    ),
    SealedColumn(KeptKey.name, KeptKey.sealed, lambda row: context_of(row.name), (KeptKey.name,)),
)
"""All sealed columns; a new one must be added here."""


def reseal_rows(database: Database, sealer: Sealer) -> int:
    """Seal again all values under old keys; return their number. Raises SealBroken: a key is missing."""
    return sum(_reseal(database, sealer, column) for column in SEALED_COLUMNS)


def _reseal(database: Database, sealer: Sealer, column: SealedColumn) -> int:
    resealed = 0
    for rows in _pages(database, column):
        old = [row for row in rows if not sealer.is_current(row[1])]
        if not old:
            continue
        with database.write() as session:
            for row in old:
                key, sealed = row[:2]
                context = column.context(row)
                resealed_value = sealer.seal(sealer.open(sealed, context), context)
                change = sa.update(column.key.class_).where(column.key == key, column.value == sealed)
                change = change.values({column.value: resealed_value})
                session.execute(change.execution_options(synchronize_session=False))
        resealed += len(old)
    database.truncate_log()
    return resealed


def _pages(database: Database, column: SealedColumn) -> Iterator[list[Any]]:
    """Yield key, value and context columns of rows with a value, in pages with one transaction each."""
    last = ""
    while True:
        columns: tuple[Any, ...] = column.key.label("key"), column.value.label("value"), *column.named
        query = sa.select(*columns).where(column.value.is_not(None))
        query = query.where(column.key > last).order_by(column.key)
        with database.read() as session:
            rows = list(session.execute(query.limit(_PAGE_ROWS)).all())
        if not rows:
            return
        yield rows
        last = rows[-1][0]
