"""Kernels are compiled for a named processor baseline, and a processor without it compiles its own."""

import ctypes
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from providers import kernel_cpu
from providers.kernel_cpu import BASELINES, KernelCpu, choose

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow

V3 = frozenset(BASELINES["x86-64-v3"].flags)
ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="masks features of an x86-64 processor")

SCRIPT = """
import json, os
import numpy as np
import providers
from numba.core.registry import cpu_target
from numba import njit

@njit
def total(values):
    result = 0.0
    for value in values:
        result += value * value
    return result

total(np.ones(99))
_, cpu, features = cpu_target.target_context.codegen().magic_tuple()
code = total.inspect_asm(total.signatures[0])
print(json.dumps([providers.KERNEL_CPU.name, cpu, features, os.environ["NUMBA_CACHE_DIR"], code,
                  providers.KERNEL_CPU.warning]))
"""


def settled(tmp_path: Path, **environment: str) -> tuple[str, str, str, str, str, str]:
    """Return name, LLVM's processor and features, cache folder, a kernel's assembly and the warning."""
    cleared = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_CACHE_DIR", kernel_cpu.VARIABLE)
    inherited = {name: value for name, value in os.environ.items() if name not in cleared}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=inherited | {"XDG_CACHE_HOME": str(tmp_path)} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(json.loads(run.stdout))


@ON_X86
def test_code_is_that_of_the_baseline(tmp_path: Path) -> None:
    """LLVM's names reach the code generator: the x86-64-v2 has no AVX, whose registers are ymm."""
    name, cpu, features, folder, code, warning = settled(tmp_path, ROWVEIL_KERNEL_CPU="x86-64-v2")
    assert (name, cpu, features, warning) == ("x86-64-v2", "x86-64-v2", "", "")
    assert folder == str(tmp_path / "rowveil" / "kernels-x86-64-v2")
    assert "mulpd" in code or "mulsd" in code
    assert "ymm" not in code
    assert "vmul" not in code


@ON_X86
@pytest.mark.skipif(not kernel_cpu.flags() >= V3, reason="needs a processor of x86-64-v3")
def test_the_baseline_is_that_of_the_architecture(tmp_path: Path) -> None:
    name, cpu, _, _, code, warning = settled(tmp_path, ROWVEIL_KERNEL_CPU="baseline")
    assert (name, cpu, warning) == ("x86-64-v3", "x86-64-v3", "")
    assert "vmul" in code


def test_the_default_is_the_processor_of_this_machine(tmp_path: Path) -> None:
    """Also in a process whose parent had a baseline, and has left numba's variables behind."""
    left_behind = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    name, cpu, *_, warning = settled(tmp_path, **left_behind)
    assert (name, cpu, warning) == ("native", llvm.get_host_cpu_name(), "")


@ON_X86
def test_a_processor_without_the_baseline_compiles_its_own(tmp_path: Path) -> None:
    """glibc leaves out features that its tunables mask, as those that the processor lacks."""
    masked = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2"}
    if kernel_cpu._usable_x86_features(ctypes.CDLL(None)) is None:
        pytest.skip("glibc before 2.33 does not list features")
    name, *_, folder, _, warning = settled(tmp_path, ROWVEIL_KERNEL_CPU="x86-64-v3", **masked)
    assert name == "native"
    assert folder == str(tmp_path / "rowveil" / "kernels")
    assert warning.startswith("this processor lacks avx2 of x86-64-v3")


def test_an_unknown_name_is_replaced_and_reported(tmp_path: Path) -> None:
    name, *_, warning = settled(tmp_path, ROWVEIL_KERNEL_CPU="pentium")
    assert name == "native"
    assert "ROWVEIL_KERNEL_CPU: there is no processor 'pentium'" in warning


ELSEWHERE = """
import sys

import llvmlite.binding as llvm

sys.path.insert(0, sys.argv[1])
if sys.argv[2:]:  # the same processor in the eyes of LLVM, but for its name and features
    llvm.get_host_cpu_name = lambda: sys.argv[2]
    llvm.get_host_cpu_features = lambda: llvm.FeatureMap({"cx16": True})
import providers
import sample_kernel

assert sample_kernel.doubled(2) == 4
print(sum(sample_kernel.doubled.stats.cache_hits.values()))
"""


@pytest.mark.parametrize(("wanted", "loaded"), [("baseline", 1), ("native", 0)])
def test_a_kernel_of_a_baseline_is_loaded_on_another_processor(
    tmp_path: Path, wanted: str, loaded: int
) -> None:
    """One that was compiled for the processor itself is compiled again there."""
    text = "from numba import njit\n\n@njit(cache=True)\ndef doubled(number):\n    return 2 * number\n"
    (tmp_path / "sample_kernel.py").write_text(text)
    hits = []
    for processor in ([], ["nehalem"]):
        run = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, str(tmp_path), *processor],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), kernel_cpu.VARIABLE: wanted},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        hits.append(int(run.stdout))
    assert hits == [0, loaded]


def test_a_name_of_another_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no processor 'x86-64-v3' for aarch64; known are .*armv8-a"):
        choose("x86-64-v3", "aarch64")


def test_the_default_of_arm64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cpu, "flags", lambda: frozenset(BASELINES["armv8.2-a"].flags))
    assert choose("baseline", "aarch64") == KernelCpu("armv8.2-a")
    monkeypatch.setattr(kernel_cpu, "flags", lambda: frozenset(BASELINES["armv8-a"].flags))
    own = choose("baseline", "aarch64")
    assert own.name == "native"
    assert own.warning.startswith("this processor lacks crc32, atomics, asimdrdm, dcpop of armv8.2-a")


def test_an_architecture_without_a_baseline_is_native() -> None:
    assert choose("baseline", "riscv64") == KernelCpu("native")


@pytest.mark.parametrize(
    ("name", "instruction"),
    [("armv8-a", r"\tldxr\t|__aarch64_ldadd"), ("armv8.2-a", r"\tldadd\t"), ("x86-64-v3", r"\tlock\t")],
)
def test_llvm_knows_each_baseline(name: str, instruction: str) -> None:
    """An atomic addition is a loop in the first arm64, and one instruction from version 8.1 on."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    baseline = BASELINES[name]
    triple = f"{baseline.machine}-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=baseline.cpu, features=baseline.features
    )
    module = llvm.parse_assembly(f"""
        target triple = "{triple}"
        define i64 @add(ptr %place, i64 %value) {{
            %old = atomicrmw add ptr %place, i64 %value monotonic
            ret i64 %old
        }}""")
    assert re.search(instruction, machine.emit_assembly(module))


@ON_X86
def test_the_list_of_linux_agrees_with_the_c_library() -> None:
    """The first is read where the second does not list features."""
    found = kernel_cpu._usable_x86_features(ctypes.CDLL(None))
    if found is None:
        pytest.skip("glibc before 2.33 does not list features")
    assert kernel_cpu._listed_flags(kernel_cpu._CPUINFO) & kernel_cpu._X86_FLAGS.keys() == found


def test_a_list_without_flags_has_none(tmp_path: Path) -> None:
    assert kernel_cpu._listed_flags(tmp_path / "absent") == frozenset()
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: asimd\n")
    assert kernel_cpu._listed_flags(tmp_path / "cpuinfo") == frozenset()
