"""Start a process sooner: import no pandas, and collect no garbage while modules are imported.

Where pandas is installed, pyarrow imports it to recognise its objects among values. That takes 0.3 s and 70
MB, at the first table of each process, and nothing here uses pandas.

Imports make hardly any garbage. The collections that they would cause take 0.15 s of the 1.4 s in which the
modules of the service are imported.
"""

import gc
import importlib.abc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType


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
