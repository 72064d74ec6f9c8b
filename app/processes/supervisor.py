"""Supervisor of the API processes: starts them, gives each connection to the least busy, replaces dead ones.

It accepts connections itself and passes them on. If the processes shared the listening socket, the system
would choose among them: one could get all connections of a client that keeps them open. A request then goes
from the client to its process directly.

The processes are forks of the supervisor, which has imported what they need, and has neither a thread nor an
event loop.
"""

import contextlib
import errno
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial

from app.processes.api_process import ApiProcess
from app.processes.messages import TO_OTHERS, Kind, new_pair, receive, send

_log = logging.getLogger("rowveil")

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

_RETRY_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0, 15.0, 30.0)
"""Pauses before a dead process is replaced; the last one repeats until a replacement takes connections."""

_LOOK_SECONDS = 0.05
"""Interval at which connections are offered again that no process has taken."""

_STOP_AGAIN_SECONDS = 1.0
"""Interval at which processes are asked again to end: one that is just starting may miss a signal."""

_ACCEPTED_AT_ONCE = 64

_ACCEPT_AGAIN_SECONDS = 0.5
"""Time for which no connection is accepted after the system had no descriptor or memory for one."""

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Error numbers of a system that has no descriptor or memory for a connection."""

SHORTAGE_LINE = "connections wait, because none can be accepted: %s"
"""Line of the log about it, with the system's words."""


def _nothing() -> None:
    pass


def _nothing_about(_: int) -> None:
    pass


class _Member:
    """A place among the API processes, and the process that has it now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        """Id of the process; 0 if there is none."""
        self.channel: socket.socket | None = None
        self.lease: str | None = None
        self.serving = False
        self.ready = False
        self.connections = 0
        self.failures = 0
        """Processes that have ended since the last one that took connections."""
        self.start_at = 0.0


class Supervisor:
    """The parent of all API processes. `run` returns when all of them have ended."""

    def __init__(
        self,
        count: int,
        listeners: Collection[socket.socket],
        run_process: Callable[[ApiProcess], int],
        announce: Callable[[], None],
        stop_seconds: float,
        prepare: Callable[[], None] = _nothing,
        forget: Callable[[int], None] = _nothing_about,
    ) -> None:
        """Keep the arguments; `run` begins.

        Parameters
        ----------
        count
            Number of API processes.
        listeners
            Listening sockets.
        run_process
            Runs an API process in a fork, and returns its exit code.
        announce
            Called once, when all processes are ready.
        stop_seconds
            Time after which a stop kills the processes that have not ended.
        prepare
            Called before each fork.
        forget
            Called with the id of each process that has ended.
        """
        self._members = [_Member(number) for number in range(count)]
        self._listeners = listeners
        self._run_process = run_process
        self._announce: Callable[[], None] | None = announce
        self._prepare = prepare
        self._forget_process = forget
        self._selector = selectors.DefaultSelector()
        self._waiting: deque[socket.socket] = deque()
        """Connections that no process has taken yet."""
        self._accept_at: float | None = None
        """Time from which on connections are accepted again; None: they are."""
        self._short = False
        """Whether the last connection could not be accepted, which the log has."""
        self._opened = False
        """Whether a process has opened the stores."""
        self._stopping = False
        self._stop_seconds = stop_seconds
        self._stop_at = self._kill_at = 0.0
        """Times of the next request to end, and of the kill, while the service is stopping."""
        self._code = 0

    def run(self) -> int:
        """Run until SIGTERM or SIGINT; return 0 if every process has ended as it was asked to."""
        wakeup, written = os.pipe()
        for end in (wakeup, written):
            os.set_blocking(end, False)
        self._wakeup = (wakeup, written)
        for number in _SIGNALS:
            signal.signal(number, _ignored)
        signal.set_wakeup_fd(written)
        self._selector.register(wakeup, selectors.EVENT_READ, self._receive_signals)
        self._start(self._members[0])  # it migrates the database and makes the keys: the others wait
        while not self._stopping or any(member.pid for member in self._members):
            for key, _ in self._selector.select(self._patience()):
                key.data()
            if self._stopping:
                self._stop_at_intervals()
            else:
                self._start_due()
                self._hand_over()
                self._accept_again()
        for connection in self._waiting:
            connection.close()
        return self._code

    # --------------------------------------------------------------------------------- processes

    def _start(self, member: _Member) -> None:
        """Fork a process for a place. Raises OSError: the system has too few descriptors or processes."""
        self._prepare()
        here, there = new_pair()
        process = ApiProcess(member.number, len(self._members), not self._opened, member.lease, there)
        try:
            pid = os.fork()
        except OSError:
            here.close()
            there.close()
            raise
        if pid == 0:
            here.close()
            self._become(process)
        there.close()
        member.pid, member.channel = pid, here
        member.serving = member.ready = False
        member.connections = 0
        self._selector.register(here, selectors.EVENT_READ, partial(self._receive, member))

    def _become(self, process: ApiProcess) -> None:
        """Run the process of a place in this fork, and end it."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            for end in self._wakeup:
                os.close(end)
            others = [member.channel for member in self._members if member.channel is not None]
            for inherited in (*self._listeners, *self._waiting, *others):
                inherited.close()
            code = self._run_process(process)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _start_due(self) -> None:
        """Start the processes of all places that have none, when their pause is over."""
        if not self._opened:
            return
        for member in self._members:
            if not member.pid and member.start_at <= time.monotonic():
                try:
                    self._start(member)
                except OSError as error:
                    self._postpone(member)
                    _log.error("API process %d cannot be started: %s", member.number, error.strerror)

    def _receive_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(self._wakeup[0], 64):
                if number == signal.SIGCHLD:
                    self._reap()
                else:
                    self._stop()

    def _reap(self) -> None:
        """Take note of processes that have ended."""
        for member in self._members:
            if not member.pid:
                continue
            ended, status = os.waitpid(member.pid, os.WNOHANG)
            if ended:
                self._lose(member, os.waitstatus_to_exitcode(status))

    def _lose(self, member: _Member, code: int) -> None:
        """Close the sockets of an ended process, and have the process replaced unless the service ends."""
        assert member.channel is not None
        while self._receive(member):  # its last messages
            pass
        self._unregister(member.channel)
        member.channel.close()
        self._forget_process(member.pid)
        member.pid, member.channel = 0, None
        if self._stopping:
            self._code = self._code or (abs(code) if code != -signal.SIGTERM else 0)
        elif not self._opened:  # the settings or the stores are unusable: it has said why
            self._code = abs(code) or 1
            self._stop()
        else:
            self._postpone(member)
            _log.error("API process %d ended with code %d and is replaced", member.number, code)

    def _postpone(self, member: _Member) -> None:
        """Set the time at which the process of a place is started again."""
        pause = _RETRY_SECONDS[min(member.failures, len(_RETRY_SECONDS) - 1)]
        member.failures += 1
        member.start_at = time.monotonic() + pause

    def _stop(self) -> None:
        """Accept no further connection, and let all processes end."""
        if not self._stopping:
            self._kill_at = time.monotonic() + self._stop_seconds
        self._stopping = True
        self._stop_at = 0.0
        for listener in self._listeners:
            self._unregister(listener)
            listener.close()

    def _stop_at_intervals(self) -> None:
        """Request all processes to end; kill one that a frozen system or a debugger holds for too long."""
        now = time.monotonic()
        if now < self._stop_at:
            return
        self._stop_at = now + _STOP_AGAIN_SECONDS
        for member in self._members:
            if member.pid:
                os.kill(member.pid, signal.SIGTERM if now < self._kill_at else signal.SIGKILL)

    def _unregister(self, file: socket.socket) -> None:
        """Select a socket no longer."""
        with contextlib.suppress(KeyError, ValueError):  # it has been forgotten, or closed, before
            self._selector.unregister(file)

    # ---------------------------------------------------------------------------------- messages

    def _receive(self, member: _Member) -> bool:
        """Act on the next message of a process; return whether there was one."""
        if member.channel is None:  # its end was noticed just now
            return False
        try:
            message = receive(member.channel)
        except BlockingIOError:
            return False
        if message is None:  # the process is ending: a signal follows
            self._unregister(member.channel)
            return False
        kind, text, _ = message
        if kind in TO_OTHERS:
            for other in self._members:
                if other is not member and other.channel is not None:
                    send(other.channel, kind, text)
        elif kind is Kind.CLOSED:
            member.connections -= int(text)
        elif kind is Kind.OPENED:
            member.lease = text
            self._opened = True
        elif kind is Kind.SERVING:
            self._serve(member)
        elif kind is Kind.READY:
            member.ready = True
            if self._announce is not None and all(each.ready for each in self._members):
                self._announce()
                self._announce = None
        return True

    # ------------------------------------------------------------------------------- connections

    def _serve(self, member: _Member) -> None:
        """Give connections to a process from now on."""
        member.serving = True
        member.failures = 0
        if self._accept_at is None:
            self._listen()

    def _listen(self) -> None:
        """Select the listening sockets."""
        for listener in self._listeners:
            if not self._stopping and listener not in self._selector.get_map():
                self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))

    def _accept(self, listener: socket.socket) -> None:
        try:
            for _ in range(_ACCEPTED_AT_ONCE):
                self._waiting.append(listener.accept()[0])
                self._short = False
        except OSError as error:  # usually there is none any more
            if error.errno in SHORTAGES:
                self._pause(error)

    def _pause(self, shortage: OSError) -> None:
        """Accept nothing for a moment: a connection that cannot be accepted stays ready."""
        if not self._short:
            _log.error(SHORTAGE_LINE, shortage.strerror)
        self._short = True
        self._accept_at = time.monotonic() + _ACCEPT_AGAIN_SECONDS
        for listener in self._listeners:
            self._unregister(listener)

    def _accept_again(self) -> None:
        """Accept connections when the pause after a shortage is over."""
        if self._accept_at is not None and self._accept_at <= time.monotonic():
            self._accept_at = None
            self._listen()

    def _hand_over(self) -> None:
        """Give each waiting connection to the process with the fewest."""
        while self._waiting:
            serving = [member for member in self._members if member.serving and member.channel is not None]
            for member in sorted(serving, key=lambda member: member.connections):
                assert member.channel is not None
                if send(member.channel, Kind.CONNECTION, files=(self._waiting[0].fileno(),)):
                    self._waiting.popleft().close()
                    member.connections += 1
                    break
            else:
                return

    def _patience(self) -> float | None:
        """Return the seconds after which something is due without a message; None if nothing is."""
        if self._stopping:
            return max(0.0, self._stop_at - time.monotonic())
        due = [member.start_at - time.monotonic() for member in self._members if not member.pid]
        if self._waiting:
            due.append(_LOOK_SECONDS)
        if self._accept_at is not None:
            due.append(self._accept_at - time.monotonic())
        return max(0.0, min(due)) if due and self._opened else None


def _ignored(number: int, frame: object) -> None:
    """Let a signal be read from the pipe only."""
