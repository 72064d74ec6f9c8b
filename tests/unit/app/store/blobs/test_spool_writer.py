"""A unit's spool has a name that says its run, and is deleted when the run fails."""

from pathlib import Path

import pyarrow as pa
import pytest

from app.jobs.units.unit_runner import _delete_others
from app.store.blobs.scratch import SpoolReader, SpoolWriter


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
    with SpoolReader(shared) as reader:
        assert pa.concat_tables(reader.parts().read(0)).equals(rows)


def test_of_a_units_spools_one_is_kept_and_repeats_of_a_run_are_counted(tmp_path: Path) -> None:
    """Unit 1 has run 0, which the cluster started twice, and run 1. The spools of unit 11 stay."""
    names = ["1-0-aa", "1-0-bb", "1-1-cc", "11-0-dd"]
    for name in names:
        (tmp_path / name).write_bytes(b"sealed")
    assert _delete_others(tmp_path, "1", "1-0-bb") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-0-bb", "11-0-dd"]
    assert _delete_others(tmp_path / "gone", "1", "1-0-bb") == 0
