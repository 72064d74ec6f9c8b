"""A Dask cluster of one scheduler and some workers, in the event loop of a test."""

import asyncio
import contextlib
import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Scheduler, Worker

from app.engine.certificate_roles import ROLE_URI, ROLES, SCHEDULER
from app.engine.dask_address import Cluster
from app.engine.dask_engine import security_of, serve_cluster


@dataclass
class LocalCluster:
    """A scheduler that is up, and workers."""

    cluster: Cluster
    scheduler: Any
    workers: list[asyncio.Task[None]]

    @classmethod
    async def start(cls, threads: int, reached: Cluster | None = None, workers: int = 1) -> Self:
        """Bring them up; ``reached`` says with which certificates, and no address yet."""
        reached = reached or Cluster("")
        protocol = "tls" if reached.ca_file else "tcp"
        scheduler = await Scheduler(
            protocol=protocol,
            host="127.0.0.1",
            port=0,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            security=security_of(reached, SCHEDULER),
        )
        cluster = replace(reached, address=scheduler.address)
        serving = [asyncio.create_task(serve_cluster(cluster, threads)) for _ in range(workers)]
        return cls(cluster, scheduler, serving)

    def dask_workers(self) -> list[Worker]:
        """Return the workers that are in this process."""
        return [worker for worker in Worker._instances if worker.scheduler.address == self.scheduler.address]

    async def close(self) -> None:
        """Stop them all."""
        for worker in self.workers:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker
        await self.scheduler.close()


def certified(folder: Path, roles: Sequence[str] = ROLES) -> Cluster:
    """A cluster without an address, whose one certificate is its own authority and has the roles."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rowveil test")])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.IPAddress(ip_address("127.0.0.1"))]
    names += [x509.UniformResourceIdentifier(f"{ROLE_URI}{role}") for role in roles]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    kind = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, plain))
    return Cluster("", certificate_file, certificate_file, key_file)
