"""Tables by reference: which may be named, and how one is read. How one is written: `app.jobs.sending`."""

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
from app.store.folders import check_folder, read_file
from app.store.objects import read_object

T = TypeVar("T")

_AT_ONCE = 4


class References:
    """What may be named by reference."""

    def __init__(self, settings: Settings) -> None:
        self._most_bytes = settings.max_buffer_bytes
        # threads of its own: a storage that does not answer holds up nobody else
        self._threads = ThreadPoolExecutor(_AT_ONCE, "reading")
        self._allowed = {
            "source": parse_prefixes(settings.source_prefixes),
            "destination": parse_prefixes(settings.destination_prefixes),
        }

    def find(self, text: str, role: Literal["source", "destination"]) -> tuple[Reference, Reference]:
        """The reference, and the prefix that allows it. Raises InvalidRequest."""
        setting = f"ROWVEIL_{role.upper()}_PREFIXES"
        if not self._allowed[role]:
            raise InvalidRequest(f"this service takes no {role} by reference: {setting} is not set")
        try:
            reference = parse_reference(text)
        except ReferenceRefused as error:
            raise InvalidRequest(error.message) from None
        prefix = prefix_of(reference, self._allowed[role])
        if prefix is None:
            raise InvalidRequest(f"the reference lies below none of the prefixes that {setting} allows")
        return reference, prefix

    async def check_destination(self, text: str) -> None:
        """Raise InvalidRequest where no destination may be written, or its folder is not there."""
        reference, prefix = self.find(text, "destination")
        if reference.scheme == "file":
            await self._in_thread(partial(check_folder, reference, prefix))

    async def chunks(self, text: str) -> AsyncIterator[bytes]:
        """The bytes that the reference names.

        Raises
        ------
        InvalidRequest (it may not be read, or is not there), ReferenceUnavailable, TooLarge
        """
        reference, prefix = self.find(text, "source")
        if reference.scheme == "s3":
            pieces = read_object(reference, self._check_size)
        else:
            pieces = read_file(reference, prefix, self._check_size)
        while piece := await self._in_thread(partial(next, pieces, b"")):
            yield piece

    def close(self) -> None:
        """Let go of the threads; what they still read is of no use to anybody."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            raise TooLarge(
                f"a table by reference takes at most {self._most_bytes} bytes (ROWVEIL_MAX_BUFFER_BYTES); "
                "name the table in parts"
            )

    async def _in_thread(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        except ReferenceFault as fault:
            raise (ReferenceUnavailable if fault.temporary else InvalidRequest)(fault.message) from None
