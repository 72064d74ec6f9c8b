"""Deliver the messages of the outbox, each at least once, also across crashes and restarts.

A due message is claimed by postponing it. If the replica that claimed it dies, another one finds it due again
later. So several replicas share one outbox, and a restart loses no message. Redirects are not followed, and
only the status of a response is read.
"""

import asyncio
import contextlib
import importlib
import logging
import random
from collections import Counter
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from app import __version__
from app.settings import Settings, webhook_networks
from app.store.crypto.sealing import KeyMissing, SealBroken, Sealer, SealUnbound
from app.store.sql import webhook_outbox
from app.store.sql.db import Database
from app.store.sql.models import Delivery
from app.store.sql.replicas import moment
from app.telemetry.metrics import Metrics
from app.webhooks.addresses import AddressRefused, CertificateRefused, Reach
from app.webhooks.messages import message_id_of, open_webhook, signed_headers

if TYPE_CHECKING:
    from app.webhooks.post import Sender

_log = logging.getLogger("rowveil.webhooks")

Result = Literal["delivered", "refused", "gone", "altered", "failed"]
"""``refused``: the address is not allowed; ``gone``: the status was 410; ``altered``: the message is not as
the service wrote it. None of them is retried."""

Outcome = tuple[Result, str | None]
"""Result of an attempt, and the cause if it failed, in words for the job's owner."""

Queues = dict[webhook_outbox.Queue, int]
"""Queue -> number of attempts, or of its last turn."""

_COUNTED = ("delivered", "refused", "gone", "altered", "retried", "given_up")

_UNBOUND = "its webhook is sealed to the job only: by an older version, or copied in the database"

_PARALLEL = 8
"""Attempts at the same time."""

_PARALLEL_OF_OWNER = 2
"""Attempts at the same time for the jobs of one owner, whose receivers may all be slow."""

_MOST_TURNS = 20_000
"""Maximum number of queues whose last turn is remembered."""

_POLL_SECONDS = 5.0

_CONTENTION_SECONDS = 0.1  # another replica is claiming the messages that were due

_QUOTA_SECONDS = 1.0  # the due messages are of owners at their quota; the end of an attempt wakes the search

_LONGEST_SECONDS = 6 * 3600.0

_GROWTH = 3.0

_JITTER = 0.25

LONGEST_PAUSE = timedelta(seconds=_LONGEST_SECONDS * (1 + _JITTER))
"""Longest time from a claim or an attempt to the next attempt."""


def reach_of(settings: Settings) -> Reach:
    """Return the addresses that the settings allow for webhooks."""
    return Reach(webhook_networks(settings), settings.webhook_insecure)


def seconds_to_next(attempts: int, first: float) -> float:
    """Return the pause after ``attempts`` attempts: exponential, with a jitter of 25 % in both directions."""
    base = min(_LONGEST_SECONDS, first * _GROWTH ** (attempts - 1))
    return base * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load, is no secret


class Deliverer:
    """An asyncio task that polls for due messages and delivers them."""

    def __init__(
        self, settings: Settings, database: Database, sealer: Sealer, threads: Executor, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._database = database
        self._sealer = sealer
        self._threads = threads
        self._metrics = metrics
        self._reach = reach_of(settings)
        self._sender: Sender | None = None
        self._wake = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._active: Counter[webhook_outbox.Queue] = Counter()
        """Attempts of each queue: owner and class of the receiver."""
        self._turns: dict[webhook_outbox.Queue, int] = {}
        """Number of each queue's last turn, in their order."""
        self._last_turn = 0
        for result in _COUNTED:
            metrics.deliveries.labels(result)  # exported as 0: an alert notices the first rise

    def start(self) -> None:
        """Start to poll."""
        self._polling = asyncio.create_task(self._poll())

    def wake(self) -> None:
        """Poll now: there may be a message to deliver."""
        self._wake.set()

    async def stop(self) -> None:
        """Stop polling and abort attempts, which are repeated when their claims end."""
        tasks = [*self._running, *([self._polling] if self._polling is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._sender is not None:
            self._sender.close()

    async def _poll(self) -> None:
        while True:
            self._wake.clear()
            wait = _POLL_SECONDS
            try:
                free = _PARALLEL - len(self._running)
                wait = await self._in_thread(self._seconds_to_poll) if free else _POLL_SECONDS
                if wait == 0:
                    claimed = await self._in_thread(self._claim, free, dict(self._active), dict(self._turns))
                    for delivery in claimed:
                        self._begin(delivery)
                    wait = 0.0 if claimed else _QUOTA_SECONDS if self._running else _CONTENTION_SECONDS
            except Exception as error:
                _log.error("the search for messages failed: %s", type(error).__qualname__)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def _begin(self, delivery: Delivery) -> None:
        queue = (delivery.owner, delivery.receiver)
        task = asyncio.create_task(self._deliver(delivery))
        self._running.add(task)
        self._active[queue] += 1
        self._last_turn += 1
        self._turns.pop(queue, None)  # so that the dict is in the order of the turns
        self._turns[queue] = self._last_turn
        if len(self._turns) > _MOST_TURNS:
            del self._turns[next(iter(self._turns))]
        task.add_done_callback(lambda ended: self._ended(ended, queue))

    def _ended(self, task: asyncio.Task[None], queue: webhook_outbox.Queue) -> None:
        self._running.discard(task)
        self._active -= Counter([queue])  # drops a queue without any
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a message's attempt is not recorded: %s", type(error).__qualname__)

    async def _deliver(self, delivery: Delivery) -> None:
        result, problem = await self._attempt(delivery)
        ended, counted = await self._in_thread(self._record, delivery, result, problem)
        self._metrics.deliveries.labels(counted).inc()
        if ended and result != "delivered":
            _log.warning("job %s: its webhook was given up (%s)", delivery.job_id, result)

    async def _attempt(self, delivery: Delivery) -> Outcome:
        try:
            status = await self._post(delivery)
        except AddressRefused:
            return "refused", "the address of the webhook is not allowed"
        except CertificateRefused as error:
            return "failed", str(error)
        except SealBroken as error:
            cause = _UNBOUND if isinstance(error, SealUnbound) else error
            _log.error("job %s: message %s is not sent: %s", delivery.job_id, delivery.id, cause)
            if isinstance(error, KeyMissing):  # another replica may have it
                return "failed", "the service could not send the message; its log names the cause"
            return "altered", "the message is not as the service wrote it; the service's log names the cause"
        except Exception as error:
            kind = type(error).__qualname__
            _log.error("job %s: its webhook cannot be delivered: %s", delivery.job_id, kind)
            return "failed", "the service could not send the message; its log names the cause"
        if status is None:
            seconds = f"{self._settings.webhook_timeout:g}"
            return "failed", f"the receiver could not be reached, or did not answer within {seconds} s"
        if 200 <= status < 300:
            return "delivered", None
        return "gone" if status == 410 else "failed", f"the receiver answered with status {status}"

    async def _post(self, delivery: Delivery) -> int | None:
        """Post the message and return the status of the response; None if there is no response."""
        webhook = open_webhook(self._sealer, delivery)
        self._reach.check_url(webhook.url)  # again: the settings may have changed since the submission
        body = delivery.body.encode()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "user-agent": f"Rowveil/{__version__}",
            "connection": "close",
            **signed_headers(message_id_of(delivery), datetime.now(UTC), body, webhook.secret),
        }
        sender = await asyncio.to_thread(self._open_sender)
        return await sender.post(webhook.url, headers, body, delivery.owner)

    def _open_sender(self) -> "Sender":
        """Return the sender. The first delivery creates it: importing httpcore takes a tenth of a second."""
        if self._sender is None:
            network = importlib.import_module("app.webhooks.post")
            self._sender = network.Sender(self._reach, self._settings.webhook_timeout)
        return self._sender

    def _claim(self, most: int, active: Queues, turns: Queues) -> list[Delivery]:
        lease = timedelta(seconds=2 * self._settings.webhook_timeout + 30)
        with self._database.write() as session:
            now = moment(session)
            again_at, quota = now + lease, _PARALLEL_OF_OWNER
            return list(webhook_outbox.claim_due(session, now, again_at, most, quota, active, turns))

    def _seconds_to_poll(self) -> float:
        with self._database.read() as session:
            due = webhook_outbox.next_due(session)
            if due is None:
                return _POLL_SECONDS
            return min(_POLL_SECONDS, max(0.0, (due - moment(session)).total_seconds()))

    def _record(self, delivery: Delivery, result: Result, problem: str | None) -> tuple[bool, str]:
        """Record a result. Return whether it was the last attempt, and its label in the metrics."""
        values: dict[str, Any]
        last = result != "failed" or delivery.attempts >= self._settings.webhook_attempts
        with self._database.write() as session:
            now = moment(session)
            if last:
                state = "delivered" if result == "delivered" else "given_up"
                values = {
                    "state": state,
                    "ended_at": now,
                    "sealed_webhook": None,
                    "owner": "",
                    "receiver": "",
                }
            else:
                wait = seconds_to_next(delivery.attempts, self._settings.webhook_retry_seconds)
                values = {"due_at": now + timedelta(seconds=wait)}
            values["problem"] = problem
            webhook_outbox.record(session, delivery.id, delivery.attempts, **values)
        return last, result if result != "failed" else "given_up" if last else "retried"

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
