"""One service at a time uses a home with an embedded database."""

import errno
import fcntl
import os
from pathlib import Path
from threading import Timer

import pytest

from app.jobs.stores import HomeInUse, HomeUnusable, lock_home
from app.settings import Settings


def test_a_start_waits_for_processes_of_a_killed_service(tmp_path: Path) -> None:
    """They hold the home's lock until they have noticed that their service is gone."""
    settings = Settings(home=tmp_path)
    held = lock_home(settings)
    with pytest.raises(HomeInUse, match="another service uses"):
        lock_home(settings)
    with pytest.raises(HomeInUse, match="another service uses"):
        lock_home(settings, patience=0.1)
    ending = Timer(0.2, held.close)
    ending.start()
    again = lock_home(settings, patience=60)
    ending.join()
    with pytest.raises(HomeInUse):
        lock_home(settings)
    again.close()


def test_two_homes_do_not_share_an_embedded_database(tmp_path: Path) -> None:
    """Each service would end the leases of the other, and run its jobs again."""
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two):
        home.mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    other = Settings(home=two, database_url=f"sqlite:///{tmp_path}/link/one/rowveil.db")
    with lock_home(Settings(home=one)):
        with pytest.raises(
            HomeInUse, match=r"rowveil\.db; give each its own ROWVEIL_HOME and database"
        ) as refused:
            lock_home(other)
        assert refused.value.locked == tmp_path / "link" / "one" / "rowveil.db"  # commands name it
        with lock_home(Settings(home=two)):  # the refused one has released its home
            pass
    with lock_home(other):
        pass


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network shares have none."""

    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    opened = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(
        HomeUnusable, match=r"lock cannot be locked \(No locks available\), .* put ROWVEIL_HOME"
    ):
        lock_home(Settings(home=tmp_path))
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
