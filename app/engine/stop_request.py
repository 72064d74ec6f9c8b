"""Request of the service to stop the current task, sent over the socket between service and worker.

A task that looks at the request often stops by itself, and its worker stays warm. The request is a message of
length 0. While a task runs, the service sends nothing else, so data on the socket is the request; the end of
the data means that the service has closed the socket.
"""

import select
import socket

_look: "select.poll | None" = None


class TaskStopped(Exception):
    """The service has requested the stop of the task."""


def listen(connection: socket.socket) -> None:
    """Let `check_stop` look at this process's socket to the service."""
    global _look
    _look = select.poll()
    _look.register(connection, select.POLLIN)


def check_stop() -> None:
    """Return unless the service has requested the stop of the current task. Callable from any thread.

    Does nothing in a process that is no worker. Raises TaskStopped.
    """
    if _look is not None and _look.poll(0):
        raise TaskStopped
