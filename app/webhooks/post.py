"""Post a message to a webhook, by a connection to a checked address only.

Only a delivery imports this module, and httpcore with it.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

import httpcore
from httpcore import AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream

from app.webhooks.addresses import Address, AddressRefused, Reach


class Sender:
    """Sends messages by HTTP, with trust in the authorities that the system trusts at its creation."""

    def __init__(self, reach: Reach, seconds: float) -> None:
        self._reach = reach
        self._seconds = seconds
        self._trusted = ssl.create_default_context()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int | None:
        """Post the message and return the status of the response; None if there is no response.

        Parameters
        ----------
        url : str
            Checked URL of the webhook.
        headers : mapping
            All headers, with the content's length.
        body : bytes

        Raises
        ------
        AddressRefused
        """
        limits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._seconds)}
        try:
            async with (
                asyncio.timeout(self._seconds),  # of the whole exchange
                httpcore.AsyncConnectionPool(
                    ssl_context=self._trusted, network_backend=CheckedNetwork(self._reach)
                ) as pool,
                pool.stream(
                    "POST", url, headers=list(headers.items()), content=body, extensions=limits
                ) as response,
            ):
                return response.status
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
            TimeoutError,
            OSError,
        ):
            return None


class CheckedNetwork(AsyncNetworkBackend):
    """Network backend of httpcore that connects to checked addresses only."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._backend = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to the first of the host's addresses that responds.

        Raises AddressRefused (any of the addresses is not allowed), httpcore.ConnectError.
        """
        failed: Exception = httpcore.ConnectError("the name has no address")
        for address in await self._addresses(host, port):
            try:
                return await self._backend.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Refuse: a webhook is never a Unix socket."""
        raise AddressRefused("a webhook is reached by its name or address")

    async def sleep(self, seconds: float) -> None:
        """Sleep, as the interface of httpcore requires."""
        await self._backend.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise httpcore.ConnectError("the name is not known") from None
        addresses = [ip_address(info[4][0]) for info in infos]
        for address in addresses:
            self._reach.check_address(address)
        return addresses
