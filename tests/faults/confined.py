"""Worker functions that try to reach what a worker must not reach; each reports what it got."""

import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


class Forged:
    """An object whose pickle runs code where it is loaded."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self._path),)


def attempt(task: dict[str, Any]) -> dict[str, Any]:
    """Try everything, in the main thread and in another one."""
    found: dict[str, Any] = {"main": _tried(task)}
    other = threading.Thread(target=lambda: found.update(other=_tried(task)))
    other.start()
    other.join()
    return found | {"variables": sorted(os.environ), "initial": _initial_variables()}


def read_after_reclaim(task: dict[str, str]) -> dict[str, int]:
    """Read what libraries read of `/proc` when the kernel has dropped its caches, which the test does."""
    import time

    from threadpoolctl import threadpool_info

    from app.engine.data_limit import private_bytes

    Path(task["confined"]).touch()
    while not Path(task["dropped"]).exists():
        time.sleep(0.01)
    paths = ("/proc/self/maps", "/proc/sys/vm/overcommit_memory", "/proc/cpuinfo", "/proc/stat")
    read = {path: len(Path(path).read_bytes()) for path in paths}
    return {**read, "libraries": len(threadpool_info()), "private": private_bytes() or 0}


def write_files(task: dict[str, bytes]) -> dict[str, str]:
    """Write files by their paths; return what each attempt gave."""
    return {path: _outcome(partial(Path(path).write_bytes, content)) for path, content in task.items()}


def system_calls(calls: dict[str, list[int]]) -> dict[str, int]:
    """Make system calls by number with arguments that do nothing; return their error numbers, 0 for none."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = {}
    for name, (number, *arguments) in calls.items():
        failed = libc.syscall(number, *(ctypes.c_long(each) for each in arguments)) < 0
        found[name] = ctypes.get_errno() if failed else 0
    return found


def core_limit(_: object) -> dict[str, int]:
    """Return the soft limit of core dumps."""
    import resource

    return {"soft": resource.getrlimit(resource.RLIMIT_CORE)[0]}


def swap_with_missing_kernels(_: object) -> dict[str, Any]:
    """Run a swap whose kernels are not in the cache."""
    import pyarrow as pa

    from tests.naive.agreement import swap

    table = pa.table({"area": [0, 1] * 10, "age": [row // 2 for row in range(20)]})
    result = swap("RSWAP", table, {"hierarchy": ["area"], "risk_fields": ["age"], "swap_rate": 0.5})
    return {"area": sorted(result.table.column("area").to_pylist())}


def forge(path: str) -> Any:
    """Return an object in place of a result."""
    return {"result": Forged(path)}


def forge_message(path: str) -> Any:
    """Send a pickle over the worker's own socket, in place of its answer."""
    import pickle
    import struct

    message = pickle.dumps(Forged(path))
    for number in range(3, 64):
        try:
            own = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        if own.family == socket.AF_UNIX:
            own.sendall(struct.pack("=Q", len(message)) + message)
    threading.Event().wait()


def _tried(task: dict[str, Any]) -> dict[str, str]:
    tries: dict[str, Callable[[], object]] = {
        "key": lambda: Path(task["key"]).read_bytes(),
        "database": lambda: Path(task["database"]).read_bytes(),
        "outside": lambda: Path(task["outside"]).read_bytes(),
        "write": lambda: Path(task["outside"]).write_bytes(b""),
        "truncate": lambda: os.truncate(task["outside"], 0),
        "environment of the service": lambda: Path(f"/proc/{task['service']}/environ").read_bytes(),
        "memory of the service": lambda: os.close(os.open(f"/proc/{task['service']}/mem", os.O_RDONLY)),
        "signal to the service": lambda: os.kill(task["service"], 0),
        "tcp": lambda: socket.create_connection(("127.0.0.1", task["port"]), 5),
        "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "unix": lambda: socket.socket(socket.AF_UNIX),
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        "program": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        "io_uring": _open_ring,
        "mode": lambda: Path(task["outside"]).chmod(0o666),
        "mode of an open file": lambda: os.fchmod(os.open(task["shared"], os.O_CREAT), 0o600),
        "owner": lambda: os.chown(task["outside"], os.getuid(), os.getgid()),
        "times": lambda: os.utime(task["outside"], (1, 1)),
        "attribute": lambda: os.setxattr(task["outside"], "user.rowveil", b""),
        "attribute removed": lambda: os.removexattr(task["outside"], "user.rowveil"),
        "limit of the service": lambda: _limit(task["service"]),
        "own limit": lambda: _limit(0),
        "own limit by id": lambda: _limit(os.getpid()),
        "priority of the service": lambda: os.setpriority(os.PRIO_PROCESS, task["service"], 0),
        "priority of the user": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 0),
        "own priority": lambda: os.nice(0),
        "processors of the service": lambda: os.sched_setaffinity(task["service"], os.sched_getaffinity(0)),
        "own processors": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
        "name space": _new_namespace,
        "child": _fork,
        "kernels": lambda: (Path(os.environ["NUMBA_CACHE_DIR"]) / "rowveil-test").write_bytes(b""),
        "shared": lambda: Path(task["shared"]).write_bytes(b"a table"),
        "link in the shared folder": lambda: Path(f"{task['shared']}.link").symlink_to(task["outside"]),
        "hard link of a file outside": lambda: Path(f"{task['shared']}.hard").hardlink_to(task["outside"]),
        "pipe in the shared folder": lambda: os.mkfifo(f"{task['shared']}.pipe"),
        "library": lambda: Path(os.__file__).read_bytes(),
    }
    return {name: _outcome(each) for name, each in tries.items()}


def _open_ring() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(425, 1, ctypes.create_string_buffer(120)) < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup")


def _limit(process: int) -> None:
    import resource

    resource.prlimit(process, resource.RLIMIT_CPU, resource.prlimit(0, resource.RLIMIT_CPU))


_CLONE = {"x86_64": 56, "aarch64": 220}


def _new_namespace() -> None:
    """Clone this process into a new user name space."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_ulong(0x10000000 | signal.SIGCHLD), None, None, None, None)
    child = libc.syscall(_CLONE[platform.machine()], *arguments)
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "clone")
    os.waitpid(child, 0)


def _fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _outcome(work: Callable[[], object]) -> str:
    try:
        work()
    except OSError as error:
        return type(error).__name__
    return "done"


def _initial_variables() -> list[str]:
    content = Path("/proc/self/environ").read_bytes().decode()
    return sorted(pair.partition("=")[0] for pair in content.split("\0") if pair)
