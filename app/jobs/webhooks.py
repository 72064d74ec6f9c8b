"""What a webhook is told, and how it knows that the service told it (Standard Webhooks 1.0).

A message is written into the outbox in the transaction that ends its job. It says that the job ended and
how, and nothing that was in a table.
"""

import base64
import binascii
import hashlib
import hmac
from datetime import datetime
from typing import Any

import orjson

from app.jobs.identity import new_id
from app.jobs.terms import Webhook
from app.store import deliveries
from app.store.db import Session
from app.store.models import Delivery, Job
from app.store.seal import Sealer, webhook_context

_PREFIX = "whsec_"
_LEAST, _MOST = 24, 64  # bytes, as the standard has it


class SecretUnusable(Exception):
    """A secret is not one that messages can be signed with; says what one is like."""


def key_of_secret(secret: str) -> bytes:
    """The bytes to sign with. Raises SecretUnusable."""
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
    """The headers of one attempt: identifier, time, signature."""
    timestamp = str(int(moment.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    mac = base64.b64encode(hmac.digest(key_of_secret(secret), signed, hashlib.sha256)).decode()
    return {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{mac}"}


def message_id_of(delivery: Delivery) -> str:
    """The message's identifier, the same at every attempt."""
    return f"msg_{delivery.id}"


def sealed_webhook(sealer: Sealer, webhook: Webhook, job_id: str) -> bytes:
    """Address and secret, as they lie in the database."""
    return sealer.seal(orjson.dumps([webhook.url, webhook.secret]), webhook_context(job_id))


def opened_webhook(sealer: Sealer, sealed: bytes, job_id: str) -> Webhook:
    """The same again. Raises SealBroken."""
    return Webhook(*orjson.loads(sealer.open(sealed, webhook_context(job_id))))


def tell_webhook(session: Session, job: Job, state: str, values: dict[str, Any]) -> None:
    """Write the message about the job's end into the outbox, if it is to be told to anybody.

    Parameters
    ----------
    session : Session
        Of the transaction that ends the job.
    job : Job
        As it was before.
    state : str
        As it is now.
    values : dict
        ``finished_at`` and ``outcome``.
    """
    if job.sealed_webhook is None:
        return
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
        sealed_webhook=job.sealed_webhook,
        body=orjson.dumps(body).decode(),
        state="pending",
        due_at=finished,
    )
    deliveries.insert(session, delivery)
