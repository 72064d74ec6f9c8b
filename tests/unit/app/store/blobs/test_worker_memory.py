"""Memory of a worker that reads few fields of a wide table."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from app.engine.data_limit import private_bytes
from app.store.blobs.arrow_stream import write_table
from app.store.blobs.column_reader import BlobTable
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer

FIELDS, ROWS = 60, 60_000


@pytest.mark.skipif(private_bytes() is None, reason="the system does not limit this memory")
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_fields_that_are_not_read_take_no_memory(tmp_path: Path, kind: pa.DataType) -> None:
    """A batch has 15 fields of 16 MiB and more; what counts towards the limit is that of the read one."""
    access = BlobStore(tmp_path, Sealer([bytes(32)])).allocate()
    numbers = pa.array(np.arange(10**7, 10**7 + ROWS)).cast(kind)
    write_table(access, pa.table({f"f{number}": numbers for number in range(FIELDS)}))
    blob = BlobTable(access, ROWS)
    assert blob.read(["f7"]).column("f7").equals(pa.chunked_array([numbers]))  # imports and buffers stay
    before = private_bytes() or 0
    held = list(blob.batches(["f7", "f9"]))
    grown = (private_bytes() or 0) - before
    assert pa.Table.from_batches(held).column("f9").combine_chunks().equals(numbers)
    assert grown < 8 * numbers.nbytes
    assert sum(batch.nbytes for batch in held) == 2 * numbers.nbytes
