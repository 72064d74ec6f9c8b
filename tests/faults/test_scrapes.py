"""Scrapes of the metrics while the database is gone or does not respond."""

import base64
import secrets
from pathlib import Path

import httpx
import pytest

from tests.faults.running import PATIENCE
from tests.own_key import created_key
from tests.postgres import running_postgres
from tests.preloaded.processes import running_service

pytestmark = pytest.mark.faults

SCRAPER_PATIENCE = 10.0
"""Seconds for which Prometheus waits by default."""


def test_a_scraper_with_a_key_of_its_own_sees_that_the_database_is_gone(tmp_path: Path) -> None:
    """The alert `RowveilDatabaseAway` needs the series, also while the server stands still.

    A call with a key of the database waits longer, but not until the server goes on.
    """
    *keys, unknown = (base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(3))
    file = tmp_path / "metrics.key"
    file.write_text("\n".join(keys) + "\n")
    file.chmod(0o600)
    with running_postgres() as server:
        database = server.new_database()
        settings = {"database_url": database, "auth": "on", "metrics_key_file": str(file)}
        other = created_key(tmp_path / "home", "other", "metrics:read", database_url=database)
        with (
            running_service(tmp_path / "home", **settings) as address,
            httpx.Client(base_url=address, timeout=SCRAPER_PATIENCE) as client,
        ):

            def is_up(key: str) -> bool:
                answer = client.get("/metrics", headers={"authorization": f"Bearer {key}"})
                lines = answer.raise_for_status().text.splitlines()
                (line,) = (line for line in lines if line.startswith("rowveil_database_up "))
                assert any(line.startswith("rowveil_disk_free_bytes{") for line in lines)
                return float(line.split()[1]) == 1

            assert is_up(keys[0])
            assert is_up(keys[1])
            for path, key, status in (("/v1/jobs", keys[0], 403), ("/metrics", unknown, 401)):
                answer = client.get(path, headers={"authorization": f"Bearer {key}"})
                assert answer.status_code == status
            server.freeze()
            try:
                assert not is_up(keys[0])
                of_database = {"authorization": f"Bearer {other}"}
                assert client.get("/metrics", headers=of_database, timeout=PATIENCE).status_code == 503
            finally:
                server.thaw()
            server.kill()
            assert not is_up(keys[0])
            server.start()
            assert is_up(keys[0])
