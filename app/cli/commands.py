"""``rowveil run``, ``measures``, ``frontier`` and ``verify``: their arguments, and how they end."""

import argparse
import logging
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from app.api.measures import MeasureRequest
from app.api.schemas import RunRequest
from app.api.uploads import CsvOptions
from app.cli import judge, run, seeds, verify
from app.cli.calls import CSV, Call
from app.cli.failures import CommandFailed, Exit
from app.cli.files import STANDARD, add_format, drop_output
from app.cli.options import Options
from app.cli.room import Failed
from app.errors import AppError
from app.settings import Settings
from providers import PROVIDERS
from providers.choosing.candidates import CandidateOptions
from providers.choosing.frontier import FrontierOptions
from providers.measures.assessment import MeasureOptions

Command = Callable[[Call, Settings], int]

_EXITS = """\
exit codes: 0 done; 1 it could not be done; 2 an option is at fault; 3 verify: something differs;
130 interrupted; 141 nobody reads the output any more.

A list is written A,B or as a JSON list; JSON may be the name of its file after an @. A table is CSV,
Parquet or an Arrow stream, by the suffix of its name; '-' is standard input or output, with --format.
"""

_log = logging.getLogger("rowveil.cli")


def add_commands(commands: Any) -> None:
    """Add the four to the parser's commands."""
    running = commands.add_parser("run", help="run a service on a table of this machine")
    services = running.add_subparsers(dest="service", required=True, metavar="SERVICE")
    for identifier, provider in PROVIDERS.items():
        parser = _parser(services, identifier, provider.title, provider.summary, run.run)
        _add_tables(parser, "source", "destination")
        options = _options(parser)
        options.add_model(provider.params, ("parameters",))
        options.add_model(RunRequest, only=("validate_only",))
        _add_report(parser)
        parser.add_argument(
            "--report-level",
            choices=("summary", "full"),
            help="`full`: every measure of risk and utility that applies. Default: summary",
        )
        options.add_model(MeasureOptions, ("measures",), "measures")
        options.add_model(CandidateOptions, ("candidates",), "candidates")
        _add_csv(options)
        seeds.add_options(parser)

    judging = _parser(
        commands, "measures", "judge a table beside its source", "Every measure that applies.", judge.measures
    )
    _add_tables(judging, "source", "destination")
    options = _options(judging)
    options.add_model(MeasureRequest, only=("aligned",))
    options.add_model(MeasureOptions, ("measures",))
    _add_report(judging)
    _add_csv(options)
    seeds.add_options(judging)

    comparing = _parser(
        commands,
        "frontier",
        "compare services and parameters by risk and utility",
        "Every combination is run, and a point; what no other point beats is the frontier.",
        judge.frontier,
    )
    _add_tables(comparing, "source")
    options = _options(comparing)
    options.add_model(FrontierOptions)
    options.add_model(MeasureOptions, ("measures",), "measures")
    _add_report(comparing)
    _add_csv(options)
    seeds.add_options(comparing)

    verifying = _parser(
        commands,
        "verify",
        "hold a manifest against its signature and its tables",
        "Says what differs. A CSV is read with the types that the manifest states.",
        verify.verify,
    )
    verify.add_arguments(verifying)
    _add_csv(_options(verifying))


def execute(settings: Settings, namespace: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit code, with the reason of a failure on standard error."""
    command: Command = namespace.table_command
    before = signal.signal(signal.SIGTERM, _interrupt)  # so that the room is cleared away
    call: Call | None = None
    try:
        call = Call(namespace.options, namespace)
        code = command(call, settings)
        sys.stdout.flush()  # else Python does, where nobody is told of it
        return code
    except Failed as failed:
        assert call is not None  # a task was run for it
        print(f"rowveil: {call.placed(failed.message, failed.pointer)}", file=sys.stderr)
        if failed.trace:
            _log.error("%s", " < ".join(failed.trace))
        return failed.code
    except CommandFailed as failed:
        for line in failed.message.splitlines():
            print(f"rowveil: {line}", file=sys.stderr)
        return failed.code
    except AppError as error:
        print(f"rowveil: {error.message}", file=sys.stderr)
        return Exit.FAILED
    except BrokenPipeError:
        drop_output()
        return Exit.PIPE_CLOSED
    except OSError as error:  # of the room, such as a folder for temporary files that is not there
        where = f": {error.filename}" if error.filename else ""
        print(f"rowveil: {error.strerror or 'the storage failed'}{where}", file=sys.stderr)
        return Exit.FAILED
    except KeyboardInterrupt:
        print("rowveil: interrupted; no file is there in part", file=sys.stderr)
        return Exit.INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser(commands: Any, name: str, summary: str, about: str, command: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=about,
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(table_command=command)
    parser.add_argument("--quiet", action="store_true", help="say nothing but what went wrong")
    add_format(parser)
    return parser


def _options(parser: argparse.ArgumentParser) -> Options:
    options = Options(parser)
    parser.set_defaults(options=options)
    return options


def _add_tables(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(name, metavar=name.upper(), help=f"the {name}'s file; '{STANDARD}' for a pipe")


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report", metavar="FILE", help="write the report: .json, or .html as a page")
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        help="write the signed manifest, with the keys of ROWVEIL_HOME, which are made where there are none",
    )


def _add_csv(options: Options) -> None:
    options.add_model(CsvOptions, (CSV,), CSV)
