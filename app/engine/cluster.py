"""How a cluster is reached. Imports nothing of Dask, which takes its time."""

from dataclasses import dataclass
from pathlib import Path

from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the scheduler is, and what to show there."""

    address: str
    """``tls://host:port``; ``tcp://`` for tests alone."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


def cluster_of(settings: Settings) -> Cluster:
    """The cluster that the settings name."""
    if settings.scheduler_address.startswith("tcp://"):
        return Cluster(settings.scheduler_address)
    files = settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file
    return Cluster(settings.scheduler_address, *files)
