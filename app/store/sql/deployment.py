"""Pairing of the database with the folder of its blobs: one deployment id, kept in both.

The database alone says which files of the folder are still needed. A database that does not know the folder
must therefore not clean it up: it would find every file unneeded.

The database draws the id and notes that its folder is still to be marked. The file ``deployment`` of the
folder takes the id, by a hard link, so that of several processes exactly one writes it. Then the database
notes that the folder is marked. A crash between the three steps leaves a state from which the next start
continues, and no state in which two databases pass for the owner of one folder. `pair` lists all cases; see
also docs/decisions/0014-deployment-id.md.
"""

import errno
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
import sqlalchemy.exc

from app.store.blobs.bucket import Bucket, BucketUnusable
from app.store.blobs.marks import Place, create_mark, place_name, read_mark, replace_mark
from app.store.blobs.places import find_folder_id
from app.store.blobs.sealed_files import BlobStore
from app.store.sql import jobs, replicas
from app.store.sql.connection.engines import shown_url
from app.store.sql.db import Database, Transaction
from app.store.sql.models import Deployment

_FILE = "deployment"

_ID = re.compile(r"[0-9a-f]{32}\n?")

_ONE_ROW = 1

_SHOWN = 8


class StorageMismatch(Exception):
    """The shared folder belongs to another database than the database of the settings."""


class StorageUnusable(Exception):
    """The shared folder cannot be read or written as the service needs it."""


class StorageAway(StorageUnusable):
    """The bucket did not respond, or failed; a retry may succeed."""


class FolderMark:
    """The file of a shared folder, or the object of a bucket, that says to which deployment it belongs."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def read(self) -> str | None:
        """Return the deployment id; None if there is none. Raises StorageAway, StorageUnusable."""
        try:
            text = read_mark(self._place, _FILE)
        except OSError as error:
            raise _refusal(error)(
                f"{_FILE} of {place_name(self._place)} cannot be read: {error.strerror}"
            ) from None
        if text is None:
            return None
        if not _ID.fullmatch(text):
            raise StorageUnusable(
                f"{_FILE} of {place_name(self._place)} holds no deployment id (32 hex digits). Restore it "
                "from a backup, or run `rowveil adopt-storage`"
            )
        return text.strip()

    def write_once(self, deployment_id: str) -> str:
        """Mark a folder that has no id. Return the id that it has now, which may be of another process."""
        create_mark(self._place, _FILE, f"{deployment_id}\n")
        written = self.read()
        assert written is not None
        return written

    def replace(self, deployment_id: str) -> None:
        """Mark the folder, whatever its id was."""
        replace_mark(self._place, _FILE, f"{deployment_id}\n")


@contextmanager
def usable(place: Place) -> Iterator[None]:
    """Turn a failure of the file system or of the bucket into StorageUnusable or StorageAway."""
    try:
        yield
    except BucketUnusable as error:
        raise _refusal(error)(str(error.strerror)) from None
    except OSError as error:
        raise StorageUnusable(
            f"{place_name(place)} cannot be used: {error.strerror}. It must be writable, on a file "
            "system with hard links and atomic renames: a local disk, NFS 4 or CephFS, not a mounted object "
            "store (ROWVEIL_STORAGE uses one)"
        ) from None


def _refusal(error: OSError) -> type[StorageUnusable]:
    """Return the class of a start's refusal: only a bucket that did not respond is worth a retry."""
    away = isinstance(error, BucketUnusable) and error.errno == errno.EIO
    return StorageAway if away else StorageUnusable


def pair(database: Database, blobs: BlobStore, place: Place) -> str:
    """Return the deployment id that the database and the folder share.

    ============  ================  ==========================================================
    database      folder            result
    ============  ================  ==========================================================
    the same id   the same id       the id
    an id         another id        StorageMismatch
    marked        none              StorageMismatch: not mounted, another folder, or lost
    not marked    none, no files    the folder is marked, if no row names a blob
    not marked    none, files       the folder is marked, if the database has used it before
    ============  ================  ==========================================================

    A database has used a folder before if a row names a blob that is there, or if a lease in the database
    names the folder: that is how an installation from before there were deployment ids is recognised.

    Raises
    ------
    StorageMismatch
    StorageUnusable
    """
    mark = FolderMark(place)
    with usable(place):
        with database.write() as session:
            own = _own(session)
        found = mark.read()
        if found is None and own.in_folder:
            raise StorageMismatch(_no_mark(database, place, own.deployment_id))
        if found is None:
            found = _mark_first(database, blobs, place, own.deployment_id)
        if found != own.deployment_id:
            raise StorageMismatch(_other_mark(database, blobs, place, found))
        if not own.in_folder:
            with database.write() as session:
                _note_marked(session, found)
    return found


def draw_id(session: Transaction) -> str:
    """Give the database another deployment id, with which the caller marks the folder before it commits."""
    own = _own(session)
    own.deployment_id, own.in_folder = secrets.token_hex(16), True
    session.flush()
    return own.deployment_id


def _note_marked(session: Transaction, deployment_id: str) -> None:
    """Note that the folder is marked with the id: from now on a folder without a mark is another one."""
    change = sa.update(Deployment).where(Deployment.deployment_id == deployment_id)
    session.execute(change.values(in_folder=True))


def _own(session: Transaction) -> Deployment:
    """The database's row, drawn if there is none."""
    own = session.get(Deployment, _ONE_ROW)
    if own is None:
        drawn = Deployment(id=_ONE_ROW, deployment_id=secrets.token_hex(16), in_folder=False)
        try:
            with session.begin_nested():
                session.add(drawn)
        except sqlalchemy.exc.IntegrityError:  # another replica drew one at the same moment
            pass
        own = session.get(Deployment, _ONE_ROW, populate_existing=True)
        assert own is not None
    return own


def _mark_first(database: Database, blobs: BlobStore, place: Place, deployment_id: str) -> str:
    """Mark a folder that has no id. Return the id that it has now. Raises StorageMismatch."""
    mark = FolderMark(place)
    files = blobs.names()
    with database.read() as session:
        named = jobs.all_named(session)
        used_before = find_folder_id(place) in replicas.folder_ids(session)
    # Read last: without a mark even now, no other replica has paired, and files and rows are from before.
    found = mark.read()
    if found is not None:
        return found
    if files and not (files & named or used_before):
        raise StorageMismatch(_other_mark(database, blobs, place, None))
    if named and not files & named:
        raise StorageMismatch(_no_mark(database, place, None))
    return mark.write_once(deployment_id)


def _other_mark(database: Database, blobs: BlobStore, place: Place, found: str | None) -> str:
    files = blobs.names()
    with database.read() as session:
        named = len(files & jobs.all_named(session))
    owner = "" if found is None else f" (deployment {found[:_SHOWN]})"
    return (
        f"{place_name(place)} belongs to another database{owner}: {_shown(database)} names {named} of "
        f"{len(files)} sealed tables in it. Set ROWVEIL_DATABASE_URL to the database of "
        f"{_other(place)}. {_ADOPT}"
    )


def _no_mark(database: Database, place: Place, own: str | None) -> str:
    owner = "" if own is None else f" (deployment {own[:_SHOWN]})"
    return (
        f"{place_name(place)} is not the one that {_shown(database)}{owner} has used so far: "
        f"{_missed(place)}. {_ADOPT}"
    )


def _other(place: Place) -> str:
    if isinstance(place, Bucket):
        return "this bucket, or ROWVEIL_STORAGE to a prefix of its own"
    return "this folder, or ROWVEIL_SHARED_FOLDER to a folder of its own"


def _missed(place: Place) -> str:
    if isinstance(place, Bucket):
        return "it is another bucket or prefix. Give every replica the same ROWVEIL_STORAGE"
    return (
        "it is not mounted, or it is another folder. Mount it, or give every replica the same "
        "ROWVEIL_SHARED_FOLDER"
    )


_ADOPT = (
    "If the two belong together from now on, such as after a restore, stop every service on either and run "
    "`rowveil adopt-storage`"
)


def _shown(database: Database) -> str:
    return f"the database {shown_url(database.engine.url)}"
