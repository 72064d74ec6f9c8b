"""Progress of running jobs for replicas on other machines, if the machines share no folder.

The replica that runs a job has its progress file. It sends the file's content to the bucket as an object when
it has changed; other replicas read the object.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

from app.engine.engine import Progress
from app.engine.progress_file import PROGRESS_BYTES, parse_progress, read_progress, read_progress_bytes
from app.store.blobs.bucket import Bucket
from app.store.blobs.bucket_blobs import PROGRESS, BucketBlobs
from app.store.blobs.sealed_files import BlobStore

_SEND_SECONDS = 2.0

_NAME = re.compile(r"[0-9a-zA-Z-]{1,64}\.[0-9]{1,9}")
"""Name of a progress file: id and attempt of its job."""

_log = logging.getLogger("rowveil.jobs")


def shared_progress(blobs: BlobStore) -> Callable[[Path], Progress | None]:
    """Return the function that reads the progress of a job of any replica. It blocks."""
    if not isinstance(blobs, BucketBlobs):
        return read_progress
    bucket = blobs.bucket

    def read(path: Path) -> Progress | None:
        own = read_progress(path)
        if own is not None:
            return own
        try:
            content = bucket.read(_key(path.name), 0, PROGRESS_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:  # a call that shows a job does without
            _log.warning("progress cannot be read: %s", error.strerror)
            return None
        return parse_progress(content)

    return read


def _key(name: str) -> str:
    return f"{PROGRESS}/{name}"


class ProgressSender:
    """Sends the progress files of one replica to the bucket every two seconds."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self._bucket = bucket
        self._folder = folder
        self._sent: dict[str, bytes] = {}
        """Content of the objects of this replica, by name."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to send."""
        self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        """Stop; objects that are left are swept."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def send(self) -> None:
        """Send changed progress, and delete the objects of removed files. Blocking. Raises OSError.

        Workers may write to the folder: a file without the name and length of a progress file is left out.
        """
        found: dict[str, bytes] = {}
        for path in self._folder.glob("*"):
            if not _NAME.fullmatch(path.name):
                continue
            try:
                content = read_progress_bytes(path)
            except (FileNotFoundError, IsADirectoryError):  # the job has just ended; it is no file
                continue
            if len(content) == PROGRESS_BYTES:
                found[path.name] = content
        for name, content in found.items():
            if self._sent.get(name) != content:
                self._bucket.put(_key(name), content)
                self._sent[name] = content
        gone = self._sent.keys() - found.keys()
        if gone:
            self._bucket.delete([_key(name) for name in gone])
        for name in gone:
            del self._sent[name]

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_SEND_SECONDS)
            try:
                await asyncio.to_thread(self.send)
            except OSError as error:
                _log.warning("progress cannot be sent: %s", error.strerror)
