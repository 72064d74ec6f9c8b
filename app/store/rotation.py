"""Seals everything anew under the first master key, so that the others can be forgotten.

Only what is sealed under the master key itself is touched: seeds, reports, webhooks, kept keys, and
the data keys of blobs. Each row is changed by itself, if it still is what was read: the service may
run meanwhile, and a call that was cut off is simply repeated.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute

from app.store.db import Database
from app.store.kept_keys import context_of
from app.store.models import Delivery, Job, KeptKey
from app.store.seal import Sealer, report_context, seed_context, webhook_context

_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A column of sealed values."""

    key: InstrumentedAttribute[str]
    value: InstrumentedAttribute[bytes] | InstrumentedAttribute[bytes | None]
    context: Callable[[str], str]
    named: InstrumentedAttribute[str] | None = None
    """What the context is of, where that is not the key."""


_EVERY = (
    _Sealed(Job.id, Job.sealed_seed, seed_context),
    _Sealed(Job.id, Job.sealed_report, report_context),
    _Sealed(Job.id, Job.sealed_webhook, webhook_context),
    _Sealed(Delivery.id, Delivery.sealed_webhook, webhook_context, Delivery.job_id),
    _Sealed(KeptKey.name, KeptKey.sealed, context_of),
)
"""Whoever adds a sealed column adds it here."""


def reseal_rows(database: Database, sealer: Sealer) -> int:
    """How many values were sealed anew. Raises SealBroken: one is under a key that is not here."""
    return sum(_reseal(database, sealer, column) for column in _EVERY)


def _reseal(database: Database, sealer: Sealer, column: _Sealed) -> int:
    resealed = 0
    for rows in _pages(database, column):
        old = [row for row in rows if not sealer.is_current(row[1])]
        if not old:
            continue
        with database.write() as session:
            for key, sealed, named in old:
                context = column.context(named)
                again = sealer.seal(sealer.open(sealed, context), context)
                change = sa.update(column.key.class_).where(column.key == key, column.value == sealed)
                change = change.values({column.value: again})
                session.execute(change.execution_options(synchronize_session=False))
        resealed += len(old)
    database.forget()
    return resealed


def _pages(database: Database, column: _Sealed) -> Iterator[list[Any]]:
    """Key, value and name of every row that has a value, some at a time, each in a transaction of its own."""
    last = ""
    while True:
        named: Any = column.key if column.named is None else column.named
        query = sa.select(column.key, column.value, named).where(column.value.is_not(None))
        query = query.where(column.key > last).order_by(column.key)
        with database.read() as session:
            rows = list(session.execute(query.limit(_AT_ONCE)).all())
        if not rows:
            return
        yield rows
        last = rows[-1][0]
