"""Service with little memory and little storage, for requests that would take more."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.service import service_process

MIB = 2**20


@dataclass(frozen=True)
class Target:
    """Service under attack."""

    address: str
    pid: int
    home: Path
    temporary: Path

    def left_behind(self) -> list[Path]:
        """Return every file that an upload may have left behind."""
        folders = (self.home / "blobs", self.temporary)
        return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    home, temporary = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("temporary")
    given = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(temporary)
    limits = {
        "max_buffer_bytes": 128 * MIB,
        "max_table_bytes": 128 * MIB,
        "worker_memory_bytes": 768 * MIB,
        "body_memory_bytes": 128 * MIB,
    }
    try:
        with service_process(
            home, workers="1", **{name: str(size) for name, size in limits.items()}
        ) as found:
            yield Target(*found, home, temporary)
    finally:
        if given is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = given
