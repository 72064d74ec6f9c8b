"""Post a message to a webhook, by a connection to a checked address only.

Only a delivery imports this module, and httpcore with it.
"""

import asyncio
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

import httpcore
from httpcore import AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream

from app.webhooks.addresses import Address, AddressRefused, CertificateRefused, Reach

_LOOK_UPS = 64
"""Maximum number of host names that are resolved at the same time.

A look-up without an answer may last several times as long as an attempt, and attempts begin meanwhile: more
threads than attempts at the same time, so that the abandoned look-ups of several owners leave some free.
"""

MOST_LOOK_UPS = 2
"""Host names of one owner that are resolved at the same time."""


_UNTRUSTED = "is not signed by an authority that the service trusts"

_CERTIFICATE_FAULTS = {
    9: "is not valid yet",
    10: "has expired",
    62: "is of another name",
    64: "is of another address",
}
"""Verification error of OpenSSL (``X509_V_ERR_...``) -> its name. OpenSSL's own text has the host's name."""


class Resolver:
    """Resolves host names in threads of its own.

    A name server that does not respond blocks its thread longer than an attempt lasts. Other work must not
    wait for that thread, and no owner may block the threads of all others.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOK_UPS, "rowveil-names")
        self._lock = threading.Lock()
        self._active: Counter[str] = Counter()

    async def resolve(self, host: str, port: int, owner: str) -> list[Any]:
        """Return the addresses of a name as `socket.getaddrinfo` does.

        Raises OSError, UnicodeError, httpcore.ConnectError (too many names of the owner are being resolved).
        """
        with self._lock:
            if self._active[owner] >= MOST_LOOK_UPS:
                raise httpcore.ConnectError("the owner's former look-ups have not ended")
            self._active[owner] += 1
        look_up = self._threads.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        look_up.add_done_callback(partial(self._ended, owner))
        return await asyncio.wrap_future(look_up)

    def close(self) -> None:
        """Release the threads without waiting for look-ups."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, owner: str, _: Any) -> None:
        with self._lock:
            self._active[owner] -= 1
            if not self._active[owner]:
                del self._active[owner]


class Sender:
    """Sends messages by HTTP, with trust in the authorities that the system trusts at its creation."""

    def __init__(self, reach: Reach, seconds: float) -> None:
        self._reach = reach
        self._seconds = seconds
        self._resolver = Resolver()
        self._trusted = ssl.create_default_context()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, owner: str) -> int | None:
        """Post the message and return the status of the response; None if there is no response.

        Parameters
        ----------
        url : str
            Checked URL of the webhook.
        headers : mapping
            All headers, with the content's length.
        body : bytes
        owner : str
            Owner of the job, to whom the quota of look-ups applies.

        Raises
        ------
        AddressRefused, CertificateRefused
        """
        address, host = _url_and_host(url)
        limits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._seconds)}
        try:
            async with (
                asyncio.timeout(self._seconds),  # of the whole exchange
                httpcore.AsyncConnectionPool(
                    ssl_context=self._trusted,
                    network_backend=CheckedNetwork(self._reach, self._resolver, owner),
                ) as pool,
                pool.stream(
                    "POST",
                    address,
                    headers=[("host", host), *headers.items()],
                    content=body,
                    extensions=limits,
                ) as response,
            ):
                return response.status
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
            TimeoutError,
            OSError,
        ) as error:
            cause = error.__context__  # httpcore's pool drops `__cause__`
            if isinstance(cause, ssl.SSLCertVerificationError):
                fault = _CERTIFICATE_FAULTS.get(cause.verify_code, _UNTRUSTED)
                raise CertificateRefused(f"the receiver's certificate {fault}") from None
            return None

    def close(self) -> None:
        """Release the threads that resolve names."""
        self._resolver.close()


class CheckedNetwork(AsyncNetworkBackend):
    """Network backend of httpcore that connects to checked addresses only."""

    def __init__(self, reach: Reach, resolver: Resolver, owner: str) -> None:
        self._reach = reach
        self._resolver = resolver
        self._owner = owner
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

        Each address but the last has a share of the time only: one that drops packets, such as any of IPv6
        behind a firewall for IPv4, leaves time for the next one and for the exchange.

        Raises AddressRefused (any of the addresses is not allowed), httpcore.ConnectError,
        httpcore.ConnectTimeout.
        """
        failed: Exception = httpcore.ConnectError("the name has no address")
        addresses = _families_in_turn(await self._addresses(host, port))
        share = None if timeout is None else timeout / (len(addresses) + 1)
        for number, address in enumerate(addresses, 1):
            limit = timeout if number == len(addresses) else share
            try:
                return await self._backend.connect_tcp(
                    str(address), port, limit, local_address, socket_options
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
        try:
            infos = await self._resolver.resolve(host, port, self._owner)
        except (OSError, UnicodeError):
            raise httpcore.ConnectError("the name is not known") from None
        addresses = [ip_address(info[4][0]) for info in infos]
        for address in addresses:
            self._reach.check_address(address)
        return addresses


def _url_and_host(url: str) -> tuple[httpcore.URL, str]:
    """Return the URL and the header ``Host`` of a request.

    httpcore's own parser drops parameters of the path (``/hook;v=2``), and its ``Host`` has an IPv6 address
    without brackets, which servers refuse with 400 (RFC 9112, 3.2).
    """
    parts = urlsplit(url)
    name, port = parts.hostname or "", parts.port
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = f"[{name}]" if ":" in name else name
    if port is not None and port != {"http": 80, "https": 443}.get(parts.scheme):
        host = f"{host}:{port}"
    return httpcore.URL(scheme=parts.scheme, host=name, port=port, target=target), host


def _families_in_turn(addresses: list[Address]) -> list[Address]:
    """Return the addresses of IPv4 and IPv6 in turn, beginning with the family of the first address.

    All addresses of one family may be unreachable (RFC 8305, 4).
    """
    first = [address for address in addresses if address.version == addresses[0].version]
    others = [address for address in addresses if address.version != addresses[0].version]
    pairs = zip_longest(first, others)
    return [address for pair in pairs for address in pair if address is not None]
