"""View of one API process: its place among the others, and its messages to them."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from app.processes.messages import Kind, receive, send

_log = logging.getLogger("rowveil")

_AGAIN_SECONDS = 0.05
"""Pause after which closed connections are reported again that found a full socket."""


class ApiProcess:
    """The only API process of a service, or one of several, which reaches the others by the supervisor.

    Its messages are only hints about changes in the database. So a lost message costs only time.
    """

    def __init__(
        self,
        number: int = 0,
        count: int = 1,
        first: bool = True,
        replaces: str | None = None,
        channel: socket.socket | None = None,
    ) -> None:
        """Keep the arguments; `listen` begins.

        Parameters
        ----------
        number
            Number of the process, from 0.
        count
            Number of API processes.
        first
            Whether no other process of this run of the service has begun before.
        replaces
            Id of the lease of a dead process whose place this one takes.
        channel
            Socket to the supervisor; None if there is no other process.
        """
        self.number = number
        self.count = count
        self.first = first
        self.replaces = replaces
        self.on_connection: Callable[[socket.socket], None] = _close
        self.on_job_queued: Callable[[], None] = _nothing
        self.on_job_ended: Callable[[str], None] = _nothing_about
        self.on_cancel_requested: Callable[[], None] = _nothing
        self.on_supervisor_lost: Callable[[], None] = _nothing
        """Called before this process ends because its supervisor is dead."""
        self.stopping = False
        """Whether a signal has requested the end: a start that still waits for something gives up."""
        self._channel = channel
        self._closed = 0
        self._short = False
        """Whether the last connection was lost for lack of a descriptor, which the log has."""
        self._again: asyncio.TimerHandle | None = None

    @property
    def alone(self) -> bool:
        """Whether the service has one API process only."""
        return self.count == 1

    def listen(self) -> None:
        """Call the functions of this object when messages arrive. Called in the event loop."""
        if self._channel is not None:
            asyncio.get_running_loop().add_reader(self._channel, self._receive)

    def report_opened(self, lease: str) -> None:
        """Report that the stores are open, or that the process has another lease by now."""
        self._send(Kind.OPENED, lease)

    def report_serving(self) -> None:
        """Report that connections are taken."""
        self._send(Kind.SERVING)

    def report_ready(self) -> None:
        """Report that a worker is up."""
        self._send(Kind.READY)

    def report_closed(self) -> None:
        """Report that a connection has been closed: the next one goes to the process with the fewest."""
        self._closed += 1
        if self._again is None:
            self._report_all_closed()

    def notify_job_queued(self) -> None:
        """Notify the others that a job waits: one of them may have a free worker."""
        self._send(Kind.JOB_QUEUED)

    def notify_job_ended(self, job_id: str) -> None:
        """Notify the others that a job has ended: a call may wait for it at one of them."""
        self._send(Kind.JOB_ENDED, job_id)

    def notify_cancel_requested(self) -> None:
        """Notify the others that a job is to be cancelled: one of them may run it."""
        self._send(Kind.CANCEL_REQUESTED)

    def _send(self, kind: Kind, text: str = "") -> bool:
        return self._channel is None or send(self._channel, kind, text)

    def _report_all_closed(self) -> None:
        self._again = None
        if self._send(Kind.CLOSED, str(self._closed)):
            self._closed = 0
        else:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._report_all_closed)

    def _receive(self) -> None:
        assert self._channel is not None
        while True:
            try:
                message = receive(self._channel)
            except BlockingIOError:
                return
            if message is None:  # the supervisor is dead, and the next service needs the home
                self.on_supervisor_lost()
                os._exit(1)
            kind, text, files = message
            if kind is Kind.CONNECTION:
                self._receive_connection(files)
            elif kind is Kind.JOB_QUEUED:
                self.on_job_queued()
            elif kind is Kind.JOB_ENDED:
                self.on_job_ended(text)
            elif kind is Kind.CANCEL_REQUESTED:
                self.on_cancel_requested()

    def _receive_connection(self, files: list[int]) -> None:
        """Take a connection; the system has closed it if this process has no descriptor for it."""
        if files:
            self.on_connection(socket.socket(fileno=files[0]))
        else:
            self.report_closed()
            if not self._short:
                _log.error("connections are lost, because this process has too many open files")
        self._short = not files


def _close(connection: socket.socket) -> None:
    connection.close()


def _nothing() -> None:
    pass


def _nothing_about(_: str) -> None:
    pass
