"""Messages to webhooks, signed as Standard Webhooks 1.0 specifies.

A message is written to the outbox in the transaction that ends its job. It contains the job's state and
outcome, and nothing from a table.
"""

import base64
import binascii
import hashlib
import hmac
import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import orjson

from app.ids import new_id
from app.store.crypto.sealing import SealBroken, Sealer, webhook_context
from app.store.sql import jobs, webhook_outbox
from app.store.sql.bindings import message_binding
from app.store.sql.db import Transaction
from app.store.sql.models import Delivery, Job

_log = logging.getLogger("rowveil.webhooks")


@dataclass(frozen=True, slots=True)
class Webhook:
    """Address to notify of a job's end, and the secret to sign with."""

    url: str = field(repr=False)
    secret: str = field(repr=False)
    """Signing secret chosen by the caller: ``whsec_`` and base64."""


_PREFIX = "whsec_"

_RECEIVER_CLASSES = 64
"""Number of classes of the receivers of one owner."""

_LEAST, _MOST = 24, 64  # bytes of a secret, by the standard


class SecretUnusable(Exception):
    """The secret cannot sign messages; the message describes a valid one."""


def key_of_secret(secret: str) -> bytes:
    """Decode the secret's key. Raises SecretUnusable."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise SecretUnusable(
            f"a webhook's secret is '{_PREFIX}' and {_LEAST} to {_MOST} random bytes in base64, as "
            f'"{_PREFIX}$(openssl rand -base64 32)" makes one'
        )
    return key


def signed_headers(message_id: str, moment: datetime, body: bytes, secret: str) -> dict[str, str]:
    """Build the headers of one attempt: identifier, timestamp and signature."""
    timestamp = str(int(moment.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    mac = base64.b64encode(hmac.digest(key_of_secret(secret), signed, hashlib.sha256)).decode()
    return {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{mac}"}


def message_id_of(delivery: Delivery) -> str:
    """Return the message's identifier, which is the same at every attempt."""
    return f"msg_{delivery.id}"


def seal_webhook(sealer: Sealer, webhook: Webhook, job_id: str) -> bytes:
    """Seal address and secret to a job, for its row."""
    return sealer.seal(orjson.dumps([webhook.url, webhook.secret]), webhook_context(job_id))


def open_webhook(sealer: Sealer, delivery: Delivery) -> Webhook:
    """Open the address and the secret of a message, if id, job and body are as the service wrote them.

    Raises SealBroken: the message must not be signed.
    """
    if delivery.sealed_webhook is None:
        raise SealBroken("a pending message has no sealed webhook")
    return Webhook(*orjson.loads(sealer.open(delivery.sealed_webhook, message_binding(delivery))))


def queue_message(session: Transaction, sealer: Sealer, job: Job, state: str, values: dict[str, Any]) -> None:
    """Write the message about the job's end into the outbox, if the job has a webhook.

    Parameters
    ----------
    session : Transaction
        The transaction that ends the job.
    sealer : Sealer
        Opens the job's webhook, and seals it to the message.
    job : Job
        The job's row before it ended.
    state : str
        Its state now.
    values : dict
        Columns that the end has set: ``finished_at`` and ``outcome``.
    """
    if job.sealed_webhook is None:
        return
    sealed_webhook = jobs.sealed_webhook(session, job.id)  # keys may have been rotated since the job began
    finished = values["finished_at"]
    data = {
        "job": job.id,
        "service": job.service,
        "state": state,
        "outcome": values["outcome"],
        "finished_at": finished.isoformat(),
    }
    body = {"type": f"job.{state}", "timestamp": finished.isoformat(), "data": data}
    delivery = Delivery(
        id=new_id(),
        job_id=job.id,
        owner=job.owner,
        body=orjson.dumps(body).decode(),
        state="pending",
        due_at=finished,
    )
    delivery.sealed_webhook, delivery.receiver = _move_webhook(sealer, sealed_webhook, delivery)
    webhook_outbox.insert(session, delivery)


def receiver_class(sealer: Sealer, owner: str, url: str) -> str:
    """Return two hex digits that are equal for all webhooks of an owner on one host.

    The receivers of an owner take turns by them. There are few classes, so that the search for due messages
    takes no longer for an owner with many hosts; two hosts may be in one class.
    """
    host = urlsplit(url).hostname or ""
    return f"{int(sealer.host_fingerprint(owner, host), 16) % _RECEIVER_CLASSES:02x}"


def _move_webhook(sealer: Sealer, sealed: bytes | None, delivery: Delivery) -> tuple[bytes | None, str]:
    """Seal the job's webhook to a message, and return the class of its receiver.

    A webhook that does not open is returned as it is, without a class. The end of a job does not fail by its
    webhook: the delivery refuses such a message and gives it up.
    """
    if sealed is None:
        return None, ""
    try:
        plain = sealer.open(sealed, webhook_context(delivery.job_id))
    except SealBroken as error:
        _log.error("job %s: its webhook cannot be sealed to a message: %s", delivery.job_id, error)
        return sealed, ""
    url, _ = orjson.loads(plain)
    return sealer.seal(plain, message_binding(delivery)), receiver_class(sealer, delivery.owner, url)
