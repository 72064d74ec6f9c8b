"""Files of a home that belong to another user, such as after a copy by root: the service names them.

The processes have lost the right of root to use such files, so that the user of the tests is an ordinary one.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from demo.service import announced, environment_of
from tests.preloaded.processes import running_service

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None,
        reason="only root can give files to another user",
    ),
]

NOBODY = 65534
COMMAND = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"]
COMMAND += [sys.executable, "-m", "app", "serve"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home on which a service has run."""
    home = tmp_path / "home"
    with running_service(home, workers="1"):
        pass
    return home


def give_away(path: Path) -> None:
    """Let only another user use a file or folder."""
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("name", ["lock", "blobs"])
def test_a_start_names_the_file_and_the_remedy(home: Path, name: str) -> None:
    (home / "blobs" / "trash").mkdir(parents=True, exist_ok=True)
    give_away(home / name)
    environment = environment_of(home, {"workers": "1"})
    refused = subprocess.run(
        COMMAND, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert refused.returncode == 1
    assert f"Permission denied: {home / name}" in refused.stderr
    assert "`chown -R` them" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_start_names_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = environment_of(tmp_path / "file" / "home", {"workers": "1"})
    refused = subprocess.run(
        COMMAND, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert refused.returncode == 1
    assert f"Not a directory: {tmp_path}/file/home. ROWVEIL_HOME and" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_service_that_cannot_make_progress_files_is_not_ready(home: Path, tmp_path: Path) -> None:
    give_away(home / "progress")
    environment = environment_of(home, {"workers": "1"})
    with (
        (tmp_path / "log").open("wb") as log,
        announced(
            subprocess.Popen(COMMAND, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        ) as (address, _),
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["checks"]["storage"]) == (503, "not available")
        os.chown(home / "progress", os.geteuid(), os.getegid())
        assert client.get("/readyz").status_code == 200
    assert f"may not write to the shared folder: {home / 'progress'}" in (tmp_path / "log").read_text()
