"""Which compiled kernels are used again: those of which no source has changed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers import kernel_cache
from providers.kernel_cache import SourceState

MODULES = ("rng", "kernels", "lanes", "neighbours", "donors", "polytope", "errors")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package, to be changed."""
    copy = tmp_path / "providers"
    shutil.copytree(kernel_cache.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernel_cache, "PACKAGE", copy)
    yield copy
    forget()


def forget() -> None:
    """As a new process would."""
    kernel_cache.state_of.cache_clear()
    kernel_cache._imported.cache_clear()


def states(package: Path) -> dict[str, str]:
    forget()
    return {module: kernel_cache.state_of((package / f"{module}.py").resolve()) for module in MODULES}


def test_a_checkout_elsewhere_with_the_same_text_shares_its_kernels(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the place of a file nor the time of its change counts."""
    before = states(package)
    moved = package.rename(package.parent / "moved")
    for file in moved.glob("*.py"):
        file.touch()
    monkeypatch.setattr(kernel_cache, "PACKAGE", moved)
    assert states(moved) == before


@pytest.mark.parametrize(
    ("edited", "compiled_anew"),
    [
        ("rng", {"rng", "kernels", "donors", "polytope"}),
        ("lanes", {"lanes", "neighbours", "donors"}),
        ("donors", {"donors"}),
        ("warm", set()),
    ],
)
def test_an_edit_compiles_anew_what_depends_on_it(
    package: Path, edited: str, compiled_anew: set[str]
) -> None:
    """A kernel holds what it calls in other modules, directly or not; nothing else is touched."""
    before = states(package)
    with (package / f"{edited}.py").open("a") as file:
        file.write("\n# one line more\n")
    after = states(package)
    assert {module for module in MODULES if after[module] != before[module]} == compiled_anew


def test_functions_of_other_packages_are_left_to_numba(package: Path) -> None:
    """The locator knows the files of this package alone."""
    assert SourceState.from_function(test_functions_of_other_packages_are_left_to_numba, __file__) is None
