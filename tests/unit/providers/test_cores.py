"""The number of threads follows affinity and the control groups' quota; threads sleep while they wait."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from providers.cores import available_cores, cpu_quota


def process_of(folder: Path, cgroup: str, mountinfo: str) -> Path:
    """A folder such as /proc/self; ``@`` stands for where control groups are mounted."""
    process = folder / "process"
    process.mkdir()
    (process / "cgroup").write_text(cgroup)
    (process / "mountinfo").write_text(mountinfo.replace("@", str(folder / "sys")))
    return process


def group(folder: Path, path: str, **files: str) -> None:
    place = folder / "sys" / path
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name.replace("__", ".")).write_text(text)


V2 = "31 23 0:28 / @ rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000 100000\n", 0.5), ("", None), ("x 1\n", None)],
)
def test_the_quota_of_version_2(tmp_path: Path, text: str, quota: float | None) -> None:
    group(tmp_path, "job", cpu__max=text)
    assert cpu_quota(process_of(tmp_path, "0::/job\n", V2)) == quota


def test_the_least_quota_of_a_group_and_those_above_it_counts(tmp_path: Path) -> None:
    """A quota as systemd slices and SLURM jobs set it."""
    group(tmp_path, "slice", cpu__max="100000 100000")
    group(tmp_path, "slice/job", cpu__max="max 100000")
    group(tmp_path, "slice/job/step", cpu__max="300000 100000")
    process = process_of(tmp_path, "0::/slice/job/step\n", V2)
    assert cpu_quota(process) == 1.0
    assert available_cores(process) == 1


def test_the_quota_of_version_1(tmp_path: Path) -> None:
    """The cpu controller's, wherever it is mounted; -1 is no limit."""
    mounts = (
        "32 31 0:29 / @/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:30 / @/memory rw - cgroup cgroup rw,memory\n"
    )
    group(tmp_path, "cpu,cpuacct/job", cpu__cfs_quota_us="250000", cpu__cfs_period_us="100000")
    group(tmp_path, "cpu,cpuacct", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    cgroup = "4:memory:/elsewhere\n1:cpu,cpuacct:/job\n0::/\n"
    assert cpu_quota(process_of(tmp_path, cgroup, mounts)) == 2.5


def test_a_container_sees_its_own_group_at_the_mount_point(tmp_path: Path) -> None:
    """The path is the host's; what is mounted begins at the container's group."""
    group(tmp_path, "", cpu__max="50000 100000")
    container = V2.replace(" / @", " /docker/abc @")
    process = process_of(tmp_path, "0::/docker/abc\n", container)
    assert cpu_quota(process) == 0.5
    assert available_cores(process) == 1


def test_a_path_out_of_the_mount_counts_as_its_root(tmp_path: Path) -> None:
    group(tmp_path, "", cpu__max="200000 100000")
    assert cpu_quota(process_of(tmp_path, "0::/../../other\n", V2)) == 2.0


def test_a_quota_is_rounded_up_and_never_beyond_the_affinity(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    for number, (quota, expected) in enumerate(((0.2, 1), (1.5, min(2, cores)), (10_000, cores))):
        folder = tmp_path / str(number)
        folder.mkdir()
        group(folder, "job", cpu__max=f"{int(quota * 100_000)} 100000")
        assert available_cores(process_of(folder, "0::/job\n", V2)) == expected


def test_without_control_groups_affinity_counts(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert available_cores(tmp_path) == len(os.sched_getaffinity(0))


SETTLED = """
import json, os, sys
assert "numba" not in sys.modules
import providers, numba
print(json.dumps([os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "NUMBA_NUM_THREADS")]
                 + [numba.config.NUMBA_NUM_THREADS]))
"""
LATE = """
import warnings, numba
from numba import njit, prange
@njit(parallel=True)
def total(n):
    s = 0
    for i in prange(n):
        s += i
    return s
total(4)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import providers
print([str(one.message) for one in caught if "OMP_WAIT_POLICY" in str(one.message)])
"""


def run(program: str, **variables: str) -> str:
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "NUMBA_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=environment | variables, capture_output=True, check=True, text=True
    ).stdout


@pytest.mark.slow
def test_threads_are_settled_before_numba_is_imported() -> None:
    """Passive waiting, and as many threads as cores, in every process that imports the library."""
    assert json.loads(run(SETTLED)) == ["passive", None, str(available_cores()), available_cores()]


@pytest.mark.slow
def test_what_the_environment_says_stays() -> None:
    assert json.loads(run(SETTLED, GOMP_SPINCOUNT="500", NUMBA_NUM_THREADS="1")) == [None, "500", "1", 1]
    assert json.loads(run(SETTLED, OMP_WAIT_POLICY="active"))[0] == "active"


@pytest.mark.slow
def test_a_program_that_started_numbas_threads_before_is_warned() -> None:
    """libgomp has read the environment by then; a policy of the user's own needs no warning."""
    assert "import providers first" in run(LATE, NUMBA_THREADING_LAYER="omp")
    assert run(LATE, NUMBA_THREADING_LAYER="omp", OMP_WAIT_POLICY="passive").strip() == "[]"
    assert run(LATE, NUMBA_THREADING_LAYER="workqueue").strip() == "[]"
