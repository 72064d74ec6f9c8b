"""Parsers of the command line: usage errors in one line, options added when a command is named."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from app.cli.exit_codes import Exit
from providers.errors import did_you_mean


class LineParser(argparse.ArgumentParser):
    """Parser that reports a usage error in one line, with the nearest command or option."""

    def parse_known_args(  # type: ignore[override]  # the overloads concern a namespace's type
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and report an unknown option before the required ones that are missing."""
        given = list(sys.argv[1:] if args is None else args)
        has_commands = self._subparsers is not None  # then later options are those of the command
        self._refuse_unknown(takewhile(_is_option, given) if has_commands else given)
        parsed, rest = super().parse_known_args(given, namespace)
        if rest:
            self.error(f"unexpected argument '{rest[0]}'")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Print the message in one line and exit."""
        self.exit(Exit.USAGE, f"{self.prog}: {message} (see '{self.prog} --help')\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = did_you_mean(str(value), map(str, action.choices))
            raise argparse.ArgumentError(action, f"there is no '{value}'{near}")

    def _refuse_unknown(self, given: Iterable[str]) -> None:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        for argument in given:
            if argument == "--":
                return
            name = argument.partition("=")[0]
            if not name.startswith("--") or name in known:
                continue
            if self.allow_abbrev and any(option.startswith(name) for option in known):
                continue
            near = did_you_mean(name, known)
            self.error(f"there is no option '{name}'{near if near.startswith('; did') else ''}")


def _is_option(argument: str) -> bool:
    return argument.startswith("-")


class CommandParser(LineParser):
    """Parser that gets the arguments of its command only to parse them or to print its help.

    Parameters
    ----------
    filler : callable, optional
        Adds them to the parser. It may import modules that no other command needs.
    """

    def __init__(
        self, *arguments: Any, filler: Callable[["CommandParser"], None] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._filler = filler
        self.given: Sequence[str] = ()
        """Arguments that are parsed, while the filler runs."""

    def parse_known_args(  # type: ignore[override]  # the overloads concern a namespace's type
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Add the arguments of the command, if they are missing, and parse."""
        if self._filler is not None:
            self.given = list(sys.argv[1:] if args is None else args)
            filler, self._filler = self._filler, None
            filler(self)
        return super().parse_known_args(args, namespace)
