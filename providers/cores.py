"""Number of cores that this process may use: its affinity, and its control groups' CPU quota.

Imports nothing but the standard library: the number is settled before numba is imported.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_PROCESS = Path("/proc/self")


def available_cores(process: Path = _PROCESS) -> int:
    """Cores that the process may run on, 1 or more; a quota of 1.5 cores counts as 2.

    A quota is rounded up, as Docker's users and the Java virtual machine do: with two threads on 1.5 cores
    all of the quota is used, with one thread a third of it would be lost.

    Parameters
    ----------
    process : Path
        The folder with the process's ``cgroup`` and ``mountinfo``.
    """
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quota = cpu_quota(process)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(process: Path = _PROCESS) -> float | None:
    """Cores' worth of time that the process's control groups allow it; None where they set no limit.

    The minimum over all groups that the process is in, from its own group up to the root of the mounted tree,
    in version 2 (``cpu.max``) and version 1 (``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``).
    """
    try:
        paths = _group_paths((process / "cgroup").read_text())
        mounts = (process / "mountinfo").read_text()
    except (OSError, UnicodeDecodeError):  # not Linux
        return None
    quotas = [quota for folder in _folders(paths, mounts) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _group_paths(text: str) -> dict[str, str]:
    """The path of the process's group by version: ``cgroup2``, and ``cgroup`` for the cpu controller of 1."""
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths["cgroup2"] = path
        elif "cpu" in controllers.split(","):
            paths["cgroup"] = path
    return paths


def _folders(paths: dict[str, str], mounts: str) -> Iterator[Path]:
    """The folders of the process's groups, each with its parents up to the mount point."""
    for line in mounts.splitlines():
        own, _, system = line.partition(" - ")
        kind, _, options = system.split(" ", 2)
        if kind not in paths or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        root, mount_point = own.split(" ")[3:5]
        mounted = Path(mount_point)
        # In a container the group's path may be the host's, and what is mounted begins at the group itself.
        path = Path(paths[kind])
        inside = path.relative_to(root) if path.is_relative_to(root) else Path()
        folder = mounted / inside
        while folder != mounted and mounted in folder.parents:
            yield folder
            folder = folder.parent
        yield mounted


def _quota_of(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        cores = int(quota) / int(period)  # "max" is no integer, -1 no limit
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None
