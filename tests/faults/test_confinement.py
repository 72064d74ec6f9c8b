"""Code in a worker reaches neither keys nor passwords nor network, and sends the service data only."""

import asyncio
import errno
import json
import os
import pickle
import platform
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.large_body import BodyParser
from app.engine import fork_server
from app.engine.engine import INTERNAL_ERROR, Failure, Outcome
from app.engine.fork_server import worker_modules
from app.engine.local_engine import EmbeddedEngine
from app.engine.outcome_message import decode_outcome, encode_outcome
from app.engine.sandbox import Confinement, landlock_version
from app.engine.worker_environment import worker_environment
from app.engine.worker_process import WorkerSetup
from app.settings import Settings
from providers.compiled_services import cache_folder
from tests.faults import confined
from tests.faults.running import PATIENCE
from tests.preloaded.processes import running_service

pytestmark = pytest.mark.faults

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="Landlock, seccomp and the fork server are Linux's"
)

ALLOWED = {
    "shared", "library", "child", "own limit", "own limit by id", "own priority", "own processors"
}  # fmt: skip


def run_in_worker(
    function: Callable[[Any], Outcome], task: Any, confinement: Confinement | None = None
) -> Outcome:
    """Run one function in a new worker."""

    async def run() -> Outcome:
        setup = WorkerSetup(1, 2**29, preload=worker_modules(), confinement=confinement)
        engine = EmbeddedEngine(1, setup, PATIENCE)
        await engine.start()
        outcome = await engine.run("task", function, task)
        await engine.close()
        return outcome

    return asyncio.run(run())


@contextmanager
def home(folder: Path) -> Any:
    """Yield the task of `confined.attempt`, with a home that has keys and a database, and a listener."""
    for name in ("keys", "blobs"):
        (folder / name).mkdir()
    (folder / "keys" / "master.key").write_text("key")
    (folder / "rowveil.db").write_text("database")
    (folder / "outside").write_text("outside")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield {
            "key": str(folder / "keys" / "master.key"),
            "database": str(folder / "rowveil.db"),
            "outside": str(folder / "outside"),
            "shared": str(folder / "blobs" / "table"),
            "service": os.getpid(),
            "port": listener.getsockname()[1],
        }


@linux
@pytest.mark.parametrize("forked", [True, False])
def test_a_confined_worker_reaches_libraries_and_its_tables_only(
    tmp_path: Path, forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a thread that the worker starts, and also without a fork server."""
    if not landlock_version():
        pytest.skip("this kernel has no Landlock")
    if not forked:
        monkeypatch.setattr(fork_server, "start", lambda: False)
    with home(tmp_path) as task:
        free = run_in_worker(confined.attempt, task)
        (tmp_path / "outside").write_text("outside")
        for name in ("link", "hard", "pipe"):
            (tmp_path / "blobs" / f"table.{name}").unlink()
        found = run_in_worker(confined.attempt, task, Confinement((str(tmp_path / "blobs"),)))
    (cache_folder() / "rowveil-test").unlink()  # of the free one
    assert isinstance(free, dict)
    assert isinstance(found, dict), found
    refused = {name for name, done in free["main"].items() if done == "done"} - ALLOWED
    assert {"key", "database", "tcp", "udp", "unix", "program", "environment of the service"} <= refused
    assert {"mode", "owner", "times", "limit of the service", "processors of the service"} <= refused
    assert {
        "link in the shared folder",
        "hard link of a file outside",
        "pipe in the shared folder",
    } <= refused
    for thread in ("main", "other"):
        assert {name for name, done in found[thread].items() if done == "done"} == ALLOWED
    assert (tmp_path / "outside").read_text() == "outside"
    assert (tmp_path / "blobs" / "table").read_bytes() == b"a table"


@linux
def test_a_process_that_parses_large_bodies_reaches_libraries_only(tmp_path: Path) -> None:
    """It reads what callers send, and needs no file of the service."""
    if not landlock_version():
        pytest.skip("this kernel has no Landlock")
    setup = BodyParser(Settings(home=tmp_path))._setup
    with home(tmp_path) as task:
        found = run_in_worker(confined.attempt, task, setup.confinement)
    assert isinstance(found, dict), found
    assert {name for name, done in found["main"].items() if done == "done"} == ALLOWED - {"shared"}


IOCTL = {"x86_64": 16, "aarch64": 29}

OF_THE_MACHINE = {
    # number on x86-64, number on arm64, and arguments with which the call does nothing
    "module": (175, 105, 0, 0, 0),
    "module of a file": (313, 273, -1, 0, 0),
    "removal of a module": (176, 106, 0, 0),
    "kernel": (246, 104, 0, 0, 0, 0),
    "kernel of a file": (320, 294, -1, -1, 0, 0, 0),
    "reboot": (169, 142, 0, 0, 0, 0),
    "time": (164, 170, 0, 0),
    "clock": (227, 112, -1, 0),
    "pace of a clock": (305, 266, -1, 0),
    "pace of the clock": (159, 171, 0),
    "swap": (167, 224, 0, 0),
    "end of swap": (168, 225, 0),
    "accounting": (163, 89, 1),
    "quota": (179, 60, -1, 0, 0, 0),
    "file by handle": (304, 265, -1, 0, 0),
    "counters": (298, 241, 0, 0, -1, -1, 0),
    "file of another process": (438, 438, -1, 0, 0),
}


@linux
def test_a_confined_worker_types_nothing_into_a_terminal_and_leaves_the_machine_alone() -> None:
    """A shell would run what is typed into its terminal, such as that in which the service was started."""
    if platform.machine() not in IOCTL:
        pytest.skip("seccomp filters are written for x86-64 and arm64")
    ioctl, place = IOCTL[platform.machine()], platform.machine() == "aarch64"
    typed = {"keystroke": [ioctl, -1, 0x5412, 0], "pasted text": [ioctl, -1, 0x541C, 0]}
    typed["keystroke, other bits set"] = [ioctl, -1, 0x5412 | 1 << 32, 0]
    others = {name: [each[place], *each[2:]] for name, each in OF_THE_MACHINE.items()}
    allowed = {"size of the terminal": [ioctl, -1, 0x5413, 0], "files": [ioctl, -1, 0x541B, 0]}
    found = run_in_worker(confined.system_calls, typed | others | allowed, Confinement(()))
    assert isinstance(found, dict), found
    assert found == {
        **dict.fromkeys([*typed, *others], errno.EACCES),
        **dict.fromkeys(allowed, errno.EBADF),
    }


def test_a_worker_writes_no_core_dump() -> None:
    soft, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    try:
        assert run_in_worker(confined.core_limit, None) == {"soft": 0}
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, most))


@linux
def test_a_confined_worker_reads_its_own_state_after_the_kernel_needed_memory(tmp_path: Path) -> None:
    """The kernel drops its inodes of `/proc` then, for which the rules were made."""
    drop = Path("/proc/sys/vm/drop_caches")
    if not landlock_version() or not os.access(drop, os.W_OK):
        pytest.skip("this kernel has no Landlock, or the test may not drop its caches")
    shared = tmp_path / "blobs"
    shared.mkdir()
    task = {"confined": str(shared / "confined"), "dropped": str(shared / "dropped")}

    def drop_caches() -> None:
        deadline = time.monotonic() + PATIENCE
        while not (shared / "confined").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        drop.write_text("2")  # dentries and inodes; files stay in memory
        (shared / "dropped").touch()

    dropping = threading.Thread(target=drop_caches)
    dropping.start()
    found = run_in_worker(confined.read_after_reclaim, task, Confinement((str(shared),)))
    dropping.join()
    assert isinstance(found, dict), found
    assert all(found.values()), found


@linux
def test_a_confined_worker_compiles_a_missing_kernel_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the kernels, which other processes run, stays as it is."""
    if not landlock_version():
        pytest.skip("this kernel has no Landlock")
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(kernels))
    monkeypatch.setattr(fork_server, "start", lambda: False)
    (tmp_path / "blobs").mkdir()
    confinement = Confinement((str(tmp_path / "blobs"),))
    found = run_in_worker(confined.swap_with_missing_kernels, None, confinement)
    assert found == {"area": [0] * 10 + [1] * 10}
    assert list(kernels.iterdir()) == []


@linux
def test_a_confined_worker_is_warm_before_its_first_job(tmp_path: Path) -> None:
    """It loads kernels from a folder to which it cannot write, as in a service with default settings."""
    settings = {"workers": "1", "warm_workers": "true", "compile_kernels": "true"}
    with running_service(tmp_path / "home", **settings) as address:
        deadline = time.monotonic() + PATIENCE
        while httpx.get(f"{address}/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        call = {"source": {"rows": [{"a": 1}, {"a": 2}]}, "parameters": {"swap_fields": ["a"]}}
        answer = httpx.post(
            f"{address}/v1/services/DSWAP", json=call, headers={"prefer": "wait=60"}, timeout=70
        )
        assert answer.json()["state"] == "succeeded", answer.text


@linux
def test_a_worker_has_no_variable_of_the_services_secrets(tmp_path: Path) -> None:
    """A new service: the fork server inherits the environment that the service has at its start."""
    secrets = {
        "ROWVEIL_DATABASE_URL": "postgresql://rowveil:password@host/rowveil",
        "ROWVEIL_KEY": "key",
        "PGPASSWORD": "password",
        "AWS_SECRET_ACCESS_KEY": "key",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=token",
    }
    program = (
        "import json; from tests.faults import confined, test_confinement as own\n"
        "if __name__ == '__main__':\n"
        f"    with own.home(own.Path({str(tmp_path)!r})) as task:\n"
        "        found = own.run_in_worker(confined.attempt, task)\n"
        "    print(json.dumps([found['variables'], found['initial']]))\n"
    )
    (tmp_path / "service.py").write_text(program)
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    given = {**os.environ, **secrets, "PYTHONPATH": path, "LC_ALL": "C.UTF-8"}
    done = asyncio.run(_output(sys.executable, str(tmp_path / "service.py"), environment=given))
    for variables in json.loads(done):
        assert "LC_ALL" in variables
        assert not secrets.keys() & set(variables)


async def _output(*command: str, environment: dict[str, str]) -> bytes:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output


def test_an_operator_names_further_variables_and_traces_need_theirs() -> None:
    given = {
        "ROWVEIL_WORKER_ENVIRONMENT": "A, B",
        "A": "1",
        "B": "2",
        "C": "3",
        "OTEL_X": "4",
        "PATH": "/bin",
    }
    named = worker_environment(given, traces=False)
    assert {name for name in named if len(name) == 1} == {"A", "B"}
    assert "OTEL_X" not in named
    assert "OTEL_X" in worker_environment(given, traces=True)


def test_no_pickle_of_a_worker_is_loaded(tmp_path: Path) -> None:
    """Neither an object in a result, nor a pickle in place of the message."""
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(confined.Forged(str(mark))))  # noqa: S301 - it does something where it is loaded
    assert mark.exists()
    mark.unlink()
    for forged in (confined.forge, confined.forge_message):
        outcome = run_in_worker(forged, str(mark))
        assert isinstance(outcome, Failure)
        assert outcome.code == INTERNAL_ERROR
        assert not mark.exists()


OUTCOMES: list[Outcome] = [
    {},
    {
        "rows": 2**70,
        "share": 0.1,
        "none": None,
        "list": [1, {"a": "ünïcode \ud800"}],
        "table": b"\0\1",
        "b": b"",
    },
    Failure("cancelled", "message", "/pointer", ("a", "b")),
]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_comes_back_as_it_was(outcome: Outcome) -> None:
    assert decode_outcome(encode_outcome(outcome)) == outcome


def test_values_that_are_no_data_are_refused() -> None:
    for value in ({1, 2}, object(), {"inner": b"bytes"}):
        with pytest.raises(TypeError):
            encode_outcome({"value": value})


def _message(document: object, rest: bytes = b"") -> bytes:
    text = json.dumps(document).encode()
    return struct.pack("=Q", len(text)) + text + rest


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff" * 8,
        pickle.dumps({"a": 1}),
        _message([]),
        _message(3),
        _message({}),
        _message({"failure": [1, "a", "b", []]}),
        _message({"failure": ["a"]}),
        _message({"result": {}, "binary": [["a", 5]]}, b"abc"),
        _message({"result": {}, "binary": [["a", -5]]}, b"abc"),
        _message({"result": {}, "binary": [["a", 1]]}, b"abc"),
        _message({"result": 3, "binary": []}),
        struct.pack("=Q", 200_000) + b"[" * 200_000,
        struct.pack("=Q", 2) + b"\xff\xfe",
    ],
)
def test_a_message_that_is_malformed_is_a_failure(message: bytes) -> None:
    outcome = decode_outcome(message)
    assert isinstance(outcome, Failure)
    assert outcome.code == INTERNAL_ERROR
