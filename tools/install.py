"""Install a lock file with verified hashes into the virtual environment of this interpreter.

``.venv/bin/python tools/install.py requirements.lock`` installs with uv, which takes seconds instead of a
minute with pip. Without uv, pip installs the one of ``requirements-uv.lock``. pip is used instead, and one
line says why, if uv is not available, does not support one of this user's pip settings, or fails.

uv reads no settings of pip, so those about indexes, certificates and proxies are passed in the environment.
Only the standard library is imported: nothing else is installed yet.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Mapping
from pathlib import Path

UV_LOCK = Path(__file__).parents[1] / "requirements-uv.lock"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

_CUT_OFF = Path(sys.prefix) / ".installing"
"""Marker file present while packages are written; an interrupted installation leaves it behind."""

_SAME = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
"""Setting of pip -> environment variable of uv with the same meaning."""

_SOURCES = {
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_NO_INDEX",
}
"""Variables with which a user configures the package sources of uv."""

_IRRELEVANT = {
    "break-system-packages", "cache-dir", "compile", "config-file", "disable-pip-version-check",
    "exists-action", "log", "no-cache-dir", "no-color", "no-compile", "no-input",
    "no-python-version-warning", "no-warn-conflicts", "no-warn-script-location", "prefer-binary",
    "progress-bar", "quiet", "require-hashes", "require-virtualenv", "root-user-action", "upgrade",
    "upgrade-strategy", "verbose",
}  # fmt: skip
"""Settings of pip that do not affect which files of a lock are installed, and from where."""

_RANKS = ("global", "install", ":env:")
"""Sections of pip's configuration that apply to ``pip install``, in ascending priority."""


class NotByUvError(Exception):
    """uv cannot be used here. The message says why, without an address."""


def install(lock: Path) -> str:
    """Install the lock; return the name of the program that did."""
    _clear_what_was_cut_off()
    try:
        settings = pip_settings()
        if not are_constrained(lock, settings.get("constraint", "")):
            settings.pop("constraint", None)
        environment = uv_environment(settings, os.environ)
        command = [
            find_uv(),
            "pip",
            "install",
            "--python",
            sys.executable,
            "--require-hashes",
            "-r",
            str(lock),
        ]
        lines, code = _write_packages(command, environment, subprocess.STDOUT)
        if code == 0:
            return "uv"
        raise NotByUvError(f"uv failed: {reason(lines)}")
    except NotByUvError as why:
        print(f"  pip installs {lock.name} instead of uv, which takes a minute: {why}", flush=True)
    _clear_what_was_cut_off()  # pip would take packages half written by uv for complete ones
    _, code = _write_packages([*PIP, "install", "--require-hashes", "-r", str(lock)], os.environ, None)
    if code:
        raise SystemExit(f"{lock.name} could not be installed: pip says why above")
    return "pip"


def pip_settings() -> dict[str, str]:
    """Return pip's settings for ``pip install`` from its files and the environment: name -> value."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False)
    if listed.returncode:
        raise NotByUvError("pip's configuration cannot be read")
    found: dict[str, tuple[int, str]] = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in _RANKS:
            rank = _RANKS.index(section)
            if name not in found or rank >= found[name][0]:
                found[name] = rank, str(ast.literal_eval(value))
    return {name: value for name, (_, value) in found.items()}


def are_constrained(lock: Path, constraints: str) -> bool:
    """Return whether a constraint file of pip may concern a package of the lock.

    uv takes no constraint next to hashes. One on other packages changes nothing: a lock pins all that it
    installs. A file that cannot be read, such as one at an address, may concern any package.
    """
    locked = set(_package_names(lock.read_text(encoding="utf-8")))
    try:
        texts = [Path(name).expanduser().read_text(encoding="utf-8") for name in constraints.split()]
    except (OSError, UnicodeDecodeError):
        return True
    has_options = any(re.search(r"^\s*-", text, re.MULTILINE) for text in texts)
    return has_options or any(locked & set(_package_names(text)) for text in texts)


def _package_names(requirements: str) -> list[str]:
    """Return the package names at the beginning of a requirements file's lines, normalised (PEP 503)."""
    names = re.findall(r"^([A-Za-z0-9][\w.-]*)", requirements, re.MULTILINE)
    return [re.sub(r"[-_.]+", "-", name).lower() for name in names]


def uv_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which uv behaves as pip with these settings.

    Raises
    ------
    NotByUvError
        uv may not support a setting.
    """
    if unknown := sorted(settings.keys() - _SAME.keys() - _IRRELEVANT):
        raise NotByUvError(f"pip is configured with {', '.join(unknown)}, which is not passed on to uv")
    given = dict(environment)
    if bundle := environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE"):
        given.setdefault("SSL_CERT_FILE", bundle)  # as pip parses it
    has_sources = not _SOURCES.isdisjoint(environment)
    for name in sorted(settings.keys() & _SAME.keys()):
        variable, value = _SAME[name], settings[name]
        if variable in environment or (has_sources and variable in _SOURCES):
            continue
        if variable == "UV_FIND_LINKS":
            value = ",".join(os.path.expanduser(link) for link in value.split())  # noqa: PTH111 - may be an address
        given[variable] = " ".join(value.split())
    # pip takes a file from whichever index has it. That is safe for uv, too: the lock has the hashes.
    given.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return given


def find_uv() -> str:
    """Return the command of a uv at least as new as the locked one; pip installs it if there is none."""
    locked = re.search(r"^uv==([\d.]+)", UV_LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if locked is None:
        raise NotByUvError(f"{UV_LOCK.name} locks no uv")
    own = Path(sys.executable).with_name("uv")
    for command in (str(own), shutil.which("uv")):
        if command is not None and _version(command) >= _numbers(locked[1]):
            return command
    # wheel only: building uv needs a Rust compiler
    options = ["--quiet", "--retries", "2", "--require-hashes", "--only-binary", ":all:", "--no-deps"]
    command_line = [*PIP, "install", *options, "-r", str(UV_LOCK)]
    brought = subprocess.run(command_line, capture_output=True, text=True, check=False)
    if brought.returncode or not own.exists():
        raise NotByUvError(f"pip could not install uv: {reason(brought.stderr.splitlines())}")
    return str(own)


def _version(command: str) -> tuple[int, ...]:
    """Return the version of a uv; empty if the command reports none."""
    try:
        answer = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    found = re.match(r"uv (\d+(\.\d+)+)", answer.stdout)
    return _numbers(found[1]) if found is not None and answer.returncode == 0 else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def reason(lines: list[str]) -> str:
    """Return the line of a program's output that explains the failure, without addresses."""
    errors = [line for line in lines if re.match(r"\W*error", line, re.IGNORECASE)]
    chosen = (errors or [line for line in reversed(lines) if line.strip()] or ["it said nothing"])[0]
    return without_addresses(re.sub(r"^\W*error\W*", "", chosen.strip(), flags=re.IGNORECASE))


def without_addresses(text: str) -> str:
    """Return the text with addresses reduced to their host: other parts may contain passwords or tokens."""
    return re.sub(r"(\w+://)(?:[^\s/]*@)?([^\s/@`'\")]*)[^\s`'\")]*", r"\1\2/…", text)


def _write_packages(
    command: list[str], environment: Mapping[str, str], errors: int | None
) -> tuple[list[str], int]:
    """Run an installing command; leave the marker if it failed or was interrupted after writing."""
    packages = Path(sysconfig.get_path("purelib"))
    before, code = packages.stat().st_mtime_ns, -1
    _CUT_OFF.touch()
    try:
        lines, code = _watch(command, environment, errors)
    finally:
        if code == 0 or packages.stat().st_mtime_ns == before:
            _CUT_OFF.unlink()
    return lines, code


def _watch(command: list[str], environment: Mapping[str, str], errors: int | None) -> tuple[list[str], int]:
    """Run a command, show its current line in a terminal, and return its lines and its exit code.

    ``errors``: target of its standard error, as for `subprocess`; None inherits it.
    """
    lines = []
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            _show(without_addresses(line.strip()))
    _show("")
    return lines, process.returncode


def _show(text: str) -> None:
    """Replace the status line of a terminal; do nothing elsewhere."""
    if sys.stdout.isatty():
        width = max(1, shutil.get_terminal_size().columns - 3)
        sys.stdout.write("\r\x1b[K" + (f"  {text[:width]}" if text else ""))
        sys.stdout.flush()


def _clear_what_was_cut_off() -> None:
    """Recreate the virtual environment if an installation was interrupted while writing packages.

    Neither uv nor pip notices that a package lacks files: each considers it installed.
    """
    if _CUT_OFF.exists():
        print(f"  an installation was cut off: {sys.prefix} is made again", flush=True)
        venv.create(sys.prefix, clear=True, symlinks=True, with_pip=True)


def main() -> None:
    """Install the lock given on the command line."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: .venv/bin/python tools/install.py requirements.lock")
    if sys.prefix == sys.base_prefix:
        raise SystemExit("run this by the Python of a virtual environment, such as .venv/bin/python")
    started, lock = time.monotonic(), Path(sys.argv[1])
    try:
        program = install(lock)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    print(f"  {lock.name}: installed by {program} in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
