"""Addresses that a webhook may reach: public ones, and those of networks that a setting names.

A host name is resolved for each connection, all its addresses are checked, and the connection is made to a
checked address. So a later change of the name's addresses (DNS rebinding) has no effect. TLS still checks the
certificate against the name.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

MOST_CHARACTERS = 2048
"""Longest URL of a webhook."""

Address = IPv4Address | IPv6Address

_Network = IPv4Network | IPv6Network

# IANA's special-purpose registries (RFC 6890 and later): the networks that are not globally reachable. They
# are listed here, because `ip_address.is_private` differs between Python versions.
_NOT_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
        "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/3",
    )
)  # fmt: skip

_PUBLIC_6 = ip_network("2000::/3")

_NOT_PUBLIC_6 = tuple(ip_network(network) for network in ("2001::/23", "2001:db8::/32", "3fff::/20"))

_NAT64 = ip_network("64:ff9b::/96")


class AddressRefused(Exception):
    """The service may not reach the webhook's address."""


class CertificateRefused(Exception):
    """The receiver's certificate does not verify; the message gives the reason without quoting it."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Addresses that webhooks may reach in addition to the public internet."""

    networks: tuple[_Network, ...] = ()
    insecure: bool = False
    """Whether ``http://`` is allowed."""

    def check_url(self, url: str) -> None:
        """Check a webhook's URL. Raises AddressRefused, whose message quotes nothing of the URL."""
        if (
            len(url) > MOST_CHARACTERS
            or not url.isascii()
            or not url.isprintable()
            or set(url) & set(' \\"<>')
        ):
            raise AddressRefused(
                f"a webhook's url is at most {MOST_CHARACTERS} characters of ASCII without spaces; a name in "
                "other letters goes in its xn-- form"
            )
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise AddressRefused("the webhook's url cannot be parsed") from None
        schemes = ("https", "http") if self.insecure else ("https",)
        if parts.scheme not in schemes or not host or port == 0:
            raise AddressRefused("a webhook's url is like https://hooks.example.com/rowveil")
        if parts.username is not None or parts.fragment:
            raise AddressRefused("a webhook's url has no user, password or fragment")
        self._check_host(host)

    def check_address(self, address: Address) -> None:
        """Check an IP address before a connection to it. Raises AddressRefused."""
        if not self._allows(address):
            raise AddressRefused(
                "the webhook's address is not public; ROWVEIL_WEBHOOK_NETWORKS names others that are allowed"
            )

    def _check_host(self, host: str) -> None:
        try:
            literal = ip_address(host)
        except ValueError:
            last = host.rstrip(".").rpartition(".")[2]
            if last.isdigit() or last.startswith("0x"):  # 127.1, 2130706433: resolvers accept them
                raise AddressRefused("an address in a webhook's url is written in full") from None
            if last == "localhost":  # always the loopback address (RFC 6761, 6.3)
                self.check_address(ip_address("127.0.0.1"))
            return
        self.check_address(literal)

    def _allows(self, address: Address) -> bool:
        if any(address in network for network in self.networks):
            return True
        if isinstance(address, IPv4Address):
            return not any(address in network for network in _NOT_PUBLIC)
        embedded = _embedded_ipv4(address)
        if embedded is not None:
            return self._allows(embedded)
        return (
            address.scope_id is None
            and address in _PUBLIC_6
            and not any(address in network for network in _NOT_PUBLIC_6)
        )


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address embeds: mapped, 6to4 or NAT64; None if it embeds none."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
