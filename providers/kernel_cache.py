"""Content-addressed numba cache.

numba's own locators read only the path and the modification time of a kernel's file. A compiled kernel
also contains the functions that it calls in other files, and the modification times of a checkout carry no
information. Here the state of a file is a hash of its text and of the texts of all modules of this package
that it imports, directly or indirectly. So an edit recompiles exactly the kernels that depend on it, and
checkouts with the same text share compiled kernels, whatever their paths.

`providers` registers `SourceState` with numba before numba is imported.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from numba.core import config
from numba.core.caching import _CacheLocator

PACKAGE = Path(__file__).parent

_IMPORT = re.compile(
    rf"^\s*(?:from\s+({PACKAGE.name}(?:\.\w+)*)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+({PACKAGE.name}[\w.]*))",
    re.MULTILINE,
)


class SourceState(_CacheLocator):  # type: ignore[misc]  # numba has no types
    """Cache locator for the kernels of this package; numba's own locators serve all other files."""

    def __init__(self, function: Callable[..., Any], source: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._state = state_of(source)
        self._folder = Path(config.CACHE_DIR) / f"{source.stem}-{self._state}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self | None:
        """Return the locator; None if the function is not of this package or no cache folder is set."""
        source = Path(py_file).resolve()
        if not config.CACHE_DIR or PACKAGE.resolve() not in source.parents:
            return None
        return cls(py_func, source)

    def get_cache_path(self) -> str:
        """Return the folder for the module in this state."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """Return the state; numba does not use kernels that were compiled in another one."""
        return self._state

    def get_disambiguator(self) -> str:
        """Return the line number, which distinguishes functions of the same name."""
        return str(self._line)


@functools.cache
def state_of(source: Path) -> str:
    """Return a hash of the file's text and of the texts of all modules of this package that it imports."""
    state = hashlib.blake2b(digest_size=16)
    for file in sorted(_with_imported(source)):
        state.update(str(file.relative_to(PACKAGE.resolve())).encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


def state_of_package() -> str:
    """Return a hash of the texts of all modules of this package."""
    state = hashlib.blake2b(digest_size=16)
    for file in sorted(PACKAGE.rglob("*.py")):
        state.update(str(file.relative_to(PACKAGE)).encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


def _with_imported(source: Path) -> set[Path]:
    found, waiting = {source}, [source]
    while waiting:
        new = set(_imported(waiting.pop())) - found
        found |= new
        waiting.extend(new)
    return found


@functools.cache
def _imported(source: Path) -> tuple[Path, ...]:
    """Return the files of this package that a file imports, except the package's own `__init__`."""
    return tuple(file for module in _named(source.read_text()) if (file := _file_of(module)) is not None)


def _named(text: str) -> Iterator[str]:
    for package, names, module in _IMPORT.findall(text):
        yield package or module
        for name in names.strip("()").split(","):
            if words := name.split("#")[0].split():
                yield f"{package}.{words[0]}"


def _file_of(module: str) -> Path | None:
    """Return the module's file; None for the package itself and for a name that is no module."""
    parts = module.split(".")[1:]
    place = PACKAGE.resolve().joinpath(*parts)
    for file in (place.with_suffix(".py"), place / "__init__.py") if parts else ():
        if file.is_file():
            return file
    return None
