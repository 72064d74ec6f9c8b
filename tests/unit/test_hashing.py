"""The digest that is taken beside is the one taken at once, and tells what is wrong."""

import threading

import numpy as np
import pyarrow as pa
import pytest

from app.store.hashing import DigestBeside
from providers.digest import table_digest

LARGE = pa.table({"a": np.arange(200_000), "b": np.random.default_rng(1).normal(size=200_000)})


def test_large_and_small_batches_follow_each_other() -> None:
    """Also small ones, hashed by the caller, after large ones that the thread may not have done with."""
    batches = [
        *LARGE.slice(0, 100_000).to_batches(),
        *LARGE.slice(100_000, 3).to_batches(),
        *LARGE.slice(100_003).to_batches(max_chunksize=50_000),
    ]
    before = threading.active_count()
    with DigestBeside(LARGE.schema) as digest:
        for batch in batches:
            digest.update(batch)
        assert threading.active_count() == before + 1
        assert digest.finish() == table_digest(LARGE)
        assert digest.rows == LARGE.num_rows
    assert threading.active_count() == before


def test_rows_without_fields_are_counted() -> None:
    with DigestBeside(pa.schema([])) as digest:
        digest.rows += 7
        assert digest.finish() != table_digest(pa.table({}))


def test_what_is_wrong_with_a_large_batch_is_told() -> None:
    """By the next call: the digest is never that of the batches before."""
    other = LARGE.rename_columns(["a", "c"]).to_batches()[0]
    with DigestBeside(LARGE.schema) as digest:
        digest.update(other)
        with pytest.raises(ValueError, match="does not have the fields of the schema"):
            digest.finish()
