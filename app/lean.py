"""Start a process sooner and smaller: import modules late or never, and collect no garbage meanwhile.

Where pandas is installed, pyarrow imports it to recognise its objects among values. That takes 0.3 s and 70
MB, at the first table of each process, and nothing here uses pandas. FastAPI looks for models of pydantic's
first version, for which it imports 2 MB that nothing here uses either.

An idle service reads no table: pyarrow and its functions of values take 40 MB and 0.07 s. `defer` imports
them when they are first used. A module that is imported with the service therefore uses them in functions
only, and has `from __future__ import annotations` if it names their types in annotations.

Imports make hardly any garbage. The collections that they would cause take 0.15 s of the 1.4 s in which the
modules of the service are imported.
"""

import gc
import importlib
import importlib.abc
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _LeftOut(importlib.abc.MetaPathFinder):
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Find every other module where the other finders do."""
        if name == self._name:
            raise ModuleNotFoundError(f"{name} is left out of this process", name=name)


def leave_out(name: str) -> None:
    """Let an import of this module fail from now on, as if not installed; no effect if it is imported."""
    sys.meta_path.insert(0, _LeftOut(name))


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage within the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_SPECIAL = ("__path__", "__version__")
"""Special members for which a deferred module is imported."""


class _Deferred(ModuleType):
    """Module that is imported when one of its members is first used, or one of its submodules imported.

    `importlib.util.LazyLoader` does the same without a lock: of two threads that use a module for the first
    time, one may see it half imported.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, "Imported when it is first used.")
        self.__dict__["_lock"] = threading.Lock()

    def __getattr__(self, member: str) -> Any:
        """Import the module, and return its member. Python calls this for absent members only."""
        if member.startswith("__") and member not in _SPECIAL:  # `inspect` asks all modules for some of these
            raise AttributeError(member)
        submodule = sys.modules.get(f"{self.__name__}.{member}")
        if isinstance(submodule, _Deferred):  # `import name.member` uses neither
            return submodule
        with self.__dict__["_lock"]:  # not while importing: the import system has locks of its own
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        imported = importlib.import_module(self.__name__)
        self._show_submodules(imported)
        found = self.__dict__[member] = getattr(imported, member)
        return found  # and the next time without this call

    def _show_submodules(self, imported: ModuleType) -> None:
        """Give the imported package its submodules that are still deferred, as their import would."""
        start = f"{self.__name__}."
        for name, submodule in sys.modules.copy().items():  # a list may be interrupted by another import
            if name.startswith(start) and isinstance(submodule, _Deferred):
                vars(imported).setdefault(name.removeprefix(start), submodule)


class _ImportedMeanwhile(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of a module that was imported by the deferred package whose submodule it is.

    An import of ``pyarrow.lib`` asks for the path of ``pyarrow``. If this was deferred, it is imported then,
    and imports ``pyarrow.lib`` itself. The import that asked must not execute that module a second time.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that is imported already, except to reload it."""
        module = sys.modules.get(name)
        if module is None or target is not None:
            return None
        return ModuleSpec(name, self, loader_state=module.__spec__)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the imported module."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own specification."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def defer(*names: str) -> None:
    """Let `import name` bind a module that is imported when it is used; no effect if it is imported already.

    Modules that have bound the placeholder keep it; it looks up each member in the imported module.
    """
    sys.meta_path.insert(0, _ImportedMeanwhile())
    for name in names:
        if name not in sys.modules:
            sys.modules[name] = _Deferred(name)
