"""Sweeps: the files that they take, those that they leave, and the days of the trash."""

import logging
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from errno import EROFS
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from app.jobs.maintenance.sweep import takes_too_much
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.blobs.arrow_stream import read_table, write_table
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import SealBroken, Sealer
from app.store.sql.models import AuditLine
from app.store.sql.replicas import moment
from tests.conftest import DATABASES, settings_on
from tests.unit.app.store.stored_rows import NOW, add, buffer

Open = Callable[..., Stores]


@pytest.fixture(params=DATABASES)
def open_stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the stores of one home; those left open are closed."""
    settings = settings_on(request.param, request, tmp_path)
    yield from opening(settings)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Open]:
    yield from opening(Settings(home=tmp_path))


def opening(settings: Settings) -> Iterator[Open]:
    opened: list[Stores] = []

    def begin(**values: Any) -> Stores:
        opened.append(Stores.open(settings.model_copy(update=values)))
        return opened[-1]

    yield begin
    for stores in opened:
        stores.database.close()


def put(stores: Stores, *names: str) -> set[str]:
    """Files of a dead replica in the place of sealed tables."""
    for name in names:
        path = stores.blobs.folder / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"sealed")
    return set(names)


def names(count: int, first: int = 0) -> list[str]:
    return [f"{number:020x}{'0' * 12}" for number in range(first, first + count)]


def trashed(stores: Stores) -> set[str]:
    return {path.name for path in stores.blobs.trash.files()}


def name_all(stores: Stores, blobs: list[str]) -> None:
    add(stores.database, *(buffer(blob=blob) for blob in blobs))


def audited(stores: Stores) -> list[tuple[str, str | None]]:
    with stores.database.read() as session:
        lines = session.execute(sa.select(AuditLine.action, AuditLine.reason).order_by(AuditLine.number))
        return [(action, reason) for action, reason in lines]


@pytest.mark.parametrize(
    ("taken", "total", "too_much"),
    [
        (100, 100, False),
        (101, 101, True),
        (101, 1010, False),
        (101, 1009, True),
        (1000, 10_000, False),
        (0, 0, False),
    ],
)
def test_when_a_sweep_is_too_much(taken: int, total: int, too_much: bool) -> None:
    assert takes_too_much(taken, total) is too_much


@pytest.mark.parametrize(("named", "unnamed"), [(0, 100), (909, 101)])
def test_what_no_row_names_goes_to_the_trash(open_stores: Open, named: int, unnamed: int) -> None:
    stores = open_stores()
    kept, orphans = names(named), names(unnamed, first=named)
    put(stores, *kept, *orphans)
    name_all(stores, kept)
    stores.sweep()
    assert (stores.blobs.names(), trashed(stores)) == (set(kept), set(orphans))
    with stores.database.read() as session:
        today = moment(session).date().isoformat()
    assert {path.parent.name for path in stores.blobs.trash.files()} == {today}
    assert audited(stores) == [
        ("storage.sweep", f"{unnamed} of {named + unnamed} tables were named by no row")
    ]
    assert stores.blobs.measure()[0] == named
    assert stores.blobs.measure_trash() == (unnamed, unnamed * len(b"sealed"))


def test_a_sweep_that_would_take_too_much_takes_nothing_and_says_so(
    open_stores: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the audit, each time in the log; drafts and progress go as ever."""
    stores = open_stores()
    kept, orphans = names(908), names(101, first=908)
    put(stores, *kept, *orphans)
    (draft,) = put(stores, f"{orphans[0]}.0123.draft")
    stores.progress_folder.mkdir(exist_ok=True)
    (stores.progress_folder / "gone.1").write_text("")
    name_all(stores, kept)
    for _ in range(2):
        stores.sweep()
    assert stores.sweeper.held == 101
    assert stores.blobs.names() == {*kept, *orphans}
    assert not trashed(stores)
    assert draft not in {path.name for path in stores.blobs.files()}
    assert not list(stores.progress_folder.iterdir())
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["101 of 1009 tables are named by no row" in record.getMessage() for record in said] == [True] * 2
    assert audited(stores) == [("storage.sweep_stopped", "101 of 1009 tables are named by no row")]
    name_all(stores, orphans)
    stores.sweep()
    assert stores.sweeper.held == 0


def test_parts_stay_as_long_as_their_table(open_stores: Open) -> None:
    """Also in the trash, from which it comes back with them. Parts of an unwritten table go at once."""
    stores = open_stores()
    kept, orphan, unwritten = names(3)
    mine = stores.new_blob().id
    put(stores, kept, orphan)
    parts = put(stores, *(f"{blob}.{'a' * 32}.part" for blob in (kept, orphan, mine)))
    put(stores, f"{unwritten}.{'a' * 32}.part", f"{kept}.{'b' * 32}.part.0123.draft")
    name_all(stores, [kept])
    for _ in range(2):
        stores.sweep()
        assert {path.name for path in stores.blobs.files()} == {kept, *parts}
        assert (stores.blobs.names(), trashed(stores)) == ({kept}, {orphan})
    name_all(stores, [orphan])
    stores.sweep()
    assert {path.name for path in stores.blobs.files()} == {kept, orphan, *parts}
    assert audited(stores)[0] == ("storage.sweep", "1 of 2 tables were named by no row")


def test_parts_go_after_their_table_has_left_the_trash(open_stores: Open) -> None:
    stores = open_stores(trash_days=0)
    (orphan,) = names(1)
    put(stores, orphan, f"{orphan}.{'a' * 32}.part")
    for _ in range(2):
        stores.sweep()
    assert not stores.blobs.files()


def test_what_a_row_names_comes_back_from_the_trash(open_stores: Open) -> None:
    stores = open_stores()
    orphans = names(3)
    put(stores, *orphans)
    stores.sweep()
    name_all(stores, orphans[:2])
    stores.sweep()
    assert (stores.blobs.names(), trashed(stores)) == (set(orphans[:2]), {orphans[2]})
    assert audited(stores)[-1] == ("storage.take_back", "2 tables in the trash are named by rows")


def test_the_trash_is_emptied_after_its_days_and_nothing_else(embedded: Open) -> None:
    """A folder of which a crash left a part goes too; what is no day stays."""
    stores = embedded(trash_days=2)
    with stores.database.read() as session:
        today = moment(session).date()
    folder = stores.blobs.trash.folder
    for days in range(5):
        day = folder / (today - timedelta(days=days)).isoformat()
        day.mkdir(parents=True)
        if days != 4:
            (day / names(1, first=days)[0]).write_bytes(b"sealed")
    for other in ("notes", "2026-13-40"):
        (folder / other).mkdir()
        (folder / other / "kept").write_text("by hand")
    stores.sweep()
    assert trashed(stores) == set(names(3))
    left = {path.name for path in folder.iterdir()} - {"notes", "2026-13-40"}
    assert left == {(today - timedelta(days=days)).isoformat() for days in range(3)}
    assert (folder / "notes" / "kept").exists()
    assert (folder / "2026-13-40" / "kept").exists()


def test_a_clock_that_jumps_ahead_neither_fills_nor_empties_the_trash(
    embedded: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table put away by the wrong day would stay until that day; afterwards sweeps go on."""
    stores = embedded(trash_days=2)
    put(stores, *names(2))
    stores.sweep()
    put(stores, *names(1, first=2))
    with monkeypatch.context() as wrong:
        wrong.setattr(
            "app.jobs.maintenance.sweep.moment", lambda session: moment(session) + timedelta(days=400)
        )
        assert stores.sweep()
        assert (stores.blobs.names(), trashed(stores)) == (set(names(1, first=2)), set(names(2)))
    stores.sweep()
    assert (stores.blobs.names(), trashed(stores)) == (set(), set(names(3)))


def test_without_days_a_sweep_deletes_at_once(embedded: Open) -> None:
    stores = embedded(trash_days=0)
    put(stores, *names(3))
    stores.sweep()
    assert not stores.blobs.files()
    assert not stores.blobs.trash.folder.exists()


def test_a_deletion_deletes_wherever_the_table_is(embedded: Open) -> None:
    stores = embedded()
    swept, other = names(2)
    put(stores, swept, other)
    stores.sweep()
    stores.delete_blobs([swept, "cc" + "0" * 30])
    assert trashed(stores) == {other}


def test_a_table_is_deleted_and_not_put_away_when_a_row_lets_it_go(embedded: Open) -> None:
    stores = embedded()
    (blob,) = put(stores, *names(1))
    stores.delete_blobs([blob])
    assert not stores.blobs.files()
    assert not trashed(stores)


def test_a_folder_that_cannot_be_changed_stops_no_start(
    embedded: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the trash nor a leftover that cannot be deleted."""
    stores = embedded()
    orphans = put(stores, *names(2))
    stores.progress_folder.mkdir(exist_ok=True)
    (stores.progress_folder / "gone.1").write_text("")

    def read_only(*_arguments: Any, **_more: Any) -> None:
        raise OSError(EROFS, os.strerror(EROFS))

    for name in ("rename", "unlink"):
        monkeypatch.setattr(Path, name, read_only)
    stores.sweep()
    monkeypatch.undo()
    assert stores.blobs.names() == orphans
    assert sum("Read-only file system" in record.getMessage() for record in caplog.records) == 3
    assert audited(stores) == []


def test_a_rotation_seals_the_trash_again(tmp_path: Path) -> None:
    """A table that is taken back opens under the new key; one of another key stops no rotation."""
    old, new, unknown = (Sealer([bytes([byte]) * 32]) for byte in (1, 2, 3))
    both = Sealer([bytes([2]) * 32, bytes([1]) * 32])
    table = pa.table({"a": [1, 2, 3]})
    former, foreign = BlobStore(tmp_path, old), BlobStore(tmp_path, unknown)
    blobs = [former.allocate(), foreign.allocate()]
    today = NOW.date()
    for access in blobs:
        write_table(access, table)
        assert former.trash.put(Path(access.path), today)
    assert BlobStore(tmp_path, both).reseal() == 1
    current = BlobStore(tmp_path, new)
    for path in current.trash.files():
        assert current.take_back(path)
    assert read_table(current.access_by_header(blobs[0].id)) == table
    with pytest.raises(SealBroken):
        current.access_by_header(blobs[1].id)
