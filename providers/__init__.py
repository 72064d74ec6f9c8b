"""The algorithms: every service that can be run, in the order in which they are listed.

Importing this package imports no service and compiles nothing. Before numba is imported, it settles the
processor that kernels are compiled for (`providers.kernel_cpu`), names the folder of numba's compiled kernels
and their cache locator (`providers.kernel_cache`), and sets the number of threads of kernels and the way in
which these wait.
"""

import atexit
import contextlib
import importlib
import os
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from providers import kernel_cpu
from providers.cores import available_cores

if TYPE_CHECKING:
    from providers.provider import Provider

KERNEL_CPU = kernel_cpu.current()
"""Processor that this process compiles its kernels for."""


def _name_kernel_cache() -> None:
    """Set NUMBA_CACHE_DIR, unless it is set, to a folder that only this user can write to.

    The folder is private, since numba runs the code that it finds there. If the user has no home, it is a
    temporary folder. Each baseline has a folder of its own, so that kernels that were compiled in advance can
    be copied there file by file.
    """
    settings = {"CACHE_LOCATOR_CLASSES": _LOCATORS}
    if not os.environ.get("NUMBA_CACHE_DIR"):
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never raises
        folder = Path(base) / "rowveil" / KERNEL_CPU.folder
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


def _settle_threads() -> None:
    """Set the number of numba's threads and how they wait, unless the environment sets it already.

    GNU OpenMP's threads spin at the end of a kernel, on a core that another process may need: where cores are
    shared, two threads wait for one another much longer than they compute (docs/benchmarks.md). Here they
    sleep. libgomp reads this once, when numba starts its threads. The number of threads follows the CPU quota
    of the control group, which numba itself does not look at.
    """
    if not any(os.environ.get(name) for name in _WAITING):
        os.environ["OMP_WAIT_POLICY"] = "passive"
        if _threads_have_started():
            warnings.warn(
                "numba started its threads before rowveil's providers were imported, so they keep spinning "
                "while they wait; import providers first, or set OMP_WAIT_POLICY=passive",
                RuntimeWarning,
                stacklevel=4,
            )
    if "numba" not in sys.modules:
        # Where colorama is installed, numba colours each message of an error, also of those that it handles
        # itself: a fortieth of the time that compiling takes.
        os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
        os.environ.setdefault("NUMBA_NUM_THREADS", str(available_cores()))


_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Variables by which the environment says how OpenMP's threads wait."""


def _threads_have_started() -> bool:
    parallel = sys.modules.get("numba.np.ufunc.parallel")
    if parallel is None or not getattr(parallel, "_is_initialized", False):
        return False
    return bool(parallel.threading_layer() == "omp")


_name_kernel_cache()
_settle_threads()

SERVICES = ("DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS", "RWN", "PABIDOT", "LOCALITY", "RSWAP")
"""Service identifiers, in the order in which they are listed. Each has a module of `providers.services`."""


class _Providers(Mapping[str, "Provider[Any]"]):
    """The providers by identifier; the module of one is imported when it is first looked up."""

    def __getitem__(self, identifier: str) -> "Provider[Any]":
        if identifier not in SERVICES:
            raise KeyError(identifier)
        module = importlib.import_module(f"providers.services.{identifier.lower()}")
        provider: Provider[Any] = module.PROVIDER
        return provider

    def __contains__(self, identifier: object) -> bool:
        return identifier in SERVICES

    def __iter__(self) -> Iterator[str]:
        return iter(SERVICES)

    def __len__(self) -> int:
        return len(SERVICES)


PROVIDERS: Mapping[str, "Provider[Any]"] = _Providers()
"""Service identifier -> provider."""
