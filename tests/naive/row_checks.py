"""Checks of rows in plain Python: Kleene's logic row by row, and the repair of exchanges."""

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from tests.naive.pairing import Group, Words, exchange_groups

Table = dict[str, list[Any]]

ROUNDS = 20

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def value_of(node: ast.expr, row: dict[str, Any]) -> Any:
    """Value of an operand in a row; None for null and NaN."""
    if isinstance(node, ast.Call):
        found = row[ast.literal_eval(node.args[0])]
    else:
        found = row[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)
    return None if isinstance(found, float) and math.isnan(found) else found


def truth(node: ast.expr, row: dict[str, Any]) -> bool | None:
    """True, false or unknown."""
    if isinstance(node, ast.BoolOp):
        parts = [truth(part, row) for part in node.values]
        decisive = isinstance(node.op, ast.Or)
        return decisive if decisive in parts else None if None in parts else not decisive
    if isinstance(node, ast.UnaryOp):
        part = truth(node.operand, row)
        return None if part is None else not part
    assert isinstance(node, ast.Compare)
    values = [value_of(each, row) for each in (node.left, *node.comparators)]
    found = [
        None if None in (one, two) else COMPARISONS[type(compare)](one, two)
        for compare, one, two in zip(node.ops, values, values[1:], strict=False)
    ]
    return False if False in found else None if None in found else True


@lru_cache(100_000)
def is_false(text: str, names: tuple[str, ...], values: tuple[Any, ...]) -> bool:
    """Whether a check is false for these values of its fields."""
    return truth(parsed(text), dict(zip(names, values, strict=True))) is False


@cache
def parsed(text: str) -> ast.expr:
    """Expression of a check."""
    return ast.parse(text, mode="eval").body


def broken_rows(text: str, table: Table) -> set[int]:
    """Rows for which a check is false."""
    names = tuple(sorted(names_of(text)))
    rows = range(len(next(iter(table.values()), [])))
    return {
        row
        for row, *values in zip(rows, *(table[name] for name in names), strict=True)
        if is_false(text, names, tuple(values))
    }


@cache
def names_of(text: str) -> set[str]:
    """Fields that a check names."""
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    found = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}
    return found | {ast.literal_eval(node.args[0]) for node in nodes if isinstance(node, ast.Call)}


@dataclass
class Move:
    """Fields that move together."""

    purpose: str
    fields: tuple[str, ...]
    groups: list[Group]
    source: list[int]
    restored: set[int] = field(default_factory=set)

    def exchange_of(self, row: int) -> set[int]:
        """Rows of the exchange of a row; none if it stays."""
        found, at = set[int](), row
        while self.source[at] != row:
            found.add(at)
            at = self.source[at]
        return found | {at} if found else set()


def release_of(table: Table, moves: list[Move]) -> Table:
    """Table after the moves."""
    release = dict(table)
    for move in moves:
        for name in move.fields:
            release[name] = [table[name][row] for row in move.source]
    return release


def newly_broken(table: Table, moves: list[Move], checks: tuple[str, ...]) -> list[set[int]]:
    """Rows that break each check by an exchange."""
    release = release_of(table, moves)
    return [broken_rows(text, release) - broken_rows(text, table) for text in checks]


def repair(
    table: Table, moves: list[Move], checks: tuple[str, ...], key_of: Callable[[str], list[int]]
) -> dict[str, int]:
    """Draw exchanges that break a check again, then undo what is left; return the figures."""
    rows = len(moves[0].source)
    at_first = len(set[int]().union(*newly_broken(table, moves, checks)))
    redrawn: set[int] = set()
    rounds = 0

    def concerned(move: Move, broken: list[set[int]]) -> set[int]:
        return {
            row
            for text, found in zip(checks, broken, strict=True)
            if names_of(text) & set(move.fields)
            for row in found
        }

    while rounds < ROUNDS and any(newly_broken(table, moves, checks)):
        for move in moves:
            before = newly_broken(table, moves, checks)
            faulty = {row for marked in concerned(move, before) for row in move.exchange_of(marked)}
            if not faulty:
                continue
            suffix = f"{rounds}/{move.purpose}"
            blocks = blocks_of(move, faulty, Words(key_of(f"blocks/{suffix}")))
            drawn = exchange_groups(blocks, rows, key_of(f"repair/{suffix}"), 1.0, 2).source
            old = list(move.source)
            for block in blocks:
                for row in block.rows:
                    move.source[row] = drawn[row]
            after = newly_broken(table, moves, checks)
            for block in blocks:
                inside = set(block.rows)
                if sum(len(found & inside) for found in after) < sum(len(found & inside) for found in before):
                    redrawn |= inside
                else:
                    for row in inside:
                        move.source[row] = old[row]
        rounds += 1
    while any(broken := newly_broken(table, moves, checks)):
        for move in moves:
            undone = {row for marked in concerned(move, broken) for row in move.exchange_of(marked)}
            for row in undone:
                move.source[row] = row
            move.restored |= undone
    return {
        "rows_broken_by_exchange": at_first,
        "rounds": rounds,
        "rows_drawn_again": len(redrawn),
        "rows_restored": len(set[int]().union(*(move.restored for move in moves))),
    }


def blocks_of(move: Move, faulty: set[int], words: Words) -> list[Group]:
    """Each faulty exchange with another one of its group, in random order; then faulty ones together."""
    words.fetch([((0, 0), 2 * len(move.source))])
    blocks: list[Group] = []
    for group in move.groups:
        exchanges = {min(rows): rows for row in group.rows if (rows := move.exchange_of(row))}
        order = sorted(
            exchanges, key=lambda row: (words.word((0, 0), 2 * row), words.word((0, 0), 2 * row + 1), row)
        )
        bad = [exchanges[first] for first in order if first in faulty]
        good = [exchanges[first] for first in order if first not in faulty]
        joined = [one | two for one, two in zip(bad, good, strict=False)]
        left = bad[len(good) :]
        joined += [set[int]().union(*left[place : place + 2]) for place in range(0, len(left), 2)]
        blocks += [Group(min(rows), sorted(rows)) for rows in joined]
    return blocks


def checks_report(
    table: Table, release: Table, origin: list[int], checks: tuple[str, ...], events: Counter[str]
) -> dict[str, Any]:
    """Count the rows that break each check before and after; add the events."""
    by_check: dict[str, dict[str, int]] = {}
    broken: set[int] = set()
    for text in checks:
        before, after = broken_rows(text, table), broken_rows(text, release)
        new = {origin[row] for row in after} - before
        broken |= new
        by_check[text] = {"before": len(before), "after": len(after), "newly_broken": len(new)}
    if broken:
        events["check_broken"] += len(broken)
    return {"by_check": by_check, "rows_newly_broken": len(broken)}
