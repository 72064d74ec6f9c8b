"""The supervisor with processes that only answer connections with their number."""

import asyncio
import contextlib
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from app.processes.api_process import ApiProcess
from app.processes.messages import Kind, new_pair, receive, send
from app.processes.supervisor import Supervisor

pytestmark = [pytest.mark.faults, pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")]

PATIENCE = 30.0


async def _answer(process: ApiProcess) -> None:
    """Answer each byte of a connection with the process's number, and pass on what others report."""
    kept: set[socket.socket] = set()
    heard: list[str] = []
    loop = asyncio.get_running_loop()

    def adopt(connection: socket.socket) -> None:
        connection.setblocking(False)
        kept.add(connection)
        loop.add_reader(connection, read, connection)

    def read(connection: socket.socket) -> None:
        asked = connection.recv(1)
        if asked == b"n":
            connection.send(str(process.number).encode())
        elif asked == b"e":
            process.notify_job_ended(f"of {process.number}")
            connection.send(b"!")
        elif asked == b"h":
            connection.send(f"{','.join(heard)};".encode())
        elif asked == b"r":
            connection.send(f"{process.replaces};".encode())
        else:
            loop.remove_reader(connection)
            kept.discard(connection)
            connection.close()
            process.report_closed()

    process.on_connection = adopt
    process.on_job_ended = heard.append
    process.listen()
    process.report_opened(f"lease-{process.number}")
    process.report_serving()
    process.report_ready()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    for connection in kept:
        loop.remove_reader(connection)
        connection.close()


def answer(process: ApiProcess) -> int:
    """Run a process that serves until SIGTERM."""
    asyncio.run(_answer(process))
    return 0


def refuse(process: ApiProcess) -> int:
    """Run a process that cannot start."""
    return 3


def fail_later(process: ApiProcess) -> int:
    """Run processes of which all but the first cannot start."""
    if process.number == 0:
        return answer(process)
    time.sleep(0.1)
    return 3


@dataclass
class Supervised:
    """A supervisor in a process of its own."""

    pid: int
    port: int
    announced: int
    """Descriptor that has a byte when all processes are ready."""
    connected: list[socket.socket]

    def connect(self) -> socket.socket:
        """Return a connection to some process."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        self.connected.append(made)
        return made

    def code(self) -> int:
        """Wait for the supervisor's end and return its exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def processes(self) -> list[int]:
        """Return its children."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def wait_until_ready(self) -> None:
        """Return when all processes are."""
        assert select.select([self.announced], [], [], PATIENCE)[0]


def ask(connection: socket.socket, question: bytes) -> str:
    """Ask a process; the answer ends with a digit, `!` or `;`."""
    connection.send(question)
    answered = connection.recv(1)
    while answered[-1:] not in (b";", b"!") and not answered.isdigit():
        more = connection.recv(100)
        if not more:
            raise ConnectionResetError
        answered += more
    return answered.decode().rstrip(";")


def until(holds: Callable[[], bool]) -> None:
    """Return when it holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextlib.contextmanager
def supervised(count: int, run_process: Callable[[ApiProcess], int]) -> Iterator[Supervised]:
    """Run a supervisor, and kill it with the block if it has not ended."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:

        def announce() -> None:
            os.write(writable, b"!")

        os.close(readable)
        code = 1
        try:
            code = Supervisor(count, [listener], run_process, announce, stop_seconds=60.0).run()
        finally:
            os._exit(code)
    os.close(writable)
    found = Supervised(pid, listener.getsockname()[1], readable, [])
    listener.close()
    try:
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(readable)
        for connection in found.connected:
            connection.close()


def stopped(service: Supervised) -> int:
    os.kill(service.pid, signal.SIGTERM)
    return service.code()


def test_each_connection_goes_to_the_process_with_the_fewest() -> None:
    with supervised(3, answer) as service:
        service.wait_until_ready()
        first = [service.connect() for _ in range(30)]
        numbers = [ask(connection, b"n") for connection in first]
        assert sorted(numbers) == ["0"] * 10 + ["1"] * 10 + ["2"] * 10
        for connection, number in zip(first, numbers, strict=True):
            if number == "1":
                connection.close()
        until(partial(all_go_to, service, "1"))  # when all that were closed have been reported
        assert stopped(service) == 0


def all_go_to(service: Supervised, number: str) -> bool:
    """Whether ten connections go to one process."""
    with contextlib.ExitStack() as opened:
        more = [opened.enter_context(service.connect()) for _ in range(10)]
        return {ask(connection, b"n") for connection in more} == {number}


def ask_new(service: Supervised) -> str:
    """Ask a process by a connection that is closed afterwards."""
    with service.connect() as connection:
        return ask(connection, b"n")


def test_a_message_reaches_all_others() -> None:
    with supervised(3, answer) as service:
        service.wait_until_ready()
        by_number: dict[str, socket.socket] = {}
        while len(by_number) < 3:
            connection = service.connect()
            by_number[ask(connection, b"n")] = connection
        assert ask(by_number["1"], b"e") == "!"
        until(lambda: ask(by_number["0"], b"h") == ask(by_number["2"], b"h") == "of 1")
        assert ask(by_number["1"], b"h") == ""


def test_a_process_that_dies_is_replaced_and_its_lease_is_named() -> None:
    with supervised(2, answer) as service:
        service.wait_until_ready()
        before = service.processes()
        kept = next(one for one in iter(service.connect, None) if ask(one, b"n") == "0")
        os.kill(before[1], signal.SIGKILL)
        until(lambda: len(set(service.processes()) - {before[1]}) == 2)
        replaced = next(one for one in iter(service.connect, None) if ask(one, b"n") == "1")
        assert ask(replaced, b"r") == "lease-1"
        assert ask(kept, b"n") == "0"
        assert stopped(service) == 0


def free_descriptor(pid: int) -> int:
    """Return the descriptor that the next file of a process gets."""
    return min(set(range(10_000)).difference(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()))


def processor_seconds(pid: int) -> float:
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def test_connections_wait_while_no_descriptor_is_free(capfd: pytest.CaptureFixture[str]) -> None:
    """The supervisor does not spin, and says so once; processes that die meanwhile are replaced later."""
    with supervised(2, answer) as service:
        service.wait_until_ready()
        limits = resource.prlimit(service.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (free_descriptor(service.pid), limits[1]))
        waiting, before = service.connect(), processor_seconds(service.pid)
        assert not select.select([waiting], [], [], 2.0)[0]
        assert processor_seconds(service.pid) - before < 0.5
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, limits)
        assert ask(waiting, b"n") in ("0", "1")
        first = service.processes()
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(first[1], signal.SIGKILL)
        until(lambda: len(service.processes()) == 1)
        kept = service.connect()
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, limits)
        until(lambda: len(service.processes()) == 2)
        assert ask(kept, b"n") in ("0", "1")
        assert stopped(service) == 0
    log = capfd.readouterr().err
    assert log.count("connections wait, because none can be accepted: Too many open files") <= 2


def test_a_first_process_that_cannot_start_ends_the_service() -> None:
    with supervised(2, refuse) as service:
        assert service.code() == 3


def test_the_service_goes_on_while_another_process_cannot_start() -> None:
    with supervised(2, fail_later) as service:
        seen: set[int] = set()

        def failed_twice() -> bool:
            processes = service.processes()
            seen.update(processes)
            return len(seen) > 2 and len(processes) == 1

        until(failed_twice)
        assert {ask_new(service) for _ in range(5)} == {"0"}
        assert not select.select([service.announced], [], [], 0)[0]


def test_the_service_is_announced_when_all_are_ready() -> None:
    with supervised(2, answer) as service:
        service.wait_until_ready()
        assert len(service.processes()) == 2


def test_processes_end_with_their_supervisor() -> None:
    with supervised(2, answer) as service:
        service.wait_until_ready()
        processes = service.processes()
        os.kill(service.pid, signal.SIGKILL)
        os.waitpid(service.pid, 0)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes))


def test_a_message_that_finds_no_room_is_not_waited_for() -> None:
    here, there = new_pair()
    with here, there:
        sent = 0
        while send(here, Kind.JOB_ENDED, "x"):
            sent += 1
        assert sent > 50
        for _ in range(sent):
            assert receive(there) == (Kind.JOB_ENDED, "x", [])
        with pytest.raises(BlockingIOError):
            receive(there)
        here.close()
        assert receive(there) is None
        assert not send(there, Kind.JOB_QUEUED)


def test_closed_connections_are_reported_once_there_is_room() -> None:
    async def report() -> int:
        here, there = new_pair()
        process = ApiProcess(1, 2, False, None, here)
        process.listen()
        while send(here, Kind.JOB_QUEUED):
            pass
        for _ in range(5):
            process.report_closed()
        closed = 0
        while closed < 5:
            await asyncio.sleep(0.01)
            with contextlib.suppress(BlockingIOError):
                while message := receive(there):
                    closed += int(message[1]) if message[0] is Kind.CLOSED else 0
        asyncio.get_running_loop().remove_reader(here)
        here.close()
        there.close()
        return closed

    assert asyncio.run(report()) == 5


def test_a_connection_that_a_process_had_no_descriptor_for_is_reported_as_closed() -> None:
    """The system has closed it, and the message comes without it."""

    async def reported() -> tuple[Kind, str, list[int]] | None:
        here, there = new_pair()
        process = ApiProcess(1, 2, False, None, there)
        process.listen()
        send(here, Kind.CONNECTION)
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(select.select, [here], [], [], PATIENCE)
        loop.remove_reader(there)
        with here, there:
            return receive(here)

    assert asyncio.run(reported()) == (Kind.CLOSED, "1", [])


def test_a_process_alone_says_nothing() -> None:
    process = ApiProcess()
    process.report_opened("lease")
    process.report_closed()
    process.notify_job_ended("job")
    assert process.alone
