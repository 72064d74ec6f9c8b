"""A swap on a Dask cluster comes out as it does at home, in memory and out of core."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from app.engine.dask_engine import DaskEngine
from app.engine.engine import Failure, Outcome
from app.engine.worker_process import WorkerSetup
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.worker.run_swap import run_swap
from app.worker.tasks import SwapTask
from providers.tables.digest import table_digest
from tests.faults.clusters import LocalCluster
from tests.faults.running import PATIENCE, Loop
from tests.naive.agreement import swap
from tests.swap_tasks import swap_task

pytestmark = pytest.mark.faults

SETUP = WorkerSetup(threads=1, memory_bytes=512 * 2**20, preload=("app.worker.run_swap",))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_swap_on_a_cluster_has_the_same_digest(workers: int, tmp_path: Path) -> None:
    """Two tasks run at once on all workers, one in memory and one out of core."""
    number = np.arange(20_000)
    table = pa.table({"income": number * 7919 % 20_000, "city": number % 10, "name": number.astype(str)})
    parameters = {"swap_fields": ["income", "city"], "locked": True}
    store = BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))
    tasks = []
    for number_of, memory in enumerate((10**9, 10**6)):
        folder = tmp_path / str(number_of)
        folder.mkdir()
        tasks.append(swap_task(store, folder, "DSWAP", table, parameters, memory))
    loop = Loop()
    cluster = loop.do(LocalCluster.start(1, workers=workers))
    engine = DaskEngine(cluster.cluster, SETUP, PATIENCE)

    async def run(task: SwapTask) -> Outcome:
        return await engine.run(task.source.id, run_swap, task)

    loop.do(engine.start())
    running = [loop.start(run(task)) for task in tasks]
    outcomes = [each.result(PATIENCE) for each in running]
    loop.do(engine.close())
    loop.do(cluster.close())
    loop.close()
    expected = table_digest(swap("DSWAP", table, parameters).table)
    for outcome in outcomes:
        assert not isinstance(outcome, Failure), outcome
        assert outcome["destination"]["digest"] == expected
