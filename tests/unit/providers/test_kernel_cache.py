"""A compiled kernel is reused exactly if no definition that it depends on has changed."""

import shutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core import config

import providers
from providers import kernel_cache
from providers.kernel_cache import Definitions, SourceState, module_of
from providers.kernel_progress import kernels_of


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with kernels in two modules, and a module that both use."""
    made = tmp_path / "made"
    made.mkdir()
    for name, text in MODULES.items():
        (made / f"{name}.py").write_text(text)
    monkeypatch.setattr(kernel_cache, "PACKAGE", made)
    yield made
    kernel_cache.state_of_package.cache_clear()


MODULES = {
    "__init__": "",
    "decorators": "from numba import njit\n\nwithin = njit(cache=True)\n",
    "shapes": """
from typing import NamedTuple

WIDTH = 8
DEPTH = 2 * WIDTH

class Point(NamedTuple):
    \"\"\"Point.\"\"\"
    x: int
    y: int
    \"\"\"Height.\"\"\"

class Line(NamedTuple):
    begin: Point
    end: Point
""",
    "lengths": """
import numba
from made.decorators import within
from made.shapes import DEPTH, Point
from made import shapes

@within
def square(point: Point) -> int:
    return point.x * point.x

@within
def depth() -> int:
    return DEPTH

@within
def quoted(line: "shapes.Line", other: "Point") -> int:
    return other.x

@within
def alone(x: int) -> int:
    \"\"\"Return x.\"\"\"
    return x
""",
    "areas": """
from made import lengths
from made.decorators import within
from made.lengths import alone as same

@within
def area(point):
    return lengths.square(point) + same(1)

@within
def late(x):
    from made.lengths import depth
    return depth()
""",
}

ALL = {f"lengths:{name}" for name in ("square", "depth", "quoted", "alone")} | {"areas:area", "areas:late"}


def edited(package: Path, module: str, old: str, new: str) -> set[str]:
    """Return the kernels whose state changes with an edit."""
    before = kernel_cache.computed_states()
    file = package / f"{module}.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    after = kernel_cache.computed_states()
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize(
    ("module", "old", "new", "recompiled"),
    [
        ("lengths", "return x\n", "return x + 1\n", {"lengths:alone", "areas:area"}),
        ("lengths", "point.x * point.x", "point.y", {"lengths:square", "areas:area"}),
        ("shapes", "WIDTH = 8", "WIDTH = 16", {"lengths:depth", "areas:late"}),
        (
            "shapes",
            "x: int",
            "x: float",
            {"lengths:square", "lengths:quoted", "areas:area"},
        ),
        ("areas", "same(1)", "same(2)", {"areas:area"}),
        (
            "decorators",
            "cache=True",
            "cache=True, nogil=True",
            ALL,
        ),
        (
            "lengths",
            "import numba\n",
            "import numba\nnumba.set_num_threads(1)\n",
            ALL,
        ),
    ],
)
def test_an_edit_recompiles_what_depends_on_it(
    package: Path, module: str, old: str, new: str, recompiled: set[str]
) -> None:
    """A kernel contains what it calls in other modules, directly or indirectly; no other is recompiled."""
    assert edited(package, module, old, new) == recompiled


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("lengths", "Return x.", "Return x, unchanged."),
        ("lengths", "import numba\n", "\n\n# A comment.\nimport numba\n"),
        ("lengths", "import numba\n", '"""Lengths."""\nimport numba\n'),
        ("shapes", "Height.", "Height of the point."),
        ("shapes", "class Line", "OTHER = 3\n\nclass Line"),
    ],
)
def test_comments_docstrings_and_places_do_not_count(package: Path, module: str, old: str, new: str) -> None:
    assert edited(package, module, old, new) == set()


@pytest.mark.slow
def test_a_checkout_elsewhere_shares_its_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the path of a file nor the time of its change counts."""
    before = kernel_cache.computed_states()
    copy = tmp_path / "providers"
    shutil.copytree(kernel_cache.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file in copy.rglob("*.py"):
        file.touch()
    monkeypatch.setattr(kernel_cache, "PACKAGE", copy)
    assert kernel_cache.computed_states() == before


def test_each_kernel_of_this_package_has_a_state_of_its_own_definitions() -> None:
    states = kernel_cache.computed_states()
    for name, kernel in kernels_of(providers).items():
        module = kernel.py_func.__module__.partition(".")[2]
        assert f"{module}:{kernel.py_func.__qualname__.partition('.')[0]}" in states, name


def named_at_run_time(function: Any) -> Iterator[tuple[str, str]]:
    """Yield the functions and classes of the package that the code of a function names."""
    names = function.__globals__
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for name in code.co_names:
            found = names.get(name)
            found = getattr(found, "py_func", found)
            module = getattr(found, "__module__", None) or ""
            if "__loop" in name and found is not None:  # a part of the function: `providers.kernels.parallel`
                waiting.append(found.__code__)
            elif module.startswith("providers.") and hasattr(found, "__qualname__"):
                yield module.partition(".")[2], found.__qualname__


def test_the_definitions_read_from_the_text_hold_all_that_the_code_names() -> None:
    """Compare with what Python itself resolves: globals of compiled functions, through all calls."""
    files = {module_of(file): file for file in kernel_cache.PACKAGE.rglob("*.py")}
    definitions = Definitions(files)
    compared = 0
    for kernel in kernels_of(providers).values():
        function = kernel.py_func
        name = (function.__module__.partition(".")[2], function.__qualname__)
        if "<locals>" in function.__qualname__:
            continue
        read = definitions.with_used(name)
        for used in named_at_run_time(function):
            compared += 1
            assert used in read or (used[0], "*") in read, (name, used)
    assert compared > 300


@pytest.mark.slow
def test_the_states_are_kept_and_a_damaged_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    kernel_cache.states.cache_clear()
    first = dict(kernel_cache.states())
    (kept,) = tmp_path.glob("states-*.json")
    for text in ("{", kept.read_text()):
        kept.write_text(text)
        kernel_cache.states.cache_clear()
        assert kernel_cache.states() == first
    kernel_cache.states.cache_clear()


def test_functions_of_other_packages_are_left_to_numba() -> None:
    """The locator knows the files of this package only."""
    assert SourceState.from_function(test_functions_of_other_packages_are_left_to_numba, __file__) is None
