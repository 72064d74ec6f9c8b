"""Checkpoints of the audit leave the machine: by a signed request, or as objects that nobody can replace."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import boto3
import pytest

from app.callers import THE_SERVICE
from app.file_threads import ServiceThreads
from app.jobs.maintenance.audit_anchors import AuditAnchors
from app.jobs.stores import Stores
from app.settings import Settings
from app.store.crypto.sealing import signature_holds
from app.store.sql.audit.checkpoints import Anchor, newest_checkpoint
from app.store.sql.audit.verification import verify
from app.store.sql.replicas import moment
from app.telemetry.metrics import Metrics
from tests.faults.receivers import SECRET, Receiver, status
from tests.faults.running import PATIENCE

BUCKET = "audit-anchors"
AWS = {"aws_access_key_id": "AKIAROWVEIL", "aws_secret_access_key": "none", "region_name": "eu-west-1"}


class Anchored:
    """Stores whose checkpoints are published."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.settings = Settings(home=home, **settings)
        self.stores = Stores.open(self.settings)
        self.metrics = Metrics()
        self._pool = ThreadPoolExecutor(1)
        self._threads = ServiceThreads(self._pool, self._pool, self._pool)
        self.anchors = AuditAnchors(self.settings, self.stores, self._threads, self.metrics)

    def add_line(self) -> None:
        """Append a line."""
        with self.stores.database.write() as session:
            self.stores.audit.append(session, THE_SERVICE, "rows.read", "job", moment(session))

    def run(self) -> Anchor:
        """Publish the newest checkpoint and return its anchor."""
        asyncio.run(self.anchors.run())
        with self.stores.database.read() as session:
            newest = newest_checkpoint(session)
        assert newest is not None
        return newest.anchor

    @property
    def failures(self) -> float | None:
        """Number of failed publications."""
        return self.metrics.registry.get_sample_value("rowveil_audit_anchor_failures_total")

    def close(self) -> None:
        """Close the stores."""
        self.stores.close()
        self._pool.shutdown()


@pytest.fixture
def locked(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Client of a new bucket whose objects nobody can delete for a year."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_address,
        "AWS_REGION": AWS["region_name"],
        "AWS_ACCESS_KEY_ID": AWS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": AWS["aws_secret_access_key"],
    }.items():
        monkeypatch.setenv(name, value)
    s3 = boto3.client("s3", endpoint_url=s3_address, **AWS)
    place = {"LocationConstraint": AWS["region_name"]}
    s3.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True, CreateBucketConfiguration=place)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 365}}
    configuration = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    s3.put_object_lock_configuration(Bucket=BUCKET, ObjectLockConfiguration=configuration)
    yield s3
    s3.close()


def test_checkpoints_are_objects_that_nobody_replaces_or_deletes(
    locked: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Anchored(tmp_path / "one", audit_anchor_url=f"s3://{BUCKET}/rowveil")
    for _ in range(2):
        one.add_line()
        anchor = one.run()
    one.run()  # nothing has been added: nothing is published
    keys = [each["Key"] for each in locked.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert keys == ["rowveil/000000000001.json", "rowveil/000000000002.json"]
    stored = locked.get_object(Bucket=BUCKET, Key=keys[-1])
    document = json.loads(stored["Body"].read())
    assert Anchor.parse(document.pop("anchor")) == anchor
    assert signature_holds({k: v for k, v in document.items() if k != "signature"}, document["signature"])
    assert stored["ObjectLockMode"] == "COMPLIANCE"
    with pytest.raises(locked.exceptions.ClientError, match="AccessDenied"):
        locked.delete_object(Bucket=BUCKET, Key=keys[-1], VersionId=stored["VersionId"])
    assert one.failures == 0

    # A service that starts again publishes the newest one again, which is the same object.
    again = AuditAnchors(one.settings, one.stores, one._threads, one.metrics)
    asyncio.run(again.run())
    assert one.failures == 0
    with one.stores.database.read() as session:
        assert verify(session, one.stores.audit.key, one.stores.signer, anchor).fault == ""
    one.close()

    # Another log at the same place, such as one that was written again.
    other = Anchored(tmp_path / "other", audit_anchor_url=f"s3://{BUCKET}/rowveil")
    other.add_line()
    other.run()
    assert other.failures == 1
    assert "the bucket has another checkpoint 1: the log was rewritten" in caplog.text
    with other.stores.database.read() as session:
        found = verify(session, other.stores.audit.key, other.stores.signer, anchor).fault
    assert found == "the end was cut off: checkpoint 2 was there, and 1 are left"
    other.close()


def test_checkpoints_are_posted_until_one_arrives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver(status(503), status(204))
    service = Anchored(
        tmp_path, audit_anchor_url=receiver.url, audit_anchor_secret=SECRET, webhook_insecure=True
    )
    service.add_line()
    anchor = service.run()
    assert service.failures == 1
    assert "the webhook answered 503" in caplog.text
    assert service.run() == anchor
    assert service.failures == 1
    service.run()
    first, second = receiver.wait_for(2)
    assert first["webhook-id"] == second["webhook-id"]  # verified by the receiver
    assert second["body"]["anchor"] == str(anchor)
    assert len(receiver.messages) == 2
    receiver.close()
    service.close()


def test_a_stop_does_not_wait_for_a_receiver(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever time limit webhooks have. The next start publishes the checkpoint."""
    ended = Event()
    receiver = Receiver(lambda handler: status(204)(handler) if ended.wait(PATIENCE) else None, status(204))
    slow = {"webhook_insecure": True, "webhook_timeout": 60}
    service = Anchored(tmp_path, audit_anchor_url=receiver.url, audit_anchor_secret=SECRET, **slow)
    service.add_line()
    asyncio.run(service.anchors.run(within=0.1))
    assert service.failures == 1
    assert "no response within 0.1 s" in caplog.text
    ended.set()
    anchor = service.run()
    assert service.failures == 1
    assert receiver.wait_for(1)[-1]["body"]["anchor"] == str(anchor)
    receiver.close()
    service.close()


@pytest.mark.parametrize(
    "url", ["http://log.example/", "ftp://log.example", "s3://b", "https://", "s3://bucket/a,s3://other"]
)
def test_addresses_that_cannot_get_checkpoints_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ROWVEIL_AUDIT_ANCHOR_URL"):
        Settings(home=tmp_path, audit_anchor_url=url)
