"""Objects of a bucket by reference, streamed over the S3 protocol.

Endpoint, region and credentials come from the service's environment, in AWS's usual variables
(``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, ...), or from the role of the machine or
container. They are read when a bucket is first used, and never stored. Error messages of the library are not
passed on, because they quote addresses.
"""

import base64
import hashlib
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from app.references import Reference, ReferenceFault

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config


_log = logging.getLogger("rowveil.storage")

_CHUNK = 2**20

_PART = 16 * 2**20  # S3 allows 10,000 parts: at most 160 GB

_PARALLEL_PARTS = 2

_THERE_ALREADY = "there is an object of that name already, and it is not replaced: choose another name"

_UNKNOWN = (
    "the storage did not answer whether it has taken it: look at the destination, which may have been "
    "written, and is then a release that the ledger does not list"
)

_SIGNED_FOR = timedelta(minutes=5)

_SECONDS = 20.0

_EXISTS = 412
"""Status of a write with ``If-None-Match`` of an object that exists."""


def read_object(reference: Reference, check_size: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the content of one version of the object in chunks. Raises ReferenceFault."""
    with _reported_as_faults("read"):
        response = obstore.get(open_bucket(reference.bucket), "/".join(reference.path))
        check_size(response.meta["size"])
        for chunk in response.stream(min_chunk_size=_CHUNK):
            yield bytes(chunk)


def write_object(
    reference: Reference,
    chunks: Iterable[bytes],
    media_type: str,
    draft: str,
    overwrite: bool = False,
    proceed: Callable[[], None] = lambda: None,
) -> None:
    """Write the chunks as an object, which appears when all are written; an error leaves no object.

    Without ``overwrite`` the storage itself makes sure that no object is replaced (``If-None-Match: *``). Up
    to 16 MiB are one conditional request. A larger object is written under the name ``draft`` in the same
    folder and copied under the same condition: the library writes no parts conditionally. ``proceed`` is
    called before the copy; if it raises, nothing is copied.

    Raises
    ------
    ReferenceFault
        Also if there is another object, and ``overwrite`` is false. An object with the same bytes, which an
        earlier attempt may have written, is left as it is. So does a write count whose answer was lost, but
        whose bytes are there: it is a release, which the ledger must list.
    """
    bucket, path = open_bucket(reference.bucket), "/".join(reference.path)
    content = _Content(chunks)
    with _reported_as_faults("write"):
        try:
            _write(bucket, path, iter(content), media_type, draft, overwrite, proceed)
        except (BaseError, OSError) as error:
            if not (content.complete and _is_there(bucket, path, content)):
                raise
            _log.warning("the answer to a write was lost (%s), whose bytes are there", type(error).__name__)


class _Content:
    """Chunks that are sent, and their digest."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.digest = hashlib.sha256()
        self.complete = False
        """Whether all chunks have been taken."""

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.digest.update(chunk)
            yield chunk
        self.complete = True


def _is_there(bucket: S3Store, path: str, content: _Content) -> bool:
    """Whether the object has all of the content. Raises ReferenceFault: the storage does not say."""
    try:
        found = obstore.get(bucket, path).stream(min_chunk_size=_CHUNK)
        return _digest(found) == content.digest.digest()
    except FileNotFoundError:
        return False
    except BaseError:
        raise ReferenceFault(_UNKNOWN, temporary=True) from None


def _write(
    bucket: S3Store,
    path: str,
    chunks: Iterator[bytes],
    media_type: str,
    draft: str,
    overwrite: bool,
    proceed: Callable[[], None],
) -> None:
    if overwrite:
        _upload(bucket, path, chunks, media_type)
        return
    beginning = bytearray()
    for chunk in chunks:
        beginning += chunk
        if len(beginning) > _PART:
            _upload_new(bucket, path, chain([bytes(beginning)], chunks), media_type, draft, proceed)
            return
    _put_new(bucket, path, bytes(beginning), media_type)


def _put_new(bucket: S3Store, path: str, content: bytes, media_type: str) -> None:
    try:
        obstore.put(bucket, path, content, attributes={"Content-Type": media_type}, mode="create")
    except AlreadyExistsError:
        if _digest(obstore.get(bucket, path).stream(min_chunk_size=_CHUNK)) != _digest([content]):
            raise ReferenceFault(_THERE_ALREADY) from None


def _upload_new(
    bucket: S3Store,
    path: str,
    chunks: Iterable[bytes],
    media_type: str,
    draft: str,
    proceed: Callable[[], None],
) -> None:
    folder, slash, _ = path.rpartition("/")
    draft_path = f"{folder}{slash}.{draft}.part"
    _upload(bucket, draft_path, chunks, media_type)
    try:
        proceed()
        obstore.copy(bucket, draft_path, path, overwrite=False)
    except AlreadyExistsError:
        there, own = (obstore.get(bucket, each).stream(min_chunk_size=_CHUNK) for each in (path, draft_path))
        if _digest(there) != _digest(own):
            raise ReferenceFault(_THERE_ALREADY) from None
    finally:
        obstore.delete(bucket, draft_path)


def _upload(bucket: S3Store, path: str, chunks: Iterable[bytes], media_type: str) -> None:
    obstore.put(
        bucket,
        path,
        iter(chunks),
        attributes={"Content-Type": media_type},
        use_multipart=True,
        chunk_size=_PART,
        max_concurrency=_PARALLEL_PARTS,
    )


def _digest(chunks: Iterable[bytes | obstore.Bytes]) -> bytes:
    """Return the digest of a content, without regard to where its chunks begin."""
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
    return found.digest()


def write_once(reference: Reference, content: bytes, media_type: str) -> bool:
    """Write an object unless there is one; return whether it was written. Raises ReferenceFault.

    S3 requires ``Content-MD5`` for a bucket with object lock, which the library cannot send: it signs the
    request, and httpcore sends it.
    """
    headers = {
        "content-type": media_type,
        "content-length": str(len(content)),
        "content-md5": base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode(),
        "if-none-match": "*",
    }
    with _reported_as_faults("write"):
        url = obstore.sign(open_bucket(reference.bucket), "PUT", "/".join(reference.path), _SIGNED_FOR)
    httpcore = importlib.import_module("httpcore")  # imported late: it takes a tenth of a second
    try:
        limits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), _SECONDS)}
        status = httpcore.request("PUT", url, headers=headers, content=content, extensions=limits).status
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError):
        raise ReferenceFault("the storage was not reachable", temporary=True) from None
    if status in (401, 403):
        raise ReferenceFault("the storage does not let the service write it with its credentials")
    if status != _EXISTS and not 200 <= status < 300:
        raise ReferenceFault(f"the storage answered {status}", temporary=True)
    return bool(status != _EXISTS)


@lru_cache(maxsize=64)
def open_bucket(name: str) -> S3Store:
    """Return the client of a bucket, with the settings of the environment."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    client: ClientConfig = {
        "connect_timeout": "5s",
        "read_timeout": "60s",
        "timeout": "24h",  # for a whole object; the library's default is 30 s
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
    }
    retry: RetryConfig = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
    more: S3Config = {"copy_if_not_exists": "multipart"}
    if endpoint is not None:
        more["endpoint"] = endpoint
    return S3Store(name, config=more, client_options=client, retry_config=retry)


@contextmanager
def _reported_as_faults(operation: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ReferenceFault("there is no such object, or no such bucket") from None
    except (PermissionError, PermissionDeniedError, UnauthenticatedError):
        message = f"the storage does not let the service {operation} it with its credentials"
        raise ReferenceFault(message) from None
    except BaseError:
        done = "give" if operation == "read" else "take"
        message = f"the storage did not {done} it: it was not reachable, or it failed"
        raise ReferenceFault(message, temporary=True) from None
