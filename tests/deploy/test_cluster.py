"""Secrets of `deploy.setup`: scheduler, workers and service start over TLS, and the database too."""

import contextlib
import datetime
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from app.store.blobs.bucket import Bucket
from deploy import certificates
from deploy.private_copy import copy
from deploy.setup import ROLES, ensure
from tests.own_key import created_key
from tests.postgres import Postgres
from tests.preloaded.processes import end, running_service, start_worker

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
_LOOK_SECONDS = 0.05
_SCOPES = "run,read,metrics:read"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    ensure(folder)
    return folder


def test_a_second_setup_changes_nothing(made: Path) -> None:
    """It may run before every start; and no other user can read any of it."""
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert ensure(made) == []
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before
    assert all(path.stat().st_mode & 0o077 == 0 for path in before)


def test_a_certificate_that_ends_within_a_month_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of another authority is renewed too; keys and passwords stay."""
    monkeypatch.setattr(certificates, "CERTIFICATE_DAYS", 29)
    ensure(tmp_path)
    monkeypatch.undo()
    assert ensure(tmp_path) == [f"{role}/tls.pem" for role in ROLES]
    until = x509.load_pem_x509_certificate((tmp_path / "worker" / "tls.pem").read_bytes()).not_valid_after_utc
    assert until - datetime.datetime.now(datetime.UTC) > datetime.timedelta(days=300)
    (tmp_path / "authority" / "ca.pem").unlink()
    assert ensure(tmp_path) == [f"{role}/tls.pem" for role in ROLES]


@pytest.mark.parametrize("left", ["another", "none", "cut off"])
def test_a_certificate_without_its_key_is_renewed(tmp_path: Path, left: str) -> None:
    """An interrupted renewal leaves such files; they would keep the cluster down permanently."""
    ensure(tmp_path)
    key = tmp_path / "worker" / "tls.key"
    if left == "another":
        key.write_bytes((tmp_path / "service" / "tls.key").read_bytes())
    elif left == "none":
        key.unlink()
    else:
        key.write_bytes(b"")
    assert ensure(tmp_path) == ["worker/tls.pem"]
    ssl.create_default_context().load_cert_chain(tmp_path / "worker" / "tls.pem", key)
    assert ensure(tmp_path) == []


def test_copied_secrets_are_their_owners_alone(tmp_path: Path) -> None:
    """Kubernetes mounts links into a hidden folder, readable by a group."""
    given, own = tmp_path / "given", tmp_path / "own"
    (given / "..data").mkdir(parents=True)
    (given / "..data" / "master.key").write_text("key")
    (given / "master.key").symlink_to("..data/master.key")
    assert copy(given, own) == ["master.key"]
    assert copy(given, own) == ["master.key"]
    assert (own / "master.key").read_text() == "key"
    assert (own / "master.key").stat().st_mode & 0o777 == 0o600


@contextlib.contextmanager
def started(arguments: list[str], environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, *arguments], env=os.environ | environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def scheduler(secrets: Path, folder: Path) -> Iterator[str]:
    """Start the scheduler with the command of compose.yaml on free ports; yield its address."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["scheduler"]
    freed = {"8786": "0", "127.0.0.1:8787": "127.0.0.1:0", "/run/secrets": str(secrets)}
    words = [*service["entrypoint"][1:], *service["command"]]
    for given, here in freed.items():
        words = [word.replace(given, here) for word in words]
    address_file = folder / "scheduler.json"
    with started([*words, "--host=127.0.0.1", f"--scheduler-file={address_file}"], {}):
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError, ValueError):
                document = json.loads(address_file.read_text())
                break
            assert time.monotonic() < deadline
            time.sleep(_LOOK_SECONDS)
        health = f"http://127.0.0.1:{document['services']['dashboard']}/health"
        assert httpx.get(health, timeout=PATIENCE).status_code == 200
        yield document["address"]


def refused_without_certificate(address: str, ca_file: Path) -> bool:
    place = urlsplit(address)
    context = ssl.create_default_context(cafile=str(ca_file))
    context.check_hostname = False
    with socket.create_connection((place.hostname or "", place.port or 0), PATIENCE) as plain:
        try:
            with context.wrap_socket(plain) as sealed:
                return sealed.recv(1) == b""  # in TLS 1.3 the rejection arrives with the first response
        except (ssl.SSLError, ConnectionError):
            return True


@pytest.mark.faults
@pytest.mark.parametrize("storage", ["folder", "bucket"])
def test_the_whole_comes_up_over_tls_in_production(
    storage: str, made: Path, tmp_path: Path, postgres: Postgres, new_bucket: Callable[[], Bucket]
) -> None:
    """A job runs with PostgreSQL and the password file; clients without a certificate are rejected.

    With a bucket the machines share no folder, as in `compose.s3.yaml`.
    """
    bucket = new_bucket()
    stored = {} if storage == "folder" else {"storage": str(bucket), "small_table_bytes": "0"}
    password = (made / "database" / "password").read_text()
    database = postgres.new_database_with_password("rowveil", password)
    with scheduler(made / "scheduler", tmp_path) as address, contextlib.ExitStack() as workers:
        assert refused_without_certificate(address, made / "authority" / "ca.pem")

        def cluster(role: str, machine: str) -> dict[str, str]:
            return {
                **stored,
                "mode": "production",
                "engine": "dask",
                "scheduler_address": address,
                "tls_ca_file": str(made / role / "ca.pem"),
                "tls_cert_file": str(made / role / "tls.pem"),
                "tls_key_file": str(made / role / "tls.key"),
                "shared_folder": str(tmp_path / (machine if stored else "shared")),
                "workers": "1",
            }

        for machine in ("first", "second"):
            settings = cluster("worker", machine)
            environment = {f"ROWVEIL_{name.upper()}": value for name, value in settings.items()}
            workers.callback(end, start_worker(os.environ | environment))
        service = cluster("service", "service") | {
            "auth": "on",
            "database_url": f"{database}&passfile={made / 'service' / 'pgpass'}",
            "key_file": str(made / "service" / "master.key"),
            "signing_key_file": str(made / "service" / "signing.key"),
            "worker_threads": "1",
            "worker_memory_bytes": str(2**30),
            "warm_workers": "false",
        }
        home = tmp_path / "home"
        with running_service(home, **service) as url:
            key = created_key(home, "ada", _SCOPES, **service)
            rows = [{"income": number, "city": number % 2} for number in range(100)]
            call = {
                "source": {"rows": rows},
                "parameters": {"swap_fields": ["income"], "control_field": "city"},
            }
            answer = httpx.post(
                f"{url}/v1/services/CDSWAP",
                json=call,
                headers={"authorization": f"Bearer {key}", "prefer": "wait=60"},
                timeout=PATIENCE,
            )
            assert answer.status_code == 200, answer.text
            assert answer.json()["state"] == "succeeded"
            assert bool(list(bucket.objects("blobs"))) == (storage == "bucket")
            headers = {"authorization": f"Bearer {key}"}
            shown = httpx.get(f"{url}/metrics", headers=headers, timeout=PATIENCE).raise_for_status().text
    expected = {
        "dask": made / "service" / "tls.pem",
        "dask_authority": made / "authority" / "ca.pem",
        "dask_scheduler": made / "scheduler" / "tls.pem",
    }
    assert shown_expiries(shown) == {name: expiry(path) for name, path in expected.items()}


def shown_expiries(metrics: str) -> dict[str, float]:
    """Map each certificate to its expiry according to the metrics."""
    return {
        sample.labels["certificate"]: sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "rowveil_certificate_expiry_timestamp_seconds"
    }


def expiry(path: Path) -> float:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
