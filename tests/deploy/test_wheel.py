"""A wheel built from the tree installs into an empty environment, starts, and compiles while it serves."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0

pytestmark = pytest.mark.faults


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The command `rowveil` of an environment with the wheel, to which this one lends the dependencies."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    [packages] = environment.glob("lib/python3*/site-packages")
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)]
    subprocess.run(install, check=True, env={"PATH": os.environ["PATH"]})
    # The folder comes after the environment's own, and its own .pth files are not read.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin" / "rowveil"


def test_an_installed_wheel_serves_while_it_compiles(installed: Path, tmp_path: Path) -> None:
    """Neither the service nor the process that compiles needs the checkout."""
    settings = {"home": str(tmp_path / "home"), "port": "0", "auth": "off", "workers": "1"}
    settings |= {"compile_kernels": "true"}
    environment = {f"ROWVEIL_{name.upper()}": value for name, value in settings.items()}
    environment |= {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [str(installed), "serve"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = re.search(r"http://\S+", process.stdout.readline())
        assert ready is not None
        with httpx.Client(base_url=ready[0], timeout=PATIENCE) as client:
            deadline = time.monotonic() + PATIENCE
            while not (kernels := client.get("/readyz").raise_for_status().json()["kernels"])["compiled"]:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert kernels["compiled"] < kernels["kernels"]
            assert client.get("/v1/services").raise_for_status().json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()
    assert list((tmp_path / ".cache" / "rowveil" / "kernels").rglob("*.nbc"))
