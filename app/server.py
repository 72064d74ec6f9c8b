"""The service's process and the Dask worker's: run until a signal, and announce when the service is ready."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.api.middleware.connections import ConnectionLimits, protocol
from app.engine.dask_address import cluster_of
from app.main import create_app
from app.settings import Settings
from app.telemetry.logs import set_up_logs

_LOOK_SECONDS = 0.05
_OTHER_FILES = 512
"""File descriptors of the service other than a connection and a table per caller: database, workers, logs."""
_OPEN = """
WARNING: authentication is OFF (ROWVEIL_AUTH=off). Every program and every user of this machine can
run, read and delete all jobs, and reveal every seed. Use it only on your own machine, and never with
real data.
"""


class AnnouncingServer(uvicorn.Server):
    """Server that prints one line as soon as requests are answered and a worker is up."""

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen, then announce; a background task waits for a worker before the announcement."""
        await super().startup(sockets)
        if self.started:
            self._announcement = asyncio.create_task(self._announce())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop claiming jobs as soon as the signal arrives, and let streams and waiting requests end."""
        super().handle_exit(sig, frame)
        app = self.config.app
        assert isinstance(app, FastAPI)
        jobs = getattr(app.state, "jobs", None)
        if jobs is not None:
            asyncio.get_running_loop().call_soon_threadsafe(jobs.begin_closing)

    async def _announce(self) -> None:
        app = self.config.app
        assert isinstance(app, FastAPI)
        while (await app.state.jobs.health())["workers"] != "ok":
            await asyncio.sleep(_LOOK_SECONDS)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        if app.state.settings.auth == "off":
            print(_OPEN, file=sys.stderr, flush=True)
        print(f"Rowveil is ready at http://{shown}:{port} (console: /, Swagger UI: /docs)", flush=True)


def _collect_seldom() -> None:
    """Reduce the frequency of garbage collection: a request may hold a hundred thousand rows.

    Parsing such a request then takes 0.09 s of processor time instead of 0.16 s.
    """
    gc.collect()
    gc.freeze()  # imported modules are never garbage
    gc.set_threshold(100_000, 50, 100)


def _allow_files(wanted: int) -> None:
    """Raise the process's limit on open files to `wanted`, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def serve(settings: Settings) -> int:
    """Run the service until SIGTERM or SIGINT; return 0 after a clean stop."""
    set_up_logs(settings.log_format, settings.log_level)
    app = create_app(settings)
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not (app.state.start_refused and "Traceback" in record.getMessage())
    )
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        log_config=None,
        server_header=False,
        http=protocol(ConnectionLimits.of(settings)),
        ws="none",  # the connection limits would not apply to an upgraded connection
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=int(settings.shutdown_grace),
    )
    _collect_seldom()
    _allow_files(2 * settings.max_connections + _OTHER_FILES)
    server = AnnouncingServer(config)
    # uvicorn raises the signal again once it has stopped; that must not turn a clean stop into a kill.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    return 0 if server.started else 1


def work(settings: Settings) -> int:
    """Run a worker of the Dask cluster until SIGTERM or SIGINT; return 0 after a clean stop."""
    if settings.engine != "dask":
        print("ROWVEIL_ENGINE: the command 'worker' is only for engine 'dask'", file=sys.stderr)
        return 2
    from app.engine.dask_engine import serve_cluster
    from app.engine.kernel_compilation import KernelCompilation

    async def until_signalled() -> None:
        kernels = KernelCompilation() if settings.compile_kernels else None
        serving = asyncio.ensure_future(serve_cluster(cluster_of(settings), settings.workers, kernels))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    set_up_logs(settings.log_format, settings.log_level)
    logging.getLogger("distributed").setLevel(logging.WARNING)  # it logs each scrape
    asyncio.run(until_signalled())
    return 0
