"""One service at a time uses a home with an embedded database."""

import os
from pathlib import Path
from threading import Timer

import pytest

from app.jobs.stores import HomeInUse, lock_home


def test_a_start_waits_for_processes_of_a_killed_service(tmp_path: Path) -> None:
    """They hold the home's lock until they have noticed that their service is gone."""
    held = lock_home(tmp_path)
    with pytest.raises(HomeInUse, match="another service uses"):
        lock_home(tmp_path)
    with pytest.raises(HomeInUse, match="another service uses"):
        lock_home(tmp_path, patience=0.1)
    ending = Timer(0.2, os.close, [held])
    ending.start()
    again = lock_home(tmp_path, patience=60)
    ending.join()
    with pytest.raises(HomeInUse):
        lock_home(tmp_path)
    os.close(again)
