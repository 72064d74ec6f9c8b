"""Progress bar of long commands: shown only in a terminal, never among the output."""

import csv
import io
import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Desk
from tests.cli.people import people
from tests.preloaded.processes import command
from tests.terminal import ROOT, SIZES, Ended, in_terminal

ROWS = 30_000  # a second of work on a fast machine too: the command looks for progress ten times a second
FEW_ROWS = 10_000
"""Enough for a bar, which would be drawn from the start."""
LONG = [
    "run",
    "DSWAP",
    "long.parquet",
    "-",
    "--format",
    "csv",
    "--swap-fields",
    "income",
    "--candidates-count",
    "40",
]
"""Many measured runs, with one stage for each run."""

pytestmark = pytest.mark.usefixtures("desk")


def run(size: str, *more: str, rows: int = ROWS, stdout_too: bool = False) -> Ended:
    """Run the long command in a terminal, forked from a process that has imported it."""
    pq.write_table(people(rows), "long.parquet")
    forked = command()
    arguments = [*forked.arguments[1:], *LONG, *more]
    return in_terminal(arguments, SIZES[size], stdout_too=stdout_too, pass_fds=(forked.descriptor,))


@pytest.mark.parametrize("size", SIZES)
def test_the_bar_moves_in_a_terminal(size: str) -> None:
    """The bar moves from left to right, fits its line and disappears; the table is complete."""
    ended = run(size)
    assert ended.code == 0, ended.drawn
    running = [bar for bar in ended.bars if not bar.stage.startswith(("reading", "writing -"))]
    percents = [bar.percent for bar in running]
    assert percents == sorted(percents)
    assert len(set(percents)) >= 8, ended.drawn
    assert percents[-1] > 50
    assert len({bar.stage for bar in running}) >= 3
    assert "reading long.parquet" in {bar.stage for bar in ended.bars}
    assert ended.widest <= (SIZES[size][1] or 80)
    if size != "narrow":  # a stage that leaves space for at most one cell
        filled = [bar.filled for bar in running]
        assert filled == sorted(filled)
        assert len(set(filled)) >= 8
    *_, cleared, summary = ended.drawn.removesuffix("\x1b[0m").rstrip("\r\n").split("\r")
    assert (cleared.strip(), summary) == ("", f"DSWAP: SUCCESS, {ROWS} rows")
    hold_table(ended.stdout, ROWS)


def hold_table(content: bytes, count: int) -> None:
    head, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    assert head == ["age", "income", "hours", "city"]
    assert {len(row) for row in rows} == {4}
    assert len(rows) == count


def test_no_bar_stands_among_rows_that_are_shown() -> None:
    """If the rows go to the terminal too, the bar disappears before the first row."""
    ended = run("usual", stdout_too=True)
    assert ended.code == 0
    assert len({bar.percent for bar in ended.bars}) >= 8
    _, table = ended.drawn.split("age,income,hours,city", 1)
    assert "%|" not in table
    assert "writing -" not in ended.drawn


def test_no_bar_is_drawn_where_quiet_is_asked_for() -> None:
    ended = run("usual", "--quiet", rows=FEW_ROWS)
    assert (ended.code, ended.bars) == (0, [])
    hold_table(ended.stdout, FEW_ROWS)


def test_nothing_is_drawn_through_pipes(desk: Desk) -> None:
    pq.write_table(people(FEW_ROWS), "long.parquet")
    with desk.process(*LONG, forked=True) as running:
        out, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (0, f"DSWAP: SUCCESS, {FEW_ROWS} rows\n".encode())
    hold_table(out, FEW_ROWS)


def test_nothing_is_drawn_where_there_is_no_standard_error() -> None:
    """Messages do not appear among the rows. The command is a process of its own, as a user starts it."""
    pq.write_table(people(FEW_ROWS), "long.parquet")
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "app", *LONG]
    done = subprocess.run(
        closed, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True
    )
    hold_table(done.stdout, FEW_ROWS)
