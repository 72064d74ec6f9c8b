"""Seed of a command: where it is read from, and the file that keeps it.

A seed is never an option: the command line of a process is visible to every user of the machine and stays in
the shell's history. It comes from a file, or a variable that only the caller's own processes see.
"""

import argparse
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cli.exit_codes import CommandFailed, Exit

VARIABLE = "ROWVEIL_SEED"
_BITS = 128
_FORM = "a seed is 1 to 64 hex digits"
_THERE = "--keep-seed: the file is there already; name a new one"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--seed-file`` and ``--keep-seed``."""
    group = parser.add_argument_group("seed", "The run's secret: anyone who has it can undo the swap.")
    group.add_argument(
        "--seed-file",
        type=Path,
        metavar="FILE",
        help=f"a file with 1 to 64 hex digits; or the variable {VARIABLE}. It is never an option, "
        "which other users could see. Default: 128 bits from the operating system",
    )
    group.add_argument(
        "--keep-seed",
        type=Path,
        metavar="FILE",
        help="write the seed into a new file that its owner alone can read, for a run with the same bytes",
    )


def seed_given(namespace: argparse.Namespace) -> str:
    """Return the seed in hex, or draw one. Raises CommandFailed, also if it could not be written."""
    variable = os.environ.get(VARIABLE)
    seed: str
    if namespace.seed_file is not None and variable:
        raise CommandFailed(f"--seed-file and {VARIABLE} both give a seed: give one of the two", Exit.USAGE)
    if namespace.seed_file is not None:
        try:
            seed = namespace.seed_file.read_text(encoding="ascii").strip()
        except UnicodeDecodeError:
            raise CommandFailed(f"--seed-file: {_FORM}", Exit.USAGE) from None
        except OSError as error:
            raise CommandFailed(
                f"--seed-file: {namespace.seed_file} cannot be read: {error.strerror}", Exit.USAGE
            ) from None
    else:
        seed = variable or secrets.token_hex(_BITS // 8)
    if re.fullmatch("[0-9a-fA-F]{1,64}", seed) is None:
        place = VARIABLE if namespace.seed_file is None else "--seed-file"
        raise CommandFailed(f"{place}: {_FORM}", Exit.USAGE)
    if namespace.keep_seed is not None and namespace.keep_seed.exists():
        raise CommandFailed(_THERE, Exit.USAGE)
    return seed


@contextmanager
def seed_kept(namespace: argparse.Namespace, seed: str) -> Iterator[None]:
    """Write the seed file together with the block's outputs; a failed block leaves no seed.

    Raises CommandFailed.
    """
    path: Path | None = namespace.keep_seed
    if path is None:
        yield
        return
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise CommandFailed(_THERE, Exit.USAGE) from None
    except OSError as error:
        raise CommandFailed(f"--keep-seed: the file cannot be written: {error.strerror}") from None
    try:
        try:
            with os.fdopen(file, "w") as opened:
                opened.write(f"{seed}\n")
        except OSError as error:
            raise CommandFailed(f"--keep-seed: the file cannot be written: {error.strerror}") from None
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise
