"""Tables of an embedded service in a bucket of a real S3 server; all tests of the API run on one, too."""

from collections.abc import Callable

import httpx
import pytest

from app.references import parse_prefix
from app.store.blobs.bucket import Bucket
from tests.api.calls import Api
from tests.api.test_jobs import Rows
from tests.conftest import BUCKET, Service


@pytest.fixture(scope="module")
def served(service_on: Callable[[str], Service]) -> Service:
    return service_on(BUCKET)


def stored(served: Service) -> dict[str, int]:
    """Names and sizes of the blobs in the bucket."""
    prefix = parse_prefix(served.database["storage"])
    bucket = Bucket(prefix.bucket, "".join(f"{segment}/" for segment in prefix.path))
    return {found.key.rpartition("/")[2]: found.size for found in bucket.objects("blobs")}


def test_tables_are_in_the_bucket_alone_until_they_are_deleted(
    served: Service, api: Api, people: Rows
) -> None:
    """A retained source and a destination; deleting the job deletes both."""
    before = stored(served)
    job = api.run("DSWAP", people, {"swap_fields": ["income"]}, retain_source=True)
    assert len(stored(served).keys() - before.keys()) == 2
    assert not [path for path in (served.home / "blobs").glob("??/*") if path.is_file()]
    assert api.client.delete(f"/v1/jobs/{job['id']}").status_code == 204
    assert stored(served) == before


def test_the_service_is_ready_and_measures_the_bucket(served: Service, client: httpx.Client) -> None:
    assert client.get("/readyz").json()["checks"]["storage"] == "ok"
