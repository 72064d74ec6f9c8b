"""Read source tables from object storage or a share; `reference_writer` writes destinations."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, TypeVar

from app.errors import InvalidRequest, ReferenceUnavailable, TooLarge
from app.references import (
    Reference,
    ReferenceFault,
    ReferenceRefused,
    parse_prefixes,
    parse_reference,
    prefix_of,
)
from app.settings import Settings
from app.store.reference_files import check_folder, read_file

T = TypeVar("T")

_THREADS = 4
"""References that are read at the same time."""


class ReferenceReader:
    """Reads references that the settings allow."""

    def __init__(self, settings: Settings) -> None:
        self._most_bytes = settings.max_buffer_bytes
        # Separate threads: a storage that does not respond must not block other requests.
        self._threads = ThreadPoolExecutor(_THREADS, "reading")
        self._allowed = {
            "source": parse_prefixes(settings.source_prefixes),
            "destination": parse_prefixes(settings.destination_prefixes),
        }

    def find(self, text: str, role: Literal["source", "destination"]) -> tuple[Reference, Reference]:
        """Parse a reference and return it with the prefix that allows it. Raises InvalidRequest."""
        setting = f"ROWVEIL_{role.upper()}_PREFIXES"
        if not self._allowed[role]:
            raise InvalidRequest(f"this service takes no {role} by reference: {setting} is not set")
        try:
            reference = parse_reference(text)
        except ReferenceRefused as error:
            raise InvalidRequest(error.message) from None
        prefix = prefix_of(reference, self._allowed[role])
        if prefix is None:
            raise InvalidRequest(f"the reference matches none of the prefixes allowed by {setting}")
        return reference, prefix

    async def check_destination(self, text: str) -> None:
        """Raise InvalidRequest if no destination may be written, or if its folder does not exist."""
        reference, prefix = self.find(text, "destination")
        if reference.scheme == "file":
            await self._in_thread(partial(check_folder, reference, prefix))

    async def chunks(self, text: str) -> AsyncIterator[bytes]:
        """Yield the bytes of the referenced object or file.

        Raises
        ------
        InvalidRequest
            The reference may not be read, or does not exist.
        ReferenceUnavailable
        TooLarge
        """
        reference, prefix = self.find(text, "source")
        if reference.scheme == "s3":
            from app.store.reference_s3 import read_object  # imported late: needs the S3 client

            chunks = read_object(reference, self._check_size)
        else:
            chunks = read_file(reference, prefix, self._check_size)
        while chunk := await self._in_thread(partial(next, chunks, b"")):
            yield chunk

    def close(self) -> None:
        """Release the threads without waiting for reads in progress."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            raise TooLarge(
                f"a table by reference takes at most {self._most_bytes} bytes (ROWVEIL_MAX_BUFFER_BYTES); "
                "split the table"
            )

    async def _in_thread(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        except ReferenceFault as fault:
            raise (ReferenceUnavailable if fault.temporary else InvalidRequest)(fault.message) from None
