"""Targets that run tests: contents of the quick run, checks next to the tests, and order of the modules."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from providers import PROVIDERS
from providers.cores import available_cores
from tests.long_tests import LIMIT_SECONDS, as_text, chosen, is_long, long_tests
from tests.order import LONGEST, ROOT, longest_first


def commands(target: str) -> list[str]:
    """Return the commands of a target of the Makefile."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target],  # noqa: S607 - as a developer has it
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture
def quick(tmp_path: Path) -> list[str]:
    """Tests that `make test-quick` collects."""
    words = shlex.split(" ".join(commands("test-quick")).replace("\\", "").rpartition(" -m pytest ")[2])
    chosen = [word for word in words if not word.startswith(("--numprocesses=", "--dist="))]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", *chosen],
        cwd=ROOT,
        env=os.environ | {"HYPOTHESIS_PROFILE": "quick"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_the_quick_run_has_every_provider_and_starts_no_process(quick: list[str]) -> None:
    """Each provider has golden cases and a comparison with its naive twin; nothing needs PostgreSQL."""
    golden = [test for test in quick if test.startswith("tests/golden/")]
    twins = [test for test in quick if test.startswith("tests/property/")]
    units = [test for test in quick if test.startswith("tests/unit/")]
    assert len(golden) + len(twins) + len(units) == len(quick)
    assert len(units) > 2000
    for identifier in PROVIDERS:
        name = identifier.lower()
        assert any(f"[{name}: " in test for test in golden), identifier
        assert any(f"test_{name}" in test for test in twins), identifier
    assert not [test for test in quick if is_long(test)]
    assert not [test for test in quick if "postgresql" in test]
    for started in ("test_install.py::test_uv_installs", "test_kernel_progress.py::", "test_recorder.py::"):
        assert not [test for test in quick if started in test], started


def test_all_tests_run_next_to_all_checks() -> None:
    """`make test` runs both at the same time, and its last command is the one that leaves out nothing."""
    *checks, tests = commands("test")
    assert {"ruff check .", "mypy", "lint-imports", "python -m website --check"} <= {
        command.removeprefix(".venv/bin/") for command in checks
    }
    assert any("--jobs=2" in command for command in checks)
    assert tests == (".venv/bin/python -m pytest --numprocesses=auto --dist=loadscope --no-loadscope-reorder")


def test_every_core_has_a_test_process_and_waiting_tests_two_more(pytestconfig: pytest.Config) -> None:
    """The quick run, which does not wait, has none to spare."""
    assert "--numprocesses=logical" in " ".join(commands("test-quick"))
    counts = {}
    for given in ("auto", "logical"):
        config = SimpleNamespace(option=SimpleNamespace(numprocesses=given))
        counts[given] = pytestconfig.hook.pytest_xdist_auto_num_workers(config=config)
    assert counts == {"auto": available_cores() + 2, "logical": available_cores()}


def test_the_longest_modules_come_first() -> None:
    """Each listed module exists; the others keep their order."""
    assert [module for module in LONGEST if not (ROOT / module).is_file()] == []
    others = ["tests/api/test_http.py", "tests/unit/app/test_settings.py"]
    assert sorted([*others, *reversed(LONGEST)], key=longest_first) == [*LONGEST, *others]


def test_every_long_test_exists() -> None:
    """A test that was renamed or removed leaves the list with it."""
    assert len(long_tests()) > 300
    for entry in long_tests():
        module, *_, name = entry.split("::")
        function = name.partition("[")[0]
        source = (ROOT / module).read_text(encoding="utf-8")
        assert f"def {function}(" in source, f"{entry}: run `make long-tests`"


def test_long_tests_are_chosen_by_their_seconds() -> None:
    """A function is an entry if all of its tests are long; comparisons with a naive twin are none."""
    seconds = {
        "tests/unit/test_a.py::test_all[1]": LIMIT_SECONDS,
        "tests/unit/test_a.py::test_all[2]": LIMIT_SECONDS * 2,
        "tests/unit/test_a.py::test_some[a::b]": LIMIT_SECONDS,
        "tests/unit/test_a.py::test_some[c]": LIMIT_SECONDS / 2,
        "tests/unit/test_b.py::TestClass::test_quick": 0.0,
        "tests/property/test_rwn.py::test_rwn": LIMIT_SECONDS * 2,
    }
    entries = chosen(seconds)
    assert entries == ["tests/unit/test_a.py::test_all", "tests/unit/test_a.py::test_some[a::b]"]
    assert as_text(entries) == "tests/unit/test_a.py\n    test_all\n    test_some[a::b]\n"
