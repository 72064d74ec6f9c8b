"""Attacks that combine 20 releases of one table with different seeds: the figures on the services' pages.

Every attack uses published values alone, except the attack on PABIDOT, which also knows some rows.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from providers.binning.values import FieldValues
from providers.progress import no_progress
from providers.services.meds import MedsParams, make_bins
from tests.bins_once import bins_made_once
from tests.data.test_real_tables import read
from tests.naive.agreement import swap

pytestmark = pytest.mark.realdata

RELEASES = 20

Stack = npt.NDArray[Any]
"""Values of one field in several releases; shape (releases, rows)."""
Floats = npt.NDArray[np.float64]


def release(service: str, table: pa.Table, parameters: dict[str, Any], number: int) -> pa.Table:
    """The destination of a run whose seed is the release's number."""
    return swap(service, table, parameters, number.to_bytes(32, "big")).table


def releases(service: str, table: pa.Table, parameters: dict[str, Any], field: str) -> Stack:
    """One field of all releases."""
    with bins_made_once():
        tables = [release(service, table, parameters, number) for number in range(1, RELEASES + 1)]
    return np.stack([released[field].to_numpy() for released in tables])


def most_frequent(stack: Stack) -> npt.NDArray[Any]:
    """The value that each row shows in most releases, the earliest one of several; shape (rows,)."""
    counts = np.stack([(stack == shown).sum(axis=0) for shown in stack])
    frequent: npt.NDArray[Any] = stack[counts.argmax(axis=0), np.arange(stack.shape[1])]
    return frequent


def found_by_exclusion(
    stack: Stack, groups: Iterable[npt.NDArray[np.intp]], truth: npt.NDArray[Any]
) -> float:
    """Share of rows found by guessing, in each group, a value that the row has shown least often.

    A group's values are published; only their rows are not. At rate 1 no row receives its own value.
    Several values that a row has shown equally seldom are each guessed with the same probability.
    """
    found = 0.0
    for rows in groups:
        values, copies = np.unique(stack[0, rows], return_counts=True)
        shown = (stack[:, rows, None] == values).sum(axis=0) / copies  # shape (rows, values)
        guessed = shown == shown.min(axis=1, keepdims=True)
        right = guessed & (values == truth[rows, None])
        found += float((right.sum(axis=1) / guessed.sum(axis=1)).sum())
    return found / len(truth)


@pytest.fixture(scope="module")
def census(data_dir: Path) -> pa.Table:
    """svcensus with a number for each row, so that every value has one owner."""
    table = read(data_dir / "svcensus.csv")
    return table.append_column("owner", pa.array(np.arange(table.num_rows)))


@pytest.mark.parametrize(("rate", "share"), [(0.3, 1.0), (0.5, 0.9996), (0.8, 0.827)])
def test_dswap_at_a_rate_below_one_is_undone_by_the_most_frequent_value(
    census: pa.Table, rate: float, share: float
) -> None:
    parameters = {"swap_fields": ["wageinc"], "rate": rate}
    found = most_frequent(releases("DSWAP", census, parameters, "wageinc")) == census["wageinc"].to_numpy()
    assert found.mean() == pytest.approx(share, abs=0.012)
    if rate == 0.3:
        assert found.all()


@pytest.mark.parametrize("service", ["CDSWAP", "DDSWAP"])
def test_groups_at_a_rate_below_one_are_undone_by_the_most_frequent_value(
    census: pa.Table, service: str
) -> None:
    parameters: dict[str, Any] = {"swap_fields": ["wageinc"], "rate": 0.3}
    parameters |= (
        {"control_field": "occ"} if service == "CDSWAP" else {"control_field": "age", "block_size": 5}
    )
    found = most_frequent(releases(service, census, parameters, "wageinc"))
    assert np.mean(found == census["wageinc"].to_numpy()) == pytest.approx(1, abs=1e-3)


def test_cdswap_at_rate_one_is_undone_by_exclusion_in_small_classes(census: pa.Table) -> None:
    """Classes of five rows."""
    table = census.append_column("class", pa.array(np.arange(census.num_rows) // 5))
    stack = releases("CDSWAP", table, {"swap_fields": ["owner"], "control_field": "class"}, "owner")
    classes = np.split(np.arange(table.num_rows), np.arange(5, table.num_rows, 5))
    assert found_by_exclusion(stack, classes, table["owner"].to_numpy()) == pytest.approx(0.993, abs=0.003)


def test_cdswap_protects_large_classes(census: pa.Table) -> None:
    """The classes of occ hold 501 to 6,820 people: each release excludes one of them."""
    stack = releases("CDSWAP", census, {"swap_fields": ["owner"], "control_field": "occ"}, "owner")
    occupation = census["occ"].to_numpy()
    smallest = np.flatnonzero(occupation == 106)
    assert len(smallest) == 501
    truth = census["owner"].to_numpy()
    shown = found_by_exclusion(stack[:, smallest], [np.arange(501)], truth[smallest])
    assert shown == pytest.approx(1 / 481, abs=0.0003)  # 500 others, of which 20 draws exclude nearly 20


@pytest.mark.parametrize(("block_size", "share"), [(2, 1.0), (5, 0.993), (10, 0.647), (50, 0.030)])
def test_ddswap_at_rate_one_is_undone_by_exclusion(census: pa.Table, block_size: int, share: float) -> None:
    """The control field does not move, so that anybody can cut the blocks again."""
    parameters = {"swap_fields": ["owner"], "control_field": "age", "block_size": block_size}
    stack = releases("DDSWAP", census, parameters, "owner")
    order = np.argsort(census["age"].to_numpy(), kind="stable")
    blocks = np.split(order, np.arange(block_size, len(order), block_size))
    assert len(blocks[-1]) > 1
    truth = census["owner"].to_numpy()
    assert found_by_exclusion(stack, blocks, truth) == pytest.approx(share, abs=0.012)


@pytest.mark.parametrize(("k", "share"), [(5, 0.993), (10, 0.647)])
def test_meds_is_undone_by_exclusion_in_bins_made_of_the_release(
    census: pa.Table, k: int, share: float
) -> None:
    """The bins depend on the swap fields' values alone, which a release publishes; each age is unique."""
    fields = ["age", "wageinc"]
    stack = releases("MEDS", census, {"swap_fields": fields, "k": k}, "age")
    released = release("MEDS", census, {"swap_fields": fields, "k": k}, 1)
    numbers = [field_values(name, released[name].to_numpy().astype(float)) for name in fields]
    bins = make_bins(MedsParams.model_validate({"swap_fields": fields, "k": k}), numbers, no_progress)
    groups = np.split(bins.groups.order, bins.groups.starts[1:-1])
    found = found_by_exclusion(stack, groups, census["age"].to_numpy())
    assert found == pytest.approx(share, abs=0.012)


def field_values(name: str, values: Floats) -> FieldValues:
    return FieldValues(name, values, float(values.min()), float(values.max()))


def test_mews_is_undone_by_exclusion_in_small_cells(census: pa.Table) -> None:
    """The grid follows from the published values, so that anybody can find the cells again."""
    fields, bins = ["age", "wageinc"], 40
    parameters = {"swap_fields": fields, "bins": bins, "singletons": "keep"}
    stack = releases("MEWS", census, parameters, "age")
    first = release("MEWS", census, parameters, 1)
    cells = np.zeros(census.num_rows, np.int64)
    for name in fields:
        values = first[name].to_numpy().astype(float)
        width = (values.max() - values.min()) / bins
        cell = np.floor((values - values.min()) / width).astype(np.int64)
        cells = bins * cells + np.minimum(cell, bins - 1)
    truth = census["age"].to_numpy()
    order = np.argsort(cells, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(cells[order])) + 1)
    small = [rows for rows in groups if 2 <= len(rows) <= 5]
    large = [rows for rows in groups if len(rows) > 50]
    shares = [
        found_by_exclusion(stack, chosen, truth) * len(truth) / sum(len(rows) for rows in chosen)
        for chosen in (small, large)
    ]
    assert shares == pytest.approx([0.99, 0.01], abs=0.01)


@pytest.mark.parametrize(
    ("q", "k", "share"),
    [(0.5, 5, 0.960), (0.5, 25, 0.990), (0.5, 75, 0.993), (0.8, 5, 0.524), (1.0, 5, 0.312)],
)
def test_rwn_at_q_below_one_is_undone_by_the_most_frequent_value(
    census: pa.Table, q: float, k: int, share: float
) -> None:
    """With many neighbours the share depends on their number, so that every second row is enough."""
    table = census.drop_columns(["owner"])
    if k >= 25:
        table = table.take(np.arange(0, table.num_rows, 2))
    stack = releases("RWN", table, {"k": k, "q": q, "perturb_fields": ["wageinc"]}, "wageinc")
    found = most_frequent(stack) == table["wageinc"].to_numpy()
    assert found.mean() == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("size", "sigma", "one", "mean"),
    [(20, 0.1, 0.345, 0.148), (20, 1.0, 0.184, 0.049), (100, 0.1, 0.106, 0.028)],
)
def test_the_mean_of_locality_approaches_the_source(
    data_dir: Path, size: int, sigma: float, one: float, mean: float
) -> None:
    """Root mean square error of adult's ages, in standard deviations: of one release and of the mean."""
    ages = read(data_dir / "adult.csv").select(["age"]).slice(0, 4000)
    stack = releases("LOCALITY", ages, {"fields": ["age"], "segment_size": size, "sigma": sigma}, "age")
    truth = ages["age"].to_numpy().astype(float)
    errors = [
        np.sqrt(np.mean((guess - truth) ** 2)) / truth.std(ddof=1) for guess in (stack[0], stack.mean(0))
    ]
    assert errors == pytest.approx([one, mean], abs=0.01)


def matrix(table: pa.Table, fields: list[str]) -> Floats:
    return np.column_stack([table[name].to_numpy().astype(float) for name in fields])


def recovered(source: Floats, guess: Floats) -> float:
    """R^2 of a guess of all fields, the mean over fields."""
    left = ((source - guess) ** 2).sum(axis=0) / ((source - source.mean(axis=0)) ** 2).sum(axis=0)
    return float(1 - left.mean())


@pytest.mark.parametrize(
    ("name", "label", "tenth", "twenty", "another"),
    [
        ("wholesale_customers", "Channel", 0.942, 0.914, 0.935),
        ("wine_quality_white", "quality", 0.963, 0.917, 0.961),
        ("page_blocks", "class", 0.907, 0.570, 0.918),
        ("letter_recognition", "lettr", 0.964, 0.592, 0.962),
    ],
)
def test_known_rows_undo_pabidot_and_serve_for_every_release(
    data_dir: Path, name: str, label: str, tenth: float, twenty: float, another: float
) -> None:
    """Least squares on the known rows of one release; the rotation is the same for every seed.

    `another`: the coefficients of the first release, learnt on a tenth of its rows, applied to the third.
    """
    table = read(data_dir / f"{name}.csv").drop_columns([label])
    source = matrix(table, table.column_names)
    shares: dict[str, list[float]] = {"tenth": [], "twenty": []}
    rows = len(source)
    learnt: list[npt.NDArray[np.floating[Any]]] = []
    for number in (1, 2, 3):
        parameters = {"fields": table.column_names, "shuffle": False}
        released = matrix(release("PABIDOT", table, parameters, number), table.column_names)
        design = np.column_stack([released, np.ones(rows)])
        chance = np.random.default_rng(number)
        for key, count in (("tenth", rows // 10), ("twenty", 20)):
            known = chance.choice(rows, count, replace=False)
            coefficients = np.linalg.lstsq(design[known], source[known], rcond=None)[0]
            unknown = np.setdiff1d(np.arange(rows), known)
            shares[key].append(recovered(source[unknown], design[unknown] @ coefficients))
            learnt.append(coefficients)
    assert np.mean(shares["tenth"]) == pytest.approx(tenth, abs=0.02)
    assert np.mean(shares["twenty"]) == pytest.approx(twenty, abs=0.05)
    guess = design @ learnt[0]
    guess += source.mean(axis=0) - guess.mean(axis=0)  # the translation is another for every seed
    assert recovered(source, guess) == pytest.approx(another, abs=0.02)
