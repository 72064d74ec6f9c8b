"""Objects of a bucket by reference, streamed over the S3 protocol.

Endpoint, region and credentials come from the service's environment, in AWS's usual variables
(``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, ...), or from the role of the machine or
container. They are read when a bucket is first used, and never stored. Error messages of the library are not
passed on, because they quote addresses.
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


_CHUNK = 2**20

_PART = 16 * 2**20  # S3 allows 10,000 parts: at most 160 GB

_PARALLEL_PARTS = 2


def read_object(reference: Reference, check_size: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the content of one version of the object in chunks. Raises ReferenceFault."""
    with _reported_as_faults("read"):
        response = obstore.get(_bucket(reference.bucket), "/".join(reference.path))
        check_size(response.meta["size"])
        for chunk in response.stream(min_chunk_size=_CHUNK):
            yield bytes(chunk)


def write_object(reference: Reference, chunks: Iterable[bytes], media_type: str) -> None:
    """Write the chunks as an object, which appears when all are written; an error leaves no object.

    Raises
    ------
    ReferenceFault
    """
    with _reported_as_faults("write"):
        obstore.put(
            _bucket(reference.bucket),
            "/".join(reference.path),
            iter(chunks),
            attributes={"Content-Type": media_type},
            use_multipart=True,
            chunk_size=_PART,
            max_concurrency=_PARALLEL_PARTS,
        )


@lru_cache(maxsize=64)
def _bucket(name: str) -> S3Store:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    client: ClientConfig = {
        "connect_timeout": "5s",
        "read_timeout": "60s",
        "timeout": "24h",  # for a whole object; the library's default is 30 s
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
    }
    retry: RetryConfig = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
    if endpoint is None:
        return S3Store(name, client_options=client, retry_config=retry)
    return S3Store(name, endpoint=endpoint, client_options=client, retry_config=retry)


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
