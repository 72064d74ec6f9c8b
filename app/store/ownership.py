"""Which rows a caller may know of, as a condition that every query about them takes."""

import sqlalchemy as sa

from app.callers import Caller
from app.store.models import Buffer, Job


def visible_to(caller: Caller, model: type[Job] | type[Buffer]) -> sa.ColumnElement[bool]:
    """Rows of the caller's own, of its project, or all where it sees all."""
    if caller.sees_all:
        return sa.true()
    own = model.owner == caller.owner
    return own if caller.project is None else sa.or_(own, model.project == caller.project)
