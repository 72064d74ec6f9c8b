"""Tests that `make test-quick` leaves out because they take long: the list, and the plugin that records it.

``make long-tests`` runs the tests that start no process with this module as a plugin of pytest, and writes
those that took `LIMIT_SECONDS` or more into ``long_tests.txt``.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from providers import PROVIDERS

LIMIT_SECONDS = 0.1
"""Time from which a test is long: its setup, its call and its teardown."""

LIST = Path(__file__).with_suffix(".txt")
"""The list: the path of a module in each line without an indent, and its long tests below it."""

INDENT = "    "

TWINS = frozenset(
    f"tests/property/test_{name}.py" for name in ("agreement", *(service.lower() for service in PROVIDERS))
)
"""Modules that compare providers with their naive twins: the quick run has all of their tests."""


def is_long(test: str) -> bool:
    """Return whether the list has a test, given its node identifier."""
    return not long_tests().isdisjoint((test, _function(test)))


@cache
def long_tests() -> frozenset[str]:
    """Return the entries of the list: functions all of whose tests are long, and single tests of others."""
    return frozenset(_entries(LIST.read_text(encoding="utf-8").splitlines()))


def chosen(seconds: Mapping[str, float]) -> list[str]:
    """Return the entries of a new list, sorted, given the seconds that each test took."""
    long = {test for test, taken in seconds.items() if taken >= LIMIT_SECONDS and _module(test) not in TWINS}
    tests_of = defaultdict(set)
    for test in seconds:
        tests_of[_function(test)].add(test)
    return sorted({_function(test) if tests_of[_function(test)] <= long else test for test in long})


def as_text(entries: Iterable[str]) -> str:
    """Return the text of a list, given its sorted entries."""
    lines = []
    last = ""
    for entry in entries:
        module, _, name = entry.partition("::")
        if module != last:
            lines.append(module)
            last = module
        lines.append(INDENT + name)
    return "".join(f"{line}\n" for line in lines)


class _Recorder:
    """Seconds of all tests of a run, which become the list at its end."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        has_run = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if has_run and self._seconds:  # a collection has no seconds
            LIST.write_text(as_text(chosen(self._seconds)), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record the list in the process that has all reports."""
    if not hasattr(config, "workerinput"):  # a test process of pytest-xdist
        config.pluginmanager.register(_Recorder())


def _entries(lines: Iterable[str]) -> Iterator[str]:
    module = ""
    for line in lines:
        if line.startswith(INDENT):
            yield f"{module}::{line.removeprefix(INDENT)}"
        else:
            module = line


def _module(test: str) -> str:
    return test.partition("::")[0]


def _function(test: str) -> str:
    return test.partition("[")[0]
