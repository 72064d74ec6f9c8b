"""The lock of write transactions, among threads and among processes."""

import os
import threading
from pathlib import Path

import pytest

from app.store.sql.connection.write_lock import WriteLock


@pytest.mark.parametrize("with_file", [False, True])
def test_one_thread_has_it_at_a_time(tmp_path: Path, with_file: bool) -> None:
    lock = WriteLock(tmp_path / "lock" if with_file else None)
    with lock:
        assert not lock.acquire(blocking=False)
        waiting = threading.Thread(target=lock.acquire)
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
    waiting.join()
    lock.release()  # in another thread than the one that took it
    assert lock.acquire(blocking=False)
    lock.release()
    lock.close()


def test_one_process_has_it_at_a_time_and_its_end_releases_it(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            WriteLock(file).acquire()
            os.write(writable, b"!")
            threading.Event().wait()
        finally:
            os._exit(1)
    os.read(readable, 1)
    lock = WriteLock(file)
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(blocking=False)  # the first attempt has left it to other threads
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    with lock:
        assert file.stat().st_mode & 0o777 == 0o600
    lock.close()
    for end in (readable, writable):
        os.close(end)


def test_a_lock_that_cannot_be_opened_leaves_no_thread_waiting(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path / "missing" / "lock")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            lock.acquire(blocking=False)
