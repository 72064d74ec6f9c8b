"""The clients are made from the contract without a warning, installed, and run against a live service."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]

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


def test_python(clients: Path, service: dict[str, str], tmp_path: Path) -> None:
    """Installed into an environment of its own, which sees the project's for what it depends on."""
    venv.create(tmp_path, symlinks=True)
    scheme = {"base": str(tmp_path), "platbase": str(tmp_path)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    python = str(tmp_path / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    run([*pip, "--no-deps", "--no-build-isolation", "--no-index", str(clients / "python")])
    assert list(packages.glob("rowveil_api/client.py"))
    given = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(clients)]
    run([python, *given, str(clients / "python" / "test_live.py")], service, cwd=tmp_path)


def test_typescript(clients: Path, service: dict[str, str]) -> None:
    tests = clients / "typescript" / "dist" / "test" / "live.test.js"
    run(["node", "--test", str(tests)], service)


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
