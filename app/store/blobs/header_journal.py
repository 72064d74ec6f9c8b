"""Journal of a key rotation: new headers of blobs, flushed to the disk before the first of them is written.

The journal is in the shared folder itself, where workers may not write (`app.engine.sandbox`), and its
content is sealed under the master key. Earlier versions wrote it as text into the folder of the blobs, where
code in a worker can write any text. Such a journal is applied if every line has the form that a rotation
writes: the id of a blob, and a header that opens under a master key as the header of this blob.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from app.store.blobs.folder_flush import flush_folder
from app.store.crypto.sealing import SealBroken, Sealer, sealed_bytes

MAGIC = b"RVBL\x01"
"""First bytes of a blob's file, with the version of its form."""

DATA_KEY_BYTES = 32

LENGTH_BYTES = 2
"""Bytes of the length of the sealed data key, after the magic bytes."""

HEADER_BYTES = len(MAGIC) + LENGTH_BYTES + sealed_bytes(DATA_KEY_BYTES)

MOST_HEADERS = 1000
"""Headers that one journal holds."""

JOURNAL = "reseal.journal"

_LINE = re.compile(rf"([0-9a-f]{{32}}) ([0-9a-f]{{{2 * HEADER_BYTES}}})")
"""Id and header of a blob."""

_TEXT_BYTES = MOST_HEADERS * (32 + 1 + 2 * HEADER_BYTES + 1)
"""Bytes of the longest journal as text."""

_CONTEXT = "blobs/rotation/journal"

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class JournalRefused(SealBroken):
    """A journal, or a file that it names, is not as a rotation leaves it."""


Headers = list[tuple[str, bytes]]
"""Id and new header of each blob."""


class HeaderJournal:
    """The journal of one shared folder, and the journal that an older version may have left."""

    def __init__(self, blobs: Path, sealer: Sealer, is_header: Callable[[str, bytes], bool]) -> None:
        """Find both.

        Parameters
        ----------
        blobs
            Folder of the blobs. The journal is in the folder that contains it.
        sealer
            Seals the journal and opens it.
        is_header
            Whether bytes of the right length open as the header of a blob.
        """
        self.path = blobs.parent / JOURNAL
        self.former = blobs / JOURNAL
        self._sealer = sealer
        self._is_header = is_header

    def write(self, headers: Headers) -> None:
        """Write the journal and flush it. Raises OSError."""
        text = "".join(f"{blob_id} {header.hex()}\n" for blob_id, header in headers)
        content = self._sealer.seal(text.encode("ascii"), _CONTEXT)
        draft = self.path.with_suffix(".draft")
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.path)
        flush_folder(self.path.parent)

    def read(self) -> Headers:
        """Read the headers of an interrupted rotation, each checked. Raises JournalRefused, OSError."""
        content = _read_file(self.path, sealed_bytes(_TEXT_BYTES))
        if content is None:
            return []
        try:
            text = self._sealer.open(content, _CONTEXT)
        except SealBroken as error:
            raise JournalRefused(
                f"{self.path} does not open: {error}. It is the journal of an interrupted rotation. Give all "
                "master keys of that rotation, and repeat `rowveil rotate-keys`; if the file was damaged or "
                "written by others, restore it from a backup or move it away first. Nothing was written"
            ) from None
        return self._parsed(text, self.path)

    def read_former(self) -> Headers:
        """Read the headers that a rotation of an older version left. Raises as `read`.

        A worker may have written the file, so only genuine headers are accepted: each gives a blob the data
        key that it has.
        """
        content = _read_file(self.former, _TEXT_BYTES)
        return [] if content is None else self._parsed(content, self.former)

    def delete(self) -> None:
        """Delete both. Raises OSError."""
        for path in (self.path, self.former):
            path.unlink(missing_ok=True)

    def _parsed(self, text: bytes, path: Path) -> Headers:
        """Return the headers of all lines. Raises JournalRefused: one of them is none."""
        headers = []
        for number, line in enumerate(text.decode("latin-1").splitlines(), 1):
            found = _LINE.fullmatch(line)
            if found is None:
                raise _refused(path, f"line {number} is not the id of a blob and a header")
            blob_id, header = found[1], bytes.fromhex(found[2])
            if not self._is_header(blob_id, header):
                raise _refused(path, f"line {number} has no header of blob {blob_id} under the keys given")
            headers.append((blob_id, header))
        return headers


def _read_file(path: Path, most: int) -> bytes | None:
    """Read a file of at most ``most`` bytes; None if there is none. Raises JournalRefused, OSError."""
    try:
        handle = os.open(path, os.O_RDONLY | _NO_LINK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, f"it cannot be opened as a file ({error.strerror})") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _refused(path, "it is not a regular file")
        content = b""
        while len(content) <= most and (piece := os.read(handle, most + 1 - len(content))):
            content += piece
    finally:
        os.close(handle)
    if len(content) > most:
        raise _refused(path, f"it is longer than {most} bytes")
    return content


def _refused(path: Path, cause: str) -> JournalRefused:
    return JournalRefused(
        f"{path} is not the journal of a rotation: {cause}. Nothing was written. If a rotation was "
        "interrupted, repeat the command with all of its master keys. If none was, a program other than "
        "Rowveil wrote the file, perhaps code in a worker process: move it out of the folder, read "
        "docs/keys.md, and repeat the command"
    )


def write_header(folder: Path, names: Sequence[str], header: bytes) -> None:
    """Overwrite the header of a blob and flush it; nothing happens if the blob was deleted.

    Parameters
    ----------
    folder
        Folder of the blobs.
    names
        Folders below it, and the name of the file. None of them may be a link.
    header
        New header, as long as the present one.

    Raises JournalRefused (the file is not a blob), OSError.
    """
    path = folder.joinpath(*names)
    try:
        handle = _open_below(folder, names)
    except FileNotFoundError:
        return
    except OSError as error:
        raise JournalRefused(
            f"{path} cannot be opened as the file of a blob ({error.strerror}): it or its folder may be a "
            "link or a folder, which Rowveil never makes; move it away, and repeat `rowveil rotate-keys`"
        ) from None
    try:
        status = os.fstat(handle)
        start = os.pread(handle, len(MAGIC), 0)
        if not stat.S_ISREG(status.st_mode) or status.st_size <= len(header) or start != MAGIC:
            raise JournalRefused(
                f"{path} does not start as a blob of this version, so its header is not replaced; restore it "
                "from a backup or move it away, and repeat `rowveil rotate-keys`"
            )
        os.pwrite(handle, header, 0)
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_below(folder: Path, names: Sequence[str]) -> int:
    """Open a file below a folder for reading and writing, without following a link. Raises OSError."""
    with contextlib.ExitStack() as opened:
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, parent)
        for name in names[:-1]:
            parent = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=parent)
            opened.callback(os.close, parent)
        return os.open(names[-1], os.O_RDWR | _NO_LINK, dir_fd=parent)
