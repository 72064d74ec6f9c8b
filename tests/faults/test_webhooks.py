"""Messages to webhooks: signed, delivered whatever fails in between, and sent nowhere else."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.__main__ import main
from app.api.job_response import job_document, job_documents, looked_up_document
from app.api.schemas import Job as JobResource
from app.ids import new_id
from app.jobs.maintenance.binding import _TEXT, _TEXT_WITHOUT_MESSAGES
from app.store.crypto.sealing import webhook_context
from app.store.sql.db import Database, Transaction
from app.store.sql.models import Delivery, Job
from app.webhooks.messages import Webhook
from tests.faults import doings
from tests.faults.clusters import certified
from tests.faults.conftest import Running, files_below, in_folder, new_job, people, settings_of
from tests.faults.receivers import SECRET, Receiver, status
from tests.faults.replicas import until
from tests.faults.running import PATIENCE
from tests.free_port import free_port

pytestmark = pytest.mark.faults

Start = Callable[..., Running]

LOCAL: dict[str, Any] = {
    "webhook_insecure": True,
    "webhook_networks": "127.0.0.0/8",
    "webhook_retry_seconds": 0.02,
    "webhook_attempts": 4,
    "webhook_timeout": 20.0,
}


@pytest.fixture(scope="module")
def notifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service whose webhooks may reach this machine."""
    running = Running(settings_of(tmp_path_factory.mktemp("notifying") / "home", **LOCAL))
    yield running
    running.close()


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Starts receivers."""
    with contextlib.ExitStack() as started:

        def begin(*answers: Any, **how: Any) -> Receiver:
            receiver = Receiver(*answers, **how)
            started.callback(receiver.close)
            return receiver

        yield begin


def submit(service: Running, url: str, **values: Any) -> Job:
    return service.submit(people(20), webhook=Webhook(url, SECRET), **values)


def settled(service: Running, job: Job) -> Delivery:
    """The job's message when it has arrived or was given up."""
    database = Database(service.settings)
    changed = sa.select(Delivery).where(Delivery.job_id == job.id, Delivery.state != "pending")
    try:
        for _ in range(int(PATIENCE * 50)):
            with database.read() as session:
                delivery = session.scalar(changed)
            if delivery is not None:
                return delivery
            service.loop.do(asyncio.sleep(0.02))
    finally:
        database.close()
    raise AssertionError("the message is pending still")


def shown_delivery(service: Running, job: Job) -> Any:
    """The delivery in the job resource, the same by both ways to read one."""
    documents = [
        service.loop.do(looked_up_document(service.jobs, job.id)),
        service.loop.do(job_document(service.jobs, service.get(job))),
    ]
    assert documents[0] == documents[1]
    JobResource.model_validate(documents[0])
    return documents[0].get("webhook")


def wait_until_failed(service: Running, job: Job) -> None:
    """Return when an attempt has failed."""
    until(
        "an attempt has failed",
        lambda: "problem" in service.loop.do(looked_up_document(service.jobs, job.id))["webhook"],
    )


def failed_delivery(service: Running, job: Job) -> Any:
    """The delivery in the job resource when an attempt has failed, which is not repeated soon."""
    wait_until_failed(service, job)
    return shown_delivery(service, job)


def test_every_end_is_notified_signed_and_without_a_value(
    notifying: Running, receive: Callable[..., Receiver]
) -> None:
    """Succeeded, failed, cancelled while it ran or was queued, and past its deadline."""
    receiver = receive()
    good = notifying.end(submit(notifying, receiver.url))
    failed = notifying.end(submit(notifying, receiver.url, seed=doings.BROKEN))
    held = [submit(notifying, receiver.url, seed=doings.HELD) for _ in range(2)]
    for job in held:
        notifying.wait_until_held(job)
    queued = submit(notifying, receiver.url)
    late = submit(notifying, receiver.url, deadline_seconds=0.01)
    notifying.end(late)
    for job in (queued, *held):
        notifying.loop.do(notifying.jobs.cancel(job.id))
    ends = {message["body"]["data"]["job"]: message for message in receiver.wait_for(6)}
    assert len(ends) == 6
    expected = {good.id: "succeeded", failed.id: "failed", late.id: "failed", queued.id: "cancelled"}
    expected |= {job.id: "cancelled" for job in held}
    for job_id, state in expected.items():
        body = ends[job_id]["body"]
        ended = notifying.loop.do(notifying.jobs.get(job_id))
        assert body == {
            "type": f"job.{state}",
            "timestamp": ended.finished_at.isoformat(),  # type: ignore[union-attr]  # it has ended
            "data": {
                "job": job_id,
                "service": "DSWAP",
                "state": state,
                "outcome": ended.outcome,
                "finished_at": ended.finished_at.isoformat(),  # type: ignore[union-attr]  # it has ended
            },
        }
        assert ends[job_id]["content-type"] == "application/json"
    assert len({message["webhook-id"] for message in ends.values()}) == 6


def test_what_fails_is_tried_again_with_the_same_message(
    notifying: Running, receive: Callable[..., Receiver]
) -> None:
    receiver = receive(status(500), status(429), status(200))
    job = submit(notifying, receiver.url)
    delivery = settled(notifying, job)
    assert (delivery.state, delivery.attempts, delivery.sealed_webhook) == ("delivered", 3, None)
    messages = receiver.wait_for(3)
    assert len({(message["webhook-id"], message["raw"]) for message in messages}) == 1
    shown = shown_delivery(notifying, job)
    ended_at = datetime.fromisoformat(shown.pop("ended_at"))
    assert shown == {"state": "delivered", "attempts": 3}
    assert ended_at == delivery.ended_at


def test_after_the_last_attempt_it_is_given_up(notifying: Running, receive: Callable[..., Receiver]) -> None:
    """A job's own end is not touched by that."""
    receiver = receive(status(503))
    job = submit(notifying, receiver.url)
    delivery = settled(notifying, job)
    assert (delivery.state, delivery.attempts) == ("given_up", 4)
    assert len(receiver.messages) == 4
    assert notifying.get(job).state == "succeeded"
    shown = shown_delivery(notifying, job)
    assert shown.pop("ended_at")
    assert shown == {"state": "given_up", "attempts": 4, "problem": "the receiver answered with status 503"}


def test_a_job_shows_the_delivery_before_and_between_attempts(
    start: Start, receive: Callable[..., Receiver]
) -> None:
    """Each cause is named. Nothing is shown without a webhook, or once the message is deleted."""
    one = start(**LOCAL | {"webhook_retry_seconds": 60.0})
    receiver = receive(status(500))
    held = submit(one, receiver.url, seed=doings.HELD)
    one.wait_until_held(held)
    assert shown_delivery(one, held) == {"state": "pending", "attempts": 0}
    one.loop.do(one.jobs.cancel(held.id))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and listens to no one
        unreachable = submit(one, f"http://127.0.0.1:{closed.getsockname()[1]}/")
        for job, problem in (
            (held, "the receiver answered with status 500"),
            (unreachable, "the receiver could not be reached, or did not answer within 20 s"),
        ):
            shown = failed_delivery(one, job)
            next_attempt_at = datetime.fromisoformat(shown.pop("next_attempt_at"))
            assert shown == {"state": "pending", "attempts": 1, "problem": problem}
            assert next_attempt_at > datetime.now(UTC) + timedelta(seconds=30)
    listed = one.loop.do(job_documents(one.jobs, one.loop.do(one.jobs.list(None, None, 10))[0]))
    assert {each["id"]: each["webhook"]["attempts"] for each in listed} == {held.id: 1, unreachable.id: 1}
    with contextlib.closing(Database(one.settings)) as database, database.write() as session:
        session.execute(sa.delete(Delivery))
    assert shown_delivery(one, held) is None
    assert shown_delivery(one, one.run(people(20))) is None


def test_who_says_gone_is_not_asked_again(notifying: Running, receive: Callable[..., Receiver]) -> None:
    receiver = receive(status(410))
    assert settled(notifying, submit(notifying, receiver.url)).attempts == 1


def test_a_redirect_is_not_followed(notifying: Running, receive: Callable[..., Receiver]) -> None:
    other = receive()
    receiver = receive(status(307, location=other.url), status(301, location=other.url), status(204))
    assert settled(notifying, submit(notifying, receiver.url)).state == "delivered"
    assert other.messages == []


def test_an_answer_without_end_costs_nothing(start: Start, receive: Callable[..., Receiver]) -> None:
    """Its status is all that is read; one that never comes is waited for no longer than a timeout."""

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"x" * 65536)

    def silent(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(1)  # returns when the other side has gone

    one = start(**LOCAL | {"webhook_timeout": 3.0})
    receiver = receive(silent, endless)
    assert (settled(one, submit(one, receiver.url)).attempts, len(receiver.messages)) == (2, 2)


def test_a_receiver_without_answers_does_not_hold_up_the_callers_others(
    start: Start, receive: Callable[..., Receiver]
) -> None:
    """Its messages are older, and are tried next to that of the other host, two at a time."""
    one = start(**LOCAL | {"webhook_timeout": 2.0, "webhook_attempts": 1})
    receiver = receive()
    with socket.create_server(("127.0.0.2", 0)) as silent:
        dead = [submit(one, f"http://127.0.0.2:{silent.getsockname()[1]}/hook") for _ in range(8)]
        good = one.end(submit(one, receiver.url))
        assert receiver.wait_for(1)[0]["body"]["data"]["job"] == good.id
        with rows_of(one) as session:
            ended = (
                sa.select(sa.func.count())
                .select_from(Delivery)
                .where(Delivery.job_id.in_([job.id for job in dead]), Delivery.state != "pending")
            )
            assert (session.scalar(ended) or 0) <= len(dead) - 4


def test_a_message_outlives_the_service(
    start: Start, receive: Callable[..., Receiver], tmp_path: Path
) -> None:
    """And its job: nobody listens at first, and the job is deleted; the next service delivers it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/hook"
    first = start(**LOCAL | {"webhook_retry_seconds": 5.0})
    job = first.end(submit(first, url))
    wait_until_failed(first, job)  # an attempt that the stop aborts would be repeated after a minute only
    first.loop.do(first.jobs.delete(job.id))
    first.close()
    receiver = receive(port=port)
    start(**LOCAL)
    assert receiver.wait_for(1)[0]["body"]["data"]["job"] == job.id


def test_the_database_holds_neither_address_nor_secret(notifying: Running) -> None:
    held = submit(notifying, "http://127.0.0.1:9/needle-in-the-path", seed=doings.HELD)
    notifying.wait_until_held(held)
    files = [path for path in files_below(notifying.settings.home) if not path.is_fifo()]
    stored = b"".join(path.read_bytes() for path in files)
    assert held.id.encode() in stored
    assert b"needle" not in stored
    assert SECRET.encode() not in stored
    notifying.open_gate(held)
    assert settled(notifying, held).state == "given_up"


def test_an_address_that_is_not_public_is_not_reached(
    start: Start, receive: Callable[..., Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by its number nor by a name, in which case it is found out at the connection."""
    receiver = receive()
    real = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host == "hooks.example.test" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    one = start(webhook_insecure=True)
    for host in ("127.0.0.1", "hooks.example.test"):
        delivery = settled(one, submit(one, f"http://{host}:{receiver.port}/"))
        assert (delivery.state, delivery.attempts) == ("given_up", 1)
        assert delivery.problem == "the address of the webhook is not allowed"
    assert receiver.messages == []
    counted = 'rowveil_webhook_attempts_total{result="refused"} 2.0'  # a moment after the commit
    until("both are counted", lambda: counted in one.loop.do(one.jobs.metrics_text()).decode())


def test_a_certificate_must_be_one_that_is_trusted_and_of_that_name(
    start: Start, receive: Callable[..., Receiver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certified(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert made.cert_file is not None
    tls.load_cert_chain(made.cert_file, made.key_file)
    receiver = receive(tls=tls)
    one = start(webhook_networks="127.0.0.0/8", webhook_attempts=1)
    url = f"https://127.0.0.1:{receiver.port}/"
    untrusted = settled(one, one.accept(new_job(people(20), webhook=Webhook(url, SECRET))))
    assert untrusted.state == "given_up"
    assert untrusted.problem == (
        "the receiver's certificate is not signed by an authority that the service trusts"
    )
    one.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(made.cert_file))
    two = start(webhook_networks="127.0.0.0/8,::1/128", webhook_attempts=1)
    assert settled(two, submit(two, url)).state == "delivered"
    other_name = settled(two, submit(two, f"https://localhost:{receiver.port}/"))
    assert (other_name.state, other_name.problem) == (
        "given_up",
        "the receiver's certificate is of another name",
    )
    assert len(receiver.messages) == 1


# ------------------------------------------------------------------------------- messages bound to their row

NOT_WRITTEN = "the message is not as the service wrote it; the service's log names the cause"
FORGED_BODY = '{"type":"job.succeeded","data":{"job":"another"}}'


@contextlib.contextmanager
def rows_of(service: Running) -> Iterator[Transaction]:
    """A transaction of somebody who can write to the database."""
    with contextlib.closing(Database(service.settings)) as database, database.write() as session:
        yield session


def forge_message(service: Running, job: Job, body: str = FORGED_BODY) -> str:
    """Queue another message about the job, with the webhook that its row keeps; return its id."""
    with rows_of(service) as session:
        sealed = session.scalar(sa.select(Job.sealed_webhook).where(Job.id == job.id))
        session.execute(sa.update(Delivery).where(Delivery.job_id == job.id).values(job_id="delivered"))
        forged = Delivery(
            id=new_id(), job_id=job.id, owner=job.owner, sealed_webhook=sealed, body=body, state="pending",
            due_at=datetime.now(UTC) - timedelta(days=1),
        )  # fmt: skip
        session.add(forged)
        return forged.id


def test_a_message_that_was_added_to_the_database_is_not_signed(
    start: Start, receive: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """The job keeps its webhook until it is purged, and that signs no message but the job's own."""
    one, receiver = start(**LOCAL), receive()
    job = one.end(submit(one, receiver.url))
    assert settled(one, job).state == "delivered"
    forged_id = forge_message(one, job)
    one.loop.do(asyncio.sleep(0))
    one.end(submit(one, receiver.url))  # wakes the deliverer
    forged = settled(one, job)
    assert (forged.id, forged.state, forged.attempts) == (forged_id, "given_up", 1)
    assert (forged.problem, forged.sealed_webhook) == (NOT_WRITTEN, None)
    assert len(receiver.wait_for(2)) == 2
    assert "another" not in str(receiver.messages)
    lines = [record.getMessage() for record in caplog.records]
    assert any(
        f"message {forged_id} is not sent: its webhook is sealed to the job only" in each for each in lines
    )
    counted = 'rowveil_webhook_attempts_total{result="altered"} 1.0'
    until("it is counted", lambda: counted in one.loop.do(one.jobs.metrics_text()).decode())


@pytest.mark.parametrize("changed", ["body", "job_id", "id", "sealed_webhook"])
def test_a_message_that_was_changed_in_the_database_is_not_signed(
    start: Start, receive: Callable[..., Receiver], changed: str
) -> None:
    one = start(**LOCAL | {"webhook_retry_seconds": 60.0})
    receiver = receive(status(500), status(500), status(204))
    job, other = (one.end(submit(one, receiver.url)) for _ in range(2))
    failed_delivery(one, job)
    failed_delivery(one, other)
    with rows_of(one) as session:
        sealed = session.scalar(sa.select(Delivery.sealed_webhook).where(Delivery.job_id == other.id))
        values = {"body": FORGED_BODY, "job_id": "another", "id": new_id(), "sealed_webhook": sealed}
        due = {"due_at": datetime.now(UTC) - timedelta(days=1), changed: values[changed]}
        session.execute(sa.update(Delivery).where(Delivery.job_id == job.id).values(due))
    one.end(submit(one, receiver.url))  # wakes the deliverer
    until("the other message has arrived", lambda: len(receiver.messages) == 3)
    found = settled(one, Job(id="another") if changed == "job_id" else job)
    assert (found.state, found.problem) == ("given_up", NOT_WRITTEN)
    assert len(receiver.messages) == 3


@in_folder
def test_messages_of_an_older_version_are_bound_once(
    start: Start,
    receive: Callable[..., Receiver],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first start delivers those that were pending; a later one refuses them, since nobody vouches."""
    port = free_port()
    first = start(**LOCAL | {"webhook_retry_seconds": 60.0})
    job = first.end(submit(first, f"http://127.0.0.1:{port}/hook"))
    failed_delivery(first, job)
    first.close()
    monkeypatch.setenv("ROWVEIL_HOME", str(first.settings.home))
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", first.settings.database_url)
    assert main(["migrate", "--to", "2026_11_29_ledger_transactions"]) == 0, capsys.readouterr().err
    assert "messages to webhooks, as an older version expects them: 1 values" in capsys.readouterr().out
    mark, sealer = first.settings.home / "rows-bound", first.jobs._stores.sealer
    assert mark.read_text() == _TEXT_WITHOUT_MESSAGES
    with rows_of(first) as session:
        pending = session.scalars(
            sa.select(Delivery.sealed_webhook)
        ).one()  # the older tables have fewer columns
        assert pending is not None
        assert b"/hook" in sealer.open(pending, webhook_context(job.id))
        session.execute(sa.update(Delivery).values(due_at=datetime.now(UTC)))
    receiver = receive(port=port)
    second = start(**LOCAL)
    assert receiver.wait_for(1)[0]["body"]["data"]["job"] == job.id
    assert settled(second, job).state == "delivered"
    assert mark.read_text() == _TEXT
    second.close()
    forge_message(second, job)
    third = start(**LOCAL)
    assert settled(third, job).problem == NOT_WRITTEN
    assert len(receiver.messages) == 1
    third.close()
    assert main(["audit", "verify"]) == 0


def test_a_job_ends_although_its_webhook_does_not_open(
    start: Start, receive: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    one, receiver = start(**LOCAL), receive()
    held = submit(one, receiver.url, seed=doings.HELD)
    one.wait_until_held(held)
    with rows_of(one) as session:
        session.execute(sa.update(Job).where(Job.id == held.id).values(sealed_webhook=b"\x01" * 60))
    one.open_gate(held)
    assert one.end(held).state == "succeeded"
    assert settled(one, held).state == "given_up"
    assert receiver.messages == []
    assert any("its webhook cannot be sealed to a message" in each.getMessage() for each in caplog.records)
