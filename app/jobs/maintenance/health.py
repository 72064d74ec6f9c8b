"""Health checks of the database, the storage and the workers, as `/readyz` reports them."""

import asyncio
import logging
import tempfile

from app.engine.engine import Engine
from app.jobs.stores import Stores
from app.store.sql import jobs

_log = logging.getLogger("rowveil.jobs")

_CHECK_SECONDS = 5.0
_PROBE_BYTES = 2**16


class HealthCheck:
    """Checks each dependency by using it."""

    def __init__(self, stores: Stores, engine: Engine) -> None:
        self._stores = stores
        self._engine = engine

    async def run(self) -> dict[str, str]:
        """Map each dependency to ``ok``, or to the problem that it has."""
        checks = {"database": self._read_database, "storage": self._write_storage}
        results = {}
        for name, check in checks.items():
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    # asyncio's own threads: those of the service may all be busy.
                    await asyncio.to_thread(check)
                results[name] = "ok"
            except Exception as error:
                _log.error("%s is not available: %s", name, type(error).__qualname__)
                results[name] = "not available"
        results["workers"] = "ok" if self._engine.ready() else "starting"
        return results

    def _read_database(self) -> None:
        with self._stores.database.read() as session:
            jobs.newest(session, None, None, 1, None)

    def _write_storage(self) -> None:
        self._stores.sweeper.check_folder()
        folder = self._stores.blobs.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A nameless file: it disappears when it is closed, however that happens.
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
