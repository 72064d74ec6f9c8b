"""Processes of the service, and the Dask worker: run until a signal, and announce when it is ready."""

import asyncio
import contextlib
import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.api.middleware.connections import ConnectionLimits, protocol
from app.engine import fork_server
from app.engine.core_dumps import disable_core_dumps
from app.engine.dask_address import cluster_of
from app.jobs.stores import HomeInUse, HomeUnusable, lock_home, make_home
from app.main import create_app
from app.processes.api_process import ApiProcess
from app.processes.supervisor import SHORTAGE_LINE, SHORTAGES, Supervisor
from app.settings import Settings
from app.telemetry.logs import set_up_logs
from app.telemetry.metrics_folder import remove_folder
from app.telemetry.shared_metrics import forget_process

_LOOK_SECONDS = 0.05
_BACKLOG = 2048
"""Connections that wait to be accepted."""
_ACCEPTED_AT_ONCE = 16
"""Connections that are accepted in one turn of the event loop. Without a free file descriptor, asyncio of
Python 3.11 tries as often in a turn, and reports each failure."""
_SHORTAGE_SECONDS = 10.0
"""Time without a failure to accept a connection after which the next one is logged."""
_HOME_SECONDS = 5.0
"""Time for which a start waits for API processes whose service was killed, and which are about to end."""

_STOP_SECONDS = 20.0
"""Longest time of a stop after `Settings.shutdown_grace`; then the process ends, whatever it waits for."""
_LAST_REQUESTS_SECONDS = 0.1
"""Time of a stop in which requests that are on their way still arrive, before idle connections are closed."""
_KILL_SECONDS = 2.0
"""Further time after which the supervisor kills an API process that could not end itself."""

_OTHER_FILES = 512
"""File descriptors of the service other than a connection and a table per caller: database, workers, logs."""
_OPEN = """
WARNING: authentication is OFF (ROWVEIL_AUTH=off). Every program and every user of this machine can
run, read and delete all jobs, and reveal every seed. Use it only on your own machine, and never with
real data.
"""


class AnnouncingServer(uvicorn.Server):
    """Server that announces when requests are answered and a worker is up.

    One of several API processes gets its connections from the supervisor, and announces to it; otherwise it
    listens itself, and prints one line.
    """

    def __init__(self, config: uvicorn.Config, process: ApiProcess) -> None:
        super().__init__(config)
        self._process = process
        self._adopting: set[asyncio.Task[Any]] = set()
        self._short_at = -math.inf

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Take connections, then announce; a background task waits for a worker before the announcement."""
        self._process.listen()
        asyncio.get_running_loop().set_exception_handler(self._report_error)
        await super().startup(sockets if self._process.alone else [])
        if self.started:
            for listener in (each for server in self.servers for each in server.sockets):
                with socket.socket(fileno=os.dup(listener.fileno())) as same:
                    same.listen(_BACKLOG)  # uvicorn has one number for this and for `_ACCEPTED_AT_ONCE`
            self._process.on_connection = self._adopt
            self._process.report_serving()
            self._announcement = asyncio.create_task(self._announce())

    def _report_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the event loop; log only once that it can accept no connection."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in SHORTAGES or "socket" not in context:
            loop.default_exception_handler(context)
            return
        if loop.time() - self._short_at > _SHORTAGE_SECONDS:
            logging.getLogger("rowveil").error(SHORTAGE_LINE, error.strerror)
        self._short_at = loop.time()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop claiming jobs as soon as the signal arrives, and let streams and waiting requests end.

        A start that waits for the database or the bucket gives up. A stop that waits for something that does
        not respond is ended after `_STOP_SECONDS` and the grace time.
        """
        super().handle_exit(sig, frame)
        app, loop = self.config.app, asyncio.get_running_loop()
        assert isinstance(app, FastAPI)
        if not self._process.stopping:
            self._process.stopping = True
            loop.call_soon_threadsafe(_end_after, app.state.settings.shutdown_grace + _STOP_SECONDS)
        jobs = getattr(app.state, "jobs", None)
        if jobs is not None:
            loop.call_soon_threadsafe(jobs.begin_closing)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """Stop accepting connections, answer requests that are on their way, and let all connections end.

        Each of these responses has `Connection: close`. So uvicorn has to close idle connections only: a
        client that sends a request at just that moment is reset.
        """
        for server in self.servers:
            server.close()
        await asyncio.sleep(_LAST_REQUESTS_SECONDS)
        await super().shutdown(sockets)

    def _adopt(self, connection: socket.socket) -> None:
        """Serve a connection that the supervisor has accepted."""
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        adopting = loop.create_task(loop.connect_accepted_socket(self._new_protocol, connection))
        self._adopting.add(adopting)
        adopting.add_done_callback(self._adopted)

    def _adopted(self, adopting: asyncio.Task[Any]) -> None:
        self._adopting.discard(adopting)
        if not adopting.cancelled() and adopting.exception() is not None:  # the client has gone
            self._process.report_closed()

    def _new_protocol(self) -> asyncio.Protocol:
        config = self.config
        return config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def _announce(self) -> None:
        app = self.config.app
        assert isinstance(app, FastAPI)
        while (await app.state.jobs.health())["workers"] != "ok":
            await asyncio.sleep(_LOOK_SECONDS)
        if self._process.alone:
            _print_ready(app.state.settings, self.servers[0].sockets[0])
        else:
            self._process.report_ready()


def _end_after(seconds: float) -> None:
    """End this process after some seconds, as a kill would, unless it has stopped before."""
    timer = threading.Timer(seconds, _end_now, (seconds,))
    timer.daemon = True
    timer.start()


def _end_now(seconds: float) -> None:
    logging.getLogger("rowveil").error(
        "the stop has not ended within %g s, since the database, the storage or a process does not respond: "
        "the process ends now, and its running jobs start again when its lease has expired",
        seconds,
    )
    os._exit(1)


def _print_ready(settings: Settings, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    if settings.auth == "off":
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
    """Run the service until SIGTERM or SIGINT; return 0 after a clean stop, 1 after a failed start."""
    set_up_logs(settings.log_format, settings.log_level)
    disable_core_dumps()
    if settings.api_processes == 1:
        return _serve_process(settings, ApiProcess())
    return _serve_in_processes(settings)


def _serve_in_processes(settings: Settings) -> int:
    """Run the service in several API processes: see `app.processes.supervisor`."""
    try:
        with _locked_home(settings):
            return _supervisor(settings, _listeners(settings)).run()
    except (HomeInUse, HomeUnusable, OSError) as error:
        logging.getLogger("rowveil").error("%s", error)
        return 1
    finally:
        remove_folder()


@contextlib.contextmanager
def _locked_home(settings: Settings) -> Iterator[None]:
    """Let no other service use the home of an embedded database.

    Raises HomeInUse, HomeUnusable, OSError.
    """
    if not settings.database_url.startswith("sqlite"):
        yield
        return
    make_home(settings.home)
    lock = lock_home(settings, _HOME_SECONDS)
    try:
        yield
    finally:
        lock.close()


def _supervisor(settings: Settings, listeners: Sequence[socket.socket]) -> Supervisor:
    """Return the parent of the API processes, in a process that has imported their modules."""

    def prepare() -> None:
        if settings.engine == "local":
            fork_server.start()  # again, if it has died

    def run_process(process: ApiProcess) -> int:
        fork_server.inherit()
        process.on_supervisor_lost = remove_folder
        return _serve_process(settings.of_process(process.number), process)

    gc.collect()
    gc.freeze()  # the processes share the memory of what has been imported
    return Supervisor(
        settings.api_processes,
        listeners,
        run_process,
        announce=partial(_print_ready, settings, listeners[0]),
        stop_seconds=settings.shutdown_grace + _STOP_SECONDS + _KILL_SECONDS,
        prepare=prepare,
        forget=forget_process,
    )


def _listeners(settings: Settings) -> list[socket.socket]:
    """Listen on all addresses of the settings' host. Raises OSError."""
    listeners = []
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, address in dict.fromkeys((family, address[:2]) for family, _, _, _, address in found):
            listeners.append(socket.create_server(address, family=family, backlog=_BACKLOG))
            listeners[-1].setblocking(False)
    except OSError as error:
        for listener in listeners:
            listener.close()
        place = f"{settings.host}, port {settings.port}"
        raise OSError(f"the service cannot listen on {place}: {error.strerror or error}") from error
    return listeners


def _serve_process(settings: Settings, process: ApiProcess) -> int:
    """Run an API process until SIGTERM or SIGINT; return 0 after a clean stop."""
    app = create_app(settings, process)
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: (
            not app.state.start_refused or not (process.stopping or "Traceback" in record.getMessage())
        )
    )
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        backlog=_ACCEPTED_AT_ONCE,
        log_level="warning",
        access_log=False,
        log_config=None,
        server_header=False,
        http=protocol(ConnectionLimits.of(settings), process.report_closed, lambda: process.stopping),
        ws="none",  # the connection limits would not apply to an upgraded connection
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=int(settings.shutdown_grace),
    )
    _collect_seldom()
    _allow_files(2 * settings.max_connections + _OTHER_FILES)
    server = AnnouncingServer(config, process)
    # uvicorn raises the signal again once it has stopped; that must not turn a clean stop into a kill.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    # SystemExit is uvicorn's after a failed start, with codes of its own.
    with contextlib.suppress(SystemExit):
        server.run()
    return 0 if server.started or process.stopping else 1


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

        def stop() -> None:
            if serving.cancel():
                _end_after(_STOP_SECONDS)

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    set_up_logs(settings.log_format, settings.log_level)
    logging.getLogger("distributed").setLevel(logging.WARNING)  # it logs each scrape
    asyncio.run(until_signalled())
    return 0
