"""Roles in the certificates of a Dask cluster: who may be the scheduler, a worker, or a service.

A certificate says its role by a URI among its alternative names (RFC 5280, section 4.2.1.6), such as
``urn:rowveil:role:worker``. Otherwise any certificate of the authority, such as a stolen one of a worker,
could take the place of the scheduler and receive the keys and seeds of all tasks. Each process checks the
role of the other side right after the handshake, before any message.
"""

import ssl
from collections.abc import Collection
from typing import Any

from distributed import Security

SERVICE, WORKER, SCHEDULER = "service", "worker", "scheduler"

ROLES = (SERVICE, WORKER, SCHEDULER)

ROLE_URI = "urn:rowveil:role:"
"""Beginning of the alternative name that says a role."""

_CONNECTS_TO = {SERVICE: {SCHEDULER}, WORKER: {SCHEDULER, WORKER}, SCHEDULER: {WORKER}}

_ACCEPTS: dict[str, set[str]] = {
    SERVICE: set(),
    WORKER: {SERVICE, SCHEDULER, WORKER},
    SCHEDULER: {SERVICE, WORKER},
}


class CheckedSecurity(Security):
    """TLS configuration whose connections end unless the other side's certificate has an allowed role."""

    def __init__(self, own_role: str, **files: Any) -> None:
        """Configure TLS for a process with ``own_role``; ``files`` are as in `distributed.Security`."""
        super().__init__(require_encryption=True, **files)  # type: ignore[no-untyped-call]
        self.own_role = own_role

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """Return the arguments of outgoing connections."""
        given = super().get_connection_args(role)  # type: ignore[no-untyped-call]
        return _checked(given, _CONNECTS_TO[self.own_role])

    def get_listen_args(self, role: str) -> dict[str, Any]:
        """Return the arguments of incoming connections."""
        given = super().get_listen_args(role)  # type: ignore[no-untyped-call]
        return _checked(given, _ACCEPTS[self.own_role])


def roles_of(certificate: dict[str, Any] | None) -> set[str]:
    """Return the roles in a certificate, in the form of `ssl.SSLSocket.getpeercert`."""
    names = (certificate or {}).get("subjectAltName", ())
    return {
        value.removeprefix(ROLE_URI) for kind, value in names if kind == "URI" and value.startswith(ROLE_URI)
    }


def _checked(given: dict[str, Any], allowed: Collection[str]) -> dict[str, Any]:
    context = given["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    context.sslsocket_class = _socket_class(frozenset(allowed))
    return given


def _socket_class(allowed: frozenset[str]) -> type[ssl.SSLSocket]:
    class RoleCheckedSocket(ssl.SSLSocket):
        """Socket whose handshake fails unless the other side has an allowed role."""

        def do_handshake(self, block: bool = False) -> None:
            """Perform the handshake and check the role. Raises ssl.SSLCertVerificationError."""
            super().do_handshake(block)
            found = roles_of(self.getpeercert())
            if not found & allowed:
                raise ssl.SSLCertVerificationError(
                    ssl.SSL_ERROR_SSL,
                    f"the certificate has the role {', '.join(sorted(found)) or 'none'}, and not "
                    f"{' or '.join(sorted(allowed)) or 'any'}",
                )

    return RoleCheckedSocket
