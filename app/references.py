"""References to objects of a bucket or files of a folder, and the prefixes that allow them.

Each object has exactly one spelling, so that the check and the storage cannot read a reference differently:
no percent-encoding, no empty segment, no ``.`` or ``..``, no query, no credentials. Messages never quote a
reference, because somebody may have put a password into it.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PROJECT = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_FORBIDDEN = frozenset("%?#\\")
_LONGEST = 1024
_LONGEST_SEGMENT = 255


class ReferenceRefused(ValueError):
    """The text is not a valid reference."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ReferenceFault(Exception):
    """The referenced object or file cannot be read or written."""

    def __init__(self, message: str, temporary: bool = False) -> None:
        """Keep the message; ``temporary`` means that the storage failed and a retry may succeed."""
        super().__init__(message, temporary)
        self.message = message
        self.temporary = temporary


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference to an object or a file; as a prefix, to a bucket or a folder."""

    scheme: Literal["s3", "file"]
    bucket: str
    """Name of the bucket; empty for a file."""
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{'/'.join(self.path)}"

    @property
    def name(self) -> str:
        """Last segment of the path."""
        return self.path[-1]

    def is_below(self, prefix: "Reference") -> bool:
        """Whether the prefix contains this reference. Whole segments count: ``a`` does not contain ``ab``."""
        return (
            (self.scheme, self.bucket) == (prefix.scheme, prefix.bucket)
            and len(self.path) > len(prefix.path)
            and self.path[: len(prefix.path)] == prefix.path
        )


def parse_reference(text: str) -> Reference:
    """Parse a reference to one object or file. Raises ReferenceRefused."""
    reference = _parsed(text)
    if not reference.path:
        raise ReferenceRefused("a reference names one object or file, not a bucket or the root")
    return reference


@dataclass(frozen=True, slots=True)
class AllowedPrefix:
    """Prefix that the callers of a project may use."""

    project: str
    """Name of the project; ``*``: every caller."""
    prefix: Reference


def parse_prefix(text: str) -> Reference:
    """Parse a reference to a bucket or a folder. Raises ReferenceRefused."""
    return _parsed(text.strip().removesuffix("/"))


def parse_prefixes(text: str) -> tuple[AllowedPrefix, ...]:
    """Parse a comma-separated list of ``project=prefix``. Raises ReferenceRefused."""
    return tuple(_allowed(entry.strip()) for entry in text.split(",") if entry.strip())


def prefix_of(
    reference: Reference, allowed: Iterable[AllowedPrefix], project: str | None
) -> Reference | None:
    """Return the shortest prefix that contains the reference and that the project may use; None: none does.

    ``project``: of the caller; None: it has none, and may use what every caller may.
    """
    own = [each.prefix for each in allowed if each.project in ("*", project)]
    covering = [prefix for prefix in own if reference.is_below(prefix)]
    return min(covering, key=lambda prefix: len(prefix.path), default=None)


def _allowed(entry: str) -> AllowedPrefix:
    project, equals, prefix = entry.partition("=")
    if not equals or not _PROJECT.fullmatch(project):
        raise ReferenceRefused(
            "write a prefix after the project that may use it, as in census=s3://bucket/folder; "
            "*=s3://bucket is for every caller"
        )
    return AllowedPrefix(project, parse_prefix(prefix))


def _parsed(text: str) -> Reference:
    if len(text.encode(errors="replace")) > _LONGEST:
        raise ReferenceRefused(f"a reference takes at most {_LONGEST} bytes")
    if _FORBIDDEN & set(text) or any(unicodedata.category(character)[0] == "C" for character in text):
        raise ReferenceRefused(
            "a reference has no query, fragment, percent-encoding, backslash or control character; write the "
            "object's key, or the file's path, as it is"
        )
    bucket, slash, path = text.removeprefix("s3://").partition("/")
    if text.startswith("s3://"):
        if not _BUCKET.fullmatch(bucket):
            raise ReferenceRefused(
                "after s3:// comes only the bucket's name, as in s3://bucket/key.parquet; credentials "
                "and endpoint are the service's own"
            )
        return Reference("s3", bucket, _segments(path, slash))
    if text.startswith("file://"):
        rest = text.removeprefix("file://")
        if not rest.startswith("/") and rest:
            raise ReferenceRefused(
                "after file:// comes an absolute path and no host, as in file:///data/people.parquet"
            )
        return Reference("file", "", _segments(rest.removeprefix("/"), rest))
    raise ReferenceRefused("a reference begins with s3:// or file://, in lower case")


def _segments(path: str, slash: str) -> tuple[str, ...]:
    if not path:
        if slash:
            raise ReferenceRefused("a reference does not end in a slash: name one object or file")
        return ()
    segments = tuple(path.split("/"))
    if any(segment in ("", ".", "..") for segment in segments):
        raise ReferenceRefused(
            "no segment of a reference is empty, '.' or '..': write the path that they mean"
        )
    if any(len(segment.encode()) > _LONGEST_SEGMENT for segment in segments):
        raise ReferenceRefused(f"a segment of a reference takes at most {_LONGEST_SEGMENT} bytes")
    return segments
