"""Blobs as objects of a bucket: the `BlobStore` of a service without a shared folder.

The object ``blobs/<2 digits>/<blob id>`` has the chunks of a blob and no header: each row that names the
blob has its key, and an object cannot be overwritten in part when master keys are rotated. A deleted row
makes its blob unreadable. The parts of a blob are the objects ``parts/<blob id>/<token>``.

An object appears when all its bytes have arrived, so there are no drafts in the bucket. A writer seals into a
draft in the work folder of its machine, which is then sent.

A blob stays where it is while it is in the trash. The empty object ``trash/<day>/<blob id>`` puts it there,
so that nothing has to be copied.

Spools of units are below ``scratch/<attempt of the job>/``, and the progress of running jobs below
``progress/``.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import cast

from app.store.blobs.bucket import Bucket, Stored
from app.store.blobs.sealed_files import (
    BLOBS,
    NOBODY,
    PART,
    PARTS,
    BlobAccess,
    BlobMissing,
    BlobStore,
    drafts_and_parts_of,
    object_key,
)
from app.store.blobs.trash import Trash
from app.store.crypto.sealing import Binding, Sealer, SealUnbound

TRASH, SCRATCH, PROGRESS = "trash", "scratch", "progress"
"""Further folders of the bucket."""

UPLOAD_SECONDS = 24 * 3600.0
"""Age at which an upload is aborted although its service lives: no write of a table takes so long."""

DEAD_UPLOAD_SECONDS = 3600.0
"""Age at which an upload is aborted whose service is dead: one of its workers may still be sending."""

_MEASURED_SECONDS = 300.0
"""Time for which the figures of the bucket are kept: a listing costs a request for each 1000 objects."""

_log = logging.getLogger("rowveil.storage")


@dataclass(frozen=True, slots=True)
class BucketFile:
    """Object of a listing, with the part of `pathlib.Path` that the sweep uses."""

    bucket: Bucket
    key: str

    @property
    def name(self) -> str:
        """Last part of the key; of a part of a blob, the name that its file has in a folder."""
        folder, *names = self.key.split("/")
        return f"{names[0]}.{names[-1]}{PART}" if folder == PARTS else names[-1]

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object. Raises FileNotFoundError (there is none, unless ``missing_ok``), OSError."""
        if not missing_ok and self.bucket.size(self.key) is None:
            raise FileNotFoundError(self.key)
        self.bucket.delete([self.key])


class BucketTrash(Trash):
    """Marks of the blobs that a sweep found to be named by no row."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(Path(TRASH))
        self._bucket = bucket

    def put(self, path: Path, day: date) -> bool:
        """Mark a blob for the day; False if it is gone. Raises OSError.

        An upload on this machine, which no row can name, is deleted.
        """
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
            return False
        if self._bucket.size(object_key(path.name)) is None:
            return False
        self._bucket.put(f"{TRASH}/{day.isoformat()}/{path.name}", b"")
        return True

    def files(self) -> list[Path]:
        """Return the marks of all blobs in the trash."""
        return [_as_path(BucketFile(self._bucket, key)) for key in self.marks()]

    def delete(self, blob_id: str) -> None:
        """Delete the marks of the blob."""
        self._bucket.delete([key for key in self.marks() if key.endswith(f"/{blob_id}")])

    def empty(self, before: date) -> int:
        """Delete the blobs with a mark of a day before a day, and their marks; return the number deleted."""
        old = [key for key in self.marks() if _day(key) < before]
        try:
            self._bucket.delete([object_key(key.rpartition("/")[2]) for key in old])
            self._bucket.delete(old)  # afterwards: a crash between the two is repaired by the next call
        except OSError as error:
            _log.warning("the trash cannot be emptied: %s", error.strerror)
            return 0
        return len(old)

    def marks(self) -> list[str]:
        """Return the keys of all marks. Anything else in the folder is left alone."""
        return [found.key for found in self._bucket.objects(TRASH) if _day(found.key) != date.max]


class BucketBlobs(BlobStore):
    """The blobs of a bucket, with the keys to open them."""

    def __init__(self, bucket: Bucket, folder: Path, sealer: Sealer) -> None:
        """``folder``: where this machine seals tables before they are sent."""
        super().__init__(folder, sealer)
        self.bucket = bucket
        self.trash: BucketTrash = BucketTrash(bucket)
        self._measured: tuple[float, tuple[int, int], tuple[int, int]] | None = None

    def allocate(self, owner: str = NOBODY) -> BlobAccess:
        """Allocate a blob to write; ``owner`` is the replica's id, 12 hex digits."""
        return replace(super().allocate(owner), header=b"", bucket=self.bucket)

    def access(self, blob_id: str, sealed_key: bytes | None, binding: Binding) -> BlobAccess:
        """Return the access that a row has to a stored blob. Raises BlobMissing, SealBroken, OSError."""
        data_key = self._open_key(blob_id, sealed_key, binding)
        if self.bucket.size(object_key(blob_id)) is None:
            raise BlobMissing(f"blob {blob_id} is not in the store")
        return BlobAccess(blob_id, str(self._path(blob_id)), b"", data_key, bucket=self.bucket)

    def access_by_header(self, blob_id: str) -> BlobAccess:
        """Raise SealUnbound: objects have no header."""
        raise SealUnbound(f"blob {blob_id} of a bucket has no header: its row has no key, and is lost")

    def delete(self, blob_id: str) -> None:
        """Delete the blob with its parts, and its files on this machine; nothing happens if there is none.

        A mark in the trash stays until the trash is emptied.
        """
        path = self._path(blob_id)
        path.unlink(missing_ok=True)
        self.bucket.delete([object_key(blob_id)])
        self.delete_parts(blob_id, ())
        for other in drafts_and_parts_of(path):
            other.unlink(missing_ok=True)

    def delete_parts(self, blob_id: str, kept: Collection[str]) -> None:
        """Delete the parts of a blob except the parts of some tokens. Raises OSError."""
        keys = [found.key for found in self.bucket.objects(f"{PARTS}/{blob_id}")]
        self.bucket.delete([key for key in keys if key.rpartition("/")[2] not in kept])

    def files(self) -> list[Path]:
        """Return all blobs outside of the trash, all parts, and the drafts and uploads of this machine."""
        parts = [BucketFile(self.bucket, found.key) for found in self.bucket.objects(PARTS)]
        return [*map(_as_path, self._objects()), *map(_as_path, parts), *self.folder.glob("??/*")]

    def names(self) -> set[str]:
        """Return the names of all stored blobs, without the trash."""
        return {found.name for found in self._objects()}

    def take_back(self, path: Path) -> bool:
        """Delete the mark of a blob in the trash; False if the blob is gone. Raises OSError."""
        path.unlink(missing_ok=True)
        return self.bucket.size(object_key(path.name)) is not None

    def measure(self) -> tuple[int, int]:
        """Return the number of blobs and their bytes, without the trash, as of the last five minutes."""
        return self._figures()[0]

    def measure_trash(self) -> tuple[int, int]:
        """Return the number of blobs in the trash and their bytes, as of the last five minutes."""
        return self._figures()[1]

    def reseal(self) -> int:
        """Return 0: the keys of objects are in rows, which `app.store.sql.key_rotation` seals again."""
        return 0

    def sweep_others(
        self, running: Collection[str], ownerless: Callable[[str], bool], now: datetime | None
    ) -> None:
        """Delete progress and spools of jobs that do not run, and abort uploads that will not be completed.

        Parameters
        ----------
        running
            Attempts of the jobs that run, as ``<job id>.<attempt>``.
        ownerless
            Whether the replica that made a blob is dead, and the blob is not being written.
        now
            Time by which uploads are old; None: the clock may be wrong, and none is aborted.

        Raises OSError.
        """
        listed = [*self.bucket.objects(PROGRESS), *self.bucket.objects(SCRATCH)]
        self.bucket.delete([found.key for found in listed if found.key.split("/")[1] not in running])
        if now is None:
            return
        for upload in chain.from_iterable(map(self.bucket.uploads, (BLOBS, PARTS, SCRATCH))):
            folder, name, *names = upload.key.split("/")
            blob = name if folder == PARTS else names[-1]
            gone = name not in running if folder == SCRATCH else ownerless(blob)
            if now - upload.begun_at > timedelta(seconds=DEAD_UPLOAD_SECONDS if gone else UPLOAD_SECONDS):
                self.bucket.abort(upload)
                _log.info("the upload of %s, begun at %s, was aborted", upload.key, upload.begun_at)

    def _objects(self) -> list[BucketFile]:
        return [BucketFile(self.bucket, found.key) for found in self._listed()[0]]

    def _listed(self) -> tuple[list[Stored], list[Stored]]:
        """Return the blobs outside of the trash, and those in it."""
        trashed = {key.rpartition("/")[2] for key in self.trash.marks()}
        outside: list[Stored] = []
        inside: list[Stored] = []
        for found in self.bucket.objects(BLOBS):
            (inside if found.key.rpartition("/")[2] in trashed else outside).append(found)
        return outside, inside

    def _listed_with_parts(self) -> tuple[list[Stored], list[Stored]]:
        """Return the objects of the blobs outside of the trash and of those in it, with their parts."""
        listed = self._listed()
        trashed = {found.key.rpartition("/")[2] for found in listed[1]}
        for found in self.bucket.objects(PARTS):
            listed[found.key.split("/")[1] in trashed].append(found)
        return listed

    def _figures(self) -> tuple[tuple[int, int], tuple[int, int]]:
        now = time.monotonic()
        if self._measured is None or now - self._measured[0] > _MEASURED_SECONDS:
            outside, inside = self._listed_with_parts()
            sizes = [[found.size for found in listed] for listed in (outside, inside)]
            self._measured = now, (len(sizes[0]), sum(sizes[0])), (len(sizes[1]), sum(sizes[1]))
        return self._measured[1], self._measured[2]


def _day(key: str) -> date:
    """Return the day of a mark; the last day of all if the key is not one of a mark."""
    with contextlib.suppress(ValueError, IndexError):
        return date.fromisoformat(key.split("/")[1])
    return date.max


def _as_path(file: BucketFile) -> Path:
    """Pass an object for a path: the sweep uses its name and deletes it."""
    return cast(Path, file)
