"""The digest that is computed in the background equals the one computed directly, and reports errors."""

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from app.store.blobs.background_digest import BackgroundDigest
from providers.tables.digest import TableDigest, table_digest

LARGE = pa.table({"a": np.arange(200_000), "b": np.random.default_rng(1).normal(size=200_000)})


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Number of threads that Arrow may use; the digest of two fields can use at most two."""
    before = pa.cpu_count()
    pa.set_cpu_count(request.param)
    yield min(2, request.param)
    pa.set_cpu_count(before)


def test_large_and_small_batches_follow_each_other(threads: int) -> None:
    """Also small ones, hashed by the caller, after large ones that the threads may not have done with."""
    batches = [
        *LARGE.slice(0, 100_000).to_batches(),
        *LARGE.slice(100_000, 3).to_batches(),
        *LARGE.slice(100_003).to_batches(max_chunksize=50_000),
    ]
    before = set(threading.enumerate())  # of which others may end meanwhile
    with BackgroundDigest(LARGE.schema) as digest:
        for batch in batches:
            digest.update(batch)
        own = set(threading.enumerate()) - before
        assert len(own) == threads
        assert digest.finish() == table_digest(LARGE)
        assert digest.rows == LARGE.num_rows
    assert not any(thread.is_alive() for thread in own)


def test_rows_without_fields_are_counted() -> None:
    with BackgroundDigest(pa.schema([])) as digest:
        digest.rows += 7
        assert digest.finish() != table_digest(pa.table({}))


def test_a_large_batch_of_other_fields_is_refused() -> None:
    other = LARGE.rename_columns(["a", "c"]).to_batches()[0]
    with (
        BackgroundDigest(LARGE.schema) as digest,
        pytest.raises(ValueError, match="does not have the fields of the schema"),
    ):
        digest.update(other)


def test_what_goes_wrong_in_a_thread_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call raises it: the digest is never that of earlier batches alone."""

    def fails() -> None:
        raise MemoryError

    monkeypatch.setattr(TableDigest, "work", lambda *_: [fails])
    with BackgroundDigest(LARGE.schema) as digest:
        digest.update(LARGE.to_batches()[0])
        with pytest.raises(MemoryError):
            digest.finish()
