"""Command line of the service: ``python -m app``, or ``rowveil`` if it is installed.

This module imports what every command needs. The module of a command is imported when the command is named,
so that help and usage errors appear at once.
"""

import argparse
import importlib
import os
import signal
import sys
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from app import __version__
from app.cli.parser import CommandParser, LineParser
from app.cli.streams import drop_output, ending_in_one_line, replace_closed_streams
from app.lean import collection_paused, defer, leave_out
from app.telemetry.metrics_folder import make_folder
from providers import numba

if TYPE_CHECKING:
    from app.settings import Settings

_ADMINISTRATION = "app.cli.admin_arguments:"
"""Start of the fillers of commands that run no kernel: without numba they start in half the time."""

_COMMANDS = (
    ("serve", "run the service; its settings are ROWVEIL_... variables (docs/settings.md)", ""),
    ("worker", "run jobs for a service with ROWVEIL_ENGINE=dask, as a Dask worker", ""),
    ("migrate", "migrate the database to the newest schema, or back", "app.cli.admin_arguments:add_migrate"),
    ("run", "run a service on a local table", "app.cli.commands:add_run"),
    ("measures", "measure a table against its source", "app.cli.commands:add_measures"),
    ("frontier", "compare services and parameters by risk and utility", "app.cli.commands:add_frontier"),
    ("attack", "attack a release, and judge the risk", "app.cli.commands:add_attack"),
    ("plan", "estimate memory, scratch space and time of a job", "app.cli.commands:add_plan"),
    ("verify", "verify a manifest's signature and its tables", "app.cli.commands:add_verify"),
    ("keys", "make, list and revoke API keys", "app.cli.admin_arguments:add_keys"),
    ("rotate-keys", "encrypt everything again under the first master key", ""),
    ("reseal", "seal the values of a restored older database to their rows", ""),
    (
        "restore-database",
        "replace the embedded database by a backup, with the service stopped",
        "app.cli.admin_arguments:add_restore_database",
    ),
    (
        "adopt-storage",
        "bind the shared folder to the database, for example after a restore",
        "app.cli.admin_arguments:add_adopt_storage",
    ),
    ("audit", "verify the audit log", "app.cli.admin_arguments:add_audit"),
    (
        "ledger",
        "list the releases of the disclosure ledger, with their measured risk",
        "app.cli.admin_arguments:add_ledger",
    ),
)
"""Name, help, and the function that adds the arguments, if there are any."""


def _parser() -> argparse.ArgumentParser:
    parser = LineParser(
        prog="rowveil",
        description="Statistical disclosure control by data swapping.",
        epilog="'rowveil COMMAND --help' describes a command; docs/command_line.md has examples.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=CommandParser)
    for name, summary, filler in _COMMANDS:
        commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            filler=partial(_fill, filler) if filler else None,
        )
    return parser


def _fill(filler: str, parser: CommandParser) -> None:
    """Import the function that adds the arguments of a command, and call it."""
    if filler.startswith(_ADMINISTRATION):
        numba.leave_out()
    module, _, function = filler.partition(":")
    getattr(importlib.import_module(module), function)(parser)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Without ``arguments``, the arguments of the process are parsed, and libraries that no command needs are
    not imported.
    """
    if arguments is None:
        leave_out("pandas")
        leave_out("pydantic.v1")
    output_is_closed = replace_closed_streams()
    with ending_in_one_line(), collection_paused():
        given = _parser().parse_args(arguments)
        if given.command in ("serve", "worker"):
            signal.signal(signal.SIGTERM, _end_at_once)
        on_tables = hasattr(given, "table_command")
        settings = _settings(on_tables)
    if settings is None:
        return 2
    if output_is_closed and given.command in ("serve", "worker"):
        drop_output()  # it has only the address of a service
    if given.command == "serve":
        numba.leave_out()  # before a provider is imported: kernels run in the workers
        if settings.engine == "local":
            _begin_workers()
        defer("pyarrow", "pyarrow.compute", "pyarrow.csv")
        if settings.api_processes > 1:
            make_folder()  # before prometheus_client is imported
        with collection_paused():
            from app.server import serve
        return serve(settings)
    if given.command == "worker":
        _begin_workers()
        from app.server import work

        return work(settings)
    if on_tables:
        with ending_in_one_line():
            with collection_paused():
                from app.cli.commands import execute
            return execute(settings, given)
    numba.leave_out()
    with ending_in_one_line():
        with collection_paused():
            from app.cli.admin import administer
        return administer(settings, given)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """End the process cleanly at a SIGTERM during its start, before the service handles signals itself.

    Without a handler the first process of a container does not receive the signal at all, and another process
    would leave the folder of its fork server's socket behind.
    """
    sys.exit(0)


def _settings(on_tables: bool) -> "Settings | None":
    """Read the settings from the environment; print what is wrong with them, and return None."""
    from pydantic import ValidationError

    from app.settings import Settings, unknown_variables

    for fault in (faults := unknown_variables(os.environ)):
        print(fault, file=sys.stderr)
    if faults:
        return None
    try:
        return Settings(workers=1) if on_tables else Settings()  # one job has the machine to itself
    except ValidationError as error:
        for item in error.errors():
            if item["type"] == "default_factory_not_called":
                continue  # a default that depends on the invalid setting
            name = "".join(f"ROWVEIL_{str(part).upper()}: " for part in item["loc"])
            print(f"{name}{item['msg'].removeprefix('Value error, ')}", file=sys.stderr)
        return None


def _begin_workers() -> None:
    """Let another process import the modules of workers while this one imports those of the service."""
    from app.engine import fork_server

    fork_server.start()


if __name__ == "__main__":
    sys.exit(main())
