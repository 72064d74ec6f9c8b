"""Read source tables from object storage or a share; `reference_writer` writes destinations."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Literal, TypeVar

from app.errors import InvalidRequest, ReferenceUnavailable, TooLarge
from app.file_threads import ThreadsByPlace
from app.references import (
    Reference,
    ReferenceFault,
    ReferenceRefused,
    parse_prefixes,
    parse_reference,
    prefix_of,
)
from app.settings import Settings
from app.store.reference_files import check_place, read_file

T = TypeVar("T")

THREADS = 4
"""References below one prefix that are read, or written, at the same time."""

_SILENT_SECONDS = 120.0
"""Time for which a call waits for an answer of the storage; the S3 client has shorter limits."""


class ReferenceReader:
    """Reads references that the settings allow."""

    def __init__(self, settings: Settings) -> None:
        self._most_bytes = settings.max_buffer_bytes
        # By prefix: a storage that does not respond must block neither other requests nor other storages.
        self._threads = ThreadsByPlace(THREADS, "reading")
        self._allowed = {
            "source": parse_prefixes(settings.source_prefixes),
            "destination": parse_prefixes(settings.destination_prefixes),
        }
        self._overwritable = parse_prefixes(settings.overwrite_prefixes)

    def find(
        self, text: str, role: Literal["source", "destination"], project: str | None
    ) -> tuple[Reference, Reference]:
        """Parse a reference and return it with the prefix that allows it to the project.

        Raises InvalidRequest.
        """
        setting = f"ROWVEIL_{role.upper()}_PREFIXES"
        if not self._allowed[role]:
            instead = (
                "upload the table in POST /v1/buffers" if role == "source" else "read GET /v1/jobs/{id}/rows"
            )
            raise InvalidRequest(
                f"this service takes no {role} by reference, because its administrator has not set "
                f"{setting}; {instead} instead"
            )
        try:
            reference = parse_reference(text)
        except ReferenceRefused as error:
            raise InvalidRequest(error.message) from None
        prefix = prefix_of(reference, self._allowed[role], project)
        if prefix is None:
            raise InvalidRequest(
                f"the reference matches none of the prefixes that {setting} allows the caller's project"
            )
        return reference, prefix

    def find_destination(
        self, text: str, project: str | None, overwrite: bool
    ) -> tuple[Reference, Reference]:
        """Parse a reference to write to, as `find`; ``overwrite``: what is there may be replaced."""
        reference, prefix = self.find(text, "destination", project)
        if overwrite and prefix_of(reference, self._overwritable, project) is None:
            raise InvalidRequest(
                "the reference matches none of the prefixes that ROWVEIL_OVERWRITE_PREFIXES allows the "
                "caller's project: leave 'overwrite' out, and write to a new name",
                "/overwrite",
            )
        return reference, prefix

    async def check_destination(self, text: str, project: str | None, overwrite: bool) -> None:
        """Raise InvalidRequest if the destination may not be written.

        Of a file, its folder must exist, and without ``overwrite`` the file must not.
        """
        reference, prefix = self.find_destination(text, project, overwrite)
        if reference.scheme == "file":
            await self._in_thread(prefix, partial(check_place, reference, prefix, overwrite))

    async def chunks(
        self, text: str, project: str | None, on_size: Callable[[int], None] = lambda size: None
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of the referenced object or file, which the project may read.

        ``on_size`` is called in a thread with the size in bytes before anything is read.

        Raises
        ------
        InvalidRequest
            The reference may not be read, or does not exist.
        ReferenceUnavailable
        TooLarge
        """
        reference, prefix = self.find(text, "source", project)

        def check_size(size: int) -> None:
            self._check_size(size)
            on_size(size)

        if reference.scheme == "s3":
            from app.store.reference_s3 import read_object  # imported late: needs the S3 client

            chunks = read_object(reference, check_size)
        else:
            chunks = read_file(reference, prefix, check_size)
        while chunk := await self._in_thread(prefix, partial(next, chunks, b"")):
            yield chunk

    def close(self) -> None:
        """Release the threads without waiting for reads in progress."""
        self._threads.close()

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            raise TooLarge(
                f"a table by reference takes at most {self._most_bytes} bytes (ROWVEIL_MAX_BUFFER_BYTES); "
                "split the table"
            )

    async def _in_thread(self, prefix: Reference, function: Callable[[], T]) -> T:
        """Call a function in a thread of the prefix. Raises InvalidRequest, ReferenceUnavailable."""
        try:
            async with asyncio.timeout(_SILENT_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads.of(prefix), function)
        except ReferenceFault as fault:
            raise (ReferenceUnavailable if fault.temporary else InvalidRequest)(fault.message) from None
        except TimeoutError:
            raise ReferenceUnavailable(
                f"the storage did not respond within {_SILENT_SECONDS:g} s; try again later, and if it "
                "lasts, let the operator check the folder"
            ) from None
