"""The clients are made from the contract without a warning, installed, and run against a live service."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import httpx
import pytest

from tests.docs.blocks import PAGES, PROGRAMS, Reader, blocks, sample_table

ROOT = Path(__file__).parents[2]
PAGE = PAGES / "clients.md"
OF_PYTHON = ROOT / "clients" / "python" / "README.md"
STRICT = "--strict --noUncheckedIndexedAccess --skipLibCheck"

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, made by what `make clients` calls; skipped where there is no Node, except in CI."""
    if shutil.which("npm") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no npm: install Node 20")
        pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("clients")
    made = shutil.ignore_patterns("node_modules", "dist", "rowveil_api", "schema.ts")
    shutil.copytree(ROOT / "clients", folder, dirs_exist_ok=True, ignore=made)
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run([str(ROOT / "clients" / "generate"), str(folder)], {"PATH": tools})
    return folder


@pytest.fixture
def service(client: httpx.Client) -> dict[str, str]:
    """Where the service is, and with which key it is called."""
    key = client.headers.get("authorization", "").removeprefix("Bearer ")
    return {"ROWVEIL_URL": str(client.base_url), "ROWVEIL_API_KEY": key}


@pytest.fixture(scope="module")
def installed(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python's, in an environment of its own, which sees the project's for what it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    run([*pip, "--no-deps", "--no-build-isolation", "--no-index", str(clients / "python")])
    assert list(packages.glob("rowveil_api/client.py"))
    return folder


@pytest.fixture
def reader(tmp_path: Path, address: str, key: str, service_home: Path) -> Reader:
    """Of the pages about the clients; the key lies where `make serve` leaves it."""
    assert (service_home / "keys" / "own.key").read_text().strip() == key
    return Reader(tmp_path, address, service_home)


def test_python(clients: Path, installed: Path, service: dict[str, str], tmp_path: Path) -> None:
    given = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(clients)]
    python = str(installed / "bin" / "python")
    run([python, *given, str(clients / "python" / "test_live.py")], service, cwd=tmp_path)


def test_python_as_its_page_has_it(installed: Path, reader: Reader) -> None:
    reader.settle(str(installed))
    reader.run([block for block in blocks(OF_PYTHON) if block.language == "python"])


def test_typescript(clients: Path, service: dict[str, str]) -> None:
    tests = clients / "typescript" / "dist" / "test" / "live.test.js"
    run(["node", "--test", str(tests)], service)


def test_typescript_as_its_page_has_it(clients: Path, reader: Reader) -> None:
    """Compiled and run as it stands, in a folder where npm has put a link to the client, as it does."""
    reader.settle()
    package = clients / "typescript"
    scope = reader.folder / "node_modules" / "@rowveil"
    scope.mkdir(parents=True)
    (scope / "client").symlink_to(package)
    told = re.search(
        r"`npx tsc (.+) swap\.mts`.*`node swap\.mjs`", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert told is not None
    flags = f"{told[1]} {STRICT} --typeRoots {package / 'node_modules' / '@types'}"
    compiled = f"{package / 'node_modules' / '.bin' / 'tsc'} {flags} {{0}}.mts && node {{0}}.mjs"
    programs = PROGRAMS | {"ts": ("mts", compiled)}
    examples = [block for block in blocks(PAGE) if block.language == "ts"]
    reader.run([sample_table(), *examples], programs=programs)


def test_the_lock_names_no_registry() -> None:
    lock = (ROOT / "clients" / "typescript" / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "http://" not in lock
    assert '"integrity"' in lock


def run(command: list[str], environment: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Run a program that must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | (environment or {})
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
