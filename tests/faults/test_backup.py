"""A backup of a running service, made as docs/operations.md describes, is enough to rerun its jobs."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.blocks import PAGES
from tests.preloaded.processes import running_service, service_process

pytestmark = pytest.mark.faults

MARKED = ("deployment", "identity", "rows-bound", "first-issuer")
"""Files of the shared folder that a backup holds besides ``blobs``."""

LARGE = "\n".join(["town,income", *(f"t{row % 9},{row}" for row in range(40_000)), ""])
"""A table that is sealed in a file."""


def post(client: httpx.Client, path: str, **given: Any) -> Any:
    return client.post(path, timeout=120, **given).raise_for_status().json()


def run(client: httpx.Client, source: Any) -> str:
    call = {"source": source, "parameters": {"swap_fields": ["income"], "control_field": "town"}}
    job = post(client, "/v1/services/CDSWAP", json=call, headers={"prefer": "wait=60"})
    assert job["state"] == "succeeded"
    return str(job["id"])


def wait_for(client: httpx.Client, job: str) -> str:
    """Return the state in which a job has ended."""
    while True:
        found = client.get(f"/v1/jobs/{job}", headers={"prefer": "wait=30"}, timeout=120).raise_for_status()
        if found.json()["state"] not in ("queued", "running"):
            return str(found.json()["state"])


def copy_blobs(home: Path, backup: Path) -> None:
    """Copy the sealed tables to those of an earlier copy."""
    ignored = shutil.ignore_patterns("trash", "*.draft")
    shutil.copytree(home / "blobs", backup / "blobs", ignore=ignored, dirs_exist_ok=True)


def copy_database(home: Path, backup: Path) -> None:
    """Copy the database while it is used."""
    backup.mkdir(exist_ok=True)
    with (
        closing(sqlite3.connect(home / "rowveil.db")) as used,
        closing(sqlite3.connect(backup / "rowveil.db")) as copy,
    ):
        used.backup(copy)


def copy_folder(home: Path, backup: Path) -> None:
    """Copy the folder and the keys, without the files that belong to a newer state than the database."""
    copy_blobs(home, backup)
    newer = shutil.ignore_patterns("audit.checkpoint", "audit.anchor")
    shutil.copytree(home / "keys", backup / "keys", ignore=newer)
    for name in MARKED:
        if (home / name).exists():
            shutil.copy(home / name, backup / name)


def test_a_restored_backup_reruns_the_jobs_and_its_audit_verifies(tmp_path: Path) -> None:
    """Jobs that ended after the backup are unknown; those before give the same digest, from row and file."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    with running_service(home) as address, httpx.Client(base_url=address) as client:
        rows = [{"town": f"t{row % 2}", "income": row} for row in range(20)]
        sources: list[dict[str, Any]] = [{"rows": rows}]
        sent = post(client, "/v1/buffers", content=LARGE, headers={"content-type": "text/csv"})
        sources.append({"buffer": sent["id"]})
        jobs = [run(client, source) for source in sources]
        copy_database(home, backup)
        copy_folder(home, backup)
        later = run(client, {"rows": rows})
    shutil.rmtree(home)
    with running_service(backup) as address, httpx.Client(base_url=address) as client:
        assert client.get(f"/v1/jobs/{later}").status_code == 404
        for job, source in zip(jobs, sources, strict=True):
            again = {"json": {"source": source}, "headers": {"prefer": "wait=60"}}
            assert post(client, f"/v1/jobs/{job}/rerun", **again)["reproduced"] is True
    command = [sys.executable, "-m", "app", "audit", "verify"]
    environment = os.environ | {"ROWVEIL_HOME": str(backup)}
    verified = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stderr


def test_a_job_that_ends_during_the_backup_runs_after_the_restore(tmp_path: Path) -> None:
    """Its source is deleted at its end: only a copy of the folder before that of the database has it."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    rows = [{"town": f"t{row % 9}", "income": row} for row in range(12_000)]
    call = {"source": {"rows": rows}, "parameters": {"swap_fields": ["income"], "control_field": "town"}}
    later = {"json": call, "headers": {"prefer": "respond-async"}}
    with running_service(home, workers="1") as address, httpx.Client(base_url=address) as client:
        jobs = [post(client, "/v1/services/CDSWAP", **later)["id"] for _ in range(3)]
        copy_blobs(home, backup)
        copy_database(home, backup)
        ended = [wait_for(client, job) for job in jobs]
        copy_folder(home, backup)
    shutil.rmtree(home)
    with running_service(backup) as address, httpx.Client(base_url=address) as client:
        assert [wait_for(client, job) for job in jobs] == ended == ["succeeded"] * len(jobs)


def administer(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the home."""
    command = [sys.executable, "-m", "app", *arguments]
    environment = os.environ | {"ROWVEIL_HOME": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def jobs_of(client: httpx.Client) -> int:
    return len(client.get("/v1/jobs").raise_for_status().json()["jobs"])


@contextmanager
def killed_service(home: Path) -> Iterator[httpx.Client]:
    """A client of a service that is killed at the end of the block."""
    with (
        service_process(home, workers="1") as (address, pid),
        httpx.Client(base_url=address) as client,
    ):
        yield client
        os.kill(pid, signal.SIGKILL)


def rows(count: int = 20) -> dict[str, Any]:
    return {"rows": [{"town": f"t{row % 2}", "income": row} for row in range(count)]}


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_backup_is_restored_over_the_home_of_a_killed_service(tmp_path: Path, checkpointed: bool) -> None:
    """The killed service leaves its log, which SQLite would apply to the restored file."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    with killed_service(home) as client:
        kept = [run(client, rows()) for _ in range(4)]
        copy_database(home, backup)
        if checkpointed:  # pages of the log are then newer than those of the file
            for _ in range(3):
                run(client, rows(400))
            with closing(sqlite3.connect(home / "rowveil.db")) as used:
                used.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        later = [run(client, rows()) for _ in range(3)]
        refused = administer(home, "restore-database", str(backup / "rowveil.db"))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "a service uses" in refused.stderr
    assert (home / "rowveil.db-wal").stat().st_size > 0
    content = (backup / "rowveil.db").read_bytes()
    restored = administer(home, "restore-database", str(backup / "rowveil.db"))
    assert restored.returncode == 0, restored.stderr
    assert f"{len(kept)} jobs" in restored.stdout
    assert str(home / "rowveil.db-wal") in restored.stdout
    lost = [line for line in restored.stdout.splitlines() if line.startswith("no longer in the ledger: ")]
    assert [any(job in line for line in lost) for job in (*kept, *later)] == [False] * 4 + [True] * 3
    assert "again with its seed" in restored.stdout
    assert not (home / "keys" / "audit.checkpoint").exists()
    assert not list(home.glob("rowveil.db-*"))
    assert not list(home.glob("rowveil.db.*"))
    assert (home / "rowveil.db").stat().st_mode & 0o777 == 0o600
    assert (backup / "rowveil.db").read_bytes() == content
    assert [path.name for path in backup.iterdir()] == ["rowveil.db"]
    with running_service(home, workers="1") as address, httpx.Client(base_url=address) as client:
        assert jobs_of(client) == len(kept)
        assert client.get(f"/v1/jobs/{later[0]}").status_code == 404
        run(client, rows())
    with closing(sqlite3.connect(home / "rowveil.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    verified = administer(home, "audit", "verify")
    assert verified.returncode == 0, verified.stderr


def test_a_database_that_was_copied_next_to_the_log_of_another_state_is_refused(tmp_path: Path) -> None:
    """The start and the commands name the cause and the remedy, which then works."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    with killed_service(home) as client:
        for _ in range(4):
            run(client, rows())
        copy_database(home, backup)
        for _ in range(12):
            run(client, rows(400))
        with closing(sqlite3.connect(home / "rowveil.db")) as used:
            used.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for _ in range(4):
            run(client, rows(400))
    shutil.copyfile(backup / "rowveil.db", home / "rowveil.db")
    for command in (["serve"], ["audit", "verify"]):
        refused = administer(home, *command)
        assert refused.returncode == 1
        assert "is damaged" in refused.stderr
        assert "`rowveil restore-database FILE`" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert administer(home, "restore-database", str(backup / "rowveil.db")).returncode == 0
    with running_service(home, workers="1") as address, httpx.Client(base_url=address) as client:
        assert jobs_of(client) == 4


def test_the_page_names_every_file_of_a_backup() -> None:
    page = (PAGES / "operations.md").read_text()
    saved = page.partition("## Back up\n")[2].partition("\n## Restore")[0]
    restored = page.partition("## Restore\n")[2].partition("\n## ")[0]
    for name in ("rowveil.db-wal", "rowveil.db-shm", "keys/audit.checkpoint", "keys/audit.anchor"):
        assert f"`{name}`" in restored
    for name in MARKED:
        assert f"`{name}`" in saved
        assert f"`{name}`" in restored
