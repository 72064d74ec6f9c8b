"""Arguments and exit codes of the commands on tables: ``rowveil run``, ``measures`` and others."""

import argparse
import logging
import signal
import sys
from collections.abc import Callable
from itertools import takewhile
from types import FrameType
from typing import Any, get_args

from app.cli import attack_command, plan_command, report_commands, run, seeds, verify
from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import STANDARD, add_format
from app.cli.options import Options
from app.cli.parser import CommandParser
from app.cli.request_builder import CSV, Call
from app.cli.streams import drop_output, print_failure, print_os_error
from app.cli.workspace import Failed
from app.errors import AppError
from app.formats.csv_dialect import DecimalMark
from app.formats.csv_output import Formulas, WrittenDelimiter
from app.requests.attacks import AttackRequest
from app.requests.measures import MeasureRequest
from app.requests.run import RunRequest
from app.requests.run_attacks import RunAttackOptions
from app.requests.uploads import CsvOptions
from app.settings import Settings
from providers import PROVIDERS
from providers.attacks.options import AttackOptions
from providers.measures.assessment import MeasureOptions
from providers.provider import Provider
from providers.selection.candidates import CandidateOptions
from providers.selection.frontier import FrontierOptions

Command = Callable[[Call, Settings], int]

_EXITS = """\
exit codes: 0 success; 1 failure; 2 invalid option; 3 verify: a difference was found;
130 interrupted; 141 the reader closed the output.

Write a list as A,B or as a JSON list; @NAME reads JSON from a file. A table is CSV, Parquet or an
Arrow stream, by the suffix of its name; '-' is standard input or output, with --format.
"""

_log = logging.getLogger("rowveil.cli")


def add_run(parser: CommandParser) -> None:
    """Add the services to the parser of `run`."""
    _add_services(parser, _add_run_of, 0)


def _add_services(
    parser: CommandParser, add: Callable[[CommandParser, Provider[Any]], None], place: int
) -> None:
    """Add a parser for each service, to which ``add`` adds its arguments when the service is named.

    ``place``: number of arguments before the service. If these name one, the modules of the others are not
    imported: only the help has their titles.
    """
    services = parser.add_subparsers(
        dest="service", required=True, metavar="SERVICE", parser_class=CommandParser
    )
    typed = list(takewhile(lambda each: not each.startswith("-"), parser.given))
    is_named = len(typed) > place and typed[place] in PROVIDERS
    for identifier in PROVIDERS:
        title = None if is_named else PROVIDERS[identifier].title
        services.add_parser(
            identifier, help=title, filler=lambda each, name=identifier: add(each, PROVIDERS[name])
        )


def _add_run_of(parser: CommandParser, provider: Provider[Any]) -> None:
    _describe(parser, provider.summary, run.run)
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
    parser.add_argument(
        "--csv-formulas",
        choices=get_args(Formulas),
        help="CSV destination: `escape` puts an apostrophe before texts that a spreadsheet computes. "
        "Default: keep",
    )
    parser.add_argument(
        "--csv-written-delimiter",
        choices=get_args(WrittenDelimiter),
        help="CSV destination: delimiter of cells. Default: a comma, or a tab if the name ends in .tsv",
    )
    parser.add_argument(
        "--csv-written-decimal-mark",
        choices=get_args(DecimalMark),
        help="CSV destination: decimal mark of numbers; `comma` needs another delimiter. Default: point",
    )
    options.add_model(MeasureOptions, ("measures",), "measures")
    options.add_model(CandidateOptions, ("candidates",), "candidates")
    options.add_model(RunAttackOptions, ("attacks",), "attacks")
    _add_csv(options)
    seeds.add_options(parser)


def add_measures(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `measures`."""
    _describe(parser, "Compute every measure of risk and utility that applies.", report_commands.measures)
    _add_tables(parser, "source", "destination")
    options = _options(parser)
    options.add_model(MeasureRequest, only=("aligned",))
    options.add_model(MeasureOptions, ("measures",))
    _add_report(parser)
    _add_csv(options)
    seeds.add_options(parser)


def add_frontier(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `frontier`."""
    about = "Run every combination; the frontier has the points that no other point dominates."
    _describe(parser, about, report_commands.frontier)
    _add_tables(parser, "source")
    options = _options(parser)
    options.add_model(FrontierOptions)
    options.add_model(MeasureOptions, ("measures",), "measures")
    _add_report(parser)
    _add_csv(options)
    seeds.add_options(parser)


def add_attack(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `attack`."""
    about = "Attack the destination in every way that applies, and judge the risk."
    _describe(parser, about, attack_command.attack)
    _add_tables(parser, "source", "destination")
    options = _options(parser)
    options.add_model(AttackOptions)
    options.add_model(AttackRequest, only=("aligned",))
    attack_command.add_arguments(parser)
    _add_report(parser)
    _add_csv(options)
    seeds.add_options(parser)


def add_plan(parser: CommandParser) -> None:
    """Add the table's file and the services to the parser of `plan`."""
    _add_tables(parser, "source")
    _add_services(parser, _add_plan_of, 1)


def _add_plan_of(parser: CommandParser, provider: Provider[Any]) -> None:
    about = "Estimate what a job needs on several workers, from measured costs and a simulation."
    _describe(parser, about, plan_command.plan)
    options = _options(parser)
    options.add_model(provider.params, ("parameters",))
    plan_command.add_arguments(parser)
    _add_csv(options)


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify`."""
    _describe(parser, "Report every difference. A CSV is read with the types in the manifest.", verify.verify)
    verify.add_arguments(parser)
    _add_csv(_options(parser))


def execute(settings: Settings, namespace: argparse.Namespace) -> int:
    """Run a command. Return its exit code; a failure is reported on standard error."""
    command: Command = namespace.table_command
    previous_handler = signal.signal(signal.SIGTERM, _interrupt)  # so that the workspace is removed
    call: Call | None = None
    try:
        call = Call(namespace.options, namespace)
        code = command(call, settings)
        sys.stdout.flush()  # otherwise Python flushes at exit, where a failure goes unnoticed
        return code
    except Failed as failed:
        assert call is not None  # tasks run only after `call` exists
        place, part = (f"{failed.table}: ", CSV) if failed.table else ("", "")
        print_failure(f"{place}{call.placed(failed.message, failed.pointer, part)}")
        if failed.trace:
            _log.error("%s", " < ".join(failed.trace))
        return failed.code
    except CommandFailed as failed:
        print_failure(failed.message)
        return failed.code
    except AppError as error:
        print_failure(error.message)
        return Exit.FAILED
    except BrokenPipeError:
        drop_output()
        return Exit.PIPE_CLOSED
    except OSError as error:  # of the workspace, such as a missing folder for temporary files
        print_os_error(error)
        return Exit.FAILED
    except KeyboardInterrupt:
        print_failure("interrupted; no partial file is left")
        return Exit.INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _describe(parser: argparse.ArgumentParser, about: str, command: Command) -> None:
    """Set the description of a command, the function that runs it, and its common options."""
    parser.description = about
    parser.epilog = _EXITS
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.allow_abbrev = False
    parser.set_defaults(table_command=command)
    parser.add_argument("--quiet", action="store_true", help="print only errors")
    add_format(parser)


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
        help="write the signed manifest; signs with the keys in ROWVEIL_HOME, created if there are none",
    )


def _add_csv(options: Options) -> None:
    options.add_model(CsvOptions, (CSV,), CSV)
