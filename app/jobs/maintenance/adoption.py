"""Adoption of a shared folder by a database: `rowveil adopt-storage`."""

from dataclasses import dataclass
from datetime import timedelta

from app.callers import Caller
from app.jobs.maintenance.sweep import put_away, take_back, takes_too_much
from app.settings import Settings
from app.store.blobs.places import open_blobs, place_of
from app.store.crypto.sealing import Sealer
from app.store.sql import jobs, replicas
from app.store.sql.audit.trail import AuditTrail
from app.store.sql.db import Database, Transaction
from app.store.sql.deployment import FolderMark, draw_id, usable
from app.store.sql.replicas import moment


class StorageInUse(Exception):
    """A service works on the database."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """Result of an adoption; all figures are numbers of tables."""

    place: str
    """Shared folder or bucket, for a message."""
    deployment_id: str
    stored: int
    """Tables in the folder after the adoption, including those taken back."""
    named: int
    """Tables in the folder that a row names."""
    missing: int
    """Number of tables that a row names, but that are neither in the folder nor in the trash."""
    taken_back: int
    """Moved out of the trash, because a row names them."""
    trashed: int
    """Moved to the trash, because no row names them."""
    waits: bool
    """Whether the tables that no row names are too many for a sweep."""

    @property
    def kind(self) -> str:
        """Kind of the place."""
        return "bucket" if self.place.startswith("s3://") else "folder"

    @property
    def unnamed(self) -> int:
        """Number of tables in the folder that no row names."""
        return self.stored - self.named - self.trashed


def refuse_in_use(database: Database, session: Transaction) -> None:
    """Raise StorageInUse if a replica's lease on a shared database holds.

    A lease that a clock ahead has renewed ends after its length then, as in a service. That is committed also
    if the caller's transaction is not.
    """
    if not database.shared or not replicas.working(session):
        return
    with database.write() as shortening:
        replicas.shorten_leases(shortening, "", moment(shortening))
    with database.read() as current:
        working = replicas.working(current)
    if not working:  # the last one has ended just now
        return
    last = max(working.values()) + timedelta(seconds=1)  # rounded down below
    until = last.strftime("%Y-%m-%d %H:%M:%S UTC")
    raise StorageInUse(
        f"{len(working)} replicas work on the database: stop them first. A replica that was killed holds its "
        f"lease until {until} at the latest: repeat the command after that time"
    )


def adopt(
    settings: Settings,
    database: Database,
    sealer: Sealer,
    audit: AuditTrail,
    operator: Caller,
    trash_unnamed: bool,
) -> Adoption:
    """Let the database and the shared folder of the settings belong together under a new deployment id.

    A database or a folder that shared the former id with one of the two no longer fits: no older copy of the
    database can be started on this folder, and a service that still runs on one stops sweeping. Only two
    kinds of tables are moved: tables that rows name come back from the trash, and with ``trash_unnamed`` all
    tables that no row names go to the trash. The caller makes sure that no other process works on an embedded
    database.

    Raises
    ------
    StorageInUse
        A replica's lease on the database holds.
    StorageUnusable
        The folder cannot be read or written.
    """
    place, blobs = place_of(settings), open_blobs(settings, sealer)
    mark = FolderMark(place)
    with usable(place):
        with database.write() as session:
            refuse_in_use(database, session)
            deployment_id = draw_id(session)
            now, reason = moment(session), "database and folder belong together from now on"
            audit.append(session, operator, "storage.adopt", deployment_id, now, reason)
            named = jobs.all_named(session)
            mark.replace(deployment_id)  # where it fails, the database stays as it was

        taken_back = take_back(blobs, [path for path in blobs.trash.files() if path.name in named])
        stored = blobs.names()
        orphans = [path for path in blobs.files() if path.name in stored - named]
        trashed = 0
        if trash_unnamed and orphans:
            trashed = put_away(blobs, orphans, now.date(), settings.trash_days)
            with database.write() as session:
                reason = f"{trashed} of {len(stored)} tables were named by no row"
                audit.append(session, operator, "storage.sweep", deployment_id, moment(session), reason)
    return Adoption(
        str(place),
        deployment_id,
        len(stored),
        len(stored & named),
        len(named - stored),
        taken_back,
        trashed,
        takes_too_much(len(orphans) - trashed, len(stored) - trashed),
    )
