"""The Dockerfile carried out without an engine: its steps in an empty root, and its container in a namespace.

Needs root, for mounts of its own. What stands for the base image is this machine's ``/usr`` and Python.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from types import MappingProxyType

from providers.kernel_cache import states

REPOSITORY = Path(__file__).parents[2]
_ACCOUNTS = ("passwd", "group", "shadow", "gshadow", "login.defs", "ld.so.cache", "nsswitch.conf")
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
_NO_ARGUMENTS: Mapping[str, str] = MappingProxyType({})
_SITE = f"lib/python3.{sys.version_info.minor}/site-packages"


@dataclass
class Stage:
    """One FROM instruction, and the instructions after it."""

    steps: list[tuple[str, str]] = field(default_factory=list)
    """Instruction and the rest of its line."""

    def last(self, instruction: str) -> str:
        """Return the argument of the last such instruction, which is the effective one."""
        return [rest for name, rest in self.steps if name == instruction][-1]

    def environment(self) -> dict[str, str]:
        """Environment variables of ENV instructions, in the form ``NAME=value``."""
        words = " ".join(rest for name, rest in self.steps if name == "ENV").split()
        return dict(word.split("=", 1) for word in words)


def stages(dockerfile: Path, arguments: Mapping[str, str] = _NO_ARGUMENTS) -> list[Stage]:
    """Return the stages of a Dockerfile whose commands are in exec form.

    ``arguments``: those of the build, in place of the defaults that its ARG instructions have.
    """
    text = "\n".join(line for line in dockerfile.read_text().splitlines() if not line.startswith("#"))
    found: list[Stage] = []
    for line in text.replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            found.append(Stage())
            values: dict[str, str] = {}
        elif instruction == "ARG":
            name, _, default = rest.strip().partition("=")
            values[name] = arguments.get(name, default)
        elif instruction:
            found[-1].steps.append((instruction, Template(rest.strip()).safe_substitute(values)))
    return found


def health_command(stage: Stage) -> list[str]:
    """Return the command of HEALTHCHECK."""
    command: list[str] = json.loads(stage.last("HEALTHCHECK").partition("CMD")[2])
    return command


class Root:
    """Folder that is a container's root, over this machine's files in place of the base image."""

    def __init__(self, folder: Path, site_packages: Path | None, wheels: Path | None) -> None:
        """``site_packages``: an existing installation to mount; otherwise ``wheels`` are installed."""
        self.folder = folder
        folder.chmod(0o755)
        self._lent: list[tuple[Path, str]] = [(Path(sys.base_prefix), "usr/local")]
        if site_packages is not None:
            self._lent.append((site_packages, f"opt/rowveil/{_SITE}"))
        if wheels is not None:
            self._lent.append((wheels, "wheels"))
        for name in ("etc", "proc", "dev", "tmp", "var/lib", "srv", "opt"):
            (folder / name).mkdir(parents=True)
        for name in _ACCOUNTS:
            if (given := Path("/etc") / name).is_file():
                shutil.copy(given, folder / "etc" / name)
        self._system = []
        for name in _SYSTEM:
            if (given := Path("/") / name).is_symlink():
                (folder / name).symlink_to(given.readlink())
            elif given.is_dir():
                self._system.append(name)

    def command(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: str = "/",
        user: str = "0:0",
        volumes: Mapping[str, Path] | None = None,
        read_only: bool = False,
    ) -> list[str]:
        """The command line that runs a command in this root, in mounts of its own, as this very process."""
        script = ["set -e", 'cd "$1"', "mount --make-rprivate /", "mount --bind . .", 'cd "$1"']
        for name in self._system:
            script += [f"mkdir -p {name}", f"mount --rbind -o ro /{name} {name}"]
        for given, place in self._lent:
            script += [f"mkdir -p {place}", f"mount --bind -o ro '{given}' {place}"]
        script += ["mount -t proc proc proc", "mount --rbind /dev dev"]
        for place, given in (volumes or {}).items():
            script.append(f"mount --bind '{given}' .{place}")
        if read_only:
            script += ["mount -t tmpfs -o mode=1777 tmpfs tmp", "mount -o remount,bind,ro ."]
        script.append(f'shift; exec chroot --userspec={user} . env -i --chdir={folder} "$@"')
        # A Python that was built for another location looks for its library there.
        given_environment = [f"{name}={value}" for name, value in environment.items()]
        given_environment.append("LD_LIBRARY_PATH=/usr/local/lib")
        inner = ["sh", "-c", "\n".join(script), "sh", str(self.folder), *given_environment, *arguments]
        return ["unshare", "--mount", *inner]


def can_mount() -> bool:
    """Return whether this user may create mounts of its own."""
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "mount --make-rprivate / && mount -t tmpfs none /mnt"],  # noqa: S607 - the system's
        capture_output=True,
        check=False,
    )
    return os.geteuid() == 0 and tried.returncode == 0


def build(root: Root, built: Sequence[Stage], skipped: Sequence[str] = ()) -> list[list[str]]:
    """Run the stages in one root, except RUNs with a ``skipped`` word; return those that were run."""
    run = []
    for stage in built:
        folder, environment = "/", {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "PIP_NO_INDEX": "1"}
        environment |= {"PIP_FIND_LINKS": "/wheels", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        for instruction, rest in stage.steps:
            if instruction == "WORKDIR":
                folder = rest
                (root.folder / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            elif instruction == "ENV":
                environment |= dict(word.split("=", 1) for word in rest.split())
            elif instruction == "COPY" and not rest.startswith("--from=build /opt/rowveil /opt/rowveil"):
                _copy(rest.split(), root.folder / folder.lstrip("/"))
            elif instruction == "RUN" and not any(word in rest for word in skipped):
                arguments = json.loads(rest)
                subprocess.run(root.command(arguments, environment, folder=folder), check=True)
                run.append(arguments)
    return run


def lend_kernels(folder: Path, compiled: Path) -> None:
    """Copy kernels that were compiled earlier from exactly these sources."""
    folder.mkdir(parents=True)
    for kept in compiled.glob("states-*.json"):
        shutil.copy2(kept, folder)
    for kernel, state in states().items():
        module = kernel.partition(":")[0]
        for file in (compiled / module).glob(f"*-{state}.*"):
            (folder / module).mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / module)


def _copy(words: list[str], folder: Path) -> None:
    *sources, target = words
    for pattern in sources:
        for source in REPOSITORY.glob(pattern):
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, folder / target, ignore=ignored, dirs_exist_ok=True)
            else:
                place = folder / target / source.name if target.endswith("/") else folder / target
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
