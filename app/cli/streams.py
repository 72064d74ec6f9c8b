"""Standard input, output and error of a command: closed ones, failed writes, and text made safe to show."""

import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cli.exit_codes import Exit


def replace_closed_streams() -> bool:
    """Open each standard stream that the caller has closed, so that no other file gets its descriptor.

    Return whether standard output was closed. Messages to a closed standard error are lost. A write to a
    closed standard output fails, so that no rows are lost without notice. A read from a closed standard input
    fails, too.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r")
    output_is_closed = sys.stdout is None
    if output_is_closed:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lasts
    return output_is_closed


def shown(text: str) -> str:
    """Return a line with each control character escaped: a table's names must not control the terminal."""
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) in ("Cc", "Cf", "Cs") else each
        for each in text
    )


def print_failure(message: str) -> None:
    """Print why a command failed on standard error, each line after the name of the program."""
    for line in message.splitlines():
        print(f"rowveil: {shown(line)}", file=sys.stderr)


def print_os_error(error: OSError) -> None:
    """Print an error of a file or of standard output, whose pending text is discarded."""
    reason = error.strerror or "the storage failed"
    if error.filename:
        print_failure(f"{reason}: {error.filename}")
    elif _output_fails():
        print_failure(f"standard output cannot be written: {reason}")
    else:
        print_failure(reason)


def _output_fails() -> bool:
    """Return whether standard output does not take its pending text, and discard that text."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
        return True
    return False


def drop_output() -> None:
    """Discard pending standard output, which Python would otherwise write at exit and report as an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def ending_in_one_line() -> Iterator[None]:
    """Turn an interruption or a failed read or write into one line on standard error and SystemExit."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # otherwise Python flushes at exit, where a failure goes unnoticed
    except BrokenPipeError:
        drop_output()
        raise SystemExit(Exit.PIPE_CLOSED) from None
    except OSError as error:
        print_os_error(error)
        raise SystemExit(Exit.FAILED) from None
    except KeyboardInterrupt:
        print_failure("interrupted")
        raise SystemExit(Exit.INTERRUPTED) from None
