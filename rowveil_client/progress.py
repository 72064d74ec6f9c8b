"""Progress bar of a job, for terminals and notebooks."""

import os
import sys
from typing import Any

from tqdm.auto import tqdm

_BAR = "{desc:<28.28} {percentage:3.0f}%|{bar}| {elapsed}"
_LINES = 24
"""Lines assumed for one progress bar: tqdm would show none on a terminal that reports 0 lines."""


def progress_bar(shown: bool) -> "tqdm[Any]":
    """Return a bar from 0 to 1; a hidden bar draws nothing."""
    columns = _columns() if shown else None
    return tqdm(total=1.0, bar_format=_BAR, disable=not shown, leave=False, ncols=columns, nrows=_LINES)


def show(bar: "tqdm[Any]", update: dict[str, Any]) -> None:
    """Draw the progress of an event of the job."""
    bar.n = update["progress"]["fraction"]
    bar.set_description_str(update["progress"]["stage"])


def is_interactive() -> bool:
    """Return whether this is a notebook or has a terminal; a process may have no standard error."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel") or (sys.stderr is not None and sys.stderr.isatty())


def _columns() -> int | None:
    """Return the width for tqdm: None asks the terminal, 79 replaces a reported width of 0."""
    try:
        return None if os.get_terminal_size(sys.stderr.fileno()).columns else 79
    except (AttributeError, OSError):  # of a notebook, or of a file
        return None
