"""Delivers the messages of the outbox: at least once each, whatever dies when.

A message that is due is claimed by putting it off: whoever claims it and then dies leaves it to whoever
looks after that. So several replicas share one outbox, and a restart loses nothing. No redirect is
followed, and of an answer nothing but its status is read.
"""

import asyncio
import contextlib
import logging
import random
import ssl
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import httpcore

from app import __version__
from app.jobs.stores import Stores
from app.jobs.webhook_addresses import AddressRefused, CheckedNetwork, Reach
from app.jobs.webhooks import message_id_of, opened_webhook, signed_headers
from app.settings import Settings, webhook_networks
from app.store import deliveries
from app.store.models import Delivery
from app.store.replicas import moment
from app.telemetry.metrics import Metrics

_log = logging.getLogger("rowveil.webhooks")

Result = Literal["delivered", "refused", "gone", "failed"]
"""``refused``: its address may not be reached; ``gone``: it answered 410. Neither is tried again."""
_COUNTED = ("delivered", "refused", "gone", "retried", "given_up")

_AT_ONCE = 8
_LOOK_SECONDS = 5.0
_TAKEN_SECONDS = 0.1  # what was due is being claimed by another replica this moment
_LONGEST_SECONDS = 6 * 3600.0
_GROWTH = 3.0


def reach_of(settings: Settings) -> Reach:
    """What webhooks may reach by the settings."""
    return Reach(webhook_networks(settings), settings.webhook_insecure)


def seconds_to_next(attempts: int, first: float) -> float:
    """How long to wait after so many attempts: exponential, with jitter of a quarter either way."""
    base = min(_LONGEST_SECONDS, first * _GROWTH ** (attempts - 1))
    return base * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load, hides nothing


class Deliverer:
    """An asyncio task that looks for messages that are due."""

    def __init__(self, settings: Settings, stores: Stores, threads: Executor, metrics: Metrics) -> None:
        self._settings = settings
        self._stores = stores
        self._threads = threads
        self._metrics = metrics
        self._reach = reach_of(settings)
        self._wake = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._trusted = ssl.create_default_context()
        for result in _COUNTED:
            metrics.deliveries.labels(result)  # from 0 on: an alert sees the first message given up

    def start(self) -> None:
        """Look from now on."""
        self._looking = asyncio.create_task(self._look())

    def wake(self) -> None:
        """There may be a message to deliver."""
        self._wake.set()

    async def stop(self) -> None:
        """Look no more. An attempt that is broken off is made again when its claim is over."""
        left = [*self._under_way, *([self._looking] if self._looking is not None else [])]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _look(self) -> None:
        while True:
            self._wake.clear()
            wait = _LOOK_SECONDS
            try:
                free = _AT_ONCE - len(self._under_way)
                wait = await self._in_thread(self._seconds_to_look) if free else _LOOK_SECONDS
                if wait == 0:
                    claimed = await self._in_thread(self._claim, free)
                    for delivery in claimed:
                        task = asyncio.create_task(self._deliver(delivery))
                        self._under_way.add(task)
                        task.add_done_callback(self._ended)
                    wait = 0.0 if claimed else _TAKEN_SECONDS
            except Exception as error:
                _log.error("looking for messages failed: %s", type(error).__qualname__)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a message's attempt is not recorded: %s", type(error).__qualname__)

    async def _deliver(self, delivery: Delivery) -> None:
        result = await self._attempt(delivery)
        ended, counted = await self._in_thread(self._record, delivery, result)
        self._metrics.deliveries.labels(counted).inc()
        if ended and result != "delivered":
            _log.warning("job %s: its webhook was given up (%s)", delivery.job_id, result)

    async def _attempt(self, delivery: Delivery) -> Result:
        try:
            status = await self._post(delivery)
        except AddressRefused:
            return "refused"
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
            TimeoutError,
            OSError,
        ):
            return "failed"
        except Exception as error:  # such as a secret whose master key is gone
            _log.error("job %s: its webhook cannot be told: %s", delivery.job_id, type(error).__qualname__)
            return "failed"
        if 200 <= status < 300:
            return "delivered"
        return "gone" if status == 410 else "failed"

    async def _post(self, delivery: Delivery) -> int:
        """The status of the answer."""
        assert delivery.sealed_webhook is not None  # of a message that is pending
        webhook = opened_webhook(self._stores.sealer, delivery.sealed_webhook, delivery.job_id)
        self._reach.check_url(webhook.url)  # again: a setting may have changed since
        body = delivery.body.encode()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "user-agent": f"Rowveil/{__version__}",
            "connection": "close",
            **signed_headers(message_id_of(delivery), datetime.now(UTC), body, webhook.secret),
        }
        seconds = self._settings.webhook_timeout
        each = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), seconds)}
        async with (
            asyncio.timeout(seconds),
            httpcore.AsyncConnectionPool(
                ssl_context=self._trusted, network_backend=CheckedNetwork(self._reach)
            ) as pool,
            pool.stream(
                "POST", webhook.url, headers=list(headers.items()), content=body, extensions=each
            ) as answer,
        ):
            return answer.status

    def _claim(self, most: int) -> list[Delivery]:
        lease = timedelta(seconds=2 * self._settings.webhook_timeout + 30)
        with self._stores.database.write() as session:
            now = moment(session)
            return list(deliveries.claim_due(session, now, now + lease, most))

    def _seconds_to_look(self) -> float:
        with self._stores.database.read() as session:
            due = deliveries.next_due(session)
            if due is None:
                return _LOOK_SECONDS
            return min(_LOOK_SECONDS, max(0.0, (due - moment(session)).total_seconds()))

    def _record(self, delivery: Delivery, result: Result) -> tuple[bool, str]:
        """Whether that was the last attempt, and as what it counts."""
        values: dict[str, Any]
        last = result != "failed" or delivery.attempts >= self._settings.webhook_attempts
        with self._stores.database.write() as session:
            now = moment(session)
            if last:
                state = "delivered" if result == "delivered" else "given_up"
                values = {"state": state, "ended_at": now, "sealed_webhook": None}
            else:
                wait = seconds_to_next(delivery.attempts, self._settings.webhook_retry_seconds)
                values = {"due_at": now + timedelta(seconds=wait)}
            deliveries.record(session, delivery.id, delivery.attempts, **values)
        return last, result if result != "failed" else "given_up" if last else "retried"

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
