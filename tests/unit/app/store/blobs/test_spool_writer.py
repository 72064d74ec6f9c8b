"""A unit's spool has a name that says its run, and is deleted when the run fails."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from app.jobs.units.spools import BucketSpools, FolderSpools, Spools
from app.store.blobs.bucket import Bucket
from app.store.blobs.scratch import SpoolReader, SpoolWriter
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.worker.staging import spool_key
from tests.swap_tasks import swap_task


def test_a_spool_of_a_run_that_fails_is_deleted(tmp_path: Path) -> None:
    def write() -> None:
        with SpoolWriter(tmp_path, "1-0-") as writer:
            assert [path.name for path in tmp_path.iterdir()] == [writer.name]
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write()
    assert not list(tmp_path.iterdir())


def test_a_spool_of_a_run_that_succeeds_stays(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3]})
    with SpoolWriter(tmp_path, "1-0-") as writer:
        spool = writer.spool(1, 1000)
        spool.add(0, rows)
        shared = writer.shared(spool)
    with SpoolReader(tmp_path, shared) as reader:
        assert pa.concat_tables(reader.parts().read(0)).equals(rows)


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_of_a_units_spools_one_is_kept_and_repeats_of_a_run_are_counted(
    kind: str, tmp_path: Path, new_bucket: Callable[[], Bucket]
) -> None:
    """Unit 1 has run 0, which the cluster started twice, and run 1. The spools of unit 11 stay."""
    store = BlobStore(tmp_path / "blobs", Sealer([bytes(32)]))
    job = swap_task(store, tmp_path, "DSWAP", pa.table({"x": [1, 2]}), {"swap_fields": ["x"]}, 10**6)
    bucket = new_bucket() if kind == "s3" else None
    spools: Spools = FolderSpools() if bucket is None else BucketSpools(bucket)
    spools.open(job)

    def stored() -> list[str]:
        if bucket is None:
            return sorted(path.name for path in job.spool_folder.glob("*"))
        return sorted(found.key.rpartition("/")[2] for found in bucket.objects("scratch"))

    for name in ["1-0-aa", "1-0-bb", "1-1-cc", "11-0-dd"]:
        if bucket is None:
            (job.spool_folder / name).write_bytes(b"sealed")
        else:
            bucket.put(spool_key(job, name), b"sealed")
    assert spools.delete_others(job, "1", "1-0-bb") == 1
    assert stored() == ["1-0-bb", "11-0-dd"]
    spools.close(job)
    assert stored() == []
    assert spools.delete_others(job, "1", "1-0-bb") == 0
