"""Fixtures that every tier of tests shares."""

import atexit
import gc
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numba
import pytest
from httpx._config import create_ssl_context
from hypothesis import settings

from app.settings import Settings
from providers.cores import available_cores
from tests.issuer import AUDIENCE, Issuer, running_issuer
from tests.long_tests import is_long
from tests.order import longest_first
from tests.own_key import own_key
from tests.postgres import Postgres, running_postgres
from tests.preloaded.processes import own_environment, running_service
from tests.references.storage import new_bucket, s3_address, storage
from tests.reports.schema import check_reports

__all__ = ["address", "client", "data_dir", "new_bucket", "s3_address", "storage"]

DATABASES = ("sqlite", "postgresql")

BUCKET = "bucket"
"""Kind of service with an embedded database whose tables are in a bucket, also small ones."""

SHARED = "postgresql-bucket"
"""Kind of service whose replicas share nothing but a PostgreSQL and a bucket, which has small tables, too."""

KINDS = {BUCKET: ("sqlite", True), SHARED: ("postgresql", True)}
"""Database of a kind, and whether its tables are in a bucket."""

SERVICE = {
    "auth": "on",
    "cors_origins": "https://desk.example",
    "max_body_bytes": str(4 * 2**20),
    "workers": "2",
    "release_policies": "warned=warn,reasoned=require_reason,refused=refuse",
    "warm_workers": "false",
    "caller_request_burst": "100000",  # all tests have one key
    "default_wait_seconds": "60",  # on a busy machine a stopped worker's replacement takes its time
}
"""Settings of the service that tests call."""

PROCESSES = {"service_on", "checkout", "postgres"}
"""Fixtures that start processes: each test that uses one of them is slow, as is each on PostgreSQL."""

COLLECTION = (20_000, 20, 20)
"""Thresholds of garbage collection in a test process."""

os.environ.setdefault("ROWVEIL_RELEASE_POLICY", "allow")  # tests release the same tables again and again

os.environ.setdefault("ROWVEIL_COMPILE_KERNELS", "false")  # a test that compiles says so itself

# scikit-learn sets these when a test first imports it, and a forked service has the variables of its server.
os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "True")
os.environ.setdefault("KMP_INIT_AT_FORK", "FALSE")

settings.register_profile("house", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=10)
settings.register_profile("night", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one test process for each core, and with ``--numprocesses=auto`` two more.

    Tests that wait for services, leases and time limits leave cores idle. xdist by itself counts
    physical cores: one, where two processors are the threads of a core.
    """
    return available_cores() + 2 * int(config.option.numprocesses == "auto")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start processes as slow and listed ones as long, and run the longest modules first.

    pytest-xdist hands out modules in the order of collection, so that no process runs a long one at the end
    while the others have nothing left to do.
    """
    for item in items:
        if PROCESSES & set(getattr(item, "fixturenames", ())) or "postgresql" in item.name:
            item.add_marker(pytest.mark.slow)
        if is_long(item.nodeid):
            item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: longest_first(item.nodeid.partition("::")[0]))


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: imports make hardly any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what collection has made out of later garbage collections: a million objects that all stay.

    Later ones are rarer than Python's thresholds have them, as in the service (`app.server`). These objects
    are collected at the exit of the interpreter alone, where libraries check that. pytest collects garbage
    five times at its end, which took 3.5 s of each test process.
    """
    own_environment()  # before a test changes a variable
    gc.enable()
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(*COLLECTION)


@pytest.fixture(scope="session", autouse=True)
def one_ssl_context() -> Iterator[None]:
    """Let HTTP clients share their SSL context: each one read all certificates of certifi, in 30 to 50 ms.

    Clients with certificates of their own, or of the environment, make their own context.
    """
    shared = cache(create_ssl_context)

    def context_of(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        usual = verify is True and cert is None and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys()
        return shared() if usual else create_ssl_context(verify=verify, cert=cert, trust_env=trust_env)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", context_of)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Limit kernels to one thread where there is one test process for each core.

    With threads for all cores in each they wait for one another, and kernels of a millisecond take several.
    Tests of the threads themselves set their own number.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        numba.set_num_threads(1)


@pytest.fixture(scope="session")
def new_tables() -> Iterator[None]:
    """Migrate the first empty database of each kind, and make the tables of all others as it did."""
    from tests.new_tables import made_once  # SQLAlchemy takes a second to import, and most tests need none

    with made_once():
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real tables; a test that needs it is skipped where it is missing, except in CI."""
    folder = Path(os.environ.get("ROWVEIL_DATA", "../shared/data"))
    if not folder.is_dir():
        missing = f"no real tables in {folder}: set ROWVEIL_DATA"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return folder


@pytest.fixture(scope="session")
def issuer() -> Iterator[Issuer]:
    """The OIDC issuer whose tokens that service takes."""
    with running_issuer() as running:
        yield running


def tokens_of(issuer: Issuer) -> dict[str, str]:
    """Settings of a service that takes the issuer's tokens."""
    return {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE}


@dataclass(frozen=True, slots=True)
class Service:
    """Running service, and a client of it."""

    home: Path
    database: dict[str, str]
    """Settings of the database and the bucket; empty for the SQLite file and the tables below its home."""
    address: str
    key: str
    """A key with every scope."""
    client: httpx.Client


@pytest.fixture(scope="session")
def service_on(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, issuer: Issuer
) -> Iterator[Callable[[str], Service]]:
    """One real service on each kind of database, its own process, a real port, real workers.

    Each is started once, when it is first asked for, and stays: a fixture with the kind as its parameter
    would start it again in every module.
    """
    started: dict[str, Service] = {}
    with ExitStack() as until_the_end:

        def of(kind: str) -> Service:
            if kind not in started:
                home = tmp_path_factory.mktemp("service")
                database = settings_of_kind(kind, request)
                opened: ExitStack = until_the_end
                if "database_url" in database:
                    opened = request.getfixturevalue("before_postgres_ends")
                running = running_service(home, **SERVICE, **tokens_of(issuer), **database)
                address = opened.enter_context(running)
                key = own_key(home, **database)
                client = opened.enter_context(calling(address, key))
                started[kind] = Service(home, database, address, key, client)
            return started[kind]

        yield of


@pytest.fixture(scope="session")
def served(service_on: Callable[[str], Service]) -> Service:
    """The service of all tests that need no other."""
    return service_on("sqlite")


@pytest.fixture(scope="module")
def service_home(served: Service) -> Path:
    """Home folder of the service.

    It and the fixtures below last a module: some folders have a ``served`` of their own, and with a longer
    life the tests of one service would get what another one gave.
    """
    return served.home


@pytest.fixture(scope="module")
def address(served: Service) -> str:
    """Address of the service."""
    return served.address


@pytest.fixture(scope="module")
def key(served: Service) -> str:
    """A key with every scope."""
    return served.key


@pytest.fixture(scope="module")
def client(served: Service) -> httpx.Client:
    """A client of the service that says who it is."""
    return served.client


def calling(address: str, key: str) -> httpx.Client:
    """A client of a service that says who it is; every report that it gets is as the contract declares."""
    return httpx.Client(
        base_url=address,
        timeout=60,
        headers={"authorization": f"Bearer {key}"},
        event_hooks={"response": [check_reports]},
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL for all tests that need one; each takes a database of its own."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def before_postgres_ends(postgres: Postgres) -> Iterator[ExitStack]:
    """Stack that is closed while that PostgreSQL still runs, such as services that use it."""
    with ExitStack() as opened:
        yield opened


def settings_on(kind: str, request: pytest.FixtureRequest, home: Path) -> Settings:
    """Settings of a home and a new database of a kind."""
    return Settings.model_validate({"home": home, **settings_of_kind(kind, request)})


def settings_without_tables(kind: str, request: pytest.FixtureRequest, home: Path) -> Settings:
    """Settings of a home and a database of a kind that nothing has migrated."""
    if kind == "sqlite":
        return Settings(home=home)
    server: Postgres = request.getfixturevalue("postgres")
    return Settings(home=home, database_url=server.empty_database())


def settings_of_kind(kind: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings of a new database, and of an empty prefix of a bucket if the kind has one."""
    database, bucket = KINDS.get(kind, (kind, False))
    address = new_address(database, request)
    settings = {} if address is None else {"database_url": address}
    if bucket:
        new_bucket = request.getfixturevalue("new_bucket")
        settings |= {"storage": str(new_bucket()), "small_table_bytes": "0"}
    return settings


def new_address(kind: str, request: pytest.FixtureRequest) -> str | None:
    """The address of a new database, dropped after the test or fixture; None for one below the home."""
    request.getfixturevalue("new_tables")
    if kind == "sqlite":
        return None
    server: Postgres = request.getfixturevalue("postgres")
    address = server.new_database()
    request.addfinalizer(lambda: server.drop(address))
    return address
