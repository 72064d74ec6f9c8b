"""Record of the services whose kernels are all in the cache folder, for this processor and these sources.

One process at a time compiles kernels in advance (`compiling`). A worker that is about to run a service waits
until that process has compiled the kernels of this service, instead of compiling them a second time.

Imports nothing but the standard library: a process that runs no kernel reads the record, too.
"""

import fcntl
import functools
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from providers.kernel_cpu import NATIVE, current

MEASURES_NAME = "measures"
"""Name of the measures in the record, next to the identifiers of the services."""

_PACKAGE = Path(__file__).parent
_CPUINFO = Path("/proc/cpuinfo")
_IDENTIFYING = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")
_LOOK_SECONDS = 0.05


def state_of_texts(package: Path) -> str:
    """Return a hash of the texts of all modules below a folder."""
    state = hashlib.blake2b(digest_size=16)
    for file in sorted(package.rglob("*.py")):
        state.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


def cache_folder() -> Path:
    """Return the folder of compiled kernels, which the package's import has named."""
    return Path(os.environ["NUMBA_CACHE_DIR"])


def are_compiled(names: Iterable[str]) -> bool:
    """Whether the kernels of all these services are in the cache folder."""
    return all(_mark(name).exists() for name in names)


def record(name: str) -> None:
    """Record that all kernels of a service are in the cache folder."""
    _mark(name).touch(mode=0o600)


@contextmanager
def compiling(*, wait: bool) -> Iterator[int | None]:
    """Be the process that compiles kernels in advance: yield its lock, or None if another process has it.

    The lock is a file descriptor. A child process that inherits it keeps the lock, too, until it ends.

    Parameters
    ----------
    wait : bool
        Whether to wait until the other process has ended.
    """
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / f"{key()}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield None
            return
        yield lock.fileno()


def wait_until_compiled(name: str) -> None:
    """Wait while another process compiles kernels in advance and has not finished those of a service.

    Returns immediately if no process compiles: the caller then compiles what it calls.
    """
    mark = _mark(name)
    while not mark.exists() and _is_being_compiled():
        time.sleep(_LOOK_SECONDS)


def _is_being_compiled() -> bool:
    try:
        with (cache_folder() / f"{key()}.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _mark(name: str) -> Path:
    return cache_folder() / f"{key()}-{name}.compiled"


@functools.cache
def key() -> str:
    """Return a hash of all inputs on which a kernel's validity depends."""
    parts = [state_of_texts(_PACKAGE), version("numba"), version("llvmlite"), sys.implementation.cache_tag]
    parts += [current().name, *(_processor() if current().name == NATIVE else ())]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _processor() -> list[str]:
    """Return the lines that identify the first processor; none where there is no such list."""
    try:
        first = _CPUINFO.read_text().partition("\n\n")[0]
    except OSError:
        return []
    return [line for line in first.splitlines() if line.partition("\t")[0].strip(" :") in _IDENTIFYING]
