"""The digest that is taken beside is the one taken at once, and tells what is wrong."""

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from app.store.hashing import DigestBeside
from providers.digest import TableDigest, table_digest

LARGE = pa.table({"a": np.arange(200_000), "b": np.random.default_rng(1).normal(size=200_000)})


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """So many as Arrow may have; of two fields' digest at most two can be of use."""
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
    with DigestBeside(LARGE.schema) as digest:
        for batch in batches:
            digest.update(batch)
        own = set(threading.enumerate()) - before
        assert len(own) == threads
        assert digest.finish() == table_digest(LARGE)
        assert digest.rows == LARGE.num_rows
    assert not any(thread.is_alive() for thread in own)


def test_rows_without_fields_are_counted() -> None:
    with DigestBeside(pa.schema([])) as digest:
        digest.rows += 7
        assert digest.finish() != table_digest(pa.table({}))


def test_a_large_batch_of_other_fields_is_refused() -> None:
    other = LARGE.rename_columns(["a", "c"]).to_batches()[0]
    with (
        DigestBeside(LARGE.schema) as digest,
        pytest.raises(ValueError, match="does not have the fields of the schema"),
    ):
        digest.update(other)


def test_what_goes_wrong_in_a_thread_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next call: the digest is never that of the batches before."""

    def fails() -> None:
        raise MemoryError

    monkeypatch.setattr(TableDigest, "work", lambda *_: [fails])
    with DigestBeside(LARGE.schema) as digest:
        digest.update(LARGE.to_batches()[0])
        with pytest.raises(MemoryError):
            digest.finish()
