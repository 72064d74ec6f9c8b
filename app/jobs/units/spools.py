"""Spools that the units of a running job share, in the shared folder or in the bucket. All calls block."""

import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from app.store.blobs.bucket import Bucket
from app.store.blobs.folder_removal import remove_folder
from app.worker.staging import spool_key
from app.worker.tasks import SwapTask


class Spools(Protocol):
    """Spools of all jobs of a service."""

    def open(self, job: SwapTask) -> None:
        """Prepare for the spools of a job."""

    def delete_others(self, job: SwapTask, task: str, kept: str) -> int:
        """Delete the spools of a task except one; return how many share a run with another one.

        Parameters
        ----------
        job
        task
            Beginning of the names of its spools, before a hyphen.
        kept
            Name of the spool that stays, without the numbers of its files.
        """

    def close(self, job: SwapTask) -> None:
        """Delete all spools of a job. What cannot be deleted is left to the next sweep."""


class FolderSpools:
    """Files in a folder of the job."""

    def open(self, job: SwapTask) -> None:
        """Make the folder."""
        job.spool_folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def delete_others(self, job: SwapTask, task: str, kept: str) -> int:
        """Delete the spools of a task except one: see `Spools.delete_others`."""
        names = []
        with contextlib.suppress(OSError):  # the job has ended
            for path in job.spool_folder.glob(f"{task}-*"):
                names.append(_spool_of(path.name))
                if names[-1] != kept:
                    path.unlink(missing_ok=True)
        return _repeated(names)

    def close(self, job: SwapTask) -> None:
        """Delete the folder."""
        remove_folder(job.spool_folder)


class BucketSpools:
    """Objects of a bucket, for units on machines that share no folder."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def open(self, job: SwapTask) -> None:
        """Do nothing: a bucket has no folders."""

    def delete_others(self, job: SwapTask, task: str, kept: str) -> int:
        """Delete the spools of a task except one: see `Spools.delete_others`."""
        with contextlib.suppress(OSError):
            names = [name for name in self._names(job) if name.startswith(f"{task}-")]
            self._bucket.delete([spool_key(job, name) for name in names if _spool_of(name) != kept])
            return _repeated(map(_spool_of, names))
        return 0

    def close(self, job: SwapTask) -> None:
        """Delete the objects."""
        with contextlib.suppress(OSError):
            self._bucket.delete([spool_key(job, name) for name in self._names(job)])

    def _names(self, job: SwapTask) -> list[str]:
        listed = self._bucket.objects(spool_key(job, "").rstrip("/"))
        return [found.key.rpartition("/")[2] for found in listed]


def _spool_of(name: str) -> str:
    """Return the name of a spool without the number of its file."""
    return name.partition(".")[0]


def _repeated(spools: Iterable[str]) -> int:
    """Return how many spools share a run with another one: the cluster has started it again by itself."""
    runs = Counter(name.rpartition("-")[0] for name in set(spools))
    return runs.total() - len(runs)
