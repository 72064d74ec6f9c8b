"""Addresses that a webhook may reach, and signatures of its messages."""

import asyncio
import base64
import hashlib
import hmac
import socket
import threading
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any

import httpcore
import pytest
from httpcore import AnyIOBackend

from app.webhooks.addresses import AddressRefused, Reach
from app.webhooks.delivery import seconds_to_next
from app.webhooks.messages import SecretUnusable, key_of_secret, signed_headers
from app.webhooks.post import MOST_LOOK_UPS, CheckedNetwork, Resolver, Sender

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.215.14", "2606:4700::1111", "2a00:1450:4001::8a", "64:ff9b::808:808"]
NOT_PUBLIC = [
    "0.0.0.1", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.3", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::",
    "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%1", "fec0::1", "ff02::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_reached(address: str) -> None:
    Reach().check_address(ip_address(address))
    shown = f"[{address}]" if ":" in address else address
    Reach().check_url(f"https://{shown}/hook?a=1")


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    """Loopback, private, shared, link-local, multicast, reserved, of documents; also inside others."""
    with pytest.raises(AddressRefused, match="not public"):
        Reach().check_address(ip_address(address))
    shown = f"[{address}]" if ":" in address else address
    with pytest.raises(AddressRefused, match="not public"):
        Reach().check_url(f"https://{shown}:8443/")


def test_a_named_network_is_reached_and_no_other() -> None:
    reach = Reach((ip_network("10.20.0.0/16"), ip_network("fd00:12::/32")))
    for address in ("10.20.3.4", "fd00:12::9", "::ffff:10.20.3.4"):
        reach.check_address(ip_address(address))
    for address in ("10.21.0.1", "127.0.0.1", "fd00:13::1", "::ffff:10.21.0.1"):
        with pytest.raises(AddressRefused):
            reach.check_address(ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/", "ftp://hooks.example.com/", "hooks.example.com", "https:///path", "https://",
        "https://user:secret@hooks.example.com/", "https://user@1.1.1.1/", "https://hooks.example.com/#part",
        "https://localhost/", "https://LOCALHOST./", "https://a.localhost/", "https://127.1/",
        "https://2130706433/", "https://0x7f000001/", "https://0x7f.0.0.1/", "https://017700000001/",
        "https://127.0.0.1./", "https://hooks.example.com:99999/", "https://hooks.example.com:0/",
        "https://[::1/", "https://hooks.example.com/\r\nx: y", "https://hooks.example.com/a b",
        "https://1.1.1.1\\@127.0.0.1/", "https://h\u00f6oks.example.com/", "https://\uff11\uff12\uff17.0.0.1/",
        "https://hooks.example.com/" + "a" * 2048,
    ],
)  # fmt: skip
def test_urls_that_are_no_public_https_address_are_refused(url: str) -> None:
    """And the message quotes nothing of them."""
    with pytest.raises(AddressRefused) as caught:
        Reach().check_url(url)
    assert "secret" not in str(caught.value)


def test_http_is_for_those_who_ask_for_it() -> None:
    Reach(insecure=True).check_url("http://1.1.1.1/")
    with pytest.raises(AddressRefused):
        Reach(insecure=True).check_url("http://127.0.0.1/")


def connected(monkeypatch: pytest.MonkeyPatch, reach: Reach, *answers: list[str]) -> Any:
    """Connect to a name that resolves to these addresses, one list for each look-up."""
    left = list(answers)

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert host == "hooks.example.test"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in left.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def connect(port: int) -> Any:
        stream = await CheckedNetwork(reach, Resolver(), "ada").connect_tcp("hooks.example.test", port, 5)
        peer = stream.get_extra_info("server_addr")
        await stream.aclose()
        return peer

    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = asyncio.run(connect(server.getsockname()[1]))
    assert left == []
    return peer


def test_a_name_is_looked_up_once_and_the_checked_address_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second look-up, which is where a rebinding name would answer otherwise, never comes."""
    reach = Reach((ip_network("127.0.0.0/8"),))
    assert connected(monkeypatch, reach, ["127.0.0.1"])[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"]]
)
def test_a_name_with_any_address_that_is_not_public_is_refused(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    """Nothing is connected to, not even the public one of two."""
    with pytest.raises(AddressRefused):
        connected(monkeypatch, Reach(), addresses)


def test_a_name_that_is_not_known_fails_as_any_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any, **__: Any) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(httpcore.ConnectError, match="not known"):
        asyncio.run(CheckedNetwork(Reach(), Resolver(), "ada").connect_tcp("nowhere.test", 443))


def own_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def posted(host: str, path: str, seconds: float = 5.0) -> tuple[int | None, str, str]:
    """Post to a server on this machine; return status, request line and header ``Host``, without its port."""
    reach = Reach((ip_network("127.0.0.0/8"), ip_network("::1/128")), insecure=True)
    received = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        received = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async def post() -> tuple[int | None, int]:
        own = "::1" if host == "[::1]" else "127.0.0.1"
        async with await asyncio.start_server(answer, own, 0) as server:
            port = server.sockets[0].getsockname()[1]
            sender = Sender(reach, seconds)
            status = await sender.post(f"http://{host}:{port}{path}", {"content-length": "0"}, b"", "ada")
            sender.close()
            return status, port

    status, port = asyncio.run(post())
    line, *headers = received.decode().split("\r\n")
    named = dict(header.lower().split(": ", 1) for header in headers if header)
    return status, line, named.get("host", "").removesuffix(f":{port}")


@pytest.mark.parametrize("path", ["/hook;v=2/a;b=c?x=1;y", "/?x=%2F", "/%7Eada;/"])
def test_the_path_is_sent_as_the_caller_wrote_it(path: str) -> None:
    assert posted("127.0.0.1", path) == (204, f"POST {path} HTTP/1.1", "127.0.0.1")


@pytest.mark.skipif(not own_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address_is_in_brackets_in_the_header_host() -> None:
    """Servers such as nginx answer 400 without them."""
    assert posted("[::1]", "/hook") == (204, "POST /hook HTTP/1.1", "[::1]")


def test_an_address_that_drops_packets_leaves_time_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of one family, such as IPv6 behind a firewall for IPv4, may all drop them."""
    tried = []
    connect = AnyIOBackend.connect_tcp

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        addresses = ["::1", "::1", "::1", "127.0.0.1"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    async def connect_tcp(self: AnyIOBackend, host: str, port: int, timeout: float, *rest: Any) -> Any:
        tried.append(host)
        if host == "::1":
            await asyncio.sleep(timeout)
            raise httpcore.ConnectTimeout
        return await connect(self, host, port, timeout, *rest)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(AnyIOBackend, "connect_tcp", connect_tcp)
    assert posted("hooks.example.test", "/", 0.5)[0] == 204
    assert tried == ["::1", "127.0.0.1"]


def test_names_that_are_resolved_slowly_hold_up_no_other_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-ups of abandoned attempts count until they end, and the loop's own threads stay free."""
    answered = threading.Event()
    started = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        started.append(threading.current_thread().name.rpartition("_")[0])
        assert host == "fast.test" or answered.wait(60)
        return [host]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def run() -> None:
        resolver = Resolver()
        for number in range(MOST_LOOK_UPS):
            slow = asyncio.ensure_future(resolver.resolve(f"slow{number}.test", 443, "ada"))
            while len(started) <= number:
                await asyncio.sleep(0.001)
            slow.cancel()
        with pytest.raises(httpcore.ConnectError, match="have not ended"):
            await resolver.resolve("fast.test", 443, "ada")
        assert await resolver.resolve("fast.test", 443, "ben") == ["fast.test"]
        answered.set()
        while resolver._active:
            await asyncio.sleep(0.001)
        assert await resolver.resolve("fast.test", 443, "ada") == ["fast.test"]
        resolver.close()

    asyncio.run(run())
    assert set(started) == {"rowveil-names"}


def test_names_of_several_owners_that_are_not_resolved_hold_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Look-ups that are abandoned while a name server is silent, for four times the time of an attempt."""
    answered = threading.Event()

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "fast.test" or answered.wait(60)
        return [host]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def run() -> list[Any]:
        resolver = Resolver()
        slow = [
            asyncio.ensure_future(resolver.resolve("slow.test", 443, f"owner {number // MOST_LOOK_UPS}"))
            for number in range(32)
        ]
        await asyncio.sleep(0)
        try:
            return await asyncio.wait_for(resolver.resolve("fast.test", 443, "ada"), 5)
        finally:
            answered.set()
            await asyncio.gather(*slow)
            resolver.close()

    assert asyncio.run(run()) == ["fast.test"]


def test_the_signature_is_that_of_the_standard() -> None:
    """Its own example: https://www.standardwebhooks.com, and the naive reading of it."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    moment = datetime.fromtimestamp(1614265330, UTC)
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", moment, body, secret)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    signed = b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330." + body
    key = base64.b64decode(secret[6:])
    naive = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{naive}"


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_ä"]
)
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(SecretUnusable, match="openssl rand -base64 32"):
        key_of_secret(secret)


def test_attempts_lie_ever_further_apart_up_to_a_bound() -> None:
    waits = [seconds_to_next(attempt, 5.0) for attempt in range(1, 30)]
    for attempt, wait in enumerate(waits, 1):
        base = min(6 * 3600.0, 5.0 * 3 ** (attempt - 1))
        assert 0.75 * base <= wait <= 1.25 * base
    assert len(set(waits)) == len(waits)  # jitter
