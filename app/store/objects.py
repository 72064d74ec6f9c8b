"""Objects of a bucket by reference, read and written as a stream over S3's own protocol.

Endpoint, region and credentials are those of the service's environment, in AWS's usual variables
(``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, ...), or of the machine's or container's role.
They are looked up when a bucket is first used, and never written down. What the library says of an error is
not passed on: it quotes addresses.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from app.references import Reference, ReferenceFault

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_PIECE = 2**20
_PART = 16 * 2**20  # of 10,000 at most: 160 GB
_PARTS_AT_ONCE = 2


def read_object(reference: Reference, check_size: Callable[[int], None]) -> Iterator[bytes]:
    """The object's content piece by piece, of one version of it. Raises ReferenceFault."""
    with _told("read"):
        found = obstore.get(_bucket(reference.bucket), "/".join(reference.path))
        check_size(found.meta["size"])
        for piece in found.stream(min_chunk_size=_PIECE):
            yield bytes(piece)


def write_object(reference: Reference, chunks: Iterable[bytes], media_type: str) -> None:
    """Make the object of the chunks, once all of them have come; an error on the way leaves none.

    Raises
    ------
    ReferenceFault
    """
    with _told("write"):
        obstore.put(
            _bucket(reference.bucket),
            "/".join(reference.path),
            iter(chunks),
            attributes={"Content-Type": media_type},
            use_multipart=True,
            chunk_size=_PART,
            max_concurrency=_PARTS_AT_ONCE,
        )


@lru_cache(maxsize=64)
def _bucket(name: str) -> S3Store:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    client: ClientConfig = {
        "connect_timeout": "5s",
        "read_timeout": "60s",
        "timeout": "24h",  # the library's 30 s are of a whole object
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
    }
    retry: RetryConfig = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
    if endpoint is None:
        return S3Store(name, client_options=client, retry_config=retry)
    return S3Store(name, endpoint=endpoint, client_options=client, retry_config=retry)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ReferenceFault("there is no such object, or no such bucket") from None
    except (PermissionError, PermissionDeniedError, UnauthenticatedError):
        raise ReferenceFault(f"the storage does not let the service {what} it with its credentials") from None
    except BaseError:
        done = "give" if what == "read" else "take"
        message = f"the storage did not {done} it: it cannot be reached, or it failed"
        raise ReferenceFault(message, temporary=True) from None
