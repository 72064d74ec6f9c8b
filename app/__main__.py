"""``python -m app serve | migrate | openapi``."""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from app.main import create_app
from app.settings import Settings
from app.store.db import migrate

_LOOK_SECONDS = 0.05


class AnnouncingServer(uvicorn.Server):
    """Prints one line as soon as requests are answered and a worker is up."""

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen, then announce; the announcement waits for a worker in the background."""
        await super().startup(sockets)
        if self.started:
            self._announcement = asyncio.create_task(self._announce())

    async def _announce(self) -> None:
        app = self.config.app
        assert isinstance(app, FastAPI)
        while (await app.state.jobs.health())["workers"] != "ok":
            await asyncio.sleep(_LOOK_SECONDS)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"Rowveil is ready at http://{shown}:{port} (Swagger UI: /docs)", flush=True)


def serve(settings: Settings) -> int:
    """Run the service until SIGTERM or SIGINT; 0 when it stopped cleanly."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace),
    )
    server = AnnouncingServer(config)
    # uvicorn raises the signal again once it has stopped; that must not turn a clean stop into a kill.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    return 0 if server.started else 1


def openapi(settings: Settings, path: Path, check: bool) -> int:
    """Write the OpenAPI document, or say whether the one in `path` is current."""
    document = create_app(settings).openapi()
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
    if not check:
        path.write_bytes(text)
        print(f"wrote {path}")
        return 0
    if path.is_file() and path.read_bytes() == text:
        print(f"{path} is current")
        return 0
    print(f"{path} is not what the code says: run `make openapi`", file=sys.stderr)
    return 1


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rowveil", description="Statistical disclosure control by data swapping."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="run the service; its settings come from ROWVEIL_... variables")
    commands.add_parser("migrate", help="bring the database to the newest layout")
    document = commands.add_parser("openapi", help="write or check the OpenAPI document")
    what = document.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="write it")
    what.add_argument("--check", type=Path, metavar="FILE", help="fail if the file is not current")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    given = _arguments(arguments)
    try:
        settings = Settings()
    except ValidationError as error:
        for item in error.errors():
            name = "_".join(["ROWVEIL", *(str(part).upper() for part in item["loc"])])
            print(f"{name}: {item['msg']}", file=sys.stderr)
        return 2
    if given.command == "serve":
        return serve(settings)
    if given.command == "migrate":
        migrate(settings)
        return 0
    return openapi(settings, given.write or given.check, check=given.check is not None)


if __name__ == "__main__":
    sys.exit(main())
