"""Processor that the kernels are compiled for: a named baseline, or exactly the processor of this machine.

A kernel that is compiled for a baseline runs on every processor that has the baseline's instructions. So
kernels may be compiled in one place, such as the build of a container image, and used in another. A kernel
that is compiled where it runs takes this machine's processor, which is faster (docs/benchmarks.md).
``ROWVEIL_KERNEL_CPU`` has the choice.

Imports nothing but the standard library: the processor is settled before numba is imported.
"""

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

VARIABLE = "ROWVEIL_KERNEL_CPU"
NATIVE = "native"
BASELINE = "baseline"

_CPUINFO = Path("/proc/cpuinfo")

_HARDWARE_CAPABILITIES = 16
"""Key of the capabilities of an arm64 processor in the auxiliary vector (AT_HWCAP)."""

_X86_FLAGS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "pni": (0, 2, 0),
        "ssse3": (0, 2, 9),
        "fma": (0, 2, 12),
        "cx16": (0, 2, 13),
        "sse4_1": (0, 2, 19),
        "sse4_2": (0, 2, 20),
        "movbe": (0, 2, 22),
        "popcnt": (0, 2, 23),
        "avx": (0, 2, 28),
        "f16c": (0, 2, 29),
        "bmi1": (1, 1, 3),
        "avx2": (1, 1, 5),
        "bmi2": (1, 1, 8),
        "avx512f": (1, 1, 16),
        "avx512dq": (1, 1, 17),
        "avx512cd": (1, 1, 28),
        "avx512bw": (1, 1, 30),
        "avx512vl": (1, 1, 31),
        "lahf_lm": (2, 2, 0),
        "abm": (2, 2, 5),
    }
)
"""Flag in Linux's list -> its place in glibc's table of usable features: leaf, register, bit."""

_ARM64_BITS: Mapping[str, int] = MappingProxyType(
    {"asimd": 1, "crc32": 7, "atomics": 8, "asimdrdm": 12, "dcpop": 16}
)
"""Flag in Linux's list -> its bit in the hardware capabilities."""

_V2 = ("pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm")
_V3 = (*_V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


@dataclass(frozen=True, slots=True)
class Baseline:
    """Set of instructions with a name, and the same in LLVM's terms."""

    machine: str
    """Architecture, as the system names it."""
    cpu: str
    features: str
    flags: tuple[str, ...]
    """Flags that Linux lists for each processor that has the instructions."""


BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        "x86-64-v2": Baseline("x86_64", "x86-64-v2", "", _V2),
        "x86-64-v3": Baseline("x86_64", "x86-64-v3", "", _V3),
        "x86-64-v4": Baseline("x86_64", "x86-64-v4", "", _V4),
        "armv8-a": Baseline("aarch64", "generic", "+v8a", ("asimd",)),
        "armv8.2-a": Baseline("aarch64", "generic", "+v8.2a", tuple(_ARM64_BITS)),
    }
)

_DEFAULTS: Mapping[str, str] = MappingProxyType({"x86_64": "x86-64-v3", "aarch64": "armv8.2-a"})
"""Architecture -> baseline of `BASELINE`."""


@dataclass(frozen=True, slots=True)
class KernelCpu:
    """Processor that this process compiles its kernels for, and loads them for."""

    name: str
    """Name of a baseline, or ``native``."""
    warning: str = ""
    """Reason why it is not the wanted one; empty if it is."""

    @property
    def folder(self) -> str:
        """Return the name of the folder of its kernels."""
        return "kernels" if self.name == NATIVE else f"kernels-{self.name}"

    @property
    def settings(self) -> dict[str, str | None]:
        """Return numba's settings: name -> value, None to leave it to numba."""
        baseline = BASELINES.get(self.name)
        if baseline is None:
            return {"CPU_NAME": None, "CPU_FEATURES": None}
        return {"CPU_NAME": baseline.cpu, "CPU_FEATURES": baseline.features}


def choose(wanted: str, machine: str | None = None) -> KernelCpu:
    """Return the processor to compile for: the wanted one, or this machine's if it lacks the wanted one.

    Parameters
    ----------
    wanted : str
        ``baseline``, the default one of the architecture; the name of one; or ``native``.
    machine : str, optional
        Architecture. Default: this machine's.

    Raises
    ------
    ValueError
        If it is no name of this architecture.
    """
    machine = platform.machine() if machine is None else machine
    if wanted == BASELINE:
        wanted = _DEFAULTS.get(machine, NATIVE) if sys.platform == "linux" else NATIVE
    if wanted == NATIVE:
        return KernelCpu(NATIVE)
    if wanted not in (known := names(machine)):
        raise ValueError(f"there is no processor '{wanted}' for {machine}; known are {', '.join(known)}")
    there = flags()
    if missing := [flag for flag in BASELINES[wanted].flags if flag not in there]:
        return KernelCpu(
            NATIVE,
            f"this processor lacks {', '.join(missing)} of {wanted}: kernels are compiled for itself, "
            f"and those compiled in advance are not used; set {VARIABLE} to a baseline that it has",
        )
    return KernelCpu(wanted)


def names(machine: str) -> tuple[str, ...]:
    """Return the allowed values of the setting for an architecture."""
    own = (name for name, baseline in BASELINES.items() if baseline.machine == machine)
    return (BASELINE, NATIVE, *own)


def flags() -> frozenset[str]:
    """Return the flags of this processor that a baseline may need.

    The C library asks the processor itself, which is right in an emulator, too, and excludes instructions
    that the operating system does not support. Before glibc 2.33, Linux's list of flags is read instead.
    """
    library = ctypes.CDLL(None)
    if platform.machine() == "aarch64":
        return _arm64_flags(library)
    usable = _usable_x86_features(library)
    return _listed_flags(_CPUINFO) if usable is None else usable


def _arm64_flags(library: ctypes.CDLL) -> frozenset[str]:
    auxiliary_value = library.getauxval
    auxiliary_value.restype, auxiliary_value.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
    capabilities = auxiliary_value(_HARDWARE_CAPABILITIES)
    return frozenset(flag for flag, bit in _ARM64_BITS.items() if capabilities >> bit & 1)


class _Leaf(ctypes.Structure):
    """Entry of glibc's table of features (``struct cpuid_feature`` in ``sys/platform/x86.h``)."""

    _fields_ = (("cpuid", ctypes.c_uint * 4), ("active", ctypes.c_uint * 4))


def _usable_x86_features(library: ctypes.CDLL) -> frozenset[str] | None:
    """Return the flags of the features that glibc found usable; None before its version 2.33."""
    try:
        leaf_of = library.__x86_get_cpuid_feature_leaf
    except AttributeError:
        return None
    leaf_of.restype, leaf_of.argtypes = ctypes.POINTER(_Leaf), (ctypes.c_uint,)
    places = _X86_FLAGS.items()
    return frozenset(
        flag for flag, (leaf, register, bit) in places if leaf_of(leaf)[0].active[register] >> bit & 1
    )


def _listed_flags(cpuinfo: Path) -> frozenset[str]:
    """Return the flags that Linux lists for the first processor; none if there is no list."""
    try:
        with cpuinfo.open() as lines:
            for line in lines:
                name, _, listed = line.partition(":")
                if name.strip() == "flags":
                    return frozenset(listed.split())
    except OSError:
        pass
    return frozenset()


@functools.cache
def current() -> KernelCpu:
    """Return the processor of this process; the first call sets it, as the environment says.

    Child processes inherit the environment, and so the processor. A name that is not known is replaced by
    the default; the service's settings reject it.
    """
    try:
        chosen = choose(os.environ.get(VARIABLE) or NATIVE)
    except ValueError as error:
        chosen = KernelCpu(NATIVE, f"{VARIABLE}: {error}")
    for name, value in chosen.settings.items():
        if value is None:
            os.environ.pop(f"NUMBA_{name}", None)
        else:
            os.environ[f"NUMBA_{name}"] = value
        if "numba" in sys.modules:  # it has read the environment already
            setattr(sys.modules["numba"].config, name, value)
    return chosen
