"""Messages between the supervisor and an API process: a kind in one byte, and a text.

They travel over a pair of sockets that keeps the limits of messages and passes on open files. No message is
waited for. A message that finds a full socket is not sent. It is sent later, or its receiver finds the change
in the database within half a second.
"""

import socket
from enum import Enum

MOST_BYTES = 256
"""Most bytes of a message."""


class Kind(Enum):
    """Kind of a message, with its direction."""

    CONNECTION = b"c"
    """Connection of a client, as an open file; to an API process."""
    OPENED = b"o"
    """Report to the supervisor that the stores are open. The text is the id of the process's lease."""
    SERVING = b"s"
    """Report to the supervisor that the process takes connections."""
    READY = b"r"
    """Report to the supervisor that a worker is up."""
    CLOSED = b"-"
    """Report to the supervisor of closed connections. The text is their number since the last such report."""
    JOB_QUEUED = b"q"
    """Hint to all other processes that a job waits for a worker."""
    JOB_ENDED = b"e"
    """Hint to all other processes that the job whose id is the text has ended."""
    CANCEL_REQUESTED = b"x"
    """Hint to all other processes that the database has a request to cancel a job."""


TO_OTHERS = frozenset({Kind.JOB_QUEUED, Kind.JOB_ENDED, Kind.CANCEL_REQUESTED})
"""Messages that the supervisor passes on to all other processes."""


def new_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, which never block. Raises OSError."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setblocking(False)
    return pair


def send(to: socket.socket, kind: Kind, text: str = "", files: tuple[int, ...] = ()) -> bool:
    """Send a message; return whether the other end has room for it, and is open."""
    message = kind.value + text.encode()
    try:
        socket.send_fds(to, [message], files)
    except OSError:
        return False
    return True


def receive(by: socket.socket) -> tuple[Kind, str, list[int]] | None:
    """Return the next message with its open files; None if the other end is closed.

    Raises BlockingIOError: there is none yet.
    """
    try:
        message, files, _, _ = socket.recv_fds(by, MOST_BYTES, 1)
    except ConnectionResetError:
        return None
    return (Kind(message[:1]), message[1:].decode(), files) if message else None
