"""The algorithms: every service that can be run, in the order in which they are listed.

Importing this package compiles nothing. It names the folder of numba's compiled kernels, and how they
are told apart (`providers.kernel_cache`), before numba is imported.
"""

import atexit
import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any


def _name_kernel_cache() -> None:
    """Set NUMBA_CACHE_DIR, unless it is set, to a folder that only this user can write to.

    Private, since numba runs what it finds there; a temporary one where the user has no home.
    """
    settings = {"CACHE_LOCATOR_CLASSES": _LOCATORS}
    if not os.environ.get("NUMBA_CACHE_DIR"):
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never raises
        folder = Path(base) / "rowveil" / "kernels"
        if not _is_private_folder(folder):
            folder = Path(tempfile.mkdtemp(prefix="rowveil-kernels-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        settings["CACHE_DIR"] = str(folder)
    for name, value in settings.items():
        os.environ[f"NUMBA_{name}"] = value
        if "numba" in sys.modules:  # it has read the environment already
            setattr(sys.modules["numba"].config, name, value)


_LOCATORS = "providers.kernel_cache.SourceState,UserProvidedCacheLocator"
"""Kernels of other packages lie below the same folder, as numba itself has it."""


def _is_private_folder(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return status.st_uid == os.getuid() and not others_write and os.access(folder, os.W_OK | os.X_OK)
    return False


_name_kernel_cache()

from providers import (  # noqa: E402 - the kernels' folder is named first
    cdswap,
    ddswap,
    dswap,
    locality,
    meds,
    mews,
    pabidot,
    rwn,
)
from providers.provider import Provider  # noqa: E402

PROVIDERS: Mapping[str, Provider[Any]] = MappingProxyType(
    {
        module.PROVIDER.identifier: module.PROVIDER
        for module in (dswap, cdswap, ddswap, mews, meds, rwn, pabidot, locality)
    }
)
"""Service identifier -> provider."""
