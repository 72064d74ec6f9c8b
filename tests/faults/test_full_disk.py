"""A disk that small jobs fill up to the reserve: what frees space works, and so does a restart.

The home is on a small file system of its own, which needs the right to mount one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.store.blobs.disk_space import SPARE_BYTES
from tests.preloaded.processes import running_service

pytestmark = pytest.mark.faults

ROOM = 12 << 20
"""Bytes of the disk beyond the reserve."""

CALL: dict[str, Any] = {
    "source": {"rows": [{"income": row, "note": f"{row:0>40}"} for row in range(1200)]},
    "parameters": {"swap_fields": ["income"]},
    "retain_source": True,
}
"""Call whose tables are in the row of its job."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home on a file system of a few megabytes more than the reserve."""
    folder = tmp_path / "home"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SPARE_BYTES + ROOM}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607


def submit(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/services/DSWAP", json=CALL, headers={"prefer": "wait=60"}, timeout=120)


def fill(client: httpx.Client) -> list[str]:
    """Submit jobs until they are refused; return their ids."""
    jobs = []
    while (answer := submit(client)).is_success:
        jobs.append(str(answer.json()["id"]))
        assert len(jobs) < 400
    assert answer.status_code == 507, answer.text
    assert "MiB are free" in answer.json()["detail"]
    return jobs


def hold_declared(client: httpx.Client, job: str) -> None:
    """Check that the document has the refusal of each operation that writes, be it a line of the audit."""
    paths = client.get("/openapi.json").json()["paths"]
    source = CALL["source"]
    calls: list[tuple[str, str, Any]] = [
        ("post", "/v1/services/DSWAP", CALL),
        ("post", "/v1/measures", {"source": source, "destination": source}),
        *(("get", f"/v1/jobs/{{job_id}}/{part}", None) for part in ("rows", "report", "manifest")),
        ("patch", "/v1/jobs/{job_id}", {"notes": "a"}),
        ("post", "/v1/jobs/{job_id}/rerun", {"source": source}),
    ]
    statuses = set()
    for method, path, content in calls:
        answer = client.request(method, path.format(job_id=job), json=content)
        assert str(answer.status_code) in paths[path][method]["responses"], (method, path, answer.text)
        statuses.add(answer.status_code)
    assert statuses == {507}


def free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def administer(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app", *arguments]
    environment = os.environ | {"ROWVEIL_HOME": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_disk_filled_by_small_jobs_can_be_emptied(home: Path, tmp_path: Path) -> None:
    key = administer(home, "keys", "create", "--name", "ann", "--expires", "1h")
    key_id = key.stderr.split()[1]
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("wb"))
        address = stack.enter_context(running_service(home, log, workers="1", purge_interval="3600"))
        client = stack.enter_context(httpx.Client(base_url=address, timeout=60))
        buffer = client.post("/v1/buffers", content="a\n1\n", headers={"content-type": "text/csv"})
        jobs = fill(client)
        refused = client.post("/v1/buffers", content="a\n1\n", headers={"content-type": "text/csv"})
        assert refused.status_code == 507
        assert free_bytes(home) > SPARE_BYTES // 2
        assert administer(home, "keys", "revoke", key_id).returncode == 0
        assert administer(home, "keys", "create", "--name", "ben").returncode == 1
        assert client.get(f"/v1/jobs/{jobs[0]}/rows").status_code == 200
        assert client.get("/readyz").status_code == 200
        assert client.delete(f"/v1/buffers/{buffer.json()['id']}").status_code == 204
    with running_service(home, workers="1") as address, httpx.Client(base_url=address, timeout=60) as client:
        jobs += fill(client)  # the log was shortened meanwhile
        deleted = [client.delete(f"/v1/jobs/{job}").status_code for job in jobs]
        assert set(deleted) == {204}
        if free_bytes(home) > SPARE_BYTES // 2:
            assert submit(client).is_success  # into the pages that the deletions have freed
    assert b"Traceback" not in (tmp_path / "log").read_bytes()


def test_deletions_on_a_disk_without_any_room_are_refused_without_an_error(
    home: Path, tmp_path: Path
) -> None:
    """Another program has filled the disk; a start names the cause."""
    with running_service(home, workers="1") as address, httpx.Client(base_url=address, timeout=60) as client:
        jobs = [json.loads(submit(client).text)["id"] for _ in range(3)]
        with (home / "other").open("wb") as other:
            os.posix_fallocate(other.fileno(), 0, free_bytes(home))
        assert submit(client).status_code == 507
        hold_declared(client, jobs[0])
        assert {client.delete(f"/v1/jobs/{job}").status_code for job in jobs} <= {204, 507}
        (home / "other").unlink()
        assert {client.delete(f"/v1/jobs/{job}").status_code for job in jobs} <= {204, 404}
    with (home / "other").open("wb") as other:
        os.posix_fallocate(other.fileno(), 0, free_bytes(home))
    started = administer(home, "serve")
    assert started.returncode in (1, 3)
    assert "Traceback" not in started.stderr, started.stderr
    assert "full" in started.stderr
