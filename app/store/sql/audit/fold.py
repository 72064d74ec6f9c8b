"""Copy of all chains to the shared chain, which is the only one that older versions know."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.store.sql.audit.trail import (
    LINES,
    SHARED,
    SHARED_HEADS,
    SHARED_LINES,
    early_digest,
    line_mac,
    shared_lines,
)

CHAINS_SINCE = "2026_11_23c_audit_chains"
"""Step of the migrations since which each replica has a chain."""

_AT_ONCE = 1000


def fold(session: Session, key: bytes) -> int:
    """Append the lines of all chains to the shared chain in the order of their times; return their number.

    The caller goes back to an older version, whose tables have neither the other chains nor checkpoints.
    """
    connection = session.connection()
    head = sa.select(SHARED_HEADS.c.number, SHARED_HEADS.c.mac).where(SHARED_HEADS.c.id == 1)
    found = connection.execute(head.with_for_update()).one()
    first: int = found.number
    previous = found.mac or early_digest(connection.execute(shared_lines()).mappings())
    number = first
    lines = sa.select(LINES).order_by(LINES.c.at, LINES.c.chain, LINES.c.number)
    stream = connection.execute(lines, execution_options={"yield_per": _AT_ONCE}).mappings()
    for rows in stream.partitions():
        copied = []
        for row in rows:
            number += 1
            line = {**row, "chain": SHARED, "number": number}
            previous = line_mac(key, line, previous)
            kept = {name: value for name, value in line.items() if name not in ("chain", "number")}
            copied.append({**kept, "id": number, "mac": previous})
        connection.execute(sa.insert(SHARED_LINES), copied)
    if number > first:
        move = sa.update(SHARED_HEADS).where(SHARED_HEADS.c.id == 1)
        connection.execute(move.values(number=number, mac=previous))
    return number - first
