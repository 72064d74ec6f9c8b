"""Objects below one prefix of a bucket: the storage of a service whose machines share no file system.

Endpoint, region and credentials come from AWS's usual variables, as for references
(`app.store.reference_s3`); they are read where a bucket is first used, and are in no task. Every failure is
an OSError whose message names the bucket and the remedy. It quotes neither addresses nor the response of the
server, because these may contain credentials.

The client repeats a request that failed for at most a minute. That is safe: each request writes, reads or
deletes the same bytes however often it arrives. Only `create` could find the object of its own first attempt,
and returns the content that is there.
"""

import errno
import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_PART = 16 << 20
"""Bytes of a part of an upload and of a piece of a download, and largest object that is written at once."""

_PIECE = 4 << 20
"""Bytes of a file that are read at once."""

_MOST_PARTS = 9_000  # S3 allows 10,000

_PARALLEL = 4
"""Parts or pieces on the way at once."""

_DELETED_AT_ONCE = 1_000  # S3's limit


class Stopped(Exception):
    """The transfer was stopped on request."""


class BucketUnusable(OSError):
    """The bucket does not exist, refuses a request, or does not respond."""


class Stored(NamedTuple):
    """Object of a listing."""

    key: str
    """Key below the prefix of the bucket."""
    size: int
    """Bytes."""


class Upload(NamedTuple):
    """Multipart upload that was neither completed nor aborted."""

    key: str
    """Key below the prefix of the bucket."""
    id: str
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects of a bucket whose keys begin with a prefix; it has no credentials."""

    name: str
    prefix: str = ""
    """Beginning of all keys: empty, or ends in a slash."""

    def __str__(self) -> str:
        return f"s3://{self.name}/{self.prefix}".rstrip("/")

    def size(self, key: str) -> int | None:
        """Return the bytes of the object; None if there is none. Raises BucketUnusable."""
        try:
            with self._in_bucket(key), self._usable("read"):
                return int(_client().head(self._store(), self._path(key))["size"])
        except FileNotFoundError:
            return None

    def read(self, key: str, start: int, length: int) -> bytes:
        """Read bytes of the object. Raises FileNotFoundError (there is none), BucketUnusable."""
        with self._in_bucket(key), self._usable("read"):
            return bytes(_client().get_range(self._store(), self._path(key), start=start, length=length))

    def get(self, key: str) -> bytes | None:
        """Return the content of a small object; None if there is none. Raises BucketUnusable."""
        with self._usable("read"):
            try:
                return bytes(_client().get(self._store(), self._path(key)).bytes())
            except FileNotFoundError:
                return None

    def put(self, key: str, content: bytes) -> None:
        """Write a small object, in the place of an earlier one. Raises BucketUnusable."""
        with self._usable("write"):
            _client().put(self._store(), self._path(key), content, use_multipart=False)

    def create(self, key: str, content: bytes) -> bytes:
        """Write a small object unless there is one; return the content that is there then."""
        with self._usable("write"):
            try:
                _client().put(self._store(), self._path(key), content, mode="create")
            except _exceptions().AlreadyExistsError:
                return self.get(key) or b""
        return content

    def send(self, path: Path, key: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Write a file as an object, which appears when all its bytes have arrived.

        A file that is larger than 16 MiB is sent in parts; an error aborts the upload.

        ``stopped`` is asked before each read of the file.

        Raises FileNotFoundError (there is no file), Stopped, BucketUnusable.
        """
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as file, self._usable("write"):
            size = os.fstat(handle).st_size
            _client().put(
                self._store(),
                self._path(key),
                _read_until(stopped, file),
                use_multipart=size > _PART,
                chunk_size=max(_PART, -(-size // _MOST_PARTS)),
                max_concurrency=_PARALLEL,
            )

    def fetch(self, key: str, path: Path, stopped: Callable[[], bool] = lambda: False) -> int:
        """Read an object into a new file, which is deleted if that fails; return its bytes.

        ``stopped`` is asked before each piece.

        Raises FileNotFoundError (there is no object), FileExistsError, Stopped, BucketUnusable, OSError.
        """
        size = self.size(key)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, f"{self} has no object {key}")
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            pieces = range(0, size, _PART)
            with ThreadPoolExecutor(min(_PARALLEL, max(1, len(pieces))), "rowveil-fetch") as threads:
                fetched = [
                    threads.submit(self._fetch_piece, key, handle, start, min(_PART, size - start), stopped)
                    for start in pieces
                ]
                try:
                    for piece in fetched:
                        piece.result()
                except BaseException:
                    threads.shutdown(wait=True, cancel_futures=True)
                    raise
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        return size

    def _fetch_piece(
        self, key: str, handle: int, start: int, length: int, stopped: Callable[[], bool]
    ) -> None:
        if stopped():
            raise Stopped
        content = memoryview(self.read(key, start, length))
        written = 0
        while written < len(content):
            written += os.pwrite(handle, content[written:], start + written)

    def objects(self, folder: str) -> list[Stored]:
        """Return all objects whose key begins with ``folder`` and a slash. Raises BucketUnusable."""
        with self._usable("list"):
            listed = _client().list(self._store(), self._path(folder), chunk_size=1000)
            start = len(self.prefix)
            return [
                Stored(found["path"][start:], int(found["size"])) for found in chain.from_iterable(listed)
            ]

    def delete(self, keys: Collection[str]) -> None:
        """Delete objects; nothing happens where there is none. Raises BucketUnusable."""
        paths = [self._path(key) for key in keys]
        with self._usable("delete"):
            for start in range(0, len(paths), _DELETED_AT_ONCE):
                try:
                    _client().delete(self._store(), paths[start : start + _DELETED_AT_ONCE])
                except FileNotFoundError:  # some servers report it, and the others are deleted
                    continue

    def uploads(self, folder: str) -> list[Upload]:
        """Return the multipart uploads that are not complete, of keys in a folder. Raises BucketUnusable."""
        with self._usable("list the uploads of"):
            pages = _uploads_client().get_paginator("list_multipart_uploads")
            found = pages.paginate(Bucket=self.name, Prefix=f"{self._path(folder)}/")
            listed = chain.from_iterable(page.get("Uploads", ()) for page in found)
            start = len(self.prefix)
            return [Upload(each["Key"][start:], each["UploadId"], each["Initiated"]) for each in listed]

    def abort(self, upload: Upload) -> None:
        """Abort a multipart upload, which frees the bytes of its parts. Raises BucketUnusable."""
        with self._usable("abort uploads of"):
            client = _uploads_client()
            try:
                client.abort_multipart_upload(
                    Bucket=self.name, Key=self._path(upload.key), UploadId=upload.id
                )
            except client.exceptions.NoSuchUpload:  # it has ended meanwhile
                return

    def _path(self, key: str) -> str:
        return self.prefix + key

    def _store(self) -> Any:
        from app.store.reference_s3 import open_bucket  # imported late: workers need no S3 client

        return open_bucket(self.name)

    @contextmanager
    def _in_bucket(self, key: str) -> Iterator[None]:
        """Raise BucketUnusable if there is no bucket, which looks like a missing object of one."""
        try:
            yield
        except FileNotFoundError:
            self.objects(key)
            raise

    @contextmanager
    def _usable(self, operation: str) -> Iterator[None]:
        """Turn failures of the client into BucketUnusable. FileNotFoundError of an object stays."""
        try:
            yield
        except FileNotFoundError:
            if operation == "read":
                raise
            raise BucketUnusable(
                errno.ENXIO,
                f"there is no bucket {self.name}: create it, or correct ROWVEIL_STORAGE",
            ) from None
        except OSError as error:
            if not isinstance(error, PermissionError):
                raise
            raise self._refused(operation) from None
        except Exception as error:
            if _is_refusal(error):
                raise self._refused(operation) from None
            if _is_missing_bucket(error):
                raise BucketUnusable(
                    errno.ENXIO,
                    f"there is no bucket {self.name}: create it, or correct ROWVEIL_STORAGE",
                ) from None
            if not _is_failure(error):
                raise
            raise BucketUnusable(
                errno.EIO,
                f"the bucket {self.name} did not respond, or failed: check AWS_ENDPOINT_URL, AWS_REGION and "
                "the object storage",
            ) from None

    def _refused(self, operation: str) -> BucketUnusable:
        return BucketUnusable(
            errno.EACCES,
            f"the object storage does not let the service {operation} the bucket {self.name}: check the "
            "credentials (AWS_ACCESS_KEY_ID and others, or the role) and the bucket's policy",
        )


def _read_until(stopped: Callable[[], bool], file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file in pieces. Raises Stopped."""
    while piece := file.read(_PIECE):
        if stopped():
            raise Stopped
        yield piece


def _client() -> Any:
    import obstore  # imported late: workers need no S3 client

    return obstore


def _exceptions() -> Any:
    from obstore import exceptions

    return exceptions


def _uploads_client() -> Any:
    """Return a client that can list uploads, which obstore cannot."""
    return _uploads_client_of(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))


@lru_cache(maxsize=4)  # making one takes half a second
def _uploads_client_of(endpoint: str | None) -> Any:
    import botocore.config
    import botocore.session

    config = botocore.config.Config(
        connect_timeout=5,
        read_timeout=60,
        retries={"max_attempts": 5, "mode": "standard"},
        s3={"addressing_style": "path"} if endpoint else {},  # as obstore does
    )
    session = botocore.session.get_session()
    return session.create_client("s3", endpoint_url=endpoint, config=config)


def _code(error: Exception) -> str:
    """Return the code of an error of botocore; empty: it has none."""
    response = getattr(error, "response", None)
    found = response.get("Error", {}) if isinstance(response, dict) else {}
    return str(found.get("Code", ""))


def _is_refusal(error: Exception) -> bool:
    kinds = (_exceptions().PermissionDeniedError, _exceptions().UnauthenticatedError)
    refusals = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "401")
    return isinstance(error, kinds) or _code(error) in refusals


def _is_missing_bucket(error: Exception) -> bool:
    return _code(error) == "NoSuchBucket" or "<Code>NoSuchBucket</Code>" in str(error)


def _is_failure(error: Exception) -> bool:
    """Whether the error comes from one of the two clients."""
    return isinstance(error, _exceptions().BaseError) or type(error).__module__.startswith("botocore")
