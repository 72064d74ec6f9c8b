"""Leave pandas out of a process of the service.

Where pandas is installed, pyarrow imports it to recognise its objects among values. That takes 0.3 s and 70
MB, at the first table of each process, and nothing here uses pandas.
"""

import importlib.abc
import sys
from collections.abc import Sequence
from types import ModuleType


class _WithoutPandas(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Find every other module where the other finders do."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of this process", name=name)


def leave_out_pandas() -> None:
    """Let an import of pandas fail from now on, as if it was not installed; no effect if it is imported."""
    sys.meta_path.insert(0, _WithoutPandas())
