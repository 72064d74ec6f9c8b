"""One worker process of this machine and the socket to it.

The service sends a task and receives its outcome in the event loop itself: no thread is between them, and no
lock is shared with another worker. The end of a process closes its socket, which ends a call at once.

A message is its length in 8 bytes, and its content: a pickle of the service's to the worker, and data without
code in return (`app.engine.outcome_message`).

The system resets the socket of a process that ends with unread data. So the service knows, without an answer,
whether a process ended before it had read its task. It also sees whether a living one has read it.
"""

import asyncio
import atexit
import contextlib
import errno
import fcntl
import os
import pickle
import signal
import socket
import struct
import termios
import threading
import weakref
from collections.abc import Coroutine
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

from app.engine.engine import WORKER_DIED, WORKER_LOST, Failure, Outcome, TaskFunction
from app.engine.fork_server import UNKNOWN_EXIT, new_process
from app.engine.outcome_message import MOST_BYTES, decode_outcome
from app.engine.worker_process import LENGTH, PROCESS_ID, WorkerSetup, serve_tasks

_PIECE = 1 << 20

_UNREAD = struct.Struct("i")
"""Number of bytes that a socket has sent and its reader has not read, as the system gives it."""

_JOIN_SECONDS = 10.0
"""Time in which the system ends a killed process; its code is unknown after that."""

_LOST = Failure(WORKER_LOST, "the worker that ran the job was lost with its fork server", lost=True)

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""Signals that a process does not send to itself by an error of its own."""


_PROCESSES = threading.Lock()
"""The start of a process requests the exit codes of all others; two requests at the same time would lose a
code."""


_LINKS: "weakref.WeakSet[WorkerLink]" = weakref.WeakSet()
"""All workers of this process."""


def _kill_the_rest() -> None:
    """Kill workers that an error leaves at the end of this process: they ignore multiprocessing's SIGTERM."""
    for link in list(_LINKS):
        link.kill()


# It runs before the handler of multiprocessing, which was registered before and waits for all workers.
atexit.register(_kill_the_rest)


class StartFailed(Exception):
    """The worker's process ended before it could take a task."""


class WorkerLink:
    """A process and its socket; a new process takes the place of an old one."""

    def __init__(self, setup: WorkerSetup) -> None:
        _LINKS.add(self)
        self._setup = setup
        self._process: BaseProcess | None = None
        self._socket: socket.socket | None = None
        self._changing = threading.Lock()
        self._closed = False
        self._called = False
        self._stopping = False
        self.unread = False
        """Whether the process ended before it had read the last task, which has not begun then."""
        self._unread_looks = 0
        self.pid = 0
        """Process id; 0 until the first process is up."""
        self.owner: str | None = None
        """Owner of the tasks that the process was given; None: it was given none."""

    @property
    def sound(self) -> bool:
        """Whether the process is up and its socket open."""
        if self._socket is None:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)  # an idle worker sends nothing; a dead one has closed it
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    async def start(self) -> None:
        """Kill the old process, start a new one, and return when it takes tasks.

        Raises StartFailed, OSError.
        """
        # In a thread: starting a process takes milliseconds that would block the event loop.
        await asyncio.to_thread(self._restart)
        try:
            self.pid = PROCESS_ID.unpack(await self._receive())[0]
        except (EOFError, OSError, struct.error):
            raise StartFailed("a worker ended while it started") from None

    def call(self, function: TaskFunction, task: Any, owner: str) -> Coroutine[Any, Any, Outcome]:
        """Send a task to the process, at once as far as its socket takes it; return the rest of the call.

        The rest sends ``function(task)`` completely and returns its outcome, also when the process dies.
        Raises any error of pickle.
        """
        self._called = self._stopping = self.unread = False
        self._unread_looks = 0
        self.owner = owner
        content = pickle.dumps((function, task), pickle.HIGHEST_PROTOCOL)
        unsent = memoryview(LENGTH.pack(len(content)) + content)
        with contextlib.suppress(OSError):  # a dead process; or the socket is full
            if self._socket is not None:
                unsent = unsent[self._socket.send(unsent) :]
        return self._finish_call(unsent)

    async def _finish_call(self, unsent: memoryview) -> Outcome:
        if self._socket is None:
            return _LOST
        try:
            if unsent:
                await asyncio.get_running_loop().sock_sendall(self._socket, unsent)
            del unsent
            self._called = True
            answer = await self._receive()
        except (EOFError, OSError) as error:
            self.unread = not self._called or (isinstance(error, ConnectionResetError) and not self._stopping)
            return await asyncio.to_thread(self._end)
        return decode_outcome(answer)

    def request_stop(self) -> bool:
        """Request the current task to stop; False if the task has not been sent completely."""
        if self._socket is None or not self._called:
            return False
        self._stopping = True
        try:
            return self._socket.send(LENGTH.pack(0)) == LENGTH.size
        except OSError:
            return False

    def look_for_unread(self) -> int:
        """Return the number of looks in succession, with this one, at which the task was not read."""
        self._unread_looks = self._unread_looks + 1 if self._has_unread() else 0
        return self._unread_looks

    def _has_unread(self) -> bool:
        """Whether the socket holds bytes that the process has not read; False if the system does not say."""
        if self._socket is None:
            return False
        try:
            (unread,) = _UNREAD.unpack(fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(_UNREAD.size)))
        except OSError:
            return False
        return bool(unread)

    def kill(self) -> None:
        """Kill the process, which ends its call; `start` replaces it."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Kill the process and return when it has ended; no other one will start. Blocking."""
        self._closed = True
        with self._changing:
            self._kill()

    def _kill(self) -> None:
        process, opened = self._process, self._socket
        self._process = self._socket = None
        if process is not None:
            process.kill()
            _exit_code(process)
        if opened is not None:
            opened.close()

    def _restart(self) -> None:
        with self._changing:
            self._kill()
            if self._closed:
                raise StartFailed("the engine is closed")
            here, there = socket.socketpair()
            with there, _PROCESSES:
                process = new_process(serve_tasks, (self._setup, there))
                try:
                    process.start()
                except BaseException:
                    here.close()
                    raise
            here.setblocking(False)
            self._process, self._socket, self.owner = process, here, None

    async def _receive(self) -> bytearray:
        """Return the next message. Raises EOFError, OSError."""
        if self._socket is None:
            raise EOFError
        loop = asyncio.get_running_loop()
        received = bytearray(await loop.sock_recv(self._socket, _PIECE))
        while len(received) < LENGTH.size or len(received) < LENGTH.size + LENGTH.unpack_from(received)[0]:
            if len(received) > MOST_BYTES:
                raise OSError(errno.EMSGSIZE, "the worker's message is too large")
            more = await loop.sock_recv(self._socket, _PIECE)
            if not more:
                raise EOFError
            received += more
        del received[: LENGTH.size]
        return received

    def _end(self) -> Failure:
        """Return how the process ended. Blocking: it has closed its socket, and ends now."""
        process = self._process
        exitcode = None if process is None else _exit_code(process)
        if exitcode is None:
            return _LOST
        lost = -exitcode in _FROM_OUTSIDE
        return Failure(WORKER_DIED, f"the worker that ran the job {_end_of(exitcode)}", lost=lost)


def _exit_code(process: BaseProcess) -> int | None:
    """Wait for the end of a process; return its exit code, or None if it does not end or nobody knows it.

    Blocking.
    """
    if connection.wait([process.sentinel], _JOIN_SECONDS):
        with _PROCESSES:
            process.join(_JOIN_SECONDS)  # it has closed its end, and ends now
    if process.exitcode != UNKNOWN_EXIT or process.pid is None:
        return process.exitcode
    # The system gives the processes of a dead fork server to process 1, which in a container is the service.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return None


def exists(pid: int) -> bool:
    """Whether the process runs, as long as its exit code has not been requested."""
    try:
        if hasattr(os, "waitid"):  # None while it runs; WNOWAIT leaves the exit code to be asked for
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        pass  # a child of the fork server, which asks for the exit code as soon as there is one
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end_of(exitcode: int) -> str:
    if exitcode >= 0:
        return f"ended by itself with code {exitcode}"
    name = signal.Signals(-exitcode).name
    if -exitcode == signal.SIGKILL:
        return f"was killed ({name}); unless somebody killed it, the machine ran out of memory"
    return f"was ended by {name}"
