"""The algorithms: every service that can be run, in the order in which they are listed.

Importing this package compiles nothing. It names the folder of numba's compiled kernels before
numba is imported: one for each state of the sources, because numba's cache looks at the file of a
kernel only, not at the kernels and intrinsics of other files that went into it.
"""

import atexit
import contextlib
import hashlib
import importlib.metadata
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
    if os.environ.get("NUMBA_CACHE_DIR"):
        return
    sources = sorted(Path(__file__).parent.glob("*.py"))
    state = hashlib.blake2b(importlib.metadata.version("numba").encode(), digest_size=16)
    for source in sources:
        state.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never raises
    folder = Path(base) / "rowveil" / f"numba-{state.hexdigest()}"
    if not _is_private_folder(folder):
        folder = Path(tempfile.mkdtemp(prefix="rowveil-numba-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:  # it has read the environment already
        sys.modules["numba"].config.CACHE_DIR = str(folder)


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
