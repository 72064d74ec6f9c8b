"""Compilation of all kernels in several processes, with its progress counted by kernel.

A kernel is a function that numba compiles and caches. It counts as compiled when the cache holds it for
this processor and this state of the sources, for any types. numba's event ``numba:compile`` names the
kernel that is being compiled.
"""

import gc
import importlib
import multiprocessing
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

from numba.core import dispatcher, event
from numba.core.caching import NullCache

from providers.kernel_display import Bar, Lines, Records, Shown

_LOOK_SECONDS = 0.25

Work = Callable[[Sequence[str]], None]
"""Function that compiles the kernels of the services with these identifiers."""


def name_of(kernel: Any) -> str:
    """Return the kernel's module and name, without the package."""
    module = str(kernel.py_func.__module__).partition(".")[2]
    return f"{module}.{kernel.py_func.__qualname__}"


def kernels_of(package: ModuleType) -> dict[str, Any]:
    """Return all kernels of a package by name, except those that numba writes into their callers."""
    found = {}
    for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(entry.name)
        for kernel in vars(module).values():
            if isinstance(kernel, dispatcher.Dispatcher) and kernel.py_func.__module__ == module.__name__:
                is_kept = not isinstance(kernel._cache, NullCache)
                if is_kept and kernel.targetoptions.get("inline") != "always":
                    found[name_of(kernel)] = kernel
    return found


def is_compiled(kernel: Any) -> bool:
    """Whether the cache has the kernel, for this processor and by this version of numba."""
    index = kernel._cache._cache_file._load_index()
    processor = kernel.targetctx.codegen().magic_tuple()
    return any(processor in key for key in index)


@dataclass(frozen=True, slots=True)
class Step:
    """Message of a process: the compilation of a kernel begins or ends."""

    kernel: str
    begins: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Message of a process: a service's kernels are there."""

    service: str
    seconds: float


class _Sender(event.Listener):  # type: ignore[misc]  # numba has no types
    """Sends a step for each kernel of a package whose compilation begins or ends."""

    def __init__(self, package: str, pipe: Connection) -> None:
        self._prefix = f"{package}."
        self._pipe = pipe

    def on_start(self, event: Any) -> None:
        """Send that a compilation begins."""
        self._send(event, True)

    def on_end(self, event: Any) -> None:
        """Send that a compilation ends."""
        self._send(event, False)

    def _send(self, event: Any, begins: bool) -> None:
        kernel = event.data["dispatcher"]
        if str(kernel.py_func.__module__).startswith(self._prefix):
            self._pipe.send(Step(name_of(kernel), begins))


def _serve(pipe: Connection, package: str, work: Work) -> None:
    """Compile, in a process of its own, for one service after the other as it comes through the pipe."""
    event.register("numba:compile", _Sender(package, pipe))
    gc.disable()  # numba keeps most of its objects: collections while it compiles take long and free little
    for service in iter(pipe.recv, None):
        started = time.perf_counter()
        work([service])
        pipe.send(Done(service, time.perf_counter() - started))
        gc.collect()
        gc.freeze()  # later collections leave out what is left


@dataclass(slots=True)
class _Process:
    """A process that compiles, and its present service."""

    process: multiprocessing.process.BaseProcess
    pipe: Connection
    service: str = ""
    given: float = 0.0
    """Time at which it was given the service."""
    begun: list[tuple[str, float]] = field(default_factory=list)
    """Kernels whose compilation has begun, each because of the one before, and when."""

    def give(self, service: str) -> None:
        """Have the child process compile the kernels of a service."""
        self.service, self.given = service, time.monotonic()
        self.pipe.send(service)

    @property
    def current(self) -> tuple[str, float]:
        """The kernel that it compiles, or where it compiles none the service that it runs; and since when."""
        return self.begun[-1] if self.begun else (self.service, self.given)


def compile_all(
    package: ModuleType, work: Work, services: Sequence[str], processes: int, *, records: bool = False
) -> None:
    """Compile all kernels that the services need, and show how far that is.

    Parameters
    ----------
    package
        Package whose kernels are counted.
    work
        Function of a module, which is called in the processes with one service at a time.
    services
        Identifiers. The first two are compiled at the same time, the others when the first is done, since its
        kernels are those of these others, too; the second shares few with it.
    processes
        Number of processes, at least 1.
    records
        Whether another program reads the progress from standard output.

    Raises
    ------
    SystemExit
        If a process fails or is killed.
    """
    started = time.monotonic()
    context = multiprocessing.get_context("spawn")
    waiting = list(services)
    team = [_start(context, package.__name__, work) for _ in waiting[: min(processes, 2)]]
    for each in team:
        each.give(waiting.pop(0))
    kernels = kernels_of(package)
    missing = {name for name, kernel in kernels.items() if not is_compiled(kernel)}
    there = len(kernels) - len(missing)
    is_shared_compiled = False
    shown: Shown
    if records:
        shown = Records(len(kernels), there)
    elif _is_terminal():
        shown = Bar(len(kernels), there)
    else:
        shown = Lines(len(kernels), there)
    try:
        for message in _messages(team):
            if isinstance(message, Done):
                shown.finish_service(message.service, message.seconds)
                is_shared_compiled = is_shared_compiled or message.service == services[0]
                # Another command may have compiled some meanwhile, without a message here.
                missing = {name for name in missing if not is_compiled(kernels[name])}
                while is_shared_compiled and waiting and len(team) < processes:
                    team.append(_start(context, package.__name__, work))
                    team[-1].give(waiting.pop(0))
                for idle in team:
                    if is_shared_compiled and waiting and not idle.service:
                        idle.give(waiting.pop(0))
            elif isinstance(message, Step) and not message.begins:
                missing.discard(message.kernel)
            now = time.monotonic()
            running = [(name, now - since) for name, since in (each.current for each in team) if name]
            shown.update(len(kernels) - len(missing), running)
    finally:
        shown.close()
        for each in team:
            each.process.terminate()
    if records:
        return
    now_there = len(kernels) - len(missing)
    seconds = time.monotonic() - started
    print(
        f"  {now_there} of {len(kernels)} kernels, {now_there - there} of them new, {seconds:.0f} s",
        flush=True,
    )


def _start(context: multiprocessing.context.SpawnContext, package: str, work: Work) -> _Process:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, package, work), daemon=True)
    process.start()
    theirs.close()
    return _Process(process, ours)


def _messages(team: list[_Process]) -> Iterator[Step | Done | None]:
    """Yield the messages of the processes until none has a service; None after a while without a message."""
    while busy := [each for each in team if each.service]:
        ready = wait([each.pipe for each in busy], _LOOK_SECONDS)
        for each in busy:
            if each.pipe in ready:
                yield _received(each)
        if not ready:
            yield None


def _received(sender: _Process) -> Step | Done:
    try:
        message: Step | Done = sender.pipe.recv()
    except (EOFError, OSError):
        why = "its process failed or was killed, for example because memory ran out"
        raise SystemExit(f"the kernels of {sender.service} could not be compiled: {why}") from None
    if isinstance(message, Done):
        sender.service = ""
    elif message.begins:
        sender.begun.append((message.kernel, time.monotonic()))
    else:
        sender.begun.pop()
    return message


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
