"""Parser of a command whose options are added when the command is named."""

import argparse
import importlib
from collections.abc import Sequence
from typing import Any


class CommandParser(argparse.ArgumentParser):
    """Parser that imports the module of its command only to parse its arguments or to print its help.

    Parameters
    ----------
    filler : str
        ``module:function``, which adds the arguments of the command to its parser; empty: it has none.
    """

    def __init__(self, *arguments: Any, filler: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._filler = filler

    def parse_known_args(  # type: ignore[override]  # the overloads concern a namespace's type
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Add the arguments of the command, if they are missing, and parse."""
        if self._filler:
            module, _, function = self._filler.partition(":")
            self._filler = ""
            getattr(importlib.import_module(module), function)(self)
        return super().parse_known_args(args, namespace)
