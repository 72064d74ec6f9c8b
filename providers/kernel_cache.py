"""Where numba keeps a compiled kernel: by the state of every source that went into it.

numba's own locators look at a kernel's file and its time of change only. A kernel holds what it calls in
other files, too; and a checkout's times say nothing. Here a file's state is a hash of its text and of the
texts of all modules of this package that it imports, directly or not. So an edit compiles anew just what
depends on it, and checkouts with the same text share what is compiled, wherever they lie.

`providers` names `SourceState` to numba before numba is imported.
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
    """Locates the kernels of a module of this package; of any other file it knows nothing."""

    def __init__(self, function: Callable[..., Any], source: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._state = state_of(source)
        self._folder = Path(config.CACHE_DIR) / f"{source.stem}-{self._state}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self | None:
        """The locator; None where the function is not of this package, or no folder is named."""
        source = Path(py_file).resolve()
        if not config.CACHE_DIR or PACKAGE.resolve() not in source.parents:
            return None
        return cls(py_func, source)

    def get_cache_path(self) -> str:
        """The folder of the module in this state."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """The state: what was compiled in another one is not used."""
        return self._state

    def get_disambiguator(self) -> str:
        """Tells functions of one name apart."""
        return str(self._line)


@functools.cache
def state_of(source: Path) -> str:
    """A hash of the file's text and of those of all modules of this package that it imports."""
    state = hashlib.blake2b(digest_size=16)
    for file in sorted(_with_imported(source)):
        state.update(str(file.relative_to(PACKAGE.resolve())).encode() + b"\0" + file.read_bytes() + b"\0")
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
    """The files of this package that a file names in its imports; not the package's own list."""
    return tuple(file for module in _named(source.read_text()) if (file := _file_of(module)) is not None)


def _named(text: str) -> Iterator[str]:
    for package, names, module in _IMPORT.findall(text):
        yield package or module
        for name in names.strip("()").split(","):
            if words := name.split("#")[0].split():
                yield f"{package}.{words[0]}"


def _file_of(module: str) -> Path | None:
    """The module's file; None for the package itself, and for a name that is no module."""
    parts = module.split(".")[1:]
    place = PACKAGE.resolve().joinpath(*parts)
    for file in (place.with_suffix(".py"), place / "__init__.py") if parts else ():
        if file.is_file():
            return file
    return None
