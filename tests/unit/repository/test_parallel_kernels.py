"""Parallel kernels write no array through a member of a named tuple: numba would drop the assignment."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import providers

_SOURCES = sorted(Path(providers.__file__).parent.rglob("*.py"))


def _is_parallel_or_inlined(function: ast.FunctionDef) -> bool:
    """Whether the body of a function becomes a part of a parallel kernel."""
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any("parallel=True" in text or "inline=" in text or text == "inlined" for text in decorators)


def _members(function: ast.FunctionDef) -> set[str]:
    """Return the local names of members, as `counts` after ``counts = lists.counts``."""
    names = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for target in node.targets:
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            named = [name.id for name in targets if isinstance(name, ast.Name)]
            if any(isinstance(value, ast.Attribute) for value in values):
                names.update(named)
    return names


def _writes_to_members(source: str) -> Iterator[str]:
    """Yield the assignments to elements of a member in parallel and inlined kernels."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef) or not _is_parallel_or_inlined(function):
            continue
        members = _members(function)
        for node in ast.walk(function):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store):
                continue
            array = node.value
            if isinstance(array, ast.Attribute) or (isinstance(array, ast.Name) and array.id in members):
                yield f"{function.name}: {ast.unparse(node)}"


def test_parallel_kernels_write_to_arrays_of_their_own() -> None:
    assert [line for path in _SOURCES for line in _writes_to_members(path.read_text())] == []


@pytest.mark.parametrize(
    "line", ["lists.counts[0] = 1", "lists.counts[0] += 1", "counts = lists.counts; counts[0] = 1"]
)
def test_an_assignment_that_numba_drops_is_found(line: str) -> None:
    source = f"@njit(parallel=True)\ndef kernel(lists):\n    {line}\n"
    assert len(list(_writes_to_members(source))) == 1
