"""Results of RWN do not depend on threads, slices of work, chunks, encodings or other fields."""

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest

from providers import progress as progress_module
from tests.naive.agreement import swap
from tests.property.test_invariance import backwards, data_of, forwards, rechunked

ROWS = 3001

RUNS: list[dict[str, Any]] = [
    {},
    {"epsilon": 0.4, "ties": "index", "categorical_weight": 0.2},
    {"k": 70, "q": 0.4, "neighbours": "sample", "sample_size": 500},
    {"k": 70, "q": 0.4, "neighbours": "own_sample", "sample_size": 500},
    {"k": 70, "q": 0.4, "neighbours": "pairs", "sample_size": 3},
    {"k": 70, "epsilon": 0.3, "neighbours": "pairs", "sample_size": 500},
    {"ties": "index", "neighbours": "pairs", "sample_size": 2800},
    {"neighbours": "partition", "parts": 7},
    {"neighbours": "partition", "parts": 7, "within": "sample", "sample_size": 60},
    {"neighbours": "partition", "parts": 7, "within": "own_sample", "sample_size": 60},
    {"neighbours": "partition", "parts": 7, "within": "pairs", "sample_size": 60},
]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(6)
    number = random.integers(-(10**12), 10**12, ROWS)
    return pa.table(
        {
            "v": pa.array(number, mask=number % 7 == 0),
            "x": pa.array(random.normal(size=ROWS).astype(np.float32)),
            "b": pa.array(number % 3 == 0),
            "t": pa.array((number % 5).astype(str)),
            "code": pa.array(random.integers(0, 4, ROWS)),
        }
    )


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores the number of threads."""
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("parameters", RUNS)
def test_threads_change_no_byte(parameters: dict[str, Any], table: pa.Table) -> None:
    """One thread and two give the same bytes and the same report."""
    results = []
    for count in (1, 2):
        if count > numba.config.NUMBA_NUM_THREADS:
            pytest.skip("one processor only")
        numba.set_num_threads(count)
        results.append(swap("RWN", table, parameters))
    one, two = results
    assert data_of(one.table) == data_of(two.table)
    assert (one.summary, one.provider) == (two.summary, two.provider)


@pytest.mark.parametrize("parameters", RUNS)
def test_slices_of_work_change_no_byte(
    parameters: dict[str, Any], table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often Python looks at the clock, the result is the same."""
    whole = swap("RWN", table, parameters)
    monkeypatch.setattr(progress_module, "_SECONDS", 1e-9)
    cut = swap("RWN", table, parameters)
    assert data_of(whole.table) == data_of(cut.table)


@pytest.mark.parametrize("parameters", RUNS)
def test_chunks_and_encodings_change_nothing(parameters: dict[str, Any], table: pa.Table) -> None:
    """Chunked, sliced or dictionary-encoded, numbers and text give the values that they give plainly."""
    plain = swap("RWN", table, parameters)
    cut = swap("RWN", rechunked(table, [5, 1000, 2500]), parameters)
    assert cut.table.equals(plain.table)
    assert (cut.summary, cut.provider) == (plain.summary, plain.provider)
    for encode in (forwards, backwards):
        encoded = table
        for name in ("v", "t", "code"):
            encoded = encoded.set_column(table.column_names.index(name), name, encode(table.column(name)))
        found = swap("RWN", encoded, parameters)
        assert found.table.schema == encoded.schema
        assert found.table.cast(table.schema).equals(plain.table)
        assert (found.summary, found.provider) == (plain.summary, plain.provider)


@pytest.mark.parametrize("fields", [["v", "x"], ["t", "v", "b"]])
def test_a_field_moves_alike_in_any_company(fields: list[str], table: pa.Table) -> None:
    """The other perturbed fields change nothing for a field; two fields draw independently."""
    shared = {"distance_fields": ["x", "t"]}
    alone = swap("RWN", table, {**shared, "perturb_fields": ["v"]}).table
    together = swap("RWN", table, {**shared, "perturb_fields": fields}).table
    assert together["v"].equals(alone["v"])
    twins = table.append_column("w", table["x"])
    moved = swap("RWN", twins, {**shared, "perturb_fields": ["x", "w"]}).table
    assert np.mean(moved["x"].to_numpy() == moved["w"].to_numpy()) < 0.3


def test_the_source_stays_as_it_is(table: pa.Table) -> None:
    """Nothing is written into it."""
    before = data_of(table)
    swap("RWN", table, {"q": 0.5})
    assert data_of(table) == before


def test_progress_is_reported_within_the_work(table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress never decreases, reaches the end, and names its stages."""
    from providers.randomness.chacha20 import Stream
    from providers.services.rwn import PROVIDER, RwnParams

    monkeypatch.setattr(progress_module, "_SECONDS", 1e-9)
    reported: list[tuple[float, str]] = []
    params = PROVIDER.check(RwnParams(), table.schema)
    stream = Stream(bytes(32), "RWN", 1)
    PROVIDER.swap(table, params, stream, lambda fraction, stage: reported.append((fraction, stage)))
    fractions = [fraction for fraction, _ in reported]
    assert fractions == sorted(fractions)
    assert 0 <= fractions[0] < 0.1
    assert 0.9 < fractions[-1] <= 1
    assert sum(stage == "drawing donors" for _, stage in reported) > 10
