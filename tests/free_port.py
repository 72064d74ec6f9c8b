"""Port for a server that a test starts again, or whose address it needs before the server runs."""

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_FIRST = 10_000


def free_port() -> int:
    """Return a free port below those that the kernel assigns.

    The kernel cannot assign it to a connection or to the server of another test while nobody listens there.
    """
    below = int(_RANGE.read_text().split()[0])
    while True:
        port = random.randrange(_FIRST, below)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
