"""Sections of divided jobs: how many there are, and when one worker assembles the destination."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.engine.engine import Failure
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer
from app.worker.digest_sets import packed_digest
from app.worker.run_units import DROPPED, SECTIONS, UNITS, run_or_divide
from app.worker.tasks import EarlierSource, EarlierSources, ReleaseQuestion, SwapTask
from providers.tables.digest import CHUNK_ROWS, DigestForm
from tests.swap_tasks import swap_task

UNITS_WANTED = 4


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> SwapTask:
    folder: Path = tmp_path_factory.mktemp("task")
    store = BlobStore(folder / "blobs", Sealer([bytes(32)]))
    rows = pa.table({"x": np.arange(2 * CHUNK_ROWS + 1, dtype=np.int32)})
    return swap_task(store, folder, "DSWAP", rows, {"swap_fields": ["x"]}, 10**7, UNITS_WANTED)


def question(*digests: str) -> ReleaseQuestion:
    """An earlier source with releases of these digests."""
    released = b"".join(map(packed_digest, digests))
    earlier = EarlierSource("family", released, len(digests), "2026-11-01T00:00:00Z")
    return ReleaseQuestion(bytes(32), "sha256t:00", "allow", False, EarlierSources((pickle.dumps(earlier),)))


@pytest.mark.parametrize(
    ("changes", "sections"),
    [
        ({}, 3),
        ({"units": 2}, 2),
        ({"release": question("sha256t:01" + "0" * 62, "sha256t:02" + "0" * 62)}, 3),
        ({"release": question("sha256t:01" + "0" * 62, "sha256:02" + "0" * 62)}, 1),
        ({"digest_form": DigestForm.WHOLE}, 1),
        ({"parameters": {"swap_fields": ["x"], "suppression": {"policy": "drop"}}}, 3),
    ],
)
def test_a_destination_has_a_section_for_each_unit_and_chunk(
    task: SwapTask, changes: dict[str, Any], sections: int
) -> None:
    divided = run_or_divide(replace(task, **changes))
    assert not isinstance(divided, Failure)
    assert divided[UNITS] == changes.get("units", UNITS_WANTED)
    assert len(divided[SECTIONS]) == sections
    drops = "suppression" in changes.get("parameters", {})
    assert divided[DROPPED] == (1 + max(map(max, divided[SECTIONS])) if drops else None)
