"""Installation of a lock: with uv if possible, else with pip, verified and complete in either case."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.install import NotByUvError, are_constrained, reason, uv_environment, without_addresses

ROOT = Path(__file__).parents[3]
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-uv.lock", "requirements-anonymeter.lock")
SECRET_INDEX = "https://" + "ada" + ":hunter2@packages.example/t0ken/simple/"


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_requirement_has_a_hash(name: str) -> None:
    requirements = re.split(r"\n(?=[a-z0-9])", (ROOT / name).read_text(encoding="utf-8").strip())
    assert requirements
    for requirement in requirements:
        assert re.match(r"[a-z0-9._-]+==\S+", requirement), requirement
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", requirement), requirement


def test_the_settings_of_pip_are_passed_on_to_uv() -> None:
    settings = {
        "index-url": SECRET_INDEX,
        "extra-index-url": "\nhttps://one.example/simple\nfile:///srv/simple",
        "find-links": "/opt/wheels ~/more",
        "cert": "/etc/authority.pem",
        "timeout": "60",
        "disable-pip-version-check": "1",
    }
    given = uv_environment(settings, {"PATH": "/bin", "HOME": "/home/ada"})
    assert given == {
        "PATH": "/bin",
        "HOME": "/home/ada",
        "UV_DEFAULT_INDEX": SECRET_INDEX,
        "UV_INDEX": "https://one.example/simple file:///srv/simple",
        "UV_FIND_LINKS": f"/opt/wheels,{Path('~/more').expanduser()}",
        "SSL_CERT_FILE": "/etc/authority.pem",
        "UV_HTTP_TIMEOUT": "60",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_what_the_user_has_configured_for_uv_stays() -> None:
    """Package sources are then not a mixture of both configurations."""
    own = {
        "UV_INDEX": "https://own.example/simple",
        "SSL_CERT_FILE": "/own.pem",
        "UV_INDEX_STRATEGY": "first-index",
    }
    settings = {"index-url": SECRET_INDEX, "cert": "/etc/authority.pem", "proxy": "http://proxy.example:3128"}
    assert uv_environment(settings, own) == own | {"ALL_PROXY": "http://proxy.example:3128"}


def test_authorities_of_the_environment_count_as_they_do_for_pip() -> None:
    assert uv_environment({}, {"REQUESTS_CA_BUNDLE": "/a.pem"})["SSL_CERT_FILE"] == "/a.pem"


def test_a_setting_that_uv_may_not_know_leaves_it_to_pip() -> None:
    with pytest.raises(NotByUvError, match="configured with constraint, no-binary, which"):
        uv_environment({"no-binary": ":all:", "constraint": "/a.txt", "cert": "/a.pem"}, {})


@pytest.mark.parametrize(
    ("constraints", "constrained"),
    [
        ("# torch\ntorch<=2.14.1\n", False),
        ("Sample<2\n", True),
        ("torch\nsample-more==1\n", False),
        ("-c more.txt\n", True),
    ],
)
def test_constraints_count_where_they_may_name_a_package_of_the_lock(
    constraints: str, constrained: bool, tmp_path: Path
) -> None:
    lock = tmp_path / "sample.lock"
    lock.write_text("# sample\nsample==1.0 \\\n    --hash=sha256:00\n    # via torch\n")
    file = tmp_path / "constraints.txt"
    file.write_text(constraints)
    assert are_constrained(lock, str(file)) is constrained
    assert are_constrained(lock, f"{file} {tmp_path / 'missing.txt'}")
    assert not are_constrained(lock, "")


def test_the_reason_names_no_address_beyond_its_host() -> None:
    lines = [
        "Using Python 3.11",
        f"error: Failed to fetch: `{SECRET_INDEX}numba/`",
        f"  cause: url ({SECRET_INDEX})",
    ]
    assert reason(lines) == "Failed to fetch: `https://packages.example/…`"
    assert without_addresses(lines[2]) == "  cause: url (https://packages.example/…)"
    assert reason(["Looking", f"ERROR: none of {SECRET_INDEX}"]) == "none of https://packages.example/…"
    assert reason(["", "killed", ""]) == "killed"
    assert reason([]) == "it said nothing"


class Checkout:
    """Virtual environment, lock of one package of its own, and the folder of this package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix = folder / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.prefix)], check=True)
        self.packages = self.prefix / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        pip = Path(
            subprocess.check_output(
                [sys.executable, "-c", "import pip; print(*pip.__path__)"], text=True
            ).strip()
        )
        (self.packages / "pip").symlink_to(pip)  # compiled, unlike a new one
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.lock = folder / "sample.lock"
        self.lock.write_text(f"sample==1.0 --hash=sha256:{self._wheel()}\n")

    def _wheel(self) -> str:
        """Write the wheel, and return its hash."""
        files = {
            "sample.py": "WHOLE = True\n",
            "sample-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n",
            "sample-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = ""
        for name, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            record += f"{name},sha256={digest},{len(text)}\n"
        path = self.wheels / "sample-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
            wheel.writestr("sample-1.0.dist-info/RECORD", f"{record}sample-1.0.dist-info/RECORD,,\n")
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def uv(self, script: str, version: str = "999.0.0") -> None:
        """Install a fake uv that runs the given lines of shell."""
        program = self.programs / "uv"
        program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "uv {version}"; exit; }}\n{script}\n')
        program.chmod(0o755)

    def install(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Install the lock as the Makefile does, only from the folder of wheels."""
        given = {
            name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "UV_", "SSL_"))
        }
        given |= {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "PIP_CONFIG_FILE": os.devnull,
            "XDG_CONFIG_DIRS": str(self.folder),  # nor the configuration of all users
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "UV_CACHE_DIR": str(self.folder / "cache"),
            "UV_NO_CONFIG": "1",
        }
        return subprocess.run(
            [str(self.prefix / "bin" / "python"), str(ROOT / "tools" / "install.py"), str(self.lock)],
            env=given | variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def is_installed(self) -> bool:
        """Return whether the package is completely installed."""
        command = [str(self.prefix / "bin" / "python"), "-c", "import sample; assert sample.WHOLE"]
        return subprocess.run(command, cwd="/", capture_output=True, check=False).returncode == 0

    @property
    def is_marked(self) -> bool:
        """Return whether the next run would detect an interrupted installation."""
        return (self.prefix / ".installing").exists()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


HALF = 'cd "{0}"; echo half=1 > sample.py; mkdir sample-1.0.dist-info; touch sample-1.0.dist-info/METADATA'
"""Shell lines of an installation that is interrupted in the middle."""


def test_uv_is_given_the_lock_its_hashes_and_the_settings_of_pip(checkout: Checkout) -> None:
    """All are environment variables, never on its command line, which other users can read."""
    checkout.uv(f'echo "$@" > {checkout.folder}/arguments; env > {checkout.folder}/environment')
    done = checkout.install(PIP_INDEX_URL=SECRET_INDEX)
    assert re.fullmatch(r"  sample.lock: installed by uv in \d+ s\n", done.stdout), done
    python = checkout.prefix / "bin" / "python"
    arguments = (checkout.folder / "arguments").read_text().strip()
    assert arguments == f"pip install --python {python} --require-hashes -r {checkout.lock}"
    environment = (checkout.folder / "environment").read_text().splitlines()
    assert f"UV_DEFAULT_INDEX={SECRET_INDEX}" in environment
    assert f"UV_FIND_LINKS={checkout.wheels}" in environment
    assert "UV_NO_INDEX=1" in environment
    assert not checkout.is_marked


def test_pip_reads_its_files_and_its_environment_wins(checkout: Checkout) -> None:
    """The command's own section overrides the one of all commands, as during an installation."""
    (checkout.folder / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example/\ntimeout = 5\n"
        "[install]\ntimeout = 7\nretries = 9\n[list]\nformat = json\n"
    )
    checkout.uv(f"env > {checkout.folder}/environment")
    done = checkout.install(PIP_CONFIG_FILE=str(checkout.folder / "pip.conf"), PIP_RETRIES="1")
    assert "installed by uv" in done.stdout, done
    environment = (checkout.folder / "environment").read_text().splitlines()
    for line in ("UV_DEFAULT_INDEX=https://a.example/", "UV_HTTP_TIMEOUT=7", "UV_HTTP_RETRIES=1"):
        assert line in environment


def test_pip_installs_where_uv_fails(checkout: Checkout) -> None:
    """One line says why, without the password in the address."""
    checkout.uv(
        f'echo "error: Failed to fetch: {SECRET_INDEX}sample/" >&2; echo "  cause: refused" >&2; exit 2'
    )
    done = checkout.install()
    assert done.returncode == 0, done
    why, end = done.stdout.splitlines()
    assert why == (
        "  pip installs sample.lock instead of uv, which takes a minute: "
        "uv failed: Failed to fetch: https://packages.example/…"
    )
    assert re.fullmatch(r"  sample.lock: installed by pip in \d+ s", end)
    assert "hunter2" not in done.stdout + done.stderr
    assert checkout.is_installed
    assert not checkout.is_marked


def test_pip_installs_where_it_can_bring_no_uv(checkout: Checkout) -> None:
    """For example behind a mirror without uv; a version older than the tested one is not used."""
    checkout.uv(f"touch {checkout.folder}/ran", version="0.1.0")
    done = checkout.install()
    assert "instead of uv, which takes a minute: pip could not install uv: " in done.stdout
    assert "installed by pip" in done.stdout
    assert checkout.is_installed
    assert not (checkout.folder / "ran").exists()


def test_pip_installs_where_it_is_set_up_in_a_way_of_its_own(checkout: Checkout) -> None:
    checkout.uv(f"touch {checkout.folder}/ran")
    done = checkout.install(PIP_ONLY_BINARY=":all:")
    assert "pip is configured with only-binary, which is not passed on to uv" in done.stdout
    assert checkout.is_installed
    assert not (checkout.folder / "ran").exists()


def test_what_uv_has_half_written_is_not_taken_for_installed(checkout: Checkout) -> None:
    """pip would find the package: the virtual environment is recreated first."""
    checkout.uv(f"{HALF.format(checkout.packages)}; exit 1")
    done = checkout.install()
    assert done.returncode == 0, done
    assert "an installation was cut off" in done.stdout
    assert "uv failed: it said nothing" in done.stdout
    assert checkout.is_installed


def test_what_was_killed_is_begun_again(checkout: Checkout) -> None:
    """The next run finds the marker."""
    checkout.uv(f"{HALF.format(checkout.packages)}; kill -9 $PPID")
    assert checkout.install().returncode == -9
    assert checkout.is_marked
    assert not checkout.is_installed
    checkout.uv("exit 1")
    done = checkout.install()
    assert f"an installation was cut off: {checkout.prefix} is made again" in done.stdout
    assert checkout.is_installed
    assert not checkout.is_marked


def test_a_wrong_hash_is_refused_by_pip(checkout: Checkout) -> None:
    checkout.uv("exit 1")
    checkout.lock.write_text(f"sample==1.0 --hash=sha256:{'0' * 64}\n")
    done = checkout.install()
    assert done.returncode == 1
    assert "sample.lock could not be installed: pip says why above" in done.stderr
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not checkout.is_installed
    assert not checkout.is_marked


@pytest.fixture
def real_uv(checkout: Checkout) -> None:
    own = Path(sys.executable).with_name("uv")
    found = str(own) if own.exists() else shutil.which("uv")
    if found is None:
        pytest.skip("there is no uv: pip has installed what these tests run in")
    (checkout.programs / "uv").symlink_to(found)


@pytest.mark.usefixtures("real_uv")
def test_uv_installs_what_the_hashes_fit(checkout: Checkout) -> None:
    done = checkout.install()
    assert "sample.lock: installed by uv" in done.stdout, done
    assert checkout.is_installed


@pytest.mark.usefixtures("real_uv")
@pytest.mark.parametrize("hashes", ["", f" --hash=sha256:{'0' * 64}"])
def test_uv_refuses_what_the_hashes_do_not_fit(checkout: Checkout, hashes: str) -> None:
    """The environment cannot disable that: pip, which is tried next, rejects it as well."""
    checkout.lock.write_text(f"sample==1.0{hashes}\n")
    done = checkout.install(UV_NO_VERIFY_HASHES="1", UV_REQUIRE_HASHES="0")
    assert "uv failed: " in done.stdout
    assert done.returncode == 1
    assert not checkout.is_installed
    assert not checkout.is_marked
