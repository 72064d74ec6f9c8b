"""The command line: ``python -m app``, or ``rowveil`` where it is installed."""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from app.administration import add_commands, administer
from app.api.slow_callers import protocol
from app.cli.commands import add_commands as add_table_commands
from app.cli.commands import execute
from app.contract import allows_breaking, breaking_changes
from app.engine.cluster import cluster_of
from app.http_page import http_page
from app.main import create_app
from app.measure_page import measures_page
from app.pages import page
from app.settings import Settings, unknown_variables
from app.store.db import DatabaseUnusable, migrate
from app.telemetry.logs import set_up_logs
from providers import PROVIDERS

_LOOK_SECONDS = 0.05
_OPEN = """
WARNING: authentication is OFF (ROWVEIL_AUTH=off). Every program and every user of this machine can
run, read and delete all jobs, and reveal every seed. For a laptop alone; never for real data.
"""


class AnnouncingServer(uvicorn.Server):
    """Prints one line as soon as requests are answered and a worker is up."""

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen, then announce; the announcement waits for a worker in the background."""
        await super().startup(sockets)
        if self.started:
            self._announcement = asyncio.create_task(self._announce())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """At the signal already: claim no more jobs, and let streams and waiting calls end."""
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
    """Look for cycles of garbage less often than Python does: a call may hold a hundred thousand rows.

    Such a call was parsed in 0.09 s of processor time, and in 0.16 s before.
    """
    gc.collect()
    gc.freeze()  # what has been imported stays
    gc.set_threshold(100_000, 50, 100)


def serve(settings: Settings) -> int:
    """Run the service until SIGTERM or SIGINT; 0 when it stopped cleanly."""
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
        http=protocol(settings.request_patience),
        timeout_graceful_shutdown=int(settings.shutdown_grace),
    )
    _collect_seldom()
    server = AnnouncingServer(config)
    # uvicorn raises the signal again once it has stopped; that must not turn a clean stop into a kill.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    return 0 if server.started else 1


def work(settings: Settings) -> int:
    """Be a worker of the cluster until SIGTERM or SIGINT; 0 when it stopped cleanly."""
    if settings.engine != "dask":
        print("ROWVEIL_ENGINE: a worker of its own is for engine 'dask'", file=sys.stderr)
        return 2
    from app.engine.distributed import serve_cluster

    async def until_told() -> None:
        serving = asyncio.ensure_future(serve_cluster(cluster_of(settings), settings.workers))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    set_up_logs(settings.log_format, settings.log_level)
    logging.getLogger("distributed").setLevel(logging.WARNING)  # it tells of every look at it
    asyncio.run(until_told())
    return 0


def derived_files(settings: Settings) -> dict[Path, bytes]:
    """The committed files that are made from the code, by their place in the repository."""
    document = create_app(settings).openapi()
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
    pages = {
        Path(f"docs/services/{identifier}.md"): page(provider).encode()
        for identifier, provider in PROVIDERS.items()
    }
    return {
        Path("openapi/openapi.json"): text,
        Path("docs/measures.md"): measures_page().encode(),
        Path("docs/http-reference.md"): http_page(document).encode(),
        **pages,
    }


def derive(settings: Settings, check: bool) -> int:
    """Write the derived files below the working directory, or say which are not current."""
    status = 0
    for path, content in derived_files(settings).items():
        if path.is_file() and path.read_bytes() == content:
            continue
        if check:
            print(f"{path} is not what the code says: run `make openapi docs`", file=sys.stderr)
            status = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print(f"wrote {path}")
    return status


_RELEASED = Path("openapi/released.json")
"""The contract as it was released last: what clients may rely on."""


def hold_to_release(settings: Settings) -> int:
    """1 where the contract breaks clients of the released one, and the version does not say so."""
    released, current = orjson.loads(_RELEASED.read_bytes()), create_app(settings).openapi()
    if allows_breaking(released["info"]["version"], current["info"]["version"]):
        return 0
    broken = breaking_changes(released, current)
    for change in broken:
        print(f"breaks clients of {released['info']['version']}: {change}", file=sys.stderr)
    if broken:
        print("raise the version (before 1.0 the minor), or take the change back", file=sys.stderr)
    return 1 if broken else 0


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rowveil", description="Statistical disclosure control by data swapping."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="run the service; its settings come from ROWVEIL_... variables")
    commands.add_parser("worker", help="run jobs for a service with ROWVEIL_ENGINE=dask, as a Dask worker")
    commands.add_parser("migrate", help="bring the database to the newest layout")
    derived = commands.add_parser(
        "openapi", help="write openapi/openapi.json and the services' pages from the code"
    )
    derived.add_argument(
        "--check",
        action="store_true",
        help="only say whether they are current, and whether the contract keeps what was released",
    )
    derived.add_argument(
        "--release", action="store_true", help="keep the contract as the one that clients may rely on"
    )
    add_table_commands(commands)
    add_commands(commands)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    if sys.stderr is None:  # it was closed: what is told must not come out among the rows
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lasts
    given = _arguments(arguments)
    for fault in (faults := unknown_variables(os.environ)):
        print(fault, file=sys.stderr)
    if faults:
        return 2
    on_tables = hasattr(given, "table_command")
    try:
        settings = Settings(workers=1) if on_tables else Settings()  # one job has the machine to itself
    except ValidationError as error:
        for item in error.errors():
            if item["type"] == "default_factory_not_called":
                continue  # a default that depends on the setting at fault
            name = "".join(f"ROWVEIL_{str(part).upper()}: " for part in item["loc"])
            print(f"{name}{item['msg'].removeprefix('Value error, ')}", file=sys.stderr)
        return 2
    if given.command == "serve":
        return serve(settings)
    if given.command == "worker":
        return work(settings)
    if given.command == "migrate":
        try:
            migrate(settings)
        except DatabaseUnusable as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    if on_tables:
        return execute(settings, given)
    if given.command != "openapi":
        return administer(settings, given)
    status = derive(settings, given.check)
    if given.release and status == 0:
        _RELEASED.write_bytes(Path("openapi/openapi.json").read_bytes())
    return max(status, hold_to_release(settings)) if given.check else status


if __name__ == "__main__":
    sys.exit(main())
