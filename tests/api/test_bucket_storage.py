"""The tests of the API that move tables, on a service whose tables are in a bucket of a real S3 server."""

from collections.abc import Callable

import httpx
import pytest

from app.references import parse_prefix
from app.store.blobs.bucket import Bucket
from tests.api.calls import Api
from tests.api.test_buffers import (
    table,
    test_broken_upload_is_a_problem,
    test_gzip_is_undone_on_the_way,
    test_upload_run_and_get_back,
)
from tests.api.test_jobs import (
    Rows,
    job,
    test_get_answers_the_same_job_without_rows,
    test_purged_job_is_gone,
    test_rerun_needs_the_source_unless_it_was_retained,
    test_rerun_reproduces_the_bytes,
    test_rows_in_every_type_are_the_same_table,
)
from tests.api.test_table_views import (
    test_a_copy_has_other_types_and_fewer_fields,
    test_a_preview_shows_rows_of_a_trial_run,
    test_a_profile_counts_what_the_table_has,
    test_rows_before_and_after_a_run_are_compared,
)
from tests.conftest import BUCKET, Service

__all__ = [
    "job",
    "table",
    "test_a_copy_has_other_types_and_fewer_fields",
    "test_a_preview_shows_rows_of_a_trial_run",
    "test_a_profile_counts_what_the_table_has",
    "test_broken_upload_is_a_problem",
    "test_get_answers_the_same_job_without_rows",
    "test_gzip_is_undone_on_the_way",
    "test_purged_job_is_gone",
    "test_rerun_needs_the_source_unless_it_was_retained",
    "test_rerun_reproduces_the_bytes",
    "test_rows_before_and_after_a_run_are_compared",
    "test_rows_in_every_type_are_the_same_table",
    "test_upload_run_and_get_back",
]


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
