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
            assert [path.name for path in tmp_path.iterdir()] == [f"{writer.name}.0"]
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write()
    assert not list(tmp_path.iterdir())


def test_a_spool_of_a_run_that_succeeds_stays(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3]})
    with SpoolWriter(tmp_path, "1-0-") as writer:
        spool = writer.spool(1, 1000)
        spool.add(0, rows)
        (shared,) = writer.shared(spool)
    with SpoolReader(tmp_path, [shared]) as reader:
        assert pa.concat_tables(reader.parts().read(0)).equals(rows)


def test_each_part_is_in_the_file_that_is_said_for_it(tmp_path: Path) -> None:
    """A reader of some files has their parts, and no rows of the others."""
    with SpoolWriter(tmp_path, "1-0-", 3, lambda part: part % 3) as writer:
        spool = writer.spool(7, 1000)
        for part in (0, 1, 2, 3, 6, 0):
            spool.add(part, pa.table({"x": [part]}))
        shared = writer.shared(spool)
        assert [spool.rows(part) for part in range(7)] == [2, 1, 1, 1, 0, 0, 1]
    assert [each.name for each in shared] == [f"{writer.name}.{number}" for number in range(3)]
    assert len({each.key for each in shared}) == 3
    with SpoolReader(tmp_path, shared[:2]) as reader:
        parts = reader.parts()
        assert parts.parts == 7
        found = {part: [x for table in parts.read(part) for x in table["x"].to_pylist()] for part in range(7)}
    assert found == {0: [0, 0], 1: [1], 2: [], 3: [3], 4: [], 5: [], 6: [6]}
    with pytest.raises(FileNotFoundError):
        SpoolReader(tmp_path / "elsewhere", shared)


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

    for name in ["1-0-aa.0", "1-0-aa.1", "1-0-bb.0", "1-0-bb.1", "1-1-cc.0", "11-0-dd.0"]:
        if bucket is None:
            (job.spool_folder / name).write_bytes(b"sealed")
        else:
            bucket.put(spool_key(job, name), b"sealed")
    assert spools.delete_others(job, "1", "1-0-bb") == 1
    assert stored() == ["1-0-bb.0", "1-0-bb.1", "11-0-dd.0"]
    spools.close(job)
    assert stored() == []
    assert spools.delete_others(job, "1", "1-0-bb") == 0
