"""A real S3 server, a folder, and a service that may read and write some of both."""

import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.store.blobs.bucket import Bucket
from tests.preloaded.processes import running_service

SECRET = "kept-from-everybody/9f2c"


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage of tables by reference, and the service that uses it."""

    s3: Any
    folder: Path
    outside: Path
    """A folder that no prefix allows, with a file ``secret.csv``."""
    home: Path
    client: httpx.Client

    def object(self, bucket: str, key: str) -> bytes:
        """An object's content."""
        content: bytes = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return content

    def keys(self, bucket: str) -> list[str]:
        """The keys of the bucket's objects."""
        return [each["Key"] for each in self.s3.list_objects_v2(Bucket=bucket).get("Contents", [])]

    def unfinished(self, bucket: str) -> list[str]:
        """The keys of uploads that were begun and neither ended nor given up."""
        return [each["Key"] for each in self.s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # takes seconds, which other tests need not wait

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def new_bucket(s3_address: str) -> Iterator[Callable[[], Bucket]]:
    """Make empty prefixes of a bucket, and set this process's credentials for it."""
    import boto3

    given = {"aws_access_key_id": "AKIAROWVEIL", "aws_secret_access_key": SECRET, "region_name": "eu-west-1"}
    s3 = boto3.client("s3", endpoint_url=s3_address, **given)
    s3.create_bucket(Bucket="sealed", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment_of(s3_address).items():
            patch.setenv(name, value)
        yield lambda: Bucket("sealed", f"{secrets.token_hex(4)}/rowveil/")
    s3.close()


def environment_of(s3_address: str) -> dict[str, str]:
    """Return the variables of a process that uses the server."""
    return {
        "AWS_ENDPOINT_URL": s3_address,
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "AKIAROWVEIL",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


@pytest.fixture(scope="session")
def storage(s3_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    import boto3

    given = {"aws_access_key_id": "AKIAROWVEIL", "aws_secret_access_key": SECRET, "region_name": "eu-west-1"}
    s3 = boto3.client("s3", endpoint_url=s3_address, **given)
    for bucket in ("given", "given-evil", "released"):
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    root = tmp_path_factory.mktemp("references")
    folder, outside = root / "data", root / "database"
    for made in (folder, outside, folder / "out", folder / "out" / "again"):
        made.mkdir()
    (outside / "secret.csv").write_text("age\n31\n")
    environment = environment_of(s3_address)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with (
            running_service(
                root / "home",
                workers="2",
                max_buffer_bytes=str(8 * 2**20),
                source_prefixes=f"*=s3://given, *=file://{folder}, census=s3://secret",
                destination_prefixes=f"*=s3://released/out,*=file://{folder}/out,census=s3://released/census",
                overwrite_prefixes=f"*=s3://released/out/again,*=file://{folder}/out/again",
            ) as address,
            httpx.Client(base_url=address, timeout=60) as client,
        ):
            yield Storage(s3, folder, outside, root / "home", client)
    s3.close()
