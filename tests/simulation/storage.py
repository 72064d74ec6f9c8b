"""The shared folder of a simulation: files in memory, on a disk that may be slow."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from app.store.blobs.sealed_files import BlobAccess, BlobMissing, owner_of
from app.store.crypto.sealing import Binding
from tests.simulation.scheduler import Process, Scheduler


@dataclass
class Folder:
    """All files below one shared folder, by path."""

    scheduler: Scheduler
    files: set[str] = field(default_factory=set)
    slow_until: float = 0.0
    slow_seconds: float = 0.0
    """Time that each operation takes while the folder is slow."""
    notes: set[str] = field(default_factory=set)
    """Progress files in which a worker has noted that it outlived its service."""
    on_gone: list[Callable[[str], None]] = field(default_factory=list)
    """Called with the path of each file that is deleted or renamed."""

    def step(self) -> None:
        """Begin an operation of the current thread."""
        self.scheduler.pause(self.slow_seconds if self.scheduler.now < self.slow_until else None)

    def remove(self, path: str) -> None:
        """Delete a file. Raises FileNotFoundError."""
        if path not in self.files:
            raise FileNotFoundError(path)
        self.files.discard(path)
        for callback in self.on_gone:
            callback(path)


class SimulatedPath:
    """The part of `pathlib.Path` that the service uses for files of the shared folder."""

    __slots__ = ("folder", "text")

    def __init__(self, folder: Folder, text: str) -> None:
        self.folder = folder
        self.text = text

    @property
    def name(self) -> str:
        return self.text.rpartition("/")[2]

    def __truediv__(self, name: str) -> "SimulatedPath":
        return SimulatedPath(self.folder, f"{self.text}/{name}")

    def __str__(self) -> str:
        return self.text

    def glob(self, pattern: str) -> Iterator["SimulatedPath"]:
        """Return the files of this folder; ``pattern`` is always ``*``."""
        self.folder.step()
        start = f"{self.text}/"
        found = sorted([path for path in self.folder.files if path.startswith(start)])
        return iter([SimulatedPath(self.folder, path) for path in found])

    def is_dir(self) -> bool:
        return False

    def unlink(self, missing_ok: bool = False) -> None:
        self.folder.step()
        try:
            self.folder.remove(self.text)
        except FileNotFoundError:
            if not missing_ok:
                raise


class SimulatedTrash:
    """`app.store.blobs.trash.Trash` on a simulated folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def put(self, path: SimulatedPath, day: date) -> bool:
        return _moved(self._folder, path.text, f"trash/{path.name}")

    def files(self) -> list[SimulatedPath]:
        return list(SimulatedPath(self._folder, "trash").glob("*"))

    def empty(self, before: date) -> int:
        self._folder.step()
        return 0  # a simulation lasts minutes, and the trash keeps a blob for days


class SimulatedBlobs:
    """`app.store.blobs.sealed_files.BlobStore` on a simulated folder; a data key is the blob's name."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.trash = SimulatedTrash(folder)

    def allocate(self, owner: str) -> BlobAccess:
        """Allocate a blob to write."""
        name = f"{self._folder.scheduler.random.getrandbits(80):020x}{owner}"
        return BlobAccess(name, f"blobs/{name}", b"", name.encode())

    def seal_key(self, access: BlobAccess, binding: Binding) -> bytes:
        return access.data_key

    def move_key(self, blob_id: str, sealed_key: bytes, binding: Binding, to: Binding) -> bytes:
        return sealed_key

    def access(self, blob_id: str, sealed_key: bytes | None, binding: Binding) -> BlobAccess:
        self._folder.step()
        if f"blobs/{blob_id}" not in self._folder.files:
            raise BlobMissing(f"blob {blob_id} is not in the store")
        return BlobAccess(blob_id, f"blobs/{blob_id}", b"", sealed_key or b"")

    def delete(self, blob_id: str) -> None:
        self._folder.step()
        for path in (f"blobs/{blob_id}", f"trash/{blob_id}"):
            if path in self._folder.files:
                self._folder.remove(path)
                return

    def files(self) -> list[SimulatedPath]:
        return list(SimulatedPath(self._folder, "blobs").glob("*"))

    def names(self) -> set[str]:
        return {path.name for path in self.files()}

    def take_back(self, path: SimulatedPath) -> bool:
        return _moved(self._folder, path.text, f"blobs/{path.name}")


def write(access: BlobAccess, folder: Folder) -> None:
    """Write a blob: it takes a moment, and then appears whole."""
    folder.step()
    folder.step()
    folder.files.add(access.path)


def _moved(folder: Folder, source: str, target: str) -> bool:
    folder.step()
    if source not in folder.files:
        return False
    folder.remove(source)
    folder.files.add(target)
    return True


class SimulatedSealer:
    """`app.store.crypto.sealing.Sealer` without encryption: what it seals is in memory only."""

    key_id = "key"
    key_ids = frozenset({"key"})

    def seal(self, plain: bytes, binding: Any) -> bytes:
        return plain

    def open(self, sealed: bytes, binding: Any) -> bytes:
        return sealed

    def fingerprint(self, seed: bytes) -> str:
        return "0" * 16

    def host_fingerprint(self, owner: str, host: str) -> str:
        return f"{len(owner) + len(host):x}"

    def request_fingerprint(self, request: bytes) -> str:
        return request.decode()


__all__ = ["Folder", "Process", "SimulatedBlobs", "SimulatedPath", "SimulatedSealer", "owner_of", "write"]
