"""A compiled kernel is reused exactly if none of its sources has changed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers import kernel_cache
from providers.kernel_cache import SourceState

MODULES = {
    "chacha20": "randomness/chacha20.py",
    "shuffle": "grouping/shuffle.py",
    "simd_distances": "neighbours/simd_distances.py",
    "radius": "neighbours/radius.py",
    "donors": "neighbours/donors.py",
    "polytope": "localities/polytope.py",
    "errors": "errors.py",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package, to be changed."""
    copy = tmp_path / "providers"
    shutil.copytree(kernel_cache.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernel_cache, "PACKAGE", copy)
    yield copy
    forget()


def forget() -> None:
    """Clear the caches, to simulate a fresh process."""
    kernel_cache.state_of.cache_clear()
    kernel_cache._imported.cache_clear()


def states(package: Path) -> dict[str, str]:
    forget()
    return {module: kernel_cache.state_of((package / path).resolve()) for module, path in MODULES.items()}


def test_a_checkout_elsewhere_with_the_same_text_shares_its_kernels(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the place of a file nor the time of its change counts."""
    before = states(package)
    moved = package.rename(package.parent / "moved")
    for file in moved.rglob("*.py"):
        file.touch()
    monkeypatch.setattr(kernel_cache, "PACKAGE", moved)
    assert states(moved) == before


@pytest.mark.parametrize(
    ("edited", "compiled_anew"),
    [
        ("chacha20", {"chacha20", "shuffle", "donors", "polytope"}),
        ("simd_distances", {"simd_distances", "radius", "donors"}),
        ("donors", {"donors"}),
        ("warm", set()),
    ],
)
def test_an_edit_compiles_anew_what_depends_on_it(
    package: Path, edited: str, compiled_anew: set[str]
) -> None:
    """A kernel holds what it calls in other modules, directly or not; nothing else is touched."""
    before = states(package)
    with (package / MODULES.get(edited, f"{edited}.py")).open("a") as file:
        file.write("\n# one line more\n")
    after = states(package)
    assert {module for module in MODULES if after[module] != before[module]} == compiled_anew


def test_functions_of_other_packages_are_left_to_numba(package: Path) -> None:
    """The locator knows the files of this package alone."""
    assert SourceState.from_function(test_functions_of_other_packages_are_left_to_numba, __file__) is None
