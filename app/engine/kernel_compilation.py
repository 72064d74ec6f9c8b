"""Compilation of missing kernels while the service already runs: a child process of low priority.

The child compiles the kernels service by service, in several processes; a worker waits only for those of the
service that it is about to run (`providers.compiled_services`).
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time

from app.engine.worker_environment import worker_environment
from providers import PROVIDERS
from providers.compiled_services import MEASURES_NAME, are_compiled, compiling
from providers.kernel_display import Bar, CompilationProgress

_log = logging.getLogger("rowveil.engine")

_COMMAND = (sys.executable, "-m", "providers.warm", "--records")
_RETRY_SECONDS = 2.0
_STOP_SECONDS = 5.0
_TENTHS = 10


class KernelCompilation:
    """Compiles the kernels that the cache folder lacks; one process of a machine does so at a time."""

    def __init__(self, command: tuple[str, ...] = _COMMAND) -> None:
        self._names = (*PROVIDERS, MEASURES_NAME)
        self._command = command
        self._task: asyncio.Task[None] | None = None
        self.progress: CompilationProgress | None = None
        """Progress of the compilation, of 0 kernels while they are counted; None if nothing is compiled."""

    def start(self) -> None:
        """Start to compile, if anything is missing. Returns immediately."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop to compile. Kernels that are compiled stay."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while not await asyncio.to_thread(are_compiled, self._names):
                with compiling(wait=False) as lock:
                    if lock is not None:
                        await self._compile(lock)
                        return
                await asyncio.sleep(_RETRY_SECONDS)  # another process of this machine compiles them
        except OSError as error:
            _log.error("no kernel can be compiled in advance (%s); a job compiles those it needs", error)

    async def _compile(self, lock: int) -> None:
        started = time.monotonic()
        self.progress = CompilationProgress(0, 0, [])
        _log.info("compiling kernels in the background; a job waits for those of its own service")
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=worker_environment(os.environ, traces=False),
            pass_fds=(lock,),
            start_new_session=True,
        )
        assert process.stdout is not None
        bar = None
        try:
            async for line in process.stdout:
                if (progress := CompilationProgress.parse(line)) is None or not progress.kernels:
                    continue
                if bar is None and _is_terminal():
                    bar = Bar(progress.kernels, progress.compiled)
                if bar is not None:
                    bar.update(progress.compiled, progress.running)
                self._log_tenth(progress)
                self.progress = progress
            if await process.wait() == 0:
                _log.info("all kernels are compiled, after %.0f s", time.monotonic() - started)
            else:
                _log.error("compiling kernels in advance failed; a job compiles those it needs")
        finally:
            self.progress = None
            if bar is not None:
                bar.close()
            await _end(process)

    def _log_tenth(self, progress: CompilationProgress) -> None:
        before = 0 if self.progress is None else self.progress.compiled
        if progress.compiled * _TENTHS // progress.kernels > before * _TENTHS // progress.kernels:
            _log.info("%d of %d kernels are compiled", progress.compiled, progress.kernels)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process and its own child processes, if it has not ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a kernel that is half compiled is not in the cache
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()


def _is_terminal() -> bool:
    """Whether a person reads both outputs; a program that starts the service shows the progress itself."""
    return sys.stdout is not None and sys.stdout.isatty() and sys.stderr is not None and sys.stderr.isatty()
