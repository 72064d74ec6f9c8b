"""Checkpoints of the audit log, and their way out of the database: to the home, a webhook or a bucket."""

import asyncio
import importlib
import logging
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import TYPE_CHECKING

from app import __version__
from app.errors import Unavailable
from app.file_threads import ServiceThreads
from app.jobs.stores import Stores
from app.references import Reference, ReferenceFault, parse_prefix
from app.settings import Settings
from app.store.crypto.canonical_json import canonical_json
from app.store.sql.audit.anchor import anchor_lock, keep_anchor
from app.store.sql.audit.checkpoints import Checkpoint, add_checkpoint
from app.store.sql.replicas import moment
from app.telemetry.metrics import Metrics
from app.webhooks.addresses import AddressRefused, CertificateRefused, Reach
from app.webhooks.messages import SecretUnusable, signed_headers

if TYPE_CHECKING:
    from app.webhooks.post import Sender

_log = logging.getLogger("rowveil.audit")

_EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))
"""The operator chooses the webhook's address, so that it may be in any network."""


_OWNER = "the service"
"""Owner of the look-ups of the webhook's name; callers have their own."""


class PublicationFailed(Exception):
    """A checkpoint was not published; the message has the cause."""


class AuditAnchors:
    """Adds checkpoints, stores their anchors next to the keys, and publishes them."""

    def __init__(self, settings: Settings, stores: Stores, threads: ServiceThreads, metrics: Metrics) -> None:
        self._settings = settings
        self._stores = stores
        self._threads = threads
        self._metrics = metrics
        self._published = 0
        self._sender: Sender | None = None

    async def run(self, within: float | None = None) -> None:
        """Add a checkpoint if the log has grown, and publish the newest one; failures are logged.

        ``within``: seconds after which a publication counts as failed; None: those of the receiver's client.

        A checkpoint contains those before it, so that one that failed needs no second attempt of its own: the
        newest one is tried at each run until a publication has succeeded.
        """
        loop = asyncio.get_running_loop()
        newest = await loop.run_in_executor(self._threads.database, self._add)
        if newest is None or not self._settings.audit_anchor_url or newest.number <= self._published:
            return
        try:
            async with asyncio.timeout(within):
                await self._publish(newest)
        except (PublicationFailed, Unavailable, TimeoutError) as error:
            self._metrics.audit_anchor_failures.inc()
            cause = f"no response within {within} s" if isinstance(error, TimeoutError) else error
            _log.error("checkpoint %d of the audit was not published: %s", newest.number, cause)
            return
        self._published = newest.number

    def _add(self) -> Checkpoint | None:
        try:
            with anchor_lock(self._settings.home):
                with self._stores.database.write() as session:
                    key, signer = self._stores.audit.key, self._stores.signer
                    newest = add_checkpoint(session, key, signer, moment(session))
                longer = newest is None or keep_anchor(self._settings.home, newest.anchor)
        except Exception as error:  # the anchor stored before remains valid
            _log.error("no anchor of the audit could be written: %s", type(error).__qualname__)
            return None
        if not longer:
            _log.error("the audit is shorter than it was: see `rowveil audit verify`")
        return newest

    async def _publish(self, checkpoint: Checkpoint) -> None:
        body = canonical_json(checkpoint.published)
        if self._settings.audit_anchor_url.startswith("s3://"):
            # Among the threads that a bucket may hold: a stop does not wait for them.
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads.background, self._store_object, checkpoint, body)
            return
        secret = self._settings.audit_anchor_secret
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "user-agent": f"Rowveil/{__version__}",
            "connection": "close",
        }
        if secret is not None:
            name = f"audit_{checkpoint.number}_{checkpoint.mac[:16]}"
            try:
                headers |= signed_headers(name, datetime.now(UTC), body, secret.get_secret_value())
            except SecretUnusable as error:
                raise PublicationFailed(f"ROWVEIL_AUDIT_ANCHOR_SECRET: {error}") from None
        sender = await asyncio.to_thread(self._open_sender)
        try:
            status = await sender.post(self._settings.audit_anchor_url, headers, body, _OWNER)
        except (AddressRefused, CertificateRefused) as error:
            raise PublicationFailed(str(error)) from None
        if status is None or not 200 <= status < 300:
            raise PublicationFailed("no response" if status is None else f"the webhook answered {status}")

    def _store_object(self, checkpoint: Checkpoint, body: bytes) -> None:
        """Store the checkpoint as an object that is never replaced. Raises PublicationFailed."""
        bucket = importlib.import_module("app.store.reference_s3")
        prefix = parse_prefix(self._settings.audit_anchor_url)
        path = (*prefix.path, f"{checkpoint.number:012d}.json")
        place = Reference("s3", prefix.bucket, path)
        try:
            if bucket.write_once(place, body, "application/json"):
                return
            if b"".join(bucket.read_object(place, lambda size: None)) == body:
                return  # another replica was faster, or this one before it started again
        except ReferenceFault as error:
            raise PublicationFailed(error.message) from None
        raise PublicationFailed(
            f"the bucket has another checkpoint {checkpoint.number}: the log was rewritten, an older state "
            "of the database was restored, or another deployment uses the same prefix"
        )

    def _open_sender(self) -> "Sender":
        if self._sender is None:
            network = importlib.import_module("app.webhooks.post")
            reach = Reach(_EVERYWHERE, self._settings.webhook_insecure)
            self._sender = network.Sender(reach, self._settings.webhook_timeout)
        return self._sender
