"""Expiry of the certificates that the service uses towards its cluster and its database server.

The service itself speaks no TLS to its callers: the certificate of a proxy is not known here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from app.settings import Settings

CERTIFICATES = ("dask", "dask_authority", "dask_scheduler", "database", "database_authority")
"""Values of the metric label `certificate`; the engine knows the scheduler's."""


class CertificateExpiry:
    """Moments at which certificates expire.

    Dask reads its files once, so those are read here once, too: a renewed file does not count before a
    restart. libpq reads its files for each connection.
    """

    def __init__(self, settings: Settings) -> None:
        cluster = {"dask": settings.tls_cert_file, "dask_authority": settings.tls_ca_file}
        self._fixed = _read({name: path for name, path in cluster.items() if path is not None})
        self._database_files = _database_files(settings.database_url)

    def read(self) -> dict[str, float]:
        """Map each known certificate to its expiry in Unix seconds. Unreadable files are left out."""
        return self._fixed | _read(self._database_files)


def _database_files(url: str) -> dict[str, Path]:
    """Return the files that the address of the database names; `system` and other words are no files."""
    given = parse_qs(urlsplit(url).query)
    named = {"database": given.get("sslcert"), "database_authority": given.get("sslrootcert")}
    return {name: Path(words[-1]) for name, words in named.items() if words and Path(words[-1]).is_absolute()}


def _read(files: Mapping[str, Path]) -> dict[str, float]:
    if not files:
        return {}
    from cryptography import x509  # slow to import, and needed only with certificates

    moments = {}
    for name, path in files.items():
        # A file of authorities may hold old and new ones: it serves as long as the last of them.
        choose: Callable[[list[float]], float] = max if name.endswith("_authority") else _first
        try:
            found = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            continue
        moments[name] = choose([certificate.not_valid_after_utc.timestamp() for certificate in found])
    return moments


def _first(moments: list[float]) -> float:
    """Return that of the certificate itself, which precedes its chain."""
    return moments[0]
