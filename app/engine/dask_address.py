"""Address of a Dask cluster. Imports nothing of Dask, whose import is slow."""

from dataclasses import dataclass
from pathlib import Path

from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Cluster:
    """Address of the scheduler, and the certificates to connect with."""

    address: str
    """``tls://host:port``; ``tcp://`` in tests only."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


def cluster_of(settings: Settings) -> Cluster:
    """Return the cluster of the settings."""
    if settings.scheduler_address.startswith("tcp://"):
        return Cluster(settings.scheduler_address)
    files = settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file
    return Cluster(settings.scheduler_address, *files)
