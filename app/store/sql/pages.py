"""Pages of listings. Their rows may have much JSON, such as the names of a hundred thousand fields."""

from collections.abc import Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session, defer

from app.store.sql.models import Buffer, Job, Release

MOST_CHARACTERS = 1 << 23
"""Characters of JSON in the rows of a page that has more than one. Their values take ten times the memory."""

Row = TypeVar("Row", Job, Buffer, Release)


def page_of(
    session: Session,
    query: sa.Select[Any],
    model: type[Row],
    limit: int,
    without: Sequence[InstrumentedAttribute[Any]] = (),
) -> tuple[Sequence[Row], str | None]:
    """Return the first rows of a query, and the id of the last of them if the query has more.

    They are up to ``limit``, and as many as have `MOST_CHARACTERS` of JSON together, but one in any case.

    Parameters
    ----------
    session : Session
    query : Select
        Query of the rows in their order, without a limit.
    model : type
        Model of the rows.
    limit : int
        Most rows.
    without : sequence of InstrumentedAttribute
        Columns that are not loaded.
    """
    sizes = session.execute(query.with_only_columns(model.id, _size(model, without)).limit(limit + 1)).all()
    ids: list[str] = []
    total = 0
    for row_id, size in sizes[:limit]:
        total += size
        if ids and total > MOST_CHARACTERS:
            break
        ids.append(row_id)
    rows = session.scalars(query.where(model.id.in_(ids)).options(*map(defer, without))).all()
    return rows, ids[-1] if len(ids) < len(sizes) else None


def _size(model: type[Row], without: Sequence[InstrumentedAttribute[Any]]) -> sa.ColumnElement[int]:
    """Return the number of characters of the JSON in a row that is loaded."""
    left_out = {each.key for each in without}
    size: sa.ColumnElement[int] = sa.literal(0)
    for attribute in sa.inspect(model).column_attrs:
        column: Any = attribute.expression
        if isinstance(column.type, sa.JSON) and not attribute.deferred and attribute.key not in left_out:
            size += sa.func.coalesce(sa.func.length(sa.cast(column, sa.Text)), 0)
    return size
