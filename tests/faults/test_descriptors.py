"""A service without a free file descriptor: connections wait, and what runs goes on."""

import os
import resource
import select
import signal
import socket
from pathlib import Path

import pytest

from tests.faults.replicas import Replica, until

pytestmark = pytest.mark.faults

ASKED = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
SHORTAGE = "connections wait, because none can be accepted: Too many open files"


def free_descriptor(pid: int) -> int:
    """The descriptor that the next file of a process gets."""
    return min(set(range(10_000)).difference(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()))


def processor_seconds(pid: int) -> float:
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def test_connections_wait_while_no_descriptor_is_free(tmp_path: Path) -> None:
    """The event loop tried 2,048 times a second, with as many lines in the log, and answered nobody else."""
    replica = Replica("two", tmp_path / "home", f"sqlite:///{tmp_path}/home/rowveil.db", None)
    replica.start()
    try:
        until("it is up", lambda: replica.up)
        assert replica.client.get("/livez").status_code == 200  # a connection that stays open
        address = replica.client.base_url
        limits = resource.prlimit(replica.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(replica.pid, resource.RLIMIT_NOFILE, (free_descriptor(replica.pid), limits[1]))
        with socket.create_connection((address.host, address.port)) as waiting:
            waiting.sendall(ASKED)
            until("the log says so", lambda: SHORTAGE in replica.log.read_text())
            before = processor_seconds(replica.pid)
            assert not select.select([waiting], [], [], 3.0)[0]
            assert processor_seconds(replica.pid) - before < 1.0
            assert replica.client.get("/livez").status_code == 200
            resource.prlimit(replica.pid, resource.RLIMIT_NOFILE, limits)
            assert waiting.recv(100).startswith(b"HTTP/1.1 200")
        replica.end(signal.SIGTERM)
    finally:
        replica.close()
    log = replica.log.read_text()
    assert log.count(SHORTAGE) == 1
    assert "socket.accept" not in log
