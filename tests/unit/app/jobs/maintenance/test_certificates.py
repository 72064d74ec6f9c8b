"""Expiry of certificates: of the cluster as loaded, of the database as the files are now."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from app.jobs.maintenance.certificates import CertificateExpiry
from app.settings import Settings
from deploy import certificates
from deploy.certificates import ensure_authority, ensure_certificate

HOUR = timedelta(hours=1)


def in_days(moment: float, days: int) -> bool:
    return abs(datetime.fromtimestamp(moment, UTC) - datetime.now(UTC) - timedelta(days=days)) < HOUR


@pytest.fixture
def issued(tmp_path: Path) -> Path:
    """Folder with ca.pem, tls.pem and tls.key, as `deploy.setup` makes them."""
    folder = tmp_path / "service"
    ensure_certificate(folder, ["service"], ensure_authority(tmp_path / "authority"))
    return folder


def settings(home: Path, folder: Path, database_url: str = "") -> Settings:
    files = {f"tls_{kind}_file": folder / name for kind, name in (("ca", "ca.pem"), ("cert", "tls.pem"))}
    return Settings.model_validate({"home": home, "database_url": database_url} | files)


def test_all_known_certificates_are_read(issued: Path, tmp_path: Path) -> None:
    url = f"postgresql://a@b/c?sslmode=verify-full&sslcert={issued}/tls.pem&sslrootcert={issued}/ca.pem"
    read = CertificateExpiry(settings(tmp_path, issued, database_url=url)).read()
    assert set(read) == {"dask", "dask_authority", "database", "database_authority"}
    assert read["dask"] == read["database"]
    assert read["dask_authority"] == read["database_authority"]
    loaded = x509.load_pem_x509_certificate((issued / "tls.pem").read_bytes())
    assert read["dask"] == loaded.not_valid_after_utc.timestamp()
    assert in_days(read["dask"], certificates.CERTIFICATE_DAYS)
    assert in_days(read["dask_authority"], certificates.AUTHORITY_DAYS)


@pytest.mark.parametrize(
    "place", ["", "?sslrootcert=system", "?sslrootcert=/nowhere.pem", "?sslmode=require"]
)
def test_what_is_not_known_is_not_shown(place: str) -> None:
    url = f"postgresql://a@b/c{place}"
    assert CertificateExpiry(Settings(database_url=url)).read() == {}


def test_a_renewed_file_counts_when_it_is_in_use(
    issued: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq reads its file for each connection; Dask's connections keep the certificate of the start."""
    url = f"postgresql://a@b/c?sslcert={issued}/tls.pem"
    expiry = CertificateExpiry(settings(tmp_path, issued, database_url=url))
    monkeypatch.setattr(certificates, "CERTIFICATE_DAYS", 700)
    shutil.rmtree(issued)
    ensure_certificate(issued, ["service"], ensure_authority(tmp_path / "authority"))
    assert in_days(expiry.read()["database"], 700)
    assert not in_days(expiry.read()["dask"], 700)
    restarted = CertificateExpiry(settings(tmp_path, issued, database_url=url))
    assert in_days(restarted.read()["dask"], 700)


def test_of_several_authorities_the_last_counts_and_of_a_chain_the_first(
    issued: Path, tmp_path: Path
) -> None:
    """A file of old and new authorities serves on; a chain ends with its authority."""
    own, authority = (issued / "tls.pem").read_bytes(), (issued / "ca.pem").read_bytes()
    (issued / "ca.pem").write_bytes(own + authority)
    (issued / "tls.pem").write_bytes(own + authority)
    read = CertificateExpiry(settings(tmp_path, issued, database_url="")).read()
    assert in_days(read["dask"], certificates.CERTIFICATE_DAYS)
    assert in_days(read["dask_authority"], certificates.AUTHORITY_DAYS)
