"""Databases and folders that do not belong together, on the real service: no table is lost by starting it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copyfile
from time import monotonic, sleep

import httpx
import pytest

from app.__main__ import main
from demo.service import StartError
from tests.postgres import Postgres
from tests.preloaded.processes import running_service

pytestmark = pytest.mark.faults

SMALL = {"workers": "1", "worker_threads": "1", "warm_workers": "false", "shutdown_grace": "0"}
SMALL |= {"small_table_bytes": "0"}  # a table is a file, whose folder may be another one
CSV = b"income,city\n1,a\n2,b\n"


class Deployment:
    """A home whose service can be started with other settings."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.shared = home
        home.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def running(self, **settings: str) -> Iterator[httpx.Client]:
        """A client of the service while it runs."""
        with (
            self.log.open("ab") as log,
            running_service(self.home, log, **SMALL | settings) as address,
            httpx.Client(base_url=address, timeout=60) as client,
        ):
            yield client

    def refused(self, **settings: str) -> str:
        """Return the message of a service that does not start."""
        self.log.write_bytes(b"")
        with pytest.raises(StartError), self.running(**settings):
            pass
        return self.log.read_text()

    @property
    def log(self) -> Path:
        """The file of its standard error."""
        return self.home.with_name(f"{self.home.name}.log")

    @property
    def database(self) -> Path:
        """The file of the embedded database."""
        return self.home / "rowveil.db"

    def tables(self) -> set[str]:
        """The sealed tables in their place."""
        return {path.name for path in (self.shared / "blobs").glob("??/*")}

    def trashed(self) -> set[str]:
        """The sealed tables in the trash."""
        return {path.name for path in (self.shared / "blobs" / "trash").glob("*/*")}

    def audited(self) -> list[str]:
        """Actions of the audit that concern the storage, in order."""
        with closing(sqlite3.connect(self.database)) as database:
            lines = database.execute(
                "SELECT action FROM audit_lines WHERE action LIKE 'storage.%' ORDER BY at"
            )
            return [action for (action,) in lines]


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path / "home")


@pytest.fixture
def administer(monkeypatch: pytest.MonkeyPatch, deployment: Deployment) -> Callable[..., int]:
    """The command line on the deployment's home."""

    def run(*arguments: str, **settings: str) -> int:
        for name, value in ({"home": str(deployment.home)} | settings).items():
            monkeypatch.setenv(f"ROWVEIL_{name.upper()}", value)
        return main(list(arguments))

    return run


def upload(client: httpx.Client) -> str:
    """The id of a buffer that the service keeps."""
    answer = client.post("/v1/buffers", content=CSV, headers={"content-type": "text/csv"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def job_on(client: httpx.Client) -> str:
    """A job that has succeeded."""
    rows = [{"income": 1}, {"income": 2}]
    call = {"source": {"rows": rows}, "parameters": {"swap_fields": ["income"]}}
    answer = client.post("/v1/services/DSWAP", json=call, headers={"prefer": "wait=60"})
    assert answer.json()["state"] == "succeeded", answer.text
    return str(answer.json()["id"])


def rows_of(client: httpx.Client, job: str) -> int:
    """The status of the answer with the job's rows."""
    return client.get(f"/v1/jobs/{job}/rows").status_code


def figure(client: httpx.Client, name: str) -> float:
    """A metric without labels."""
    lines = [line.split() for line in client.get("/metrics").text.splitlines()]
    (value,) = (words[1] for words in lines if words[0] == name)
    return float(value)


def test_a_second_deployment_on_a_shared_folder_is_refused(tmp_path: Path, deployment: Deployment) -> None:
    second = Deployment(tmp_path / "second")
    deployment.shared = tmp_path / "shared"
    settings = {"shared_folder": str(deployment.shared)}
    with deployment.running(**settings) as client:
        job = job_on(client)
        message = second.refused(**settings)
        assert "belongs to another database" in message
        assert f"{second.database} names 0 of 1 sealed tables in it" in message
        assert "Traceback" not in message
        assert rows_of(client, job) == 200


@pytest.mark.parametrize("kind", ["mistyped", "postgresql"])
def test_a_fresh_database_on_a_used_folder_is_refused(
    deployment: Deployment, kind: str, request: pytest.FixtureRequest
) -> None:
    """A mistyped address, and PostgreSQL on the home of the embedded database."""
    with deployment.running() as client:
        job = job_on(client)
    if kind == "mistyped":
        address = f"sqlite:///{deployment.home / 'rowvail.db'}"
    else:
        server: Postgres = request.getfixturevalue("postgres")
        address = server.new_database()
    message = deployment.refused(database_url=address)
    assert "`rowveil adopt-storage`" in message
    assert "Set ROWVEIL_DATABASE_URL to the database of this folder" in message
    assert len(deployment.tables()) == 1
    with deployment.running() as client:
        assert rows_of(client, job) == 200


def test_few_tables_that_an_older_dump_does_not_name_come_back(
    deployment: Deployment, tmp_path: Path
) -> None:
    """They go to the trash, and the next start on the newer state takes them back."""
    older, newer = tmp_path / "older.db", tmp_path / "newer.db"
    with deployment.running() as client:
        first = job_on(client)
    copyfile(deployment.database, older)
    with deployment.running() as client:
        second = job_on(client)
    copyfile(deployment.database, newer)
    before = deployment.tables()
    assert len(before) == 2

    copyfile(older, deployment.database)
    with deployment.running() as client:
        assert (rows_of(client, first), rows_of(client, second)) == (200, 404)
        assert figure(client, "rowveil_trash") == 1
        assert figure(client, "rowveil_blobs") == 1
        assert figure(client, "rowveil_sweep_held") == 0
    assert deployment.trashed() | deployment.tables() == before
    assert deployment.audited() == ["storage.sweep"]

    copyfile(newer, deployment.database)
    with deployment.running() as client:
        assert (rows_of(client, first), rows_of(client, second)) == (200, 200)
        assert client.get("/readyz").json()["checks"]["storage"] == "ok"
    assert (deployment.tables(), deployment.trashed()) == (before, set())
    assert deployment.audited() == ["storage.take_back"]


def test_a_sweep_of_many_tables_stops_and_the_operator_decides(
    deployment: Deployment,
    administer: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After an older dump that does not name 101 of 101 tables, as after a start on the wrong state."""
    older, newer = tmp_path / "older.db", tmp_path / "newer.db"
    with deployment.running():
        pass
    copyfile(deployment.database, older)
    with deployment.running() as client:
        buffers = [upload(client) for _ in range(101)]
    copyfile(deployment.database, newer)
    before = deployment.tables()
    assert len(before) == 101

    copyfile(older, deployment.database)
    with deployment.running() as client:
        assert client.get("/readyz").status_code == 200
        assert figure(client, "rowveil_sweep_held") == 101
        assert administer("adopt-storage") == 1
        assert "a service uses" in capsys.readouterr().err
        job_on(client)
    assert "101 of 101 tables are named by no row" in deployment.log.read_text()
    assert deployment.tables() >= before
    assert deployment.audited() == ["storage.sweep_stopped"]

    assert administer("adopt-storage") == 0
    printed = capsys.readouterr().out
    assert "Tables in the folder: 102, of which rows name 1." in printed
    assert "Tables that no row names: 101, more than a sweep moves by itself." in printed
    assert deployment.tables() >= before
    assert administer("adopt-storage", "--trash-unnamed") == 0
    assert "moved to the trash: 101 (kept there for 7 days)" in capsys.readouterr().out
    assert deployment.trashed() == before
    (deployment.home / "keys" / "audit.checkpoint").unlink()  # of the newer state
    assert administer("audit", "verify") == 0
    capsys.readouterr()

    copyfile(newer, deployment.database)
    assert "belongs to another database" in deployment.refused()
    assert administer("adopt-storage") == 0
    assert "taken back from the trash, because rows name them: 101." in capsys.readouterr().out
    with deployment.running() as client:
        assert {client.get(f"/v1/buffers/{buffer}").status_code for buffer in buffers} == {200}


def test_a_folder_that_goes_to_another_database_is_not_swept_any_more(
    deployment: Deployment, administer: Callable[..., int], tmp_path: Path
) -> None:
    """A service that runs on is not ready, and takes nothing from the folder."""
    second = tmp_path / "second"
    shared = deployment.shared = tmp_path / "shared"
    with deployment.running(shared_folder=str(shared), purge_interval="0.02") as client:
        job = job_on(client)
        assert administer("keys", "own", home=str(second), shared_folder=str(shared)) == 0  # its database
        assert administer("adopt-storage", home=str(second), shared_folder=str(shared)) == 0
        orphan = shared / "blobs" / "aa" / ("aa" + "0" * 30)
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"a table of the second deployment")
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["checks"]["storage"]) == (503, "not available")
        deadline = monotonic() + 60
        while "given to another database" not in deployment.log.read_text():
            assert monotonic() < deadline, "no sweep was refused"
            sleep(0.02)
        assert orphan.exists()
        assert rows_of(client, job) == 200
    assert "belongs to another database" in deployment.refused(shared_folder=str(shared))


def test_a_folder_that_is_not_mounted_is_not_taken_for_an_empty_one(deployment: Deployment) -> None:
    with deployment.running() as client:
        job = job_on(client)
    elsewhere = deployment.home.with_name("elsewhere")
    message = deployment.refused(shared_folder=str(elsewhere))
    assert "it is not mounted, or it is another folder" in message
    assert not elsewhere.exists()
    with deployment.running() as client:
        assert rows_of(client, job) == 200


def test_keys_are_not_rotated_in_the_folder_of_another_database(
    deployment: Deployment,
    administer: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The tables of the right folder would stay under the old keys, which are forgotten next."""
    with deployment.running() as client:
        job_on(client)
    assert administer("rotate-keys", shared_folder=str(tmp_path / "empty")) == 1
    assert "not mounted" in capsys.readouterr().err
    assert administer("rotate-keys", shared_folder=str(deployment.home)) == 0
