"""Two replicas on one PostgreSQL and one bucket, with no common folder, under one fault after the other."""

import logging
import os
import random
import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from app.errors import Unavailable
from tests.faults.replicas import Replica, started, starts_before, until
from tests.faults.rounds import SHARES, Rounds
from tests.free_port import free_port
from tests.postgres import Postgres
from tests.references.storage import SECRET, environment_of

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1500)]

ROUNDS = int(os.environ.get("BUCKET_ROUNDS", "40"))

BUCKET = "rounds"

FAULTS = {
    name: share
    for name, share in SHARES.items()
    if name not in ("fill_disk", "break_disk", "make_clock_jump")
}
"""Faults that need no library in the processes, which would fail the calls of a folder."""


class S3Server:
    """S3 server on a fixed port, which keeps its objects while it is stopped."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every request
        self._port = free_port()
        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()
        self.address = f"http://127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Close the port."""
        self._server.stop()

    def start(self) -> None:
        """Open the port again."""
        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()


@dataclass
class BucketRounds(Rounds):
    """Replicas whose tables are in a bucket."""

    server: S3Server = field(kw_only=True)
    s3: Any = field(kw_only=True)

    def files(self) -> set[str]:
        """Return the name of every blob in the bucket, without those in the trash."""
        blobs, trash = (
            {key.rpartition("/")[2] for key in self.keys(f"rowveil/{folder}/")}
            for folder in ("blobs", "trash")
        )
        return blobs - trash

    def keys(self, prefix: str) -> list[str]:
        """Return the keys of all objects below a prefix."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", [])]

    def _stop_storage(self, draw: random.Random, _: list[str]) -> set[str]:
        """Stop the S3 server; a call that needs it meanwhile is refused, or done afterwards."""
        self.server.stop()
        try:
            time.sleep(draw.uniform(0.0, 1.5))
        finally:
            self.server.start()
        return {Unavailable.code}


@pytest.fixture(scope="module")
def rounds(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketRounds]:
    folder = tmp_path_factory.mktemp("bucket-pair")
    server = S3Server()
    s3 = boto3.client(
        "s3",
        endpoint_url=server.address,
        aws_access_key_id="AKIAROWVEIL",
        aws_secret_access_key=SECRET,
        region_name="eu-west-1",
    )
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    database = postgres.new_database()
    pair = [Replica(name, folder / name / "home", database, None) for name in ("one", "two")]
    shared = environment_of(server.address) | {
        "ROWVEIL_STORAGE": f"s3://{BUCKET}/rowveil",
        "ROWVEIL_KEY": secrets.token_hex(32),
        "ROWVEIL_SIGNING_KEY_FILE": str(folder / "signing.key"),
    }
    for replica in pair:
        replica.environment |= shared
    with started(pair):
        made = BucketRounds(
            pair, postgres, database, folder, FAULTS | {"stop_storage": 4}, server=server, s3=s3
        )
        made.prepare()
        yield made
        made.close()
    server.stop()
    s3.close()


def test_a_replica_that_starts_before_its_bucket_waits_for_it(rounds: BucketRounds) -> None:
    starts_before(rounds.server.stop, rounds.pair[1], rounds.server.start)


def test_every_job_ends_once_and_right_whatever_dies(
    rounds: BucketRounds, capsys: pytest.CaptureFixture[str]
) -> None:
    """Afterwards no object is in the bucket that no row names."""
    rounds.run_all(ROUNDS)
    for replica in rounds.pair:
        until("the replica is up", lambda replica=replica: replica.up)  # type: ignore[misc]
        replica.end(signal.SIGTERM)
    rounds.pair[0].start()
    until("the replica is up", lambda: rounds.pair[0].up)
    until("the bucket is swept", lambda: rounds.files() == rounds.named())
    assert rounds.keys("rowveil/progress/") == []
    assert rounds.keys("rowveil/scratch/") == []
    assert rounds.done["stop_storage"] > 0
    with capsys.disabled():
        print(
            f"\n{sum(rounds.done.values())} rounds of faults on a bucket: {dict(rounds.done)}; "
            f"jobs met in {dict(rounds.moments)}, ended {dict(rounds.states)}"
        )
