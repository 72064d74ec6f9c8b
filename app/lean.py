"""Start a process sooner and smaller: import modules late or never, and collect no garbage meanwhile.

Where pandas is installed, pyarrow imports it to recognise its objects among values. That takes 0.3 s and 70
MB, at the first table of each process, and nothing here uses pandas.

An idle service reads no table: pyarrow's functions of values, which many modules import, take 12 MB and 0.05
s. `defer` imports them when the first one is called.

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
from types import ModuleType
from typing import Any


class _WithoutPandas(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Find every other module where the other finders do."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of this process", name=name)


def leave_out_pandas() -> None:
    """Let an import of pandas fail from now on, as if it was not installed; no effect if it is imported."""
    sys.meta_path.insert(0, _WithoutPandas())


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage within the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Deferred(ModuleType):
    """Module that is imported when one of its members is first used.

    `importlib.util.LazyLoader` does the same without a lock: of two threads that use a module for the first
    time, one may see it half imported.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, "Imported when it is first used.")
        self.__dict__["_lock"] = threading.RLock()

    def __getattr__(self, member: str) -> Any:
        """Import the module, and return its member. Python calls this for absent members only."""
        if member.startswith("__"):  # the import system looks for these, as in `__path__`
            raise AttributeError(member)
        with self.__dict__["_lock"]:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            module = importlib.import_module(self.__name__)
        found = self.__dict__[member] = getattr(module, member)  # so that it is looked up once
        return found


def defer(name: str) -> None:
    """Let `import name` bind a module that is imported when it is used; no effect if it is imported already.

    Modules that have bound the placeholder keep it; it looks up each member in the imported module.
    """
    if name not in sys.modules:
        sys.modules[name] = _Deferred(name)
