"""References: how a call names an object of a bucket or a file of a folder, and which it may name.

One spelling alone is taken for each, so that nothing which is compared here means something else to
whoever opens it: no percent-encoding, no empty segment, no ``.`` or ``..``, no query, no credentials.
A message never quotes a reference: somebody may have put a password into it.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_MEANS_SOMETHING_ELSE = frozenset("%?#\\")
_LONGEST = 1024
_LONGEST_SEGMENT = 255


class ReferenceRefused(ValueError):
    """A reference is not one, or lies outside of what may be named."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ReferenceFault(Exception):
    """What a reference names cannot be read, or written, as things are."""

    def __init__(self, message: str, temporary: bool = False) -> None:
        """``temporary``: it is the storage's fault, and trying again may help."""
        super().__init__(message, temporary)
        self.message = message
        self.temporary = temporary


@dataclass(frozen=True, slots=True)
class Reference:
    """An object or a file; as a prefix, a bucket or a folder."""

    scheme: Literal["s3", "file"]
    bucket: str
    """Empty of a file."""
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{'/'.join(self.path)}"

    @property
    def name(self) -> str:
        """The last segment."""
        return self.path[-1]

    def lies_below(self, prefix: "Reference") -> bool:
        """Whether it lies below the prefix: segment by segment, so that no name is taken for a longer one."""
        return (
            (self.scheme, self.bucket) == (prefix.scheme, prefix.bucket)
            and len(self.path) > len(prefix.path)
            and self.path[: len(prefix.path)] == prefix.path
        )


def parse_reference(text: str) -> Reference:
    """The object or file that is named. Raises ReferenceRefused."""
    reference = _parsed(text)
    if not reference.path:
        raise ReferenceRefused("a reference names one object or file, and this is a bucket or the root")
    return reference


def parse_prefixes(text: str) -> tuple[Reference, ...]:
    """The prefixes of a list with commas. Raises ReferenceRefused."""
    return tuple(_parsed(prefix.strip().removesuffix("/")) for prefix in text.split(",") if prefix.strip())


def prefix_of(reference: Reference, prefixes: Iterable[Reference]) -> Reference | None:
    """The shortest of the prefixes that the reference lies below."""
    covering = [prefix for prefix in prefixes if reference.lies_below(prefix)]
    return min(covering, key=lambda prefix: len(prefix.path), default=None)


def _parsed(text: str) -> Reference:
    if len(text.encode(errors="replace")) > _LONGEST:
        raise ReferenceRefused(f"a reference takes at most {_LONGEST} bytes")
    if _MEANS_SOMETHING_ELSE & set(text) or any(unicodedata.category(each)[0] == "C" for each in text):
        raise ReferenceRefused(
            "a reference has no query, fragment, percent-encoding, backslash or control character; write the "
            "object's key, or the file's path, as it is"
        )
    bucket, slash, path = text.removeprefix("s3://").partition("/")
    if text.startswith("s3://"):
        if not _BUCKET.fullmatch(bucket):
            raise ReferenceRefused(
                "after s3:// comes the bucket's name alone, as in s3://bucket/key.parquet; credentials and "
                "endpoint are the service's own"
            )
        return Reference("s3", bucket, _segments(path, slash))
    if text.startswith("file://"):
        rest = text.removeprefix("file://")
        if not rest.startswith("/") and rest:
            raise ReferenceRefused(
                "after file:// comes an absolute path and no host, as in file:///data/people.parquet"
            )
        return Reference("file", "", _segments(rest.removeprefix("/"), rest))
    raise ReferenceRefused("a reference begins with s3:// or file://, in small letters")


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
