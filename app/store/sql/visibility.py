"""SQL filter that limits queries to the rows a caller may see."""

import sqlalchemy as sa

from app.callers import Caller
from app.store.sql.models import Buffer, Job, Release, Series


def visible_to(caller: Caller, model: type[Job] | type[Release] | type[Series]) -> sa.ColumnElement[bool]:
    """Build the condition: own rows and rows of the caller's project, or all rows for an administrator."""
    if caller.sees_all:
        return sa.true()
    own = model.owner == caller.owner
    return own if caller.project is None else sa.or_(own, model.project == caller.project)


def owned_by(caller: Caller) -> sa.ColumnElement[bool]:
    """Build the condition: own buffers, which a project does not share; all for an administrator."""
    return sa.true() if caller.sees_all else Buffer.owner == caller.owner
